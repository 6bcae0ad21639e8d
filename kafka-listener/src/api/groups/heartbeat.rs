//! Heartbeat: a member lives.

use std::sync::Arc;
use std::time::Duration;

use felix_client::raw::KafkaHeartbeat;
use kafka_protocol::messages::{HeartbeatRequest, HeartbeatResponse};

use super::super::{Ctx, Head};
use super::{call, told};

pub(in super::super) async fn answer(
    ctx: Arc<Ctx>,
    _head: Head,
    request: HeartbeatRequest,
) -> HeartbeatResponse {
    let ask = KafkaHeartbeat {
        group: told(&request.group_id),
        generation: request.generation_id.into(),
        member: told(&request.member_id),
        instance: request.group_instance_id.as_ref().map(told),
    };
    let heard = call(&ctx, ask, Duration::ZERO).await;
    let error = heard.map_or_else(|error| error, |heard| heard.error);
    HeartbeatResponse::default().with_error_code(error)
}
