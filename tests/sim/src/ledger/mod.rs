//! Three members of a raft ledger in one thread: the real ones, over a simulated network and simulated disks.
//!
//! What a seed brings: delays, loss, duplicates and reordering on the way; members cut off, both ways or one way; kills,
//! power cuts, failing and full disks; disks that come back empty; members removed and taken in again; a clock that jumps.
//! Clients append and confirm through every member meanwhile, and `check` holds what they were told against the one
//! history that all members must agree on.
//!
//! Time is tokio's, paused: it moves when nobody has anything to do. Everything random in a member comes from the seed, so
//! that a run is repeated exactly.

mod campaign;
mod check;
mod client;
mod disk;
mod member;
mod nemesis;
mod net;
mod twin;
mod world;

pub use campaign::{Campaign, Summary};
pub use check::{Check, Violation};
pub use twin::Twin;
pub use world::{Outcome, Plan, Tally, run, run_twice};
