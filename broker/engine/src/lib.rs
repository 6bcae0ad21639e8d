//! One shard of one stream, as a state machine.
//!
//! What lives here: every decision about a shard. The order of appends and the offsets they get,
//! the committed mark and who may read up to it, idempotent producers, conditional publishes, the
//! readers as cursors with their flow control, and what an in-memory stream does when a reader is
//! slower than its publishers. [`Shard::handle`] takes one [`Input`] and a time, and pushes the
//! [`Effect`]s that follow, in the order in which they must be carried out.
//!
//! What never does: files, sockets, clocks, threads, randomness, names, tokens. The shell carries
//! the effects out and reports back with further inputs; the simulator does the same under faults,
//! and gets the same effects for the same inputs every time.
//!
//! Begin with [`Input`] and [`Effect`], which together are the whole contract, then
//! [`Shard::handle`]. `shard/append.rs` admits, `shard/commit.rs` moves the mark and lets answers
//! go, `shard/readers.rs` serves cursors, `window.rs` holds what they are served from, and
//! `producers.rs` remembers who sent what. [`keyed`] holds what the readings beside the stream know of
//! the newest record of each key. `testdata/` shows all of it as transcripts.

mod batch;
pub mod cache;
mod effect;
pub mod groups;
mod input;
mod kafka_producers;
pub mod keyed;
pub mod membership;
mod options;
mod producers;
mod refused;
mod shard;
pub mod state;
mod stats;
pub mod teams;
mod window;

/// The digest of [`Produced`], which recovery computes anew from the records.
pub use felix_model::native::payload_digest;

pub use batch::{BATCH_FRAME_SLOTS, Batch, BatchKind, Draft, Run};
pub use effect::{Appended, Effect};
pub use input::{AckWhen, Append, CloseReason, Input, Page, Produced, ReaderId, Start, Ticket};
pub use kafka_producers::{KafkaObserved, KafkaProduced};
pub use options::{CommitWhen, Limits, Overflow, ShardOptions, Storage};
pub use producers::{Observed, ProducerTable};
pub use refused::{AppendRefused, ReaderEnd, SubscribeRefused, WriteFailure};
pub use shard::{ReaderView, Shard};
pub use stats::Stats;
