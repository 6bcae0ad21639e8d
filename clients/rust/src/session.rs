//! Streams to a broker: each begins with the token, and the broker says what it grants.

use bytes::BytesMut;
use felix_wire::error::{Code, Failure};
use felix_wire::extension::{Extension, Extensions};
use felix_wire::flags::Flags;
use felix_wire::message::{Auth, Message};
use felix_wire::negotiate::{Features, NotWelcome, Offer, Welcome};
use quinn::{Connection, SendStream};

use crate::frames::{Frames, FramesEnded};
use crate::limits::PUBLISH_WINDOW;

/// What a stream is meant to carry besides what every stream may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    /// Whole records with key, headers and time.
    pub(crate) records: bool,
    /// Who published each event.
    pub(crate) publishers: bool,
    /// When each event was appended.
    pub(crate) timestamps: bool,
    /// Calls in binary.
    pub(crate) requests: bool,
    /// Batches as they stand in the log, and what goes with them.
    pub(crate) raw: bool,
    /// To be told of tokens that run out.
    pub(crate) reauth: bool,
}

/// What a stream for calls asks for.
pub(crate) const CALLS: Wants = Wants {
    records: false,
    publishers: false,
    timestamps: false,
    requests: true,
    raw: true,
    reauth: false,
};

/// What the stream that keeps tokens asks for.
pub(crate) const KEEPS: Wants = Wants {
    records: false,
    publishers: false,
    timestamps: false,
    requests: false,
    raw: false,
    reauth: true,
};

impl Wants {
    /// Asks for acknowledgements that come after the write and name the offset, whatever the broker's default is.
    fn offer(self) -> Offer {
        let flags = Flags::ALL.without(Flags::EVENT_PUBLISHER | Flags::EVENT_TIMESTAMPS);
        Offer {
            flags: Some(
                flags
                    .with_if(Flags::EVENT_PUBLISHER, self.publishers)
                    .with_if(Flags::EVENT_TIMESTAMPS, self.timestamps),
            ),
            features: Features::ALL,
            reads_second_word: true,
            extensions: [
                (self.records, Extension::Records),
                (self.requests, Extension::Requests),
                (self.raw, Extension::Raw),
                (self.reauth, Extension::Reauth),
            ]
            .into_iter()
            .filter_map(|(wanted, extension)| wanted.then_some(extension))
            .collect(),
        }
    }

    pub(crate) fn auth(self, tenant: &str, token: &str) -> Auth {
        self.offer().auth(tenant, token)
    }
}

/// What a broker granted on a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) features: Features,
    pub(crate) extensions: Extensions,
    pub(crate) publish_window: u32,
}

impl Granted {
    pub(crate) fn records(self) -> bool {
        self.extensions.contains(Extension::Records)
    }
}

/// A stream on which the token was accepted.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) send: SendStream,
    pub(crate) frames: Frames,
    pub(crate) granted: Granted,
}

/// Why there is no stream, or no answer on it.
#[derive(Clone, Debug)]
pub(crate) enum NotAsked {
    /// The broker refused the token, or anybody's.
    Unwelcome(Failure),
    /// The connection or the stream was lost.
    Lost { sent: bool, why: String },
    /// The broker answered something that is no answer.
    Protocol { what: String },
}

impl From<FramesEnded> for NotAsked {
    fn from(ended: FramesEnded) -> Self {
        match ended {
            FramesEnded::Lost(_) | FramesEnded::Cut => Self::Lost {
                sent: true,
                why: ended.to_string(),
            },
            FramesEnded::Refused(_) | FramesEnded::Message(_) => Self::Protocol {
                what: ended.to_string(),
            },
        }
    }
}

/// Opens a stream that stays open.
pub(crate) async fn open(connection: &Connection, auth: Auth) -> Result<Opened, NotAsked> {
    let (send, mut frames) = begin(connection, &[auth.into()]).await?;
    let granted = welcome(&mut frames).await?;
    if !granted.extensions.is_empty() {
        frames.allow_extensions();
    }
    Ok(Opened {
        send,
        frames,
        granted,
    })
}

/// Sends one request on a stream of its own, right behind the token, and takes its one answer. Saves the round
/// trip that waiting for the token's acceptance would cost.
pub(crate) async fn ask(
    connection: &Connection,
    auth: Auth,
    request: Message,
) -> Result<(Granted, Message), NotAsked> {
    let (mut send, mut frames) = begin(connection, &[auth.into(), request]).await?;
    // A stream the broker has stopped reading still delivers its answer.
    let _ = send.finish();
    let granted = welcome(&mut frames).await?;
    let answer = frames.message().await?.ok_or_else(ended_early)?;
    Ok((granted, answer))
}

async fn begin(
    connection: &Connection,
    messages: &[Message],
) -> Result<(SendStream, Frames), NotAsked> {
    let lost = |sent, why: String| NotAsked::Lost { sent, why };
    let opened = connection.open_bi().await;
    let (mut send, recv) = opened.map_err(|error| lost(false, error.to_string()))?;
    let mut bytes = BytesMut::new();
    for message in messages {
        message.encode_into(&mut bytes);
    }
    let written = send.write_chunk(bytes.freeze()).await;
    match written {
        // A broker that refuses the token may stop reading before it says so.
        Ok(()) | Err(quinn::WriteError::Stopped(_)) => Ok((send, Frames::new(recv, false))),
        Err(error) => Err(lost(true, error.to_string())),
    }
}

async fn welcome(frames: &mut Frames) -> Result<Granted, NotAsked> {
    let answer = frames.message().await?.ok_or_else(ended_early)?;
    let welcome = Welcome::read(answer).map_err(|error| match error {
        NotWelcome::Refused(failure) => NotAsked::Unwelcome(failure),
        NotWelcome::Unexpected { .. } => NotAsked::Protocol {
            what: error.to_string(),
        },
    })?;
    Ok(Granted {
        features: welcome.features,
        extensions: welcome.extensions,
        publish_window: welcome.publish_window.unwrap_or(PUBLISH_WINDOW),
    })
}

/// Whether a request was refused because the token of its stream had run out. Nothing was carried out, and nothing that
/// is sent behind it on that stream will be.
pub(crate) fn ran_out(failure: &Failure) -> bool {
    failure.code() == Some(Code::Unauthenticated) && failure.reason() == Some("token_expired")
}

/// Codes (and the lack of one) by which a broker judges the token itself. Any other refusal is about the broker.
pub(crate) fn is_about_token(failure: &Failure) -> bool {
    failure.code.is_none()
        || matches!(
            failure.code(),
            Some(Code::Unauthenticated | Code::Forbidden | Code::Revoked)
        )
}

fn ended_early() -> NotAsked {
    NotAsked::Lost {
        sent: true,
        why: "the broker ended the stream without an answer".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publishers_times_and_records_are_offered_only_when_wanted() {
        let plain = Wants::default().offer();
        let reads = Flags::EVENT_PUBLISHER | Flags::EVENT_TIMESTAMPS;
        assert_eq!(plain.flags.unwrap() & reads, Flags::NONE);
        assert!(plain.extensions.is_empty());
        let all = Wants {
            records: true,
            publishers: true,
            timestamps: true,
            requests: true,
            raw: true,
            reauth: true,
        }
        .offer();
        assert_eq!(all.flags, Some(Flags::ALL));
        assert!(all.extensions.contains(Extension::Records));
        assert!(all.extensions.contains(Extension::Requests));
        assert!(all.extensions.contains(Extension::Reauth));
    }
}
