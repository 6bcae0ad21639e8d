//! What a shard's groups answer, as replies of the `requests` extension.

use bytes::{BufMut as _, Bytes, BytesMut};
use felix_engine::groups::{
    Answer, Delivery, Description, Item, LetterView, ScheduleView, SettleRefused,
};
use felix_model::forms::users_headers;
use felix_model::{Record, TimeMs};
use felix_wire::error::{Code, Failure};
use felix_wire::extension::requests::{
    Claimed, DeadLetter, DeadLetters, GroupDeleted, GroupDescribed, GroupExtended, GroupListed,
    GroupListing, GroupPolled, GroupSought, GroupStanding, Header, LettersMoved, List, Reply,
    ScheduleCancelled, ScheduleListed, Scheduled, Settled, Text, Unsettled, Waiting,
};

use super::{refused, unsettled};

/// In which form a call is answered, with what the answer repeats of it.
pub(super) enum Form {
    Polled,
    Settled(Settles, Vec<Item>),
    Letters,
    Moved(Moves),
    Sought,
    Described,
    Deleted,
    Listed,
    Scheduled {
        id: Text,
        shard: u32,
    },
    Cancelled,
    /// The shard after this one, if the listing goes on there.
    Schedules {
        shard: u32,
        next: Option<u32>,
    },
}

/// Which call settled.
#[derive(Clone, Copy)]
pub(super) enum Settles {
    Ack,
    Nack,
    Extend,
    SetAside,
}

/// Which call moved dead letters.
#[derive(Clone, Copy)]
pub(super) enum Moves {
    Redrive,
    Discard,
}

/// The answer as a reply of the form that was asked for.
pub(super) fn reply(answer: Answer, form: Form) -> Result<Reply, Failure> {
    let too_long = |error: felix_wire::publish::PublishTooLong| {
        Failure::new(Code::LimitExceeded, error.to_string())
    };
    Ok(match (answer, form) {
        (Answer::Refused(why), _) => return Err(refused(why)),
        (Answer::Records(deliveries), _) => {
            let records = List::build(deliveries.into_iter().map(claimed)).map_err(too_long)?;
            Reply::GroupPoll(GroupPolled { records })
        }
        (Answer::Settled(results), Form::Settled(by, items)) => {
            return settled(&results, by, &items);
        }
        (Answer::Letters { letters, more }, _) => {
            let letters = List::build(letters.into_iter().map(letter)).map_err(too_long)?;
            Reply::GroupDeadLetters(DeadLetters { letters, more })
        }
        (Answer::Moved { count, missing, .. }, Form::Moved(by)) => {
            let missing = List::build(missing.into_iter().map(|offset| offset.0));
            let missing = missing.map_err(too_long)?;
            let moved = LettersMoved { count, missing };
            match by {
                Moves::Redrive => Reply::GroupRedrive(moved),
                Moves::Discard => Reply::GroupDiscard(moved),
            }
        }
        (Answer::Position { offset, moved }, _) => Reply::GroupSeek(GroupSought {
            offset: offset.0,
            moved,
        }),
        (Answer::Description(group), _) => Reply::GroupDescribe(GroupDescribed {
            standing: standing(&group),
        }),
        (Answer::Deleted { existed }, _) => Reply::GroupDelete(GroupDeleted { existed }),
        (Answer::Listed { groups, more }, _) => {
            let groups = List::build(groups.iter().map(|group| GroupListing {
                group: group.group.as_str().into(),
                standing: standing(group),
            }));
            let groups = groups.map_err(too_long)?;
            Reply::GroupList(GroupListed { groups, more })
        }
        (Answer::Scheduled { due, created }, Form::Scheduled { id, shard }) => {
            Reply::ScheduleAdd(Scheduled {
                id,
                shard,
                due_ms: due.0,
                repeated: !created,
            })
        }
        (Answer::Cancelled { existed }, _) => Reply::ScheduleCancel(ScheduleCancelled { existed }),
        (Answer::Schedules { schedules, more }, Form::Schedules { shard, next }) => {
            let last = schedules.last().map(|view| (view.due, view.order));
            let records = schedules.into_iter().map(|view| waiting(view, shard));
            let records = List::build(records).map_err(too_long)?;
            let cursor = match (more, next) {
                (true, _) => Some(cursor(shard, last)),
                (false, Some(next)) => Some(cursor(next, None)),
                (false, None) => None,
            };
            Reply::ScheduleList(ScheduleListed { records, cursor })
        }
        (
            Answer::Settled(_)
            | Answer::Moved { .. }
            | Answer::Scheduled { .. }
            | Answer::Schedules { .. },
            _,
        ) => {
            return Err(Failure::new(
                Code::Internal,
                "an answer to another question",
            ));
        }
    })
}

fn settled(
    results: &[Result<u64, SettleRefused>],
    by: Settles,
    items: &[Item],
) -> Result<Reply, Failure> {
    let failed = items.iter().zip(results).filter_map(|(item, result)| {
        let why = (*result).err()?;
        let code = unsettled(why).code().map_or(0, Code::number);
        Some(Unsettled {
            offset: item.offset.0,
            attempts: item.attempts,
            code,
        })
    });
    let unsettled = List::build(failed)
        .map_err(|error| Failure::new(Code::LimitExceeded, error.to_string()))?;
    let visible_ms = results.iter().flatten().max().copied().unwrap_or(0);
    Ok(match by {
        Settles::Ack => Reply::GroupAck(Settled { unsettled }),
        Settles::Nack => Reply::GroupNack(Settled { unsettled }),
        Settles::SetAside => Reply::GroupSetAside(Settled { unsettled }),
        Settles::Extend => Reply::GroupExtend(GroupExtended {
            visible_ms,
            unsettled,
        }),
    })
}

fn claimed(delivery: Delivery) -> Claimed {
    let Delivery {
        record,
        attempts,
        skipped_before,
    } = delivery;
    Claimed {
        offset: record.offset.0,
        attempts,
        skipped_before,
        timestamp_ms: record.timestamp_ms,
        headers: headers(&record),
        key: record.key,
        value: record.value,
    }
}

fn letter(view: LetterView) -> DeadLetter {
    let record = view.record;
    DeadLetter {
        offset: view.offset.0,
        attempts: view.attempts,
        reason: (&*view.reason).into(),
        set_aside_at_ms: i64::try_from(view.at.0).unwrap_or(i64::MAX),
        timestamp_ms: record.as_ref().map_or(-1, |record| record.timestamp_ms),
        headers: of(record.as_ref()),
        key: record.as_ref().and_then(|record| record.key.clone()),
        value: record.and_then(|record| record.value),
    }
}

fn waiting(view: ScheduleView, shard: u32) -> Waiting {
    let record = view.record;
    Waiting {
        id: String::from_utf8_lossy(view.id.as_bytes())
            .into_owned()
            .into(),
        shard,
        due_ms: view.due.0,
        headers: of(record.as_ref()),
        key: record.as_ref().and_then(|record| record.key.clone()),
        value: record.and_then(|record| record.value),
    }
}

fn of(record: Option<&Record>) -> List<Header> {
    record.map_or_else(List::default, headers)
}

/// Headers that came in one frame fit another.
fn headers(record: &Record) -> List<Header> {
    if record.headers.is_empty() && record.internal.is_empty() {
        return List::default();
    }
    let pairs = users_headers(record).map(|(key, value)| Header { key, value });
    List::build(pairs).unwrap_or_default()
}

fn standing(group: &Description) -> GroupStanding {
    GroupStanding {
        committed: group.committed.map(|offset| offset.0),
        tail: group.tail.0,
        lag: group.lag.saturating_sub(group.in_flight + group.owed),
        in_flight: group.in_flight,
        owed: group.owed,
        dead_letters: group.dead_letters,
    }
}

/// Where a page of schedules ended: the shard, and in it the time and place of the last one, or nothing when the shard
/// begins.
fn cursor(shard: u32, after: Option<(TimeMs, u64)>) -> Bytes {
    let mut cursor = BytesMut::with_capacity(20);
    cursor.put_u32(shard);
    if let Some((due, order)) = after {
        cursor.put_u64(due.0);
        cursor.put_u64(order);
    }
    cursor.freeze()
}
