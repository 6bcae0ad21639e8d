//! The nouns of the log: names, ids, offsets, routing of keys, kinds of revocations, limits, and the one batch format that
//! is used on disk, between brokers and towards Kafka clients, together with the payload list of the
//! native frames.
//!
//! Nothing here does I/O, reads a clock, starts a thread or keeps global state; bytes and times come in
//! as arguments and results go out as values. Nothing here decides policy either: who may append, what
//! is retained and when an append is acknowledged is known elsewhere. Every function that reads foreign
//! bytes is total: it returns an error, it never panics, and it never reserves memory for a length that
//! the bytes at hand cannot back.
//!
//! Begin with [`batch`], which draws the record batch; then [`native`], which turns payload lists into
//! batches and back. [`limits`] holds every bound with its reason.

pub mod batch;
pub mod forms;
mod ids;
pub mod limits;
mod names;
pub mod native;
mod revoked;
pub mod routing;

pub use batch::{
    ATTR_INTERNAL, BatchBuilder, BatchHeader, BatchOptions, BatchRefused, Compression,
    HEADER_BYTES, Headers, ProducerStamp, Record, Records, TimestampType, patch, set_append_time,
    set_max_timestamp, verify, verify_checksum, verify_from_client,
};
pub use ids::{Generation, Incarnation, Offset, ProducerId, ShardIndex, TimeMs};
pub use names::{
    BadName, CacheId, CacheName, ClusterId, Namespace, NodeId, StreamId, StreamName, TenantId,
};
pub use native::{
    InternalHeaders, NativeProducer, Payloads, PayloadsRefused, internal_headers,
    payloads_from_records, records_from_payloads,
};
pub use revoked::{RevokedKind, UnknownRevokedKind};
pub use routing::{Routing, UnknownRouting, key_hash, murmur2};
