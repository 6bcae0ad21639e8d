//! DescribeGroups: members of groups and what each has.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use felix_client::raw::{KafkaDescribe, KafkaGroup, KafkaMember, List};
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::{DescribeGroupsRequest, DescribeGroupsResponse, GroupId};

use super::super::once::once;
use super::super::{Ctx, Head, metadata, text, utf8};
use super::{call, said, told};
use crate::wire::codes::{GROUP_ID_NOT_FOUND, INVALID_REQUEST, NONE, TOPIC_AUTHORIZATION_FAILED};
use crate::wire::read::{Malformed, Reader};

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
    let topics = ctx.topics();
    let is_hidden =
        |name: &str| metadata::named(&ctx, &topics, name).err() == Some(TOPIC_AUTHORIZATION_FAILED);
    let groups = match described {
        Ok(described) => described
            .groups
            .iter()
            .map(|group| shown(&head, &group, &is_hidden))
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

/// Whether a member of a group of consumers reads or has a topic that is hidden. What is in another form names none.
fn names_any(member: &KafkaMember, is_hidden: &dyn Fn(&str) -> bool) -> bool {
    let reads = topics_of(&member.metadata, |_| Ok(()));
    let has = topics_of(&member.assignment, |reader| {
        let partitions = reader.nullable_count(false, 4)?.unwrap_or(0);
        reader.take(4 * partitions).map(drop)
    });
    let mut names = reads.into_iter().chain(has).flatten();
    names.any(|name| is_hidden(utf8(&name)))
}

/// The topics at the beginning of what members of consumers' groups tell each other, each with something behind its name.
fn topics_of(
    told: &[u8],
    behind: fn(&mut Reader) -> Result<(), Malformed>,
) -> Result<Vec<Bytes>, Malformed> {
    let mut reader = Reader::new(Bytes::copy_from_slice(told));
    reader.i16()?;
    let mut topics = Vec::new();
    for _ in 0..reader.nullable_count(false, 2)?.unwrap_or(0) {
        topics.push(reader.text(false)?);
        behind(&mut reader)?;
    }
    Ok(topics)
}

fn shown(head: &Head, group: &KafkaGroup, is_hidden: &dyn Fn(&str) -> bool) -> DescribedGroup {
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
            .with_client_host(said(&member.host));
        if group.protocol_type.as_str() != CONSUMERS || !names_any(&member, is_hidden) {
            shown.member_metadata = Bytes::copy_from_slice(&member.metadata);
            shown.member_assignment = Bytes::copy_from_slice(&member.assignment);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::api::Api;

    fn described(metadata: &'static [u8], assignment: &'static [u8]) -> DescribedGroupMember {
        let member = KafkaMember {
            member: "m".into(),
            instance: None,
            client: "c".into(),
            host: "/h".into(),
            metadata: Bytes::from_static(metadata),
            assignment: Bytes::from_static(assignment),
        };
        let group = KafkaGroup {
            group: "g".into(),
            error: NONE,
            state: "Stable".into(),
            protocol_type: CONSUMERS.into(),
            protocol: "range".into(),
            members: List::build([member]).unwrap(),
        };
        let head = Head {
            api: Api::DescribeGroups,
            version: 5,
            correlation: 1,
            client_id: Bytes::new(),
        };
        shown(&head, &group, &|name| name == "secret").members[0].clone()
    }

    #[test]
    fn what_a_member_has_of_a_hidden_topic_is_not_shown() {
        const READS: &[u8] = b"\0\x01\0\0\0\x01\0\x06orders\xff\xff\xff\xff";
        const READS_BOTH: &[u8] = b"\0\x01\0\0\0\x02\0\x06orders\0\x06secret\xff\xff\xff\xff";
        const HAS: &[u8] = b"\0\x01\0\0\0\x01\0\x06orders\0\0\0\x01\0\0\0\0\xff\xff\xff\xff";
        const HAS_BOTH: &[u8] =
            b"\0\x01\0\0\0\x02\0\x06orders\0\0\0\x01\0\0\0\0\0\x06secret\0\0\0\0";
        for (metadata, assignment, is_shown) in [
            (READS, HAS, true),
            (READS_BOTH, HAS, false),
            (READS, HAS_BOTH, false),
            (READS, b"", true),
            (b"own form", b"x", true),
        ] {
            let member = described(metadata, assignment);
            let expected = if is_shown {
                (metadata, assignment)
            } else {
                (&b""[..], &b""[..])
            };
            assert_eq!(
                (&member.member_metadata[..], &member.member_assignment[..]),
                expected
            );
        }
    }
}
