//! DeleteTopics, by name or by id.

use std::sync::Arc;

use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse, TopicName};
use uuid::Uuid;

use super::admin::{self, Refused};
use super::{Ctx, Head, metadata, text};
use crate::topics::Topic;
use crate::wire::codes::{UNKNOWN_TOPIC_ID, name};

pub(super) async fn answer(
    ctx: Arc<Ctx>,
    head: Head,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    let asked: Vec<DeleteTopicState> = if head.version >= 6 {
        request.topics
    } else {
        let names = request.topic_names.into_iter();
        names
            .map(|name| DeleteTopicState::default().with_name(Some(name)))
            .collect()
    };
    let names = asked.iter().filter_map(|topic| topic.name.as_ref());
    ctx.topics_with(names.map(|name| name.as_str())).await;
    let mut responses = Vec::with_capacity(asked.len());
    for topic in &asked {
        let deleted = delete(&ctx, topic).await;
        responses.push(result(&head, topic, deleted));
    }
    DeleteTopicsResponse::default().with_responses(responses)
}

async fn delete(ctx: &Ctx, asked: &DeleteTopicState) -> Result<Arc<Topic>, Refused> {
    let refused = |code| Refused::new(code, name(code));
    let topic = match &asked.name {
        Some(wanted) => metadata::named(ctx, &ctx.topics(), wanted.as_str()).map_err(refused)?,
        None => {
            let topics = ctx.topics();
            let topic = topics.with_id(asked.topic_id.as_bytes()).cloned();
            topic
                .filter(|topic| ctx.who.may_see(&topic.stream))
                .ok_or_else(|| refused(UNKNOWN_TOPIC_ID))?
        }
    };
    admin::delete(ctx, &topic.stream).await?;
    Ok(topic)
}

fn result(
    head: &Head,
    asked: &DeleteTopicState,
    deleted: Result<Arc<Topic>, Refused>,
) -> DeletableTopicResult {
    let (name, id, refused) = match deleted {
        Ok(topic) => (
            Some(TopicName(text(&topic.name))),
            Uuid::from_bytes(topic.id),
            None,
        ),
        Err(refused) => (asked.name.clone(), asked.topic_id, Some(refused)),
    };
    let mut result = DeletableTopicResult::default().with_name(name);
    if head.version >= 6 {
        result.topic_id = id;
    }
    if let Some(refused) = refused {
        result.error_code = refused.code;
        if head.version >= 5 {
            result.error_message = Some(text(&refused.message));
        }
    }
    result
}
