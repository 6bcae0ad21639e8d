//! One shard of a cache in service: the pure core, and the shell that carries out what it decides.
//!
//! As with a stream's shard, whoever brings an input runs the turn, under the shard's mutex. Requests are put into a
//! queue first, and whoever holds the mutex takes all that stand there, so that the puts of many clients become one
//! batch. Answers leave after the mutex is let go.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use felix_engine::cache::{
    CacheAnswer, CacheEffect, CacheInput, CacheOp, CacheRefused, CacheShard, CacheStats,
    CacheTicket,
};
use felix_engine::keyed::{Entry, Key, Remembered, Sum};
use felix_engine::{CloseReason, Effect, Input, Page, ReaderId, Start};
use felix_journal::{Completions, LogHandle, LogReader, ReadRefused, WriteFailure};
use felix_model::forms::Keyed;
use felix_model::{Offset, TimeMs};
use slab::Slab;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::call::{Place, finish};
use crate::shards::cell::{Marks, batches, now};
use crate::shards::mailbox::{Delivery, Mailbox, Said};

/// A cache's shard that is being served.
pub(crate) struct Cell {
    queue: Mutex<Vec<Asked>>,
    inner: Mutex<Inner>,
    /// Held while the index is written down.
    index: Mutex<()>,
    runtime: Handle,
    on_failure: Box<dyn Fn(WriteFailure) + Send + Sync>,
}

impl std::fmt::Debug for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cell").finish_non_exhaustive()
    }
}

/// What becomes of a record when its log is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is needed.
    Stays,
    /// A newer record of its key says all that counts.
    Superseded,
    /// It is the newest of its key, a deletion that everybody had time to see.
    LastDeletion,
}

/// One request, and where its answer goes.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) op: CacheOp,
    pub(crate) place: Place,
}

/// An op that the core answered.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) place: Place,
    /// Of a get or a delete.
    pub(crate) key: Option<Bytes>,
    pub(crate) outcome: Result<CacheAnswer, CacheRefused>,
}

struct Inner {
    core: CacheShard,
    /// The time of the last turn.
    clock: TimeMs,
    log: Option<LogHandle>,
    /// With the key of a get or a delete, whose value may have to be read.
    asked: Slab<(Place, Option<Bytes>)>,
    readers: Slab<Arc<Mailbox>>,
    effects: Vec<CacheEffect>,
    answered: Vec<Answered>,
    /// Somebody waits for everything in flight to settle.
    closed: Vec<oneshot::Sender<()>>,
}

impl Cell {
    /// Serves `core`. `on_failure` is called, on a journal thread, whenever a write or sync failed.
    pub(crate) fn new(
        core: CacheShard,
        runtime: Handle,
        on_failure: impl Fn(WriteFailure) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            queue: Mutex::default(),
            index: Mutex::default(),
            inner: Mutex::new(Inner {
                core,
                clock: TimeMs(0),
                log: None,
                asked: Slab::new(),
                readers: Slab::new(),
                effects: Vec::new(),
                answered: Vec::new(),
                closed: Vec::new(),
            }),
            runtime,
            on_failure: Box::new(on_failure),
        })
    }

    /// Gives a durable shard its log. Before this nothing may be asked.
    pub(crate) fn attach(&self, log: LogHandle) {
        self.lock().log = Some(log);
    }

    /// The log of a durable shard.
    pub(crate) fn log(&self) -> Option<LogHandle> {
        self.lock().log.clone()
    }

    /// Asks; each is answered through its place, at once or when what it saw is committed.
    pub(crate) fn ask(self: &Arc<Self>, asked: impl IntoIterator<Item = Asked>) {
        queue(&self.queue).extend(asked);
        // Whoever gets the mutex first takes what the others who wait for it brought, too.
        self.turn(|inner, cell| inner.take_asked(cell));
    }

    /// Subscribes. The answer comes through the mailbox.
    pub(crate) fn subscribe(self: &Arc<Self>, start: Start) -> (ReaderId, Arc<Mailbox>) {
        let mailbox = Arc::new(Mailbox::default());
        let put = Arc::clone(&mailbox);
        let reader = self.turn(|inner, cell| {
            let reader = ReaderId(inner.readers.insert(put) as u64);
            inner.log_turn(cell, Input::Subscribe { reader, start });
            reader
        });
        (reader, mailbox)
    }

    /// Asks for the next delivery, which comes through the mailbox.
    pub(crate) fn pull(self: &Arc<Self>, reader: ReaderId, max_bytes: u32) {
        self.turn(|inner, cell| inner.log_turn(cell, Input::Pull { reader, max_bytes }));
    }

    /// Ends a subscription.
    pub(crate) fn unsubscribe(self: &Arc<Self>, reader: ReaderId) {
        self.turn(|inner, cell| {
            inner.log_turn(cell, Input::Unsubscribe { reader });
            inner.forget_reader(reader);
        });
    }

    /// Deletes some of what expired, if anything did.
    pub(crate) fn expire(self: &Arc<Self>) {
        let due = self.lock().core.next_due();
        if due.is_some_and(|due| due <= now()) {
            self.turn(|inner, cell| inner.core_turn(cell, CacheInput::Expire));
        }
    }

    /// Writes some of the checkpoints that counters need; answers where to go on.
    pub(crate) fn checkpoint(self: &Arc<Self>, below: Offset, after: Option<&Key>) -> Option<Key> {
        self.turn(|inner, cell| {
            let mut effects = std::mem::take(&mut inner.effects);
            let now = inner.now();
            let next = inner.core.checkpoint(now, below, after, &mut effects);
            inner.perform_all(cell, effects);
            next
        })
    }

    /// Stops the shard. Resolves when everything in flight is settled.
    pub(crate) fn close(self: &Arc<Self>, reason: CloseReason) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.turn(|inner, cell| {
            inner.closed.push(sender);
            inner.log_turn(cell, Input::Close { reason });
        });
        receiver
    }

    /// Something the journal reports, or a page it read.
    pub(crate) fn report(self: &Arc<Self>, input: Input) {
        self.turn(|inner, cell| inner.log_turn(cell, input));
    }

    /// Start, committed mark and end of the log.
    pub(crate) fn marks(&self) -> Marks {
        let inner = self.lock();
        let shard = inner.core.shard();
        Marks {
            start: shard.start(),
            committed: shard.committed(),
            end: shard.end(),
        }
    }

    /// Where history begins to be whole: below it deletions may be missing, or, of a cache in memory, anything.
    pub(crate) fn history_start(&self) -> Offset {
        let inner = self.lock();
        let floor = inner.log.as_ref().map(LogHandle::tombstone_floor);
        inner.core.shard().start().max(floor.unwrap_or_default())
    }

    pub(crate) fn stats(&self) -> CacheStats {
        self.lock().core.stats()
    }

    /// Changes how much of the values may be in memory.
    pub(crate) fn set_value_bytes(&self, bytes: u64) {
        self.lock().core.set_value_bytes(bytes);
    }

    /// Some of the committed entries with a prefix, in order, those above `after`.
    pub(crate) fn walk(
        &self,
        prefix: &[u8],
        after: Option<&Key>,
        limit: usize,
    ) -> Vec<(Key, Entry)> {
        let inner = self.lock();
        let after = after.map(|key| &**key);
        let rows = inner.core.walk(prefix, after).take(limit);
        rows.map(|(key, entry)| (Key::clone(key), entry)).collect()
    }

    /// Some of the counters, in order, those above `after`.
    pub(crate) fn counters(&self, after: Option<&Key>, limit: usize) -> Vec<(Key, Sum)> {
        let inner = self.lock();
        let rows = inner.core.counters(after.map(|key| &**key)).take(limit);
        rows.map(|(key, sum)| (Key::clone(key), sum)).collect()
    }

    /// Some of the idempotent adds at or above `from`, by offset.
    pub(crate) fn remembered(&self, from: Offset, limit: usize) -> Vec<(Key, Remembered<i64>)> {
        let inner = self.lock();
        let rows = inner.core.remembered(from).take(limit);
        rows.map(|(key, known)| (Key::clone(key), *known)).collect()
    }

    /// The committed entry of a key, and its value if that is in memory.
    pub(crate) fn current(&self, key: &[u8]) -> Option<(Entry, Option<Bytes>)> {
        let mut inner = self.lock();
        let entry = inner.core.entry(key)?;
        Some((entry, inner.core.value(entry.offset)))
    }

    /// The value set by the record at `offset`, if it is in memory.
    pub(crate) fn value(&self, offset: Offset) -> Option<Bytes> {
        self.lock().core.value(offset)
    }

    /// Takes a value that was read from the log.
    pub(crate) fn learn(&self, key: &[u8], offset: Offset, value: &Bytes) {
        self.lock().core.learn(key, offset, value);
    }

    /// What compaction is to do with records, which are one batch's.
    pub(crate) fn sift(&self, records: &[(Keyed, Offset, TimeMs)]) -> Vec<Fate> {
        let mut inner = self.lock();
        let now = inner.now();
        let inner = &*inner;
        let fate = |(form, offset, time): &(Keyed, Offset, TimeMs)| {
            if inner.core.keeps(form, *offset, *time, now) {
                return Fate::Stays;
            }
            match form {
                Keyed::Delete { key } if inner.core.entry(key).is_none() => Fate::LastDeletion,
                Keyed::Delete { .. }
                | Keyed::Put { .. }
                | Keyed::Add { .. }
                | Keyed::Checkpoint { .. } => Fate::Superseded,
            }
        };
        records.iter().map(fate).collect()
    }

    /// Waits for the turn to write the index down.
    pub(super) fn index_turn(&self) -> MutexGuard<'_, ()> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a turn, and lets the answers go.
    fn turn<T>(self: &Arc<Self>, work: impl FnOnce(&mut Inner, &Arc<Self>) -> T) -> T {
        let mut inner = self.lock();
        let done = work(&mut inner, self);
        let answered = std::mem::take(&mut inner.answered);
        drop(inner);
        finish(self, answered);
        done
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread that may block, for reading values that are not in memory.
    pub(crate) fn blocking(&self, work: impl FnOnce() + Send + 'static) {
        self.runtime.spawn_blocking(work);
    }
}

fn queue(queue: &Mutex<Vec<Asked>>) -> MutexGuard<'_, Vec<Asked>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    /// The time, which never goes back: what was found to be expired stays so, whatever is done to the clock.
    fn now(&mut self) -> TimeMs {
        self.clock = self.clock.max(now());
        self.clock
    }

    fn take_asked(&mut self, cell: &Arc<Cell>) {
        let asked = std::mem::take(&mut *queue(&cell.queue));
        if asked.is_empty() {
            return;
        }
        let ops = asked
            .into_iter()
            .map(|Asked { op, place }| {
                let key = match &op {
                    CacheOp::Get { key } | CacheOp::Delete { key, .. } => Some(key.clone()),
                    CacheOp::List { .. }
                    | CacheOp::Put { .. }
                    | CacheOp::Add { .. }
                    | CacheOp::Sum { .. } => None,
                };
                (CacheTicket(self.asked.insert((place, key)) as u64), op)
            })
            .collect();
        self.core_turn(cell, CacheInput::Ops(ops));
    }

    fn log_turn(&mut self, cell: &Arc<Cell>, input: Input) {
        self.core_turn(cell, CacheInput::Log(input));
    }

    fn core_turn(&mut self, cell: &Arc<Cell>, input: CacheInput) {
        let mut effects = std::mem::take(&mut self.effects);
        let now = self.now();
        self.core.handle(now, input, &mut effects);
        self.perform_all(cell, effects);
    }

    fn perform_all(&mut self, cell: &Arc<Cell>, mut effects: Vec<CacheEffect>) {
        for effect in effects.drain(..) {
            match effect {
                CacheEffect::Log(effect) => self.perform(cell, effect),
                CacheEffect::Answer { ticket, outcome } => {
                    let asked = key(ticket.0).and_then(|key| self.asked.try_remove(key));
                    if let Some((place, key)) = asked {
                        self.answered.push(Answered {
                            place,
                            key,
                            outcome,
                        });
                    }
                }
            }
        }
        self.effects = effects;
    }

    fn perform(&mut self, cell: &Arc<Cell>, effect: Effect) {
        match effect {
            Effect::Write { batch, end } => {
                if let (Some(log), Some(bytes)) = (&self.log, batch.log()) {
                    log.write(bytes.clone(), end);
                }
            }
            Effect::Subscribed {
                reader,
                start,
                live,
            } => self.say(reader, Said::Subscribed { start, live }),
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
                let delivery = Delivery {
                    from,
                    batches,
                    skipped_before,
                    lost,
                };
                self.say(reader, Said::Deliver(delivery));
            }
            Effect::Read {
                reader,
                from,
                max_bytes,
                until,
            } => {
                if let Some(log) = self.log.as_ref().map(LogHandle::reader) {
                    let ask = PageAsk {
                        reader,
                        from,
                        max_bytes,
                        until,
                    };
                    read_page(cell, log, ask);
                }
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
            // The core answers ops itself and passes no reply on.
            Effect::Reply { .. } => {}
        }
    }

    fn say(&self, reader: ReaderId, said: Said) {
        if let Some(mailbox) = key(reader.0).and_then(|key| self.readers.get(key)) {
            mailbox.put(said);
        }
    }

    fn forget_reader(&mut self, reader: ReaderId) {
        if let Some(key) = key(reader.0) {
            self.readers.try_remove(key);
        }
    }
}

#[derive(Clone, Copy)]
struct PageAsk {
    reader: ReaderId,
    from: Offset,
    max_bytes: u32,
    until: Offset,
}

fn read_page(cell: &Arc<Cell>, log: LogReader, ask: PageAsk) {
    let PageAsk {
        reader,
        from,
        max_bytes,
        until,
    } = ask;
    let report = Arc::clone(cell);
    cell.blocking(move || {
        let page = match log.read(from, max_bytes as usize, until) {
            Ok(page) if page.is_sparse && page.batches.is_empty() => Page::Sparse {
                batches: Vec::new(),
                next: page.next,
            },
            Ok(page) if page.is_sparse => {
                let next = page.next;
                batches(page.batches)
                    .map_or(Page::Unreadable, |batches| Page::Sparse { batches, next })
            }
            Ok(page) => batches(page.batches).map_or(Page::Unreadable, Page::Batches),
            Err(ReadRefused::BelowStart { oldest }) => Page::BelowStart { oldest },
            Err(error) => {
                tracing::error!(%error, offset = from.0, "a watch cannot be served from the log");
                Page::Unreadable
            }
        };
        report.report(Input::PageRead { reader, from, page });
    });
}

fn key(id: u64) -> Option<usize> {
    usize::try_from(id).ok()
}

/// What the journal reports, passed on to the shard while it is there. Opening a log starts nothing, but reports that
/// come before there is a shard would only be lost.
#[derive(Default)]
pub(crate) struct Reports(std::sync::OnceLock<Weak<Cell>>);

impl Reports {
    pub(crate) fn attach(&self, cell: &Arc<Cell>) {
        // Attached once, by the opening that made it.
        let _ = self.0.set(Arc::downgrade(cell));
    }

    fn cell(&self) -> Option<Arc<Cell>> {
        self.0.get().and_then(Weak::upgrade)
    }
}

impl Completions for Reports {
    fn written(&self, end: Offset) {
        if let Some(cell) = self.cell() {
            cell.report(Input::Written { end });
        }
    }

    fn flushed(&self, end: Offset) {
        if let Some(cell) = self.cell() {
            cell.report(Input::Flushed { end });
        }
    }

    fn failed(&self, from: Offset, why: WriteFailure) {
        let Some(cell) = self.cell() else { return };
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
