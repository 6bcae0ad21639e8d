//! The sixteen bits of a frame header that say how its payload is laid out.

use std::fmt;
use std::ops::{BitAnd, BitOr};

/// A set of frame flags. Bits change the layout, so an unknown one makes a frame unreadable.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Flags(u16);

impl Flags {
    /// No flag: the payload is one JSON message.
    pub const NONE: Self = Self(0);
    /// The payload is a publish batch.
    pub const PUBLISH: Self = Self(0x0001);
    /// The payload is an event batch that names its subscription (legacy).
    pub const EVENT: Self = Self(0x0002);
    /// The payload is an event batch.
    pub const EVENT_SHARED: Self = Self(0x0004);
    /// The publish wants an answer: request id and ack mode come first.
    pub const PUBLISH_ACKED: Self = Self(0x0008);
    /// The payload is the answer to a publish.
    pub const ACK: Self = Self(0x0010);
    /// The event batch has a base offset.
    pub const EVENT_OFFSETS: Self = Self(0x0020);
    /// The publish has a routing key.
    pub const PUBLISH_KEYED: Self = Self(0x0040);
    /// The answer names the broker that leads the shard.
    pub const ACK_OWNER: Self = Self(0x0080);
    /// The publish has a producer id and a sequence.
    pub const PUBLISH_IDEMPOTENT: Self = Self(0x0100);
    /// The failed answer has a code and a retry class.
    pub const ACK_CODE: Self = Self(0x0200);
    /// The failed answer has a reason and a time to wait.
    pub const ACK_DETAIL: Self = Self(0x0400);
    /// The event batch counts offsets below it that hold no event.
    pub const EVENT_SKIPPED: Self = Self(0x0800);
    /// The successful answer has an offset.
    pub const ACK_OFFSET: Self = Self(0x1000);
    /// The event batch names who published it.
    pub const EVENT_PUBLISHER: Self = Self(0x2000);
    /// Every event of the batch has the time it was appended.
    pub const EVENT_TIMESTAMPS: Self = Self(0x4000);

    /// Every defined flag.
    pub const ALL: Self = Self(0x7fff);
    /// What a peer is taken to read when it has said nothing. Frozen: no bit is ever added.
    pub const ORIGINAL: Self = Self(0x0007);

    /// The flags of a header field.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// The header field.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether every flag of `other` is set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags of both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The flags that both have.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// These flags without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The same with `other` if `condition` holds.
    #[must_use]
    pub const fn with_if(self, other: Self, condition: bool) -> Self {
        if condition { self.union(other) } else { self }
    }

    /// Which layout the flags stand for.
    ///
    /// # Errors
    /// When a flag is unknown, or the flags do not belong together.
    pub fn layout(self) -> Result<Layout, FlagsRefused> {
        if !Self::ALL.contains(self) {
            return Err(FlagsRefused::Unknown { flags: self.0 });
        }
        // protocol: frame.1
        let rest_within = |own: Self, more: Self| own.union(more).contains(self);
        let event_fields = Self::EVENT_OFFSETS
            .union(Self::EVENT_SKIPPED)
            .union(Self::EVENT_PUBLISHER)
            .union(Self::EVENT_TIMESTAMPS);
        let skipped_has_base =
            !self.contains(Self::EVENT_SKIPPED) || self.contains(Self::EVENT_OFFSETS);
        let layout = if self == Self::NONE {
            Some(Layout::Json)
        } else if self.contains(Self::PUBLISH) {
            let sequence_is_acked =
                !self.contains(Self::PUBLISH_IDEMPOTENT) || self.contains(Self::PUBLISH_ACKED);
            let fields = Self::PUBLISH_ACKED
                .union(Self::PUBLISH_KEYED)
                .union(Self::PUBLISH_IDEMPOTENT);
            (rest_within(Self::PUBLISH, fields) && sequence_is_acked).then_some(Layout::Publish)
        } else if self.contains(Self::ACK) {
            let detail_has_code = !self.contains(Self::ACK_DETAIL) || self.contains(Self::ACK_CODE);
            let fields = Self::ACK_OWNER
                .union(Self::ACK_CODE)
                .union(Self::ACK_DETAIL)
                .union(Self::ACK_OFFSET);
            (rest_within(Self::ACK, fields) && detail_has_code).then_some(Layout::Ack)
        } else if self.contains(Self::EVENT_SHARED) {
            (rest_within(Self::EVENT_SHARED, event_fields) && skipped_has_base)
                .then_some(Layout::Events)
        } else if self.contains(Self::EVENT) {
            (rest_within(Self::EVENT, event_fields) && skipped_has_base).then_some(Layout::Events)
        } else {
            None
        };
        layout.ok_or(FlagsRefused::Combination { flags: self.0 })
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl BitAnd for Flags {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        self.intersection(other)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flags({:#06x})", self.0)
    }
}

/// How a frame's payload is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One JSON message.
    Json,
    /// A publish batch.
    Publish,
    /// The answer to a publish.
    Ack,
    /// An event batch.
    Events,
}

/// Why flags stand for no layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagsRefused {
    /// A bit without a meaning.
    #[error("frame flags {flags:#06x} have an unknown bit")]
    Unknown {
        /// The flags as received.
        flags: u16,
    },
    /// Bits that do not belong together.
    #[error("frame flags {flags:#06x} do not belong together")]
    Combination {
        /// The flags as received.
        flags: u16,
    },
}
