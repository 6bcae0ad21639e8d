//! One group as it is served: what is remembered of it, and what is in memory beside that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use felix_model::{Offset, TimeMs};

use super::ask::{Answer, Description, GroupName, SettleRefused};
use super::core::{Burial, Core, GroupId, LeaseId, Reading, Timer, Waiting};
use super::feed::Feed;
use super::fold::{Fold, State};
use super::io::Effect;
use super::lane::Change;
use super::limits;
use super::ranges::Run;

/// One group of a shard.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) id: GroupId,
    pub(super) name: GroupName,
    pub(super) fold: Fold,
    /// Open records that can be handed out at once.
    pub(super) owed: BTreeSet<u64>,
    /// Open records on a claim.
    pub(super) claimed: usize,
    /// Acks below it are taken even of what this state did not hand out: an earlier one may have.
    pub(super) inherited: u64,
    /// Owed records that retention took.
    pub(super) trimmed: u64,
    /// Offsets that retention took before anybody got them, to be told with the next record handed out first.
    pub(super) skipped: u64,
    /// Below it the stream's log is known to hold nothing.
    trimmed_below: u64,
    pub(super) waiting: VecDeque<Waiting>,
    pub(super) feed: Option<Feed>,
    /// The newest connection on which a member took over his earlier claims.
    pub(super) reclaimed: BTreeMap<Arc<[u8]>, u64>,
    /// When somebody last asked.
    pub(super) used: TimeMs,
}

impl Group {
    pub(super) fn new(id: GroupId, name: GroupName, fold: Fold, core: &Core) -> Self {
        Self {
            id,
            name,
            fold,
            owed: BTreeSet::new(),
            claimed: 0,
            inherited: core.moment.tail.0,
            trimmed: 0,
            skipped: 0,
            trimmed_below: 0,
            waiting: VecDeque::new(),
            feed: None,
            reclaimed: BTreeMap::new(),
            used: core.now(),
        }
    }

    /// After a restart: everything open is owed, or rests.
    pub(super) fn restore(&mut self, core: &mut Core) {
        core.open += self.fold.open.len();
        let mut owed = Vec::new();
        // By a clock that was ahead when it was written it would rest longer than anybody can ask for.
        let latest = core.now().plus(limits::DELAY_MS_MAX);
        for (&offset, open) in &mut self.fold.open {
            match &mut open.state {
                State::Resting(due) => {
                    *due = (*due).min(latest);
                    core.set_timer(*due, Timer::Rest(self.id, offset));
                }
                State::Owed | State::Fetching(_) | State::Claimed(_) | State::Burying => {
                    owed.push(offset);
                }
            }
        }
        self.owe(core, owed);
    }

    /// Decides a change: it goes into the lane and is what holds from here on. Whatever is in memory about the records
    /// that it takes away must be undone before, with [`Self::leave`].
    pub(super) fn commit(&mut self, core: &mut Core, change: &Change) {
        let before = self.fold.open.len();
        let now = core.now();
        let key = self.name.as_str().as_bytes();
        let at = core.lane.push_change(now, key, change, &mut core.effects);
        self.fold.apply(change, at);
        core.open = (core.open + self.fold.open.len()).saturating_sub(before);
    }

    /// Takes an open record out of whatever it is in: what is owed, what rests, or a claim.
    pub(super) fn leave(&mut self, core: &mut Core, offset: u64) {
        let Some(open) = self.fold.open.get_mut(&offset) else {
            return;
        };
        match std::mem::replace(&mut open.state, State::Owed) {
            State::Owed => {
                self.owed.remove(&offset);
            }
            State::Resting(due) => core.clear_timer(due, Timer::Rest(self.id, offset)),
            State::Claimed(lease) => self.unclaim(core, lease),
            State::Fetching(_) | State::Burying => {}
        }
    }

    fn unclaim(&mut self, core: &mut Core, lease: LeaseId) {
        self.claimed = self.claimed.saturating_sub(1);
        core.release(lease);
    }

    /// Makes open records owed; poison among them is set aside.
    pub(super) fn owe(&mut self, core: &mut Core, offsets: impl IntoIterator<Item = u64>) {
        let limit = core.options.attempts_max;
        let is_full = self.fold.letters.len() >= limits::LETTERS_MAX;
        let mut burials = Vec::new();
        let mut later = Vec::new();
        for offset in offsets {
            let Some(open) = self.fold.open.get_mut(&offset) else {
                continue;
            };
            if open.attempts >= limit && is_full {
                later.push(offset);
            } else if open.attempts >= limit {
                burials.push(Burial {
                    offset,
                    reason: attempts_reason(open.attempts),
                    told: None,
                });
            } else {
                open.state = State::Owed;
                self.owed.insert(offset);
            }
        }
        self.bury(core, burials);
        // There is no room to set them aside, so there is no use in reading them.
        let due = core.now().plus(limits::BURY_AGAIN_MS);
        for offset in later {
            self.rest(core, offset, due);
        }
    }

    /// Lets an open record rest until `due`.
    pub(super) fn rest(&mut self, core: &mut Core, offset: u64, due: TimeMs) {
        if let Some(open) = self.fold.open.get_mut(&offset) {
            open.state = State::Resting(due);
            core.set_timer(due, Timer::Rest(self.id, offset));
        }
    }

    /// A record has rested.
    pub(super) fn rested(&mut self, core: &mut Core, offset: u64) {
        let open = self.fold.open.get(&offset);
        if open.is_some_and(|open| matches!(open.state, State::Resting(_))) {
            self.owe(core, [offset]);
            self.serve(core);
        }
    }

    /// The claims of a delivery have lapsed.
    pub(super) fn lapse(&mut self, core: &mut Core, lease: LeaseId, offsets: Vec<u64>) {
        let mut lapsed = Vec::with_capacity(offsets.len());
        for offset in offsets {
            let claimed = State::Claimed(lease);
            if self.fold.open.get(&offset).map(|open| open.state) == Some(claimed) {
                self.leave(core, offset);
                lapsed.push(offset);
            }
        }
        self.owe(core, lapsed);
        self.serve(core);
    }

    /// Finishes open records, ascending.
    pub(super) fn finish(&mut self, core: &mut Core, runs: Vec<Run>) {
        if runs.is_empty() {
            return;
        }
        for offset in runs.iter().copied().flat_map(Run::offsets) {
            self.leave(core, offset);
        }
        self.commit(core, &Change::Finished(runs));
    }

    /// Takes note of what retention took away.
    pub(super) fn trim(&mut self, core: &mut Core) {
        let below = core.moment.start.0;
        if below <= self.trimmed_below {
            return;
        }
        self.trimmed_below = below;
        let lost: Vec<u64> = self.fold.lost_below(below).collect();
        if lost.is_empty() && self.fold.next >= below {
            return;
        }
        self.trimmed += lost.len() as u64;
        for offset in lost {
            self.leave(core, offset);
        }
        // A group that never was anywhere begins at the start, and has lost nothing.
        if self.fold.persisted {
            let never = self.never_handed_out(below);
            self.trimmed += never;
            self.skipped += never;
            self.commit(core, &Change::Skipped { below });
        } else {
            self.fold.next = self.fold.next.max(below);
        }
        if self.feed.as_ref().is_some_and(|feed| feed.position < below) {
            self.drop_feed(core);
        }
    }

    /// How many offsets below this one were neither handed out nor finished.
    fn never_handed_out(&self, below: u64) -> u64 {
        let next = self.fold.next;
        let ahead = self.fold.ahead.iter().map(|run| {
            let end = run.start.saturating_add(run.count).min(below);
            end.saturating_sub(run.start.max(next))
        });
        below.saturating_sub(next).saturating_sub(ahead.sum())
    }

    /// Forgets every claim and everything that is owed. Polls that were being served wait again, first in line.
    pub(super) fn void(&mut self, core: &mut Core) {
        let open: Vec<u64> = self.fold.open.keys().copied().collect();
        for offset in open {
            self.leave(core, offset);
        }
        self.owed.clear();
        self.claimed = 0;
        self.inherited = 0;
        self.skipped = 0;
        self.drop_feed(core);
        let reads: Vec<_> = core
            .reads
            .iter()
            .filter(|(_, reading)| reading.group() == Some(self.id))
            .map(|(&read, _)| read)
            .collect();
        for read in reads.into_iter().rev() {
            match core.reads.remove(&read) {
                // Its timer may have come and gone.
                Some(Reading::Poll { waiting, .. }) if waiting.deadline <= core.now() => {
                    self.answer_empty(core, &waiting);
                }
                Some(Reading::Poll { waiting, .. }) => self.waiting.push_front(waiting),
                Some(Reading::Bury { burials, .. }) => {
                    for burial in burials {
                        core.tell(burial.told, Err(SettleRefused::NotHandedOut));
                    }
                }
                Some(
                    Reading::Letters { .. } | Reading::Schedules { .. } | Reading::Schedule(_),
                )
                | None => {}
            }
        }
    }

    pub(super) fn drop_feed(&mut self, core: &mut Core) {
        if let Some(feed) = self.feed.take() {
            core.feeds.remove(&feed.id);
            core.effects.push(Effect::Unfeed { feed: feed.id });
        }
    }

    /// Answers a poll with nothing.
    pub(super) fn answer_empty(&mut self, core: &mut Core, waiting: &Waiting) {
        core.polls.remove(&waiting.ticket);
        core.clear_timer(waiting.deadline, Timer::Wait(self.id, waiting.ticket));
        core.answer(waiting.ticket, Answer::Records(Vec::new()));
    }

    pub(super) fn describe(&self, core: &Core) -> Description {
        let tail = core.moment.tail;
        let open = self.fold.open.len();
        let ahead: u64 = self.fold.ahead.iter().map(|run| run.count).sum();
        let never = tail
            .0
            .saturating_sub(self.fold.next.max(core.moment.start.0));
        Description {
            group: self.name.clone(),
            committed: self.fold.persisted.then(|| Offset(self.fold.position())),
            next: Offset(self.fold.next),
            tail,
            in_flight: self.claimed as u64,
            owed: (open - self.claimed.min(open)) as u64,
            dead_letters: self.fold.letters.len() as u64,
            lag: open as u64 + never.saturating_sub(ahead),
            trimmed: self.trimmed,
            waiting: self.waiting.len() as u64,
        }
    }

    /// Nothing would be lost if it were forgotten.
    pub(super) fn is_empty(&self) -> bool {
        !self.fold.persisted && self.fold.open.is_empty() && self.waiting.is_empty()
    }
}

impl Reading {
    pub(super) fn group(&self) -> Option<GroupId> {
        match self {
            Self::Poll { group, .. } | Self::Bury { group, .. } => Some(*group),
            Self::Letters { .. } | Self::Schedules { .. } | Self::Schedule(_) => None,
        }
    }
}

pub(super) fn attempts_reason(attempts: u32) -> Arc<str> {
    format!("handed out {attempts} times and never finished").into()
}
