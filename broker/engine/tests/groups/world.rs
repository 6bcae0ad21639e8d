//! A stream, a lane and a clock for the groups of one shard.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use felix_engine::groups::{
    Answer, Ask, Effect, FeedEnd, FeedId, Found, GroupName, GroupOptions, Groups, Holder, Input,
    Item, Moment, Place, Poll, Replay, ScheduleId, Settle, Ticket, Verb, Want, schedule_of,
};
use felix_engine::{Batch, CommitWhen};
use felix_model::{BatchBuilder, BatchOptions, Generation, Offset, Record, Records, TimeMs, patch};

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) options: GroupOptions,
    pub(crate) groups: Groups,
    pub(crate) now: u64,
    /// By how much the clock on the wall was set back.
    pub(crate) set_back: u64,
    /// Oldest offset of the stream.
    pub(crate) start: u64,
    /// Batches of the stream, by base offset.
    pub(crate) stream: BTreeMap<u64, Arc<Batch>>,
    pub(crate) tail: u64,
    /// Batches of the lane with their exclusive ends.
    pub(crate) lane: Vec<(Bytes, Offset)>,
    /// How many of them are committed.
    pub(crate) committed: usize,
    feeds: BTreeMap<FeedId, (u64, bool)>,
    /// What will be reported to the groups.
    pub(crate) inbox: VecDeque<Input>,
    pub(crate) answers: Vec<(Ticket, Answer)>,
    pub(crate) reads_fail: bool,
    /// Where the stream ended when it was recovered, if it was appended to since.
    pub(crate) cut: Option<Offset>,
    tickets: u64,
}

impl World {
    pub(crate) fn new(options: GroupOptions) -> Self {
        let moment = Moment {
            now: TimeMs(0),
            wall: TimeMs(0),
            start: Offset(0),
            tail: Offset(0),
        };
        Self {
            options,
            groups: Replay::new(options).finish(moment, Offset(0), &[]),
            now: 0,
            set_back: 0,
            start: 0,
            stream: BTreeMap::new(),
            tail: 0,
            lane: Vec::new(),
            committed: 0,
            feeds: BTreeMap::new(),
            inbox: VecDeque::new(),
            answers: Vec::new(),
            reads_fail: false,
            cut: None,
            tickets: 0,
        }
    }

    pub(crate) fn usual() -> Self {
        let mut options = GroupOptions::new(CommitWhen::Written);
        options.fire = CommitWhen::Written;
        Self::new(options)
    }

    fn moment(&self) -> Moment {
        Moment {
            now: TimeMs(self.now),
            wall: TimeMs(self.now.saturating_sub(self.set_back)),
            start: Offset(self.start),
            tail: Offset(self.tail),
        }
    }

    /// Appends a batch whose records are the payloads, after `hole` offsets that hold nothing.
    pub(crate) fn publish(&mut self, hole: u64, payloads: &[&[u8]]) {
        self.tail += hole;
        self.publish_with(&[], payloads);
    }

    /// Appends a batch whose records are the payloads, each with these headers.
    pub(crate) fn publish_with(&mut self, headers: &[(&[u8], Option<&[u8]>)], payloads: &[&[u8]]) {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        for payload in payloads {
            let time = i64::try_from(self.now).unwrap();
            builder.push(time, None, Some(payload), headers).unwrap();
        }
        let mut log = builder.finish().unwrap();
        patch(&mut log, Offset(self.tail), Generation(0));
        self.put(log.freeze());
        self.feed_parked();
    }

    fn put(&mut self, log: Bytes) {
        let batch = Arc::new(Batch::from_log(log).unwrap());
        self.tail = batch.end.0;
        self.stream.insert(batch.base.0, batch);
    }

    fn feed_parked(&mut self) {
        let parked: Vec<FeedId> = self
            .feeds
            .iter()
            .filter(|(_, (_, pulled))| *pulled)
            .map(|(&feed, _)| feed)
            .collect();
        for feed in parked {
            self.deliver(feed);
        }
    }

    /// One batch to a cursor that was pulled.
    fn deliver(&mut self, feed: FeedId) {
        let Some((position, pulled)) = self.feeds.get_mut(&feed) else {
            return;
        };
        if *position < self.start {
            let oldest = Offset(self.start);
            let why = FeedEnd::TooOld { oldest };
            self.feeds.remove(&feed);
            return self.inbox.push_back(Input::FeedEnded { feed, why });
        }
        let next = self
            .stream
            .values()
            .find(|batch| batch.end.0 > *position)
            .cloned();
        match next {
            Some(batch) => {
                *position = batch.end.0;
                *pulled = false;
                let batches = vec![batch];
                self.inbox.push_back(Input::Fed { feed, batches });
            }
            None => {
                if !*pulled {
                    self.inbox.push_back(Input::FeedParked { feed });
                }
                *pulled = true;
            }
        }
    }

    /// Retention removes whole batches below `start`.
    pub(crate) fn trim(&mut self, start: u64) {
        self.start = start.max(self.start);
        self.stream.retain(|_, batch| batch.end.0 > start);
    }

    /// Hands one input in as a turn of its own.
    pub(crate) fn turn(&mut self, input: Input) {
        let mut effects = Vec::new();
        let moment = self.moment();
        self.groups.handle(moment, input, &mut effects);
        self.groups.finish(&mut effects);
        for effect in effects {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Write { batch, end } => {
                felix_model::verify(&batch).unwrap();
                self.lane.push((batch, end));
            }
            Effect::Answer { ticket, answer } => self.answers.push((ticket, answer)),
            Effect::Feed { feed, from } => {
                self.feeds.insert(feed, (from.0, false));
            }
            Effect::Pull { feed } => self.deliver(feed),
            Effect::Unfeed { feed } => {
                self.feeds.remove(&feed);
            }
            Effect::Read { read, wants, .. } => {
                let found = wants
                    .into_iter()
                    .map(|want| (want, self.find(want)))
                    .collect();
                self.inbox.push_back(Input::Read { read, found });
            }
            Effect::Append { id, mut batch } => {
                patch(&mut batch, Offset(self.tail), Generation(0));
                self.put(batch.freeze());
                self.feed_parked();
                let outcome = Ok(());
                self.inbox.push_back(Input::Appended { id, outcome });
            }
            Effect::Closed => {}
        }
    }

    fn find(&self, want: Want) -> Found {
        if self.reads_fail {
            return Found::Unreadable;
        }
        let batches: Vec<Bytes> = match want.place {
            Place::Data => self
                .stream
                .values()
                .filter_map(|batch| batch.log().cloned())
                .collect(),
            Place::Lane => self.lane.iter().map(|(batch, _)| batch.clone()).collect(),
        };
        let found = batches
            .iter()
            .flat_map(|batch| Records::new(batch).unwrap().map(Result::unwrap))
            .find(|record| record.offset == want.at);
        let found = match want.place {
            Place::Data => found,
            Place::Lane => found.and_then(|record| Groups::kept(want.at, &record)),
        };
        found.map_or(Found::Nothing, Found::Record)
    }

    /// Reports one thing that is due to be reported. `false`: there was none.
    pub(crate) fn report(&mut self) -> bool {
        match self.inbox.pop_front() {
            Some(input) => {
                self.turn(input);
                true
            }
            None => false,
        }
    }

    /// The lane writes its next batch.
    pub(crate) fn commit_one(&mut self) -> bool {
        let Some((_, end)) = self.lane.get(self.committed) else {
            return false;
        };
        let end = *end;
        self.committed += 1;
        self.turn(Input::LaneWritten { end });
        true
    }

    /// Lets everything that is under way come to its end.
    pub(crate) fn settle(&mut self) {
        while self.report() || self.commit_one() {}
    }

    /// Moves the clock and lets what is due happen.
    pub(crate) fn at(&mut self, now: u64) {
        self.now = now.max(self.now);
        while let Some(due) = self.next_timeout()
            && due <= self.now
        {
            self.turn(Input::Timeout);
            self.settle();
            if self.next_timeout() == Some(due) {
                break;
            }
        }
    }

    fn next_timeout(&self) -> Option<u64> {
        let timeout = self.groups.next_timeout().map(|due| due.0);
        let schedule = self.groups.next_schedule();
        let schedule = schedule.map(|due| due.0 + self.set_back);
        timeout.into_iter().chain(schedule).min()
    }

    /// The process dies: of the lane, everything committed and perhaps some of what was to be written remains.
    pub(crate) fn crash(&mut self, beyond: usize) {
        let keep = (self.committed + beyond).min(self.lane.len());
        self.lane.truncate(keep);
        self.committed = keep;
        self.feeds.clear();
        self.inbox.clear();
        let mut replay = Replay::new(self.options);
        if let Some(end) = self.cut.take() {
            replay.cut(end);
        }
        for (batch, _) in &self.lane {
            replay.batch(batch).unwrap();
        }
        let appended: Vec<ScheduleId> = replay
            .in_doubt()
            .into_iter()
            .filter(|doubt| {
                self.records().any(|record| {
                    record.offset >= doubt.from
                        && schedule_of(&record).as_deref() == Some(doubt.id.as_bytes())
                })
            })
            .map(|doubt| doubt.id)
            .collect();
        let end = self.lane.last().map_or(Offset(0), |(_, end)| *end);
        self.groups = replay.finish(self.moment(), end, &appended);
        self.turn(Input::Timeout);
    }

    /// Writes a checkpoint and drops the batches of the lane that nothing needs after it.
    pub(crate) fn compact(&mut self) {
        self.settle();
        self.turn(Input::Checkpoint);
        self.settle();
        let keeping = self.groups.keeping();
        self.lane.retain(|(batch, _)| {
            let mut records = Records::new(batch).unwrap().map(Result::unwrap);
            records.any(|record| keeping.keeps(record.offset))
        });
        self.committed = self.lane.len();
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.stream
            .values()
            .filter_map(|batch| batch.log().cloned())
            .flat_map(|log| Records::new(&log).unwrap().map(Result::unwrap))
    }

    pub(crate) fn ask(&mut self, ask: Ask) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.turn(Input::Ask { ticket, ask });
        ticket
    }

    /// The answer to a question, once everything under way has come to its end.
    pub(crate) fn asked(&mut self, ask: Ask) -> Answer {
        let ticket = self.ask(ask);
        self.settle();
        self.taken(ticket)
            .unwrap_or_else(|| panic!("no answer to {ticket:?}"))
    }

    pub(crate) fn taken(&mut self, ticket: Ticket) -> Option<Answer> {
        let place = self.answers.iter().position(|(of, _)| *of == ticket)?;
        Some(self.answers.remove(place).1)
    }
}

pub(crate) fn name(group: &str) -> GroupName {
    GroupName::new(group).unwrap()
}

pub(crate) fn holder(connection: u64, member: Option<&str>) -> Holder {
    Holder {
        connection,
        member: member.map(|member| member.as_bytes().into()),
    }
}

pub(crate) fn poll(group: &str, holder: Holder, max_records: u32) -> Poll {
    Poll {
        group: name(group),
        holder,
        max_records,
        wait_ms: 0,
        visibility_ms: 0,
        reclaim: false,
        bytes_max: 0,
        record_bytes_max: 1 << 20,
    }
}

pub(crate) fn settle(group: &str, verb: Verb, offsets: &[(u64, u32)]) -> Ask {
    let items = offsets
        .iter()
        .map(|&(offset, attempts)| Item {
            offset: Offset(offset),
            attempts,
        })
        .collect();
    Ask::Settle(Settle {
        group: name(group),
        verb,
        items,
        holder: None,
    })
}
