//! OffsetCommit: positions are durable before they are acknowledged.

use std::sync::Arc;
use std::time::Duration;

use felix_client::raw::{KafkaCommit, List, OffsetOf, OffsetsOf, Text};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::{OffsetCommitRequest, OffsetCommitResponse};

use super::super::{Ctx, Head, metadata};
use super::{call, told};
use crate::limits::OFFSET_METADATA_BYTES_MAX;
use crate::topics::Topic;
use crate::wire::codes::{
    INVALID_REQUEST, NONE, OFFSET_METADATA_TOO_LARGE, OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_OR_PARTITION,
};

pub(in super::super) async fn answer(
    ctx: Arc<Ctx>,
    _head: Head,
    request: OffsetCommitRequest,
) -> OffsetCommitResponse {
    let names = request.topics.iter().map(|topic| topic.name.as_str());
    let topics = ctx.topics_with(names).await;
    let mut errors: Vec<Vec<i16>> = Vec::with_capacity(request.topics.len());
    let mut streams = Vec::new();
    for asked in &request.topics {
        let topic = metadata::named(&ctx, &topics, asked.name.as_str());
        let judged = asked.partitions.iter().map(|partition| match &topic {
            Ok(topic) => judge(topic, partition),
            Err(error) => *error,
        });
        let judged: Vec<i16> = judged.collect();
        if let Ok(topic) = topic
            && let Some(stream) = positions(&topic, asked, &judged)
        {
            streams.push(stream);
        }
        errors.push(judged);
    }
    let committed = if streams.is_empty() {
        Ok(Vec::new())
    } else {
        commit(&ctx, &request, streams).await
    };
    fill(&mut errors, &committed);
    let topics = request.topics.into_iter().zip(errors);
    let topics = topics.map(|(topic, errors)| told_of(topic, &errors));
    OffsetCommitResponse::default().with_topics(topics.collect())
}

/// What can be seen to be wrong without asking.
fn judge(topic: &Topic, asked: &OffsetCommitRequestPartition) -> i16 {
    let metadata = asked.committed_metadata.as_ref();
    let shards = i64::from(topic.stream.shards);
    if !(0..shards).contains(&i64::from(asked.partition_index)) {
        UNKNOWN_TOPIC_OR_PARTITION
    } else if asked.committed_offset < 0 {
        OFFSET_OUT_OF_RANGE
    } else if metadata.is_some_and(|text| text.len() > OFFSET_METADATA_BYTES_MAX) {
        OFFSET_METADATA_TOO_LARGE
    } else {
        NONE
    }
}

fn positions(topic: &Topic, asked: &OffsetCommitRequestTopic, judged: &[i16]) -> Option<OffsetsOf> {
    let good = asked.partitions.iter().zip(judged);
    let good = good.filter(|(_, error)| **error == NONE);
    let shards: Vec<OffsetOf> = good
        .map(|(partition, _)| OffsetOf {
            shard: partition.partition_index.unsigned_abs(),
            offset: partition.committed_offset.unsigned_abs(),
            generation: partition.committed_leader_epoch.into(),
            metadata: partition.committed_metadata.as_ref().map(told),
        })
        .collect();
    if shards.is_empty() {
        return None;
    }
    Some(OffsetsOf {
        namespace: Text::from(topic.stream.namespace.as_str()),
        stream: Text::from(topic.stream.stream.as_str()),
        shards: List::build(shards).ok()?,
    })
}

async fn commit(
    ctx: &Ctx,
    request: &OffsetCommitRequest,
    streams: Vec<OffsetsOf>,
) -> Result<Vec<i16>, i16> {
    let ask = KafkaCommit {
        group: told(&request.group_id),
        generation: request.generation_id_or_member_epoch.into(),
        member: told(&request.member_id),
        instance: request.group_instance_id.as_ref().map(told),
        streams: List::build(streams).map_err(|_| INVALID_REQUEST)?,
    };
    let committed = call(ctx, ask, Duration::ZERO).await?;
    match committed.error {
        NONE => Ok(committed.errors.iter().collect()),
        error => Err(error),
    }
}

/// Puts what was answered where nothing was found wrong before.
fn fill(errors: &mut [Vec<i16>], committed: &Result<Vec<i16>, i16>) {
    let mut each = committed.iter().flatten();
    for error in errors.iter_mut().flatten().filter(|error| **error == NONE) {
        *error = match committed {
            Ok(_) => each.next().copied().unwrap_or(UNKNOWN_TOPIC_OR_PARTITION),
            Err(all) => *all,
        };
    }
}

fn told_of(topic: OffsetCommitRequestTopic, errors: &[i16]) -> OffsetCommitResponseTopic {
    let partitions = topic.partitions.iter().zip(errors).map(|(asked, error)| {
        OffsetCommitResponsePartition::default()
            .with_partition_index(asked.partition_index)
            .with_error_code(*error)
    });
    let partitions = partitions.collect();
    OffsetCommitResponseTopic::default()
        .with_name(topic.name)
        .with_partitions(partitions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_go_where_nothing_was_wrong_before() {
        let before = vec![vec![NONE, 3], vec![NONE]];
        let mut errors = before.clone();
        fill(&mut errors, &Ok(vec![0, 25]));
        assert_eq!(errors, [vec![0, 3], vec![25]]);
        let mut errors = before;
        fill(&mut errors, &Err(16));
        assert_eq!(errors, [vec![16, 3], vec![16]]);
    }
}
