//! The published messages of consumer groups: from JSON to what is asked of a shard's groups, and back.

use std::sync::Arc;

use felix_auth::Principal;
use felix_engine::groups::{
    Answer, Ask, Delivery, GroupName, Holder, Item, Poll, SeekTo, Settle, Verb, Which,
};
use felix_model::Offset;
use felix_wire::error::{Code, Failure};
use felix_wire::limits::PAYLOAD_BYTES_MAX;
use felix_wire::message::{
    CacheOk, GroupDeadLetterList, GroupDeleted, GroupDescription, GroupExtended, GroupPosition,
    GroupRecord, GroupRecords, Message, Start,
};
use felix_wire::negotiate::{Features, Peer};

use super::stream::StreamState;
use crate::events::micros;
use crate::groups::{call, refused, unsettled};

/// The largest record that fits a JSON answer: base64 takes four bytes for three.
const JSON_RECORD_BYTES_MAX: usize = (PAYLOAD_BYTES_MAX - 64 * 1024) / 4 * 3;

/// An answer with more payload than this is made on a thread of its own, so that whoever ran the turn can go on.
const LARGE_ANSWER_BYTES: usize = 64 * 1024;

/// Where a request goes.
struct Target {
    tenant_id: String,
    namespace: String,
    stream: String,
    shard: u32,
    request_id: u64,
}

/// Takes the fields that all group messages share.
macro_rules! target {
    ($message:ident) => {
        (
            Target {
                tenant_id: $message.tenant_id,
                namespace: $message.namespace,
                stream: $message.stream,
                shard: $message.shard,
                request_id: $message.request_id,
            },
            name(&$message.group)?,
        )
    };
}

/// Carries out a group message; its answer leaves through the stream's answers when there is one.
///
/// # Errors
/// Nothing was asked.
pub(crate) async fn answer(state: &mut StreamState, message: Message) -> Result<(), Failure> {
    let (target, ask) = read(message, state.conn.id, &state.principal)?;
    let id = state.name(&target.tenant_id, &target.namespace, &target.stream)?;
    let (answers, peer, runtime) = (
        Arc::clone(&state.answers),
        state.peer,
        state.conn.shared.shards.runtime.clone(),
    );
    let request_id = target.request_id;
    let reply = move || -> crate::groups::Reply {
        let place = answers.reserve();
        Box::new(move |answer| {
            if is_large(&answer) {
                runtime.spawn_blocking(move || place.fill(encode(answer, request_id, &peer)));
            } else {
                place.fill(encode(answer, request_id, &peer));
            }
        })
    };
    let handle = state.conn.shared.stream(&id, &state.principal).await?;
    call(state, &handle, target.shard, ask, reply).await
}

fn name(group: &str) -> Result<GroupName, Failure> {
    GroupName::new(group).map_err(|error| {
        let message = format!("the group's name: {error}");
        Failure::new(Code::InvalidRequest, message).with_reason("bad_name")
    })
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only messages of groups are handed in"
)]
fn read(
    message: Message,
    connection: u64,
    principal: &Principal,
) -> Result<(Target, Ask), Failure> {
    Ok(match message {
        Message::GroupPoll(poll) => {
            let holder = holder(poll.consumer.as_deref(), connection, principal)?;
            let (max_records, wait_ms) = (poll.max_records, poll.wait_ms);
            let (visibility_ms, reclaim) = (poll.visibility_ms, poll.reclaim);
            let (target, group) = target!(poll);
            let ask = Ask::Poll(Poll {
                group,
                holder,
                max_records,
                wait_ms,
                visibility_ms,
                reclaim,
                bytes_max: 0,
                record_bytes_max: JSON_RECORD_BYTES_MAX,
            });
            (target, ask)
        }
        Message::GroupAck(ack) => {
            let item = (ack.offset, 0);
            let (target, group) = target!(ack);
            (target, settle(group, Verb::Ack, item))
        }
        Message::GroupNack(nack) => {
            let item = (nack.offset, nack.attempts);
            let delay_ms = nack.delay_ms.unwrap_or(0);
            let (target, group) = target!(nack);
            (target, settle(group, Verb::Nack { delay_ms }, item))
        }
        Message::GroupExtend(extend) => {
            let (item, ms) = ((extend.offset, extend.attempts), extend.extend_ms);
            let (target, group) = target!(extend);
            (target, settle(group, Verb::Extend { ms }, item))
        }
        Message::GroupDeadLetter(letter) => {
            let item = (letter.offset, 0);
            let (target, group) = target!(letter);
            (target, settle(group, Verb::Bury { reason: None }, item))
        }
        Message::GroupDeadLetters(list) => {
            let (target, group) = target!(list);
            let ask = Ask::Letters {
                group,
                after: None,
                limit: u32::MAX,
                payloads: false,
            };
            (target, ask)
        }
        Message::GroupDiscard(discard) => {
            let which = Which::These(vec![Offset(discard.offset)]);
            let (target, group) = target!(discard);
            (target, Ask::Discard { group, which })
        }
        Message::GroupRedrive(redrive) => {
            let which = Which::These(vec![Offset(redrive.offset)]);
            let (target, group) = target!(redrive);
            (target, Ask::Redrive { group, which })
        }
        Message::GroupSeek(seek) => {
            let if_new = seek.if_new;
            let to = match seek.start {
                Start::Earliest => SeekTo::Earliest,
                Start::Latest => SeekTo::Latest,
                Start::Offset(offset) => SeekTo::Offset(Offset(offset)),
            };
            let (target, group) = target!(seek);
            (target, Ask::Seek { group, to, if_new })
        }
        Message::GroupDescribe(describe) => {
            let (target, group) = target!(describe);
            (target, Ask::Describe { group })
        }
        Message::GroupDelete(delete) => {
            let (target, group) = target!(delete);
            (target, Ask::Delete { group })
        }
        other => {
            let message = format!("{} is no message of a group", other.type_name());
            return Err(Failure::new(Code::InvalidRequest, message));
        }
    })
}

fn settle(group: GroupName, verb: Verb, (offset, attempts): (u64, u32)) -> Ask {
    let offset = Offset(offset);
    Ask::Settle(Settle {
        group,
        verb,
        items: vec![Item { offset, attempts }],
        holder: None,
    })
}

/// Who takes records on a connection. A member is a consumer's name under one principal.
///
/// # Errors
/// The consumer's name is none.
pub(crate) fn holder(
    consumer: Option<&str>,
    connection: u64,
    principal: &Principal,
) -> Result<Holder, Failure> {
    let member = consumer
        .map(|consumer| {
            GroupName::new(consumer).map_err(|error| {
                let message = format!("the consumer's name: {error}");
                Failure::new(Code::InvalidRequest, message).with_reason("bad_name")
            })?;
            let subject: &str = &principal.subject;
            Ok::<_, Failure>(
                [consumer.as_bytes(), b"\0", subject.as_bytes()]
                    .concat()
                    .into(),
            )
        })
        .transpose()?;
    Ok(Holder { connection, member })
}

fn is_large(answer: &Answer) -> bool {
    let Answer::Records(deliveries) = answer else {
        return false;
    };
    let bytes = |delivery: &Delivery| delivery.record.value.as_ref().map_or(0, bytes::Bytes::len);
    deliveries.iter().map(bytes).sum::<usize>() > LARGE_ANSWER_BYTES
}

fn encode(answer: Answer, request_id: u64, peer: &Peer) -> bytes::Bytes {
    match message(answer, request_id, peer) {
        Ok(message) => message.encode(),
        Err(failure) => peer.error(failure).encode(),
    }
}

fn message(answer: Answer, request_id: u64, peer: &Peer) -> Result<Message, Failure> {
    Ok(match answer {
        Answer::Records(deliveries) => {
            let (skipped, times) = (
                peer.has(Features::GROUP_SKIPPED),
                peer.has(Features::RECORD_TIMESTAMPS),
            );
            let records = deliveries
                .into_iter()
                .map(|delivery| record(delivery, skipped, times))
                .collect();
            GroupRecords {
                records,
                request_id,
            }
            .into()
        }
        Answer::Settled(results) => match results.first() {
            Some(Ok(visible_ms)) if *visible_ms > 0 => GroupExtended {
                visible_ms: *visible_ms,
                request_id,
            }
            .into(),
            Some(Err(why)) => return Err(unsettled(*why)),
            Some(Ok(_)) | None => CacheOk { request_id }.into(),
        },
        Answer::Letters { letters, .. } => GroupDeadLetterList {
            offsets: letters.iter().map(|letter| letter.offset.0).collect(),
            request_id,
        }
        .into(),
        Answer::Moved { missing, .. } => match missing.first() {
            None => CacheOk { request_id }.into(),
            Some(offset) => {
                let message = format!("offset {offset} is not among the dead letters");
                return Err(
                    Failure::new(Code::InvalidRequest, message).with_reason("no_dead_letter")
                );
            }
        },
        Answer::Position { offset, moved } => GroupPosition {
            offset: offset.0,
            moved,
            request_id,
        }
        .into(),
        Answer::Description(group) => GroupDescription {
            committed: group.committed.map(|offset| offset.0),
            tail: group.tail.0,
            in_flight: group.in_flight,
            owed: group.owed,
            dead_letters: group.dead_letters,
            request_id,
        }
        .into(),
        Answer::Deleted { existed } => GroupDeleted {
            existed,
            request_id,
        }
        .into(),
        Answer::Refused(why) => return Err(refused(why)),
        // Nothing of the published protocol asks for these.
        Answer::Listed { .. }
        | Answer::Scheduled { .. }
        | Answer::Cancelled { .. }
        | Answer::Schedules { .. } => {
            return Err(Failure::new(
                Code::Internal,
                "an answer to another question",
            ));
        }
    })
}

fn record(delivery: Delivery, skipped: bool, times: bool) -> GroupRecord {
    let Delivery {
        record,
        attempts,
        skipped_before,
    } = delivery;
    GroupRecord {
        offset: record.offset.0,
        payload: record.value.unwrap_or_default(),
        attempts,
        skipped_before: (skipped && skipped_before > 0).then_some(skipped_before),
        publisher: None,
        timestamp_micros: times.then(|| micros(record.timestamp_ms)),
    }
}
