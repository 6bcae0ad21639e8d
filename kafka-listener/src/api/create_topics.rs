//! CreateTopics: streams made at the control plane with the client's own token.

use std::collections::HashMap;
use std::sync::Arc;

use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult,
};
use kafka_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};
use uuid::Uuid;

use super::admin::{self, NewTopic, Refused, Settings};
use super::{Ctx, Head, settings, text};
use crate::topics::Topics;
use crate::wire::codes::{
    INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR, INVALID_REQUEST,
    INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS,
};

pub(super) async fn answer(
    ctx: Arc<Ctx>,
    head: Head,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let mut named: HashMap<&str, usize> = HashMap::with_capacity(request.topics.len());
    for topic in &request.topics {
        *named.entry(topic.name.as_str()).or_default() += 1;
    }
    let mut results = Vec::with_capacity(request.topics.len());
    for topic in &request.topics {
        let made = if named
            .get(topic.name.as_str())
            .is_some_and(|times| *times > 1)
        {
            let message = "the request names the topic more than once";
            Err(Refused::new(INVALID_REQUEST, message))
        } else {
            make(&ctx, topic, request.validate_only).await
        };
        results.push(result(&ctx, &head, topic, made));
    }
    CreateTopicsResponse::default().with_topics(results)
}

async fn make(ctx: &Ctx, topic: &CreatableTopic, only_look: bool) -> Result<(), Refused> {
    let name = topic.name.as_str();
    let bad_name = || {
        Refused::new(
            INVALID_TOPIC_EXCEPTION,
            format!("{name:?} is no topic's name"),
        )
    };
    let place = ctx
        .shared
        .names
        .place(ctx.who.tenant(), name)
        .ok_or_else(bad_name)?;
    let new = wanted(topic)?;
    admin::control(ctx)?;
    if ctx.topics().named(name).is_some() {
        return Err(Refused::new(TOPIC_ALREADY_EXISTS, "the topic exists"));
    }
    if only_look {
        return Ok(());
    }
    admin::create(ctx, &place, &new).await.map(drop)
}

fn wanted(topic: &CreatableTopic) -> Result<NewTopic, Refused> {
    if !topic.assignments.is_empty() {
        let message = "where partitions are is not for clients to say";
        return Err(Refused::new(INVALID_REPLICA_ASSIGNMENT, message));
    }
    let partitions = match topic.num_partitions {
        -1 => None,
        count => Some(
            u32::try_from(count)
                .ok()
                .filter(|count| (1..=felix_meta::limits::SHARDS_MAX).contains(count))
                .ok_or_else(|| {
                    let most = felix_meta::limits::SHARDS_MAX;
                    Refused::new(
                        INVALID_PARTITIONS,
                        format!("{count} partitions; 1 to {most} can be"),
                    )
                })?,
        ),
    };
    if ![-1, 1].contains(&topic.replication_factor) {
        let message = format!(
            "{} copies; brokers of this version keep one",
            topic.replication_factor
        );
        return Err(Refused::new(INVALID_REPLICATION_FACTOR, message));
    }
    let pairs = topic
        .configs
        .iter()
        .map(|one| (&one.name, one.value.as_ref()));
    Ok(NewTopic {
        partitions,
        settings: settings::read(Settings::default(), pairs)?,
    })
}

fn result(
    ctx: &Ctx,
    head: &Head,
    topic: &CreatableTopic,
    made: Result<(), Refused>,
) -> CreatableTopicResult {
    let result = CreatableTopicResult::default()
        .with_name(topic.name.clone())
        .with_error_message(None)
        .with_configs(None);
    match made {
        Err(refused) => result
            .with_error_code(refused.code)
            .with_error_message(Some(text(&refused.message)))
            .with_num_partitions(-1)
            .with_replication_factor(-1),
        Ok(()) => match (head.version >= 5, ctx.topics()) {
            (true, topics) => described(result, &topics, topic),
            (false, _) => result,
        },
    }
}

fn described(
    result: CreatableTopicResult,
    topics: &Topics,
    asked: &CreatableTopic,
) -> CreatableTopicResult {
    let Some(topic) = topics.named(asked.name.as_str()) else {
        // It was only looked whether it could be made.
        return result
            .with_num_partitions(asked.num_partitions.max(1))
            .with_replication_factor(1);
    };
    let configs = settings::of_topic(&topic.stream)
        .into_iter()
        .map(|setting| {
            CreatableTopicConfigs::default()
                .with_name(text(setting.name))
                .with_value(Some(text(&setting.value)))
                .with_read_only(setting.read_only)
                .with_config_source(if setting.own { 1 } else { 5 })
        });
    result
        .with_topic_id(Uuid::from_bytes(topic.id))
        .with_num_partitions(i32::try_from(topic.stream.shards).unwrap_or(i32::MAX))
        .with_replication_factor(1)
        .with_configs(Some(configs.collect()))
}
