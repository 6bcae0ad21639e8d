//! LeaveGroup: members go, by their id or by their own name.

use std::sync::Arc;
use std::time::Duration;

use felix_client::raw::{KafkaLeave, Leaving, Left, List};
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{LeaveGroupRequest, LeaveGroupResponse};

use super::super::{Ctx, Head};
use super::{call, said, told};
use crate::wire::codes::{INVALID_REQUEST, NONE};

/// First version that names several members.
const SEVERAL_FROM: i16 = 3;

pub(in super::super) async fn answer(
    ctx: Arc<Ctx>,
    head: Head,
    request: LeaveGroupRequest,
) -> LeaveGroupResponse {
    let members: Vec<Leaving> = if head.version >= SEVERAL_FROM {
        let members = request.members.iter().map(|member| Leaving {
            member: told(&member.member_id),
            instance: member.group_instance_id.as_ref().map(told),
        });
        members.collect()
    } else {
        vec![Leaving {
            member: told(&request.member_id),
            instance: None,
        }]
    };
    let Ok(members) = List::build(members) else {
        return LeaveGroupResponse::default().with_error_code(INVALID_REQUEST);
    };
    let ask = KafkaLeave {
        group: told(&request.group_id),
        members,
    };
    let left = match call(&ctx, ask, Duration::ZERO).await {
        Ok(left) => left,
        Err(error) => return LeaveGroupResponse::default().with_error_code(error),
    };
    if head.version < SEVERAL_FROM {
        let own = left.members.iter().next().map_or(NONE, |left| left.error);
        let error = if left.error == NONE { own } else { left.error };
        return LeaveGroupResponse::default().with_error_code(error);
    }
    LeaveGroupResponse::default()
        .with_error_code(left.error)
        .with_members(left.members.iter().map(|left| shown(&left)).collect())
}

fn shown(left: &Left) -> MemberResponse {
    MemberResponse::default()
        .with_member_id(said(&left.member))
        .with_group_instance_id(left.instance.as_ref().map(said))
        .with_error_code(left.error)
}
