//! A browser's session without its socket: messages in, effects out. Time is an argument; nothing here waits for anything.

pub(crate) mod answer;
mod effect;
pub(crate) mod fault;
pub(crate) mod features;
mod fields;
pub(crate) mod message;
pub(crate) mod once;
mod state;
pub(crate) mod writes;

pub(crate) use self::effect::{Ask, Effect, Rights, Shape, Subscribe};
pub(crate) use self::state::Session;

/// The version of the protocol that is spoken.
pub(crate) const PROTOCOL: u64 = 1;
