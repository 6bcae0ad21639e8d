//! The native protocol as bytes: frames and their flags, the JSON messages, the binary layouts of
//! publishes, answers and events, error codes, what two peers may say to each other, and our own
//! extension frames. `docs/PROTOCOL.md` says the same in words.
//!
//! Nothing here opens a connection, judges a token, knows a stream or a shard, or asks for the
//! time: bytes go in and values come out, and the other way round. Nothing is reserved for a length
//! that the bytes at hand do not back, and no input makes it panic.
//!
//! Begin with [`frame`], then [`message`] for requests in JSON and [`publish`] for the one that has
//! to be fast. [`negotiate`] decides what may be sent to whom, and [`session`] puts it together
//! into one stream as a broker sees it.

pub mod ack;
mod cursor;
pub mod error;
pub mod event;
pub mod extension;
pub mod flags;
pub mod frame;
pub mod limits;
pub mod message;
pub mod negotiate;
pub mod publish;
pub mod session;

pub use self::ack::{Ack, AckForm, Owner};
pub use self::cursor::Malformed;
pub use self::error::{Code, Detail, Failure, NamedCode, Retry};
pub use self::event::{Event, EventBatch, EventHead, Stamps};
pub use self::extension::{Extension, ExtensionFrame, Extensions};
pub use self::flags::{Flags, FlagsRefused, Layout};
pub use self::frame::{Accepts, Frame, FrameRefused, Header, Incoming};
pub use self::message::{Message, MessageRefused};
pub use self::negotiate::{Ending, EventForm, Features, Grant, Offer, Peer, Served, Welcome};
pub use self::publish::{BinaryAck, Names, Outgoing, Producer, Publish, PublishMalformed, Request};
pub use self::session::{Heard, Refusal, Session, Slot, Ways, Window};
