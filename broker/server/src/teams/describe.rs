//! Groups as an operator sees them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use felix_auth::{Action, Resource};
use felix_engine::membership::LedState;
use felix_engine::teams::{ConsumerState, TeamId, TeamState, TeamView, TopicName};
use felix_model::ShardIndex;
use felix_wire::extension::raw::{
    ConsumerDescribed, ConsumerGroup, ConsumerMember, KafkaDescribed, KafkaGroup, KafkaList,
    KafkaListed, KafkaListing, KafkaMember, RawError, StreamName,
};
use felix_wire::extension::requests::{List, Reply as WireReply, Text};

use super::SHARDS;
use super::answers::{instance, list, text, topics};
use super::calls::{Unanswered, coordinator, may};
use super::lane::Lane;
use crate::conn::calls::Caller;
use crate::conn::stream::StreamState;

fn state_name(state: TeamState) -> &'static str {
    match state {
        TeamState::Classic(LedState::Empty) | TeamState::Consumer(ConsumerState::Empty) => "Empty",
        TeamState::Classic(LedState::Preparing) => "PreparingRebalance",
        TeamState::Classic(LedState::Completing) => "CompletingRebalance",
        TeamState::Classic(LedState::Stable) | TeamState::Consumer(ConsumerState::Stable) => {
            "Stable"
        }
        TeamState::Classic(LedState::Dead) => "Dead",
        TeamState::Consumer(ConsumerState::Reconciling) => "Reconciling",
    }
}

/// Whoever names a group twice is told of it once: an answer is no larger than what there is to tell.
pub(super) async fn describe(
    state: &mut StreamState,
    groups: &List<Text>,
    caller: Caller,
) -> Result<(), Unanswered> {
    let mut described = Vec::with_capacity(groups.len());
    let mut asked = HashSet::new();
    for group in groups.iter() {
        if !asked.insert(group.clone()) {
            described.push(no_group(group, RawError::InvalidRequest));
            continue;
        }
        let found = coordinator(state, &group, Action::GroupConsume).await;
        described.push(match found {
            Ok((team, lane)) => lane.look(|core| classic(&lane, &team, core.view(&team).as_ref())),
            Err(failure) => no_group(group, RawError::of(&failure.into())),
        });
    }
    let groups = list(described);
    caller.answer(Ok(WireReply::KafkaDescribe(KafkaDescribed { groups })));
    Ok(())
}

fn no_group(group: Text, error: RawError) -> KafkaGroup {
    KafkaGroup {
        group,
        error: error.number(),
        state: text("Dead"),
        protocol_type: Text::default(),
        protocol: Text::default(),
        members: List::default(),
    }
}

fn classic(lane: &Lane, team: &TeamId, view: Option<&(&str, TeamView<'_>)>) -> KafkaGroup {
    let group = text(&team.group);
    let Some((protocol_type, TeamView::Classic(led))) = view else {
        return no_group(group, RawError::GroupIdNotFound);
    };
    let members = led.members().map(|(member, assignment)| {
        let (client, host) = lane.about(team, member.who.member.as_str());
        KafkaMember {
            member: text(member.who.member.as_str()),
            instance: instance(&member.who),
            client: client.into(),
            host: host.into(),
            metadata: member.metadata,
            assignment: assignment.clone(),
        }
    });
    KafkaGroup {
        group,
        error: 0,
        state: text(state_name(TeamState::Classic(led.state()))),
        protocol_type: text(protocol_type),
        protocol: text(led.protocol().map_or("", |name| name.as_str())),
        members: list(members),
    }
}

pub(super) async fn describe_consumers(
    state: &mut StreamState,
    groups: &List<Text>,
    caller: Caller,
) -> Result<(), Unanswered> {
    let mut described = Vec::with_capacity(groups.len());
    let mut asked = HashSet::new();
    for group in groups.iter() {
        if !asked.insert(group.clone()) {
            described.push(no_consumers(group, RawError::InvalidRequest));
            continue;
        }
        let found = coordinator(state, &group, Action::GroupConsume).await;
        described.push(match found {
            Ok((team, lane)) => {
                let principal = &state.principal;
                // Of a member that reads more than the caller may, the rest is not named.
                let may_see = |name: &TopicName| {
                    principal.allows(
                        Action::GroupConsume,
                        &Resource::Group {
                            tenant: &team.tenant,
                            namespace: &name.namespace,
                            stream: &name.stream,
                            group: &team.group,
                        },
                    )
                };
                lane.look(|core| consumer(&team, core.view(&team).as_ref(), &may_see))
            }
            Err(failure) => no_consumers(group, RawError::of(&failure.into())),
        });
    }
    let groups = list(described);
    caller.answer(Ok(WireReply::ConsumerDescribe(ConsumerDescribed {
        groups,
    })));
    Ok(())
}

fn no_consumers(group: Text, error: RawError) -> ConsumerGroup {
    ConsumerGroup {
        group,
        error: error.number(),
        state: text("Dead"),
        epoch: 0,
        target_epoch: 0,
        assignor: Text::default(),
        members: List::default(),
    }
}

fn consumer(
    team: &TeamId,
    view: Option<&(&str, TeamView<'_>)>,
    may_see: &dyn Fn(&TopicName) -> bool,
) -> ConsumerGroup {
    let group = text(&team.group);
    let Some((_, TeamView::Consumer(consumer))) = view else {
        return no_consumers(group, RawError::GroupIdNotFound);
    };
    let members = consumer.members().map(|member| ConsumerMember {
        member: text(member.who.member.as_str()),
        instance: instance(&member.who),
        rack: member.rack.map(Text::from),
        epoch: member.epoch,
        client: member.client.into(),
        host: member.host.into(),
        streams: list(
            member
                .reads
                .into_iter()
                .filter(may_see)
                .map(|name| StreamName {
                    namespace: name.namespace.into(),
                    stream: name.stream.into(),
                }),
        ),
        assigned: topics(member.assigned),
        target: topics(member.target),
    });
    ConsumerGroup {
        group,
        error: 0,
        state: text(state_name(TeamState::Consumer(consumer.state()))),
        epoch: consumer.epoch().into(),
        target_epoch: consumer.target_epoch().into(),
        assignor: text(consumer.assignor().name()),
        members: list(members),
    }
}

pub(super) async fn list_groups(
    state: &mut StreamState,
    ask: &KafkaList,
    caller: Caller,
) -> Result<(), Unanswered> {
    let shared = Arc::clone(&state.conn.shared);
    let tenant = state.principal.tenant.as_str().to_owned();
    let asked = |wanted: &List<Text>, is: &str| {
        let mut names = wanted.iter();
        wanted.is_empty() || names.any(|name| name.as_str().eq_ignore_ascii_case(is))
    };
    let mut found: BTreeMap<String, KafkaListing> = BTreeMap::new();
    for shard in 0..SHARDS {
        let lane = match shared.teams.lane_at(&shared, ShardIndex(shard)).await {
            Ok(lane) => lane,
            Err(failure) => return Err((caller, failure)),
        };
        lane.look(|core| {
            for (group, protocol_type, view) in core.teams(&tenant) {
                let kind = match view {
                    TeamView::Classic(_) => "classic",
                    TeamView::Consumer(_) => "consumer",
                };
                let name = state_name(view.state());
                if asked(&ask.states, name) && asked(&ask.types, kind) {
                    let listing = KafkaListing {
                        group: text(group),
                        protocol_type: text(protocol_type),
                        state: text(name),
                        kind: text(kind),
                    };
                    found.insert(group.to_owned(), listing);
                }
            }
        });
    }
    found.retain(|group, _| may(state, group, Action::GroupConsume));
    caller.answer(Ok(WireReply::KafkaList(KafkaListed {
        error: 0,
        groups: list(found.into_values()),
    })));
    Ok(())
}
