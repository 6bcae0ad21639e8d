//! ListGroups: every group of the tenant that may be seen.

use std::sync::Arc;
use std::time::Duration;

use felix_client::raw::{KafkaList, List};
use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{GroupId, ListGroupsRequest, ListGroupsResponse};

use super::super::{Ctx, Head};
use super::{call, said, told};
use crate::wire::codes::INVALID_REQUEST;

pub(in super::super) async fn answer(
    ctx: Arc<Ctx>,
    head: Head,
    request: ListGroupsRequest,
) -> ListGroupsResponse {
    let refused = |error| ListGroupsResponse::default().with_error_code(error);
    let states = List::build(request.states_filter.iter().map(told));
    let types = List::build(request.types_filter.iter().map(told));
    let (Ok(states), Ok(types)) = (states, types) else {
        return refused(INVALID_REQUEST);
    };
    let listed = match call(&ctx, KafkaList { states, types }, Duration::ZERO).await {
        Ok(listed) => listed,
        Err(error) => return refused(error),
    };
    let groups = listed.groups.iter().map(|group| {
        let mut shown = ListedGroup::default()
            .with_group_id(GroupId(said(&group.group)))
            .with_protocol_type(said(&group.protocol_type));
        if head.version >= 4 {
            shown.group_state = said(&group.state);
        }
        if head.version >= 5 {
            shown.group_type = said(&group.kind);
        }
        shown
    });
    ListGroupsResponse::default()
        .with_error_code(listed.error)
        .with_groups(groups.collect())
}
