//! What is asked about shards beside their batches.

use crate::extension::requests::field::{List, Text, item, layout};

item! {
    /// An offset that is looked for.
    OffsetAsk {
        /// The shard.
        shard: u32,
        /// A time in Unix milliseconds: the first record at or after it. Or below 0, as the Kafka
        /// protocol has it: -1 the end, -2 the oldest, -3 the record of the greatest time, -4 the
        /// oldest on this broker's disk, -5 the end of what was moved to another store.
        at: i64,
        /// The generation that the sender takes for the shard's.
        generation: Option<u64>,
    }
}

layout! {
    /// Looks for offsets.
    RawOffsets {
        /// What is looked for.
        asks: List<OffsetAsk>,
        /// Only what no open transaction may take back.
        committed: bool = 0x0001,
    }
}

item! {
    /// An offset that was found.
    OffsetFound {
        /// 0, or what was wrong.
        error: i16,
        /// The offset; -1 when there is none.
        offset: i64,
        /// The time of the record at it; -1 when it was not looked for by time.
        timestamp_ms: i64,
        /// The generation in which it was appended; -1 when that is not known.
        generation: i64,
    }
}

layout! {
    /// What was found.
    RawOffsetsFound {
        /// In the order of the call.
        found: List<OffsetFound>,
    }
}

item! {
    /// A generation whose end is asked for.
    EpochAsk {
        /// The shard.
        shard: u32,
        /// The generation.
        of: u64,
        /// The generation that the sender takes for the shard's.
        generation: Option<u64>,
    }
}

layout! {
    /// Asks where generations ended.
    RawEpochEnd {
        /// What is asked.
        asks: List<EpochAsk>,
    }
}

item! {
    /// The greatest generation that is not above the one asked for, and its end.
    EpochEnd {
        /// 0, or what was wrong.
        error: i16,
        /// The generation; -1 when there is none.
        generation: i64,
        /// The offset after its last record; -1 when there is none.
        end: i64,
    }
}

layout! {
    /// Where they ended.
    RawEpochEnded {
        /// In the order of the call.
        ends: List<EpochEnd>,
    }
}

layout! {
    /// Forgets the records below an offset.
    RawDeleteRecords {
        /// The shard.
        shard: u32,
        /// The offset; absent for the end of what may be read.
        before: Option<u64> = 0x0001,
    }
}

layout! {
    /// The records are forgotten.
    RawRecordsDeleted {
        /// The oldest offset from here on.
        start: u64,
    }
}

layout! {
    /// Asks for a producer id, or for the next epoch of one.
    RawProducerId {
        /// The id that the producer has; it gets the next epoch of it.
        id: Option<u64> = 0x0001,
        /// The epoch it has; 0 without an id.
        epoch: u16,
    }
}

layout! {
    /// A producer id for the caller alone.
    RawProducerGiven {
        /// The id.
        id: u64,
        /// The epoch.
        epoch: u16,
    }
}

item! {
    /// A stream by its name.
    StreamName {
        /// The namespace.
        namespace: Text,
        /// The stream.
        stream: Text,
    }
}

layout! {
    /// Describes streams and their shards.
    RawDescribe {
        /// Absent for every stream of the tenant that the caller may publish or subscribe to.
        streams: Option<List<StreamName>> = 0x0001,
        /// Whether shards are to be looked at; a shard nobody used yet is opened for it.
        want_shards: bool = 0x0002,
    }
}

item! {
    /// A shard as it is now.
    DescribedShard {
        /// 0, or what was wrong.
        error: i16,
        /// The generation.
        generation: u64,
        /// The oldest offset.
        start: u64,
        /// The offset after the last record that may be read.
        high_watermark: u64,
        /// How many bytes its log takes.
        bytes: u64,
    }
}

item! {
    /// A stream as it is now.
    DescribedStream {
        /// The namespace.
        namespace: Text,
        /// The stream.
        stream: Text,
        /// 0, or what was wrong; everything behind is empty then.
        error: i16,
        /// Tells it from earlier ones of the name; never 0.
        incarnation: u64,
        /// How many shards it has.
        shard_count: u32,
        /// Bits: 0x0001 it is kept on disk, 0x0002 it is compacted, 0x0004 the broker stamps the
        /// time, 0x0010 the caller may publish, 0x0020 subscribe, 0x0040 manage.
        flags: u32,
        /// The largest record, in bytes.
        max_record_bytes: u32,
        /// The oldest record kept, in milliseconds; -1 for no bound.
        retention_ms: i64,
        /// Bytes kept of every shard; -1 for no bound.
        retention_bytes: i64,
        /// The shards, if they were asked for, from the first.
        shards: List<DescribedShard>,
    }
}

layout! {
    /// The streams.
    RawDescribed {
        /// Those asked for in the order of the call, or every one by name.
        streams: List<DescribedStream>,
    }
}

impl DescribedStream {
    /// It is kept on disk.
    pub const DURABLE: u32 = 0x0001;
    /// The newest record of every key stays, instead of retention.
    pub const COMPACTED: u32 = 0x0002;
    /// Records get the broker's time.
    pub const APPEND_TIME: u32 = 0x0004;
    /// The caller may publish.
    pub const MAY_PUBLISH: u32 = 0x0010;
    /// The caller may subscribe.
    pub const MAY_SUBSCRIBE: u32 = 0x0020;
    /// The caller may manage.
    pub const MAY_MANAGE: u32 = 0x0040;

    /// Whether every bit is set.
    pub const fn is(&self, bits: u32) -> bool {
        self.flags & bits == bits
    }
}
