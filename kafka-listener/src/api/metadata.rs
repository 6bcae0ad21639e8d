//! Metadata: topics and their partitions, all of them led by this listener, since any listener serves any partition.

use std::sync::Arc;

use felix_auth::{Action, Resource};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{BrokerId, MetadataRequest, MetadataResponse, TopicName};
use uuid::Uuid;

use super::admin::{self, NewTopic};
use super::once::once;
use super::{Ctx, Head, cluster_id, text};
use crate::limits::ANSWER_PARTITIONS_MAX;
use crate::topics::{Topic, Topics};
use crate::wire::codes::{
    INVALID_TOPIC_EXCEPTION, POLICY_VIOLATION, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
};

/// Operations of a topic in the numbers of the protocol, with the right each needs.
const OPERATIONS: [(u32, Action); 7] = [
    (3, Action::StreamSubscribe),
    (4, Action::StreamPublish),
    (5, Action::StreamManage),
    (6, Action::StreamManage),
    (7, Action::StreamManage),
    (10, Action::StreamSubscribe),
    (11, Action::StreamManage),
];

/// To see a topic at all.
const DESCRIBE: u32 = 8;

pub(super) async fn answer(
    ctx: Arc<Ctx>,
    head: Head,
    request: MetadataRequest,
) -> MetadataResponse {
    // In version 0 an empty list means all; later it means none, and null means all.
    let asked = request
        .topics
        .filter(|asked| head.version > 0 || !asked.is_empty());
    let operations = request.include_topic_authorized_operations;
    let topics = match asked {
        None => {
            ctx.shared.names.refresh().await;
            all(&ctx, operations)
        }
        Some(asked) => {
            let makes = request.allow_auto_topic_creation;
            some(&ctx, &head, distinct(asked), makes, operations).await
        }
    };
    let (host, port) = &ctx.shared.advertised;
    let node = BrokerId(ctx.shared.node_id);
    let broker = MetadataResponseBroker::default()
        .with_node_id(node)
        .with_host(text(host))
        .with_port(i32::from(*port));
    let mut response = MetadataResponse::default()
        .with_brokers(vec![broker])
        .with_topics(topics)
        .with_cluster_id(Some(text(&cluster_id(&ctx))))
        .with_controller_id(node);
    if request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = super::cluster::operations(&ctx);
    }
    response
}

fn all(ctx: &Ctx, operations: bool) -> Vec<MetadataResponseTopic> {
    let topics = ctx.topics();
    let seen = topics.iter().filter(|topic| ctx.who.may_see(&topic.stream));
    let mut room = ANSWER_PARTITIONS_MAX;
    seen.map(|topic| found(ctx, topic, operations, &mut room))
        .collect()
}

/// Each topic once.
fn distinct(asked: Vec<MetadataRequestTopic>) -> Vec<MetadataRequestTopic> {
    let name = |topic: &MetadataRequestTopic| {
        let name = topic.name.clone();
        name.filter(|_| topic.topic_id.is_nil())
    };
    once(asked, |topic| (topic.topic_id, name(topic)))
}

async fn some(
    ctx: &Ctx,
    head: &Head,
    asked: Vec<MetadataRequestTopic>,
    makes: bool,
    operations: bool,
) -> Vec<MetadataResponseTopic> {
    let mut topics = ctx.topics_with(asked.iter().filter_map(name_of)).await;
    let mut all = Vec::with_capacity(asked.len());
    for topic in &asked {
        let looked = look(ctx, &topics, topic);
        let missing = |error| error == UNKNOWN_TOPIC_OR_PARTITION;
        let looked = match (looked, name_of(topic)) {
            (Err(error), Some(name)) if missing(error) && makes => {
                match make(ctx, name).await {
                    Some(with_it) => topics = with_it,
                    None => tracing::debug!(topic = name, "a topic is not made"),
                }
                look(ctx, &topics, topic)
            }
            (looked, _) => looked,
        };
        all.push(looked);
    }
    // Made in one go when nothing is waited for any more: it takes more memory than what it is made of.
    let mut room = ANSWER_PARTITIONS_MAX;
    let answers = asked.iter().zip(all).map(|(asked, looked)| match looked {
        Ok(topic) => found(ctx, &topic, operations, &mut room),
        Err(error) => not_found(head, asked, error),
    });
    answers.collect()
}

fn look(ctx: &Ctx, topics: &Topics, asked: &MetadataRequestTopic) -> Result<Arc<Topic>, i16> {
    match name_of(asked) {
        Some(name) => named(ctx, topics, name),
        // A stream that may not be seen is as unknown as one that is not there.
        None => topics
            .with_id(asked.topic_id.as_bytes())
            .filter(|topic| ctx.who.may_see(&topic.stream))
            .cloned()
            .ok_or(UNKNOWN_TOPIC_ID),
    }
}

/// The name that a topic is asked for by. With an id there is none, or an empty one, which is what Java sends.
fn name_of(asked: &MetadataRequestTopic) -> Option<&str> {
    let name = asked.name.as_ref().filter(|_| asked.topic_id.is_nil());
    name.map(|name| name.as_str())
}

/// A topic by its name.
///
/// # Errors
/// The code of what is wrong: the name, a right, or that there is none; rights come first, so that somebody without
/// them does not learn which topics exist.
pub(super) fn named(ctx: &Ctx, topics: &Topics, name: &str) -> Result<Arc<Topic>, i16> {
    if let Some(topic) = topics.named(name) {
        return if ctx.who.may_see(&topic.stream) {
            Ok(Arc::clone(topic))
        } else {
            Err(TOPIC_AUTHORIZATION_FAILED)
        };
    }
    let place = ctx
        .shared
        .names
        .place(ctx.who.tenant(), name)
        .ok_or(INVALID_TOPIC_EXCEPTION)?;
    let there = Resource::Stream {
        tenant: ctx.who.tenant().as_str(),
        namespace: place.namespace.as_str(),
        stream: place.stream.as_str(),
    };
    let may_see = [
        Action::StreamSubscribe,
        Action::StreamPublish,
        Action::StreamManage,
    ]
    .into_iter()
    .any(|action| ctx.who.principal.allows(action, &there));
    Err(if may_see {
        UNKNOWN_TOPIC_OR_PARTITION
    } else {
        TOPIC_AUTHORIZATION_FAILED
    })
}

/// Makes a topic that a client asked for, where that is allowed; `None` when it is not made.
async fn make(ctx: &Ctx, name: &str) -> Option<Arc<Topics>> {
    if !ctx.shared.config.auto_create_topics {
        return None;
    }
    let place = ctx.shared.names.place(ctx.who.tenant(), name)?;
    match admin::create(ctx, &place, &NewTopic::default()).await {
        Ok(_) => Some(ctx.topics()),
        Err(refused) => {
            tracing::info!(
                topic = name,
                why = refused.message,
                "a topic that was asked for is not made"
            );
            None
        }
    }
}

/// What is told of a topic. Of one whose partitions are more than there is room for in the answer, that it exists.
fn found(ctx: &Ctx, topic: &Topic, operations: bool, room: &mut usize) -> MetadataResponseTopic {
    let answer = MetadataResponseTopic::default()
        .with_name(Some(TopicName(text(&topic.name))))
        .with_topic_id(Uuid::from_bytes(topic.id));
    let mut answer = if takes(room, topic.stream.shards) {
        answer.with_partitions(partitions(ctx, topic))
    } else {
        answer.with_error_code(POLICY_VIOLATION)
    };
    if operations {
        answer.topic_authorized_operations = operations_of(ctx, topic);
    }
    answer
}

/// Whether so many partitions fit into what is left of the room for them, which they then take.
fn takes(room: &mut usize, shards: u32) -> bool {
    let left = usize::try_from(shards)
        .ok()
        .and_then(|shards| room.checked_sub(shards));
    *room = left.unwrap_or(*room);
    left.is_some()
}

fn partitions(ctx: &Ctx, topic: &Topic) -> Vec<MetadataResponsePartition> {
    let node = BrokerId(ctx.shared.node_id);
    let shards = i32::try_from(topic.stream.shards).unwrap_or(i32::MAX);
    let partitions = (0..shards).map(|shard| {
        MetadataResponsePartition::default()
            .with_partition_index(shard)
            .with_leader_id(node)
            .with_replica_nodes(vec![node])
            .with_isr_nodes(vec![node])
    });
    partitions.collect()
}

fn operations_of(ctx: &Ctx, topic: &Topic) -> i32 {
    let may = OPERATIONS
        .iter()
        .filter(|(_, action)| ctx.who.may(*action, &topic.stream));
    may.fold(1 << DESCRIBE, |bits, (number, _)| bits | 1 << number)
}

fn not_found(head: &Head, asked: &MetadataRequestTopic, error: i16) -> MetadataResponseTopic {
    // The name may be null from version 12 on.
    let name = asked.name.clone();
    let name = if head.version < 12 {
        Some(name.unwrap_or_default())
    } else {
        name
    };
    MetadataResponseTopic::default()
        .with_error_code(error)
        .with_name(name)
        .with_topic_id(asked.topic_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: Option<&str>, id: u8) -> MetadataRequestTopic {
        MetadataRequestTopic::default()
            .with_name(name.map(|name| TopicName(text(name))))
            .with_topic_id(Uuid::from_bytes([id; 16]))
    }

    #[test]
    fn a_topic_that_is_named_again_is_answered_once() {
        let asked = [
            topic(Some("a"), 0),
            topic(Some("b"), 0),
            topic(Some("a"), 0),
            topic(None, 1),
            // With an id the name says nothing.
            topic(Some(""), 1),
            topic(None, 2),
        ];
        let kept = distinct(asked.to_vec());
        assert_eq!(
            kept,
            [
                asked[0].clone(),
                asked[1].clone(),
                asked[3].clone(),
                asked[5].clone()
            ]
        );
    }

    #[test]
    fn one_answer_has_room_for_so_many_partitions() {
        let mut room = 1500;
        let taken = [1024, 1024, 400, 77, 76].map(|shards| takes(&mut room, shards));
        assert_eq!(taken, [true, false, true, false, true]);
        assert_eq!(room, 0);
    }
}
