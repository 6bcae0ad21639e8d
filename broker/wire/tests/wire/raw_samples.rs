//! One of every call of the `raw` extension and of every reply.

use felix_wire::extension::raw::{
    CommittedShard, CommittedStream, ConsumerDescribe, ConsumerDescribed, ConsumerGroup,
    ConsumerHeartbeat, ConsumerHeld, ConsumerMember, ConsumerTopic, DescribedShard,
    DescribedStream, EpochAsk, EpochEnd, FetchShard, FetchStream, FetchedShard, KafkaCommit,
    KafkaCommits, KafkaCommitted, KafkaDelete, KafkaDeleted, KafkaDescribe, KafkaDescribed,
    KafkaForget, KafkaForgotten, KafkaGroup, KafkaHeartbeat, KafkaHeartbeaten, KafkaJoin,
    KafkaJoined, KafkaLeave, KafkaLeft, KafkaList, KafkaListed, KafkaListing, KafkaMember,
    KafkaOffsets, KafkaSync, KafkaSynced, Leaving, Left, Member, OffsetAsk, OffsetFound, OffsetOf,
    OffsetsOf, Protocol, RawAppend, RawAppended, RawDeleteRecords, RawDescribe, RawDescribed,
    RawEpochEnd, RawEpochEnded, RawFetch, RawFetched, RawOffsets, RawOffsetsFound,
    RawProducerGiven, RawProducerId, RawRecordsDeleted, ShardsOf, Share, StreamName,
};
use felix_wire::extension::requests::{Ask, List, Reply};

use crate::samples::{Parts, Repeats as _, repeats};

repeats!(
    FetchShard,
    FetchStream,
    FetchedShard,
    OffsetAsk,
    OffsetFound,
    EpochAsk,
    EpochEnd,
    StreamName,
    DescribedShard,
    DescribedStream,
    Protocol,
    Member,
    Share,
    Leaving,
    Left,
    KafkaMember,
    KafkaGroup,
    KafkaListing,
    OffsetOf,
    OffsetsOf,
    ShardsOf,
    CommittedShard,
    CommittedStream,
    ConsumerTopic,
    ConsumerMember,
    ConsumerGroup,
    i16,
);

/// A number of an error; 0 where numbers are.
fn error(p: &Parts) -> i16 {
    i16::try_from(p.narrow % 100).unwrap()
}

fn name(p: &Parts) -> StreamName {
    StreamName {
        namespace: p.text(),
        stream: p.text(),
    }
}

fn topic(p: &Parts) -> ConsumerTopic {
    ConsumerTopic {
        number: p.wide,
        shards: p.shards(),
    }
}

fn shards_of(p: &Parts) -> ShardsOf {
    ShardsOf {
        namespace: p.text(),
        stream: p.text(),
        shards: p.shards(),
    }
}

/// One of every call, in the order of their numbers.
pub(crate) fn asks(p: &Parts) -> Vec<Ask> {
    let mut asks = log_asks(p);
    asks.extend(team_asks(p));
    asks.extend(offset_asks(p));
    asks.extend(directory_asks(p));
    asks.extend(consumer_asks(p));
    asks
}

fn log_asks(p: &Parts) -> Vec<Ask> {
    let fetch = FetchStream {
        namespace: p.text(),
        stream: p.text(),
        incarnation: p.wide,
        shards: p.list(FetchShard {
            shard: p.narrow,
            offset: p.wide,
            max_bytes: p.narrow,
            generation: p.number(),
            last_generation: p.number(),
        }),
    };
    vec![
        RawAppend {
            shard: p.narrow,
            generation: p.number(),
            early: p.set,
            batch: p.value(),
        }
        .into(),
        RawFetch {
            max_bytes: p.narrow,
            min_bytes: p.narrow,
            max_wait_ms: p.narrow,
            committed: p.set,
            streams: p.list(fetch),
        }
        .into(),
        RawOffsets {
            asks: p.list(OffsetAsk {
                shard: p.narrow,
                at: p.signed,
                generation: p.number(),
            }),
            committed: p.set,
        }
        .into(),
        RawEpochEnd {
            asks: p.list(EpochAsk {
                shard: p.narrow,
                of: p.wide,
                generation: p.number(),
            }),
        }
        .into(),
        RawDeleteRecords {
            shard: p.narrow,
            before: p.number(),
        }
        .into(),
        RawProducerId {
            id: p.number(),
            epoch: 1,
        }
        .into(),
        RawDescribe {
            streams: p.maybe(p.list(name(p))),
            want_shards: p.set,
        }
        .into(),
    ]
}

fn team_asks(p: &Parts) -> Vec<Ask> {
    let (group, member) = (p.text(), p.text());
    let (generation, instance) = (p.signed, p.maybe(p.text()));
    vec![
        KafkaJoin {
            group: group.clone(),
            session_ms: p.narrow,
            rebalance_ms: p.narrow,
            member: member.clone(),
            instance: instance.clone(),
            protocol_type: p.text(),
            protocols: p.list(Protocol {
                name: p.text(),
                metadata: p.value(),
            }),
            client: p.text(),
            host: p.text(),
            id_first: p.set,
            reads_skip: p.set,
        }
        .into(),
        KafkaSync {
            group: group.clone(),
            generation,
            member: member.clone(),
            instance: instance.clone(),
            protocol_type: p.maybe(p.text()),
            protocol: p.maybe(p.text()),
            shares: p.list(Share {
                member: p.text(),
                assignment: p.value(),
            }),
        }
        .into(),
        KafkaHeartbeat {
            group: group.clone(),
            generation,
            member: member.clone(),
            instance: instance.clone(),
        }
        .into(),
        KafkaLeave {
            group,
            members: p.list(Leaving { member, instance }),
        }
        .into(),
    ]
}

fn offset_asks(p: &Parts) -> Vec<Ask> {
    let offsets = OffsetsOf {
        namespace: p.text(),
        stream: p.text(),
        shards: p.list(OffsetOf {
            shard: p.narrow,
            offset: p.wide,
            generation: p.signed,
            metadata: p.maybe(p.text()),
        }),
    };
    vec![
        KafkaCommit {
            group: p.text(),
            generation: p.signed,
            member: p.text(),
            instance: p.maybe(p.text()),
            streams: p.list(offsets),
        }
        .into(),
        KafkaOffsets {
            group: p.text(),
            streams: p.maybe(p.list(shards_of(p))),
            member: p.maybe(p.text()),
            epoch: p.signed,
            stable: p.set,
        }
        .into(),
        KafkaForget {
            group: p.text(),
            streams: p.list(shards_of(p)),
        }
        .into(),
    ]
}

fn directory_asks(p: &Parts) -> Vec<Ask> {
    vec![
        KafkaDescribe {
            groups: p.list(p.text()),
        }
        .into(),
        KafkaList {
            states: p.list(p.text()),
            types: p.list(p.text()),
        }
        .into(),
        KafkaDelete {
            groups: p.list(p.text()),
        }
        .into(),
    ]
}

fn consumer_asks(p: &Parts) -> Vec<Ask> {
    vec![
        ConsumerHeartbeat {
            group: p.text(),
            member: p.text(),
            epoch: p.signed,
            instance: p.maybe(p.text()),
            rack: p.maybe(p.text()),
            rebalance_ms: p.maybe(p.narrow),
            streams: p.maybe(p.list(name(p))),
            assignor: p.maybe(p.text()),
            held: p.maybe(p.list(topic(p))),
            client: p.text(),
            host: p.text(),
        }
        .into(),
        ConsumerDescribe {
            groups: p.list(p.text()),
        }
        .into(),
    ]
}

/// One of every reply, in the order of the numbers of their calls.
pub(crate) fn replies(p: &Parts) -> Vec<Reply> {
    let mut replies = log_replies(p);
    replies.extend(team_replies(p));
    replies.extend(offset_replies(p));
    replies.extend(directory_replies(p));
    replies.extend(consumer_replies(p));
    replies
}

fn described(p: &Parts) -> DescribedStream {
    DescribedStream {
        namespace: p.text(),
        stream: p.text(),
        error: error(p),
        incarnation: p.wide,
        shard_count: p.narrow,
        flags: p.narrow,
        max_record_bytes: p.narrow,
        retention_ms: p.signed,
        retention_bytes: p.signed,
        shards: p.list(DescribedShard {
            error: error(p),
            generation: p.wide,
            start: p.wide,
            high_watermark: p.wide,
            bytes: p.wide,
        }),
    }
}

fn log_replies(p: &Parts) -> Vec<Reply> {
    vec![
        Reply::RawAppend(RawAppended {
            base_offset: p.number(),
            append_time_ms: p.signed,
            start: p.wide,
            throttle_ms: p.wide,
            repeated: p.set,
        }),
        Reply::RawFetch(RawFetched {
            shards: p.list(FetchedShard {
                error: error(p),
                high_watermark: p.wide,
                stable: p.wide,
                start: p.wide,
                diverging: p.number(),
                diverging_end: p.wide,
                bytes: p.narrow,
            }),
            batches: p.value().into(),
        }),
        Reply::RawOffsets(RawOffsetsFound {
            found: p.list(OffsetFound {
                error: error(p),
                offset: p.signed,
                timestamp_ms: p.signed,
                generation: p.signed,
            }),
        }),
        Reply::RawEpochEnd(RawEpochEnded {
            ends: p.list(EpochEnd {
                error: error(p),
                generation: p.signed,
                end: p.signed,
            }),
        }),
        Reply::RawDeleteRecords(RawRecordsDeleted { start: p.wide }),
        Reply::RawProducerId(RawProducerGiven {
            id: p.wide,
            epoch: 1,
        }),
        Reply::RawDescribe(RawDescribed {
            streams: p.list(described(p)),
        }),
    ]
}

fn team_replies(p: &Parts) -> Vec<Reply> {
    let (member, instance) = (p.text(), p.maybe(p.text()));
    let error = error(p);
    vec![
        Reply::KafkaJoin(KafkaJoined {
            error,
            generation: p.signed,
            protocol_type: p.maybe(p.text()),
            protocol: p.maybe(p.text()),
            leader: p.text(),
            member: member.clone(),
            skip_assignment: p.set,
            members: p.list(Member {
                member: member.clone(),
                instance: instance.clone(),
                metadata: p.value(),
            }),
        }),
        Reply::KafkaSync(KafkaSynced {
            error,
            protocol_type: p.maybe(p.text()),
            protocol: p.maybe(p.text()),
            assignment: p.value(),
        }),
        Reply::KafkaHeartbeat(KafkaHeartbeaten { error }),
        Reply::KafkaLeave(KafkaLeft {
            error,
            members: p.list(Left {
                member,
                instance,
                error,
            }),
        }),
    ]
}

fn offset_replies(p: &Parts) -> Vec<Reply> {
    let error = error(p);
    let committed = CommittedStream {
        namespace: p.text(),
        stream: p.text(),
        shards: p.list(CommittedShard {
            shard: p.narrow,
            error,
            offset: p.signed,
            generation: p.signed,
            metadata: p.text(),
        }),
    };
    vec![
        Reply::KafkaCommit(KafkaCommits {
            error,
            errors: p.list(error),
        }),
        Reply::KafkaOffsets(KafkaCommitted {
            error,
            streams: p.list(committed),
        }),
        Reply::KafkaForget(KafkaForgotten {
            error,
            errors: p.list(error),
        }),
    ]
}

fn directory_replies(p: &Parts) -> Vec<Reply> {
    let error = error(p);
    let group = KafkaGroup {
        group: p.text(),
        error,
        state: p.text(),
        protocol_type: p.text(),
        protocol: p.text(),
        members: p.list(KafkaMember {
            member: p.text(),
            instance: p.maybe(p.text()),
            client: p.text(),
            host: p.text(),
            metadata: p.key(),
            assignment: p.value(),
        }),
    };
    vec![
        Reply::KafkaDescribe(KafkaDescribed {
            groups: p.list(group),
        }),
        Reply::KafkaList(KafkaListed {
            error,
            groups: p.list(KafkaListing {
                group: p.text(),
                protocol_type: p.text(),
                state: p.text(),
                kind: p.text(),
            }),
        }),
        Reply::KafkaDelete(KafkaDeleted {
            errors: p.list(error),
        }),
    ]
}

fn consumer_replies(p: &Parts) -> Vec<Reply> {
    let error = error(p);
    let group = ConsumerGroup {
        group: p.text(),
        error,
        state: p.text(),
        epoch: p.signed,
        target_epoch: p.signed,
        assignor: p.text(),
        members: p.list(ConsumerMember {
            member: p.text(),
            instance: p.maybe(p.text()),
            rack: p.maybe(p.text()),
            epoch: p.signed,
            client: p.text(),
            host: p.text(),
            streams: p.list(name(p)),
            assigned: p.list(topic(p)),
            target: p.list(topic(p)),
        }),
    };
    vec![
        Reply::ConsumerHeartbeat(ConsumerHeld {
            error,
            message: p.maybe(p.text()),
            epoch: p.signed,
            heartbeat_ms: p.narrow,
            assigned: p.maybe(p.list(topic(p))),
        }),
        Reply::ConsumerDescribe(ConsumerDescribed {
            groups: p.list(group),
        }),
    ]
}
