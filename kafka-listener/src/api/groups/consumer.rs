//! ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848): groups in which the broker shares out.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use felix_client::raw::{
    ConsumerDescribe, ConsumerGroup, ConsumerHeartbeat, ConsumerHeld, ConsumerMember,
    ConsumerTopic, List, StreamName,
};
use kafka_protocol::messages::consumer_group_describe_response::{
    Assignment as Shown, DescribedGroup, Member, TopicPartitions as ShownPartitions,
};
use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions as Held;
use kafka_protocol::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse, GroupId, TopicName,
};
use uuid::Uuid;

use super::super::once::once;
use super::super::{Ctx, Head, metadata, text, utf8};
use super::{call, millis, narrow, said, told};
use crate::topics::{Topic, Topics};
use crate::wire::codes::{
    COORDINATOR_NOT_AVAILABLE, INVALID_REGULAR_EXPRESSION, INVALID_REQUEST, NONE,
    TOPIC_AUTHORIZATION_FAILED,
};

/// What is said of subscriptions by pattern.
const NO_PATTERNS: &str = "subscribe by name: patterns are resolved by classic groups only";

pub(in super::super) async fn heartbeat(
    ctx: Arc<Ctx>,
    head: Head,
    mut request: ConsumerGroupHeartbeatRequest,
) -> ConsumerGroupHeartbeatResponse {
    if is_unnamed(&head, &request) {
        let Some(drawn) = member_id() else {
            return refused(COORDINATOR_NOT_AVAILABLE, None);
        };
        request.member_id = text(&drawn);
    }
    let topics = match &request.subscribed_topic_names {
        Some(names) => {
            ctx.topics_with(names.iter().map(|name| name.as_str()))
                .await
        }
        None => ctx.topics(),
    };
    let ask = match ask(&ctx, &head, &topics, &request) {
        Ok(ask) => ask,
        Err((error, message)) => return refused(error, Some(message)),
    };
    match call(&ctx, ask, Duration::ZERO).await {
        Ok(held) => answer(&ctx, &request, &held).await,
        Err(error) => refused(error, None),
    }
}

/// Whether a member joins without an id. Of the next version on it draws one itself.
fn is_unnamed(head: &Head, request: &ConsumerGroupHeartbeatRequest) -> bool {
    head.version == 0 && request.member_epoch == 0 && request.member_id.is_empty()
}

/// An id for a member, as Kafka makes it; none when the system gives no random bytes.
fn member_id() -> Option<String> {
    let mut bytes = [0; 16];
    // Kafka makes none that a program may take for an option.
    (0..16).find_map(|_| {
        getrandom::fill(&mut bytes).ok()?;
        let id = uuid::Builder::from_random_bytes(bytes).into_uuid();
        let id = URL_SAFE_NO_PAD.encode(id.as_bytes());
        (!id.starts_with('-')).then_some(id)
    })
}

fn refused(error: i16, message: Option<&str>) -> ConsumerGroupHeartbeatResponse {
    ConsumerGroupHeartbeatResponse::default()
        .with_error_code(error)
        .with_error_message(message.map(text))
}

type Wrong = (i16, &'static str);

fn ask(
    ctx: &Ctx,
    head: &Head,
    topics: &Topics,
    request: &ConsumerGroupHeartbeatRequest,
) -> Result<ConsumerHeartbeat, Wrong> {
    let pattern = request.subscribed_topic_regex.as_ref();
    if pattern.is_some_and(|pattern| !pattern.is_empty()) {
        return Err((INVALID_REGULAR_EXPRESSION, NO_PATTERNS));
    }
    let too_long = |_| (INVALID_REQUEST, "the request is too long");
    let streams = request.subscribed_topic_names.as_ref().map(|names| {
        let streams = names
            .iter()
            .filter_map(|name| place(ctx, topics, name.as_str()));
        List::build(streams)
    });
    let held = request
        .topic_partitions
        .as_ref()
        .map(|held| holds(topics, held));
    Ok(ConsumerHeartbeat {
        group: told(&request.group_id),
        member: told(&request.member_id),
        epoch: request.member_epoch.into(),
        instance: request.instance_id.as_ref().map(told),
        rack: request.rack_id.as_ref().map(told),
        rebalance_ms: (request.rebalance_timeout_ms >= 0)
            .then(|| millis(request.rebalance_timeout_ms)),
        streams: streams.transpose().map_err(too_long)?,
        assignor: request.server_assignor.as_ref().map(told),
        held: held.transpose()?,
        client: utf8(&head.client_id).into(),
        host: format!("/{}", ctx.peer.ip()).into(),
    })
}

/// The stream of a topic. One that does not exist yet is named all the same, so that its members get it when it does.
fn place(ctx: &Ctx, topics: &Topics, name: &str) -> Option<StreamName> {
    let (namespace, stream) = match metadata::named(ctx, topics, name) {
        Ok(topic) => (topic.stream.namespace.clone(), topic.stream.stream.clone()),
        Err(_) => {
            let place = ctx.shared.names.place(ctx.who.tenant(), name)?;
            (place.namespace, place.stream)
        }
    };
    Some(StreamName {
        namespace: namespace.as_str().into(),
        stream: stream.as_str().into(),
    })
}

fn holds(topics: &Topics, held: &[Held]) -> Result<List<ConsumerTopic>, Wrong> {
    let too_long = |_| (INVALID_REQUEST, "the request is too long");
    let mut all = Vec::with_capacity(held.len());
    for held in held {
        // A topic that was deleted meanwhile is held by nobody.
        let Some(topic) = topics.with_id(held.topic_id.as_bytes()) else {
            continue;
        };
        let mut shards: Vec<u32> = held
            .partitions
            .iter()
            .map(|one| one.unsigned_abs())
            .collect();
        shards.sort_unstable();
        all.push(ConsumerTopic {
            number: topic.number,
            shards: List::build(shards).map_err(too_long)?,
        });
    }
    List::build(all).map_err(too_long)
}

async fn answer(
    ctx: &Ctx,
    request: &ConsumerGroupHeartbeatRequest,
    held: &ConsumerHeld,
) -> ConsumerGroupHeartbeatResponse {
    if held.error != NONE {
        return refused(
            held.error,
            held.message.as_ref().map(|message| message.as_str()),
        );
    }
    let response = ConsumerGroupHeartbeatResponse::default()
        .with_member_id(Some(request.member_id.clone()))
        .with_member_epoch(narrow(held.epoch))
        .with_heartbeat_interval_ms(i32::try_from(held.heartbeat_ms).unwrap_or(i32::MAX));
    let Some(assigned) = &held.assigned else {
        return response;
    };
    let mut partitions = shares(&ctx.topics(), assigned);
    if partitions.is_none() {
        // The broker may know of a stream before this listener does.
        ctx.shared.names.refresh().await;
        partitions = shares(&ctx.topics(), assigned);
    }
    let Some(partitions) = partitions else {
        // Clients take any code that they do not expect for the end; after this one they say everything again, and are
        // told their share again.
        return refused(
            COORDINATOR_NOT_AVAILABLE,
            Some("a topic is not known here yet"),
        );
    };
    response.with_assignment(Some(
        Assignment::default().with_topic_partitions(partitions),
    ))
}

/// What is assigned, by topics; `None` while one of them is not known.
fn shares(topics: &Topics, assigned: &List<ConsumerTopic>) -> Option<Vec<TopicPartitions>> {
    let shares = assigned.iter().map(|share| {
        let topic = topics.numbered(share.number)?;
        let shards = share.shards.iter();
        let shards = shards.map(|shard| i32::try_from(shard).unwrap_or(i32::MAX));
        Some(
            TopicPartitions::default()
                .with_topic_id(Uuid::from_bytes(topic.id))
                .with_partitions(shards.collect()),
        )
    });
    shares.collect()
}

pub(in super::super) async fn describe(
    ctx: Arc<Ctx>,
    head: Head,
    request: ConsumerGroupDescribeRequest,
) -> ConsumerGroupDescribeResponse {
    let asked = once(request.group_ids, GroupId::clone);
    let described = match List::build(asked.iter().map(|group| told(group))) {
        Ok(groups) => call(&ctx, ConsumerDescribe { groups }, Duration::ZERO).await,
        Err(_) => Err(INVALID_REQUEST),
    };
    let topics = ctx.topics();
    let groups = match described {
        Ok(described) => {
            let groups = described.groups.iter();
            let hidden = |topic: &Topic| !ctx.who.may_see(&topic.stream);
            groups
                .map(|group| {
                    if names_any(&topics, &group, &hidden) {
                        withheld(&group)
                    } else {
                        shown(&head, &topics, &group)
                    }
                })
                .collect()
        }
        Err(error) => {
            let failed = asked.into_iter().map(|group| {
                DescribedGroup::default()
                    .with_group_id(group)
                    .with_error_code(error)
            });
            failed.collect()
        }
    };
    ConsumerGroupDescribeResponse::default().with_groups(groups)
}

/// Whether a member reads, has or is to have one of the topics that are `hidden`.
fn names_any(topics: &Topics, group: &ConsumerGroup, hidden: &dyn Fn(&Topic) -> bool) -> bool {
    let is_hidden = |topic: Option<&Arc<Topic>>| topic.is_some_and(|topic| hidden(topic));
    let shares = |shares: &List<ConsumerTopic>| {
        let mut shares = shares.iter();
        shares.any(|share| is_hidden(topics.numbered(share.number)))
    };
    group.members.iter().any(|member| {
        let mut streams = member.streams.iter();
        streams.any(|stream| {
            is_hidden(topics.of_stream(stream.namespace.as_str(), stream.stream.as_str()))
        }) || shares(&member.assigned)
            || shares(&member.target)
    })
}

/// A group whose members cannot be told of, as Kafka answers it.
fn withheld(group: &ConsumerGroup) -> DescribedGroup {
    DescribedGroup::default()
        .with_group_id(GroupId(said(&group.group)))
        .with_error_code(TOPIC_AUTHORIZATION_FAILED)
        .with_error_message(Some(text("a member reads a topic that may not be seen")))
}

fn shown(head: &Head, topics: &Topics, group: &ConsumerGroup) -> DescribedGroup {
    let members = group.members.iter();
    DescribedGroup::default()
        .with_group_id(GroupId(said(&group.group)))
        .with_error_code(group.error)
        .with_group_state(said(&group.state))
        .with_group_epoch(narrow(group.epoch))
        .with_assignment_epoch(narrow(group.target_epoch))
        .with_assignor_name(said(&group.assignor))
        .with_members(
            members
                .map(|member| shown_member(head, topics, &member))
                .collect(),
        )
}

fn shown_member(head: &Head, topics: &Topics, member: &ConsumerMember) -> Member {
    let names = member.streams.iter().filter_map(|stream| {
        let topic = topics.of_stream(stream.namespace.as_str(), stream.stream.as_str())?;
        Some(TopicName(text(&topic.name)))
    });
    let mut shown = Member::default()
        .with_member_id(said(&member.member))
        .with_instance_id(member.instance.as_ref().map(said))
        .with_rack_id(member.rack.as_ref().map(said))
        .with_member_epoch(narrow(member.epoch))
        .with_client_id(said(&member.client))
        .with_client_host(said(&member.host))
        .with_subscribed_topic_names(names.collect())
        .with_assignment(shown_share(topics, &member.assigned))
        .with_target_assignment(shown_share(topics, &member.target));
    if head.version >= 1 {
        // Not one that came over from a classic group.
        shown.member_type = 1;
    }
    shown
}

fn shown_share(topics: &Topics, share: &List<ConsumerTopic>) -> Shown {
    let partitions = share.iter().filter_map(|share| {
        let topic = topics.numbered(share.number)?;
        let shards = share.shards.iter();
        let shards = shards.map(|shard| i32::try_from(shard).unwrap_or(i32::MAX));
        Some(
            ShownPartitions::default()
                .with_topic_id(Uuid::from_bytes(topic.id))
                .with_topic_name(TopicName(text(&topic.name)))
                .with_partitions(shards.collect()),
        )
    });
    Shown::default().with_topic_partitions(partitions.collect())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::topics::tests::topics;
    use crate::wire::api::Api;

    fn share(number: u64) -> List<ConsumerTopic> {
        let shards = List::build([0, 1]).unwrap();
        List::build([ConsumerTopic { number, shards }]).unwrap()
    }

    #[test]
    fn a_share_is_told_once_all_its_topics_are_known() {
        let topics = topics(&[("default", "orders")]);
        let orders = topics.named("orders").unwrap();
        let told = shares(&topics, &share(orders.number)).unwrap();
        assert_eq!(told[0].topic_id.as_bytes(), &orders.id);
        assert_eq!(told[0].partitions, [0, 1]);
        assert_eq!(shares(&topics, &share(orders.number + 1)), None);
        assert_eq!(shares(&topics, &List::default()), Some(Vec::new()));
    }

    #[test]
    fn a_member_of_the_first_version_is_given_an_id_when_it_joins() {
        let head = |version| Head {
            api: Api::ConsumerGroupHeartbeat,
            version,
            correlation: 1,
            client_id: Bytes::new(),
        };
        let joins = ConsumerGroupHeartbeatRequest::default();
        assert!(is_unnamed(&head(0), &joins));
        assert!(!is_unnamed(&head(1), &joins));
        assert!(!is_unnamed(&head(0), &joins.clone().with_member_epoch(1)));
        assert!(!is_unnamed(&head(0), &joins.with_member_id(text("own"))));
        let (one, other) = (member_id().unwrap(), member_id().unwrap());
        assert_eq!((one.len(), other.len()), (22, 22));
        assert_ne!(one, other);
    }

    #[test]
    fn a_group_is_withheld_for_any_topic_that_is_hidden() {
        let topics = topics(&[("default", "orders"), ("default", "secret")]);
        let number = |name| topics.named(name).unwrap().number;
        let member = |stream: &str, assigned, target| ConsumerMember {
            member: "m".into(),
            instance: None,
            rack: None,
            epoch: 1,
            client: "c".into(),
            host: "/h".into(),
            streams: List::build([StreamName {
                namespace: "default".into(),
                stream: stream.into(),
            }])
            .unwrap(),
            assigned: share(number(assigned)),
            target: share(number(target)),
        };
        let hidden = |topic: &Topic| topic.name == "secret";
        for (stream, assigned, target, is_withheld) in [
            ("orders", "orders", "orders", false),
            ("secret", "orders", "orders", true),
            ("orders", "secret", "orders", true),
            ("orders", "orders", "secret", true),
            ("unheard-of", "orders", "orders", false),
        ] {
            let group = ConsumerGroup {
                group: "g".into(),
                error: NONE,
                state: "Stable".into(),
                epoch: 1,
                target_epoch: 1,
                assignor: "uniform".into(),
                members: List::build([member(stream, assigned, target)]).unwrap(),
            };
            assert_eq!(names_any(&topics, &group, &hidden), is_withheld);
        }
    }
}
