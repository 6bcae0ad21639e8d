//! SyncGroup: hands round what the leader shared out.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use felix_client::raw::{KafkaSync, List, Share};
use kafka_protocol::messages::{SyncGroupRequest, SyncGroupResponse};

use super::super::{Ctx, Head};
use super::{call, said, told};
use crate::wire::codes::INVALID_REQUEST;

/// The coordinator gives up on a leader that does not share out after the group's own time.
const WAIT: Duration = Duration::from_secs(30 * 60);

pub(in super::super) async fn answer(
    ctx: Arc<Ctx>,
    head: Head,
    request: SyncGroupRequest,
) -> SyncGroupResponse {
    let shares = request.assignments.iter().map(|share| Share {
        member: told(&share.member_id),
        assignment: share.assignment.clone(),
    });
    let refused = |error| SyncGroupResponse::default().with_error_code(error);
    let Ok(shares) = List::build(shares) else {
        return refused(INVALID_REQUEST);
    };
    let ask = KafkaSync {
        group: told(&request.group_id),
        generation: request.generation_id.into(),
        member: told(&request.member_id),
        instance: request.group_instance_id.as_ref().map(told),
        protocol_type: request.protocol_type.as_ref().map(told),
        protocol: request.protocol_name.as_ref().map(told),
        shares,
    };
    match call(&ctx, ask, WAIT).await {
        Ok(synced) if synced.error != 0 => refused(synced.error),
        Ok(synced) => {
            let mut response = SyncGroupResponse::default()
                .with_assignment(Bytes::copy_from_slice(&synced.assignment));
            if head.version >= 5 {
                response.protocol_type = synced.protocol_type.as_ref().map(said);
                response.protocol_name = synced.protocol.as_ref().map(said);
            }
            response
        }
        Err(error) => refused(error),
    }
}
