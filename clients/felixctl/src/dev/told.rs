//! What others were told of the node, kept true while it runs.

use std::path::PathBuf;

use felix_controlplane_client::Held;

use super::ready::Ready;

/// Where the node's tokens were written down for others.
#[derive(Debug)]
pub(super) struct Told {
    /// The file of contexts, when the node wrote one.
    pub context: Option<PathBuf>,
    /// The ready file, when one was asked for.
    pub ready_file: Option<PathBuf>,
}

impl Told {
    /// Writes the tokens down anew whenever the node has others, as after the key that signed them was retired: the
    /// context first, the ready file last, each whole or not at all. It ends when it is dropped.
    pub(super) async fn keep(self, mut ready: Ready, (client, controlplane): (Held, Held)) {
        loop {
            client.other_than(&ready.token).await;
            let next = Ready {
                token: client.token().to_string(),
                controlplane_token: controlplane.token().to_string(),
                ..ready.clone()
            };
            self.write(&next, &ready);
            ready = next;
        }
    }

    fn write(&self, next: &Ready, before: &Ready) {
        if let Some(file) = &self.context
            && let Err(error) = next.renew_context(file, before)
        {
            tracing::warn!(%error, "the context still holds tokens that are refused");
        }
        if let Some(file) = &self.ready_file
            && let Err(error) = next.write(file)
        {
            tracing::warn!(
                error = error.message,
                "the ready file still holds tokens that are refused"
            );
        }
    }
}
