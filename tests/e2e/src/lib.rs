//! Real processes on loopback: started, killed, started again, and looked at from outside.
//!
//! What lives here: a node as a process of its own ([`Node`]), the command line as a process, and the campaign that
//! kills a node under load and compares what was acknowledged with what is there afterwards ([`kills`]), and
//! the comparison of a load without and beside a reader that stopped ([`stopped_reader`]). The tests in `tests/` use the
//! same.
//!
//! What never does: access to anything inside a server. What cannot be seen through a client, the command line or the
//! admin listener is tested below, in the crate that decides it.
//!
//! Begin with [`Home`] and [`Node`], then read [`kills`]. The binary `felix-e2e` is the command line of Felix as well
//! (`felix-e2e felixctl …`), so that the processes under test are always those of the sources beside it.

pub mod broker;
pub mod browsers;
mod history;
pub mod idle;
pub mod kills;
mod node;
pub mod outside;
mod proxy;
pub mod raw;
pub mod readings;
pub mod revocation;
pub mod said;
pub mod stopped_reader;

pub use history::{History, Lost};
pub use node::{Home, Node, NodeFailed, Ready};
pub use outside::eventually;
pub use proxy::{LossyPath, Passed};
