//! Numbers that must not be mixed up.
//!
//! ```text
//!   base                          next (exclusive)
//!    |                             |
//!    v                             v
//!    +----+----+----+----+----+----+
//!    | 10 | 11 | 12 | 13 | 14 | 15 |   a batch: base = 10, next = 16
//!    +----+----+----+----+----+----+
//! ```
//!
//! Wherever an offset is called `next` or `end` it names the first offset *after* the range.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Declares a transparent, ordered, copyable wrapper around one integer.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }

        impl From<$name> for $inner {
            fn from(value: $name) -> Self {
                value.0
            }
        }
    };
}

number! {
    /// The position of a record in its shard, from 0. Kafka stores it as a signed number, so a valid
    /// offset is at most [`Offset::MAX`].
    Offset(u64)
}

number! {
    /// How often the leadership of a shard has changed hands; the Raft term, and Kafka's leader epoch.
    Generation(u32)
}

number! {
    /// Which log of a stream, from 0.
    ShardIndex(u32)
}

number! {
    /// Identifies an idempotent producer. Ids come from one 63-bit allocator, so that they fit the
    /// signed field of the batch header; an id is native or Kafka for life.
    ProducerId(u64)
}

number! {
    /// Distinguishes a stream from an earlier one of the same name. Old offsets, positions and handles
    /// carry the old incarnation and so never reach the new stream.
    Incarnation(u64)
}

impl Incarnation {
    /// Tells a stream from every other stream that its tenant has or had. Streams that are created together have one
    /// incarnation, so their names take part. Positions of Kafka groups are stored under it: not a bit of this may
    /// ever change.
    #[must_use]
    pub fn number(self, namespace: &str, stream: &str) -> u64 {
        let names = [namespace, stream];
        let mut bytes = Vec::with_capacity(namespace.len() + stream.len() + 24);
        for name in names {
            bytes.extend_from_slice(&(name.len() as u64).to_be_bytes());
            bytes.extend_from_slice(name.as_bytes());
        }
        bytes.extend_from_slice(&self.0.to_be_bytes());
        crate::key_hash(&bytes)
    }
}

number! {
    /// A point in time in milliseconds: since the Unix epoch in a broker, since the start of the run in
    /// the simulator.
    TimeMs(u64)
}

impl Offset {
    /// The first offset of every shard.
    pub const ZERO: Self = Self(0);
    /// The largest offset the batch header can carry. A shard that wrote a million records a second
    /// would reach it after 292,000 years.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// The offset `records` further on, or `None` beyond [`Offset::MAX`].
    #[must_use]
    pub fn checked_add(self, records: u64) -> Option<Self> {
        self.0
            .checked_add(records)
            .map(Self)
            .filter(|sum| *sum <= Self::MAX)
    }

    /// The offset `records` further on, or [`Offset::MAX`] when that lies beyond it.
    #[must_use]
    pub fn plus(self, records: u64) -> Self {
        self.checked_add(records).unwrap_or(Self::MAX)
    }

    /// How many offsets lie in `earlier..self`; 0 when `earlier` is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Generation {
    /// Before any leader: what a shard that was never led carries.
    pub const ZERO: Self = Self(0);

    /// The generation of the next leader, or `None` when the header's field is used up.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        self.0
            .checked_add(1)
            .filter(|next| i32::try_from(*next).is_ok())
            .map(Self)
    }
}

impl ShardIndex {
    /// The only shard of an unsharded stream, and where records without a key go.
    pub const ZERO: Self = Self(0);
}

impl ProducerId {
    /// The largest id the allocator may hand out.
    pub const MAX: Self = Self(i64::MAX as u64);
}

impl TimeMs {
    /// The start of time.
    pub const ZERO: Self = Self(0);

    /// The time `ms` later; saturates.
    #[must_use]
    pub fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to `self`; 0 when `earlier` is not earlier, so that a clock stepping
    /// back never makes a huge age.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_never_leaves_what_the_batch_header_can_carry() {
        assert_eq!(Offset(5).checked_add(3), Some(Offset(8)));
        assert_eq!(Offset::MAX.checked_add(0), Some(Offset::MAX));
        assert_eq!(Offset::MAX.checked_add(1), None);
        assert_eq!(Offset(1).checked_add(u64::MAX), None);
        assert_eq!(Offset(1).plus(u64::MAX), Offset::MAX);
    }

    #[test]
    fn differences_never_wrap() {
        assert_eq!(Offset(8).since(Offset(5)), 3);
        assert_eq!(Offset(5).since(Offset(8)), 0);
        assert_eq!(TimeMs(5).since(TimeMs(8)), 0);
        assert_eq!(TimeMs(u64::MAX).plus(1), TimeMs(u64::MAX));
    }

    #[test]
    fn generations_end_where_the_header_field_ends() {
        assert_eq!(Generation(0).next(), Some(Generation(1)));
        assert_eq!(Generation(i32::MAX as u32).next(), None);
    }

    #[test]
    fn streams_of_one_incarnation_have_numbers_of_their_own() {
        let orders = Incarnation(7).number("default", "orders");
        // Where these are is on disks.
        assert_eq!(orders, 0x5ae7_bd15_90f0_d85f);
        assert_eq!(
            Incarnation(8).number("default", "orders"),
            0x08e2_6bcb_8136_f187
        );
        assert_ne!(Incarnation(7).number("default", "order"), orders);
        assert_ne!(Incarnation(7).number("defaulto", "rders"), orders);
    }

    #[test]
    fn ids_are_plain_numbers_in_json() {
        assert_eq!(serde_json::to_string(&Offset(7)).unwrap(), "7");
        assert_eq!(
            serde_json::from_str::<Generation>("3").unwrap(),
            Generation(3)
        );
    }
}
