//! Handing records out: what is owed first, lowest offset first, then what is new.

use std::collections::{BTreeMap, VecDeque};

use felix_model::{Offset, Record};

use super::ask::{Answer, Delivery, GroupRefused, Ticket};
use super::core::{Core, Reading, Timer, Waiting};
use super::feed::{Asked, Feed};
use super::fold::{Open, State};
use super::group::Group;
use super::io::{Effect, FeedEnd, FeedId, Found, Place, ReadId, Want};
use super::lane::Change;
use super::limits;
use super::ranges::Run;

/// New records taken out of a feed.
#[derive(Debug, Default)]
struct Taken {
    deliveries: Vec<Delivery>,
    runs: Vec<Run>,
    next: u64,
    bytes: usize,
}

impl Group {
    /// Takes a poll in. It is served at once if there is something for it.
    pub(super) fn poll(&mut self, core: &mut Core, mut waiting: Waiting) {
        self.used = core.now();
        let (ticket, holder) = (waiting.ticket, waiting.poll.holder.clone());
        core.polls.insert(ticket, self.id);
        if waiting.poll.max_records == 0 {
            return self.answer_empty(core, &waiting);
        }
        let reclaimed = if waiting.poll.reclaim {
            let most = self.most(core, &waiting);
            self.reclaim(core, &holder, most)
        } else {
            Vec::new()
        };
        let wait = match waiting.poll.wait_ms.min(limits::WAIT_MS_MAX) {
            0 => limits::FETCH_MS_MAX,
            ms => ms,
        };
        waiting.deadline = core.now().plus(wait);
        core.set_timer(waiting.deadline, Timer::Wait(self.id, ticket));
        if !reclaimed.is_empty() {
            return self.fetch(core, waiting, reclaimed);
        }
        self.waiting.push_back(waiting);
        self.serve(core);
        // While it is crowded, its group's turn is still to come.
        if !core.crowded {
            self.send_away(core, ticket);
        }
    }

    /// Answers a poll that does not want to wait, unless records are on their way to it.
    fn send_away(&mut self, core: &mut Core, ticket: Ticket) {
        let coming = self
            .feed
            .as_ref()
            .is_some_and(|feed| feed.asked == Asked::Yes && feed.position < core.moment.tail.0);
        if coming {
            return;
        }
        let idle = |waiting: &Waiting| waiting.ticket == ticket && waiting.poll.wait_ms == 0;
        if let Some(place) = self.waiting.iter().position(idle)
            && let Some(waiting) = self.waiting.remove(place)
        {
            self.answer_empty(core, &waiting);
        }
    }

    /// Serves the polls that wait, first come first served, as far as there is something for them.
    pub(super) fn serve(&mut self, core: &mut Core) {
        self.trim(core);
        while let Some(first) = self.waiting.front() {
            if core.crowded {
                return;
            }
            let most = self.most(core, first);
            if most == 0 {
                core.crowded |= core.claims >= limits::CLAIMS_MAX;
                return;
            }
            let owed: Vec<u64> = self.owed.iter().take(most).copied().collect();
            if !owed.is_empty() {
                if let Some(waiting) = self.waiting.pop_front() {
                    self.fetch(core, waiting, owed);
                }
                continue;
            }
            let space = bytes_max(first) as u64;
            let tail = core.moment.tail.0;
            let is_short = |feed: &Feed| feed.is_short(most, space, tail);
            if self.room(core) > 0 && self.feed.as_ref().is_some_and(is_short) {
                return self.ask_for_more(core);
            }
            let record_bytes_max = first.poll.record_bytes_max;
            let bytes_max = bytes_max(first);
            let taken = self.take_new(core, most, bytes_max, record_bytes_max, false);
            if taken.deliveries.is_empty() {
                return self.ask_for_more(core);
            }
            if let Some(waiting) = self.waiting.pop_front() {
                self.hand_out(core, waiting, Vec::new(), taken);
            }
        }
    }

    /// Claims that the same member holds on older connections; each is another attempt. Once for a connection.
    fn reclaim(&mut self, core: &mut Core, holder: &super::ask::Holder, most: usize) -> Vec<u64> {
        let Some(member) = &holder.member else {
            return Vec::new();
        };
        let newest = self.reclaimed.get(member).copied();
        if newest.is_some_and(|newest| newest >= holder.connection) {
            return Vec::new();
        }
        if self.reclaimed.len() >= limits::CLAIMS_MAX {
            self.reclaimed.clear();
        }
        self.reclaimed.insert(member.clone(), holder.connection);
        self.dismiss_older(core, holder);
        let theirs: Vec<u64> = self
            .fold
            .open
            .iter()
            .filter(|(_, open)| match open.state {
                State::Claimed(lease) => core.holder(lease).is_some_and(|held| {
                    held.member.as_ref() == Some(member) && held.connection < holder.connection
                }),
                State::Owed | State::Resting(_) | State::Fetching(_) | State::Burying => false,
            })
            .map(|(&offset, _)| offset)
            .collect();
        for &offset in &theirs {
            self.leave(core, offset);
        }
        self.owe(core, theirs.iter().copied());
        let mut first = theirs;
        first.retain(|offset| self.owed.contains(offset));
        first.truncate(most.max(1));
        first
    }

    /// Answers what the same member still asks on older connections, where nobody listens any more: what it would get
    /// there would be gone until the claim lapses.
    fn dismiss_older(&mut self, core: &mut Core, holder: &super::ask::Holder) {
        let is_older = |waiting: &Waiting| {
            let asks = &waiting.poll.holder;
            asks.member == holder.member && asks.connection < holder.connection
        };
        let (older, others) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(is_older);
        self.waiting = others;
        let older: VecDeque<Waiting> = older;
        for waiting in older {
            self.answer_empty(core, &waiting);
        }
        let group = self.id;
        let reads = core.reads.extract_if(.., |_, reading| match reading {
            Reading::Poll {
                group: of, waiting, ..
            } => *of == group && is_older(waiting),
            Reading::Bury { .. }
            | Reading::Letters { .. }
            | Reading::Schedules { .. }
            | Reading::Schedule(_) => false,
        });
        for (read, reading) in reads.collect::<Vec<_>>() {
            let Reading::Poll {
                waiting, offsets, ..
            } = reading
            else {
                continue;
            };
            self.answer_empty(core, &waiting);
            let fetching = State::Fetching(read);
            let back = offsets.into_iter().filter(|offset| {
                let open = self.fold.open.get(offset);
                open.is_some_and(|open| open.state == fetching)
            });
            let back: Vec<u64> = back.collect();
            self.owe(core, back);
        }
    }

    /// Reads owed records for a poll.
    fn fetch(&mut self, core: &mut Core, waiting: Waiting, offsets: Vec<u64>) {
        let read = ReadId(core.name());
        let mut wants = Vec::with_capacity(offsets.len());
        for offset in &offsets {
            self.owed.remove(offset);
            if let Some(open) = self.fold.open.get_mut(offset) {
                open.state = State::Fetching(read);
                wants.push(want(*offset, open));
            }
        }
        let group = self.id;
        core.read_as(
            read,
            Reading::Poll {
                group,
                waiting,
                offsets,
            },
            wants,
        );
    }

    /// Owed records were read for a poll.
    pub(super) fn fetched(
        &mut self,
        core: &mut Core,
        read: ReadId,
        waiting: Waiting,
        offsets: &[u64],
        found: Vec<(Want, Found)>,
    ) {
        let mut found: BTreeMap<Want, Found> = found.into_iter().collect();
        let (mut old, mut bytes, mut back, mut gone) = (Vec::new(), 0, Vec::new(), Vec::new());
        for &offset in offsets {
            let Some(open) = self.fold.open.get(&offset) else {
                continue;
            };
            if open.state != State::Fetching(read) {
                continue;
            }
            let attempts = open.attempts;
            match found.remove(&want(offset, open)) {
                Some(Found::Record(record)) => {
                    let size = carried_bytes(&record);
                    if size > waiting.poll.record_bytes_max {
                        self.set_aside(core, &record, attempts, too_large());
                    } else if old.is_empty() || bytes + size <= bytes_max(&waiting) {
                        bytes += size;
                        old.push((record, attempts));
                    } else {
                        back.push(offset);
                    }
                }
                Some(Found::Nothing) => gone.push(offset),
                Some(Found::Unreadable) => {
                    let due = core.now().plus(limits::BURY_AGAIN_MS);
                    self.rest(core, offset, due);
                }
                None => back.push(offset),
            }
        }
        self.owe(core, back);
        self.lose(core, gone);
        let room = self.most(core, &waiting).saturating_sub(old.len());
        let space = bytes_max(&waiting).saturating_sub(bytes);
        // Others may be owed by now; they come first, in the next poll.
        let taken = if room > 0 && self.owed.is_empty() {
            let beside = !old.is_empty();
            self.take_new(core, room, space, waiting.poll.record_bytes_max, beside)
        } else {
            Taken::default()
        };
        if old.is_empty() && taken.deliveries.is_empty() {
            // Its timer may have come and gone while the records were read.
            if waiting.deadline <= core.now() {
                self.answer_empty(core, &waiting);
                return self.serve(core);
            }
            let ticket = waiting.ticket;
            self.waiting.push_front(waiting);
            self.serve(core);
            if !core.crowded {
                self.send_away(core, ticket);
            }
            return;
        }
        self.hand_out(core, waiting, old, taken);
        self.serve(core);
    }

    /// Records that are not in the log any more.
    fn lose(&mut self, core: &mut Core, mut gone: Vec<u64>) {
        gone.sort_unstable();
        self.trimmed += gone.len() as u64;
        let mut runs = Vec::new();
        for offset in gone {
            Run::add(&mut runs, offset);
        }
        self.finish(core, runs);
    }

    /// Makes claims of records, and answers a poll with them once the lane has that they were handed out.
    fn hand_out(
        &mut self,
        core: &mut Core,
        waiting: Waiting,
        old: Vec<(Record, u32)>,
        taken: Taken,
    ) {
        let mut deliveries = Vec::with_capacity(old.len() + taken.deliveries.len());
        let mut offsets = Vec::with_capacity(old.len() + taken.deliveries.len());
        if !old.is_empty() {
            let again = old
                .iter()
                .map(|(record, attempts)| (record.offset.0, attempts + 1))
                .collect();
            self.commit(core, &Change::Redelivered(again));
        }
        for (record, attempts) in old {
            offsets.push(record.offset.0);
            deliveries.push(Delivery {
                record,
                attempts: attempts + 1,
                skipped_before: 0,
            });
        }
        if !taken.deliveries.is_empty() {
            let Taken { runs, next, .. } = taken;
            self.commit(core, &Change::Delivered { next, runs });
            offsets.extend(taken.deliveries.iter().map(|new| new.record.offset.0));
            deliveries.extend(taken.deliveries);
        }
        let visibility = match waiting.poll.visibility_ms {
            0 => core.options.visibility_ms,
            ms => ms.min(limits::VISIBILITY_MS_MAX),
        };
        self.claimed += offsets.len();
        let lease = core.lease(self.id, waiting.poll.holder, visibility, offsets.clone());
        for offset in offsets {
            if let Some(open) = self.fold.open.get_mut(&offset) {
                open.state = State::Claimed(lease);
            }
        }
        core.last = self.id;
        core.polls.remove(&waiting.ticket);
        core.clear_timer(waiting.deadline, Timer::Wait(self.id, waiting.ticket));
        core.answer(waiting.ticket, Answer::Records(deliveries));
    }

    /// Takes new records out of the feed, in order; the first whatever its size, unless it goes beside others.
    fn take_new(
        &mut self,
        core: &mut Core,
        most: usize,
        bytes_max: usize,
        record_bytes_max: usize,
        beside: bool,
    ) -> Taken {
        let most = most.min(self.room(core));
        let mut taken = Taken {
            next: self.fold.next,
            ..Taken::default()
        };
        while taken.deliveries.len() < most {
            let Some(feed) = &mut self.feed else { break };
            let Some(record) = feed.next() else { break };
            let size = carried_bytes(&record);
            let is_first = !beside && taken.deliveries.is_empty();
            if !is_first && taken.bytes + size > bytes_max {
                feed.put_back(record);
                break;
            }
            let offset = record.offset.0;
            let hole = offset.saturating_sub(feed.position);
            feed.position = offset.saturating_add(1);
            taken.next = feed.position;
            if self.fold.ahead.contains(offset) || self.fold.open.contains_key(&offset) {
                continue;
            }
            if size > record_bytes_max {
                self.set_aside(core, &record, 0, too_large());
                continue;
            }
            taken.bytes += size;
            Run::add(&mut taken.runs, offset);
            taken.deliveries.push(Delivery {
                record,
                attempts: 1,
                skipped_before: hole + std::mem::take(&mut self.skipped),
            });
        }
        taken
    }

    /// How many records a poll may get now.
    fn most(&self, core: &Core, waiting: &Waiting) -> usize {
        let room = limits::CLAIMS_MAX.saturating_sub(core.claims);
        let share = limits::GROUP_CLAIMS_MAX.saturating_sub(self.claimed);
        let asked = usize::try_from(waiting.poll.max_records).unwrap_or(usize::MAX);
        asked.min(limits::POLL_RECORDS_MAX).min(room).min(share)
    }

    /// How many new records may be handed out now.
    fn room(&self, core: &Core) -> usize {
        let room = limits::OPEN_MAX.saturating_sub(core.open);
        let share = limits::GROUP_OPEN_MAX.saturating_sub(self.fold.open.len());
        room.min(share)
    }

    /// Polls wait and nothing is at hand: lets the cursor deliver.
    fn ask_for_more(&mut self, core: &mut Core) {
        if self.room(core) == 0 {
            core.crowded |= core.open >= limits::OPEN_MAX;
            return;
        }
        if self.feed.is_none() {
            let id = FeedId(core.name());
            core.feeds.insert(id, self.id);
            self.feed = Some(Feed::new(id, self.fold.next));
            core.effects.push(Effect::Feed {
                feed: id,
                from: Offset(self.fold.next),
            });
        }
        if let Some(feed) = &mut self.feed
            && feed.asked == Asked::No
        {
            feed.asked = Asked::Yes;
            core.effects.push(Effect::Pull { feed: feed.id });
        }
    }

    /// The cursor has nothing and waits: who does not want to wait is told.
    pub(super) fn parked(&mut self, core: &mut Core) {
        if let Some(feed) = &mut self.feed
            && feed.asked == Asked::Yes
        {
            feed.asked = Asked::Parked;
        }
        self.dismiss(core);
    }

    /// Answers the polls that do not want to wait, unless records are on their way to them.
    pub(super) fn dismiss(&mut self, core: &mut Core) {
        let hasty: Vec<Ticket> = self
            .waiting
            .iter()
            .filter(|waiting| waiting.poll.wait_ms == 0)
            .map(|waiting| waiting.ticket)
            .collect();
        for ticket in hasty {
            self.send_away(core, ticket);
        }
    }

    /// The cursor ended by itself.
    pub(super) fn feed_ended(&mut self, core: &mut Core, why: FeedEnd) {
        if let Some(feed) = self.feed.take() {
            core.feeds.remove(&feed.id);
        }
        match why {
            FeedEnd::TooOld { oldest } => {
                core.moment.start = core.moment.start.max(oldest);
                self.serve(core);
            }
            FeedEnd::Unreadable { position } => {
                self.refuse_waiting(core, GroupRefused::Unreadable { offset: position });
            }
            FeedEnd::Closed => {
                for waiting in std::mem::take(&mut self.waiting) {
                    self.answer_empty(core, &waiting);
                }
            }
        }
    }

    fn refuse_waiting(&mut self, core: &mut Core, refused: GroupRefused) {
        for waiting in std::mem::take(&mut self.waiting) {
            core.polls.remove(&waiting.ticket);
            core.clear_timer(waiting.deadline, Timer::Wait(self.id, waiting.ticket));
            core.answer(waiting.ticket, Answer::Refused(refused));
        }
    }

    /// A poll waited long enough, or nobody waits for it any more.
    pub(super) fn stop_waiting(&mut self, core: &mut Core, ticket: Ticket) {
        let place = self
            .waiting
            .iter()
            .position(|waiting| waiting.ticket == ticket);
        if let Some(waiting) = place.and_then(|place| self.waiting.remove(place)) {
            self.answer_empty(core, &waiting);
        }
    }
}

/// How many bytes of records a poll may get, but for the first.
fn bytes_max(waiting: &Waiting) -> usize {
    match waiting.poll.bytes_max {
        0 => limits::POLL_BYTES_MAX,
        bytes => bytes.min(limits::POLL_BYTES_MAX),
    }
}

/// Where an open record is read.
pub(super) fn want(offset: u64, open: &Open) -> Want {
    match open.kept {
        Some(lane) => Want {
            place: Place::Lane,
            at: Offset(lane),
        },
        None => Want {
            place: Place::Data,
            at: Offset(offset),
        },
    }
}

/// What a record counts for against the bounds of an answer: at least what it takes there.
pub fn carried_bytes(record: &Record) -> usize {
    let len = |bytes: &Option<bytes::Bytes>| bytes.as_ref().map_or(0, bytes::Bytes::len);
    let headers: usize = record
        .headers
        .iter()
        .map(|(key, value)| limits::HEADER_BYTES + key.len() + len(&value))
        .sum();
    limits::RECORD_BYTES + len(&record.key) + len(&record.value) + headers
}

fn too_large() -> std::sync::Arc<str> {
    "larger than its consumer's protocol can carry".into()
}
