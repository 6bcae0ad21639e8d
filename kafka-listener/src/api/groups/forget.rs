//! OffsetDelete: positions are forgotten, where no member reads the topic.

use std::sync::Arc;
use std::time::Duration;

use felix_client::raw::{KafkaForget, List, ShardsOf};
use kafka_protocol::messages::offset_delete_request::OffsetDeleteRequestTopic;
use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::{OffsetDeleteRequest, OffsetDeleteResponse};

use super::super::{Ctx, Head, metadata};
use super::{call, told};
use crate::topics::Topic;
use crate::wire::codes::{INVALID_REQUEST, NONE, UNKNOWN_TOPIC_OR_PARTITION};

pub(in super::super) async fn answer(
    ctx: Arc<Ctx>,
    _head: Head,
    request: OffsetDeleteRequest,
) -> OffsetDeleteResponse {
    let names = request.topics.iter().map(|topic| topic.name.as_str());
    let topics = ctx.topics_with(names).await;
    let known: Vec<Result<Arc<Topic>, i16>> = request
        .topics
        .iter()
        .map(|asked| metadata::named(&ctx, &topics, asked.name.as_str()))
        .collect();
    match forget(&ctx, &request, &known).await {
        Err(error) => OffsetDeleteResponse::default().with_error_code(error),
        Ok(errors) => {
            let mut errors = errors.into_iter();
            let topics = request.topics.into_iter().zip(&known);
            let topics = topics.map(|(asked, known)| shown(asked, known, &mut errors));
            OffsetDeleteResponse::default().with_topics(topics.collect())
        }
    }
}

async fn forget(
    ctx: &Ctx,
    request: &OffsetDeleteRequest,
    known: &[Result<Arc<Topic>, i16>],
) -> Result<Vec<i16>, i16> {
    let mut streams = Vec::new();
    for (asked, topic) in request.topics.iter().zip(known) {
        let Ok(topic) = topic else { continue };
        let shards = asked.partitions.iter();
        let shards = shards.map(|partition| partition.partition_index.unsigned_abs());
        streams.push(ShardsOf {
            namespace: topic.stream.namespace.as_str().into(),
            stream: topic.stream.stream.as_str().into(),
            shards: List::build(shards).map_err(|_| INVALID_REQUEST)?,
        });
    }
    let ask = KafkaForget {
        group: told(&request.group_id),
        streams: List::build(streams).map_err(|_| INVALID_REQUEST)?,
    };
    let forgotten = call(ctx, ask, Duration::ZERO).await?;
    match forgotten.error {
        NONE => Ok(forgotten.errors.iter().collect()),
        error => Err(error),
    }
}

fn shown(
    asked: OffsetDeleteRequestTopic,
    known: &Result<Arc<Topic>, i16>,
    errors: &mut impl Iterator<Item = i16>,
) -> OffsetDeleteResponseTopic {
    let partitions = asked.partitions.iter().map(|partition| {
        let error = match known {
            Ok(_) => errors.next().unwrap_or(UNKNOWN_TOPIC_OR_PARTITION),
            Err(error) => *error,
        };
        OffsetDeleteResponsePartition::default()
            .with_partition_index(partition.partition_index)
            .with_error_code(error)
    });
    let partitions = partitions.collect();
    OffsetDeleteResponseTopic::default()
        .with_name(asked.name)
        .with_partitions(partitions)
}
