//! DescribeGroups: members of groups and what each has.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use felix_client::raw::{KafkaDescribe, KafkaGroup, List};
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::{DescribeGroupsRequest, DescribeGroupsResponse, GroupId};

use super::super::once::once;
use super::super::{Ctx, Head, text};
use super::{call, said, told};
use crate::wire::codes::{GROUP_ID_NOT_FOUND, INVALID_REQUEST, NONE};

/// First version that says that a group is not there; before, it is `Dead`.
const NOT_FOUND_FROM: i16 = 6;

/// The groups of this kind share out among themselves what they read.
const CONSUMERS: &str = "consumer";

pub(in super::super) async fn answer(
    ctx: Arc<Ctx>,
    head: Head,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    let asked = once(request.groups, GroupId::clone);
    let described = match List::build(asked.iter().map(|group| told(group))) {
        Ok(groups) => call(&ctx, KafkaDescribe { groups }, Duration::ZERO).await,
        Err(_) => Err(INVALID_REQUEST),
    };
    let groups = match described {
        Ok(described) => described
            .groups
            .iter()
            .map(|group| shown(&head, &group))
            .collect(),
        Err(error) => {
            let failed = asked.into_iter().map(|group| {
                DescribedGroup::default()
                    .with_group_id(group)
                    .with_error_code(error)
            });
            failed.collect()
        }
    };
    DescribeGroupsResponse::default().with_groups(groups)
}

fn shown(head: &Head, group: &KafkaGroup) -> DescribedGroup {
    let id = GroupId(said(&group.group));
    if group.error == GROUP_ID_NOT_FOUND {
        let dead = DescribedGroup::default()
            .with_group_id(id)
            .with_group_state(text("Dead"));
        return if head.version >= NOT_FOUND_FROM {
            dead.with_error_code(GROUP_ID_NOT_FOUND)
                .with_error_message(Some(text("there is no such group")))
        } else {
            dead
        };
    }
    let members = group.members.iter().map(|member| {
        let mut shown = DescribedGroupMember::default()
            .with_member_id(said(&member.member))
            .with_client_id(said(&member.client))
            .with_client_host(said(&member.host))
            .with_member_metadata(Bytes::copy_from_slice(&member.metadata))
            .with_member_assignment(Bytes::copy_from_slice(&member.assignment));
        if head.version >= 4 {
            shown.group_instance_id = member.instance.as_ref().map(said);
        }
        shown
    });
    let kind = group.protocol_type.as_str();
    let kind = if kind.is_empty() && group.error == NONE && group.members.is_empty() {
        // A group that only ever committed positions is one of consumers.
        text(CONSUMERS)
    } else {
        said(&group.protocol_type)
    };
    DescribedGroup::default()
        .with_group_id(id)
        .with_error_code(group.error)
        .with_group_state(said(&group.state))
        .with_protocol_type(kind)
        .with_protocol_data(said(&group.protocol))
        .with_members(members.collect())
}
