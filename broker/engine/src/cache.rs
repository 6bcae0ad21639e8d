//! One shard of one cache: the same log as a stream's, read as keys and counters.
//!
//! [`CacheShard`] holds a [`Shard`], which orders and commits as ever, and the fold over what is
//! committed. All writes of one turn become one batch. Reads answer from what is committed; conditions
//! and sums are decided against the tail, writes in flight included, and what was decided so is
//! answered once all it saw is committed. A write that fails takes back what was decided upon it.
//!
//! ```text
//!            ops                              committed
//!             |                                  |
//!   tail  <- decide -> batch -> Shard -> journal | -> apply -> index, sums, values
//!  (overlay)    '-> answers wait with the batch -'-> leave
//! ```

mod apply;
mod decide;
mod fold;
mod overlay;
mod upkeep;

use std::collections::VecDeque;

use bytes::Bytes;
use felix_model::{Offset, TimeMs};

use crate::effect::Effect;
use crate::input::{Input, Ticket};
use crate::keyed::{Entry, Index, Key, Once, OnceBounds, Sums, Values};
use crate::options::Storage;
use crate::refused::AppendRefused;
use crate::shard::Shard;

use decide::Building;
use overlay::Overlay;
use upkeep::Removed;

pub use fold::Fold;

/// Longest key, in bytes; the shortest has one. A key is held in memory as long as it is there.
pub const KEY_BYTES_MAX: usize = 4096;

/// Expired entries that one [`CacheInput::Expire`] deletes.
pub const EXPIRED_PER_PASS_MAX: usize = 1024;

/// Entries of one [`CacheOp::List`].
pub const LIST_MAX: u32 = 1000;

/// Expired entries that one [`CacheOp::List`] passes over; a page that meets more ends there.
pub const LIST_EXPIRED_MAX: usize = 4096;

/// Names one op until it is answered. Chosen by the shell, never interpreted here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheTicket(pub u64);

/// What must hold for a conditional put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// No live entry; one that expired or was deleted is none.
    Absent,
    /// A live entry of exactly this version.
    Version(Offset),
}

/// Whether a delete is to answer with what it removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tell {
    /// The value and its version.
    Removed,
    /// Nothing but that it is done.
    Done,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheOp {
    /// The value of a key.
    Get {
        /// Which.
        key: Bytes,
    },
    /// Keys in order.
    List {
        /// They begin with it; empty: all.
        prefix: Bytes,
        /// They come after it.
        after: Option<Bytes>,
        /// At most this many, and [`LIST_MAX`].
        limit: u32,
        /// How many bytes of values to answer with, at least one value; 0: the keys alone.
        value_bytes: u64,
    },
    /// Set a key.
    Put {
        /// Which.
        key: Bytes,
        /// To what.
        value: Bytes,
        /// For how long, in milliseconds from when it is decided; `None`: for ever.
        ttl_ms: Option<u64>,
        /// Only if this holds.
        condition: Option<Condition>,
    },
    /// Remove a key.
    Delete {
        /// Which.
        key: Bytes,
        /// Only if its live entry has this version.
        version: Option<Offset>,
        /// What to answer.
        tell: Tell,
    },
    /// Add to a counter.
    Add {
        /// Which.
        key: Bytes,
        /// How much.
        delta: i64,
        /// Sent again under the same idempotency key, it counts once.
        id: Option<Bytes>,
    },
    /// What a counter has come to.
    Sum {
        /// Which.
        key: Bytes,
    },
}

/// A live entry as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Offset of the record that set it.
    pub version: Offset,
    /// When it expires; `None`: never.
    pub expires: Option<TimeMs>,
    /// Of its value, in bytes.
    pub length: u32,
    /// The value; `None`: it is not in memory, read the record at `version`.
    pub value: Option<Bytes>,
}

/// How an op went well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheAnswer {
    /// To a get: the live entry, if there is one.
    Value(Option<Found>),
    /// To a list.
    Page {
        /// Live entries in order of their keys.
        rows: Vec<(Key, Found)>,
        /// There may be more behind the last.
        more: bool,
        /// The last key that was looked at, when there may be more behind it: of those up to it, all that are live are
        /// in `rows`. It may be behind the last of the rows, and there may be none.
        upto: Option<Key>,
        /// Values were asked for; those that are not in memory are to be read. Otherwise there are none.
        with_values: bool,
    },
    /// To a put: it is in the log.
    Put {
        /// The version it wrote.
        version: Offset,
    },
    /// To a delete: the key is gone. `None`: there was nothing, and nothing was written; or it was not
    /// asked for.
    Deleted(Option<Found>),
    /// To a conditional put or delete: the condition does not hold and nothing was written.
    Unmet {
        /// The version of the live entry, if there is one.
        current: Option<Offset>,
    },
    /// To an add or a sum.
    Sum {
        /// `None`: never added to.
        sum: Option<i64>,
        /// It had been added before under the same idempotency key, and the sum is the one of then.
        repeated: bool,
    },
}

/// Why an op was refused. Nothing was written, but after [`AppendRefused::OutcomeUnknown`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CacheRefused {
    /// The caller's.
    #[error("a key of {bytes} bytes: it must have 1 to {limit}")]
    KeyLength {
        /// Of the key.
        bytes: usize,
        /// [`KEY_BYTES_MAX`].
        limit: usize,
    },
    /// The caller's: key and value together are larger than the cache takes.
    #[error("key and value of {bytes} bytes are over the limit of {limit}")]
    TooLarge {
        /// Of key and value.
        bytes: u64,
        /// Of the cache.
        limit: u64,
    },
    /// The caller's: the sum would leave the range of 64-bit numbers.
    #[error("adding {delta} to {sum} is out of range")]
    Overflow {
        /// What the counter has come to.
        sum: i64,
        /// What was to be added.
        delta: i64,
    },
    /// The caller's.
    #[error("an idempotency key of {bytes} bytes: it must have 1 to {limit}")]
    IdLength {
        /// Of the idempotency key.
        bytes: usize,
        /// [`felix_model::forms::IDEMPOTENCY_KEY_BYTES_MAX`].
        limit: usize,
    },
    /// The caller's: something else was added under this idempotency key.
    #[error("the idempotency key was used for another add, at offset {offset}")]
    IdReused {
        /// Where that is.
        offset: Offset,
    },
    /// Try again later: too many idempotency keys are too young to be forgotten.
    #[error("{keys} idempotency keys are remembered, which is the limit")]
    IdsFull {
        /// How many.
        keys: usize,
    },
    /// The log did not take it.
    #[error(transparent)]
    Append(#[from] AppendRefused),
}

/// One thing that happened.
#[derive(Debug)]
pub enum CacheInput {
    /// Requests, answered one by one. Emptied.
    Ops(Vec<(CacheTicket, CacheOp)>),
    /// What concerns the log and its readers: completions, subscriptions, pages, trims, the end. An
    /// append has no place here.
    Log(Input),
    /// Delete what expired, at most [`EXPIRED_PER_PASS_MAX`] entries.
    Expire,
}

/// One thing to do, in the order in which they were pushed.
#[derive(Clone, Debug)]
pub enum CacheEffect {
    /// What the log wants done. Never a reply.
    Log(Effect),
    /// Answer an op.
    Answer {
        /// Which.
        ticket: CacheTicket,
        /// What came of it.
        outcome: Result<CacheAnswer, CacheRefused>,
    },
}

/// What the shell decides about a cache's shard when it opens one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Largest key and value together.
    pub record_bytes_max: u32,
    /// Of a durable cache: how much of its values may be in memory, in bytes. Of one in memory: how much
    /// there may be at all; what was asked for least is evicted.
    pub value_bytes: u64,
    /// How long a deletion stays in the log at least, for those who read it late, in milliseconds.
    pub tombstone_grace_ms: u64,
    /// How much is remembered of idempotent adds.
    pub once: OnceBounds,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            record_bytes_max: 1 << 20,
            value_bytes: 64 << 20,
            tombstone_grace_ms: 10 * 60 * 1000,
            once: OnceBounds::default(),
        }
    }
}

/// What a cache's shard counts and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Keys, expired ones included until they are deleted.
    pub keys: u64,
    /// Counters.
    pub counters: u64,
    /// Bytes of values in memory.
    pub value_bytes: u64,
    /// About what the newest record of each key and counter takes in the log.
    pub live_bytes: u64,
    /// Gets that found a live entry.
    pub hits: u64,
    /// Gets that did not.
    pub misses: u64,
    /// Hits whose value was not in memory.
    pub reads: u64,
    /// Entries deleted because they expired.
    pub expired: u64,
    /// Entries deleted because a cache in memory was full.
    pub evicted: u64,
}

/// One shard of one cache.
///
/// Invariant: `index`, `sums` and `values` are the fold over exactly what is below the committed mark;
/// `overlay` is what the batches in flight add to it.
#[derive(Debug)]
pub struct CacheShard {
    shard: Shard,
    options: CacheOptions,
    index: Index,
    sums: Sums,
    values: Values,
    once: Once<i64>,
    overlay: Overlay,
    /// Batches handed to the shard and not answered by it, in order.
    flights: VecDeque<Flight>,
    building: Option<Building>,
    next_ticket: u64,
    removed: Removed,
    live_bytes: u64,
    log_effects: Vec<Effect>,
    stats: CacheStats,
}

/// One batch on its way, and the answers that leave with it.
#[derive(Debug)]
struct Flight {
    ticket: Ticket,
    base: Offset,
    records: Vec<Staged>,
    answers: Vec<(CacheTicket, Result<CacheAnswer, CacheRefused>)>,
    /// It was taken back; only its answers are still owed.
    failed: bool,
}

/// One record of a batch in flight.
#[derive(Debug)]
enum Staged {
    Put {
        key: Key,
        value: Bytes,
        expires: Option<TimeMs>,
    },
    Delete {
        key: Key,
    },
    Add {
        key: Key,
        sum: i64,
    },
    Checkpoint {
        key: Key,
        sum: i64,
    },
}

impl CacheShard {
    /// Serves a shard from what its log was found to hold.
    #[must_use]
    pub fn new(shard: Shard, options: CacheOptions, fold: Fold) -> Self {
        let Fold {
            index, sums, once, ..
        } = fold;
        let entries = index.walk(b"", None);
        let live_bytes: u64 = entries
            .map(|(key, entry)| live_bytes(key, entry.length))
            .chain(sums.walk(None).map(|(key, _)| live_bytes(key, 0)))
            .sum();
        Self {
            live_bytes,
            shard,
            options,
            index,
            sums,
            values: Values::new(options.value_bytes),
            once,
            overlay: Overlay::default(),
            flights: VecDeque::new(),
            building: None,
            next_ticket: 0,
            removed: Removed::default(),
            log_effects: Vec::new(),
            stats: CacheStats::default(),
        }
    }

    /// Advances by one input and pushes what must be done. `now` must not go back.
    pub fn handle(&mut self, now: TimeMs, input: CacheInput, effects: &mut Vec<CacheEffect>) {
        match input {
            CacheInput::Ops(ops) => {
                for (ticket, op) in ops {
                    self.op(now, ticket, op, effects);
                }
                self.submit(now, effects);
            }
            CacheInput::Log(input) => self.log(now, input, effects),
            CacheInput::Expire => self.expire(now, effects),
        }
        self.evict(now, effects);
    }

    /// The shard below: its marks, readers and counts.
    #[must_use]
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// What it counted and holds.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        CacheStats {
            keys: self.index.len() as u64,
            counters: self.sums.len() as u64,
            value_bytes: self.values.used(),
            live_bytes: self.live_bytes,
            ..self.stats
        }
    }

    /// When the next entry expires, unless it did and was not deleted yet.
    #[must_use]
    pub fn next_due(&self) -> Option<TimeMs> {
        self.index.next_due()
    }

    /// The committed entries whose keys begin with `prefix`, those above `after` only, expired ones
    /// included.
    pub fn walk<'a>(
        &'a self,
        prefix: &'a [u8],
        after: Option<&'a [u8]>,
    ) -> impl Iterator<Item = (&'a Key, Entry)> {
        self.index.walk(prefix, after)
    }

    /// The committed entry of a key, whether it expired or not.
    #[must_use]
    pub fn entry(&self, key: &[u8]) -> Option<Entry> {
        self.index.get(key)
    }

    /// The value set by the record at `offset`, if it is in memory.
    pub fn value(&mut self, offset: Offset) -> Option<Bytes> {
        self.values.get(offset)
    }

    /// Takes a value that was read from the log, if it is still the key's.
    pub fn learn(&mut self, key: &[u8], offset: Offset, value: &Bytes) {
        let is_current = self
            .index
            .get(key)
            .is_some_and(|entry| entry.offset == offset);
        if is_current
            && !self.values.holds(offset)
            && let Some(key) = self.index.key(key)
        {
            self.values
                .insert(offset, key, Bytes::copy_from_slice(value));
        }
    }

    /// Changes how much of the values of a durable cache may be in memory.
    pub fn set_value_bytes(&mut self, bytes: u64) {
        if self.is_durable() {
            self.values.set_budget(bytes);
        }
    }

    fn is_durable(&self) -> bool {
        matches!(self.shard.options().storage, Storage::Durable { .. })
    }

    fn log(&mut self, now: TimeMs, input: Input, effects: &mut Vec<CacheEffect>) {
        if let Input::Flushed { end } = input {
            self.removed.flushed(end);
        }
        self.advance(now, input, effects);
    }

    /// One step of the shard, and what follows here.
    fn advance(&mut self, now: TimeMs, input: Input, effects: &mut Vec<CacheEffect>) {
        let mut log_effects = std::mem::take(&mut self.log_effects);
        self.shard.handle(now, input, &mut log_effects);
        self.take_back();
        for effect in log_effects.drain(..) {
            match effect {
                Effect::Reply { ticket, outcome } => self.settle(ticket, outcome, effects),
                other @ (Effect::Write { .. }
                | Effect::Subscribed { .. }
                | Effect::SubscribeRefused { .. }
                | Effect::Deliver { .. }
                | Effect::Read { .. }
                | Effect::ReaderEnded { .. }
                | Effect::Closed) => effects.push(CacheEffect::Log(other)),
            }
        }
        self.log_effects = log_effects;
    }
}

/// What a record beside its key and value takes in a batch of its own.
const RECORD_OVERHEAD_BYTES: u64 = 90;

/// About what a record takes in the log.
fn live_bytes(key: &[u8], length: u32) -> u64 {
    RECORD_OVERHEAD_BYTES + key.len() as u64 + u64::from(length)
}
