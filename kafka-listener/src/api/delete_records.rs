//! DeleteRecords: forgets what lies before an offset.

use std::sync::Arc;

use felix_client::raw::RawDeleteRecords;
use kafka_protocol::messages::delete_records_request::DeleteRecordsTopic;
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse};

use super::{Ctx, Head, gather, metadata};
use crate::topics::Topic;
use crate::wire::codes::{OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION};

/// Everything that may be read.
const TO_THE_END: i64 = -1;

pub(super) async fn answer(
    ctx: Arc<Ctx>,
    _head: Head,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let names = request.topics.iter().map(|topic| topic.name.as_str());
    ctx.topics_with(names).await;
    let work = request.topics.into_iter().map(|topic| {
        let ctx = Arc::clone(&ctx);
        async move { one(&ctx, topic).await }
    });
    DeleteRecordsResponse::default().with_topics(gather(work).await)
}

async fn one(ctx: &Ctx, asked: DeleteRecordsTopic) -> DeleteRecordsTopicResult {
    let topic = metadata::named(ctx, &ctx.topics(), asked.name.as_str());
    let mut partitions = Vec::with_capacity(asked.partitions.len());
    for partition in &asked.partitions {
        let deleted = match &topic {
            Ok(topic) => delete(ctx, topic, partition.partition_index, partition.offset).await,
            Err(error) => Err(*error),
        };
        let result =
            DeleteRecordsPartitionResult::default().with_partition_index(partition.partition_index);
        partitions.push(match deleted {
            Ok(start) => result.with_low_watermark(start),
            Err(error) => result.with_error_code(error).with_low_watermark(-1),
        });
    }
    DeleteRecordsTopicResult::default()
        .with_name(asked.name)
        .with_partitions(partitions)
}

async fn delete(ctx: &Ctx, topic: &Topic, partition: i32, offset: i64) -> Result<i64, i16> {
    let shard = u32::try_from(partition)
        .ok()
        .filter(|shard| *shard < topic.stream.shards)
        .ok_or(UNKNOWN_TOPIC_OR_PARTITION)?;
    let before = match u64::try_from(offset) {
        Ok(offset) => Some(offset),
        Err(_) if offset == TO_THE_END => None,
        Err(_) => return Err(OFFSET_OUT_OF_RANGE),
    };
    let deleted = async {
        let stream = ctx.stream(topic).await?;
        stream
            .delete_records(RawDeleteRecords { shard, before })
            .await
    };
    let deleted = deleted
        .await
        .map_err(|failed| failed.raw_error().number())?;
    Ok(i64::try_from(deleted.start).unwrap_or(i64::MAX))
}
