//! Records that become visible at a given time.
//!
//! A schedule is durable before it is answered. When it is due, the lane says so (`firing`, with where the stream's log
//! ended) and must have said it durably before the record is appended with the schedule's id in the header `s`; when
//! the append is committed the lane says `fired`. After a crash in between, the record is looked for in the stream's
//! log from that end on: found, it was appended; not found, it is appended now. So it is there exactly once.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use felix_model::batch::BuildRefused;
use felix_model::{BatchBuilder, BatchOptions, Offset, Record, TimeMs};

use super::ask::{Answer, GroupRefused, ScheduleId, ScheduleView, Ticket};
use super::core::{Core, Reading};
use super::io::{Effect, Found, Place, Want};
use super::lane::{Fields, Planned, Writer, kind};
use super::limits;
use super::serve::carried_bytes;
use crate::options::CommitWhen;
use crate::refused::AppendRefused;

/// Header of a record that was scheduled: its schedule's id.
pub const SCHEDULE_HEADER: &[u8] = b"s";

/// Every scheduled record of a shard.
#[derive(Clone, Debug, Default)]
pub(super) struct Schedules {
    by_id: BTreeMap<ScheduleId, Schedule>,
    /// Those that wait for their time, in the order in which they are appended.
    due: BTreeSet<(TimeMs, u64, ScheduleId)>,
    /// Those that are being appended.
    firing: BTreeSet<ScheduleId>,
    bytes: u64,
    /// Ids of records that were appended a short time ago.
    fired: BTreeMap<ScheduleId, TimeMs>,
    fired_order: BTreeSet<(TimeMs, ScheduleId)>,
    order: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Schedule {
    due: TimeMs,
    order: u64,
    bytes: u64,
    /// Where the lane has its record.
    lane: u64,
    /// Where the stream's log ended when it began to be appended.
    data_end: Option<u64>,
    progress: Progress,
}

/// How far the append of a record is. Memory only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Progress {
    /// The lane must be durable up to here before the append.
    needs: u64,
    batch: Option<BytesMut>,
    sent: bool,
}

/// A schedule that was being appended when the broker stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InDoubt {
    /// Which.
    pub id: ScheduleId,
    /// Its record, if it was appended, is at or above this offset of the stream.
    pub from: Offset,
}

impl Schedules {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_firing(&self) -> bool {
        !self.firing.is_empty()
    }

    /// When something must be done.
    pub(super) fn next_due(&self) -> Option<TimeMs> {
        if self.firing.len() >= limits::FIRING_MAX {
            return None;
        }
        self.due.first().map(|(due, ..)| *due)
    }

    pub(super) fn add(
        &mut self,
        core: &mut Core,
        ticket: Ticket,
        id: ScheduleId,
        due: TimeMs,
        batch: Bytes,
    ) {
        let now = core.wall();
        self.forget_fired(now);
        if let Some(schedule) = self.by_id.get(&id) {
            let due = schedule.due;
            return core.answer(
                ticket,
                Answer::Scheduled {
                    due,
                    created: false,
                },
            );
        }
        if let Some(&due) = self.fired.get(&id) {
            return core.answer(
                ticket,
                Answer::Scheduled {
                    due,
                    created: false,
                },
            );
        }
        if let Err(refused) = self.admit(now, due, batch.len() as u64) {
            return core.answer(ticket, Answer::Refused(refused));
        }
        let planned = Planned::Scheduled { due, batch };
        let at = core
            .lane
            .push_planned(now, id.as_bytes(), &planned, &mut core.effects);
        self.apply(id, &planned, at);
        core.answer(ticket, Answer::Scheduled { due, created: true });
        self.fire(core);
    }

    fn admit(&self, now: TimeMs, due: TimeMs, bytes: u64) -> Result<(), GroupRefused> {
        let ahead_ms = due.since(now);
        let limit_ms = limits::SCHEDULE_MS_MAX;
        if ahead_ms > limit_ms {
            return Err(GroupRefused::TooFarAhead { ahead_ms, limit_ms });
        }
        let count = self.by_id.len();
        if count >= limits::SCHEDULES_MAX || self.bytes + bytes > limits::SCHEDULE_BYTES_MAX {
            let bytes = self.bytes;
            return Err(GroupRefused::TooManySchedules { count, bytes });
        }
        Ok(())
    }

    pub(super) fn cancel(&mut self, core: &mut Core, ticket: Ticket, id: &ScheduleId) {
        let answer = match self.by_id.get(id) {
            None => Answer::Cancelled { existed: false },
            Some(schedule) if schedule.data_end.is_some() => {
                Answer::Refused(GroupRefused::BeingAppended)
            }
            Some(_) => {
                let planned = Planned::Cancelled;
                let at = core.lane.push_planned(
                    core.moment.wall,
                    id.as_bytes(),
                    &planned,
                    &mut core.effects,
                );
                self.apply(id.clone(), &planned, at);
                Answer::Cancelled { existed: true }
            }
        };
        core.answer(ticket, answer);
    }

    pub(super) fn list(
        &self,
        core: &mut Core,
        ticket: Ticket,
        after: Option<(TimeMs, u64)>,
        limit: u32,
        records: bool,
    ) {
        let limit = limit.clamp(1, limits::PAGE_MAX) as usize;
        let mut left = self
            .due
            .iter()
            .filter(|(due, order, _)| after.is_none_or(|after| (*due, *order) > after));
        let page: Vec<(ScheduleView, Want)> = left
            .by_ref()
            .filter_map(|(due, order, id)| {
                let schedule = self.by_id.get(id)?;
                let view = ScheduleView {
                    id: id.clone(),
                    due: *due,
                    order: *order,
                    bytes: schedule.bytes,
                    record: None,
                };
                let want = Want {
                    place: Place::Lane,
                    at: Offset(schedule.lane),
                };
                Some((view, want))
            })
            .take(limit)
            .collect();
        let more = left.next().is_some();
        if !records || page.is_empty() {
            let schedules = page.into_iter().map(|(view, _)| view).collect();
            return core.answer(ticket, Answer::Schedules { schedules, more });
        }
        let wants = page.iter().map(|(_, want)| *want).collect();
        let reading = Reading::Schedules {
            ticket,
            schedules: page,
            more,
        };
        core.read(reading, wants);
    }

    /// Begins to append what is due, in the order in which it is due.
    pub(super) fn fire(&mut self, core: &mut Core) {
        while self.firing.len() < limits::FIRING_MAX
            && let Some((due, ..)) = self.due.first()
            && *due <= core.wall()
            && let Some((_, _, id)) = self.due.pop_first()
        {
            let data_end = core.moment.tail.0;
            let planned = Planned::Firing { data_end };
            let at = core.lane.push_planned(
                core.moment.wall,
                id.as_bytes(),
                &planned,
                &mut core.effects,
            );
            self.apply(id.clone(), &planned, at);
            let needs = core.lane.end();
            if let Some(schedule) = self.by_id.get_mut(&id) {
                schedule.progress.needs = needs;
                let want = Want {
                    place: Place::Lane,
                    at: Offset(schedule.lane),
                };
                core.read(Reading::Schedule(id), vec![want]);
            }
        }
    }

    /// The record of a schedule that is due was read.
    pub(super) fn was_read(&mut self, core: &mut Core, id: &ScheduleId, found: Option<Found>) {
        let Some(schedule) = self.by_id.get_mut(id) else {
            return;
        };
        let batch = match found {
            Some(Found::Record(record)) => dated(&record, id, core.wall()).ok(),
            Some(Found::Nothing | Found::Unreadable) | None => None,
        };
        match batch {
            Some(batch) => schedule.progress.batch = Some(batch),
            None => return self.again(core, id),
        }
        self.send(core);
    }

    /// Appends what may be appended, in the order in which it is due. Whoever is first holds up those behind.
    pub(super) fn send(&mut self, core: &mut Core) {
        let durable = match core.options.fire {
            CommitWhen::Flushed => core.flushed,
            CommitWhen::Written => core.committed(),
        };
        let mut order: Vec<(TimeMs, u64, ScheduleId)> = self
            .firing
            .iter()
            .filter_map(|id| {
                let schedule = self.by_id.get(id)?;
                Some((schedule.due, schedule.order, id.clone()))
            })
            .collect();
        order.sort_unstable();
        for (_, _, id) in order {
            let Some(schedule) = self.by_id.get_mut(&id) else {
                continue;
            };
            if schedule.progress.sent {
                continue;
            }
            if schedule.progress.needs > durable {
                return;
            }
            let Some(batch) = schedule.progress.batch.take() else {
                return;
            };
            schedule.progress.sent = true;
            core.effects.push(Effect::Append { id, batch });
        }
    }

    /// The stream answered an append.
    pub(super) fn appended(
        &mut self,
        core: &mut Core,
        id: ScheduleId,
        outcome: Result<(), AppendRefused>,
    ) {
        match outcome {
            Ok(()) => {
                let planned = Planned::Fired { at: core.wall() };
                let at = core.lane.push_planned(
                    core.moment.wall,
                    id.as_bytes(),
                    &planned,
                    &mut core.effects,
                );
                self.apply(id, &planned, at);
                self.fire(core);
            }
            // Whether it is in the log is found out when the groups are opened anew, as they are after this.
            Err(AppendRefused::OutcomeUnknown) => {}
            Err(_) => self.again(core, &id),
        }
    }

    /// Tries an append again a little later.
    fn again(&mut self, core: &Core, id: &ScheduleId) {
        let Some(schedule) = self.by_id.get_mut(id) else {
            return;
        };
        schedule.progress = Progress::default();
        schedule.data_end = None;
        schedule.due = core.wall().plus(limits::FIRE_AGAIN_MS);
        self.firing.remove(id);
        self.due.insert((schedule.due, schedule.order, id.clone()));
    }

    /// Takes note of what the lane has, or is about to have, at `lane`.
    pub(super) fn apply(&mut self, id: ScheduleId, planned: &Planned, lane: u64) {
        match planned {
            Planned::Scheduled { due, batch } => {
                self.order += 1;
                let schedule = Schedule {
                    due: *due,
                    order: self.order,
                    bytes: batch.len() as u64,
                    lane,
                    data_end: None,
                    progress: Progress::default(),
                };
                self.insert(id, schedule);
            }
            Planned::Firing { data_end } => {
                if let Some(schedule) = self.by_id.get_mut(&id) {
                    // The oldest counts: the record may be in the log from the first time it began to be appended.
                    let first = schedule.data_end.get_or_insert(*data_end);
                    *first = (*first).min(*data_end);
                    self.due.remove(&(schedule.due, schedule.order, id.clone()));
                    self.firing.insert(id);
                }
            }
            Planned::Fired { at } => {
                self.remove(&id);
                self.fired_order.insert((*at, id.clone()));
                self.fired.insert(id, *at);
                self.forget_fired(*at);
            }
            Planned::Cancelled => self.remove(&id),
        }
    }

    fn insert(&mut self, id: ScheduleId, schedule: Schedule) {
        self.remove(&id);
        self.bytes += schedule.bytes;
        if schedule.data_end.is_some() {
            self.firing.insert(id.clone());
        } else {
            self.due.insert((schedule.due, schedule.order, id.clone()));
        }
        self.by_id.insert(id, schedule);
    }

    fn remove(&mut self, id: &ScheduleId) {
        if let Some(schedule) = self.by_id.remove(id) {
            self.bytes -= schedule.bytes;
            self.firing.remove(id);
            self.due.remove(&(schedule.due, schedule.order, id.clone()));
        }
    }

    fn forget_fired(&mut self, now: TimeMs) {
        while let Some((at, _)) = self.fired_order.first()
            && (now.since(*at) > limits::FIRED_MS || self.fired_order.len() > limits::FIRED_MAX)
            && let Some((_, id)) = self.fired_order.pop_first()
        {
            self.fired.remove(&id);
        }
    }

    /// Those of which only the stream's log can tell whether they were appended.
    pub(super) fn in_doubt(&self) -> Vec<InDoubt> {
        let firing = self.by_id.iter();
        firing
            .filter_map(|(id, schedule)| {
                let from = Offset(schedule.data_end?);
                Some(InDoubt {
                    id: id.clone(),
                    from,
                })
            })
            .collect()
    }

    /// The stream's log does not have it: it is due again.
    pub(super) fn not_found(&mut self, id: &ScheduleId) {
        if let Some(schedule) = self.by_id.get_mut(id) {
            schedule.data_end = None;
            schedule.progress = Progress::default();
            self.firing.remove(id);
            self.due.insert((schedule.due, schedule.order, id.clone()));
        }
    }

    pub(super) fn lane_refs(&self, refs: &mut BTreeSet<u64>) {
        refs.extend(self.by_id.values().map(|schedule| schedule.lane));
    }

    /// The state of each schedule as one lane record.
    pub(super) fn encode(&self, states: &mut Vec<(Bytes, Writer)>) {
        let mut ordered: Vec<(&ScheduleId, &Schedule)> = self.by_id.iter().collect();
        ordered.sort_unstable_by_key(|(_, schedule)| schedule.order);
        for (id, schedule) in ordered {
            let mut out = Writer::of(kind::SCHEDULE);
            out.number(schedule.due.0);
            out.number(schedule.bytes);
            out.number(schedule.lane);
            out.number(schedule.data_end.map_or(0, |end| end + 1));
            states.push((Bytes::copy_from_slice(id.as_bytes()), out));
        }
        for (id, at) in &self.fired {
            let mut out = Writer::of(kind::SCHEDULE);
            out.number(at.0);
            states.push((Bytes::copy_from_slice(id.as_bytes()), out));
        }
    }

    /// `None`: it is malformed.
    pub(super) fn decode(&mut self, id: ScheduleId, mut fields: Fields) -> Option<()> {
        let at = TimeMs(fields.number()?);
        if fields.is_empty() {
            self.fired_order.insert((at, id.clone()));
            self.fired.insert(id, at);
            return Some(());
        }
        self.order += 1;
        let schedule = Schedule {
            due: at,
            order: self.order,
            bytes: fields.number()?,
            lane: fields.number()?,
            data_end: fields.number()?.checked_sub(1),
            progress: Progress::default(),
        };
        self.insert(id, schedule);
        Some(())
    }
}

/// A page of scheduled records with what was read for it. Those for which there was no room go onto the next page.
pub(super) fn page(
    schedules: Vec<(ScheduleView, Want)>,
    found: Vec<(Want, Found)>,
    mut more: bool,
) -> Answer {
    let mut found: BTreeMap<Want, Found> = found.into_iter().collect();
    let mut page = Vec::with_capacity(schedules.len());
    let mut bytes = 0;
    for (mut view, want) in schedules {
        match found.remove(&want) {
            Some(Found::Record(record)) => {
                let size = carried_bytes(&record);
                if bytes > 0 && bytes + size > limits::READ_BYTES {
                    more = true;
                    break;
                }
                if size <= limits::LISTED_BYTES_MAX {
                    bytes += size;
                    view.record = Some(record);
                }
            }
            Some(Found::Nothing | Found::Unreadable) => {}
            None if page.is_empty() => {}
            None => {
                more = true;
                break;
            }
        }
        page.push(view);
    }
    Answer::Schedules {
        schedules: page,
        more,
    }
}

/// The record as it is appended: with the time it has become visible at, and its schedule's id before its own headers.
fn dated(record: &Record, id: &ScheduleId, now: TimeMs) -> Result<BytesMut, BuildRefused> {
    let own: Vec<(Bytes, Option<Bytes>)> = record.headers.iter().collect();
    let mut headers: Vec<(&[u8], Option<&[u8]>)> = vec![(SCHEDULE_HEADER, Some(id.as_bytes()))];
    headers.extend(
        own.iter()
            .map(|(key, value)| (key.as_ref(), value.as_deref())),
    );
    let mut builder = BatchBuilder::new(BatchOptions {
        internal: true,
        ..BatchOptions::default()
    });
    builder.push(
        i64::try_from(now.0).unwrap_or(i64::MAX),
        record.key.as_deref(),
        record.value.as_deref(),
        &headers,
    )?;
    builder.finish()
}

/// The schedule a record of the stream came from, if it came from one.
pub fn schedule_of(record: &Record) -> Option<Bytes> {
    let (key, value) = record.internal.iter().next()?;
    (key == SCHEDULE_HEADER).then_some(value).flatten()
}
