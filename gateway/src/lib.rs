//! The browser gateway: WebSockets of browsers in front, the native protocol behind.
//!
//! What lives here: what a scope is and how much a browser may do (`scope`), the messages and the order of a session
//! (`session`, pure), its socket (`socket`), who somebody is
//! (`identity`, `sign_in`), whose pages may ask (`origin.rs`, `address.rs`), the connections and shared subscriptions to brokers (`upstream`), the
//! routes beside the socket (`http.rs`), and what the console's page asks (`console`).
//!
//! What never does: rights. Whatever a browser asks is asked of brokers and control plane with its user's own token; the
//! gateway decides nothing by itself, opens no payload and keeps nothing that outlives it, so any number of them can run.
//!
//! Begin with [`start`], then follow a message: `socket` hears it, `session` says what it means, `upstream` does it.

#![expect(
    clippy::result_large_err,
    reason = "a fault is made for a request that is refused, once; the box would be the cost"
)]

mod address;
mod app;
mod config;
mod console;
mod door;
mod gateway;
mod headers;
mod http;
mod identity;
mod limits;
mod listen;
mod metrics;
mod origin;
mod pages;
mod rooms;
mod scope;
mod session;
mod sign_in;
mod socket;
#[cfg(test)]
mod stub;
mod upstream;

pub use config::{Config, ConfigRefused, ENVIRONMENT};
pub use door::DoorRefused;
pub use gateway::{Embedding, Running, StartRefused, start};
pub use metrics::CATALOGUE as METRICS;
pub use pages::{Page, Pages};
pub use scope::ScopeRefused;
pub use upstream::reach::RootsRefused;
