//! A consumer group: workers poll, acknowledge, give back, fall silent and come again; what they are told is held
//! against the rules. The stream's log is written and read as it is; only the groups are the engine's.

use std::collections::{BTreeMap, VecDeque};

use felix_engine::WriteFailure;
use felix_engine::groups::{
    Answer, Ask, Delivery, Effect, FeedId, Found, GroupName, GroupOptions, GroupRefused, Groups,
    Holder, Input, Item, Keeping, Moment, Place, Poll, ReadId, Replay, Settle, Ticket, Verb, Want,
};
use felix_journal::{Keep, LogReader};
use felix_model::{
    BatchBuilder, BatchHeader, BatchOptions, Generation, Offset, Record, TimeMs, patch,
};

use super::Twin;
use super::life::Reading;
use super::machine::{Machine, Opened};
use crate::check::Check;
use crate::history::group::{Aside, Checker, Delivered, Settled};
use crate::pool::{Pool, Report};
use crate::world::batches;

/// How often a record is handed out before it is set aside.
const ATTEMPTS_MAX: u32 = 3;

const WORKERS: u64 = 3;

/// Bytes read at a time for a group.
const PAGE_BYTES: usize = 2_048;

/// Workers, and the shard whose group they are.
pub(super) struct Workers {
    serving: Option<Serving>,
    checker: Checker,
    workers: Vec<Worker>,
    asked: BTreeMap<Ticket, Asked>,
    next_ticket: u64,
    /// Connections are numbered through all lives.
    next_connection: u64,
}

struct Serving {
    groups: Groups,
    pools: Vec<Pool>,
    data: LogReader,
    lane: LogReader,
    generation: Generation,
    /// Where the next batch of the stream goes.
    next: Offset,
    /// The committed mark of the stream.
    tail: Offset,
    feeds: BTreeMap<FeedId, Feed>,
    reads: Vec<(ReadId, Vec<Want>)>,
    inbox: VecDeque<Input>,
    /// What to keep of the lane, once it is durable up to there.
    keeping: Option<(Keeping, Offset)>,
    has_failed: bool,
}

/// A cursor of the group in the stream.
struct Feed {
    position: Offset,
    is_pulled: bool,
    is_parked: bool,
}

struct Worker {
    connection: u64,
    is_polling: bool,
    /// What it was handed and has not settled.
    holds: Vec<(u64, u32)>,
}

enum Asked {
    Poll {
        worker: usize,
        asked: u64,
        at: TimeMs,
        visibility_ms: u64,
    },
    Ack(Vec<u64>),
    /// Whatever comes is right.
    Other,
}

impl Reading for Workers {
    const LANES: &'static [&'static str] = &["data", "group"];

    fn new(_: &mut Machine) -> Self {
        let worker = |connection| Worker {
            connection,
            is_polling: false,
            holds: Vec::new(),
        };
        Self {
            serving: None,
            checker: Checker::new(ATTEMPTS_MAX),
            workers: (0..WORKERS).map(worker).collect(),
            asked: BTreeMap::new(),
            next_ticket: 0,
            next_connection: WORKERS,
        }
    }

    fn open(&mut self, machine: &mut Machine, lanes: Vec<Opened>) -> Result<(), String> {
        let mut lanes = lanes.into_iter();
        let (Some(data), Some(lane)) = (lanes.next(), lanes.next()) else {
            return Err("two logs are needed".to_owned());
        };
        let mut options = GroupOptions::new(machine.commit_when());
        options.attempts_max = ATTEMPTS_MAX;
        options.generation = lane.generation;
        let mut replay = Replay::new(options);
        for log in lane.batches.iter().filter_map(|batch| batch.log()) {
            replay.batch(log).map_err(|refused| refused.to_string())?;
        }
        let moment = Moment {
            now: clock(machine),
            wall: clock(machine),
            start: data.start,
            tail: data.end,
        };
        // What was written and not answered before is there from here on.
        self.checker.appended(data.end.0);
        self.checker.restarted();
        self.serving = Some(Serving {
            groups: replay.finish(moment, lane.end, &[]),
            data: data.log,
            lane: lane.log,
            generation: data.generation,
            next: data.end,
            tail: data.end,
            pools: vec![data.pool, lane.pool],
            feeds: BTreeMap::new(),
            reads: Vec::new(),
            inbox: VecDeque::new(),
            keeping: None,
            has_failed: false,
        });
        self.tell(machine, Input::Timeout);
        Ok(())
    }

    fn act(&mut self, machine: &mut Machine, ending: bool) {
        match machine.random.below(12) {
            0 | 1 if !ending => self.publish(machine),
            0..=2 => self.feed(machine),
            3 => self.read(),
            4 | 5 => {
                let input = self.serving.as_mut().and_then(|one| one.inbox.pop_front());
                if let Some(input) = input {
                    self.tell(machine, input);
                }
            }
            6 => {
                let due = self
                    .serving
                    .as_ref()
                    .and_then(|one| one.groups.next_timeout());
                if due.is_some_and(|due| due <= clock(machine)) {
                    self.tell(machine, Input::Timeout);
                }
            }
            7 if machine.random.percent(20) => self.tend(machine),
            _ => self.work(machine, ending),
        }
    }

    fn hear(&mut self, machine: &mut Machine, lane: usize, report: Report) {
        let on_commit = machine.is_on_commit();
        let Some(serving) = &mut self.serving else {
            return;
        };
        if lane == 1 {
            let input = match report {
                Report::Written(end) => Input::LaneWritten { end },
                Report::Flushed(end) => Input::LaneFlushed { end },
                Report::Failed(_, why) => Input::LaneFailed { why },
            };
            self.tell(machine, input);
            if let Some(serving) = &mut self.serving {
                serving.has_failed |= serving.groups.is_stopped();
            }
            return;
        }
        match report {
            Report::Written(end) if !on_commit => serving.tail = serving.tail.max(end),
            Report::Flushed(end) => serving.tail = serving.tail.max(end),
            Report::Failed(from, why) => {
                serving.next = from;
                serving.has_failed |= why != WriteFailure::Full;
            }
            Report::Written(_) => {}
        }
        self.checker.appended(serving.tail.0);
    }

    fn pools(&mut self) -> &mut [Pool] {
        self.serving
            .as_mut()
            .map_or(&mut [], |serving| serving.pools.as_mut_slice())
    }

    fn has_failed(&self) -> bool {
        self.serving
            .as_ref()
            .is_some_and(|serving| serving.has_failed)
    }

    fn stop(&mut self, machine: &mut Machine) {
        self.tell(machine, Input::Close);
    }

    fn gone(&mut self, machine: &mut Machine) -> Vec<Pool> {
        for asked in std::mem::take(&mut self.asked).into_values() {
            if let Asked::Ack(offsets) = asked {
                for offset in offsets {
                    self.checker.acked(offset, Settled::Unknown, machine.now.0);
                }
            }
        }
        self.checker.restarted();
        for worker in &mut self.workers {
            worker.is_polling = false;
            worker.connection = self.next_connection;
            self.next_connection += 1;
            // Some remember what they had and acknowledge it to whoever serves then.
            if machine.random.percent(50) {
                worker.holds.clear();
            }
        }
        self.serving
            .take()
            .map(|serving| serving.pools)
            .unwrap_or_default()
    }

    fn is_settled(&self) -> bool {
        let Some(serving) = &self.serving else {
            return true;
        };
        let totals = serving.groups.totals();
        self.asked.is_empty()
            && serving.tail == serving.next
            && (totals.groups == 1 || serving.tail == Offset::ZERO)
            && (totals.lag, totals.in_flight, totals.owed) == (0, 0, 0)
    }

    fn judge(&mut self, machine: &mut Machine) {
        let mut aside = Vec::new();
        let letters = Ask::Letters {
            group: group(),
            after: None,
            limit: 1_000,
            payloads: false,
        };
        let mut effects = Vec::new();
        if let Some(serving) = &mut self.serving {
            let (ticket, moment) = (Ticket(self.next_ticket), serving.moment(machine));
            let input = Input::Ask {
                ticket,
                ask: letters,
            };
            serving.groups.handle(moment, input, &mut effects);
            serving.groups.finish(&mut effects);
        }
        for effect in effects {
            if let Effect::Answer {
                answer: Answer::Letters { letters, .. },
                ..
            } = effect
            {
                aside.extend(letters.iter().map(|one| Aside {
                    offset: one.offset.0,
                    attempts: one.attempts,
                    at_ms: one.at.0,
                }));
            }
        }
        machine.tally.refused += aside.len() as u64;
        self.checker.finished(0, &aside);
        self.report(machine);
    }
}

impl Serving {
    fn moment(&self, machine: &Machine) -> Moment {
        Moment {
            now: clock(machine),
            wall: clock(machine),
            start: Offset::ZERO,
            tail: self.tail,
        }
    }
}

/// The clock of the groups: right, unless they are broken like this.
fn clock(machine: &Machine) -> TimeMs {
    if machine.plan.is(Twin::EarlyLapse) {
        TimeMs(machine.now.0 * 4)
    } else {
        machine.now
    }
}

fn group() -> GroupName {
    #[expect(clippy::expect_used, reason = "a name of a few letters")]
    GroupName::new("workers").expect("a name")
}

impl Workers {
    fn report(&mut self, machine: &mut Machine) {
        for broken in self.checker.take() {
            machine.findings.report(Check::Group, broken.to_string());
        }
    }

    /// One turn of the groups.
    fn tell(&mut self, machine: &mut Machine, input: Input) {
        let Some(serving) = &mut self.serving else {
            return;
        };
        let mut effects = Vec::new();
        let moment = serving.moment(machine);
        serving.groups.handle(moment, input, &mut effects);
        serving.groups.finish(&mut effects);
        for effect in effects {
            self.perform(machine, effect);
        }
        self.report(machine);
    }

    fn perform(&mut self, machine: &mut Machine, effect: Effect) {
        let Some(serving) = &mut self.serving else {
            return;
        };
        match effect {
            Effect::Write { batch, .. } => {
                if let Some(lane) = serving.pools.get_mut(1) {
                    lane.push(batch);
                }
            }
            Effect::Feed { feed, from } => {
                let new = Feed {
                    position: from,
                    is_pulled: false,
                    is_parked: false,
                };
                serving.feeds.insert(feed, new);
            }
            Effect::Pull { feed } => {
                if let Some(feed) = serving.feeds.get_mut(&feed) {
                    feed.is_pulled = true;
                    feed.is_parked = false;
                }
            }
            Effect::Unfeed { feed } => {
                serving.feeds.remove(&feed);
            }
            Effect::Read { read, wants, .. } => serving.reads.push((read, wants)),
            // Nothing is scheduled here.
            Effect::Append { .. } | Effect::Closed => {}
            Effect::Answer { ticket, answer } => self.answered(machine, ticket, answer),
        }
    }

    /// The lane gets a checkpoint, and later is compacted up to it.
    fn tend(&mut self, machine: &mut Machine) {
        let waiting = self.serving.as_mut().and_then(|one| one.keeping.take());
        let Some((keeping, until)) = waiting else {
            self.tell(machine, Input::Checkpoint);
            if let Some(serving) = &mut self.serving {
                let groups = &serving.groups;
                serving.keeping = Some((groups.keeping(), groups.lane_end()));
            }
            return;
        };
        let Some(serving) = &mut self.serving else {
            return;
        };
        if serving.lane.durable_end() < until {
            serving.keeping = Some((keeping, until));
            return;
        }
        let below = keeping.from;
        if let Some(lane) = serving.pools.get_mut(1) {
            let rolls = machine.random.percent(70);
            let gone = lane.compact(below, rolls, &mut Needed(keeping));
            machine.tally.trimmed += gone;
            machine
                .transcript
                .say(format_args!("lane compacted: {gone} records are gone"));
        }
    }

    fn publish(&mut self, machine: &mut Machine) {
        let count = machine.random.between(1, 4);
        let padding = machine.random.index(200);
        let time = i64::try_from(machine.now.0).unwrap_or(0);
        let Some(serving) = &mut self.serving else {
            return;
        };
        let mut builder = BatchBuilder::new(BatchOptions::default());
        for _ in 0..count {
            // A batch of four small records is within every limit.
            let _ = builder.push(time, None, Some(&vec![b'.'; padding]), &[]);
        }
        let Ok(mut log) = builder.finish() else {
            return;
        };
        patch(&mut log, serving.next, serving.generation);
        machine.tally.sent += count;
        serving.next = serving.next.plus(count);
        if let Some(data) = serving.pools.first_mut() {
            data.push(log.freeze());
        }
    }

    /// A cursor that was pulled gets the next batches, or hears that there are none.
    fn feed(&mut self, machine: &mut Machine) {
        let Some(serving) = &mut self.serving else {
            return;
        };
        let tail = serving.tail;
        for (id, feed) in &mut serving.feeds {
            if !feed.is_pulled {
                continue;
            }
            if feed.position >= tail {
                if !feed.is_parked {
                    feed.is_parked = true;
                    serving.inbox.push_back(Input::FeedParked { feed: *id });
                }
                continue;
            }
            machine.tally.pages += 1;
            let page = serving.data.read(feed.position, PAGE_BYTES, tail);
            let Some(page) = page.ok().and_then(|page| batches(page.batches)) else {
                // Unreadable just now: it is tried again.
                continue;
            };
            feed.position = page.last().map_or(tail, |last| last.end);
            feed.is_pulled = false;
            serving.inbox.push_back(Input::Fed {
                feed: *id,
                batches: page,
            });
        }
    }

    fn read(&mut self) {
        let Some(serving) = &mut self.serving else {
            return;
        };
        let Some((read, wants)) = serving.reads.pop() else {
            return;
        };
        let found = wants
            .into_iter()
            .map(|want| (want, found(serving, want)))
            .collect();
        serving.inbox.push_back(Input::Read { read, found });
    }

    fn work(&mut self, machine: &mut Machine, ending: bool) {
        let index = machine.random.index(self.workers.len());
        let Some(worker) = self.workers.get(index) else {
            return;
        };
        let has_work = !worker.holds.is_empty();
        match machine.random.below(10) {
            0..=4 if !worker.is_polling && (!ending || !has_work) => {
                self.poll(machine, index, ending);
            }
            5..=7 if has_work => self.acknowledge(machine, index),
            8 if has_work && !ending => self.give_back(machine, index),
            9 if !ending && machine.random.percent(20) => self.leave(machine, index),
            _ => {}
        }
    }

    fn ask(&mut self, machine: &mut Machine, asked: Asked, ask: Ask) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        machine
            .transcript
            .say(format_args!("ask {}: {ask:?}", ticket.0));
        self.asked.insert(ticket, asked);
        self.tell(machine, Input::Ask { ticket, ask });
    }

    fn poll(&mut self, machine: &mut Machine, index: usize, ending: bool) {
        let visibility_ms = machine.random.pick([20, 100, 400]);
        let Some(worker) = self.workers.get_mut(index) else {
            return;
        };
        worker.is_polling = true;
        let poll = Poll {
            group: group(),
            holder: Holder {
                connection: worker.connection,
                member: Some(index.to_be_bytes().as_slice().into()),
            },
            max_records: 1 + u32::try_from(machine.random.below(5)).unwrap_or(0),
            wait_ms: if ending {
                0
            } else {
                machine.random.pick([0, 30, 300])
            },
            visibility_ms,
            reclaim: machine.random.percent(10),
            record_bytes_max: 1 << 20,
            bytes_max: 1 << 20,
        };
        if poll.reclaim {
            self.checker.reclaims(index as u64);
        }
        let asked = Asked::Poll {
            worker: index,
            asked: self.checker.now(),
            at: machine.now,
            visibility_ms,
        };
        self.ask(machine, asked, Ask::Poll(poll));
    }

    fn acknowledge(&mut self, machine: &mut Machine, index: usize) {
        let Some(worker) = self.workers.get_mut(index) else {
            return;
        };
        let count = 1 + machine.random.index(worker.holds.len());
        let taken: Vec<(u64, u32)> = worker.holds.drain(..count).collect();
        if machine.strikes(Twin::DropAck, 20) {
            for (offset, _) in taken {
                self.checker.acked(offset, Settled::Done, machine.now.0);
            }
            return;
        }
        let asked = Asked::Ack(taken.iter().map(|(offset, _)| *offset).collect());
        self.ask(machine, asked, settle(Verb::Ack, &taken));
    }

    fn give_back(&mut self, machine: &mut Machine, index: usize) {
        let Some(worker) = self.workers.get_mut(index) else {
            return;
        };
        let at = machine.random.index(worker.holds.len());
        let taken = worker.holds.swap_remove(at);
        self.checker.given_back(taken.0);
        let delay_ms = machine.random.pick([0, 10, 200]);
        let ask = settle(Verb::Nack { delay_ms }, &[taken]);
        self.ask(machine, Asked::Other, ask);
    }

    /// A worker forgets everything and comes again on another connection.
    fn leave(&mut self, machine: &mut Machine, index: usize) {
        let polls = self.asked.iter().filter_map(|(ticket, asked)| match asked {
            Asked::Poll { worker, .. } if *worker == index => Some(*ticket),
            Asked::Poll { .. } | Asked::Ack(_) | Asked::Other => None,
        });
        for ticket in polls.collect::<Vec<_>>() {
            self.tell(machine, Input::Forget { ticket });
        }
        if let Some(worker) = self.workers.get_mut(index) {
            worker.connection = self.next_connection;
            self.next_connection += 1;
            worker.holds.clear();
        }
    }

    fn answered(&mut self, machine: &mut Machine, ticket: Ticket, answer: Answer) {
        machine
            .transcript
            .say(format_args!("answer {}: {answer:?}", ticket.0));
        let Some(asked) = self.asked.remove(&ticket) else {
            let what = format!("an answer that nobody waits for: {answer:?}");
            return machine.findings.report(Check::Liveness, what);
        };
        match (asked, answer) {
            (
                Asked::Poll {
                    worker,
                    asked,
                    at,
                    visibility_ms,
                },
                Answer::Records(deliveries),
            ) => {
                if let Some(worker) = self.workers.get_mut(worker) {
                    worker.is_polling = false;
                }
                let until_ms = at.plus(visibility_ms).0;
                self.handed_out(machine, worker, asked, until_ms, deliveries);
            }
            (Asked::Poll { worker, .. }, Answer::Refused(_)) => {
                if let Some(worker) = self.workers.get_mut(worker) {
                    worker.is_polling = false;
                }
            }
            (Asked::Ack(offsets), Answer::Settled(results)) => {
                for (offset, result) in offsets.into_iter().zip(results) {
                    let outcome = if result.is_ok() {
                        machine.tally.acked += 1;
                        Settled::Done
                    } else {
                        Settled::Refused
                    };
                    self.checker.acked(offset, outcome, machine.now.0);
                }
            }
            (Asked::Ack(offsets), Answer::Refused(refused)) => {
                // A close does not wait for what is on its way to the lane.
                let outcome =
                    if matches!(refused, GroupRefused::OutcomeUnknown | GroupRefused::Closed) {
                        Settled::Unknown
                    } else {
                        Settled::Refused
                    };
                for offset in offsets {
                    self.checker.acked(offset, outcome, machine.now.0);
                }
            }
            (Asked::Other, _) => {}
            (_, answer) => {
                let what = format!("an answer of another kind: {answer:?}");
                machine.findings.report(Check::Group, what);
            }
        }
    }

    fn handed_out(
        &mut self,
        machine: &mut Machine,
        index: usize,
        asked: u64,
        until_ms: u64,
        mut deliveries: Vec<Delivery>,
    ) {
        if machine.plan.is(Twin::BackToFront) {
            deliveries.reverse();
        }
        for delivery in deliveries {
            let offset = delivery.record.offset.0;
            let attempts = if machine.plan.is(Twin::FreshAttempts) {
                1
            } else {
                delivery.attempts
            };
            if machine.strikes(Twin::SkipRecord, 5) {
                let ask = settle(Verb::Ack, &[(offset, delivery.attempts)]);
                self.ask(machine, Asked::Other, ask);
                continue;
            }
            machine.tally.delivered += 1;
            self.checker.delivered(Delivered {
                consumer: index as u64,
                offset,
                attempts,
                asked,
                at_ms: machine.now.0,
                until_ms,
            });
            if let Some(worker) = self.workers.get_mut(index) {
                worker.holds.retain(|(held, _)| *held != offset);
                worker.holds.push((offset, delivery.attempts));
            }
        }
    }
}

/// What compaction of the lane may drop.
struct Needed(Keeping);

impl Keep for Needed {
    fn keep(&mut self, _: &BatchHeader, records: &[Record], stay: &mut Vec<bool>) {
        stay.extend(records.iter().map(|record| self.0.keeps(record.offset)));
    }
}

fn settle(verb: Verb, items: &[(u64, u32)]) -> Ask {
    let item = |&(offset, attempts): &(u64, u32)| Item {
        offset: Offset(offset),
        attempts,
    };
    Ask::Settle(Settle {
        group: group(),
        verb,
        items: items.iter().map(item).collect(),
        holder: None,
    })
}

fn found(serving: &Serving, want: Want) -> Found {
    let log = match want.place {
        Place::Data => &serving.data,
        Place::Lane => &serving.lane,
    };
    let Ok(record) = log.record(want.at) else {
        return Found::Unreadable;
    };
    let record = match want.place {
        Place::Data => record,
        Place::Lane => record.and_then(|record| Groups::kept(want.at, &record)),
    };
    record.map_or(Found::Nothing, Found::Record)
}
