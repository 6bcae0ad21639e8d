//! Publishing: plain, conditional and idempotent.

mod answer;
mod lane;
mod outbox;
mod pipe;
mod prepared;
mod producer;
mod publisher;
mod rich;
mod target;

use felix_wire::message::AckMode;

pub(crate) use self::outbox::Outbox;
pub(crate) use self::pipe::{Pipe, TokenUsed};
pub(crate) use self::prepared::{Prepared, Purpose};
pub use self::producer::IdempotentProducer;
pub use self::publisher::{Publisher, Receipt};
pub(crate) use self::target::Target;

/// When a publish counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ack {
    /// Once it was handed to the transport. It is never answered, not even when it is refused.
    None,
    /// Once the broker has answered; what the answer means is a property of the stream.
    #[default]
    Message,
    /// As [`Ack::Message`], under the protocol's other name: both are answered once a batch.
    Batch,
}

impl Ack {
    /// As it stands in a binary frame.
    fn byte(self) -> u8 {
        match self {
            Self::None | Self::Message => 1,
            Self::Batch => 2,
        }
    }

    fn json(self) -> AckMode {
        match self {
            Self::None => AckMode::None,
            Self::Message => AckMode::PerMessage,
            Self::Batch => AckMode::PerBatch,
        }
    }
}

/// A batch that is in the log, as far as the stream promises it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Published {
    /// Offset of the batch's first record; the others follow it. `None` for in-memory streams, and for publishes
    /// without an answer.
    pub offset: Option<u64>,
}
