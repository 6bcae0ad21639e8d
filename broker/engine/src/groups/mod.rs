//! The consumer groups of one shard, and the records scheduled for it, as a state machine.
//!
//! A group is a position that several workers share. It hands out records, remembers who has which until when, and
//! moves on as they are finished. What a restart must not forget is written to the *lane*, a log beside the stream's,
//! before anybody is answered: what was handed out and how often, what was finished, what was set aside with its
//! bytes. Claims live in memory: after a restart their records are owed at once, with the attempts they had.
//!
//! [`Groups::handle`] takes one [`Input`] and pushes the [`Effect`]s that follow; [`Groups::finish`] ends a turn and
//! hands over what the turn has for the lane as one batch. Answers leave when everything decided before them is
//! committed there. `fold.rs` is what is remembered and how changes change it, live and in replay alike; `serve.rs`
//! hands out, `settle.rs` takes back, `lane.rs` draws what is written, `schedule.rs` appends records at their time.
//!
//! The promises: what was acknowledged is never handed out again; what was not always is, or is set aside; nobody
//! gets a record more often than the attempts allow; first deliveries come in the order of offsets; a record that
//! nobody can process does not hold up those behind it; nothing is skipped but what retention took, with a count.

mod ask;
mod core;
mod feed;
mod fold;
mod group;
mod io;
mod lane;
mod letters;
pub mod limits;
mod ranges;
mod replay;
mod schedule;
mod serve;
mod settle;

use std::collections::BTreeMap;

use felix_model::{Generation, Offset, TimeMs};

pub use ask::{
    Answer, Ask, BadGroupName, Delivery, Description, GroupName, GroupRefused, Holder, Item,
    LetterView, Poll, ScheduleId, ScheduleView, SeekTo, Settle, SettleRefused, Ticket, Verb, Which,
};
pub use io::{Effect, FeedEnd, FeedId, Found, Input, Moment, Place, ReadId, Want};
pub use lane::LaneRefused;
pub use replay::{Keeping, Replay};
pub use schedule::{InDoubt, SCHEDULE_HEADER, schedule_of};
pub use serve::carried_bytes;

use self::core::{Core, GroupId, Reading, Timer, Waiting};
use self::fold::Fold;
use self::group::Group;
use self::lane::Change;
use self::schedule::Schedules;
use crate::options::CommitWhen;
use crate::refused::WriteFailure;

/// What the groups of a shard are opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupOptions {
    /// What commits a batch of the lane: as the stream has it.
    pub commit: CommitWhen,
    /// What must have happened to a schedule's mark before its record is appended. `Flushed`, unless the stream never
    /// flushes: only then is the record there once also after a power cut.
    pub fire: CommitWhen,
    /// Written into every batch of the lane.
    pub generation: Generation,
    /// How often a record is handed out before it is set aside.
    pub attempts_max: u32,
    /// How long a claim lasts when nothing else is said, in milliseconds.
    pub visibility_ms: u64,
}

impl GroupOptions {
    /// The usual, for a stream that commits so.
    pub fn new(commit: CommitWhen) -> Self {
        Self {
            commit,
            fire: CommitWhen::Flushed,
            generation: Generation::ZERO,
            attempts_max: limits::ATTEMPTS_MAX,
            visibility_ms: limits::VISIBILITY_MS,
        }
    }
}

/// Sums over the groups of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Groups.
    pub groups: u64,
    /// Offsets up to the tail that are not finished, of all groups together.
    pub lag: u64,
    /// Records out on a claim.
    pub in_flight: u64,
    /// Records waiting to be handed out again.
    pub owed: u64,
    /// Records set aside.
    pub dead_letters: u64,
    /// Polls that wait.
    pub waiting: u64,
    /// Owed records that retention took away.
    pub trimmed: u64,
    /// Records scheduled.
    pub schedules: u64,
}

/// The groups of one shard.
#[derive(Debug)]
pub struct Groups {
    core: Core,
    groups: BTreeMap<GroupId, Group>,
    names: BTreeMap<GroupName, GroupId>,
    schedules: Schedules,
    /// Where the newest checkpoint is in the lane.
    checkpoint: u64,
    /// When cursors that nobody uses are looked for next.
    idle_at: TimeMs,
    stopped: Option<GroupRefused>,
}

impl Groups {
    /// Advances by one input and pushes what must be done. Call [`Self::finish`] before the effects are carried out.
    pub fn handle(&mut self, moment: Moment, input: Input, effects: &mut Vec<Effect>) {
        // What recovery decided comes first.
        effects.append(&mut self.core.effects);
        self.core.effects = std::mem::take(effects);
        self.core.observe(moment);
        self.advance(input);
        if self.core.crowded && self.stopped.is_none() {
            self.share();
        }
        *effects = std::mem::take(&mut self.core.effects);
    }

    /// Ends a turn: what its inputs have for the lane becomes one batch.
    pub fn finish(&mut self, effects: &mut Vec<Effect>) {
        if self.stopped.is_none() {
            self.core.lane.finish(effects);
        }
    }

    /// When [`Input::Timeout`] is due by [`Moment::now`], if nothing else happens before.
    pub fn next_timeout(&self) -> Option<TimeMs> {
        if self.stopped.is_some() {
            return None;
        }
        let idle = (!self.core.feeds.is_empty()).then_some(self.idle_at);
        let times = [self.core.next_timer(), idle];
        times.into_iter().flatten().min()
    }

    /// When [`Input::Timeout`] is due by [`Moment::wall`], if nothing else happens before.
    pub fn next_schedule(&self) -> Option<TimeMs> {
        if self.stopped.is_some() {
            return None;
        }
        self.schedules.next_due()
    }

    /// Whether the lane failed, and the groups must be opened anew from it.
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// The end of what the lane has, or is about to have. Exclusive.
    pub fn lane_end(&self) -> Offset {
        Offset(self.core.lane.end())
    }

    /// Sums over all groups.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals {
            groups: self.groups.len() as u64,
            schedules: self.schedules.len() as u64,
            ..Totals::default()
        };
        for group in self.groups.values() {
            let description = group.describe(&self.core);
            totals.lag += description.lag;
            totals.in_flight += description.in_flight;
            totals.owed += description.owed;
            totals.dead_letters += description.dead_letters;
            totals.waiting += description.waiting;
            totals.trimmed += description.trimmed;
        }
        totals
    }

    /// Every group, by name.
    pub fn descriptions(&self) -> impl Iterator<Item = Description> + '_ {
        self.names
            .values()
            .filter_map(|id| self.groups.get(id))
            .map(|group| group.describe(&self.core))
    }

    fn advance(&mut self, input: Input) {
        if let Some(refused) = self.stopped {
            return self.advance_stopped(&input, refused);
        }
        match input {
            Input::Ask { ticket, ask } => self.ask(ticket, ask),
            Input::Forget { ticket } => self.stop_waiting(ticket),
            Input::Fed { feed, batches } => {
                if let Some(group) = self.fed(feed)
                    && let Some(group) = self.groups.get_mut(&group)
                {
                    if let Some(feed) = &mut group.feed {
                        feed.push(batches);
                    }
                    group.serve(&mut self.core);
                }
            }
            Input::FeedParked { feed } => {
                if let Some(group) = self.fed(feed)
                    && let Some(group) = self.groups.get_mut(&group)
                {
                    group.parked(&mut self.core);
                }
            }
            Input::FeedEnded { feed, why } => {
                if let Some(group) = self.fed(feed)
                    && let Some(group) = self.groups.get_mut(&group)
                {
                    group.feed_ended(&mut self.core, why);
                }
            }
            Input::Read { read, found } => self.was_read(read, found),
            Input::LaneWritten { end } => {
                self.core.written(end);
                self.send_due();
            }
            Input::LaneFlushed { end } => {
                self.core.flush(end);
                self.send_due();
            }
            Input::LaneFailed { why } => self.stop(match why {
                WriteFailure::Full => GroupRefused::StorageFull,
                WriteFailure::Io | WriteFailure::Poisoned => GroupRefused::OutcomeUnknown,
            }),
            Input::Appended { id, outcome } => {
                self.schedules.appended(&mut self.core, id, outcome);
            }
            Input::Timeout => self.timeout(),
            Input::Checkpoint => self.write_checkpoint(),
            Input::Close => {
                self.stop(GroupRefused::Closed);
                self.core.effects.push(Effect::Closed);
            }
        }
    }

    /// Nothing is decided any more; whoever asks is refused.
    fn advance_stopped(&mut self, input: &Input, refused: GroupRefused) {
        match input {
            Input::Ask { ticket, .. } => {
                let (ticket, answer) = (*ticket, Answer::Refused(refused.untouched()));
                self.core.effects.push(Effect::Answer { ticket, answer });
            }
            Input::Close => self.core.effects.push(Effect::Closed),
            Input::Forget { .. }
            | Input::Fed { .. }
            | Input::FeedParked { .. }
            | Input::FeedEnded { .. }
            | Input::Read { .. }
            | Input::LaneWritten { .. }
            | Input::LaneFlushed { .. }
            | Input::LaneFailed { .. }
            | Input::Appended { .. }
            | Input::Timeout
            | Input::Checkpoint => {}
        }
    }

    /// The shard is full, and polls of some group wait for what another has: each group has its turn, from the one after
    /// that which was served last, so that none takes back what it finishes before the others were asked.
    fn share(&mut self) {
        self.core.crowded = false;
        let waiting = |(id, group): (&GroupId, &Group)| (!group.waiting.is_empty()).then_some(*id);
        let mut turns: Vec<GroupId> = self.groups.iter().filter_map(waiting).collect();
        let last = self.core.last;
        let after = turns.partition_point(|id| *id <= last);
        turns.rotate_left(after);
        let mut crowded = false;
        for id in turns {
            let Some(group) = self.groups.get_mut(&id) else {
                continue;
            };
            group.serve(&mut self.core);
            group.dismiss(&mut self.core);
            crowded |= std::mem::take(&mut self.core.crowded);
        }
        self.core.crowded = crowded;
    }

    fn fed(&self, feed: FeedId) -> Option<GroupId> {
        self.core.feeds.get(&feed).copied()
    }

    fn stop(&mut self, refused: GroupRefused) {
        self.stopped = Some(refused);
        for group in self.groups.values_mut() {
            group.drop_feed(&mut self.core);
        }
        // What is in the lane's inbox may still be written; whoever waits for it cannot be told that it was.
        self.core.refuse_held(refused);
        let refused = refused.untouched();
        for (ticket, _) in std::mem::take(&mut self.core.polls) {
            // A poll that waited when the shard closed was in vain: whoever asks again hears where the shard is.
            let answer = if refused == GroupRefused::Closed {
                Answer::Records(Vec::new())
            } else {
                Answer::Refused(refused)
            };
            self.core.effects.push(Effect::Answer { ticket, answer });
        }
        for (_, reading) in std::mem::take(&mut self.core.reads) {
            if let Reading::Letters { ticket, .. } | Reading::Schedules { ticket, .. } = reading {
                let answer = Answer::Refused(refused);
                self.core.effects.push(Effect::Answer { ticket, answer });
            }
        }
    }

    fn ask(&mut self, ticket: Ticket, ask: Ask) {
        match ask {
            Ask::Poll(poll) => self.poll(ticket, poll),
            Ask::Settle(settle) => {
                let count = settle.items.len();
                if count > limits::MOVED_MAX {
                    return self.refuse(ticket, too_many(count));
                }
                let name = settle.group.clone();
                self.with_group(ticket, &name, |group, core| {
                    group.settle(core, ticket, settle);
                });
            }
            Ask::Letters {
                group,
                after,
                limit,
                payloads,
            } => match self.find(&group) {
                Some((group, core)) => group.list_letters(core, ticket, after, limit, payloads),
                None => {
                    let (letters, more) = (Vec::new(), false);
                    self.core.answer(ticket, Answer::Letters { letters, more });
                }
            },
            Ask::Redrive { group, which } | Ask::Discard { group, which }
                if which.len() > limits::MOVED_MAX =>
            {
                let _ = group;
                self.refuse(ticket, too_many(which.len()));
            }
            Ask::Redrive { group, which } => match self.find(&group) {
                Some((group, core)) => group.redrive(core, ticket, &which),
                None => self.no_letters(ticket, &which),
            },
            Ask::Discard { group, which } => match self.find(&group) {
                Some((group, core)) => group.discard(core, ticket, &which),
                None => self.no_letters(ticket, &which),
            },
            Ask::Seek { group, to, if_new } => self.seek(ticket, &group, to, if_new),
            Ask::Describe { group } => {
                let description = match self.find(&group) {
                    Some((group, core)) => group.describe(core),
                    None => self.unknown(group),
                };
                self.core.answer(ticket, Answer::Description(description));
            }
            Ask::Delete { group } => self.delete(ticket, &group),
            Ask::List { after, limit } => self.list(ticket, after.as_ref(), limit),
            Ask::Schedule { id, due, batch } => {
                self.schedules.add(&mut self.core, ticket, id, due, batch);
            }
            Ask::Cancel { id } => self.schedules.cancel(&mut self.core, ticket, &id),
            Ask::Schedules {
                after,
                limit,
                records,
            } => {
                self.schedules
                    .list(&mut self.core, ticket, after, limit, records);
            }
        }
    }

    fn refuse(&mut self, ticket: Ticket, refused: GroupRefused) {
        self.core.answer(ticket, Answer::Refused(refused));
    }

    fn no_letters(&mut self, ticket: Ticket, which: &Which) {
        let missing = match which {
            Which::These(offsets) => offsets.clone(),
            Which::All => Vec::new(),
        };
        let (count, left) = (0, 0);
        let answer = Answer::Moved {
            count,
            left,
            missing,
        };
        self.core.answer(ticket, answer);
    }

    fn find(&mut self, name: &GroupName) -> Option<(&mut Group, &mut Core)> {
        let group = self.groups.get_mut(self.names.get(name)?)?;
        Some((group, &mut self.core))
    }

    /// Carries something out with a group, which is made if it is not there.
    fn with_group(
        &mut self,
        ticket: Ticket,
        name: &GroupName,
        act: impl FnOnce(&mut Group, &mut Core),
    ) {
        match self.make(name) {
            Ok(id) => {
                if let Some(group) = self.groups.get_mut(&id) {
                    act(group, &mut self.core);
                }
            }
            Err(refused) => self.refuse(ticket, refused),
        }
    }

    fn make(&mut self, name: &GroupName) -> Result<GroupId, GroupRefused> {
        if let Some(id) = self.names.get(name) {
            return Ok(*id);
        }
        let limit = limits::GROUPS_MAX;
        if self.groups.len() >= limit {
            self.forget_empty(TimeMs(u64::MAX));
        }
        if self.groups.len() >= limit {
            return Err(GroupRefused::TooManyGroups { limit });
        }
        let id = GroupId(self.core.name());
        let group = Group::new(id, name.clone(), Fold::default(), &self.core);
        self.groups.insert(id, group);
        self.names.insert(name.clone(), id);
        Ok(id)
    }

    fn poll(&mut self, ticket: Ticket, poll: Poll) {
        let limit = limits::POLLS_MAX;
        if self.core.polls.len() >= limit {
            return self.refuse(ticket, GroupRefused::TooManyPolls { limit });
        }
        let name = poll.group.clone();
        let deadline = self.core.now();
        let waiting = Waiting {
            ticket,
            poll,
            deadline,
        };
        self.with_group(ticket, &name, |group, core| group.poll(core, waiting));
    }

    fn seek(&mut self, ticket: Ticket, name: &GroupName, to: SeekTo, if_new: bool) {
        let Moment { start, tail, .. } = self.core.moment;
        let to = match to {
            SeekTo::Earliest => start,
            SeekTo::Latest => tail,
            SeekTo::Offset(offset) if offset < start || offset > tail => {
                let oldest = start;
                return self.refuse(
                    ticket,
                    GroupRefused::OutOfRange {
                        offset,
                        oldest,
                        tail,
                    },
                );
            }
            SeekTo::Offset(offset) => offset,
        };
        self.with_group(ticket, name, |group, core| {
            group.used = core.now();
            if if_new && (group.fold.persisted || !group.fold.open.is_empty()) {
                let offset = Offset(group.fold.position());
                let moved = false;
                return core.answer(ticket, Answer::Position { offset, moved });
            }
            group.void(core);
            group.commit(core, &Change::Moved { to: to.0 });
            let moved = true;
            core.answer(ticket, Answer::Position { offset: to, moved });
            group.serve(core);
        });
    }

    fn delete(&mut self, ticket: Ticket, name: &GroupName) {
        let mut existed = false;
        if let Some(id) = self.names.remove(name)
            && let Some(mut group) = self.groups.remove(&id)
        {
            let core = &mut self.core;
            existed = group.fold.persisted || !group.fold.open.is_empty();
            group.void(core);
            for waiting in std::mem::take(&mut group.waiting) {
                group.answer_empty(core, &waiting);
            }
            if group.fold.persisted {
                group.commit(core, &Change::Deleted);
            }
        }
        self.core.answer(ticket, Answer::Deleted { existed });
    }

    fn list(&mut self, ticket: Ticket, after: Option<&GroupName>, limit: u32) {
        use std::ops::Bound;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut left = self.names.range((from, Bound::Unbounded));
        let limit = limit.clamp(1, limits::PAGE_MAX) as usize;
        let groups = left
            .by_ref()
            .take(limit)
            .filter_map(|(_, id)| self.groups.get(id))
            .map(|group| group.describe(&self.core))
            .collect();
        let more = left.next().is_some();
        self.core.answer(ticket, Answer::Listed { groups, more });
    }

    fn unknown(&self, group: GroupName) -> Description {
        let id = GroupId(0);
        Group::new(id, group, Fold::default(), &self.core).describe(&self.core)
    }

    fn stop_waiting(&mut self, ticket: Ticket) {
        if let Some(id) = self.core.polls.get(&ticket)
            && let Some(group) = self.groups.get_mut(id)
        {
            group.stop_waiting(&mut self.core, ticket);
        }
    }

    fn was_read(&mut self, read: ReadId, found: Vec<(Want, Found)>) {
        // A read that nobody remembers was for claims that were voided.
        match self.core.reads.remove(&read) {
            Some(Reading::Poll {
                group,
                waiting,
                offsets,
            }) => {
                if let Some(group) = self.groups.get_mut(&group) {
                    group.fetched(&mut self.core, read, waiting, &offsets, found);
                }
            }
            Some(Reading::Bury { group, burials }) => {
                if let Some(group) = self.groups.get_mut(&group) {
                    group.buried(&mut self.core, burials, found);
                }
            }
            Some(Reading::Letters {
                ticket,
                letters,
                more,
            }) => {
                let page = letters::page(letters, found, more);
                self.core.answer(ticket, page);
            }
            Some(Reading::Schedules {
                ticket,
                schedules,
                more,
            }) => {
                let page = schedule::page(schedules, found, more);
                self.core.answer(ticket, page);
            }
            Some(Reading::Schedule(id)) => {
                let found = found.into_iter().next().map(|(_, found)| found);
                self.schedules.was_read(&mut self.core, &id, found);
            }
            None => {}
        }
    }

    fn send_due(&mut self) {
        if self.schedules.is_firing() {
            self.schedules.send(&mut self.core);
        }
    }

    fn timeout(&mut self) {
        while let Some(timer) = self.core.take_due() {
            match timer {
                Timer::Lapse(lease) => {
                    if let Some((group, offsets)) = self.core.lapsed(lease)
                        && let Some(group) = self.groups.get_mut(&group)
                    {
                        group.lapse(&mut self.core, lease, offsets);
                    }
                }
                Timer::Wait(group, ticket) => {
                    if let Some(group) = self.groups.get_mut(&group) {
                        group.stop_waiting(&mut self.core, ticket);
                    }
                }
                Timer::Rest(group, offset) => {
                    if let Some(group) = self.groups.get_mut(&group) {
                        group.rested(&mut self.core, offset);
                    }
                }
            }
        }
        self.schedules.fire(&mut self.core);
        let now = self.core.now();
        if now >= self.idle_at {
            self.idle_at = now.plus(limits::IDLE_MS / 10);
            self.let_go(now);
        }
    }

    /// Takes away the cursors that nobody used for long, and groups that never were anything.
    fn let_go(&mut self, now: TimeMs) {
        for group in self.groups.values_mut() {
            let idle = now.since(group.used) >= limits::IDLE_MS && group.waiting.is_empty();
            if idle {
                group.drop_feed(&mut self.core);
            }
        }
        self.forget_empty(now);
    }

    fn forget_empty(&mut self, now: TimeMs) {
        let groups = &mut self.groups;
        let core = &mut self.core;
        self.names.retain(|_, id| {
            let Some(group) = groups.get_mut(id) else {
                return false;
            };
            let keep = !group.is_empty() || now.since(group.used) < limits::IDLE_MS;
            if !keep {
                group.drop_feed(core);
                groups.remove(id);
            }
            keep
        });
    }
}

impl Which {
    fn len(&self) -> usize {
        match self {
            Self::These(offsets) => offsets.len(),
            Self::All => 0,
        }
    }
}

fn too_many(count: usize) -> GroupRefused {
    let limit = limits::MOVED_MAX;
    GroupRefused::TooMany { count, limit }
}
