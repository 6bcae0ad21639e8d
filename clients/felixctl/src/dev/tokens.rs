//! The tokens that this process uses itself, kept good for as long as it runs.

use felix_controlplane::DevTokens;
use felix_controlplane_client::Held;
use tokio::task::JoinHandle;

use super::seed;

/// Tokens that are replaced before they run out, and when the key that signed them was retired. The control plane is
/// in this process, so that nothing needs to be kept to mint the next ones.
#[derive(Debug)]
pub(super) struct Kept {
    /// For clients of the broker.
    pub client: Held,
    /// For callers of the control plane.
    pub controlplane: Held,
    /// For those who follow the catalogue.
    pub node: Held,
    keeping: JoinHandle<()>,
}

/// Whether there are new ones.
fn renew(mint: &DevTokens, (client, controlplane, node): &(Held, Held, Held)) -> bool {
    match seed::tokens(mint) {
        Ok(next) => {
            // The client's is what others wait for, so it comes last.
            node.replace(&next.node);
            controlplane.replace(&next.controlplane);
            client.replace(&next.client);
            tracing::info!("the node's own tokens were renewed");
            true
        }
        Err(error) => {
            tracing::warn!(%error, "the node's own tokens were not renewed; trying again");
            false
        }
    }
}

impl Kept {
    /// Keeps these tokens.
    pub(super) fn new(first: &seed::Tokens, mint: DevTokens) -> Self {
        let (client, controlplane, node) = (
            Held::new(&first.client),
            Held::new(&first.controlplane),
            Held::new(&first.node),
        );
        let held = (client.clone(), controlplane.clone(), node.clone());
        let keeping = tokio::spawn(async move {
            // Those who follow are refused first when a key is retired, and all were minted at one time.
            let renew = || std::future::ready(renew(&mint, &held));
            held.2.keep_fresh(renew).await;
        });
        Self {
            client,
            controlplane,
            node,
            keeping,
        }
    }

    /// Renews them no more. The control plane may stop when this returns.
    pub(super) async fn end(mut self) {
        self.keeping.abort();
        // It was told to end, and says so.
        let _ = (&mut self.keeping).await;
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.keeping.abort();
    }
}
