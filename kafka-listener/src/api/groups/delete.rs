//! DeleteGroups: groups without members, and their positions.

use std::sync::Arc;
use std::time::Duration;

use felix_client::raw::{KafkaDelete, List};
use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::{DeleteGroupsRequest, DeleteGroupsResponse, GroupId};

use super::super::once::once;
use super::super::{Ctx, Head};
use super::{call, told};
use crate::wire::codes::{GROUP_ID_NOT_FOUND, INVALID_REQUEST};

pub(in super::super) async fn answer(
    ctx: Arc<Ctx>,
    _head: Head,
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    let asked = once(request.groups_names, GroupId::clone);
    let deleted = match List::build(asked.iter().map(|group| told(group))) {
        Ok(groups) => call(&ctx, KafkaDelete { groups }, Duration::ZERO).await,
        Err(_) => Err(INVALID_REQUEST),
    };
    let errors: Vec<i16> = match deleted {
        Ok(deleted) => deleted.errors.iter().collect(),
        Err(error) => vec![error; asked.len()],
    };
    let mut errors = errors.into_iter();
    let results = asked.into_iter().map(|group| {
        DeletableGroupResult::default()
            .with_group_id(group)
            .with_error_code(errors.next().unwrap_or(GROUP_ID_NOT_FOUND))
    });
    DeleteGroupsResponse::default().with_results(results.collect())
}
