//! One shard in service: the pure core, and the shell that carries out what it decides.
//!
//! Whoever brings an input runs the turn, under the shard's mutex: a publish from its stream's task, a completion
//! from a journal thread, a page from a blocking thread. There is no task per shard and no hop, so an idle shard
//! costs its memory and nothing else. Nothing in a turn blocks or waits.

mod state;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use felix_engine::groups::{FeedId, ScheduleId};
use felix_engine::{
    AckWhen, Append, AppendRefused, Appended, Batch, CloseReason, Draft, Effect, Input, Page,
    Produced, ReaderId, ReaderView, Shard, Start, Ticket,
};
use felix_journal::{Completions, LogHandle, ReadRefused, WriteFailure};
use felix_model::{Generation, Offset, ProducerId, TimeMs};
use slab::Slab;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use felix_engine::state::{StateAnswer, StateView};

use self::state::CommitWaiting;
pub(crate) use self::state::{KeptState, Saved, read_commit};
use super::mailbox::{Delivery, Mailbox, Said};
use crate::conn::publish::Waiting;
use crate::groups::cell::GroupCell;
use crate::raw::RawWaiting;

/// Milliseconds since 1970 by this host's clock.
pub(crate) fn now() -> TimeMs {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    TimeMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// A shard that is being served.
pub(crate) struct Cell {
    inner: Mutex<Inner>,
    runtime: Handle,
    on_failure: Box<dyn Fn(WriteFailure) + Send + Sync>,
    /// The shard's groups, while they are open. They close and reopen with it.
    groups: RwLock<Option<Arc<GroupCell>>>,
    /// That its commits suspend retention was told.
    told_of_commits: AtomicBool,
    /// It has groups, and they could not be opened.
    owes_groups: AtomicBool,
    /// Held by whoever writes down where it begins.
    trimming: Mutex<()>,
}

/// Hears what became of an append, on whatever thread finished it. It must not block, nor come back to the shard.
pub(crate) type Told = Box<dyn FnOnce(Result<Appended, AppendRefused>) + Send>;

/// Who hears what became of an append.
enum Settle {
    Publish(Waiting),
    Scheduled(ScheduleId, Arc<GroupCell>),
    Commit(CommitWaiting),
    Raw(RawWaiting),
    Told(Told),
}

/// Who a reader's deliveries are for.
enum Sink {
    Mailbox(Arc<Mailbox>),
    Group(FeedId, Arc<GroupCell>),
}

impl std::fmt::Debug for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cell").finish_non_exhaustive()
    }
}

struct Inner {
    core: Shard,
    /// The time of the last turn.
    clock: TimeMs,
    log: Option<LogHandle>,
    waiting: Slab<Settle>,
    /// The state that commits left; `None` while there never was a commit.
    view: Option<Box<StateView>>,
    /// What of the log the state on disk has.
    saved: Saved,
    answers: Vec<StateAnswer>,
    readers: Slab<Sink>,
    /// Who is to be woken by the next commit.
    watchers: Slab<Arc<Notify>>,
    /// The mark they know.
    watched: Offset,
    effects: Vec<Effect>,
    /// Groups that were told something in this turn, and decide about it once the lock is free.
    told: Vec<Arc<GroupCell>>,
    /// Somebody waits for everything in flight to settle.
    closed: Vec<oneshot::Sender<()>>,
}

impl Cell {
    /// Serves `core`. `on_failure` is called, on a journal thread, whenever a write or sync failed.
    pub(crate) fn new(
        core: Shard,
        state: Option<KeptState>,
        runtime: Handle,
        on_failure: impl Fn(WriteFailure) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (view, saved) = state.map_or_else(Default::default, |state| {
            (Some(Box::new(state.view)), state.saved)
        });
        Arc::new(Self {
            inner: Mutex::new(Inner {
                clock: TimeMs(0),
                log: None,
                waiting: Slab::new(),
                view,
                saved,
                answers: Vec::new(),
                readers: Slab::new(),
                watchers: Slab::new(),
                watched: core.committed(),
                effects: Vec::new(),
                told: Vec::new(),
                closed: Vec::new(),
                core,
            }),
            runtime,
            on_failure: Box::new(on_failure),
            groups: RwLock::default(),
            told_of_commits: AtomicBool::new(false),
            owes_groups: AtomicBool::new(false),
            trimming: Mutex::new(()),
        })
    }

    /// Gives a durable shard its log. Before this no append may come in.
    pub(crate) fn attach(&self, log: LogHandle) {
        self.lock().log = Some(log);
    }

    /// The log of a durable shard.
    pub(crate) fn log(&self) -> Option<LogHandle> {
        self.lock().log.clone()
    }

    /// Appends a batch; `waiting` hears the outcome, at once or when it is written.
    pub(crate) fn append(
        self: &Arc<Self>,
        batch: Draft,
        expected: Option<Offset>,
        producer: Option<Produced>,
        waiting: Waiting,
    ) {
        let settle = Settle::Publish(waiting);
        self.append_for(settle, batch, expected, producer);
    }

    /// Appends a batch of the broker's own.
    pub(crate) fn append_told(self: &Arc<Self>, batch: Draft, told: Told) {
        self.append_for(Settle::Told(told), batch, None, None);
    }

    /// Appends a batch as it came. Answers where the shard begins.
    pub(crate) fn append_raw(self: &Arc<Self>, batch: Draft, waiting: RawWaiting) -> Offset {
        self.append_for(Settle::Raw(waiting), batch, None, None);
        self.marks().start
    }

    /// Appends a scheduled record; its groups hear the outcome.
    pub(crate) fn append_scheduled(
        self: &Arc<Self>,
        batch: Draft,
        id: ScheduleId,
        groups: &Arc<GroupCell>,
    ) {
        let settle = Settle::Scheduled(id, Arc::clone(groups));
        self.append_for(settle, batch, None, None);
    }

    fn append_for(
        self: &Arc<Self>,
        settle: Settle,
        batch: Draft,
        expected: Option<Offset>,
        producer: Option<Produced>,
    ) {
        self.with(|inner| {
            let ticket = Ticket(inner.waiting.insert(settle) as u64);
            let ack = AckWhen::Committed;
            inner.turn(
                self,
                Input::Append(Append {
                    ticket,
                    batch,
                    expected,
                    producer,
                    ack,
                }),
            );
        });
    }

    /// Subscribes. The answer comes through the mailbox.
    pub(crate) fn subscribe(self: &Arc<Self>, start: Start) -> (ReaderId, Arc<Mailbox>) {
        let mailbox = Arc::new(Mailbox::default());
        let reader = self.subscribe_sink(start, Sink::Mailbox(Arc::clone(&mailbox)));
        (reader, mailbox)
    }

    fn subscribe_sink(self: &Arc<Self>, start: Start, sink: Sink) -> ReaderId {
        self.with(|inner| {
            let reader = ReaderId(inner.readers.insert(sink) as u64);
            inner.turn(self, Input::Subscribe { reader, start });
            reader
        })
    }

    /// Attaches a cursor of a group.
    pub(crate) fn subscribe_group(
        self: &Arc<Self>,
        start: Start,
        groups: &Arc<GroupCell>,
        feed: FeedId,
    ) -> ReaderId {
        self.subscribe_sink(start, Sink::Group(feed, Arc::clone(groups)))
    }

    /// Lets a group's cursor deliver once. `true` when it has nothing, and delivers with the next commit.
    pub(crate) fn pull_group(self: &Arc<Self>, reader: ReaderId, feed: FeedId) -> bool {
        self.with(|inner| {
            if !inner.is_feed(reader, feed) {
                return false;
            }
            let max_bytes = felix_engine::groups::limits::PULL_BYTES;
            inner.turn(self, Input::Pull { reader, max_bytes });
            inner.core.reader(reader).is_some_and(|view| view.waiting)
        })
    }

    /// Takes a group's cursor away, if it is still there.
    pub(crate) fn unsubscribe_group(self: &Arc<Self>, reader: ReaderId, feed: FeedId) {
        self.with(|inner| {
            if inner.is_feed(reader, feed) {
                inner.turn(self, Input::Unsubscribe { reader });
                inner.forget_reader(reader);
            }
        });
    }

    /// The shard's groups, if they are open.
    pub(crate) fn groups(&self) -> Option<Arc<GroupCell>> {
        self.groups
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Puts the shard's groups into service. Only under the lock that opens and closes the shard.
    pub(crate) fn put_groups(&self, groups: Arc<GroupCell>) {
        *self.groups.write().unwrap_or_else(PoisonError::into_inner) = Some(groups);
    }

    /// For whoever writes down where it begins, one at a time.
    pub(crate) fn trimming(&self) -> MutexGuard<'_, ()> {
        self.trimming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether its groups could not be opened and are to be opened later.
    pub(crate) fn set_owes_groups(&self, owes: bool) {
        self.owes_groups.store(owes, Ordering::Relaxed);
    }

    /// Whether its groups are to be opened later.
    pub(crate) fn owes_groups(&self) -> bool {
        self.owes_groups.load(Ordering::Relaxed)
    }

    /// Takes the shard's groups out of service. Only under the lock that opens and closes the shard.
    pub(crate) fn take_groups(&self) -> Option<Arc<GroupCell>> {
        self.groups
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Asks for the next delivery, which comes through the mailbox.
    pub(crate) fn pull(self: &Arc<Self>, reader: ReaderId, max_bytes: u32) {
        self.report(Input::Pull { reader, max_bytes });
    }

    /// Ends a subscription, if it has not ended: its number may be another's by now, its mailbox never is.
    pub(crate) fn unsubscribe(self: &Arc<Self>, reader: ReaderId, mailbox: &Arc<Mailbox>) {
        self.with(|inner| {
            let sink = key(reader.0).and_then(|key| inner.readers.get(key));
            if matches!(sink, Some(Sink::Mailbox(own)) if Arc::ptr_eq(own, mailbox)) {
                inner.turn(self, Input::Unsubscribe { reader });
                inner.forget_reader(reader);
            }
        });
    }

    /// Says that retention moved the start of the log.
    pub(crate) fn trimmed(self: &Arc<Self>, start: Offset) {
        self.report(Input::Trimmed { start });
    }

    /// Whether nobody was told yet that its commits suspend retention. Asked once, it is told.
    pub(crate) fn tells_of_commits(&self) -> bool {
        !self.told_of_commits.swap(true, Ordering::Relaxed)
    }

    /// Lets held appends time out.
    pub(crate) fn timeout(self: &Arc<Self>) {
        self.report(Input::Timeout);
    }

    /// Stops the shard. Resolves when everything in flight is settled.
    pub(crate) fn close(self: &Arc<Self>, reason: CloseReason) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.with(|inner| {
            inner.closed.push(sender);
            inner.turn(self, Input::Close { reason });
        });
        receiver
    }

    /// Start, committed mark and end of the log.
    pub(crate) fn marks(&self) -> Marks {
        self.lock().marks()
    }

    /// The generation of what is appended from here on.
    pub(crate) fn generation(&self) -> Generation {
        self.lock().core.generation()
    }

    /// What a reader at `from` gets of the batches in memory, and the marks of that moment; `None` when it has to look
    /// into the log.
    pub(crate) fn recent(&self, from: Offset, max_bytes: u64) -> (Marks, Option<Vec<Arc<Batch>>>) {
        let inner = self.lock();
        (inner.marks(), inner.core.recent(from, max_bytes))
    }

    /// Wakes `waker` with every commit until what is answered is dropped.
    pub(crate) fn watch(self: &Arc<Self>, waker: &Arc<Notify>) -> CommitWatch {
        let key = self.lock().watchers.insert(Arc::clone(waker));
        let cell = Arc::downgrade(self);
        CommitWatch { cell, key }
    }

    /// Whether its log failed: what is under way is settled by opening it anew.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.lock().core.is_poisoned()
    }

    /// The committed batches of idempotent producers that are remembered: producer by producer, in order of offsets.
    pub(crate) fn produced(&self) -> Vec<(ProducerId, Offset)> {
        let inner = self.lock();
        let committed = inner.core.committed();
        let known = inner.core.producers().iter();
        let known = known.map(|batch| (batch.produced.producer, batch.base, batch.end));
        let kafka = inner.core.producers().iter_kafka();
        let kafka = kafka.map(|batch| (batch.produced.producer, batch.base, batch.end));
        known
            .chain(kafka)
            .filter(|(_, _, end)| *end <= committed)
            .map(|(producer, base, _)| (producer, base))
            .collect()
    }

    /// When held appends time out, if any are held.
    pub(crate) fn next_timeout(&self) -> Option<TimeMs> {
        self.lock().core.next_timeout()
    }

    /// How far one reader is.
    pub(crate) fn reader(&self, reader: ReaderId) -> Option<ReaderView> {
        self.lock().core.reader(reader)
    }

    fn report(self: &Arc<Self>, input: Input) {
        self.with(|inner| inner.turn(self, input));
    }

    /// Does something under the lock, and lets groups that were told something decide once it is free.
    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.lock();
        let done = act(&mut inner);
        let told = std::mem::take(&mut inner.told);
        drop(inner);
        for groups in told {
            groups.run();
        }
        done
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The three offsets that describe a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    /// First offset still there.
    pub(crate) start: Offset,
    /// Readers see what is below it. Exclusive.
    pub(crate) committed: Offset,
    /// Next offset to be given out.
    pub(crate) end: Offset,
}

/// A place among those whom commits of a shard wake.
#[derive(Debug)]
pub(crate) struct CommitWatch {
    cell: Weak<Cell>,
    key: usize,
}

impl Drop for CommitWatch {
    fn drop(&mut self) {
        if let Some(cell) = self.cell.upgrade() {
            cell.lock().watchers.try_remove(self.key);
        }
    }
}

impl Inner {
    fn marks(&self) -> Marks {
        Marks {
            start: self.core.start(),
            committed: self.core.committed(),
            end: self.core.end(),
        }
    }

    /// Wakes those who wait for a commit, if there was one.
    fn wake_watchers(&mut self) {
        let committed = self.core.committed();
        if committed == self.watched {
            return;
        }
        self.watched = committed;
        for (_, watcher) in &self.watchers {
            watcher.notify_one();
        }
    }

    /// The time, which never goes back, whatever is done to the clock.
    fn now(&mut self) -> TimeMs {
        self.clock = self.clock.max(now());
        self.clock
    }

    fn turn(&mut self, cell: &Arc<Cell>, input: Input) {
        let mut effects = std::mem::take(&mut self.effects);
        let now = self.now();
        self.core.handle(now, input, &mut effects);
        self.perform_all(cell, effects);
    }

    /// The end of a turn: carries out what the core decided, and what follows for the state.
    fn perform_all(&mut self, cell: &Arc<Cell>, mut effects: Vec<Effect>) {
        // Before anybody is told: whoever hears of his commit finds it in the state.
        if let Some(view) = &mut self.view {
            view.follow(&self.core, &mut self.answers);
        }
        for effect in effects.drain(..) {
            self.perform(cell, effect);
        }
        self.effects = effects;
        self.answer_commits();
        self.wake_watchers();
    }

    fn perform(&mut self, cell: &Arc<Cell>, effect: Effect) {
        match effect {
            Effect::Write { batch, end } => {
                if let (Some(log), Some(bytes)) = (&self.log, batch.log()) {
                    self.saved.log_grew(bytes.len());
                    log.write(bytes.clone(), end);
                }
            }
            Effect::Reply { ticket, outcome } => self.reply(ticket, outcome),
            Effect::Subscribed {
                reader,
                start,
                live,
            } => {
                self.say(reader, Said::Subscribed { start, live });
            }
            Effect::SubscribeRefused { reader, why } => {
                self.say(reader, Said::Refused(why));
                self.forget_reader(reader);
            }
            Effect::Deliver {
                reader,
                from,
                batches,
                skipped_before,
                lost,
            } => {
                self.say(
                    reader,
                    Said::Deliver(Delivery {
                        from,
                        batches,
                        skipped_before,
                        lost,
                    }),
                );
            }
            Effect::Read {
                reader,
                from,
                max_bytes,
                until,
            } => {
                self.read(cell, reader, from, max_bytes, until);
            }
            Effect::ReaderEnded { reader, why } => {
                self.say(reader, Said::Ended(why));
                self.forget_reader(reader);
            }
            Effect::Closed => {
                for waiting in self.closed.drain(..) {
                    // Whoever stopped waiting does not need to know.
                    let _ = waiting.send(());
                }
            }
        }
    }

    fn reply(&mut self, ticket: Ticket, outcome: Result<Appended, AppendRefused>) {
        match key(ticket.0).and_then(|key| self.waiting.try_remove(key)) {
            Some(Settle::Publish(waiting)) => waiting.settle(outcome),
            Some(Settle::Scheduled(id, groups)) => {
                groups.appended(id, outcome);
                self.told.push(groups);
            }
            Some(Settle::Commit(waiting)) => waiting.settle(state::outcome(outcome)),
            Some(Settle::Told(told)) => told(outcome),
            Some(Settle::Raw(waiting)) => waiting.settle(outcome, self.core.start()),
            None => {}
        }
    }

    fn say(&mut self, reader: ReaderId, said: Said) {
        match key(reader.0).and_then(|key| self.readers.get(key)) {
            Some(Sink::Mailbox(mailbox)) => mailbox.put(said),
            Some(Sink::Group(feed, groups)) => {
                groups.said(*feed, said);
                self.told.push(Arc::clone(groups));
            }
            None => {}
        }
    }

    /// Whether a reader is still this cursor of a group: numbers of readers are used again.
    fn is_feed(&self, reader: ReaderId, feed: FeedId) -> bool {
        matches!(
            key(reader.0).and_then(|key| self.readers.get(key)),
            Some(Sink::Group(of, _)) if *of == feed
        )
    }

    fn forget_reader(&mut self, reader: ReaderId) {
        if let Some(key) = key(reader.0) {
            self.readers.try_remove(key);
        }
    }

    fn read(
        &self,
        cell: &Arc<Cell>,
        reader: ReaderId,
        from: Offset,
        max_bytes: u32,
        until: Offset,
    ) {
        let Some(log) = self.log.as_ref().map(LogHandle::reader) else {
            return;
        };
        let cell = Arc::clone(cell);
        cell.runtime.clone().spawn_blocking(move || {
            let page = match log.read(from, max_bytes as usize, until) {
                Ok(page) => page_of(page),
                Err(ReadRefused::BelowStart { oldest }) => Page::BelowStart { oldest },
                Err(error) => {
                    tracing::error!(%error, offset = from.0, "a reader cannot be served from the log");
                    Page::Unreadable
                }
            };
            cell.report(Input::PageRead { reader, from, page });
        });
    }
}

fn key(id: u64) -> Option<usize> {
    usize::try_from(id).ok()
}

/// What a reader is told of a page of the journal.
fn page_of(page: felix_journal::Page) -> Page {
    let next = page.next;
    match batches(page.batches) {
        Some(batches) if page.is_sparse => Page::Sparse { batches, next },
        Some(batches) if !batches.is_empty() => Page::Batches(batches),
        Some(_) | None => Page::Unreadable,
    }
}

/// Batches as the journal gave them, or `None` when one is not a batch.
pub(crate) fn batches(page: Vec<bytes::Bytes>) -> Option<Vec<Arc<Batch>>> {
    page.into_iter()
        .map(|log| Batch::from_log(log).ok().map(Arc::new))
        .collect()
}

/// What the journal reports, passed on to the shard while it is there.
pub(crate) struct Reports(pub(crate) Weak<Cell>);

impl Completions for Reports {
    fn written(&self, end: Offset) {
        if let Some(cell) = self.0.upgrade() {
            cell.report(Input::Written { end });
        }
    }

    fn flushed(&self, end: Offset) {
        if let Some(cell) = self.0.upgrade() {
            cell.report(Input::Flushed { end });
        }
    }

    fn failed(&self, from: Offset, why: WriteFailure) {
        let Some(cell) = self.0.upgrade() else { return };
        let engine_why = match why {
            WriteFailure::Full => felix_engine::WriteFailure::Full,
            WriteFailure::Io => felix_engine::WriteFailure::Io,
            WriteFailure::Poisoned => felix_engine::WriteFailure::Poisoned,
        };
        cell.report(Input::WriteFailed {
            from,
            why: engine_why,
        });
        (cell.on_failure)(why);
    }
}
