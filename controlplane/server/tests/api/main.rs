//! The control plane from outside, over real sockets and in real processes.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod audit;
mod bootstrap;
mod common;
mod durability;
mod emergency;
mod follow;
mod http;
mod listings;
mod quotas;
mod rights;
