//! Groups and schedules through the `requests` extension: from the frames' fields to what is asked of a shard's groups,
//! and back.

use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use felix_engine::groups::{
    Ask, GroupName, Holder, Item, Poll, ScheduleId, SeekTo, Settle, Verb, Which,
};
use felix_model::{BatchBuilder, BatchOptions, Offset, ShardIndex, TimeMs};
use felix_wire::error::{Code, Failure, Retry};
use felix_wire::extension::Refused;
use felix_wire::extension::requests::{
    Ask as Wire, Claim, Header, List, Reply, ScheduleAdd, ScheduleCancelled, Text,
};
use felix_wire::limits::PAYLOAD_BYTES_MAX;
use felix_wire::message::Start;

use super::replies::{Form, Moves, Settles, reply};
use super::{call, permit};
use crate::conn::calls::{Caller, Turn};
use crate::conn::groups::holder;
use crate::conn::stream::StreamState;
use crate::shards::cell::now;
use crate::shards::{StreamHandle, StreamSpec};

/// The largest record that fits a frame beside its fields.
const RECORD_BYTES_MAX: usize = PAYLOAD_BYTES_MAX - 64 * 1024;

/// Ids that the broker makes have this many random bytes.
const ID_BYTES: usize = 16;

/// One call as it is asked, and in which form it is answered.
struct Question {
    shard: u32,
    ask: Ask,
    form: Form,
}

/// Carries out calls on the groups and schedules of one stream.
pub(crate) async fn calls(state: &mut StreamState, turn: Turn) {
    let Turn { names, asks } = turn;
    let handle = match state.name(names.tenant(), names.namespace(), names.stream()) {
        Ok(id) => state.conn.shared.stream(&id, &state.principal).await,
        Err(failure) => Err(failure),
    };
    let handle = match handle {
        Ok(handle) => handle,
        Err(failure) => {
            for (_, caller) in asks {
                caller.fail(failure.clone());
            }
            return;
        }
    };
    for (ask, caller) in asks {
        one(state, &handle, ask, caller).await;
    }
}

async fn one(state: &mut StreamState, handle: &Arc<StreamHandle>, ask: Wire, caller: Caller) {
    if let Wire::ScheduleCancel(cancel) = &ask
        && cancel.shard.is_none()
    {
        return cancel_anywhere(state, handle, &cancel.id, caller).await;
    }
    let question = match read(state, &handle.spec(), ask) {
        Ok(question) => question,
        Err(failure) => return caller.fail(failure),
    };
    let Question { shard, ask, form } = question;
    let mut caller = Some(caller);
    let asked = call(state, handle, shard, ask, || {
        let caller = caller.take();
        Box::new(move |answer| {
            if let Some(caller) = caller {
                caller.answer(reply(answer, form).map_err(Refused::from));
            }
        })
    });
    let asked = asked.await;
    if let (Err(failure), Some(caller)) = (asked, caller) {
        caller.fail(failure);
    }
}

/// Takes a scheduled record back wherever it is.
async fn cancel_anywhere(
    state: &mut StreamState,
    handle: &Arc<StreamHandle>,
    id: &Text,
    caller: Caller,
) {
    let id = match schedule_id(id) {
        Ok(id) => id,
        Err(failure) => return caller.fail(failure),
    };
    let ask = Ask::Cancel { id: id.clone() };
    if let Err(failure) = permit(&state.principal, &handle.spec().id, &ask) {
        return caller.fail(failure);
    }
    // Who never scheduled anything gets no lane from being asked.
    let (shards, of) = (Arc::clone(&state.conn.shared.shards), Arc::clone(handle));
    let looking = tokio::task::spawn_blocking(move || shards.with_lane(&of));
    let Ok(shards) = looking.await else {
        let message = "looking for the schedules was interrupted";
        return caller.fail(Failure::new(Code::Internal, message).with_retry(Retry::Retry));
    };
    let mut existed = false;
    for shard in shards {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let ask = Ask::Cancel { id: id.clone() };
        let asked = call(state, handle, shard, ask, || {
            Box::new(move |answer| {
                // Whoever asks waits for it below.
                let _ = sender.send(answer);
            })
        });
        if let Err(failure) = asked.await {
            return caller.fail(failure);
        }
        match receiver.await.map(|answer| reply(answer, Form::Cancelled)) {
            Ok(Ok(Reply::ScheduleCancel(cancelled))) => existed |= cancelled.existed,
            Ok(Ok(_)) | Err(_) => {}
            Ok(Err(failure)) => return caller.fail(failure),
        }
    }
    caller.answer(Ok(Reply::ScheduleCancel(ScheduleCancelled { existed })));
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only calls on groups and schedules are handed in"
)]
fn read(state: &StreamState, spec: &StreamSpec, ask: Wire) -> Result<Question, Failure> {
    let question = |shard, ask, form| Ok(Question { shard, ask, form });
    match ask {
        Wire::GroupPoll(poll) => {
            let ask = Ask::Poll(Poll {
                group: name(&poll.group)?,
                holder: who(state, poll.consumer.as_ref())?,
                max_records: poll.max_records,
                wait_ms: poll.wait_ms.into(),
                visibility_ms: poll.visibility_ms.into(),
                reclaim: poll.reclaim,
                bytes_max: poll.max_bytes as usize,
                record_bytes_max: RECORD_BYTES_MAX,
            });
            question(poll.shard, ask, Form::Polled)
        }
        Wire::GroupAck(ack) => {
            let settled = Settling::new(state, &ack.group, &ack.claims, ack.consumer.as_ref())?;
            let (ask, items) = settled.ask(Verb::Ack);
            question(ack.shard, ask, Form::Settled(Settles::Ack, items))
        }
        Wire::GroupNack(nack) => {
            let settled = Settling::new(state, &nack.group, &nack.claims, nack.consumer.as_ref())?;
            let delay_ms = nack.delay_ms;
            let (ask, items) = settled.ask(Verb::Nack { delay_ms });
            question(nack.shard, ask, Form::Settled(Settles::Nack, items))
        }
        Wire::GroupExtend(extend) => {
            let consumer = extend.consumer.as_ref();
            let settled = Settling::new(state, &extend.group, &extend.claims, consumer)?;
            let ms = extend.extend_ms;
            let (ask, items) = settled.ask(Verb::Extend { ms });
            question(extend.shard, ask, Form::Settled(Settles::Extend, items))
        }
        Wire::GroupSetAside(aside) => {
            let consumer = aside.consumer.as_ref();
            let settled = Settling::new(state, &aside.group, &aside.claims, consumer)?;
            let reason = aside.reason.as_str();
            let reason = (!reason.is_empty()).then(|| reason.into());
            let (ask, items) = settled.ask(Verb::Bury { reason });
            question(aside.shard, ask, Form::Settled(Settles::SetAside, items))
        }
        Wire::GroupDeadLetters(list) => {
            let ask = Ask::Letters {
                group: name(&list.group)?,
                after: list.after.map(Offset),
                limit: page(list.limit),
                payloads: list.want_values,
            };
            question(list.shard, ask, Form::Letters)
        }
        Wire::GroupRedrive(redrive) => {
            let (group, which) = (name(&redrive.group)?, which(redrive.offsets.as_ref()));
            question(
                redrive.shard,
                Ask::Redrive { group, which },
                Form::Moved(Moves::Redrive),
            )
        }
        Wire::GroupDiscard(discard) => {
            let (group, which) = (name(&discard.group)?, which(discard.offsets.as_ref()));
            question(
                discard.shard,
                Ask::Discard { group, which },
                Form::Moved(Moves::Discard),
            )
        }
        Wire::GroupSeek(seek) => {
            let (group, if_new) = (name(&seek.group)?, seek.if_new);
            let to = match seek.start {
                Start::Earliest => SeekTo::Earliest,
                Start::Latest => SeekTo::Latest,
                Start::Offset(offset) => SeekTo::Offset(Offset(offset)),
            };
            question(seek.shard, Ask::Seek { group, to, if_new }, Form::Sought)
        }
        Wire::GroupDescribe(describe) => {
            let group = name(&describe.group)?;
            question(describe.shard, Ask::Describe { group }, Form::Described)
        }
        Wire::GroupDelete(delete) => {
            let group = name(&delete.group)?;
            question(delete.shard, Ask::Delete { group }, Form::Deleted)
        }
        Wire::GroupList(list) => {
            let after = list.after.as_ref().map(name).transpose()?;
            let limit = page(list.limit);
            question(list.shard, Ask::List { after, limit }, Form::Listed)
        }
        Wire::ScheduleAdd(add) => schedule(spec, &add),
        Wire::ScheduleCancel(cancel) => {
            let id = schedule_id(&cancel.id)?;
            let shard = cancel.shard.unwrap_or(0);
            question(shard, Ask::Cancel { id }, Form::Cancelled)
        }
        Wire::ScheduleList(list) => {
            let (shard, after) = match &list.cursor {
                Some(cursor) => place(cursor)?,
                None => (list.shard.unwrap_or(0), None),
            };
            let next = (list.shard.is_none() && shard + 1 < spec.shards).then_some(shard + 1);
            let ask = Ask::Schedules {
                after,
                limit: page(list.limit),
                records: list.want_values,
            };
            question(shard, ask, Form::Schedules { shard, next })
        }
        _ => Err(Failure::new(Code::Internal, "not a call on a group")),
    }
}

/// What calls that settle have in common.
struct Settling {
    group: GroupName,
    items: Vec<Item>,
    holder: Holder,
}

impl Settling {
    fn new(
        state: &StreamState,
        group: &Text,
        claims: &List<Claim>,
        consumer: Option<&Text>,
    ) -> Result<Self, Failure> {
        let limit = felix_engine::groups::limits::MOVED_MAX;
        if claims.len() > limit {
            let message = format!(
                "{} claims at once are over the limit of {limit}",
                claims.len()
            );
            return Err(Failure::new(Code::InvalidRequest, message).with_reason("too_many"));
        }
        let items = claims
            .iter()
            .map(|claim| Item {
                offset: Offset(claim.offset),
                attempts: claim.attempts,
            })
            .collect();
        Ok(Self {
            group: name(group)?,
            items,
            holder: who(state, consumer)?,
        })
    }

    fn ask(self, verb: Verb) -> (Ask, Vec<Item>) {
        let items = self.items.clone();
        let ask = Ask::Settle(Settle {
            group: self.group,
            verb,
            items: self.items,
            holder: Some(self.holder),
        });
        (ask, items)
    }
}

fn name(group: &Text) -> Result<GroupName, Failure> {
    GroupName::new(group.as_str()).map_err(|error| {
        let message = format!("the group's name: {error}");
        Failure::new(Code::InvalidRequest, message).with_reason("bad_name")
    })
}

fn who(state: &StreamState, consumer: Option<&Text>) -> Result<Holder, Failure> {
    holder(consumer.map(Text::as_str), state.conn.id, &state.principal)
}

fn which(offsets: Option<&List<u64>>) -> Which {
    offsets.map_or(Which::All, |offsets| {
        Which::These(offsets.iter().map(Offset).collect())
    })
}

/// 0 asks for as many as a page holds, and whatever is asked is bounded there.
fn page(limit: u32) -> u32 {
    if limit == 0 { u32::MAX } else { limit }
}

fn schedule_id(id: &Text) -> Result<ScheduleId, Failure> {
    ScheduleId::new(id.as_str().as_bytes()).map_err(|error| {
        let message = format!("the schedule's id: {error}");
        Failure::new(Code::InvalidRequest, message).with_reason("bad_name")
    })
}

fn schedule(spec: &StreamSpec, add: &ScheduleAdd) -> Result<Question, Failure> {
    let invalid =
        |error: &dyn std::fmt::Display| Failure::new(Code::InvalidRequest, error.to_string());
    let id = match &add.id {
        Some(id) => id.clone(),
        None => random_id()?,
    };
    let shard = add.shard.unwrap_or_else(|| {
        let ShardIndex(shard) = spec.routing.shard(add.key.as_deref(), spec.shards);
        shard
    });
    let limit = spec.max_record_bytes as usize;
    let headers: Vec<Header> = add.headers.iter().collect();
    let pairs: Vec<(&[u8], Option<&[u8]>)> = headers
        .iter()
        .map(|header| (header.key.as_ref(), header.value.as_deref()))
        .collect();
    let mut builder = BatchBuilder::new(BatchOptions::default());
    let time = i64::try_from(now().0).unwrap_or(i64::MAX);
    builder
        .push(time, add.key.as_deref(), Some(&add.value), &pairs)
        .map_err(|error| invalid(&error))?;
    let batch = builder.finish().map_err(|error| invalid(&error))?.freeze();
    if batch.len() > limit.max(felix_model::HEADER_BYTES) && add.value.len() > limit {
        let message = format!(
            "a record of {} bytes is over the stream's limit of {limit}",
            add.value.len()
        );
        return Err(Failure::new(Code::LimitExceeded, message).with_reason("record_bytes"));
    }
    let ask = Ask::Schedule {
        id: schedule_id(&id)?,
        due: TimeMs(add.due_ms),
        batch,
    };
    let form = Form::Scheduled { id, shard };
    Ok(Question { shard, ask, form })
}

fn random_id() -> Result<Text, Failure> {
    let mut bytes = [0; ID_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| Failure::new(Code::Internal, error.to_string()))?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(hex.into())
}

/// What [`Form::Schedules`] made of the end of a page.
fn place(cursor: &Bytes) -> Result<(u32, Option<(TimeMs, u64)>), Failure> {
    let mut cursor = cursor.clone();
    match cursor.len() {
        4 => Ok((cursor.get_u32(), None)),
        20 => Ok((
            cursor.get_u32(),
            Some((TimeMs(cursor.get_u64()), cursor.get_u64())),
        )),
        _ => Err(Failure::new(
            Code::InvalidRequest,
            "the cursor is none of this broker's",
        )),
    }
}
