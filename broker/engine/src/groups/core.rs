//! What the groups of a shard share: the lane, the claims, the clockwork, and answers on their way out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use felix_model::{Offset, TimeMs};

use super::ask::{Answer, Holder, Poll, SettleRefused, Ticket};
use super::io::{Effect, FeedId, Moment, Place, ReadId, Want};
use super::lane::Lane;
use super::limits;
use crate::options::CommitWhen;

/// Names a group in memory. Never used twice, so that what is meant for a deleted group reaches no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct GroupId(pub(super) u64);

/// Names the claims of one delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LeaseId(u64);

/// The claims of one delivery, which lapse together.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) group: GroupId,
    pub(super) holder: Holder,
    pub(super) deadline: TimeMs,
    /// What it covered at first. A record that is not claimed under this lease any more does not count.
    pub(super) offsets: Vec<u64>,
    /// How many still count.
    left: usize,
}

/// Something that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Lapse(LeaseId),
    Wait(GroupId, Ticket),
    Rest(GroupId, u64),
}

/// A poll that was not answered yet.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) ticket: Ticket,
    pub(super) poll: Poll,
    pub(super) deadline: TimeMs,
}

/// What a read is for.
#[derive(Debug)]
pub(super) enum Reading {
    /// Owed records for a poll.
    Poll {
        group: GroupId,
        waiting: Waiting,
        /// In the order in which they are handed out.
        offsets: Vec<u64>,
    },
    /// Records to be set aside.
    Bury {
        group: GroupId,
        burials: Vec<Burial>,
    },
    /// Records that were set aside, for a listing.
    Letters {
        ticket: Ticket,
        letters: Vec<(super::ask::LetterView, Want)>,
        more: bool,
    },
    /// Scheduled records, for a listing.
    Schedules {
        ticket: Ticket,
        schedules: Vec<(super::ask::ScheduleView, Want)>,
        more: bool,
    },
    /// A scheduled record that is due.
    Schedule(super::ask::ScheduleId),
}

/// One record to be set aside, and who wants to hear of it.
#[derive(Clone, Debug)]
pub(super) struct Burial {
    pub(super) offset: u64,
    pub(super) reason: Arc<str>,
    pub(super) told: Option<(SettlingId, usize)>,
}

/// Names a settlement that is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SettlingId(u64);

#[derive(Debug)]
struct Settling {
    ticket: Ticket,
    results: Vec<Result<u64, SettleRefused>>,
    left: usize,
}

/// An answer that waits for the lane.
#[derive(Debug)]
struct Held {
    /// It leaves when everything below is committed.
    needs: u64,
    ticket: Ticket,
    answer: Answer,
}

/// Everything that is not one group's own.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) options: super::GroupOptions,
    pub(super) moment: Moment,
    pub(super) lane: Lane,
    committed: u64,
    pub(super) flushed: u64,
    held: VecDeque<Held>,
    leases: BTreeMap<LeaseId, Lease>,
    pub(super) claims: usize,
    /// Open records of all groups.
    pub(super) open: usize,
    /// A poll waits for what another group has: from then on room is given out group by group.
    pub(super) crowded: bool,
    /// The group that got something last.
    pub(super) last: GroupId,
    /// Polls that wait, of all groups.
    pub(super) polls: BTreeMap<Ticket, GroupId>,
    timers: BTreeSet<(TimeMs, Timer)>,
    pub(super) reads: BTreeMap<ReadId, Reading>,
    /// Reads of what the lane does not have yet, with how far it must be.
    early_reads: Vec<(u64, ReadId, Vec<Want>)>,
    settling: BTreeMap<SettlingId, Settling>,
    pub(super) feeds: BTreeMap<FeedId, GroupId>,
    names: u64,
    pub(super) effects: Vec<Effect>,
}

impl Core {
    pub(super) fn new(options: super::GroupOptions, moment: Moment, lane_end: Offset) -> Self {
        Self {
            options,
            moment,
            lane: Lane::new(lane_end, options.generation),
            committed: lane_end.0,
            flushed: lane_end.0,
            held: VecDeque::new(),
            leases: BTreeMap::new(),
            claims: 0,
            open: 0,
            crowded: false,
            last: GroupId(0),
            polls: BTreeMap::new(),
            timers: BTreeSet::new(),
            reads: BTreeMap::new(),
            early_reads: Vec::new(),
            settling: BTreeMap::new(),
            feeds: BTreeMap::new(),
            names: 0,
            effects: Vec::new(),
        }
    }

    /// A number that was never used for anything.
    pub(super) fn name(&mut self) -> u64 {
        self.names += 1;
        self.names
    }

    pub(super) fn now(&self) -> TimeMs {
        self.moment.now
    }

    /// The time of day.
    pub(super) fn wall(&self) -> TimeMs {
        self.moment.wall
    }

    pub(super) fn observe(&mut self, moment: Moment) {
        let now = moment.now.max(self.moment.now);
        self.moment = Moment { now, ..moment };
    }

    /// Answers once everything decided so far is committed: also what changes nothing may have been decided by what
    /// is still on its way.
    pub(super) fn answer(&mut self, ticket: Ticket, answer: Answer) {
        let needs = self.lane.end();
        if self.held.is_empty() && needs <= self.committed {
            self.effects.push(Effect::Answer { ticket, answer });
        } else {
            self.held.push_back(Held {
                needs,
                ticket,
                answer,
            });
        }
    }

    pub(super) fn written(&mut self, end: Offset) {
        if self.options.commit == CommitWhen::Written {
            self.commit(end.0);
        }
    }

    pub(super) fn flush(&mut self, end: Offset) {
        self.flushed = self.flushed.max(end.0);
        self.commit(end.0);
    }

    fn commit(&mut self, end: u64) {
        self.committed = self.committed.max(end.min(self.lane.end()));
        let committed = self.committed;
        while let Some(held) = self.held.pop_front_if(|held| held.needs <= committed) {
            let Held { ticket, answer, .. } = held;
            self.effects.push(Effect::Answer { ticket, answer });
        }
        for (needs, read, wants) in std::mem::take(&mut self.early_reads) {
            if needs <= committed {
                self.start_read(read, wants);
            } else {
                self.early_reads.push((needs, read, wants));
            }
        }
    }

    /// End of what the lane has as the stream promises it, exclusive.
    pub(super) fn committed(&self) -> u64 {
        self.committed
    }

    /// Everybody who waits is refused, in order.
    pub(super) fn refuse_held(&mut self, refused: super::ask::GroupRefused) {
        for held in std::mem::take(&mut self.held) {
            self.effects.push(Effect::Answer {
                ticket: held.ticket,
                answer: Answer::Refused(refused),
            });
        }
        for (_, settling) in std::mem::take(&mut self.settling) {
            self.effects.push(Effect::Answer {
                ticket: settling.ticket,
                answer: Answer::Refused(refused),
            });
        }
    }

    pub(super) fn lease(
        &mut self,
        group: GroupId,
        holder: Holder,
        ms: u64,
        offsets: Vec<u64>,
    ) -> LeaseId {
        let id = LeaseId(self.name());
        let deadline = self.now().plus(ms);
        self.timers.insert((deadline, Timer::Lapse(id)));
        self.claims += offsets.len();
        let left = offsets.len();
        self.leases.insert(
            id,
            Lease {
                group,
                holder,
                deadline,
                offsets,
                left,
            },
        );
        id
    }

    pub(super) fn holder(&self, id: LeaseId) -> Option<&Holder> {
        self.leases.get(&id).map(|lease| &lease.holder)
    }

    /// One record of a lease is not claimed under it any more.
    pub(super) fn release(&mut self, id: LeaseId) {
        self.claims = self.claims.saturating_sub(1);
        let Some(lease) = self.leases.get_mut(&id) else {
            return;
        };
        lease.left = lease.left.saturating_sub(1);
        if lease.left == 0
            && let Some(lease) = self.leases.remove(&id)
        {
            self.timers.remove(&(lease.deadline, Timer::Lapse(id)));
        }
    }

    /// A lease whose time has come. Its records are released one by one by whoever takes it.
    pub(super) fn lapsed(&mut self, id: LeaseId) -> Option<(GroupId, Vec<u64>)> {
        let lease = self.leases.get_mut(&id)?;
        Some((lease.group, std::mem::take(&mut lease.offsets)))
    }

    pub(super) fn set_timer(&mut self, at: TimeMs, timer: Timer) {
        self.timers.insert((at, timer));
    }

    pub(super) fn clear_timer(&mut self, at: TimeMs, timer: Timer) {
        self.timers.remove(&(at, timer));
    }

    pub(super) fn next_timer(&self) -> Option<TimeMs> {
        self.timers.first().map(|(at, _)| *at)
    }

    pub(super) fn take_due(&mut self) -> Option<Timer> {
        let (at, _) = self.timers.first()?;
        if *at > self.now() {
            return None;
        }
        self.timers.pop_first().map(|(_, timer)| timer)
    }

    pub(super) fn read(&mut self, reading: Reading, wants: Vec<Want>) {
        let read = ReadId(self.name());
        self.read_as(read, reading, wants);
    }

    pub(super) fn read_as(&mut self, read: ReadId, reading: Reading, mut wants: Vec<Want>) {
        wants.sort_unstable();
        wants.dedup();
        self.reads.insert(read, reading);
        let in_lane = wants.iter().filter(|want| want.place == Place::Lane);
        let needs = in_lane.map(|want| want.at.0 + 1).max().unwrap_or(0);
        if needs > self.committed {
            return self.early_reads.push((needs, read, wants));
        }
        self.start_read(read, wants);
    }

    fn start_read(&mut self, read: ReadId, wants: Vec<Want>) {
        let max_bytes = limits::READ_BYTES;
        self.effects.push(Effect::Read {
            read,
            wants,
            max_bytes,
        });
    }

    /// Answers a settlement, now or when the last of its burials is done.
    pub(super) fn settled(&mut self, ticket: Ticket, settled: Settled) {
        let Settled { id, results, left } = settled;
        if left == 0 {
            return self.answer(ticket, Answer::Settled(results));
        }
        self.settling.insert(
            id,
            Settling {
                ticket,
                results,
                left,
            },
        );
    }

    pub(super) fn begin_settling(&mut self) -> SettlingId {
        SettlingId(self.name())
    }

    /// One burial of a settlement is done.
    pub(super) fn tell(
        &mut self,
        told: Option<(SettlingId, usize)>,
        result: Result<u64, SettleRefused>,
    ) {
        let Some((id, index)) = told else { return };
        let Some(settling) = self.settling.get_mut(&id) else {
            return;
        };
        if let Some(place) = settling.results.get_mut(index) {
            *place = result;
        }
        settling.left = settling.left.saturating_sub(1);
        if settling.left == 0
            && let Some(settling) = self.settling.remove(&id)
        {
            self.answer(settling.ticket, Answer::Settled(settling.results));
        }
    }
}

/// A settlement as far as it was decided at once.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) id: SettlingId,
    pub(super) results: Vec<Result<u64, SettleRefused>>,
    /// Burials still to come.
    pub(super) left: usize,
}
