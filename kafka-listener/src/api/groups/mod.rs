//! Groups: every request is passed to the coordinator among the brokers, which any listener reaches.

mod commit;
mod consumer;
mod delete;
mod describe;
mod fetch_offsets;
mod forget;
mod heartbeat;
mod join;
mod leave;
mod list;
mod sync;

pub(super) use self::commit::answer as offset_commit;
pub(super) use self::consumer::{describe as consumer_describe, heartbeat as consumer_heartbeat};
pub(super) use self::delete::answer as delete_groups;
pub(super) use self::describe::answer as describe_groups;
pub(super) use self::fetch_offsets::answer as offset_fetch;
pub(super) use self::forget::answer as offset_delete;
pub(super) use self::heartbeat::answer as heartbeat;
pub(super) use self::join::answer as join_group;
pub(super) use self::leave::answer as leave_group;
pub(super) use self::list::answer as list_groups;
pub(super) use self::sync::answer as sync_group;

use std::time::Duration;

use felix_client::CallFailed;
use felix_client::raw::{Asks, RawError, Text};
use kafka_protocol::protocol::StrBytes;

use super::Ctx;
use crate::wire::codes::{COORDINATOR_NOT_AVAILABLE, GROUP_AUTHORIZATION_FAILED, NOT_COORDINATOR};

/// Sends a call about groups.
///
/// # Errors
/// The code for the call as a whole.
async fn call<A: Asks>(ctx: &Ctx, ask: A, wait: Duration) -> Result<A::Reply, i16> {
    let called = async { ctx.raw().await?.group(ask, wait).await };
    called.await.map_err(|failed| code(&failed))
}

/// A call that failed as a whole, in the words of groups.
fn code(failed: &CallFailed) -> i16 {
    tracing::debug!(%failed, "a call about a group failed");
    let error = failed.raw_error();
    let is_one_of = |all: &[RawError]| all.contains(&error);
    if is_one_of(&[RawError::NotLeader, RawError::LeaderNotAvailable]) {
        NOT_COORDINATOR
    } else if is_one_of(&[
        RawError::RequestTimedOut,
        RawError::StorageError,
        RawError::ThrottlingQuotaExceeded,
    ]) {
        // The member looks for the coordinator again and goes on.
        COORDINATOR_NOT_AVAILABLE
    } else if error == RawError::TopicAuthorizationFailed {
        GROUP_AUTHORIZATION_FAILED
    } else {
        error.number()
    }
}

/// A text of a request in a call.
fn told(text: &StrBytes) -> Text {
    Text::from(text.as_str())
}

/// A text of a reply in an answer.
fn said(text: &Text) -> StrBytes {
    // Copied: the reply shares a larger frame's memory.
    StrBytes::from_string(text.as_str().to_owned())
}

/// Milliseconds of a request.
fn millis(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// A generation or epoch of a reply.
fn narrow(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(-1)
}
