//! Identity, revocations, quotas and audit from outside.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;
mod forms;
mod random;
mod reach;
mod room;
mod rules;
