//! Readers as cursors: where each stands, and what it gets next.

use std::collections::BTreeMap;

use felix_model::Offset;

use super::{Shard, Status};
use crate::effect::Effect;
use crate::input::{CloseReason, Page, ReaderId, Start};
use crate::refused::{ReaderEnd, SubscribeRefused};
use crate::window::{NextRun, Want, is_page_at, is_sparse_page, next_run};

/// All readers of a shard: a table of slots, so that a commit reaches those that wait without
/// looking anybody up.
#[derive(Debug, Default)]
pub(super) struct Readers {
    slots: Vec<Option<Reader>>,
    free: Vec<u32>,
    by_id: BTreeMap<ReaderId, u32>,
    /// Slots of readers that wait for the next commit. All of them stand at the committed mark.
    parked: Vec<u32>,
}

#[derive(Debug)]
pub(super) struct Reader {
    pub(super) id: ReaderId,
    /// The next offset it is to get. At most the committed mark.
    pub(super) position: Offset,
    pub(super) state: State,
    max_bytes: u32,
    /// Offsets passed since the last delivery that hold nothing for readers: control batches, and what was
    /// compacted away.
    skipped: u64,
    /// Records lost since the last delivery.
    pub(super) lost: u64,
    /// Records lost ever.
    pub(super) lost_total: u64,
    /// Under `overflow: drop_new`: what it is owed ends here, until it has taken that.
    pub(super) cut: Option<Offset>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It has not asked for more.
    Idle,
    /// It waits for the next commit.
    Parked {
        /// Its index among those that do.
        place: usize,
    },
    /// It waits for a page of the journal.
    Reading,
}

/// One line of a listing of subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderView {
    /// Which.
    pub reader: ReaderId,
    /// The next offset it is to get.
    pub position: Offset,
    /// How many offsets it is behind the committed mark.
    pub lag: u64,
    /// Records it lost because it was too slow, ever.
    pub lost: u64,
    /// It has everything and waits for the next commit.
    pub waiting: bool,
}

impl Readers {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn parked_len(&self) -> usize {
        self.parked.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Reader> {
        self.slots.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Reader> {
        self.slots.iter_mut().flatten()
    }

    fn slot(&self, id: ReaderId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    fn get(&mut self, slot: u32) -> Option<&mut Reader> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    fn view(&self, slot: u32) -> Option<&Reader> {
        self.slots.get(slot as usize)?.as_ref()
    }

    fn insert(&mut self, reader: Reader) {
        let id = reader.id;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = Some(reader);
            self.by_id.insert(id, slot);
        }
    }

    fn remove(&mut self, slot: u32) -> Option<Reader> {
        let reader = self.slots.get_mut(slot as usize)?.take()?;
        self.by_id.remove(&reader.id);
        self.free.push(slot);
        if let State::Parked { place } = reader.state {
            self.parked.swap_remove(place);
            if let Some(&moved) = self.parked.get(place)
                && let Some(moved) = self.get(moved)
            {
                moved.state = State::Parked { place };
            }
        }
        Some(reader)
    }

    fn park(&mut self, slot: u32) {
        let place = self.parked.len();
        if let Some(reader) = self.get(slot) {
            reader.state = State::Parked { place };
            self.parked.push(slot);
        }
    }
}

/// The run that was made last. Readers that wait all stand at the same offset, so that a commit
/// makes one run for all of them, and the only allocation for each is his place in the effects.
#[derive(Default)]
struct Memo(Option<(Want, NextRun)>);

impl Shard {
    /// Every reader with its position, what it lost and how far it is behind, by id.
    pub fn readers(&self) -> impl Iterator<Item = ReaderView> + '_ {
        let slots = self.readers.by_id.values();
        slots
            .filter_map(|&slot| self.readers.view(slot))
            .map(|reader| self.view(reader))
    }

    /// One reader, or `None` if there is none of that id (any more).
    pub fn reader(&self, id: ReaderId) -> Option<ReaderView> {
        self.readers
            .view(self.readers.slot(id)?)
            .map(|reader| self.view(reader))
    }

    fn view(&self, reader: &Reader) -> ReaderView {
        ReaderView {
            reader: reader.id,
            position: reader.position,
            lag: self.committed.0 - reader.position.0,
            lost: reader.lost_total + self.lost_so_far_by(reader),
            waiting: matches!(reader.state, State::Parked { .. }),
        }
    }

    pub(super) fn subscribe(&mut self, id: ReaderId, start: Start, effects: &mut Vec<Effect>) {
        let position = match self.first_position(id, start) {
            Ok(position) => position,
            Err(why) => return effects.push(Effect::SubscribeRefused { reader: id, why }),
        };
        self.readers.insert(Reader {
            id,
            position,
            state: State::Idle,
            max_bytes: 0,
            skipped: 0,
            lost: 0,
            lost_total: 0,
            cut: None,
        });
        let live = self.visible_end.max(position);
        effects.push(Effect::Subscribed {
            reader: id,
            start: position,
            live,
        });
    }

    fn first_position(&self, id: ReaderId, start: Start) -> Result<Offset, SubscribeRefused> {
        if let Status::Closing(reason) | Status::Closed(reason) = self.status {
            return Err(SubscribeRefused::Closed { reason });
        }
        if self.readers.slot(id).is_some() {
            return Err(SubscribeRefused::Duplicate);
        }
        let limit = self.options.limits.readers_max;
        if self.readers.len() >= usize::try_from(limit).unwrap_or(usize::MAX) {
            return Err(SubscribeRefused::TooManyReaders { limit });
        }
        let oldest = self.start();
        match start {
            Start::Latest => Ok(self.committed),
            Start::Earliest => Ok(oldest),
            Start::Offset(offset) if offset < oldest => Err(SubscribeRefused::TooOld { oldest }),
            Start::Offset(offset) if offset > self.committed => Err(SubscribeRefused::InFuture {
                next: self.committed,
            }),
            Start::Offset(offset) => Ok(offset),
        }
    }

    pub(super) fn unsubscribe(&mut self, id: ReaderId, effects: &mut Vec<Effect>) {
        let Some(slot) = self.readers.slot(id) else {
            return;
        };
        self.remove_reader(slot);
        self.decide_held(effects);
    }

    pub(super) fn pull(&mut self, id: ReaderId, max_bytes: u32, effects: &mut Vec<Effect>) {
        let Some(slot) = self.readers.slot(id) else {
            return;
        };
        let Some(reader) = self.readers.get(slot) else {
            return;
        };
        reader.max_bytes = max_bytes;
        if reader.state != State::Idle {
            return;
        }
        self.serve(slot, &mut Memo::default(), effects);
        self.decide_held(effects);
    }

    /// Gives every waiting reader what has just been committed.
    pub(super) fn wake_readers(&mut self, effects: &mut Vec<Effect>) {
        let mut parked = std::mem::take(&mut self.readers.parked);
        let mut memo = Memo::default();
        effects.reserve(parked.len());
        for slot in parked.drain(..) {
            if let Some(reader) = self.readers.get(slot) {
                reader.state = State::Idle;
                self.serve(slot, &mut memo, effects);
            }
        }
        // Whoever found only control batches waits again, in a list of its own by now. The old
        // one is kept for its memory when that list is empty, which is nearly always.
        if self.readers.parked.is_empty() {
            self.readers.parked = parked;
        }
    }

    /// Answers a reader that asked: with batches from memory, by reading the journal, or by
    /// letting it wait.
    fn serve(&mut self, slot: u32, memo: &mut Memo, effects: &mut Vec<Effect>) {
        self.settle(slot);
        let (committed, durable, start) = (self.committed, self.is_durable(), self.start);
        let Some(reader) = self.readers.get(slot) else {
            return;
        };
        if reader.position >= committed {
            return self.readers.park(slot);
        }
        let want = Want {
            position: reader.position,
            max_bytes: reader.max_bytes,
            until: reader.cut.unwrap_or(committed),
        };
        if want.position >= self.window.start() {
            let next = memo.get(want, || self.window.next_run(&want));
            self.deliver(slot, next, effects);
        } else if !durable {
            let next = next_run(
                self.kept.from(want.position).chain(self.window.iter()),
                &want,
            );
            self.deliver(slot, next, effects);
        } else if want.position < start {
            self.overtake(slot, start, effects);
        } else {
            reader.state = State::Reading;
            self.stats.reads += 1;
            effects.push(Effect::Read {
                reader: reader.id,
                from: want.position,
                max_bytes: want.max_bytes,
                until: committed,
            });
        }
    }

    fn deliver(&mut self, slot: u32, next: NextRun, effects: &mut Vec<Effect>) {
        let Some(reader) = self.readers.get(slot) else {
            return;
        };
        reader.skipped += next.from.0 - reader.position.0;
        reader.position = next.next;
        let Some(batches) = next.run else {
            return self.readers.park(slot);
        };
        effects.push(Effect::Deliver {
            reader: reader.id,
            from: next.from,
            skipped_before: std::mem::take(&mut reader.skipped),
            lost: std::mem::take(&mut reader.lost),
            batches: batches.clone(),
        });
        self.stats.delivered_batches += batches.len() as u64;
        self.stats.delivered_bytes += next.bytes;
        self.rejoin(slot);
    }

    pub(super) fn page_read(
        &mut self,
        id: ReaderId,
        from: Offset,
        page: &Page,
        effects: &mut Vec<Effect>,
    ) {
        let Some(slot) = self.readers.slot(id) else {
            return;
        };
        let committed = self.committed;
        let is_meant =
            |reader: &&mut Reader| reader.state == State::Reading && reader.position == from;
        let Some(reader) = self.readers.get(slot).filter(is_meant) else {
            return;
        };
        reader.state = State::Idle;
        let position = reader.position;
        match page {
            Page::Batches(batches) if is_page_at(batches, position, committed) => {
                // The journal bounded the page already, and by the bytes it read.
                let want = Want {
                    position,
                    max_bytes: u32::MAX,
                    until: committed,
                };
                let next = next_run(batches.iter(), &want);
                if next.run.is_some() {
                    return self.deliver(slot, next, effects);
                }
                reader.skipped += next.next.0 - position.0;
                reader.position = next.next;
                self.serve(slot, &mut Memo::default(), effects);
            }
            Page::Sparse { batches, next }
                if is_sparse_page(batches, *next, position, committed) =>
            {
                let want = Want {
                    position,
                    max_bytes: u32::MAX,
                    until: committed,
                };
                let run = next_run(batches.iter(), &want);
                if run.run.is_some() {
                    return self.deliver(slot, run, effects);
                }
                reader.skipped += next.0 - position.0;
                reader.position = *next;
                self.serve(slot, &mut Memo::default(), effects);
            }
            &Page::BelowStart { oldest } => self.overtake(slot, oldest.max(self.start), effects),
            Page::Batches(_) | Page::Sparse { .. } | Page::Unreadable => {
                self.end_reader(slot, ReaderEnd::Unreadable { position }, effects);
            }
        }
    }

    fn overtake(&mut self, slot: u32, oldest: Offset, effects: &mut Vec<Effect>) {
        let Some(reader) = self.readers.get(slot) else {
            return;
        };
        let position = reader.position;
        self.stats.overtaken_readers += 1;
        self.end_reader(slot, ReaderEnd::TooOld { position, oldest }, effects);
    }

    fn end_reader(&mut self, slot: u32, why: ReaderEnd, effects: &mut Vec<Effect>) {
        if let Some(reader) = self.remove_reader(slot) {
            effects.push(Effect::ReaderEnded {
                reader: reader.id,
                why,
            });
        }
    }

    fn remove_reader(&mut self, slot: u32) -> Option<Reader> {
        let reader = self.readers.remove(slot)?;
        if reader.cut.is_some() {
            self.kept.loosen();
        }
        self.stats.lost_records += self.lost_so_far_by(&reader);
        Some(reader)
    }

    pub(super) fn end_readers(&mut self, reason: CloseReason, effects: &mut Vec<Effect>) {
        let slots: Vec<u32> = self.readers.by_id.values().copied().collect();
        for slot in slots {
            if let Some(reader) = self.remove_reader(slot) {
                let why = ReaderEnd::Closed {
                    reason,
                    resume: reader.position,
                };
                effects.push(Effect::ReaderEnded {
                    reader: reader.id,
                    why,
                });
            }
        }
    }

    pub(super) fn reader_mut(&mut self, slot: u32) -> Option<&mut Reader> {
        self.readers.get(slot)
    }
}

impl Memo {
    fn get(&mut self, want: Want, make: impl FnOnce() -> NextRun) -> NextRun {
        match &self.0 {
            Some((known, next)) if next.answers(known, &want) => next.clone(),
            Some(_) | None => {
                let next = make();
                self.0 = Some((want, next.clone()));
                next
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use felix_model::{Payloads, TimeMs};

    use super::*;
    use crate::{AckWhen, Append, Draft, Input, Overflow, ProducerTable, ShardOptions, Ticket};

    #[test]
    fn readers_that_wait_share_one_run_whatever_their_bounds() {
        let options = ShardOptions::memory(1 << 20, 1 << 20, Overflow::DropNew);
        let mut shard = Shard::new(options, ProducerTable::new(1));
        let mut effects = Vec::new();
        for id in 0..500_u32 {
            let reader = ReaderId(id.into());
            shard.handle(
                TimeMs(0),
                Input::Subscribe {
                    reader,
                    start: Start::Latest,
                },
                &mut effects,
            );
            shard.handle(
                TimeMs(0),
                Input::Pull {
                    reader,
                    max_bytes: id,
                },
                &mut effects,
            );
        }
        effects.clear();
        let batch = Draft::from_payloads(Payloads::build([b"a".as_slice()]).unwrap(), TimeMs(0));
        let (ticket, ack) = (Ticket(0), AckWhen::Never);
        let append = Append {
            ticket,
            batch,
            expected: None,
            producer: None,
            ack,
        };
        shard.handle(TimeMs(0), Input::Append(append), &mut effects);

        let mut runs = Vec::new();
        for effect in &effects {
            if let Effect::Deliver { batches, .. } = effect {
                runs.push(batches.as_ptr());
            }
        }
        assert_eq!(runs.len(), 500);
        assert!(runs.iter().all(|run| *run == runs[0]));
    }
}
