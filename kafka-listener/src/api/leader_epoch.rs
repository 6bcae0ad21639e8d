//! OffsetForLeaderEpoch: where generations of a partition ended.

use std::sync::Arc;

use felix_client::raw::{EpochAsk, EpochEnd, List, RawEpochEnd};
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};

use super::{Ctx, Head, gather, metadata};
use crate::topics::Topic;
use crate::wire::codes::UNKNOWN_TOPIC_OR_PARTITION;

pub(super) async fn answer(
    ctx: Arc<Ctx>,
    _head: Head,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let work = request.topics.into_iter().map(|topic| {
        let ctx = Arc::clone(&ctx);
        async move { one(&ctx, topic).await }
    });
    OffsetForLeaderEpochResponse::default().with_topics(gather(work).await)
}

async fn one(ctx: &Ctx, asked: OffsetForLeaderTopic) -> OffsetForLeaderTopicResult {
    let ends = match metadata::named(ctx, &ctx.topics(), asked.topic.as_str()) {
        Ok(topic) => look(ctx, &topic, &asked.partitions).await,
        Err(error) => vec![missing(error); asked.partitions.len()],
    };
    let partitions = asked.partitions.iter().zip(ends).map(|(asked, end)| {
        EpochEndOffset::default()
            .with_partition(asked.partition)
            .with_error_code(end.error)
            .with_leader_epoch(i32::try_from(end.generation).unwrap_or(-1))
            .with_end_offset(end.end)
    });
    let partitions = partitions.collect();
    OffsetForLeaderTopicResult::default()
        .with_topic(asked.topic)
        .with_partitions(partitions)
}

const fn missing(error: i16) -> EpochEnd {
    EpochEnd {
        error,
        generation: -1,
        end: -1,
    }
}

async fn look(ctx: &Ctx, topic: &Topic, asked: &[OffsetForLeaderPartition]) -> Vec<EpochEnd> {
    let shards = i64::from(topic.stream.shards);
    let there = |asked: &OffsetForLeaderPartition| {
        (0..shards).contains(&i64::from(asked.partition)) && asked.leader_epoch >= 0
    };
    let asks = asked.iter().filter(|asked| there(asked));
    let asks = asks.map(|asked| EpochAsk {
        shard: asked.partition.unsigned_abs(),
        of: u64::from(asked.leader_epoch.unsigned_abs()),
        generation: u64::try_from(asked.current_leader_epoch).ok(),
    });
    let asks: Vec<EpochAsk> = asks.collect();
    let count = asks.len();
    let ended = async {
        let stream = ctx.stream(topic).await?;
        let asks = List::build(asks).map_err(super::too_long)?;
        stream.epoch_end(RawEpochEnd { asks }).await
    };
    let ends: Vec<EpochEnd> = match ended.await {
        Ok(ended) => ended.ends.iter().collect(),
        Err(failed) => vec![missing(failed.raw_error().number()); count],
    };
    let mut ends = ends.into_iter();
    let answers = asked.iter().map(|asked| {
        let end = there(asked).then(|| ends.next()).flatten();
        end.unwrap_or(missing(UNKNOWN_TOPIC_OR_PARTITION))
    });
    answers.collect()
}
