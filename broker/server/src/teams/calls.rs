//! The calls of groups: admitted, translated, and handed to the coordinator of their group.

use std::sync::Arc;

use felix_auth::{Action, Resource};
use felix_engine::membership::{JoinLed, LedInput, MembershipRefused, Protocol, SyncLed, Who};
use felix_engine::teams::{Assignor, Beat, NotHeld, Partition, TeamId, Topic, TopicName};
use felix_wire::error::{Code, Failure};
use felix_wire::extension::raw::{ConsumerHeartbeat, KafkaJoin, KafkaSync, RawError};
use felix_wire::extension::requests::{Ask, List, Reply as WireReply, Text};

use super::answers::{Parked, held, not_held, refuse_join};
use super::lane::Lane;
use super::{OPTIONS, describe, number, offsets};
use crate::conn::calls::{Caller, Turn};
use crate::conn::stream::StreamState;
use crate::raw::{failure, own_tenant};

/// Longest name of a group, a member or an instance, as Kafka has them in its logs.
const NAME_BYTES_MAX: usize = 255;

/// Most streams that one member of a KIP-848 group reads. All that a member said is written again with every step it takes.
const READS_MAX: usize = 1_000;

/// Groups that one stream of a client was seen to have a right to.
const ALLOWED_MAX: usize = 1_024;

/// Carries out the calls of one turn, in their order.
pub(crate) async fn calls(state: &mut StreamState, turn: Turn) {
    let tenant = own_tenant(state, turn.names.tenant());
    for (ask, caller) in turn.asks {
        match &tenant {
            Ok(()) => {
                if let Err((caller, failure)) = one(state, ask, caller).await {
                    caller.fail(failure);
                }
            }
            Err(failure) => caller.fail(failure.clone()),
        }
    }
}

pub(super) type Unanswered = (Caller, Failure);

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "calls of other families are never handed over here"
)]
async fn one(state: &mut StreamState, ask: Ask, caller: Caller) -> Result<(), Unanswered> {
    match ask {
        Ask::KafkaJoin(ask) => join(state, &ask, caller).await,
        Ask::KafkaSync(ask) => sync(state, &ask, caller).await,
        Ask::KafkaHeartbeat(ask) => {
            let who = who(&ask.member, ask.instance.as_ref());
            let generation = generation(ask.generation);
            led(state, &ask.group, Parked::Beat, caller, |ticket| {
                LedInput::Beat {
                    ticket,
                    who,
                    generation,
                }
            })
            .await
        }
        Ask::KafkaLeave(ask) => {
            let members = ask.members.iter();
            let members = members.map(|it| who(&it.member, it.instance.as_ref()));
            let members = members.collect();
            led(state, &ask.group, Parked::Leave, caller, |ticket| {
                LedInput::Leave { ticket, members }
            })
            .await
        }
        Ask::KafkaCommit(ask) => offsets::commit(state, &ask, caller).await,
        Ask::KafkaOffsets(ask) => offsets::fetch(state, &ask, caller).await,
        Ask::KafkaForget(ask) => offsets::forget(state, &ask, caller).await,
        Ask::KafkaDelete(ask) => offsets::delete(state, &ask.groups, caller).await,
        Ask::KafkaDescribe(ask) => describe::describe(state, &ask.groups, caller).await,
        Ask::KafkaList(ask) => describe::list_groups(state, &ask, caller).await,
        Ask::ConsumerHeartbeat(ask) => heartbeat(state, ask, caller).await,
        Ask::ConsumerDescribe(ask) => {
            describe::describe_consumers(state, &ask.groups, caller).await
        }
        _ => Err((
            caller,
            Failure::new(Code::Internal, "the call is another family's"),
        )),
    }
}

fn who(member: &Text, instance: Option<&Text>) -> Who {
    Who {
        member: member.as_str().into(),
        instance: instance.map(|name| name.as_str().into()),
    }
}

/// A generation that no group is ever in stands for one that cannot be.
fn generation(asked: i64) -> u32 {
    u32::try_from(asked).unwrap_or(u32::MAX)
}

/// The coordinator of a group, once the caller may act on the group.
pub(super) async fn coordinator(
    state: &mut StreamState,
    group: &Text,
    action: Action,
) -> Result<(TeamId, Arc<Lane>), Failure> {
    let group = group.as_str();
    if group.is_empty() || group.len() > NAME_BYTES_MAX {
        return Err(failure(
            Code::InvalidRequest,
            RawError::InvalidGroupId,
            format!("a group's name has 1 to {NAME_BYTES_MAX} bytes"),
        ));
    }
    if !may(state, group, action) {
        return Err(failure(
            Code::Forbidden,
            RawError::GroupAuthorizationFailed,
            format!(
                "the token does not allow {} of group {group} on any stream",
                action.name()
            ),
        ));
    }
    let team = TeamId {
        tenant: state.principal.tenant.as_str().to_owned(),
        group: group.to_owned(),
    };
    let shared = &state.conn.shared;
    let lane = shared.teams.lane(shared, &team).await;
    let lane = lane.map_err(|error| {
        let why = error.to_string();
        failure(
            Code::ShardUnavailable,
            RawError::CoordinatorNotAvailable,
            why,
        )
    })?;
    Ok((team, lane))
}

/// Whether the caller may act on a group. A Kafka group is not one stream's; who may act on a group of this name on some
/// stream of the tenant may act on it.
pub(super) fn may(state: &mut StreamState, group: &str, action: Action) -> bool {
    let key = (action, group.to_owned());
    if state.teams.contains(&key) {
        return true;
    }
    let catalogue = state.conn.shared.names.catalogue();
    let tenant = state.principal.tenant.as_str();
    let Some(entry) = catalogue.tenant(tenant) else {
        return false;
    };
    let allowed = entry.namespaces.iter().any(|(namespace, it)| {
        it.streams.keys().any(|stream| {
            state.principal.allows(
                action,
                &Resource::Group {
                    tenant,
                    namespace: namespace.as_ref(),
                    stream: stream.as_ref(),
                    group,
                },
            )
        })
    });
    if allowed {
        if state.teams.len() >= ALLOWED_MAX {
            state.teams.clear();
        }
        state.teams.insert(key);
    }
    allowed
}

async fn led(
    state: &mut StreamState,
    group: &Text,
    parked: Parked,
    caller: Caller,
    input: impl FnOnce(felix_engine::Ticket) -> LedInput,
) -> Result<(), Unanswered> {
    let found = coordinator(state, group, Action::GroupConsume).await;
    let (team, lane) = match found {
        Ok(found) => found,
        Err(failure) => return Err((caller, failure)),
    };
    lane.park(parked, caller, |now, core, ticket, effects| {
        core.led(now, &team, input(ticket), effects);
    });
    Ok(())
}

async fn join(state: &mut StreamState, ask: &KafkaJoin, caller: Caller) -> Result<(), Unanswered> {
    let long = [Some(&ask.member), ask.instance.as_ref()];
    let long = long.into_iter().flatten();
    if long
        .map(Text::bytes)
        .any(|name| name.len() > NAME_BYTES_MAX)
    {
        let joined = refuse_join(RawError::InvalidRequest, ask.member.clone());
        caller.answer(Ok(WireReply::KafkaJoin(joined)));
        return Ok(());
    }
    let fresh = match fresh_member(&ask.client) {
        Ok(fresh) => fresh,
        Err(failure) => return Err((caller, failure)),
    };
    let protocols = ask.protocols.iter().map(|protocol| Protocol {
        name: protocol.name.as_str().into(),
        // A copy, so that the frame it came in is not kept.
        metadata: bytes::Bytes::copy_from_slice(&protocol.metadata),
    });
    let join = JoinLed {
        who: who(&ask.member, ask.instance.as_ref()),
        fresh: fresh.into(),
        id_required: ask.id_first,
        session_ms: ask.session_ms.into(),
        rebalance_ms: ask.rebalance_ms.into(),
        protocol_type: ask.protocol_type.as_str().into(),
        protocols: protocols.collect(),
    };
    let parked = Parked::Join {
        team: TeamId {
            tenant: state.principal.tenant.as_str().to_owned(),
            group: ask.group.as_str().to_owned(),
        },
        about: (ask.client.to_string(), ask.host.to_string()),
    };
    led(state, &ask.group, parked, caller, |ticket| LedInput::Join {
        ticket,
        join,
    })
    .await
}

/// An id for a new member: its program's name, cut, and a number nobody else has.
fn fresh_member(client: &Text) -> Result<String, Failure> {
    let mut random = [0; 16];
    getrandom::fill(&mut random)
        .map_err(|error| Failure::new(Code::Internal, error.to_string()))?;
    let name: String = client.as_str().chars().take(64).collect();
    Ok(format!("{name}-{:032x}", u128::from_be_bytes(random)))
}

async fn sync(state: &mut StreamState, ask: &KafkaSync, caller: Caller) -> Result<(), Unanswered> {
    let shares = ask.shares.iter().map(|share| {
        let assignment = bytes::Bytes::copy_from_slice(&share.assignment);
        (share.member.as_str().into(), assignment)
    });
    let name = |name: &Text| name.as_str().into();
    let sync = SyncLed {
        who: who(&ask.member, ask.instance.as_ref()),
        generation: generation(ask.generation),
        protocol_type: ask.protocol_type.as_ref().map(name),
        protocol: ask.protocol.as_ref().map(name),
        assignments: shares.collect(),
    };
    led(state, &ask.group, Parked::Sync, caller, |ticket| {
        LedInput::Sync { ticket, sync }
    })
    .await
}

/// Why a member is not one that can be remembered, if so.
fn too_much(ask: &ConsumerHeartbeat) -> Option<String> {
    let names = [Some(&ask.member), ask.instance.as_ref(), ask.rack.as_ref()];
    if names
        .into_iter()
        .flatten()
        .any(|name| name.bytes().len() > NAME_BYTES_MAX)
    {
        return Some(format!(
            "the name of a member, an instance or a rack has at most {NAME_BYTES_MAX} bytes"
        ));
    }
    let reads = ask.streams.as_ref().map_or(0, List::len);
    (reads > READS_MAX)
        .then(|| format!("a member reads at most {READS_MAX} streams, this one names {reads}"))
}

/// What a program calls itself is for people who look: of more than they read, there is the beginning.
fn cut(text: &Text) -> String {
    let text = text.as_str();
    let end = text.floor_char_boundary(NAME_BYTES_MAX);
    text.get(..end).unwrap_or_default().to_owned()
}

async fn heartbeat(
    state: &mut StreamState,
    ask: ConsumerHeartbeat,
    caller: Caller,
) -> Result<(), Unanswered> {
    let (team, lane) = match coordinator(state, &ask.group, Action::GroupConsume).await {
        Ok(found) => found,
        Err(failure) => return Err((caller, failure)),
    };
    let reply = |held| WireReply::ConsumerHeartbeat(held);
    if let Some(why) = too_much(&ask) {
        caller.answer(Ok(reply(not_held(RawError::InvalidRequest, &why))));
        return Ok(());
    }
    let assignor = match &ask.assignor {
        None => None,
        Some(name) => match Assignor::from_name(name.as_str()) {
            Some(assignor) => Some(assignor),
            None => {
                let why = "the broker shares out by `uniform` and `range`";
                caller.answer(Ok(reply(not_held(RawError::UnsupportedAssignor, why))));
                return Ok(());
            }
        },
    };
    let beat = Beat {
        who: who(&ask.member, ask.instance.as_ref()),
        epoch: ask.epoch,
        rack: ask.rack.as_ref().map(ToString::to_string),
        rebalance_ms: ask.rebalance_ms.map(u64::from),
        reads: ask.streams.as_ref().map(|names| {
            let names = names.iter().map(|name| TopicName {
                namespace: name.namespace.to_string(),
                stream: name.stream.to_string(),
            });
            names.collect()
        }),
        assignor,
        held: ask.held.as_ref().map(|held| {
            let held = held.iter().flat_map(|topic| {
                let number = topic.number;
                let shards = topic.shards.iter();
                shards.map(move |shard| Partition { number, shard })
            });
            held.collect()
        }),
        client: cut(&ask.client),
        host: cut(&ask.host),
    };
    // Of what the caller may not read, nothing is given out.
    let catalogue = state.conn.shared.names.catalogue();
    let principal = Arc::clone(&state.principal);
    let tenant = team.tenant.clone();
    let find = move |name: &TopicName| {
        let record = catalogue.stream(&tenant, &name.namespace, &name.stream)?;
        let resource = Resource::Stream {
            tenant: &tenant,
            namespace: &name.namespace,
            stream: &name.stream,
        };
        principal
            .allows(Action::StreamSubscribe, &resource)
            .then_some(Topic {
                number: number(record),
                width: record.shards,
            })
    };
    let told = |heard: Result<_, NotHeld>| reply(held(heard, OPTIONS.consumer.heartbeat_ms));
    let failed = told(Err(MembershipRefused::NotCoordinator.into()));
    lane.beat(caller, failed, |now, core, effects| {
        told(core.beat(now, &team, beat, &find, effects))
    });
    Ok(())
}
