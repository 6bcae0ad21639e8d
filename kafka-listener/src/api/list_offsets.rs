//! ListOffsets: where a partition begins and ends, and where a time is.

use std::sync::Arc;

use felix_client::raw::{List, OffsetAsk, OffsetFound, RawOffsets};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};

use super::{Ctx, Head, gather, metadata};
use crate::topics::Topic;
use crate::wire::codes::{INVALID_REQUEST, NONE, UNKNOWN_TOPIC_OR_PARTITION};

/// Of the special times the broker knows -1 (end) to -5; -6 is where an upload to another store would begin.
const OLDEST_KNOWN: i64 = -5;
const UPLOAD: i64 = -6;

/// Isolation of a reader that sees only what no open transaction may take back.
const READ_COMMITTED: i8 = 1;

pub(super) async fn answer(
    ctx: Arc<Ctx>,
    head: Head,
    request: ListOffsetsRequest,
) -> ListOffsetsResponse {
    let names = request.topics.iter().map(|topic| topic.name.as_str());
    ctx.topics_with(names).await;
    let committed = request.isolation_level == READ_COMMITTED;
    let work = request.topics.into_iter().map(|topic| {
        let (ctx, version) = (Arc::clone(&ctx), head.version);
        async move { one(&ctx, version, committed, topic).await }
    });
    ListOffsetsResponse::default().with_topics(gather(work).await)
}

async fn one(
    ctx: &Ctx,
    version: i16,
    committed: bool,
    asked: ListOffsetsTopic,
) -> ListOffsetsTopicResponse {
    let found = match metadata::named(ctx, &ctx.topics(), asked.name.as_str()) {
        Ok(topic) => look(ctx, &topic, committed, &asked.partitions).await,
        Err(error) => asked.partitions.iter().map(|_| missing(error)).collect(),
    };
    let partitions = asked.partitions.iter().zip(found).map(|(asked, found)| {
        let mut answer = ListOffsetsPartitionResponse::default()
            .with_partition_index(asked.partition_index)
            .with_error_code(found.error)
            .with_offset(found.offset)
            .with_timestamp(found.timestamp_ms);
        if version >= 4 {
            answer.leader_epoch = i32::try_from(found.generation).unwrap_or(-1);
        }
        answer
    });
    let partitions = partitions.collect();
    ListOffsetsTopicResponse::default()
        .with_name(asked.name)
        .with_partitions(partitions)
}

const fn missing(error: i16) -> OffsetFound {
    OffsetFound {
        error,
        offset: -1,
        timestamp_ms: -1,
        generation: -1,
    }
}

/// One answer for each partition, in the same order.
async fn look(
    ctx: &Ctx,
    topic: &Topic,
    committed: bool,
    asked: &[ListOffsetsPartition],
) -> Vec<OffsetFound> {
    let judged: Vec<Result<OffsetAsk, OffsetFound>> =
        asked.iter().map(|asked| judge(topic, asked)).collect();
    let asks = judged.iter().filter_map(|judged| judged.as_ref().ok());
    let asks: Vec<OffsetAsk> = asks.cloned().collect();
    let found = if asks.is_empty() {
        Vec::new()
    } else {
        ask(ctx, topic, committed, asks).await
    };
    let mut found = found.into_iter();
    judged
        .into_iter()
        .map(|judged| match judged {
            Ok(_) => found.next().unwrap_or(missing(UNKNOWN_TOPIC_OR_PARTITION)),
            Err(answer) => answer,
        })
        .collect()
}

fn judge(topic: &Topic, asked: &ListOffsetsPartition) -> Result<OffsetAsk, OffsetFound> {
    let shards = i64::from(topic.stream.shards);
    if !(0..shards).contains(&i64::from(asked.partition_index)) {
        return Err(missing(UNKNOWN_TOPIC_OR_PARTITION));
    }
    match asked.timestamp {
        UPLOAD => Err(missing(NONE)),
        at if at < OLDEST_KNOWN => Err(missing(INVALID_REQUEST)),
        at => Ok(OffsetAsk {
            shard: asked.partition_index.unsigned_abs(),
            at,
            generation: u64::try_from(asked.current_leader_epoch).ok(),
        }),
    }
}

async fn ask(ctx: &Ctx, topic: &Topic, committed: bool, asks: Vec<OffsetAsk>) -> Vec<OffsetFound> {
    let count = asks.len();
    let found = async {
        let stream = ctx.stream(topic).await?;
        let asks = List::build(asks).map_err(super::too_long)?;
        stream.offsets(RawOffsets { asks, committed }).await
    };
    match found.await {
        Ok(found) => found.found.iter().collect(),
        Err(failed) => vec![missing(failed.raw_error().number()); count],
    }
}
