//! What groups take and give.

use std::time::Duration;

use bytes::Bytes;
use felix_wire::extension::requests as wire;

use crate::keyed::headers;

/// What a poll asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollOptions {
    /// At most this many records.
    pub max_records: u32,
    /// How long to wait for the first record.
    pub wait: Duration,
    /// How long the claims last; zero for the broker's default.
    pub visibility: Duration,
    /// Who polls. Claims of a named consumer are settled under its name.
    pub consumer: Option<String>,
    /// Hands over, first, the claims this consumer held on an older connection.
    pub reclaim: bool,
}

impl Default for PollOptions {
    fn default() -> Self {
        Self {
            max_records: 32,
            wait: Duration::ZERO,
            visibility: Duration::ZERO,
            consumer: None,
            reclaim: false,
        }
    }
}

/// A record that was handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupRecord {
    /// The shard.
    pub shard: u32,
    /// The record's offset in it.
    pub offset: u64,
    /// How often it was handed out; 1 is the first time.
    pub attempts: u32,
    /// How many offsets directly below hold no event.
    pub skipped_before: u64,
    /// When it was appended, Unix milliseconds; 0 from a broker that does not tell.
    pub timestamp_ms: i64,
    /// Its key; `None` also from a broker that speaks the published protocol only.
    pub key: Option<Bytes>,
    /// Its headers, in order.
    pub headers: Vec<(Bytes, Option<Bytes>)>,
    /// Its value; `None` for a deletion.
    pub value: Option<Bytes>,
}

/// One delivery of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The record.
    pub offset: u64,
    /// Which of its deliveries; 0 for whichever stands.
    pub attempts: u32,
}

/// A delivery that was not settled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unsettled {
    /// What was named.
    pub claim: Claim,
    /// The broker's code, for example `stale_claim`.
    pub code: String,
}

/// A record that was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The record's offset.
    pub offset: u64,
    /// How often it was handed out; 0 from a broker that does not tell.
    pub attempts: u32,
    /// Why it was set aside.
    pub reason: String,
    /// When it was set aside, Unix milliseconds.
    pub set_aside_at_ms: i64,
    /// When it was appended, Unix milliseconds.
    pub timestamp_ms: i64,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its headers, in order.
    pub headers: Vec<(Bytes, Option<Bytes>)>,
    /// Its value.
    pub value: Option<Bytes>,
}

/// What became of dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LettersMoved {
    /// How many were made owed again, or dropped.
    pub count: u64,
    /// Offsets that are no dead letters of the group.
    pub missing: Vec<u64>,
}

/// How a group is doing on one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupStanding {
    /// Everything below is finished; `None` before the group has a position.
    pub committed: Option<u64>,
    /// The shard's next offset (exclusive end).
    pub tail: u64,
    /// Records that were never handed out.
    pub lag: u64,
    /// Records out on a claim.
    pub in_flight: u64,
    /// Records waiting to be handed out again.
    pub owed: u64,
    /// Records set aside.
    pub dead_letters: u64,
}

/// Where a group stands after a seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Position {
    /// Everything below is finished.
    pub offset: u64,
    /// Whether the seek moved it.
    pub moved: bool,
}

impl From<wire::DeadLetter> for DeadLetter {
    fn from(letter: wire::DeadLetter) -> Self {
        Self {
            offset: letter.offset,
            attempts: letter.attempts,
            reason: letter.reason.to_string(),
            set_aside_at_ms: letter.set_aside_at_ms,
            timestamp_ms: letter.timestamp_ms,
            key: letter.key,
            headers: headers(&letter.headers),
            value: letter.value,
        }
    }
}

impl From<wire::LettersMoved> for LettersMoved {
    fn from(moved: wire::LettersMoved) -> Self {
        Self {
            count: moved.count,
            missing: moved.missing.iter().collect(),
        }
    }
}

impl From<wire::GroupStanding> for GroupStanding {
    fn from(standing: wire::GroupStanding) -> Self {
        Self {
            committed: standing.committed,
            tail: standing.tail,
            lag: standing.lag,
            in_flight: standing.in_flight,
            owed: standing.owed,
            dead_letters: standing.dead_letters,
        }
    }
}
