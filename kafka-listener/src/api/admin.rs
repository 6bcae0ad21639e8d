//! Changes to topics, made at the control plane in the name of who asks.

use felix_controlplane_client::{Api as ControlPlane, CallFailed};
use felix_meta::{Cleanup, Retention, StreamPatch, StreamRecord, StreamSpec, Timestamps};
use felix_model::Routing;

use super::Ctx;
use crate::limits::PARTITIONS_DEFAULT;
use crate::topics::Place;
use crate::wire::codes::{
    CLUSTER_AUTHORIZATION_FAILED, INVALID_CONFIG, POLICY_VIOLATION, REQUEST_TIMED_OUT,
    THROTTLING_QUOTA_EXCEEDED, TOPIC_ALREADY_EXISTS, TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
};

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) code: i16,
    pub(super) message: String,
}

impl Refused {
    pub(super) fn new(code: i16, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

/// What a topic is made with; what is left out takes its default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NewTopic {
    pub(super) partitions: Option<u32>,
    pub(super) settings: Settings,
}

/// Settings of a topic that have an effect; `None` leaves one as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) cleanup: Option<Cleanup>,
    pub(super) timestamps: Option<Timestamps>,
    /// Seconds, or for ever.
    pub(super) max_age: Option<Option<u64>>,
    /// Bytes, or without bound.
    pub(super) max_size: Option<Option<u64>>,
    pub(super) max_record_bytes: Option<u32>,
}

impl Settings {
    /// The retention that a stream has with these settings.
    fn retention(&self, before: Retention) -> Retention {
        Retention {
            max_age_seconds: self.max_age.unwrap_or(before.max_age_seconds),
            max_size_bytes: self.max_size.unwrap_or(before.max_size_bytes),
        }
    }
}

/// Makes a topic. Native publishes choose partitions as Kafka clients do.
///
/// # Errors
/// [`Refused`] with the code and the words of the control plane.
pub(super) async fn create(
    ctx: &Ctx,
    place: &Place,
    topic: &NewTopic,
) -> Result<StreamRecord, Refused> {
    let mut spec = StreamSpec::new(place.stream.clone());
    spec.shards = topic.partitions.unwrap_or(PARTITIONS_DEFAULT);
    spec.routing = Some(Routing::Murmur2);
    spec.retention = topic.settings.retention(Retention::default());
    spec.cleanup = topic.settings.cleanup;
    spec.timestamps = topic.settings.timestamps;
    spec.max_record_bytes = topic.settings.max_record_bytes;
    let made = control(ctx)?
        .create_stream(ctx.who.tenant(), &place.namespace, &spec)
        .await
        .map_err(|failed| refusal(&failed))?;
    ctx.shared.names.refresh().await;
    if made.created {
        Ok(made.item)
    } else {
        // It was there, just as asked for.
        Err(Refused::new(TOPIC_ALREADY_EXISTS, "the topic exists"))
    }
}

/// Deletes a topic and its records.
///
/// # Errors
/// [`Refused`] with the code and the words of the control plane.
pub(super) async fn delete(ctx: &Ctx, stream: &StreamRecord) -> Result<(), Refused> {
    control(ctx)?
        .delete_stream(ctx.who.tenant(), &stream.namespace, &stream.stream)
        .await
        .map_err(|failed| refusal(&failed))?;
    ctx.shared.names.refresh().await;
    Ok(())
}

/// Changes settings of a topic.
///
/// # Errors
/// [`Refused`] with the code and the words of the control plane.
pub(super) async fn change(
    ctx: &Ctx,
    stream: &StreamRecord,
    settings: &Settings,
) -> Result<(), Refused> {
    let patch = StreamPatch {
        retention: Some(settings.retention(stream.retention)),
        cleanup: settings.cleanup,
        timestamps: settings.timestamps,
        max_record_bytes: settings.max_record_bytes,
        ..StreamPatch::default()
    };
    control(ctx)?
        .update_stream(ctx.who.tenant(), &stream.namespace, &stream.stream, &patch)
        .await
        .map_err(|failed| refusal(&failed))?;
    ctx.shared.names.refresh().await;
    Ok(())
}

/// Calls in the name of who asks.
///
/// # Errors
/// When his credential is good for brokers only.
pub(super) fn control(ctx: &Ctx) -> Result<&ControlPlane, Refused> {
    ctx.who.control().ok_or_else(|| {
        Refused::new(
            CLUSTER_AUTHORIZATION_FAILED,
            "the token of this login is good for brokers only; log in with a service account's key or an identity \
             provider's token to change topics",
        )
    })
}

pub(super) fn refusal(failed: &CallFailed) -> Refused {
    let code = match failed {
        CallFailed::Refused { status, code, .. } => match (*status, code.as_str()) {
            (401, _) => CLUSTER_AUTHORIZATION_FAILED,
            (403, _) => TOPIC_AUTHORIZATION_FAILED,
            (404, _) => UNKNOWN_TOPIC_OR_PARTITION,
            (409, _) => TOPIC_ALREADY_EXISTS,
            (429, _) => THROTTLING_QUOTA_EXCEEDED,
            (400 | 422, _) => INVALID_CONFIG,
            (500.., _) => REQUEST_TIMED_OUT,
            _ => POLICY_VIOLATION,
        },
        CallFailed::Unreachable { .. }
        | CallFailed::NoAnswer { .. }
        | CallFailed::Malformed { .. }
        | CallFailed::TokenFile { .. } => REQUEST_TIMED_OUT,
    };
    Refused::new(code, failed.to_string())
}
