//! The control plane from outside, over real sockets and in real processes.

mod bootstrap;
mod common;
mod durability;
mod follow;
mod http;
