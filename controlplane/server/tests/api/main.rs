//! The control plane from outside, over real sockets and in real processes.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod bootstrap;
mod common;
mod durability;
mod follow;
mod http;
mod rights;
