//! How publishes end, and how that is read off the stream.

use std::sync::Arc;

use felix_wire::ack::Ack;
use felix_wire::error::Failure;
use felix_wire::flags::Layout;
use felix_wire::frame::Incoming;
use felix_wire::message::{Message, RefusedReason};
use tokio::sync::oneshot;

use super::rich;
use crate::frames::FramesEnded;

/// How one publish ended.
pub(crate) type Outcome = Result<Option<u64>, NotPublished>;

/// Why one publish was not acknowledged.
#[derive(Clone, Debug)]
pub(crate) enum NotPublished {
    /// The broker refused it with a code.
    Refused(Failure),
    /// The log's state does not allow it.
    OutOfPlace(RefusedReason, String),
    /// The stream ended first.
    Lost(Lost),
}

/// The stream ended.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    /// Whether any byte of the publish may have left. If not, nothing was applied.
    pub(crate) sent: bool,
    /// The broker's last words, when it ended the stream with a refusal.
    pub(crate) refused: Option<Failure>,
    pub(crate) why: Arc<str>,
}

/// Who is told how a publish ended.
pub(crate) enum Waiting {
    /// Somebody who waits for it.
    Caller(oneshot::Sender<Outcome>),
    /// An idempotent producer, by its own number for it.
    Producer(Arc<dyn Answered>, u64),
}

/// Takes the answers of publishes it submitted.
pub(crate) trait Answered: Send + Sync {
    /// The publish that was submitted as `ticket` ended. Called without any lock of the pipe held.
    fn answered(&self, ticket: u64, outcome: Outcome);
}

impl Waiting {
    pub(super) fn tell(self, outcome: Outcome) {
        match self {
            // Whoever stopped waiting does not want to know.
            Self::Caller(caller) => drop(caller.send(outcome)),
            Self::Producer(producer, ticket) => producer.answered(ticket, outcome),
        }
    }
}

impl Lost {
    pub(crate) fn because(sent: bool, why: impl Into<Arc<str>>) -> Self {
        Self {
            sent,
            refused: None,
            why: why.into(),
        }
    }
}

/// What a frame of the broker's answers; anything that is no answer ends the stream.
pub(super) fn answer_in(
    frame: Result<Option<Incoming>, FramesEnded>,
) -> Result<(u64, Outcome), Lost> {
    let broken = |why: String| Lost::because(true, why);
    let frame = frame.map_err(|error| broken(error.to_string()))?;
    let frame = match frame.ok_or_else(|| broken("the broker ended the stream".to_owned()))? {
        Incoming::Published(frame) => frame,
        Incoming::Extension(frame) => return rich::answer_in(frame).map_err(broken),
    };
    match frame.layout() {
        Ok(Layout::Ack) => {
            let ack = Ack::decode(frame.flags, frame.payload)
                .map_err(|error| broken(error.to_string()))?;
            Ok((ack.request_id, ack.outcome.map_err(NotPublished::Refused)))
        }
        Ok(Layout::Json) => {
            let message = Message::decode(&frame.payload);
            answer_in_message(message.map_err(|error| broken(error.to_string()))?)
        }
        Ok(Layout::Publish | Layout::Events) | Err(_) => Err(broken(
            "a frame that is no answer came on a publish stream".to_owned(),
        )),
    }
}

fn answer_in_message(message: Message) -> Result<(u64, Outcome), Lost> {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every other message is no answer here"
    )]
    match message {
        Message::PublishOk(ok) => Ok((ok.request_id, Ok(ok.offset))),
        Message::PublishError(error) => {
            let id = error.request_id;
            Ok((id, Err(NotPublished::Refused(error.into_failure()))))
        }
        Message::PublishRefused(refused) => {
            let outcome = NotPublished::OutOfPlace(refused.reason, refused.message);
            Ok((refused.request_id, Err(outcome)))
        }
        Message::Error(failure) => {
            let why = format!("the broker ended the stream: {failure}").into();
            Err(Lost {
                sent: true,
                refused: Some(failure),
                why,
            })
        }
        other => {
            let why = format!("{} is no answer to a publish", other.type_name());
            Err(Lost::because(true, why))
        }
    }
}
