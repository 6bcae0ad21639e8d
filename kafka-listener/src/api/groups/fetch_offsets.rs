//! OffsetFetch: the positions of groups. A position that nobody committed is -1, never an error.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use felix_client::raw::{CommittedShard, KafkaCommitted, KafkaOffsets, List, ShardsOf, Text};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{OffsetFetchRequest, OffsetFetchResponse, TopicName};

use super::super::once::once;
use super::super::{Ctx, Head, gather, metadata, text};
use super::{call, narrow, said, told};
use crate::topics::{TopicId, Topics};
use crate::wire::codes::{INVALID_REQUEST, NONE};

/// First version that asks for several groups.
const SEVERAL_FROM: i16 = 8;

/// The partitions of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    topic: TopicName,
    partitions: Vec<i32>,
}

/// The positions in one topic.
struct Found {
    topic: TopicName,
    partitions: Vec<(i32, CommittedShard)>,
}

/// One group's question.
struct Question {
    group: Text,
    member: Option<Text>,
    epoch: i64,
    stable: bool,
    /// Absent for all that the group has.
    topics: Option<Vec<Asked>>,
}

pub(in super::super) async fn answer(
    ctx: Arc<Ctx>,
    head: Head,
    request: OffsetFetchRequest,
) -> OffsetFetchResponse {
    if head.version >= SEVERAL_FROM {
        let mut named = HashSet::new();
        let work = request.groups.into_iter().map(|group| {
            let (ctx, stable) = (Arc::clone(&ctx), request.require_stable);
            let is_first = named.insert(group.group_id.clone());
            async move {
                if is_first {
                    return of_group(&ctx, stable, group).await;
                }
                // All that a group has may be asked for in a few bytes.
                OffsetFetchResponseGroup::default()
                    .with_group_id(group.group_id)
                    .with_error_code(INVALID_REQUEST)
            }
        });
        return OffsetFetchResponse::default().with_groups(gather(work).await);
    }
    let topics = request.topics.map(|topics| {
        let topics = topics.into_iter().map(|topic| Asked {
            topic: topic.name,
            partitions: topic.partition_indexes,
        });
        topics.collect()
    });
    let question = Question {
        group: told(&request.group_id),
        member: None,
        epoch: -1,
        stable: request.require_stable,
        topics,
    };
    match look(&ctx, question).await {
        Ok(found) => OffsetFetchResponse::default().with_topics(
            found
                .into_iter()
                .map(|found| old_form(&head, found))
                .collect(),
        ),
        Err((error, asked)) if head.version < 2 => {
            // There is no place for an error of the whole, so every partition has it.
            let failed = asked.into_iter().map(|asked| failed(asked, error));
            let topics = failed.map(|found| old_form(&head, found));
            OffsetFetchResponse::default().with_topics(topics.collect())
        }
        Err((error, _)) => OffsetFetchResponse::default().with_error_code(error),
    }
}

async fn of_group(
    ctx: &Ctx,
    stable: bool,
    group: OffsetFetchRequestGroup,
) -> OffsetFetchResponseGroup {
    let topics = group.topics.map(|topics| {
        let topics = topics.into_iter().map(|topic| Asked {
            topic: topic.name,
            partitions: topic.partition_indexes,
        });
        topics.collect()
    });
    let question = Question {
        group: told(&group.group_id),
        member: group.member_id.as_ref().map(told),
        epoch: group.member_epoch.into(),
        stable,
        topics,
    };
    let answer = OffsetFetchResponseGroup::default().with_group_id(group.group_id);
    match look(ctx, question).await {
        Ok(found) => answer.with_topics(found.into_iter().map(new_form).collect()),
        Err((error, _)) => answer.with_error_code(error),
    }
}

async fn look(ctx: &Ctx, question: Question) -> Result<Vec<Found>, (i16, Vec<Asked>)> {
    let names = question.topics.iter().flatten();
    let topics = ctx
        .topics_with(names.map(|asked| asked.topic.as_str()))
        .await;
    let asked = question.topics.map(distinct);
    let streams = match asked
        .as_ref()
        .map(|asked| known(ctx, &topics, asked))
        .transpose()
    {
        Ok(streams) => streams,
        Err(error) => return Err((error, asked.unwrap_or_default())),
    };
    let ask = KafkaOffsets {
        group: question.group,
        streams,
        member: question.member,
        epoch: question.epoch,
        stable: question.stable,
    };
    let committed = call(ctx, ask, Duration::ZERO).await;
    let committed = committed.and_then(|committed| match committed.error {
        NONE => Ok(committed),
        error => Err(error),
    });
    match (committed, asked) {
        (Ok(committed), None) => Ok(every(ctx, &topics, &committed)),
        (Ok(committed), Some(asked)) => Ok(pick(&topics, asked, &committed)),
        (Err(error), asked) => Err((error, asked.unwrap_or_default())),
    }
}

/// Each topic once, and of it each partition once: with a position come up to four kilobytes.
fn distinct(asked: Vec<Asked>) -> Vec<Asked> {
    let mut places: HashMap<TopicName, usize> = HashMap::with_capacity(asked.len());
    let mut all: Vec<Asked> = Vec::with_capacity(asked.len());
    for asked in asked {
        match places.entry(asked.topic.clone()) {
            Entry::Vacant(place) => {
                place.insert(all.len());
                all.push(asked);
            }
            Entry::Occupied(place) => {
                let first = all.get_mut(*place.get()).into_iter();
                first.for_each(|first| first.partitions.extend(&asked.partitions));
            }
        }
    }
    for asked in &mut all {
        asked.partitions = once(std::mem::take(&mut asked.partitions), |one| *one);
    }
    all
}

/// The topics that exist and may be seen; there are no positions in others.
fn known(ctx: &Ctx, topics: &Topics, asked: &[Asked]) -> Result<List<ShardsOf>, i16> {
    let known = asked.iter().filter_map(|asked| {
        let topic = metadata::named(ctx, topics, asked.topic.as_str()).ok()?;
        let shards = asked.partitions.iter();
        let shards = shards.filter_map(|partition| u32::try_from(*partition).ok());
        let shards: Vec<u32> = shards.collect();
        Some((topic, shards))
    });
    let known: Result<Vec<ShardsOf>, _> = known
        .map(|(topic, shards)| {
            List::build(shards).map(|shards| ShardsOf {
                namespace: topic.stream.namespace.as_str().into(),
                stream: topic.stream.stream.as_str().into(),
                shards,
            })
        })
        .collect();
    let known = known.map_err(|_| INVALID_REQUEST)?;
    List::build(known).map_err(|_| INVALID_REQUEST)
}

fn none(partition: i32, error: i16) -> CommittedShard {
    CommittedShard {
        shard: partition.unsigned_abs(),
        error,
        offset: -1,
        generation: -1,
        metadata: Text::default(),
    }
}

fn failed(asked: Asked, error: i16) -> Found {
    let partitions = asked.partitions.iter();
    Found {
        partitions: partitions.map(|one| (*one, none(*one, error))).collect(),
        topic: asked.topic,
    }
}

/// What was committed in each partition that was asked for.
fn pick(topics: &Topics, asked: Vec<Asked>, committed: &KafkaCommitted) -> Vec<Found> {
    let by_topic = committed.streams.iter().filter_map(|stream| {
        let topic = topics.of_stream(stream.namespace.as_str(), stream.stream.as_str())?;
        let shards = stream.shards.iter().map(|shard| (shard.shard, shard));
        Some((topic.id, shards.collect()))
    });
    let by_topic: HashMap<TopicId, HashMap<u32, CommittedShard>> = by_topic.collect();
    let pick = |asked: Asked| {
        let topic = topics.named(asked.topic.as_str());
        let of_topic = topic.and_then(|topic| by_topic.get(&topic.id));
        let partitions = asked.partitions.iter().map(|partition| {
            let shard = u32::try_from(*partition).ok();
            let found = of_topic.and_then(|shards| shards.get(&shard?).cloned());
            (*partition, found.unwrap_or_else(|| none(*partition, NONE)))
        });
        Found {
            partitions: partitions.collect(),
            topic: asked.topic,
        }
    };
    asked.into_iter().map(pick).collect()
}

/// Everything that the group has committed.
fn every(ctx: &Ctx, topics: &Topics, committed: &KafkaCommitted) -> Vec<Found> {
    let found = committed.streams.iter().filter_map(|stream| {
        let topic = topics
            .of_stream(stream.namespace.as_str(), stream.stream.as_str())
            .filter(|topic| ctx.who.may_see(&topic.stream))?;
        let shards = stream.shards.iter();
        let shards = shards.filter(|shard| shard.offset >= 0);
        Some(Found {
            topic: TopicName(text(&topic.name)),
            partitions: shards
                .map(|shard| (i32::try_from(shard.shard).unwrap_or(i32::MAX), shard))
                .collect(),
        })
    });
    found.collect()
}

fn old_form(head: &Head, found: Found) -> OffsetFetchResponseTopic {
    let partitions = found.partitions.into_iter().map(|(index, shard)| {
        let mut shown = OffsetFetchResponsePartition::default()
            .with_partition_index(index)
            .with_committed_offset(shard.offset)
            .with_metadata(Some(said(&shard.metadata)))
            .with_error_code(shard.error);
        if head.version >= 5 {
            shown.committed_leader_epoch = narrow(shard.generation);
        }
        shown
    });
    OffsetFetchResponseTopic::default()
        .with_partitions(partitions.collect())
        .with_name(found.topic)
}

fn new_form(found: Found) -> OffsetFetchResponseTopics {
    let partitions = found.partitions.into_iter().map(|(index, shard)| {
        OffsetFetchResponsePartitions::default()
            .with_partition_index(index)
            .with_committed_offset(shard.offset)
            .with_committed_leader_epoch(narrow(shard.generation))
            .with_metadata(Some(said(&shard.metadata)))
            .with_error_code(shard.error)
    });
    OffsetFetchResponseTopics::default()
        .with_partitions(partitions.collect())
        .with_name(found.topic)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(topic: &str, partitions: &[i32]) -> Asked {
        Asked {
            topic: TopicName(text(topic)),
            partitions: partitions.to_vec(),
        }
    }

    #[test]
    fn a_partition_that_is_asked_for_again_is_answered_once() {
        let kept = distinct(vec![
            asked("a", &[1, 0, 1]),
            asked("b", &[1]),
            asked("a", &[0, 2]),
        ]);
        assert_eq!(kept, [asked("a", &[1, 0, 2]), asked("b", &[1])]);
    }
}
