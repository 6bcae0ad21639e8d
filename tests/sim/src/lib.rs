//! One broker with one shard, its disk and its clients, simulated in one thread from one seed.
//!
//! What lives here: the real engine and the real journal's log over a disk that fails, forgets and stops as the
//! seed says; publishers and subscribers; a virtual clock; and the checkers that hold everything the broker says and
//! does against what was promised. A run is repeated exactly by its seed and its sync mode.
//!
//! What never lives here: a second implementation of anything that is checked, a real clock, a thread, a socket, or
//! chance that does not come from the seed. Networks between brokers are not simulated: there is one broker. The members
//! of a raft ledger have one, in [`ledger`].
//!
//! Where to begin: [`Plan`] says what a seed stands for and [`run`] runs it; `world/steps.rs` lists what can happen,
//! `world/lives.rs` how a broker ends and starts again, `oracle.rs` what is then checked. [`Twin`] lists the brokers
//! that are broken on purpose, of which every checker must catch its own. [`campaign`] runs many.

pub mod campaign;
mod check;
mod faults;
pub mod history;
pub mod ledger;
mod oracle;
mod plan;
mod pool;
mod publisher;
mod random;
pub mod readings;
mod subscriber;
mod tally;
mod transcript;
mod twin;
mod world;

pub use check::{Check, Violation};
pub use faults::FaultName;
pub use oracle::Ending;
pub use plan::{Mode, Plan};
pub use tally::Tally;
pub use twin::Twin;
pub use world::{Outcome, run, run_twice};
