//! FindCoordinator: any listener reaches the coordinator of any group, so it is always this one.

use std::sync::Arc;

use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{BrokerId, FindCoordinatorRequest, FindCoordinatorResponse};
use kafka_protocol::protocol::StrBytes;

use super::{Ctx, Head, text};
use crate::wire::codes::{
    INVALID_GROUP_ID, INVALID_REQUEST, NONE, TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
};

/// Kinds of keys.
const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

/// What is said to those who want transactions. The code is the one after which no client asks again.
pub(super) const NO_TRANSACTIONS: &str =
    "transactions are not served; use an idempotent producer without transactional.id";

pub(super) async fn answer(
    ctx: Arc<Ctx>,
    head: Head,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let (host, port) = &ctx.shared.advertised;
    let host = text(host);
    let port = i32::from(*port);
    let node = BrokerId(ctx.shared.node_id);
    if head.version >= 4 {
        let coordinators = request.coordinator_keys.iter().map(|key| {
            let (error, message) = judge(request.key_type, key);
            let coordinator = Coordinator::default()
                .with_key(key.clone())
                .with_error_code(error)
                .with_error_message(message);
            if error == NONE {
                coordinator
                    .with_node_id(node)
                    .with_host(host.clone())
                    .with_port(port)
            } else {
                coordinator.with_node_id(BrokerId(-1)).with_port(-1)
            }
        });
        return FindCoordinatorResponse::default().with_coordinators(coordinators.collect());
    }
    let (error, message) = judge(request.key_type, &request.key);
    let response = FindCoordinatorResponse::default()
        .with_error_code(error)
        .with_error_message(None);
    if error == NONE {
        return response.with_node_id(node).with_host(host).with_port(port);
    }
    let response = response.with_node_id(BrokerId(-1)).with_port(-1);
    if head.version >= 1 {
        response.with_error_message(message)
    } else {
        response
    }
}

fn judge(kind: i8, key: &str) -> (i16, Option<StrBytes>) {
    match kind {
        GROUP if key.is_empty() => (
            INVALID_GROUP_ID,
            Some(StrBytes::from_static_str("a group has a name")),
        ),
        GROUP => (NONE, None),
        TRANSACTION => (
            TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            Some(StrBytes::from_static_str(NO_TRANSACTIONS)),
        ),
        _ => (
            INVALID_REQUEST,
            Some(StrBytes::from_static_str(
                "there are coordinators of groups only",
            )),
        ),
    }
}
