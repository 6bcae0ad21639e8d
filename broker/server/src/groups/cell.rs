//! The groups of one shard in service: the pure core, and the shell that carries out what it decides.
//!
//! Inputs go into an inbox. Whoever put one there tries to run the turn; if somebody is at it already, he takes the
//! input along. So everything that comes in while a turn runs is decided together and goes to the lane as one batch,
//! nobody waits for anybody, and the shard of the stream and its groups can call each other: neither holds on to its
//! own lock to get the other's. Answers are made after the turn, off the lock.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak};

use felix_engine::groups::{
    Answer, Ask, Description, Effect, FeedEnd, FeedId, Found, Groups, Input, Keeping, Moment,
    Place, ReadId, ScheduleId, Ticket, Totals, Want, carried_bytes,
};
use felix_engine::{AppendRefused, Appended, Draft, ReaderEnd, ReaderId, Start, SubscribeRefused};
use felix_journal::{Completions, LogHandle, LogReader, ReadRefused, WriteFailure};
use felix_model::{Offset, Record, Records};
use tokio::runtime::Handle;

use super::Reply;
use super::timers::{Due, Timers, steady};
use crate::shards::cell::{Cell, now};
use crate::shards::mailbox::Said;

/// Bytes of a log read at once while single records are looked for.
const PAGE_BYTES: usize = 256 * 1024;

/// Records that are less than this part of the page they were found in are copied.
const COPY_BELOW: usize = 4;

/// The groups of one shard.
pub(crate) struct GroupCell {
    inbox: Mutex<VecDeque<Event>>,
    inner: Mutex<Inner>,
    /// The shard of the stream, which owns this cell.
    data: Weak<Cell>,
    timers: Arc<Timers>,
    key: u64,
    tickets: AtomicU64,
    runtime: Handle,
    on_failure: Box<dyn Fn(WriteFailure) + Send + Sync>,
}

impl std::fmt::Debug for GroupCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupCell").finish_non_exhaustive()
    }
}

struct Inner {
    core: Groups,
    lane: LogHandle,
    asked: HashMap<Ticket, Reply>,
    readers: HashMap<FeedId, ReaderId>,
    effects: Vec<Effect>,
    /// What the timers have of this cell.
    due: Due,
}

/// What waits to be decided.
enum Event {
    Ask(Ticket, Ask, Reply),
    Input(Input),
}

impl GroupCell {
    /// Serves `core` beside `data`. `on_failure` is called whenever a write or sync of the lane failed.
    pub(crate) fn new(
        core: Groups,
        lane: LogHandle,
        data: &Arc<Cell>,
        timers: Arc<Timers>,
        runtime: Handle,
        on_failure: impl Fn(WriteFailure) + Send + Sync + 'static,
    ) -> Arc<Self> {
        static KEYS: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            inbox: Mutex::default(),
            inner: Mutex::new(Inner {
                core,
                lane,
                asked: HashMap::new(),
                readers: HashMap::new(),
                effects: Vec::new(),
                due: Due::default(),
            }),
            data: Arc::downgrade(data),
            timers,
            key: KEYS.fetch_add(1, Ordering::Relaxed),
            tickets: AtomicU64::new(0),
            runtime,
            on_failure: Box::new(on_failure),
        })
    }

    /// Asks; `reply` hears the answer, perhaps before this returns.
    pub(crate) fn ask(self: &Arc<Self>, ask: Ask, reply: Reply) -> Ticket {
        let ticket = Ticket(self.tickets.fetch_add(1, Ordering::Relaxed));
        self.push(Event::Ask(ticket, ask, reply));
        self.run();
        ticket
    }

    /// Nobody waits for an answer any more.
    pub(crate) fn forget(self: &Arc<Self>, ticket: Ticket) {
        self.hear(Input::Forget { ticket });
    }

    /// Something is due.
    pub(crate) fn timeout(self: &Arc<Self>) {
        self.hear(Input::Timeout);
    }

    /// Refuses everybody from here on. What is on its way to the lane is written by closing that.
    pub(crate) fn close(self: &Arc<Self>) -> LogHandle {
        self.hear(Input::Close);
        self.lane()
    }

    /// The lane's log.
    pub(crate) fn lane(self: &Arc<Self>) -> LogHandle {
        self.look(|inner| inner.lane.clone())
    }

    /// Sums for metrics.
    pub(crate) fn totals(self: &Arc<Self>) -> Totals {
        self.look(|inner| inner.core.totals())
    }

    /// Every group.
    pub(crate) fn descriptions(self: &Arc<Self>) -> Vec<Description> {
        self.look(|inner| inner.core.descriptions().collect())
    }

    /// About how many bytes of the lane are needed.
    pub(crate) fn live_bytes(self: &Arc<Self>) -> u64 {
        self.look(|inner| inner.core.live_bytes())
    }

    /// Writes a checkpoint, and says what of the lane is needed from then on.
    pub(crate) fn checkpoint(self: &Arc<Self>) -> Keeping {
        self.hear(Input::Checkpoint);
        self.look(|inner| inner.core.keeping())
    }

    /// Takes an input in, and runs the turn if nobody is at it.
    pub(crate) fn hear(self: &Arc<Self>, input: Input) {
        self.push(Event::Input(input));
        self.run();
    }

    /// What the stream's shard says to one cursor. Called under that shard's lock: whoever releases it calls
    /// [`Self::run`].
    pub(crate) fn said(&self, feed: FeedId, said: Said) {
        let input = match said {
            Said::Subscribed { .. } => return,
            Said::Deliver(delivery) => Input::Fed {
                feed,
                batches: delivery.batches.to_vec(),
            },
            Said::Refused(SubscribeRefused::TooOld { oldest })
            | Said::Ended(ReaderEnd::TooOld { oldest, .. }) => Input::FeedEnded {
                feed,
                why: FeedEnd::TooOld { oldest },
            },
            Said::Ended(ReaderEnd::Unreadable { position }) => Input::FeedEnded {
                feed,
                why: FeedEnd::Unreadable { position },
            },
            Said::Refused(_) | Said::Ended(ReaderEnd::Closed { .. }) => Input::FeedEnded {
                feed,
                why: FeedEnd::Closed,
            },
        };
        self.push(Event::Input(input));
    }

    /// What became of a scheduled record. Called as [`Self::said`] is.
    pub(crate) fn appended(&self, id: ScheduleId, outcome: Result<Appended, AppendRefused>) {
        let outcome = outcome.map(|_| ());
        self.push(Event::Input(Input::Appended { id, outcome }));
    }

    fn push(&self, event: Event) {
        self.inbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(event);
    }

    /// Runs turns until the inbox is empty, unless somebody else does.
    pub(crate) fn run(self: &Arc<Self>) {
        loop {
            let answers = match self.inner.try_lock() {
                Ok(mut inner) => inner.turn(self),
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().turn(self),
                // He looks into the inbox again after he has let go of the lock.
                Err(TryLockError::WouldBlock) => return,
            };
            for (reply, answer) in answers {
                reply(answer);
            }
            if self.is_inbox_empty() {
                return;
            }
        }
    }

    fn is_inbox_empty(&self) -> bool {
        self.inbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_empty()
    }

    fn take_inbox(&self) -> VecDeque<Event> {
        std::mem::take(&mut *self.inbox.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks at the state between turns. What came in meanwhile is decided afterwards: whoever brought it found the
    /// lock taken and left.
    fn look<T>(self: &Arc<Self>, look: impl FnOnce(&Inner) -> T) -> T {
        let seen = look(&self.inner.lock().unwrap_or_else(PoisonError::into_inner));
        self.run();
        seen
    }
}

impl Inner {
    /// Decides everything in the inbox and carries it out. The answers are for the caller to give, off the lock.
    fn turn(&mut self, cell: &Arc<GroupCell>) -> Vec<(Reply, Answer)> {
        let mut answers = Vec::new();
        let events = cell.take_inbox();
        let Some(data) = cell.data.upgrade() else {
            // The shard is gone, and with it whoever could be told.
            return answers;
        };
        let marks = data.marks();
        let moment = Moment {
            now: steady(),
            wall: now(),
            start: marks.start,
            tail: marks.committed,
        };
        let mut effects = std::mem::take(&mut self.effects);
        let mut woken = false;
        for event in events {
            let input = match event {
                Event::Ask(ticket, ask, reply) => {
                    self.asked.insert(ticket, reply);
                    Input::Ask { ticket, ask }
                }
                Event::Input(input) => input,
            };
            woken |= matches!(input, Input::Timeout);
            self.core.handle(moment, input, &mut effects);
        }
        self.core.finish(&mut effects);
        for effect in effects.drain(..) {
            self.perform(cell, &data, effect, &mut answers);
        }
        self.effects = effects;
        let due = Due {
            steady: self.core.next_timeout(),
            wall: self.core.next_schedule(),
        };
        // Who was woken is not in the timers any more; and the clock may have been set back since.
        if woken || due != self.due {
            cell.timers.set(cell.key, self.due, due, cell);
            self.due = due;
        }
        answers
    }

    fn perform(
        &mut self,
        cell: &Arc<GroupCell>,
        data: &Arc<Cell>,
        effect: Effect,
        answers: &mut Vec<(Reply, Answer)>,
    ) {
        match effect {
            Effect::Write { batch, end } => self.lane.write(batch, end),
            Effect::Answer { ticket, answer } => {
                if let Some(reply) = self.asked.remove(&ticket) {
                    answers.push((reply, answer));
                }
            }
            Effect::Feed { feed, from } => {
                let reader = data.subscribe_group(Start::Offset(from), cell, feed);
                self.readers.insert(feed, reader);
            }
            Effect::Pull { feed } => {
                if let Some(reader) = self.readers.get(&feed)
                    && data.pull_group(*reader, feed)
                {
                    cell.push(Event::Input(Input::FeedParked { feed }));
                }
            }
            Effect::Unfeed { feed } => {
                if let Some(reader) = self.readers.remove(&feed) {
                    data.unsubscribe_group(reader, feed);
                }
            }
            Effect::Read {
                read,
                wants,
                max_bytes,
            } => self.read(cell, data, read, wants, max_bytes),
            Effect::Append { id, batch } => match Draft::from_log(batch) {
                Ok(draft) => data.append_scheduled(draft, id, cell),
                // The batch was built a moment ago.
                Err(error) => tracing::error!(%error, "a scheduled record cannot be appended"),
            },
            Effect::Closed => {}
        }
    }

    fn read(
        &self,
        cell: &Arc<GroupCell>,
        data: &Arc<Cell>,
        read: ReadId,
        wants: Vec<Want>,
        max_bytes: usize,
    ) {
        let Some(log) = data.log() else { return };
        let (data, lane) = (log.reader(), self.lane.reader());
        let cell = Arc::clone(cell);
        cell.runtime.clone().spawn_blocking(move || {
            let found = find(&data, &lane, wants, max_bytes);
            cell.hear(Input::Read { read, found });
        });
    }
}

/// A page of a log while single records are looked for.
struct Looked {
    place: Place,
    records: Vec<Record>,
    /// Exclusive.
    end: Offset,
    /// Bytes of memory that the records share.
    bytes: usize,
    /// Where what was found in it begins.
    first: usize,
}

/// Reads records one by one, in the order of their offsets, until `max_bytes` of them were read.
fn find(
    data: &LogReader,
    lane: &LogReader,
    wants: Vec<Want>,
    max_bytes: usize,
) -> Vec<(Want, Found)> {
    let mut bytes = 0;
    let mut found = Vec::with_capacity(wants.len());
    let mut page: Option<Looked> = None;
    for want in wants {
        if bytes >= max_bytes && !found.is_empty() {
            break;
        }
        let held = page
            .as_ref()
            .is_some_and(|page| page.place == want.place && want.at < page.end);
        if !held {
            if let Some(page) = page.take() {
                let_go(&page, &mut found);
            }
            let log = match want.place {
                Place::Data => data,
                Place::Lane => lane,
            };
            match look(log, want, found.len()) {
                Ok(looked) => page = Some(looked),
                Err(ReadRefused::BelowStart { .. } | ReadRefused::PastEnd { .. }) => {
                    found.push((want, Found::Nothing));
                    continue;
                }
                Err(error) => {
                    tracing::error!(%error, offset = want.at.0, "a group's record cannot be read");
                    found.push((want, Found::Unreadable));
                    continue;
                }
            }
        }
        let records = page.as_ref().map_or(&[][..], |page| &page.records);
        let record = records
            .binary_search_by_key(&want.at, |record| record.offset)
            .ok()
            .and_then(|place| records.get(place));
        let record = match want.place {
            Place::Data => record.cloned(),
            Place::Lane => record.and_then(|record| Groups::kept(want.at, record)),
        };
        bytes += record.as_ref().map_or(0, carried_bytes);
        found.push((want, record.map_or(Found::Nothing, Found::Record)));
    }
    if let Some(page) = page {
        let_go(&page, &mut found);
    }
    found
}

/// Records that are little of their page are copied out of it, or each of them would keep all of it in memory until it
/// is answered.
fn let_go(page: &Looked, found: &mut [(Want, Found)]) {
    let found = found.get_mut(page.first..).unwrap_or_default();
    let records = || found.iter().filter_map(|(_, found)| record(found));
    let taken: usize = records().map(carried_bytes).sum();
    if taken.saturating_mul(COPY_BELOW) >= page.bytes {
        return;
    }
    for (_, found) in found {
        if let Some(record) = record(found) {
            *found = Found::Record(record.detached());
        }
    }
}

fn record(found: &Found) -> Option<&Record> {
    match found {
        Found::Record(record) => Some(record),
        Found::Nothing | Found::Unreadable => None,
    }
}

/// A page of records from what is wanted on. What is found in it comes after `first` others.
fn look(log: &LogReader, want: Want, first: usize) -> Result<Looked, ReadRefused> {
    let page = log.read(want.at, PAGE_BYTES, log.end())?;
    let mut records = Vec::new();
    for batch in &page.batches {
        if let Ok(read) = Records::new(batch) {
            records.extend(read.map_while(Result::ok));
        }
    }
    // As much was read at once, however little of it is of use.
    let held = page.batches.iter().map(bytes::Bytes::len);
    Ok(Looked {
        place: want.place,
        records,
        end: page.next.max(want.at.plus(1)),
        bytes: held.sum::<usize>().max(PAGE_BYTES),
        first,
    })
}

/// What the journal reports of the lane, passed on while the cell is there.
pub(crate) struct LaneReports(pub(crate) Weak<GroupCell>);

impl Completions for LaneReports {
    fn written(&self, end: Offset) {
        if let Some(cell) = self.0.upgrade() {
            cell.hear(Input::LaneWritten { end });
        }
    }

    fn flushed(&self, end: Offset) {
        if let Some(cell) = self.0.upgrade() {
            cell.hear(Input::LaneFlushed { end });
        }
    }

    fn failed(&self, _: Offset, why: WriteFailure) {
        let Some(cell) = self.0.upgrade() else { return };
        cell.hear(Input::LaneFailed {
            why: match why {
                WriteFailure::Full => felix_engine::WriteFailure::Full,
                WriteFailure::Io => felix_engine::WriteFailure::Io,
                WriteFailure::Poisoned => felix_engine::WriteFailure::Poisoned,
            },
        });
        (cell.on_failure)(why);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use felix_journal::{Log, LogOptions, SimDisk};
    use felix_model::{BatchBuilder, BatchOptions, Generation, patch};

    use super::*;

    fn log_of(values: &[&[u8]]) -> Log {
        let disk = Arc::new(SimDisk::new(1));
        let (mut log, _) = Log::open(disk, Path::new("/log"), LogOptions::default()).unwrap();
        for value in values {
            let mut builder = BatchBuilder::new(BatchOptions::default());
            let headers = [(&b"h"[..], Some(&b"v"[..]))];
            builder.push(1, Some(b"k"), Some(value), &headers).unwrap();
            let mut batch = builder.finish().unwrap();
            patch(&mut batch, log.end(), Generation(1));
            log.append(&[batch.freeze()]).unwrap();
        }
        log
    }

    fn found(log: &Log, offsets: &[u64], max_bytes: usize) -> Vec<Record> {
        let want = |&at: &u64| Want {
            place: Place::Data,
            at: Offset(at),
        };
        let wants = offsets.iter().map(want).collect();
        let found = find(&log.reader(), &log.reader(), wants, max_bytes);
        let records = found.iter().filter_map(|(_, found)| record(found).cloned());
        records.collect()
    }

    #[test]
    fn few_records_of_a_page_do_not_keep_it_and_are_the_same() {
        let log = log_of(&[b"a", &[7; 200_000], b"c"]);
        let few = found(&log, &[0, 2], usize::MAX);
        let all = found(&log, &[0, 1, 2], usize::MAX);
        assert_eq!(few, [all[0].clone(), all[2].clone()]);
        // A copy is nobody's but its own; the page is shared by what was found in it.
        let mut all = all;
        drop(few.clone());
        let alone = |record: Record| record.value.unwrap().is_unique();
        assert!(few.into_iter().all(alone));
        let first = all.remove(0);
        assert!(!alone(first));
    }

    #[test]
    fn headers_count_against_the_bytes_that_are_read() {
        let log = log_of(&[b"a", b"b", b"c"]);
        let one = carried_bytes(&found(&log, &[0], usize::MAX)[0]);
        assert!(one > 4);
        assert_eq!(found(&log, &[0, 1, 2], one + 1).len(), 2);
    }
}
