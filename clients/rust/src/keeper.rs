//! Keeps what is open on a connection open while tokens come and go.
//!
//! A broker that serves the `reauth` extension says on one stream, before it happens, that a token runs out, and takes the
//! next one for everything that was opened with it. One task per connection hears that and asks the token source. With
//! another broker there is nothing to keep: what ends is begun again.

use std::sync::Arc;
use std::time::Duration;

use felix_wire::error::Failure;
use felix_wire::extension::{Answer, Extension, Extensions, Refused, Renew};
use felix_wire::frame::Incoming;
use felix_wire::message::Message;
use quinn::{Connection, SendStream};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use crate::frames::Frames;
use crate::limits::TOKEN_RETRY_MS;
use crate::session::{KEEPS, NotAsked, Opened, is_about_token, open};
use crate::token::TokenSource;

/// A stream that was kept this long was a good one.
const KEPT: Duration = Duration::from_secs(1);

/// Begins to keep a connection. Ends with it, or when the handle says so.
pub(crate) fn start(
    connection: Connection,
    tenant: String,
    source: TokenSource,
) -> Option<AbortHandle> {
    // One token for good has no next one.
    if source.is_fixed() {
        return None;
    }
    let keeper = Keeper {
        connection,
        tenant,
        source,
    };
    Some(tokio::spawn(keeper.run()).abort_handle())
}

struct Keeper {
    connection: Connection,
    tenant: String,
    source: TokenSource,
}

/// Why a stream is not kept any more.
enum Ended {
    /// Another stream may be opened.
    Lost,
    /// The broker ended it because of its token.
    Refused,
    /// The broker does not do this.
    Unknown,
}

impl Keeper {
    async fn run(self) {
        // Another token is tried at once, but not one after the other.
        let mut refused = false;
        while self.connection.close_reason().is_none() {
            let began = Instant::now();
            match self.keep().await {
                Ended::Unknown => return,
                Ended::Refused if !refused || began.elapsed() > KEPT => {
                    refused = true;
                    continue;
                }
                Ended::Refused | Ended::Lost => refused = false,
            }
            tokio::select! {
                _ = self.connection.closed() => return,
                () = sleep(Duration::from_millis(TOKEN_RETRY_MS)) => {}
            }
        }
    }

    async fn keep(&self) -> Ended {
        let Ok(token) = self.source.token().await else {
            return Ended::Lost;
        };
        let auth = KEEPS.auth(&self.tenant, &token);
        let opened = match open(&self.connection, auth).await {
            Ok(opened) => opened,
            Err(NotAsked::Unwelcome(failure)) if is_about_token(&failure) => {
                self.source.invalidate(&token);
                return Ended::Lost;
            }
            Err(_) => return Ended::Lost,
        };
        if !opened.granted.extensions.contains(Extension::Reauth) {
            return Ended::Unknown;
        }
        let Opened {
            mut send,
            mut frames,
            ..
        } = opened;
        loop {
            match heard(&mut frames).await {
                Some(Heard::Expiring { identity }) => {
                    if self.renew(identity, &mut send, &mut frames).await.is_none() {
                        return Ended::Lost;
                    }
                }
                // An answer to something that was given up.
                Some(Heard::Renewed | Heard::Refused(_)) => {}
                Some(Heard::Over(failure)) if is_about_token(&failure) => {
                    // Whoever was revoked learns it from his token source now, and not at his next request.
                    self.source.invalidate(&token);
                    return Ended::Refused;
                }
                Some(Heard::Over(_)) | None => return Ended::Lost,
            }
        }
    }

    /// Brings the next token for an identity. `None` when the stream is lost.
    async fn renew(&self, identity: u64, send: &mut SendStream, frames: &mut Frames) -> Option<()> {
        let mut also: Vec<u64> = vec![identity];
        let mut refused: Option<Arc<str>> = None;
        while let Some(identity) = also.pop() {
            let token = match self.source.token().await {
                Ok(token) if refused.as_ref() != Some(&token) => token,
                // Without a token the identity ends, and what was open under it begins again when there is one.
                Ok(_) | Err(_) => continue,
            };
            let renew = Renew {
                identity,
                token: token.to_string(),
            };
            send.write_chunk(renew.encode(identity)?).await.ok()?;
            loop {
                match heard(frames).await? {
                    Heard::Renewed => break,
                    Heard::Refused(failure) => {
                        tracing::debug!(%failure, "a token was not taken for what is open");
                        if refused.is_none() && is_about_token(&failure.failure) {
                            self.source.invalidate(&token);
                            refused = Some(token);
                            also.push(identity);
                        }
                        break;
                    }
                    Heard::Expiring { identity } => also.push(identity),
                    Heard::Over(_) => return None,
                }
            }
        }
        Some(())
    }
}

/// What a broker says on such a stream.
enum Heard {
    Expiring {
        identity: u64,
    },
    Renewed,
    Refused(Refused),
    /// The broker ends the stream, for this reason.
    Over(Failure),
}

/// The next thing that is said; `None` when nothing more is.
async fn heard(frames: &mut Frames) -> Option<Heard> {
    let granted: Extensions = [Extension::Reauth].into_iter().collect();
    loop {
        let frame = match frames.frame().await.ok()?? {
            Incoming::Extension(frame) => frame,
            Incoming::Published(frame) => {
                let said = Message::decode(&frame.payload);
                tracing::debug!(?said, "the broker ends the stream that keeps tokens");
                return match said {
                    Ok(Message::Error(failure)) => Some(Heard::Over(failure)),
                    _ => None,
                };
            }
        };
        let identity = frame.correlation;
        match frame.answer(granted) {
            Ok(Answer::Expiring(_)) => return Some(Heard::Expiring { identity }),
            Ok(Answer::Renewed(_)) => return Some(Heard::Renewed),
            Ok(Answer::Refused(refused)) => return Some(Heard::Refused(refused)),
            // Nothing else is asked for here.
            Ok(_) | Err(_) => {}
        }
    }
}
