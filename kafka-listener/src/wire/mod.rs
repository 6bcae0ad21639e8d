//! Bytes of the Kafka protocol: what is read by hand, what is walked before it is decoded, which versions are served.

pub(crate) mod api;
pub(crate) mod codes;
pub(crate) mod guard;
pub(crate) mod header;
pub(crate) mod read;
pub(crate) mod sample;
mod schema;
pub(crate) mod write;
