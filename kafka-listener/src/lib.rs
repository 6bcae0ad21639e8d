//! The Kafka listener: Kafka clients in front, the native protocol behind.
//!
//! What lives here: connections of Kafka clients and what they send (`conn`, `wire`), their logins (`sasl`), one file
//! for each request that is served (`api`), and which stream is which topic (`topics.rs`). Whatever a client asks is
//! asked of brokers and control plane with the client's own token; the listener decides nothing by itself and keeps
//! nothing that outlives it, so any number of them can run.
//!
//! What never does: records. Batches pass as they are; they are opened by those who read them. And no request is
//! decoded whose counts and lengths were not held against its bytes before (`wire/guard.rs`).
//!
//! Begin with [`start`], then follow a request: `conn/mod.rs` hears it, `api/mod.rs` finds who answers it, and
//! `api/produce.rs` or `api/fetch.rs` is what most of them come to.

mod anonymous;
mod api;
mod config;
mod conn;
mod limits;
mod listener;
mod metrics;
mod names;
mod ops;
mod sasl;
mod tls;
mod topics;
mod upstream;
mod who;
mod wire;

pub use anonymous::Anonymous;
pub use api::readable;
pub use config::{Config, ConfigRefused, ENVIRONMENT};
pub use listener::{Embedding, Running, StartRefused, start};
pub use metrics::CATALOGUE as METRICS;
pub use tls::TlsRefused;
pub use upstream::RootsRefused;
pub use wire::sample::{Draw, sample, served};
