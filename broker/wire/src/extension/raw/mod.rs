//! The `raw` extension: record batches appended and fetched as they stand in the log, and what else
//! a listener of the Kafka protocol stands on: offsets by time, ends of generations, producer ids,
//! deletion below an offset, and the groups whose members share out partitions among themselves.
//!
//! Its calls are laid out as those of `requests` and answered in the same way; their kinds are
//! 0x03xx. A call that concerns several streams names the tenant and leaves the other two names
//! empty. Where a reply answers for many things at once, each has an `error` of its own: the number
//! that the Kafka protocol has for it, 0 for none.

mod append;
mod consumer;
mod error;
mod fetch;
mod log;
mod offsets;
mod team;

pub use self::append::{RawAppend, RawAppended};
pub use self::consumer::{
    ConsumerDescribe, ConsumerDescribed, ConsumerGroup, ConsumerHeartbeat, ConsumerHeld,
    ConsumerMember, ConsumerTopic,
};
pub use self::error::RawError;
pub use self::fetch::{
    FetchHead, FetchShard, FetchStream, FetchedShard, Pieces, RawFetch, RawFetched,
};
pub use self::log::{
    DescribedShard, DescribedStream, EpochAsk, EpochEnd, OffsetAsk, OffsetFound, RawDeleteRecords,
    RawDescribe, RawDescribed, RawEpochEnd, RawEpochEnded, RawOffsets, RawOffsetsFound,
    RawProducerGiven, RawProducerId, RawRecordsDeleted, StreamName,
};
pub use self::offsets::{
    CommittedShard, CommittedStream, KafkaCommit, KafkaCommits, KafkaCommitted, KafkaForget,
    KafkaForgotten, KafkaOffsets, OffsetOf, OffsetsOf, ShardsOf,
};
pub use self::team::{
    KafkaDelete, KafkaDeleted, KafkaDescribe, KafkaDescribed, KafkaGroup, KafkaHeartbeat,
    KafkaHeartbeaten, KafkaJoin, KafkaJoined, KafkaLeave, KafkaLeft, KafkaList, KafkaListed,
    KafkaListing, KafkaMember, KafkaSync, KafkaSynced, Leaving, Left, Member, Protocol, Share,
};
