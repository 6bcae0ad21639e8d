//! What subscriptions and watches share: a stream to the client that lasts as long as the token behind it.

use std::sync::Arc;

use bytes::Bytes;
use felix_auth::Principal;
use felix_wire::error::{Code, Failure};
use quinn::{SendStream, VarInt};

use super::standing::{Over, Standing, Stands};
use super::stream::StreamState;
use super::wire::gather_small;
use crate::limits::ENDING_WAIT;

/// What a reader needs to be allowed, asked again whenever a token takes the place of another.
type Needs = Box<dyn Fn(&Principal) -> Result<(), Failure> + Send + Sync>;

/// What a reader rests on.
pub(crate) struct Rests {
    standing: Arc<Standing>,
    /// How it was at the last look.
    seen: u64,
    needs: Needs,
}

/// Why a reader may not go on.
#[derive(Debug)]
pub(crate) enum Barred {
    /// The token ran out: a fresh one may go on where this one stopped.
    Expired,
    /// It was revoked, or the rights are gone.
    Refused(Failure),
}

/// The stream cannot be written to any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client is gone, or takes nothing")]
pub(crate) struct Unheard;

impl Rests {
    /// On what the stream rests that asked, for as long as the principal is allowed what `needs` asks for. It was allowed
    /// at the stream's last look.
    pub(crate) fn on(
        state: &StreamState,
        needs: impl Fn(&Principal) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Self {
        Self {
            standing: Arc::clone(&state.standing),
            seen: state.seen(),
            needs: Box::new(needs),
        }
    }

    pub(crate) fn standing(&self) -> &Arc<Standing> {
        &self.standing
    }

    /// As [`Self::look`], for a reader that stops only where it can be resumed: the next look says the same.
    ///
    /// # Errors
    /// [`Barred`].
    pub(crate) fn look_ahead(&mut self) -> Result<(), Barred> {
        let seen = self.seen;
        let looked = self.look();
        self.seen = seen;
        looked
    }

    /// Looks at it again if it moved. One comparison if it did not.
    ///
    /// # Errors
    /// [`Barred`].
    pub(crate) fn look(&mut self) -> Result<(), Barred> {
        let serial = self.standing.serial();
        if serial == self.seen {
            return Ok(());
        }
        self.seen = serial;
        match self.standing.now() {
            Stands::For(principal) => (self.needs)(&principal).map_err(Barred::Refused),
            Stands::Over(Over::Expired) => Err(Barred::Expired),
            Stands::Over(over @ Over::Revoked(_)) => Err(Barred::Refused(over.failure())),
        }
    }

    /// Writes whole frames out. A client that does not take them has little time once the token is revoked.
    ///
    /// # Errors
    /// [`Unheard`]; the stream is cut if it was the client's doing.
    pub(crate) async fn write(
        &self,
        send: &mut SendStream,
        chunks: &mut Vec<Bytes>,
    ) -> Result<(), Unheard> {
        gather_small(chunks);
        let written = {
            let writing = send.write_all_chunks(chunks);
            tokio::pin!(writing);
            tokio::select! {
                biased;
                written = &mut writing => Some(written),
                () = revoked(&self.standing) => {
                    tokio::time::timeout(ENDING_WAIT, writing).await.ok()
                }
            }
        };
        chunks.clear();
        match written {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) => Err(Unheard),
            None => {
                cut(send);
                Err(Unheard)
            }
        }
    }
}

/// Says the last thing on an event stream, for as long as a client may take to hear it.
pub(crate) async fn last_words(send: &mut SendStream, last: Option<Bytes>) {
    if let Some(last) = last {
        // A client that is gone needs no ending.
        let said = tokio::time::timeout(ENDING_WAIT, send.write_chunk(last));
        if said.await.is_err() {
            return cut(send);
        }
    }
    let _ = send.finish();
}

/// Resolves once a standing was revoked. A token that runs out ends nothing that is on its way.
pub(crate) async fn revoked(standing: &Standing) {
    match standing.is_over().await {
        Over::Revoked(_) => {}
        Over::Expired => std::future::pending().await,
    }
}

/// Ends a stream without what is on its way.
pub(crate) fn cut(send: &mut SendStream) {
    // A stream that the client stopped already is cut.
    let _ = send.reset(VarInt::from_u32(Code::Revoked.number().into()));
}
