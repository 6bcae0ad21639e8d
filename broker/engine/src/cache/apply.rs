//! What happens when a batch is committed, or is not.

use bytes::Bytes;
use felix_model::Offset;

use super::{CacheEffect, CacheShard, Flight, Staged, live_bytes};
use crate::effect::Appended;
use crate::input::Ticket;
use crate::keyed::{Entry, Key};
use crate::refused::AppendRefused;

impl CacheShard {
    /// The shard answered for a batch. It does so in the order in which they were handed to it.
    pub(super) fn settle(
        &mut self,
        ticket: Ticket,
        outcome: Result<Appended, AppendRefused>,
        effects: &mut Vec<CacheEffect>,
    ) {
        let Some(flight) = self.flights.pop_front_if(|flight| flight.ticket == ticket) else {
            debug_assert!(false, "batches are answered in order");
            return;
        };
        match outcome {
            Ok(_) => self.committed(flight, effects),
            Err(refused) => {
                for (ticket, _) in flight.answers {
                    let outcome = Err(refused.into());
                    effects.push(CacheEffect::Answer { ticket, outcome });
                }
            }
        }
    }

    fn committed(&mut self, flight: Flight, effects: &mut Vec<CacheEffect>) {
        for (offset, record) in (flight.base.0..).map(Offset).zip(flight.records) {
            self.overlay.settle(offset, &record);
            self.apply(offset, record);
        }
        for (ticket, outcome) in flight.answers {
            effects.push(CacheEffect::Answer { ticket, outcome });
        }
    }

    fn apply(&mut self, offset: Offset, record: Staged) {
        match record {
            Staged::Put {
                key,
                value,
                expires,
            } => {
                let entry = Entry {
                    offset,
                    expires,
                    length: u32::try_from(value.len()).unwrap_or(u32::MAX),
                };
                self.live_bytes += live_bytes(&key, entry.length);
                if let Some(before) = self.index.put(Key::clone(&key), entry) {
                    self.live_bytes -= live_bytes(&key, before.length);
                    self.values.remove(before.offset);
                }
                self.hold(offset, key, &value);
            }
            Staged::Delete { key } => {
                if let Some((key, before)) = self.index.remove(&key) {
                    self.live_bytes -= live_bytes(&key, before.length);
                    self.values.remove(before.offset);
                    if self.is_durable() {
                        self.removed.push(offset, key);
                    }
                }
            }
            Staged::Add { key, sum } => {
                if self.sums.get(&key).is_none() {
                    self.live_bytes += live_bytes(&key, 0);
                }
                self.sums.add(key, sum, offset);
            }
            Staged::Checkpoint { key, sum } => self.sums.checkpoint(key, sum, offset),
        }
    }

    /// A copy is held: the value shares its memory with the request it came in.
    fn hold(&mut self, offset: Offset, key: Key, value: &Bytes) {
        if !self.is_durable() {
            self.values.hold(offset, key, Bytes::copy_from_slice(value));
        } else if self.values.admits(&key, value.len()) {
            self.values
                .insert(offset, key, Bytes::copy_from_slice(value));
        }
    }

    /// Takes back what was decided upon records that the log does not have: those of a batch that was
    /// refused, or from where a write failed on.
    pub(super) fn take_back(&mut self) {
        let end = self.shard.end();
        let mut lost = false;
        // Refused batches may stand anywhere: their answers wait for those before them.
        for flight in self
            .flights
            .iter_mut()
            .rev()
            .filter(|flight| !flight.failed)
        {
            if flight.base < end {
                break;
            }
            flight.failed = true;
            lost = true;
        }
        if !lost {
            return;
        }
        self.once.roll_back(end);
        let Self {
            overlay, flights, ..
        } = self;
        overlay.rebuild(flights.iter().filter(|flight| !flight.failed));
    }
}
