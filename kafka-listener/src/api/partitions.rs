//! CreatePartitions: refused, because the shards of a stream are fixed when it is made.

use std::sync::Arc;

use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse};

use super::{Ctx, Head, metadata, text};
use crate::wire::codes::{INVALID_PARTITIONS, name};

pub(super) async fn answer(
    ctx: Arc<Ctx>,
    _head: Head,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let topics = ctx.topics();
    let results = request.topics.iter().map(|asked| {
        let (code, message) = match metadata::named(&ctx, &topics, asked.name.as_str()) {
            Err(code) => (code, name(code).to_owned()),
            Ok(topic) => (
                INVALID_PARTITIONS,
                format!(
                    "the topic has {} partitions, fixed when it was made; make another topic and copy",
                    topic.stream.shards
                ),
            ),
        };
        CreatePartitionsTopicResult::default()
            .with_name(asked.name.clone())
            .with_error_code(code)
            .with_error_message(Some(text(&message)))
    });
    CreatePartitionsResponse::default().with_results(results.collect())
}
