//! The broker: QUIC in, shards in the middle, the journal below.
//!
//! What lives here: the process. Connections and their streams (`conn`), who may do what (`conn/auth.rs`, `fair.rs`),
//! the shards in service (`shards`), the caches (`caches`), what the catalogue says about names (`names.rs`), the operator's listener
//! (`admin.rs`) and the configuration. It carries out what the pure crates decide.
//!
//! What never does: the meaning of bytes on the wire (`felix-wire`), the order of a log and who reads what
//! (`felix-engine`), what is on disk (`felix-journal`), what a token allows (`felix-auth`).
//!
//! Begin with [`start`], then follow a publish: `conn/stream.rs` hears it, `conn/publish.rs` admits and routes it,
//! `shards/cell.rs` runs the shard's turn, `conn/answers.rs` sends the answer, and `conn/subscribe.rs` delivers.

mod admin;
mod alpn;
mod backup;
mod broker;
mod caches;
mod commits;
mod config;
mod conn;
mod events;
mod fair;
mod follow;
mod groups;
mod limits;
mod listen;
mod listing;
mod members;
mod metrics;
mod names;
mod paths;
mod quotas;
mod raw;
mod shards;
mod teams;
mod tls;

pub use broker::{Embedding, Running, StartRefused, Stopped, start};
pub use config::{Config, ConfigRefused, ENVIRONMENT, PublishQuota, TenantRate};
pub use conn::near::{Near, NearCall};
pub use metrics::CATALOGUE as METRICS;
pub use tls::{Identity, TlsRefused};
