//! DescribeConfigs, of topics and of this listener as a broker; AlterConfigs and IncrementalAlterConfigs, of topics.

use std::sync::Arc;

use kafka_protocol::messages::alter_configs_response::AlterConfigsResourceResponse as Replaced;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult,
};
use kafka_protocol::messages::incremental_alter_configs_request::AlterConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, DescribeConfigsRequest, DescribeConfigsResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};

use super::admin::{self, Refused, Settings};
use super::once::once;
use super::settings::{self, Setting, Type};
use super::{Ctx, Head, metadata, text};
use crate::limits::BATCH_BYTES_MAX;
use crate::topics::Topic;
use crate::wire::codes::{INVALID_CONFIG, INVALID_REQUEST, name};

/// Kinds of resources.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;

/// Where a value comes from, in the numbers of the protocol: set for the topic, or a default.
const SET: i8 = 1;
const DEFAULT: i8 = 5;

/// Operations of an incremental change.
const OPERATION_SET: i8 = 0;
const OPERATION_DELETE: i8 = 1;

pub(super) async fn answer(
    ctx: Arc<Ctx>,
    head: Head,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let asked = once(request.resources, |one| {
        (one.resource_type, one.resource_name.clone())
    });
    let names = asked.iter();
    let names = names.filter(|one| one.resource_type == TOPIC);
    ctx.topics_with(names.map(|one| one.resource_name.as_str()))
        .await;
    let results = asked.iter().map(|asked| {
        let result = DescribeConfigsResult::default()
            .with_error_message(None)
            .with_resource_type(asked.resource_type)
            .with_resource_name(asked.resource_name.clone());
        match list(&ctx, asked) {
            Ok(all) => {
                let wanted = |setting: &Setting| {
                    let keys = asked.configuration_keys.as_ref();
                    keys.is_none_or(|keys| keys.iter().any(|key| key.as_str() == setting.name))
                };
                let listed = all.into_iter().filter(wanted);
                result.with_configs(listed.map(|setting| shown(&head, &setting)).collect())
            }
            Err(refused) => result
                .with_error_code(refused.code)
                .with_error_message(Some(text(&refused.message))),
        }
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

fn list(ctx: &Ctx, asked: &DescribeConfigsResource) -> Result<Vec<Setting>, Refused> {
    let wanted = asked.resource_name.as_str();
    match asked.resource_type {
        TOPIC => {
            let topic = metadata::named(ctx, &ctx.topics(), wanted)
                .map_err(|code| Refused::new(code, name(code)))?;
            Ok(settings::of_topic(&topic.stream))
        }
        BROKER if wanted.is_empty() || wanted == ctx.shared.node_id.to_string() => {
            Ok(of_listener(ctx))
        }
        BROKER => Err(Refused::new(
            INVALID_REQUEST,
            format!("there is no broker {wanted:?}"),
        )),
        kind => Err(Refused::new(
            INVALID_REQUEST,
            format!("resources of kind {kind} have no settings here"),
        )),
    }
}

fn of_listener(ctx: &Ctx) -> Vec<Setting> {
    let shown = |name, value: String, kind| Setting {
        name,
        value,
        kind,
        own: false,
        read_only: true,
    };
    let config = &ctx.shared.config;
    vec![
        shown(
            "auto.create.topics.enable",
            config.auto_create_topics.to_string(),
            Type::Boolean,
        ),
        shown("broker.id", ctx.shared.node_id.to_string(), Type::Int),
        shown("default.replication.factor", "1".into(), Type::Int),
        shown("log.cleanup.policy", "delete".into(), Type::List),
        shown(
            "log.message.timestamp.type",
            "CreateTime".into(),
            Type::Text,
        ),
        shown("message.max.bytes", BATCH_BYTES_MAX.to_string(), Type::Int),
        shown("min.insync.replicas", "1".into(), Type::Int),
        shown(
            "num.partitions",
            crate::limits::PARTITIONS_DEFAULT.to_string(),
            Type::Int,
        ),
    ]
}

fn shown(head: &Head, setting: &Setting) -> DescribeConfigsResourceResult {
    let mut shown = DescribeConfigsResourceResult::default()
        .with_documentation(None)
        .with_name(text(setting.name))
        .with_value(Some(text(&setting.value)))
        .with_read_only(setting.read_only)
        .with_config_source(if setting.own { SET } else { DEFAULT });
    if head.version >= 3 {
        shown.config_type = setting.kind as i8;
    }
    shown
}

pub(super) async fn alter(
    ctx: Arc<Ctx>,
    _head: Head,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let names = request.resources.iter();
    let names = names.filter(|one| one.resource_type == TOPIC);
    ctx.topics_with(names.map(|one| one.resource_name.as_str()))
        .await;
    let mut responses = Vec::with_capacity(request.resources.len());
    for resource in &request.resources {
        let response = AlterConfigsResourceResponse::default()
            .with_error_message(None)
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        responses.push(match change(&ctx, resource, request.validate_only).await {
            Ok(()) => response,
            Err(refused) => response
                .with_error_code(refused.code)
                .with_error_message(Some(text(&refused.message))),
        });
    }
    IncrementalAlterConfigsResponse::default().with_responses(responses)
}

/// Answers the older way of changing settings: all of them at once, and what is not named has its default again.
pub(super) async fn replace(
    ctx: Arc<Ctx>,
    _head: Head,
    request: AlterConfigsRequest,
) -> AlterConfigsResponse {
    let names = request.resources.iter();
    let names = names.filter(|one| one.resource_type == TOPIC);
    ctx.topics_with(names.map(|one| one.resource_name.as_str()))
        .await;
    let mut responses = Vec::with_capacity(request.resources.len());
    for asked in &request.resources {
        let response = Replaced::default()
            .with_error_message(None)
            .with_resource_type(asked.resource_type)
            .with_resource_name(asked.resource_name.clone());
        let named = asked.configs.iter();
        let named = named.map(|one| (&one.name, one.value.as_ref()));
        let done = match settings::read(settings::defaults(), named) {
            Ok(changes) => {
                let only_look = request.validate_only;
                let (kind, name) = (asked.resource_type, asked.resource_name.as_str());
                apply(&ctx, kind, name, &changes, only_look).await
            }
            Err(refused) => Err(refused),
        };
        responses.push(match done {
            Ok(()) => response,
            Err(refused) => response
                .with_error_code(refused.code)
                .with_error_message(Some(text(&refused.message))),
        });
    }
    AlterConfigsResponse::default().with_responses(responses)
}

/// The topic of a change. Whoever calls has asked for what is not known.
fn changed(ctx: &Ctx, kind: i8, wanted: &str) -> Result<Arc<Topic>, Refused> {
    if kind != TOPIC {
        let message =
            "only settings of topics can be changed; the listener has a configuration file";
        return Err(Refused::new(INVALID_REQUEST, message));
    }
    metadata::named(ctx, &ctx.topics(), wanted).map_err(|code| Refused::new(code, name(code)))
}

async fn change(ctx: &Ctx, asked: &AlterConfigsResource, only_look: bool) -> Result<(), Refused> {
    let mut changes = Settings::default();
    for config in &asked.configs {
        let value = match config.config_operation {
            OPERATION_SET => config.value.as_ref().map(|value| value.as_str()),
            OPERATION_DELETE => None,
            operation => {
                let message = format!("operation {operation}: settings can be set and deleted");
                return Err(Refused::new(INVALID_CONFIG, message));
            }
        };
        settings::set(&mut changes, config.name.as_str(), value)?;
    }
    let (kind, name) = (asked.resource_type, asked.resource_name.as_str());
    apply(ctx, kind, name, &changes, only_look).await
}

async fn apply(
    ctx: &Ctx,
    kind: i8,
    name: &str,
    changes: &Settings,
    only_look: bool,
) -> Result<(), Refused> {
    let topic = changed(ctx, kind, name)?;
    if only_look || *changes == Settings::default() {
        return Ok(());
    }
    admin::change(ctx, &topic.stream, changes).await
}
