//! Consumer groups and scheduled records as the broker serves them: one cell beside each shard that uses them.
//!
//! [`call`] is the one way in, for JSON messages and for the frames of our own extension alike.

mod calls;
pub(crate) mod cell;
mod open;
mod refusal;
mod replies;
pub(crate) mod timers;
mod upkeep;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use felix_auth::{Action, Principal, Resource};
use felix_engine::groups::{Answer, Ask, Ticket, Totals};
use felix_model::{ShardIndex, StreamId};
use felix_wire::error::{Code, Failure};
use serde::Serialize;

pub(crate) use self::calls::calls;
pub(crate) use self::open::close_groups;
pub(crate) use self::refusal::{refused, unsettled};

use self::cell::GroupCell;
use crate::broker::Shared;
use crate::conn::stream::StreamState;
use crate::shards::{Kind, StreamHandle};

/// What hears the answer. Called once, off every lock.
pub(crate) type Reply = Box<dyn FnOnce(Answer) + Send>;

/// A poll that waits. Dropped before it is answered, it is taken back.
#[derive(Debug)]
pub(crate) struct Asked {
    cell: Arc<GroupCell>,
    ticket: Ticket,
    answered: Arc<AtomicBool>,
}

impl Asked {
    /// Whether the answer has left.
    pub(crate) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.is_answered() {
            self.cell.forget(self.ticket);
        }
    }
}

/// Asks the groups of one shard of a stream, once the principal may. What `reply` makes is called with the answer,
/// perhaps before this returns; when this refuses, it is not even made.
///
/// # Errors
/// Nothing was asked: the permission is missing, the shard is not served, or the stream keeps nothing that a group
/// could be durable beside.
pub(crate) async fn call(
    state: &mut StreamState,
    handle: &Arc<StreamHandle>,
    shard: u32,
    ask: Ask,
    reply: impl FnOnce() -> Reply,
) -> Result<(), Failure> {
    permit(&state.principal, &handle.spec().id, &ask)?;
    if let Ask::Schedule { batch, .. } = &ask {
        let id = &handle.spec().id;
        state.writes(id.namespace.as_str(), batch.len() as u64, 1)?;
    }
    let cell = open_cell(&state.conn.shared, handle, shard).await?;
    let waits = matches!(&ask, Ask::Poll(poll) if poll.wait_ms > 0);
    let reply = reply();
    if !waits {
        cell.ask(ask, reply);
        return Ok(());
    }
    let answered = Arc::new(AtomicBool::new(false));
    let heard = Arc::clone(&answered);
    let ticket = cell.ask(
        ask,
        Box::new(move |answer| {
            heard.store(true, Ordering::Release);
            reply(answer);
        }),
    );
    state.asks(Asked {
        cell,
        ticket,
        answered,
    });
    Ok(())
}

async fn open_cell(
    shared: &Arc<Shared>,
    handle: &Arc<StreamHandle>,
    shard: u32,
) -> Result<Arc<GroupCell>, Failure> {
    let spec = handle.spec();
    if shard >= spec.shards {
        let message = format!(
            "shard {shard} is out of range: the stream has {} shards",
            spec.shards
        );
        return Err(Failure::new(Code::InvalidRequest, message));
    }
    if matches!(spec.kind, Kind::Memory { .. }) {
        return Err(Failure::new(
            Code::InvalidRequest,
            "consumer groups and schedules need a durable stream: this one is in memory",
        )
        .with_reason("not_durable"));
    }
    let index = ShardIndex(shard);
    if let Some(groups) = handle.open_cell(index).and_then(|cell| cell.groups()) {
        return Ok(groups);
    }
    shared
        .shards
        .open_groups(handle, index)
        .await
        .map_err(|error| error.failure())
}

/// Whether a principal may ask this.
///
/// # Errors
/// `forbidden`.
fn permit(principal: &Principal, id: &StreamId, ask: &Ask) -> Result<(), Failure> {
    let StreamId {
        tenant,
        namespace,
        stream,
    } = id;
    let (tenant, namespace, stream) = (tenant.as_str(), namespace.as_str(), stream.as_str());
    let on_stream = Resource::Stream {
        tenant,
        namespace,
        stream,
    };
    let (action, group) = match ask {
        Ask::Poll(poll) => (Action::GroupConsume, Some(&poll.group)),
        Ask::Settle(settle) => (Action::GroupConsume, Some(&settle.group)),
        Ask::Letters { group, .. } | Ask::Describe { group } => (Action::GroupConsume, Some(group)),
        Ask::Redrive { group, .. }
        | Ask::Discard { group, .. }
        | Ask::Seek { group, .. }
        | Ask::Delete { group } => (Action::GroupManage, Some(group)),
        Ask::List { .. } => (Action::GroupConsume, None),
        Ask::Schedule { .. } | Ask::Cancel { .. } | Ask::Schedules { .. } => {
            (Action::StreamPublish, None)
        }
    };
    // What waits for its time is as much a record of the stream as what is there.
    let reads = matches!(ask, Ask::Schedules { records: true, .. });
    if reads && !principal.allows(Action::StreamSubscribe, &on_stream) {
        let action = Action::StreamSubscribe;
        let message = format!("the token does not allow {action} on stream:{id}");
        return Err(Failure::new(Code::Forbidden, message));
    }
    let resource = group.map_or(on_stream, |group| Resource::Group {
        tenant,
        namespace,
        stream,
        group: group.as_str(),
    });
    if principal.allows(action, &resource) {
        return Ok(());
    }
    let object = group.map_or_else(
        || format!("stream:{id}"),
        |group| format!("group:{id}/{group}"),
    );
    let message = format!("the token does not allow {action} on {object}");
    Err(Failure::new(Code::Forbidden, message))
}

/// One group in the operator's listing.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ListedGroup {
    stream: String,
    shard: u32,
    group: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    committed: Option<u64>,
    next: u64,
    tail: u64,
    lag: u64,
    in_flight: u64,
    owed: u64,
    dead_letters: u64,
    trimmed: u64,
    waiting_polls: u64,
}

/// Sums over the groups of all open shards.
pub(crate) fn totals(shared: &Shared) -> Totals {
    let mut sum = Totals::default();
    for (_, _, cell) in shared.shards.open_shards() {
        if let Some(groups) = cell.groups() {
            let totals = groups.totals();
            sum.groups += totals.groups;
            sum.lag += totals.lag;
            sum.in_flight += totals.in_flight;
            sum.owed += totals.owed;
            sum.dead_letters += totals.dead_letters;
            sum.waiting += totals.waiting;
            sum.trimmed += totals.trimmed;
            sum.schedules += totals.schedules;
        }
    }
    sum
}

/// Every group of every open shard.
pub(crate) fn listing(shared: &Shared) -> Vec<ListedGroup> {
    let mut listed = Vec::new();
    for (spec, shard, cell) in shared.shards.open_shards() {
        let Some(groups) = cell.groups() else {
            continue;
        };
        for group in groups.descriptions() {
            listed.push(ListedGroup {
                stream: spec.id.to_string(),
                shard,
                group: group.group.to_string(),
                committed: group.committed.map(|offset| offset.0),
                next: group.next.0,
                tail: group.tail.0,
                lag: group.lag,
                in_flight: group.in_flight,
                owed: group.owed,
                dead_letters: group.dead_letters,
                trimmed: group.trimmed,
                waiting_polls: group.waiting,
            });
        }
    }
    listed
}

#[cfg(test)]
mod tests {
    use felix_auth::{Permission, Permissions};
    use felix_engine::groups::ScheduleId;
    use felix_model::TimeMs;

    use super::*;

    #[test]
    fn who_may_only_publish_may_not_read_what_waits_for_its_time() {
        let principal = |grants: &[&str]| {
            let grants = grants
                .iter()
                .map(|grant| grant.parse::<Permission>().unwrap());
            Principal::new(
                "t".parse().unwrap(),
                "p",
                (TimeMs(0), TimeMs(1)),
                Arc::new(Permissions::compile("t", grants)),
            )
        };
        let publisher = principal(&["stream.publish:stream:t/n/s"]);
        let both = principal(&[
            "stream.publish:stream:t/n/s",
            "stream.subscribe:stream:t/n/s",
        ]);
        let id = StreamId::new("t", "n", "s").unwrap();
        let list = |records| Ask::Schedules {
            after: None,
            limit: 1,
            records,
        };
        let cancel = Ask::Cancel {
            id: ScheduleId::new(b"x").unwrap(),
        };
        assert!(permit(&publisher, &id, &list(false)).is_ok());
        assert!(permit(&publisher, &id, &cancel).is_ok());
        let refused = permit(&publisher, &id, &list(true)).unwrap_err();
        assert_eq!(refused.code(), Some(Code::Forbidden));
        assert!(permit(&both, &id, &list(true)).is_ok());
    }
}
