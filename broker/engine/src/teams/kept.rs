//! A member as the log has it.
//!
//! ```text
//! flags u8 (1 instance, 2 rack, 4 assignor, 8 away, 16 range), instance text, rack text,
//! rebalance_ms u64, client text, host text, epoch u32, epoch_before u32,
//! reads u32 times: namespace text, stream text, is_known u8, number u64 and width u32 if so,
//! then what it may hold, what it has to give back and what it is to hold, each:
//! streams u32 times: number u64, shards u32 times: shard u32
//! text: length u16, UTF-8
//! ```
//!
//! Texts of flags that are not set are not there.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, BufMut, BytesMut};

use super::assign::{Assignor, Partition};
use super::change::{BadChange, text};
use super::consumer::{KeptMember, Topic, TopicName};

const INSTANCE: u8 = 1;
const RACK: u8 = 2;
const ASSIGNOR: u8 = 4;
const AWAY: u8 = 8;
const RANGE: u8 = 16;

const BAD: BadChange = BadChange { what: "a member" };

pub(super) fn write(to: &mut BytesMut, kept: &KeptMember) {
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    to.put_u8(
        flag(kept.instance.is_some(), INSTANCE)
            | flag(kept.rack.is_some(), RACK)
            | flag(kept.assignor.is_some(), ASSIGNOR)
            | flag(kept.is_away, AWAY)
            | flag(kept.assignor == Some(Assignor::Range), RANGE),
    );
    let instance = kept.instance.as_ref().map(|it| it.as_str());
    for text in instance.into_iter().chain(kept.rack.as_deref()) {
        put_text(to, text);
    }
    to.put_u64(kept.rebalance_ms);
    put_text(to, &kept.client);
    put_text(to, &kept.host);
    to.put_u32(kept.epoch);
    to.put_u32(kept.epoch_before);
    put_count(to, kept.reads.len());
    for (name, topic) in &kept.reads {
        put_text(to, &name.namespace);
        put_text(to, &name.stream);
        to.put_u8(topic.is_some().into());
        if let Some(topic) = topic {
            to.put_u64(topic.number);
            to.put_u32(topic.width);
        }
    }
    for partitions in [&kept.assigned, &kept.revoking, &kept.target] {
        put_partitions(to, partitions);
    }
}

pub(super) fn read(from: &mut &[u8]) -> Result<KeptMember, BadChange> {
    let flags = from.try_get_u8().map_err(|_| BAD)?;
    let has = |flag| flags & flag != 0;
    let instance = has(INSTANCE).then(|| text(from)).transpose()?;
    let rack = has(RACK).then(|| text(from)).transpose()?;
    let assignor = if has(RANGE) {
        Assignor::Range
    } else {
        Assignor::Uniform
    };
    Ok(KeptMember {
        instance: instance.map(Into::into),
        rack,
        assignor: has(ASSIGNOR).then_some(assignor),
        is_away: has(AWAY),
        rebalance_ms: from.try_get_u64().map_err(|_| BAD)?,
        client: text(from)?,
        host: text(from)?,
        epoch: number(from)?,
        epoch_before: number(from)?,
        reads: reads(from)?,
        assigned: partitions(from)?,
        revoking: partitions(from)?,
        target: partitions(from)?,
    })
}

/// Of a name too long for its length there is as much as fits: such names are refused where they come in.
fn put_text(to: &mut BytesMut, text: &str) {
    let end = text.floor_char_boundary(usize::from(u16::MAX));
    let text = text.get(..end).unwrap_or_default();
    to.put_u16(u16::try_from(text.len()).unwrap_or(u16::MAX));
    to.put_slice(text.as_bytes());
}

fn put_count(to: &mut BytesMut, count: usize) {
    to.put_u32(u32::try_from(count).unwrap_or(u32::MAX));
}

fn put_partitions(to: &mut BytesMut, partitions: &BTreeSet<Partition>) {
    let mut streams: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for partition in partitions {
        let shards = streams.entry(partition.number).or_default();
        shards.push(partition.shard);
    }
    put_count(to, streams.len());
    for (number, shards) in streams {
        to.put_u64(number);
        put_count(to, shards.len());
        shards.into_iter().for_each(|shard| to.put_u32(shard));
    }
}

fn number(from: &mut &[u8]) -> Result<u32, BadChange> {
    from.try_get_u32().map_err(|_| BAD)
}

fn reads(from: &mut &[u8]) -> Result<BTreeMap<TopicName, Option<Topic>>, BadChange> {
    // Counts are not believed: what is not there ends the loop.
    let mut reads = BTreeMap::new();
    for _ in 0..number(from)? {
        let name = TopicName {
            namespace: text(from)?,
            stream: text(from)?,
        };
        let is_known = from.try_get_u8().map_err(|_| BAD)? != 0;
        let topic = is_known.then(|| {
            Ok(Topic {
                number: from.try_get_u64().map_err(|_| BAD)?,
                width: number(from)?,
            })
        });
        reads.insert(name, topic.transpose()?);
    }
    Ok(reads)
}

fn partitions(from: &mut &[u8]) -> Result<BTreeSet<Partition>, BadChange> {
    let mut partitions = BTreeSet::new();
    for _ in 0..number(from)? {
        let stream = from.try_get_u64().map_err(|_| BAD)?;
        for _ in 0..number(from)? {
            partitions.insert(Partition {
                number: stream,
                shard: number(from)?,
            });
        }
    }
    Ok(partitions)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::super::{Change, TeamId};
    use super::*;

    fn some_partitions() -> impl Strategy<Value = BTreeSet<Partition>> {
        let partition = (0..3_u64, any::<u32>());
        let partition = partition.prop_map(|(number, shard)| Partition { number, shard });
        prop::collection::btree_set(partition, 0..6)
    }

    fn members() -> impl Strategy<Value = KeptMember> {
        let topic = (any::<u64>(), any::<u32>());
        let topic = topic.prop_map(|(number, width)| Topic { number, width });
        let name = ("[a-z]{0,3}", "[ä-ü]{1,3}");
        let name = name.prop_map(|(namespace, stream)| TopicName { namespace, stream });
        let reads = prop::collection::btree_map(name, prop::option::of(topic), 0..4);
        let assignor = prop_oneof![Just(Assignor::Uniform), Just(Assignor::Range)];
        let texts = (
            prop::option::of("[a-z]{1,4}"),
            prop::option::of(".{0,4}"),
            ".{0,4}",
            ".{0,4}",
        );
        let sets = (some_partitions(), some_partitions(), some_partitions());
        let rest = (
            reads,
            prop::option::of(assignor),
            any::<(u64, u32, u32, bool)>(),
        );
        (texts, sets, rest).prop_map(|(texts, sets, (reads, assignor, numbers))| KeptMember {
            instance: texts.0.map(Into::into),
            rack: texts.1,
            rebalance_ms: numbers.0,
            reads,
            assignor,
            client: texts.2,
            host: texts.3,
            epoch: numbers.1,
            epoch_before: numbers.2,
            is_away: numbers.3,
            assigned: sets.0,
            revoking: sets.1,
            target: sets.2,
        })
    }

    proptest! {
        #[test]
        fn a_member_comes_back_from_the_log_as_it_was_and_a_cut_one_is_refused(
            kept in members(),
            cut: prop::sample::Index,
        ) {
            let team = TeamId { tenant: "t".to_owned(), group: "g".to_owned() };
            let change = Change::Member { team, member: "m".into(), kept: Some(kept) };
            let value = change.value().unwrap_or_default();
            let read = Change::read(&change.key(), Some(&value));
            prop_assert_eq!(read.as_ref(), Ok(&change));
            let short: Bytes = value.slice(..cut.index(value.len()));
            prop_assert!(Change::read(&change.key(), Some(&short)).is_err());
        }
    }
}
