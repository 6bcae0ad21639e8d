//! The control plane from outside, over real sockets and in real processes.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod accounts;
mod ages;
mod audit;
mod bootstrap;
mod common;
mod delegate;
mod durability;
mod emergency;
mod exchange;
mod follow;
mod http;
#[path = "../../../../auth/tests/oidc/idp.rs"]
mod idp;
mod listings;
mod login;
mod quotas;
mod refresh;
mod rights;
mod strangers;
mod templates;
