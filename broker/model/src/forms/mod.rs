//! What the readings of a log beside the stream keep in it: cache entries, counters, commits, schedules.
//!
//! Each is an ordinary record of a batch marked [`ATTR_INTERNAL`](crate::ATTR_INTERNAL), told apart by
//! internal headers, so that no header of a user is ever taken for one of them:
//!
//! ```text
//! form                key           value    headers
//! cache put           cache key     value    "x" expiry, i64, when it expires
//! cache delete        cache key     null
//! counter add         counter key   null     "+" delta, i64; with an idempotency key also "i" and
//!                                            "s" sum after it, i64
//! counter checkpoint  counter key   null     "=" sum, i64
//! commit              entity key    event    for each change in order "p" + state key -> value or
//!                                            "d" + state key -> null; "c" -> null without changes;
//!                                            "i" idempotency key, if any
//! scheduled record    routing key   payload  "s" schedule id; the user's headers follow
//! ```
//!
//! All numbers are big-endian; an expiry is in milliseconds since 1970. A record with "+" or "=" is a
//! counter's and one without is a cache entry's, so a cache key and a counter key of one name never meet.
//! The sum in an idempotent add lets a retry be answered after compaction dropped the adds before it.
//!
//! [`KeyedBuilder`] puts many records of caches and counters into one batch, and [`Keyed::read`] and
//! [`Commit::read`] say what a record means. [`shown()`] is what readers get of such a batch.

mod commit;
mod keyed;
mod shown;

pub use commit::{Change, Commit, commit_record, schedule_id, schedule_record, users_headers};
pub use keyed::{AddOnce, Keyed, KeyedBuilder};
pub use shown::shown;

use bytes::Bytes;

use crate::batch::BatchRefused;

/// Longest idempotency key, in bytes; the shortest has one.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 128;

const HEADER_EXPIRY: &[u8] = b"x";
const HEADER_DELTA: &[u8] = b"+";
const HEADER_SUM: &[u8] = b"=";
const HEADER_IDEMPOTENCY: &[u8] = b"i";
const HEADER_SUM_AFTER: &[u8] = b"s";
const HEADER_SCHEDULE: &[u8] = b"s";
const HEADER_NO_CHANGE: &[u8] = b"c";
const PREFIX_PUT: u8 = b'p';
const PREFIX_DELETE: u8 = b'd';

fn malformed(name: &'static str) -> BatchRefused {
    BatchRefused::InternalHeader { name }
}

fn number(name: &'static str, value: Option<&Bytes>) -> Result<i64, BatchRefused> {
    value
        .and_then(|bytes| bytes.as_ref().try_into().ok())
        .map(i64::from_be_bytes)
        .ok_or_else(|| malformed(name))
}

fn idempotency_key(value: Option<Bytes>) -> Result<Bytes, BatchRefused> {
    value
        .filter(|key| (1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&key.len()))
        .ok_or_else(|| malformed("i"))
}
