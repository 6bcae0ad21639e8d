//! What can be wrong with a batch.

/// Why bytes are not a batch, or not one that may be appended. The bytes' author is at fault; the same
/// bytes will be refused again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchRefused {
    /// The bytes end before the batch does.
    #[error("a batch of {need} bytes is cut off after {have}")]
    Short {
        /// How many bytes are there.
        have: usize,
        /// How many the batch takes.
        need: usize,
    },
    /// More bytes follow where exactly one batch was expected.
    #[error("{extra} bytes follow the batch")]
    Trailing {
        /// How many.
        extra: usize,
    },
    /// Another version of the format, or not a batch at all.
    #[error("record batch version {found} where only 2 is understood")]
    Magic {
        /// The version byte.
        found: i8,
    },
    /// The length field cannot be right.
    #[error("batch length {claimed} is not within 49 and {limit}")]
    Length {
        /// The field.
        claimed: i32,
        /// What it may be at most.
        limit: usize,
    },
    /// The offsets the header claims leave the range of offsets.
    #[error("base offset {base} with last delta {last_delta} is out of range")]
    Offsets {
        /// The base offset field.
        base: i64,
        /// The last offset delta field.
        last_delta: i32,
    },
    /// The record count cannot be right.
    #[error("{claimed} records claimed where at most {limit} can be")]
    Count {
        /// The field.
        claimed: i32,
        /// What the bytes, the offsets or the limits allow.
        limit: u32,
    },
    /// The batch was damaged, or never was one.
    #[error("checksum {computed:08x} where the batch says {stored:08x}")]
    Checksum {
        /// The field.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// Attribute bits are set that must not be.
    #[error("attribute bits 0x{bits:04x} are not allowed")]
    Attributes {
        /// The offending bits alone.
        bits: u16,
    },
    /// The compression code is none of the five.
    #[error("unknown compression {code}")]
    Compression {
        /// The code, 5 to 7.
        code: u8,
    },
    /// A batch must hold at least one record.
    #[error("the batch holds no record")]
    Empty,
    /// A new batch must hold one record for every offset it claims.
    #[error("{count} records for {offsets} offsets")]
    Sparse {
        /// How many records there are.
        count: u32,
        /// How many offsets they are to take.
        offsets: u32,
    },
    /// A record is later than the header's maximum, which would hide it from look-ups by time.
    #[error("a record of time {found} in a batch whose latest is said to be {max}")]
    LaterThanMax {
        /// The record's time.
        found: i64,
        /// The header's.
        max: i64,
    },
    /// The records do not unfold: the compressed block is damaged.
    #[error("the {codec} block cannot be decoded")]
    Undecodable {
        /// Which codec.
        codec: &'static str,
    },
    /// The records unfold to more than is allowed for their compressed size.
    #[error("{compressed} compressed bytes unfold to more than {limit}")]
    Bomb {
        /// The size of the compressed block.
        compressed: usize,
        /// What it may unfold to.
        limit: usize,
    },
    /// A record is malformed.
    #[error("record {index} of the batch: {why}")]
    Record {
        /// Which record, from 0.
        index: u32,
        /// What is wrong with it.
        why: BadRecord,
    },
    /// Bytes are left after the last record.
    #[error("bytes are left after the last of {count} records")]
    Leftover {
        /// How many records the header counts.
        count: u32,
    },
    /// Internal headers are missing or malformed in a batch that is marked as having them.
    #[error("internal header {name:?} is malformed")]
    InternalHeader {
        /// The header's key.
        name: &'static str,
    },
}

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRecord {
    /// It ends in the middle of a field.
    #[error("cut off")]
    Cut,
    /// A variable-length number does not end, or is out of range.
    #[error("a number is out of range")]
    Number,
    /// A length is negative where null is not allowed, or below -1.
    #[error("negative length {length}")]
    Negative {
        /// The length.
        length: i32,
    },
    /// The fields end before the record does.
    #[error("{bytes} bytes are left in it")]
    Leftover {
        /// How many.
        bytes: usize,
    },
    /// Offsets within a batch must rise and end where the header says.
    #[error("offset delta {delta} is not within {min} and {max}")]
    Offset {
        /// The record's delta.
        delta: i32,
        /// One more than the one before.
        min: i32,
        /// The header's last offset delta.
        max: i32,
    },
    /// Base timestamp and delta do not add up to a time.
    #[error("timestamp out of range")]
    Time,
}

impl BadRecord {
    /// Names the record this is about.
    pub(crate) fn at(self, index: u32) -> BatchRefused {
        BatchRefused::Record { index, why: self }
    }
}

/// Why no batch could be made of what was given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildRefused {
    /// The batch would be larger than any batch may be.
    #[error("a batch of {bytes} bytes is over the limit of {limit}")]
    TooLarge {
        /// How large it would be.
        bytes: usize,
        /// [`crate::limits::BATCH_BYTES_MAX`].
        limit: usize,
    },
    /// The batch would hold more records than any batch may.
    #[error("{records} records are over the limit of {limit}")]
    TooMany {
        /// How many there would be.
        records: u64,
        /// [`crate::limits::BATCH_RECORDS_MAX`].
        limit: u32,
    },
    /// A batch without records is not appended.
    #[error("a batch needs at least one record")]
    Empty,
    /// The times of the records are further apart than a delta can say.
    #[error("timestamp {timestamp_ms} is too far from {base_ms}")]
    Time {
        /// The record's.
        timestamp_ms: i64,
        /// The first record's.
        base_ms: i64,
    },
    /// The producer's id does not fit the signed field of the header, so no allocator gave it out.
    #[error("producer id {id} is over the limit of {limit}")]
    Producer {
        /// The id.
        id: u64,
        /// [`ProducerId::MAX`](crate::ProducerId::MAX).
        limit: u64,
    },
    /// The codec gave up.
    #[error("the {codec} encoder failed")]
    Unpackable {
        /// Which codec.
        codec: &'static str,
    },
    /// The publisher's name does not fit the event frame.
    #[error("a publisher name of {bytes} bytes is over the limit of {limit}")]
    Publisher {
        /// How long it is.
        bytes: usize,
        /// [`crate::limits::PUBLISHER_BYTES_MAX`].
        limit: usize,
    },
}

/// Why a batch was not thinned. It can be kept whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThinRefused {
    /// It cannot be read to its end.
    #[error(transparent)]
    Batch(#[from] BatchRefused),
    /// Its records cannot be compressed again.
    #[error(transparent)]
    Build(#[from] BuildRefused),
    /// Compressed again, it would be larger than any batch may be.
    #[error("a thinned batch of {bytes} bytes is over the limit of {limit}")]
    TooLarge {
        /// How large it would be.
        bytes: usize,
        /// [`crate::limits::BATCH_BYTES_MAX`].
        limit: usize,
    },
}
