//! JoinGroup: answered when the others have joined, too.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use felix_client::raw::{KafkaJoin, KafkaJoined, List, Protocol};
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::{JoinGroupRequest, JoinGroupResponse};
use kafka_protocol::protocol::StrBytes;

use super::super::{Ctx, Head, text, utf8};
use super::{call, millis, narrow, said, told};
use crate::wire::codes::INVALID_REQUEST;

/// Longer than this no member waits for the others, whatever it says.
const REBALANCE_MAX: Duration = Duration::from_secs(30 * 60);

pub(in super::super) async fn answer(
    ctx: Arc<Ctx>,
    head: Head,
    request: JoinGroupRequest,
) -> JoinGroupResponse {
    let session = millis(request.session_timeout_ms);
    let rebalance = if head.version >= 1 {
        millis(request.rebalance_timeout_ms)
    } else {
        session
    };
    let protocols = request.protocols.iter().map(|protocol| Protocol {
        name: told(&protocol.name),
        metadata: protocol.metadata.clone(),
    });
    let Ok(protocols) = List::build(protocols) else {
        return refused(&head, &request, INVALID_REQUEST);
    };
    let ask = KafkaJoin {
        group: told(&request.group_id),
        session_ms: session,
        rebalance_ms: rebalance,
        member: told(&request.member_id),
        instance: request.group_instance_id.as_ref().map(told),
        protocol_type: told(&request.protocol_type),
        protocols,
        client: utf8(&head.client_id).into(),
        host: format!("/{}", ctx.peer.ip()).into(),
        id_first: head.version >= 4,
        reads_skip: head.version >= 9,
    };
    let wait = Duration::from_millis(rebalance.max(session).into()).min(REBALANCE_MAX);
    match call(&ctx, ask, wait).await {
        Ok(joined) if joined.error != 0 => {
            let mut response = refused(&head, &request, joined.error);
            if !joined.member.as_str().is_empty() {
                // The id to come back with.
                response.member_id = said(&joined.member);
            }
            response
        }
        Ok(joined) => welcome(&head, &joined),
        Err(error) => refused(&head, &request, error),
    }
}

fn refused(head: &Head, request: &JoinGroupRequest, error: i16) -> JoinGroupResponse {
    JoinGroupResponse::default()
        .with_error_code(error)
        .with_generation_id(-1)
        .with_protocol_name(protocol(head, None))
        .with_member_id(request.member_id.clone())
}

/// The name may be null from version 7 on.
fn protocol(head: &Head, name: Option<StrBytes>) -> Option<StrBytes> {
    name.or_else(|| (head.version < 7).then(|| text("")))
}

fn welcome(head: &Head, joined: &KafkaJoined) -> JoinGroupResponse {
    let members = joined.members.iter().map(|member| {
        let mut shown = JoinGroupResponseMember::default()
            .with_member_id(said(&member.member))
            .with_metadata(Bytes::copy_from_slice(&member.metadata));
        if head.version >= 5 {
            shown.group_instance_id = member.instance.as_ref().map(said);
        }
        shown
    });
    let mut response = JoinGroupResponse::default()
        .with_generation_id(narrow(joined.generation))
        .with_protocol_name(protocol(head, joined.protocol.as_ref().map(said)))
        .with_leader(said(&joined.leader))
        .with_member_id(said(&joined.member))
        .with_members(members.collect());
    if head.version >= 7 {
        response.protocol_type = joined.protocol_type.as_ref().map(said);
    }
    if head.version >= 9 {
        response.skip_assignment = joined.skip_assignment;
    }
    response
}
