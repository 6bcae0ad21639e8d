//! DescribeLogDirs: one directory that stands for all disks behind the listener, with the size of every partition.

use std::collections::HashSet;
use std::sync::Arc;

use felix_client::raw::{List, RawDescribe, StreamName};
use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse, TopicName};

use super::{Ctx, Head, text};
use crate::topics::Topic;

/// What stands for the disks.
const DIRECTORY: &str = "felix";

pub(super) async fn answer(
    ctx: Arc<Ctx>,
    head: Head,
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    let topics = ctx.topics();
    let asked: Option<HashSet<&str>> = request
        .topics
        .as_ref()
        .map(|asked| asked.iter().map(|one| one.topic.as_str()).collect());
    let wanted = |topic: &Topic| {
        let asked = asked.as_ref();
        ctx.who.may_see(&topic.stream)
            && asked.is_none_or(|asked| asked.contains(topic.name.as_str()))
    };
    let wanted: Vec<&Arc<Topic>> = topics.iter().filter(|topic| wanted(topic)).collect();
    let mut result = DescribeLogDirsResult::default().with_log_dir(text(DIRECTORY));
    match sizes(&ctx, &wanted).await {
        Ok(sizes) => {
            let topics = wanted.iter().zip(sizes).map(|(topic, sizes)| {
                let partitions = (0..).zip(sizes).map(|(index, bytes)| {
                    DescribeLogDirsPartition::default()
                        .with_partition_index(index)
                        .with_partition_size(bytes)
                });
                DescribeLogDirsTopic::default()
                    .with_name(TopicName(text(&topic.name)))
                    .with_partitions(partitions.collect())
            });
            result.topics = topics.collect();
        }
        Err(error) => result.error_code = error,
    }
    if head.version >= 4 {
        // How large the disks are is not known here.
        result.total_bytes = -1;
        result.usable_bytes = -1;
    }
    DescribeLogDirsResponse::default().with_results(vec![result])
}

async fn sizes(ctx: &Ctx, topics: &[&Arc<Topic>]) -> Result<Vec<Vec<i64>>, i16> {
    if topics.is_empty() {
        return Ok(Vec::new());
    }
    let streams = topics.iter().map(|topic| StreamName {
        namespace: topic.stream.namespace.as_str().into(),
        stream: topic.stream.stream.as_str().into(),
    });
    let described = async {
        let streams = Some(List::build(streams).map_err(super::too_long)?);
        let want_shards = true;
        let raw = ctx.raw().await?;
        raw.describe(RawDescribe {
            streams,
            want_shards,
        })
        .await
    };
    let described = described
        .await
        .map_err(|failed| failed.raw_error().number())?;
    let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let sizes = described.streams.iter();
    Ok(sizes
        .map(|stream| {
            stream
                .shards
                .iter()
                .map(|shard| bytes(shard.bytes))
                .collect()
        })
        .collect())
}
