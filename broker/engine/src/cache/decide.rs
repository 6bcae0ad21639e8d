//! What is to be done about an op, by the state at the tail.

use bytes::Bytes;
use felix_model::forms::{IDEMPOTENCY_KEY_BYTES_MAX, KeyedBuilder};
use felix_model::native::payload_digest;
use felix_model::{Offset, TimeMs};

use super::{
    CacheAnswer, CacheEffect, CacheOp, CacheRefused, CacheShard, CacheTicket, Condition, Flight,
    Found, KEY_BYTES_MAX, LIST_EXPIRED_MAX, LIST_MAX, Staged, Tell,
};
use crate::batch::Draft;
use crate::input::{AckWhen, Append, Input, Ticket};
use crate::keyed::{Key, OnceVerdict, Remembered, Values};
use crate::refused::AppendRefused;

/// Where a batch of a turn is handed on and another one begun. Far below what the log takes, so that no
/// single record is ever too many.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// The batch of this turn.
#[derive(Debug)]
pub(super) struct Building {
    builder: KeyedBuilder,
    flight: Flight,
}

/// The live entry of a key at the tail.
struct AtTail {
    found: Option<Found>,
    /// The newest record in flight that says so.
    seen: Option<Offset>,
}

/// An add sent under an idempotency key.
struct Identified {
    id: Bytes,
    digest: u64,
}

/// What an add has that its record does not show.
#[derive(Clone, Copy)]
struct Adding<'a> {
    delta: i64,
    once: Option<&'a Identified>,
}

type Decided = Result<CacheAnswer, CacheRefused>;

impl CacheShard {
    pub(super) fn op(
        &mut self,
        now: TimeMs,
        ticket: CacheTicket,
        op: CacheOp,
        effects: &mut Vec<CacheEffect>,
    ) {
        self.submit_full(now, effects);
        let decided = match op {
            CacheOp::Get { key } => Some(Ok(CacheAnswer::Value(self.get(now, &key)))),
            CacheOp::List {
                prefix,
                after,
                limit,
                value_bytes,
            } => {
                let after = after.as_deref();
                Some(Ok(self.list(now, &prefix, after, (limit, value_bytes))))
            }
            CacheOp::Sum { key } => {
                let sum = self.sums.get(&key).map(|held| held.sum);
                let repeated = false;
                Some(Ok(CacheAnswer::Sum { sum, repeated }))
            }
            CacheOp::Put {
                key,
                value,
                ttl_ms,
                condition,
            } => self
                .check_put(&key, &value)
                .map(|()| self.put(now, ticket, (key, value), ttl_ms, condition, effects))
                .map_or_else(|refused| Some(Err(refused)), |()| None),
            CacheOp::Delete { key, version, tell } => check_key(&key)
                .map(|()| self.delete(now, ticket, &key, version, tell, effects))
                .map_or_else(|refused| Some(Err(refused)), |()| None),
            CacheOp::Add { key, delta, id } => check_key(&key)
                .and_then(|()| check_id(id.as_ref()))
                .map(|()| self.add(now, ticket, &key, delta, id, effects))
                .map_or_else(|refused| Some(Err(refused)), |()| None),
        };
        if let Some(outcome) = decided {
            effects.push(CacheEffect::Answer { ticket, outcome });
        }
    }

    fn get(&mut self, now: TimeMs, key: &[u8]) -> Option<Found> {
        let entry = self.index.get(key).filter(|entry| entry.is_live(now));
        let Some(entry) = entry else {
            self.stats.misses += 1;
            return None;
        };
        self.stats.hits += 1;
        let value = self.values.get(entry.offset);
        self.stats.reads += u64::from(value.is_none());
        Some(Found {
            version: entry.offset,
            expires: entry.expires,
            length: entry.length,
            value,
        })
    }

    fn list(
        &mut self,
        now: TimeMs,
        prefix: &[u8],
        after: Option<&[u8]>,
        (limit, value_bytes): (u32, u64),
    ) -> CacheAnswer {
        let limit = limit.min(LIST_MAX) as usize;
        let Self { index, values, .. } = self;
        let mut page = Vec::new();
        let (mut bytes, mut expired, mut more) = (0, 0, false);
        let mut upto = None;
        for (key, entry) in index.walk(prefix, after) {
            if expired == LIST_EXPIRED_MAX {
                more = true;
                break;
            }
            if !entry.is_live(now) {
                expired += 1;
                upto = Some(key);
                continue;
            }
            bytes += u64::from(entry.length);
            let is_full = value_bytes > 0 && bytes > value_bytes && !page.is_empty();
            if page.len() >= limit || is_full {
                more = true;
                break;
            }
            let value = (value_bytes > 0).then(|| values.get(entry.offset));
            let found = Found {
                version: entry.offset,
                expires: entry.expires,
                length: entry.length,
                value: value.flatten(),
            };
            page.push((Key::clone(key), found));
            upto = Some(key);
        }
        CacheAnswer::Page {
            rows: page,
            more,
            upto: upto.filter(|_| more).map(Key::clone),
            with_values: value_bytes > 0,
        }
    }

    fn put(
        &mut self,
        now: TimeMs,
        ticket: CacheTicket,
        (key, value): (Bytes, Bytes),
        ttl_ms: Option<u64>,
        condition: Option<Condition>,
        effects: &mut Vec<CacheEffect>,
    ) {
        if let Some(condition) = condition {
            let tail = self.at_tail(now, &key);
            let current = tail.found.map(|found| found.version);
            let holds = match condition {
                Condition::Absent => current.is_none(),
                Condition::Version(version) => current == Some(version),
            };
            if !holds {
                let unmet = Ok(CacheAnswer::Unmet { current });
                return self.answer(ticket, unmet, tail.seen, effects);
            }
        }
        let key = self.entry_key(&key);
        // A time that no clock reaches is no expiry.
        let expires = ttl_ms.map(|ttl| now.plus(ttl).0);
        let expires = expires.filter(|at| i64::try_from(*at).is_ok()).map(TimeMs);
        let record = Staged::Put {
            key,
            value,
            expires,
        };
        let version = self.stage(now, record, None);
        self.answer_with_batch(ticket, CacheAnswer::Put { version });
    }

    fn delete(
        &mut self,
        now: TimeMs,
        ticket: CacheTicket,
        key: &[u8],
        version: Option<Offset>,
        tell: Tell,
        effects: &mut Vec<CacheEffect>,
    ) {
        let tail = self.at_tail(now, key);
        let current = tail.found.as_ref().map(|found| found.version);
        if version.is_some() && version != current {
            let unmet = Ok(CacheAnswer::Unmet { current });
            return self.answer(ticket, unmet, tail.seen, effects);
        }
        if tail.found.is_none() {
            // An expired entry is left to the expiry, which deletes it once.
            let nothing = Ok(CacheAnswer::Deleted(None));
            return self.answer(ticket, nothing, tail.seen, effects);
        }
        let key = self.entry_key(key);
        self.stage(now, Staged::Delete { key }, None);
        let removed = tail.found.filter(|_| tell == Tell::Removed);
        self.answer_with_batch(ticket, CacheAnswer::Deleted(removed));
    }

    fn add(
        &mut self,
        now: TimeMs,
        ticket: CacheTicket,
        key: &[u8],
        delta: i64,
        id: Option<Bytes>,
        effects: &mut Vec<CacheEffect>,
    ) {
        let identified = id.map(|id| Identified {
            digest: add_digest(key, delta),
            id,
        });
        if let Some(identified) = &identified {
            match self.once.judge(now, &identified.id, identified.digest) {
                OnceVerdict::New => {}
                OnceVerdict::Again(known) => {
                    let again = CacheAnswer::Sum {
                        sum: Some(known.result),
                        repeated: true,
                    };
                    let open = known.offset >= self.shard.committed();
                    return self.answer(ticket, Ok(again), open.then_some(known.offset), effects);
                }
                OnceVerdict::Reused { offset } => {
                    let open = offset >= self.shard.committed();
                    let refused = Err(CacheRefused::IdReused { offset });
                    return self.answer(ticket, refused, open.then_some(offset), effects);
                }
                OnceVerdict::Full { keys } => {
                    let refused = Err(CacheRefused::IdsFull { keys });
                    return self.answer(ticket, refused, None, effects);
                }
            }
        }
        let pending = self.overlay.sum(key);
        let before = match pending {
            Some((sum, _)) => sum,
            None => self.sums.get(key).map_or(0, |held| held.sum),
        };
        let Some(sum) = before.checked_add(delta) else {
            let refused = Err(CacheRefused::Overflow { sum: before, delta });
            return self.answer(ticket, refused, pending.map(|(_, seen)| seen), effects);
        };
        let key = self.sum_key(key);
        let record = Staged::Add { key, sum };
        let once = identified.as_ref();
        self.stage(now, record, Some(Adding { delta, once }));
        let answer = CacheAnswer::Sum {
            sum: Some(sum),
            repeated: false,
        };
        self.answer_with_batch(ticket, answer);
    }

    fn check_put(&self, key: &[u8], value: &[u8]) -> Result<(), CacheRefused> {
        check_key(key)?;
        let bytes = (key.len() + value.len()) as u64;
        let mut limit = u64::from(self.options.record_bytes_max);
        if !self.is_durable() {
            let beside = Values::cost(key, value.len()) - bytes;
            limit = limit.min(self.options.value_bytes.saturating_sub(beside));
        }
        if bytes > limit {
            return Err(CacheRefused::TooLarge { bytes, limit });
        }
        Ok(())
    }

    fn at_tail(&mut self, now: TimeMs, key: &[u8]) -> AtTail {
        if let Some(pending) = self.overlay.entry(key) {
            return AtTail {
                found: pending.found(now),
                seen: Some(pending.offset),
            };
        }
        let entry = self.index.get(key).filter(|entry| entry.is_live(now));
        let found = entry.map(|entry| Found {
            version: entry.offset,
            expires: entry.expires,
            length: entry.length,
            value: self.values.get(entry.offset),
        });
        AtTail { found, seen: None }
    }

    /// The key as it is held already, or a copy: what came with a request keeps its frame alive.
    pub(super) fn entry_key(&self, key: &[u8]) -> Key {
        self.index
            .key(key)
            .or_else(|| self.overlay.entry_key(key))
            .unwrap_or_else(|| Key::from(key))
    }

    pub(super) fn sum_key(&self, key: &[u8]) -> Key {
        self.sums
            .key(key)
            .or_else(|| self.overlay.sum_key(key))
            .unwrap_or_else(|| Key::from(key))
    }

    /// Hands on a batch that is full. Called before an op is judged: should the log refuse the batch, the op must not
    /// build on what was in it.
    pub(super) fn submit_full(&mut self, now: TimeMs, effects: &mut Vec<CacheEffect>) {
        if let Some(building) = &self.building
            && building.builder.bytes() >= BATCH_BYTES
        {
            self.submit(now, effects);
        }
    }

    /// Puts a record into the batch of this turn and says where it will stand.
    fn stage(&mut self, now: TimeMs, record: Staged, add: Option<Adding<'_>>) -> Offset {
        let end = self.shard.end();
        let building = self.building.get_or_insert_with(|| Building {
            builder: KeyedBuilder::new(now),
            flight: Flight {
                ticket: Ticket(self.next_ticket),
                base: end,
                records: Vec::new(),
                answers: Vec::new(),
                failed: false,
            },
        });
        let Building { builder, flight } = building;
        let offset = flight.base.plus(flight.records.len() as u64);
        let once = add.and_then(|add| add.once);
        let pushed = match &record {
            Staged::Put {
                key,
                value,
                expires,
            } => builder.put(key, value, *expires),
            Staged::Delete { key } => builder.delete(key),
            Staged::Add { key, sum } => {
                let delta = add.map_or(0, |add| add.delta);
                builder.add(key, delta, once.map(|once| (once.id.as_ref(), *sum)))
            }
            Staged::Checkpoint { key, sum } => builder.checkpoint(key, *sum),
        };
        debug_assert!(
            pushed.is_ok(),
            "a batch is handed on long before its limits"
        );
        if let (Some(once), Staged::Add { sum, .. }) = (once, &record) {
            let what = Remembered {
                digest: once.digest,
                offset,
                at: now,
                result: *sum,
            };
            self.once.remember(&once.id, what);
        }
        self.overlay.stage(offset, &record);
        flight.records.push(record);
        offset
    }

    /// Puts a record of the shard's own into the batch of this turn.
    pub(super) fn stage_own(
        &mut self,
        now: TimeMs,
        record: Staged,
        effects: &mut Vec<CacheEffect>,
    ) {
        self.submit_full(now, effects);
        self.stage(now, record, None);
    }

    /// Lets an answer leave with the record that was staged last.
    fn answer_with_batch(&mut self, ticket: CacheTicket, answer: CacheAnswer) {
        if let Some(building) = &mut self.building {
            building.flight.answers.push((ticket, Ok(answer)));
        }
    }

    /// Lets an answer leave once the record at `seen` is committed, or now. If that record fails, so does
    /// this.
    fn answer(
        &mut self,
        ticket: CacheTicket,
        outcome: Decided,
        seen: Option<Offset>,
        effects: &mut Vec<CacheEffect>,
    ) {
        let building = self.building.as_mut().map(|building| &mut building.flight);
        let flights = self.flights.iter_mut().filter(|flight| !flight.failed);
        // The last batch is never committed before the one that was seen.
        let last = seen.and_then(|_| building.into_iter().chain(flights.rev()).next());
        match last {
            Some(flight) => flight.answers.push((ticket, outcome)),
            None => effects.push(CacheEffect::Answer { ticket, outcome }),
        }
    }

    /// Hands the batch of this turn to the log.
    pub(super) fn submit(&mut self, now: TimeMs, effects: &mut Vec<CacheEffect>) {
        let Some(Building { builder, flight }) = self.building.take() else {
            return;
        };
        let (ticket, base) = (flight.ticket, flight.base);
        self.next_ticket += 1;
        self.flights.push_back(flight);
        let batch = builder.finish().ok().map(Draft::from_log);
        let Some(Ok(batch)) = batch else {
            // Nothing ever gets here: a batch with a record in it can be finished.
            self.settle(ticket, Err(AppendRefused::Empty), effects);
            return;
        };
        debug_assert_eq!(base, self.shard.end(), "offsets were promised");
        let append = Append {
            ticket,
            batch,
            expected: None,
            producer: None,
            ack: AckWhen::Committed,
        };
        self.advance(now, Input::Append(append), effects);
    }
}

/// What tells an add from another one under the same idempotency key.
pub(super) fn add_digest(key: &[u8], delta: i64) -> u64 {
    payload_digest([key, delta.to_be_bytes().as_slice()])
}

fn check_key(key: &[u8]) -> Result<(), CacheRefused> {
    if (1..=KEY_BYTES_MAX).contains(&key.len()) {
        return Ok(());
    }
    Err(CacheRefused::KeyLength {
        bytes: key.len(),
        limit: KEY_BYTES_MAX,
    })
}

fn check_id(id: Option<&Bytes>) -> Result<(), CacheRefused> {
    match id {
        Some(id) if !(1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&id.len()) => {
            Err(CacheRefused::IdLength {
                bytes: id.len(),
                limit: IDEMPOTENCY_KEY_BYTES_MAX,
            })
        }
        Some(_) | None => Ok(()),
    }
}
