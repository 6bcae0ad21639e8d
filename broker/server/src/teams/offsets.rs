//! Committing, asking for and forgetting positions, and deleting groups.

use std::collections::{HashMap, HashSet};

use felix_auth::{Action, Resource};
use felix_engine::membership::Who;
use felix_engine::teams::{CommitAsk, METADATA_BYTES_MAX, Partition, Position, TeamId, TeamView};
use felix_model::StreamId;
use felix_wire::extension::raw::{
    CommittedShard, CommittedStream, KafkaCommit, KafkaCommitted, KafkaDeleted, KafkaForget,
    KafkaOffsets, RawError, ShardsOf,
};
use felix_wire::extension::requests::{List, Reply as WireReply, Text};

use super::answers::{Reply, list, not_committed, text};
use super::calls::{Unanswered, coordinator};
use super::number;
use crate::conn::calls::Caller;
use crate::conn::stream::StreamState;
use crate::shards::cell::now;

/// The number and the width of a stream in which a group has positions, once the caller may have them.
async fn numbered(
    state: &StreamState,
    team: &TeamId,
    namespace: &Text,
    stream: &Text,
) -> Result<(u64, u32), RawError> {
    let id = StreamId::new(&team.tenant, namespace.as_str(), stream.as_str());
    let id = id.map_err(|_| RawError::UnknownTopicOrPartition)?;
    let resource = Resource::Group {
        tenant: &team.tenant,
        namespace: namespace.as_str(),
        stream: stream.as_str(),
        group: &team.group,
    };
    if !state.principal.allows(Action::GroupConsume, &resource) {
        return Err(RawError::TopicAuthorizationFailed);
    }
    let found = state.conn.shared.find(&id).await;
    let handle = found.ok_or(RawError::UnknownTopicOrPartition)?;
    let spec = handle.spec();
    let number = spec.incarnation.number(namespace.as_str(), stream.as_str());
    Ok((number, spec.shards))
}

pub(super) async fn commit(
    state: &mut StreamState,
    ask: &KafkaCommit,
    caller: Caller,
) -> Result<(), Unanswered> {
    let (team, lane) = match coordinator(state, &ask.group, Action::GroupConsume).await {
        Ok(found) => found,
        Err(failure) => return Err((caller, failure)),
    };
    let committed_at = now();
    let (mut errors, mut positions) = (Vec::new(), Vec::new());
    for stream in ask.streams.iter() {
        let found = numbered(state, &team, &stream.namespace, &stream.stream).await;
        for at in stream.shards.iter() {
            let metadata = at.metadata.as_ref().map_or("", Text::as_str);
            let checked = found.and_then(|(number, width)| {
                if at.shard >= width {
                    return Err(RawError::UnknownTopicOrPartition);
                }
                if metadata.len() > METADATA_BYTES_MAX {
                    return Err(RawError::OffsetMetadataTooLarge);
                }
                let shard = at.shard;
                Ok(Partition { number, shard })
            });
            errors.push(checked.err().map_or(0, RawError::number));
            if let Ok(partition) = checked {
                let position = Position {
                    offset: at.offset,
                    generation: at.generation,
                    metadata: metadata.into(),
                    committed_at,
                };
                positions.push((partition, position));
            }
        }
    }
    let commit = CommitAsk {
        who: Who {
            member: ask.member.as_str().into(),
            instance: ask.instance.as_ref().map(|name| name.as_str().into()),
        },
        generation: ask.generation,
        positions,
    };
    lane.write(caller, |core| match core.commit(&team, &commit) {
        Ok(changes) => (changes, Reply::Commit(errors)),
        Err(why) => {
            let error = not_committed(&why).number();
            let refused = errors.into_iter();
            let refused = refused.map(|wrong| if wrong == 0 { error } else { wrong });
            (Vec::new(), Reply::Commit(refused.collect()))
        }
    });
    Ok(())
}

pub(super) async fn fetch(
    state: &mut StreamState,
    ask: &KafkaOffsets,
    caller: Caller,
) -> Result<(), Unanswered> {
    let (team, lane) = match coordinator(state, &ask.group, Action::GroupConsume).await {
        Ok(found) => found,
        Err(failure) => return Err((caller, failure)),
    };
    let who = Who {
        member: ask.member.as_ref().map_or("", Text::as_str).into(),
        instance: None,
    };
    if let Err(why) = lane.look(|core| core.may_ask(&team, &who, ask.epoch)) {
        let error = not_committed(&why).number();
        let streams = List::default();
        caller.answer(Ok(WireReply::KafkaOffsets(KafkaCommitted {
            error,
            streams,
        })));
        return Ok(());
    }
    let streams = match &ask.streams {
        Some(named) => {
            let mut streams = Vec::with_capacity(named.len());
            for of in named.iter() {
                let found = numbered(state, &team, &of.namespace, &of.stream).await;
                streams.push(lane.look(|core| committed(&of, found, core.positions(&team))));
            }
            streams
        }
        None => {
            let held = lane.look(|core| core.positions(&team).cloned());
            everything(state, &team, &held.unwrap_or_default())
        }
    };
    caller.answer(Ok(WireReply::KafkaOffsets(KafkaCommitted {
        error: 0,
        streams: list(streams),
    })));
    Ok(())
}

type Positions = std::collections::BTreeMap<Partition, Position>;

/// The positions in the shards of one stream. One that was never committed is no error.
fn committed(
    of: &ShardsOf,
    found: Result<(u64, u32), RawError>,
    positions: Option<&Positions>,
) -> CommittedStream {
    let shards = of.shards.iter().map(|shard| {
        let position = found
            .ok()
            .and_then(|(number, _)| positions?.get(&Partition { number, shard }));
        let error = match found {
            // A stream that is not there has no position.
            Ok(_) | Err(RawError::UnknownTopicOrPartition) => 0,
            Err(error) => error.number(),
        };
        shown(shard, error, position)
    });
    CommittedStream {
        namespace: of.namespace.clone(),
        stream: of.stream.clone(),
        shards: list(shards),
    }
}

fn shown(shard: u32, error: i16, position: Option<&Position>) -> CommittedShard {
    CommittedShard {
        shard,
        error,
        offset: position.map_or(-1, |at| i64::try_from(at.offset).unwrap_or(i64::MAX)),
        generation: position.map_or(-1, |at| at.generation),
        metadata: text(position.map_or("", |at| &at.metadata)),
    }
}

/// Every position of a group in a stream that is there and that the caller may have.
fn everything(state: &StreamState, team: &TeamId, positions: &Positions) -> Vec<CommittedStream> {
    let catalogue = state.conn.shared.names.catalogue();
    let Some(entry) = catalogue.tenant(&team.tenant) else {
        return Vec::new();
    };
    let mut of: HashMap<u64, Vec<CommittedShard>> = HashMap::new();
    for (partition, position) in positions {
        let shards = of.entry(partition.number).or_default();
        shards.push(shown(partition.shard, 0, Some(position)));
    }
    let streams = entry.namespaces.values().flat_map(|it| it.streams.values());
    streams
        .filter_map(|record| {
            let shards = of.remove(&number(record))?;
            let resource = Resource::Group {
                tenant: &team.tenant,
                namespace: record.namespace.as_str(),
                stream: record.stream.as_str(),
                group: &team.group,
            };
            let allowed = state.principal.allows(Action::GroupConsume, &resource);
            allowed.then(|| CommittedStream {
                namespace: record.namespace.as_str().into(),
                stream: record.stream.as_str().into(),
                shards: list(shards),
            })
        })
        .collect()
}

pub(super) async fn forget(
    state: &mut StreamState,
    ask: &KafkaForget,
    caller: Caller,
) -> Result<(), Unanswered> {
    let (team, lane) = match coordinator(state, &ask.group, Action::GroupManage).await {
        Ok(found) => found,
        Err(failure) => return Err((caller, failure)),
    };
    let read = lane.look(|core| subscribed(core.view(&team).as_ref()));
    let (mut errors, mut partitions) = (Vec::new(), Vec::new());
    for stream in ask.streams.iter() {
        let found = numbered(state, &team, &stream.namespace, &stream.stream).await;
        let found = found.and_then(|(number, _)| {
            let is_read = read.reads(number, stream.namespace.as_str(), stream.stream.as_str());
            if is_read {
                Err(RawError::GroupSubscribedToTopic)
            } else {
                Ok(number)
            }
        });
        for shard in stream.shards.iter() {
            errors.push(found.err().map_or(0, RawError::number));
            if let Ok(number) = found {
                partitions.push(Partition { number, shard });
            }
        }
    }
    lane.write(caller, |core| {
        match core.forget_positions(&team, &partitions) {
            Ok(changes) => (changes, Reply::Forget(errors)),
            Err(why) => {
                let error = not_committed(&why).number();
                let all = errors.iter().map(|_| error).collect();
                (Vec::new(), Reply::Forget(all))
            }
        }
    });
    Ok(())
}

/// What the members of a group read.
#[derive(Debug, Default)]
struct Subscribed {
    numbers: Vec<u64>,
    /// Names as members of the Kafka protocol say them.
    names: Vec<String>,
}

impl Subscribed {
    fn reads(&self, number: u64, namespace: &str, stream: &str) -> bool {
        let full = format!("{namespace}.{stream}");
        let named =
            |name: &String| *name == full || (namespace == "default" && name.as_str() == stream);
        self.numbers.contains(&number) || self.names.iter().any(named)
    }
}

fn subscribed(view: Option<&(&str, TeamView<'_>)>) -> Subscribed {
    match view {
        None => Subscribed::default(),
        Some((_, TeamView::Consumer(consumer))) => Subscribed {
            numbers: consumer
                .owners()
                .map(|(_, partition)| partition.number)
                .collect(),
            names: consumer
                .members()
                .flat_map(|member| member.reads)
                .map(|name| format!("{}.{}", name.namespace, name.stream))
                .collect(),
        },
        Some((protocol_type, TeamView::Classic(led))) => Subscribed {
            numbers: Vec::new(),
            names: if *protocol_type == "consumer" {
                led.members()
                    .flat_map(|(member, _)| topics_in(&member.metadata))
                    .collect()
            } else {
                Vec::new()
            },
        },
    }
}

/// The topics in a subscription of Kafka's consumer protocol: a version, a count, and names behind their lengths. What
/// cannot be read names nothing.
fn topics_in(metadata: &[u8]) -> Vec<String> {
    use bytes::Buf as _;
    let mut rest = metadata;
    let mut names = Vec::new();
    let (Ok(_), Ok(count)) = (rest.try_get_i16(), rest.try_get_i32()) else {
        return names;
    };
    for _ in 0..count {
        let length = rest.try_get_u16().unwrap_or(u16::MAX);
        let Some((name, behind)) = rest.split_at_checked(length.into()) else {
            break;
        };
        names.extend(String::from_utf8(name.to_vec()));
        rest = behind;
    }
    names
}

pub(super) async fn delete(
    state: &mut StreamState,
    groups: &List<Text>,
    caller: Caller,
) -> Result<(), Unanswered> {
    let mut errors = Vec::with_capacity(groups.len());
    for group in groups.iter() {
        let found = coordinator(state, &group, Action::GroupManage).await;
        errors.push(match found {
            Err(failure) => RawError::of(&failure.into()).number(),
            Ok((team, lane)) => {
                let foreign = foreign(state, &team);
                lane.delete(&team, &foreign).await
            }
        });
    }
    caller.answer(Ok(WireReply::KafkaDelete(KafkaDeleted {
        errors: list(errors),
    })));
    Ok(())
}

/// The numbers of all streams of a group's tenant that are there and in which the caller may not delete the group: nobody deletes
/// positions in what is not his.
fn foreign(state: &StreamState, team: &TeamId) -> HashSet<u64> {
    let catalogue = state.conn.shared.names.catalogue();
    let Some(entry) = catalogue.tenant(&team.tenant) else {
        return HashSet::new();
    };
    let streams = entry.namespaces.values().flat_map(|it| it.streams.values());
    streams
        .filter(|record| {
            let resource = Resource::Group {
                tenant: &team.tenant,
                namespace: record.namespace.as_str(),
                stream: record.stream.as_str(),
                group: &team.group,
            };
            !state.principal.allows(Action::GroupManage, &resource)
        })
        .map(|record| number(record))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topics_of_a_subscription_are_read_and_nothing_beyond_it() {
        let metadata = b"\0\x01\0\0\0\x02\0\x01a\0\x02bcrest";
        assert_eq!(topics_in(metadata), ["a", "bc"]);
        for end in 0..metadata.len() {
            topics_in(&metadata[..end]);
        }
        assert!(topics_in(b"\0\0\x7f\xff\xff\xff\xff\xff").is_empty());
    }
}
