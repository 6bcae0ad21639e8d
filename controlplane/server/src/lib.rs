//! The control plane: the one writer of the catalogue, and its HTTP surface.
//!
//! Above is axum ([`ControlPlane`] serves the API, the bootstrap listener and the probes), below is a ledger of events
//! ([`ledger`]), and between them the [`Authority`], which decides commands one after the other and shows nothing that
//! is not durable.
//!
//! What never lives here: rules of the catalogue (they are `felix-meta`'s), what a token means (`felix-auth`'s), and
//! any data of a stream: publishes never pass this process.
//!
//! Begin with [`ControlPlane::start`], then `authority.rs` for the life of a change, then `http/routes.rs` for who
//! answers what.

mod app;
mod audit;
mod authority;
mod clock;
mod config;
mod door;
mod history;
mod housekeeping;
mod http;
pub mod ledger;
pub mod limits;
mod place;
mod raft_config;
mod request;
mod revoked;
mod server;
mod stats;
mod throttle;
pub mod transfer;
mod vault;

pub use authority::{Authority, StartFailed, WriteFailed};
pub use config::{Config, ConfigRefused, LogFormat, RaftState, Secret, StorageBackend};
pub use door::TlsRefused;
pub use server::{Addresses, CallRefused, ControlPlane, DevTokens, RunFailed};
