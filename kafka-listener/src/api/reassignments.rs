//! ListPartitionReassignments: none is ever under way that a client could see.

use std::sync::Arc;

use kafka_protocol::messages::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};

use super::{Ctx, Head};

pub(super) async fn answer(
    _ctx: Arc<Ctx>,
    _head: Head,
    _request: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    ListPartitionReassignmentsResponse::default().with_error_message(None)
}
