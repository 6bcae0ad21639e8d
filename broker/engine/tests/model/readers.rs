//! Subscriptions: where each reader is, and what it gets next.

use felix_engine::{ReaderEnd, ReaderId, Start, SubscribeRefused};
use felix_model::Offset;

use super::memory::lose_until;
use super::{Doing, Event, Model, Reader};

impl Model {
    pub(crate) fn subscribe(&mut self, id: ReaderId, start: Start) {
        let (oldest, next) = (self.oldest(), self.committed);
        let refused = match start {
            _ if self.closing.is_some() => self
                .closing
                .map(|reason| SubscribeRefused::Closed { reason }),
            _ if self.readers.contains_key(&id) => Some(SubscribeRefused::Duplicate),
            Start::Offset(at) if at.0 < oldest => Some(SubscribeRefused::TooOld {
                oldest: Offset(oldest),
            }),
            Start::Offset(at) if at.0 > next => {
                Some(SubscribeRefused::InFuture { next: Offset(next) })
            }
            Start::Offset(_) | Start::Latest | Start::Earliest => None,
        };
        if let Some(why) = refused {
            return self.events.push(Event::SubscribeRefused(id, why));
        }
        let position = match start {
            Start::Latest => next,
            Start::Earliest => oldest,
            Start::Offset(at) => at.0,
        };
        let doing = Doing::Nothing;
        let reader = Reader {
            position,
            max_bytes: 0,
            doing,
            skipped: 0,
            lost: 0,
            lost_total: 0,
            cut: None,
        };
        self.readers.insert(id, reader);
        let visible = self
            .log
            .iter()
            .rfind(|entry| !entry.control && entry.end <= self.committed);
        let live = visible.map_or(0, |entry| entry.end).max(position);
        self.events.push(Event::Subscribed(id, position, live));
    }

    pub(crate) fn unsubscribe(&mut self, id: ReaderId) {
        if self.readers.contains_key(&id) {
            self.forget(id);
            self.decide_held();
        }
    }

    pub(super) fn forget(&mut self, id: ReaderId) {
        if let Some(reader) = self.readers.remove(&id) {
            self.lost_by_the_gone += reader.lost_total + self.lost_so_far(&reader);
        }
    }

    pub(crate) fn pull(&mut self, id: ReaderId, max_bytes: u32) {
        let Some(reader) = self.readers.get_mut(&id) else {
            return;
        };
        reader.max_bytes = max_bytes;
        if reader.doing == Doing::Nothing {
            self.serve(id);
            self.decide_held();
        }
    }

    /// `batches`: base and end of each. `None`: it is below `oldest`, or cannot be read.
    pub(crate) fn page(
        &mut self,
        id: ReaderId,
        from: u64,
        page: Result<&[(u64, u64)], Option<u64>>,
    ) {
        let Some(&reader) = self.readers.get(&id) else {
            return;
        };
        if reader.doing != Doing::Reading || reader.position != from {
            return;
        }
        match page {
            Err(Some(oldest)) => self.too_old(id, oldest.max(self.start)),
            Ok(batches)
                if batches
                    .iter()
                    .any(|&(base, end)| (base..end).contains(&from)) =>
            {
                let until = batches.last().unwrap().1;
                self.deliver(id, u32::MAX, until);
                let passed_control_only = |reader: &&mut Reader| reader.doing == Doing::Waiting;
                if self
                    .readers
                    .get_mut(&id)
                    .filter(passed_control_only)
                    .is_some()
                {
                    self.serve(id);
                }
            }
            Ok(_) | Err(None) => {
                self.forget(id);
                self.events.push(Event::Ended(
                    id,
                    ReaderEnd::Unreadable {
                        position: Offset(from),
                    },
                ));
            }
        }
    }

    /// A page of which only the batches that begin at these offsets are left; all up to `next` was read.
    pub(crate) fn sparse_page(&mut self, id: ReaderId, from: u64, left: &[u64], next: u64) {
        let Some(reader) = self.readers.get_mut(&id) else {
            return;
        };
        if reader.doing != Doing::Reading || reader.position != from {
            return;
        }
        let is_data = |base: &&u64| {
            let mut log = self.log.iter();
            log.any(|entry| entry.base == **base && !entry.control)
        };
        // A run ends before a control batch, and begins behind those that stand at its front.
        let controls = left.iter().take_while(|base| !is_data(base)).count();
        let run: Vec<u64> = left[controls..]
            .iter()
            .take_while(is_data)
            .copied()
            .collect();
        let Some((first, last)) = run.first().zip(run.last()) else {
            reader.skipped += next - from;
            reader.position = next;
            return self.serve(id);
        };
        let first = (*first).max(from);
        reader.skipped += first - from;
        let end = self
            .log
            .iter()
            .find(|entry| entry.base == *last)
            .unwrap()
            .end;
        reader.position = end;
        reader.doing = Doing::Nothing;
        let skipped = std::mem::take(&mut reader.skipped);
        let lost = std::mem::take(&mut reader.lost);
        self.events.push(Event::Deliver {
            reader: id,
            from: first,
            batches: run,
            skipped,
            lost,
        });
    }

    fn too_old(&mut self, id: ReaderId, oldest: u64) {
        let position = Offset(self.readers[&id].position);
        self.forget(id);
        self.events.push(Event::Ended(
            id,
            ReaderEnd::TooOld {
                position,
                oldest: Offset(oldest),
            },
        ));
    }

    pub(super) fn serve(&mut self, id: ReaderId) {
        let durable = self.is_durable();
        let drops_old = !durable && !self.drops_new();
        let (committed, window_start, start) = (self.committed, self.window_start, self.start);
        let reader = self.readers.get_mut(&id).unwrap();
        if drops_old && reader.position < window_start {
            lose_until(reader, window_start);
        }
        reader.doing = Doing::Waiting;
        let (from, max_bytes, until) = (reader.position, reader.max_bytes, committed);
        if from >= committed {
            return;
        }
        if durable && from < start && from < window_start {
            return self.too_old(id, start);
        }
        if durable && from < window_start {
            reader.doing = Doing::Reading;
            return self.events.push(Event::Read {
                reader: id,
                from,
                max_bytes,
                until,
            });
        }
        let until = reader.cut.unwrap_or(until);
        self.deliver(id, max_bytes, until);
    }

    /// Delivers what lies before `until`. The reader waits if that is nothing.
    fn deliver(&mut self, id: ReaderId, max_bytes: u32, until: u64) {
        let reader = self.readers.get_mut(&id).unwrap();
        let mut batches = Vec::new();
        let mut bytes = 0;
        let mut from = reader.position;
        let here = self
            .log
            .iter()
            .filter(|entry| entry.end > reader.position && entry.base < until);
        let mut next = reader.position;
        for entry in here {
            let fits = batches.is_empty() || bytes + entry.bytes <= u64::from(max_bytes);
            if entry.control && batches.is_empty() {
                from = entry.end;
            } else if entry.control || !fits {
                break;
            } else {
                bytes += entry.bytes;
                batches.push(entry.base);
            }
            next = entry.end;
        }
        reader.skipped += from - reader.position;
        reader.position = next;
        reader.doing = Doing::Waiting;
        if batches.is_empty() {
            return;
        }
        reader.doing = Doing::Nothing;
        let skipped = std::mem::take(&mut reader.skipped);
        let lost = std::mem::take(&mut reader.lost);
        self.events.push(Event::Deliver {
            reader: id,
            from,
            batches,
            skipped,
            lost,
        });
        if reader.cut.is_some_and(|cut| reader.position >= cut) {
            lose_until(reader, self.committed);
            reader.cut = None;
        }
    }
}
