//! A browser's session without its socket: messages in, effects out. Time is an argument; nothing here waits for anything.

pub(crate) mod answer;
pub(crate) mod fault;
pub(crate) mod features;
pub(crate) mod message;
mod state;
pub(crate) mod writes;

pub(crate) use self::state::{Ask, Effect, Rights, Session, Shape, Subscribe};

/// The version of the protocol that is spoken.
pub(crate) const PROTOCOL: u64 = 1;
