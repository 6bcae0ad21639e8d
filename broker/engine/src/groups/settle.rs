//! What became of records: finished, given back, prolonged, set aside.

use std::collections::BTreeMap;
use std::sync::Arc;

use felix_model::{Record, TimeMs};

use super::ask::{Holder, Item, Settle, SettleRefused, Ticket, Verb};
use super::core::{Burial, Core, LeaseId, Reading, Settled};
use super::fold::{Open, State, kept_bytes};
use super::group::{Group, attempts_reason};
use super::io::{Found, Want};
use super::lane::{self, Change, NewLetter};
use super::limits;
use super::ranges::Run;
use super::serve::want;

/// How a record stands with a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Out on this claim.
    Claimed(LeaseId, u32),
    /// Handed out, and without a claim now.
    Open(State),
    /// Finished, or never there.
    Done,
    /// Not handed out by this state, but perhaps by one before it.
    Inherited,
}

impl Group {
    /// Carries out one settlement; the answer tells for each record what came of it.
    pub(super) fn settle(&mut self, core: &mut Core, ticket: Ticket, settle: Settle) {
        self.used = core.now();
        let Settle {
            verb,
            items,
            holder,
            ..
        } = settle;
        let settled = match verb {
            Verb::Ack => self.ack(core, &items, holder.as_ref()),
            Verb::Nack { delay_ms } => self.nack(core, &items, holder.as_ref(), delay_ms),
            Verb::Extend { ms } => self.extend(core, &items, holder.as_ref(), ms),
            Verb::Bury { reason } => self.bury_asked(core, &items, holder.as_ref(), reason),
        };
        core.settled(ticket, settled);
        self.serve(core);
    }

    fn standing(
        &self,
        core: &Core,
        item: Item,
        holder: Option<&Holder>,
    ) -> Result<Standing, SettleRefused> {
        let offset = item.offset.0;
        let named = item.attempts > 0;
        let tail = core.moment.tail;
        if item.offset >= tail {
            return Err(SettleRefused::PastTail { tail });
        }
        let Some(open) = self.fold.open.get(&offset) else {
            return if offset < self.fold.next || self.fold.ahead.contains(offset) {
                Ok(Standing::Done)
            } else if offset < self.inherited && holder.is_none() {
                Ok(Standing::Inherited)
            } else if named {
                Err(SettleRefused::Stale)
            } else {
                Err(SettleRefused::NotHandedOut)
            };
        };
        match open.state {
            State::Claimed(lease) => {
                let other = named && item.attempts != open.attempts;
                let foreign = holder.is_some_and(|holder| {
                    !core.holder(lease).is_some_and(|held| same(held, holder))
                });
                if other || foreign {
                    Err(SettleRefused::Stale)
                } else {
                    Ok(Standing::Claimed(lease, open.attempts))
                }
            }
            // Nobody got it since, so this is still the latest delivery: the claim went with a restart, or lapsed.
            state @ (State::Owed | State::Resting(_) | State::Fetching(_))
                if holder.is_some() && named && item.attempts == open.attempts =>
            {
                Ok(Standing::Open(state))
            }
            State::Owed | State::Resting(_) | State::Fetching(_) | State::Burying
                if named || holder.is_some() =>
            {
                Err(SettleRefused::Stale)
            }
            state @ (State::Owed | State::Resting(_) | State::Fetching(_) | State::Burying) => {
                Ok(Standing::Open(state))
            }
        }
    }

    fn ack(&mut self, core: &mut Core, items: &[Item], holder: Option<&Holder>) -> Settled {
        let mut results = Vec::with_capacity(items.len());
        let mut finished = Vec::with_capacity(items.len());
        let mut ahead = self.fold.ahead.len();
        for &item in items {
            results.push(match self.standing(core, item, holder) {
                Ok(Standing::Claimed(..) | Standing::Open(_)) => {
                    finished.push(item.offset.0);
                    Ok(0)
                }
                Ok(Standing::Done) => Ok(0),
                Ok(Standing::Inherited) if ahead >= limits::AHEAD_RANGES_MAX => {
                    Err(SettleRefused::TooScattered {
                        ranges: limits::AHEAD_RANGES_MAX,
                    })
                }
                Ok(Standing::Inherited) => {
                    ahead += 1;
                    finished.push(item.offset.0);
                    Ok(0)
                }
                Err(refused) => Err(refused),
            });
        }
        finished.sort_unstable();
        finished.dedup();
        let mut runs = Vec::new();
        for offset in finished {
            Run::add(&mut runs, offset);
        }
        self.finish(core, runs);
        at_once(core, results)
    }

    fn nack(
        &mut self,
        core: &mut Core,
        items: &[Item],
        holder: Option<&Holder>,
        delay_ms: u64,
    ) -> Settled {
        let id = core.begin_settling();
        let due = match delay_ms.min(limits::DELAY_MS_MAX) {
            0 => TimeMs(0),
            ms => core.now().plus(ms),
        };
        let limit = core.options.attempts_max;
        let mut results = Vec::with_capacity(items.len());
        let mut returned = BTreeMap::new();
        let mut burials: BTreeMap<u64, Burial> = BTreeMap::new();
        for (index, &item) in items.iter().enumerate() {
            let offset = item.offset.0;
            let result = match self.standing(core, item, holder) {
                Ok(Standing::Claimed(_, attempts)) if attempts >= limit => {
                    burials.entry(offset).or_insert_with(|| Burial {
                        offset,
                        reason: attempts_reason(attempts),
                        told: Some((id, index)),
                    });
                    Ok(0)
                }
                Ok(Standing::Claimed(..) | Standing::Open(State::Owed | State::Resting(_))) => {
                    returned.insert(offset, due.0);
                    Ok(0)
                }
                Ok(Standing::Open(_) | Standing::Done | Standing::Inherited) => Ok(0),
                Err(refused) => Err(refused),
            };
            results.push(result);
        }
        for &offset in returned.keys() {
            self.leave(core, offset);
        }
        let returned: Vec<(u64, u64)> = returned.into_iter().collect();
        if !returned.is_empty() {
            self.commit(core, &Change::Returned(returned.clone()));
        }
        for (offset, due) in returned {
            match due {
                0 => self.owe(core, [offset]),
                due => self.rest(core, offset, TimeMs(due)),
            }
        }
        let left = burials.len();
        let burials: Vec<Burial> = burials.into_values().collect();
        for burial in &burials {
            self.leave(core, burial.offset);
        }
        self.bury(core, burials);
        Settled { id, results, left }
    }

    fn extend(
        &mut self,
        core: &mut Core,
        items: &[Item],
        holder: Option<&Holder>,
        ms: u64,
    ) -> Settled {
        let granted = ms.min(limits::VISIBILITY_MS_MAX);
        let mut results = Vec::with_capacity(items.len());
        for &item in items {
            if ms == 0 {
                results.push(Err(SettleRefused::ZeroExtension));
                continue;
            }
            let standing = self.standing(core, item, holder);
            let Ok(Standing::Claimed(lease, _)) = standing else {
                results.push(Err(SettleRefused::Stale));
                continue;
            };
            let offset = item.offset.0;
            if let Some(holder) = core.holder(lease).cloned() {
                self.leave(core, offset);
                self.claimed += 1;
                let lease = core.lease(self.id, holder, granted, vec![offset]);
                if let Some(open) = self.fold.open.get_mut(&offset) {
                    open.state = State::Claimed(lease);
                }
            }
            results.push(Ok(granted));
        }
        at_once(core, results)
    }

    fn bury_asked(
        &mut self,
        core: &mut Core,
        items: &[Item],
        holder: Option<&Holder>,
        reason: Option<Arc<str>>,
    ) -> Settled {
        let id = core.begin_settling();
        let reason = reason.map_or_else(|| "set aside by its consumer".into(), shortened);
        let mut results = Vec::with_capacity(items.len());
        let mut burials: BTreeMap<u64, Burial> = BTreeMap::new();
        for (index, &item) in items.iter().enumerate() {
            let offset = item.offset.0;
            let result = match self.standing(core, item, holder) {
                Ok(Standing::Claimed(..) | Standing::Open(_)) => {
                    burials.entry(offset).or_insert_with(|| Burial {
                        offset,
                        reason: Arc::clone(&reason),
                        told: Some((id, index)),
                    });
                    Ok(0)
                }
                Ok(Standing::Done) => Err(SettleRefused::Finished),
                Ok(Standing::Inherited) => Err(SettleRefused::NotHandedOut),
                Err(refused) => Err(refused),
            };
            results.push(result);
        }
        let left = burials.len();
        let burials: Vec<Burial> = burials.into_values().collect();
        for burial in &burials {
            self.leave(core, burial.offset);
        }
        self.bury(core, burials);
        Settled { id, results, left }
    }

    /// Reads records so that they can be set aside with their bytes. None of them is in anything else by now.
    pub(super) fn bury(&mut self, core: &mut Core, burials: Vec<Burial>) {
        if burials.is_empty() {
            return;
        }
        let mut wants = Vec::with_capacity(burials.len());
        for burial in &burials {
            if let Some(open) = self.fold.open.get_mut(&burial.offset) {
                open.state = State::Burying;
                wants.push(want(burial.offset, open));
            }
        }
        let group = self.id;
        core.read(Reading::Bury { group, burials }, wants);
    }

    /// Records that are to be set aside were read.
    pub(super) fn buried(
        &mut self,
        core: &mut Core,
        burials: Vec<Burial>,
        found: Vec<(Want, Found)>,
    ) {
        let mut found: BTreeMap<Want, Found> = found.into_iter().collect();
        let mut again = Vec::new();
        for burial in burials {
            let Some(&open) = self.fold.open.get(&burial.offset) else {
                core.tell(burial.told, Ok(0));
                continue;
            };
            if open.state != State::Burying {
                core.tell(burial.told, Ok(0));
                continue;
            }
            match found.remove(&want(burial.offset, &open)) {
                None => again.push(burial),
                Some(_) if self.fold.letters.len() >= limits::LETTERS_MAX => {
                    self.bury_later(core, &burial);
                }
                // What cannot be read any more must not hold up what can: it is set aside without its bytes.
                Some(found) => self.put_away(core, burial, open, found),
            }
        }
        self.bury(core, again);
        self.serve(core);
    }

    /// There are too many dead letters. It rests, so that it holds up nobody, and is never handed out.
    fn bury_later(&mut self, core: &mut Core, burial: &Burial) {
        let due = core.now().plus(limits::BURY_AGAIN_MS);
        self.rest(core, burial.offset, due);
        let letters = limits::LETTERS_MAX;
        core.tell(burial.told, Err(SettleRefused::TooManyLetters { letters }));
    }

    fn put_away(&mut self, core: &mut Core, burial: Burial, open: Open, found: Found) {
        let batch = match found {
            Found::Record(record) => lane::alone(&record).unwrap_or_default(),
            Found::Nothing | Found::Unreadable => bytes::Bytes::new(),
        };
        let letter = NewLetter {
            offset: burial.offset,
            attempts: open.attempts,
            at: core.wall(),
            reason: burial.reason,
            batch: kept_bytes(&batch, limits::LETTER_BYTES_MAX, self.fold.letter_bytes),
        };
        self.commit(core, &Change::Letter(Box::new(letter)));
        core.tell(burial.told, Ok(0));
    }

    /// Sets a record aside that is at hand.
    pub(super) fn set_aside(
        &mut self,
        core: &mut Core,
        record: &Record,
        attempts: u32,
        reason: Arc<str>,
    ) {
        let offset = record.offset.0;
        self.leave(core, offset);
        let batch = lane::alone(record).unwrap_or_default();
        let letter = NewLetter {
            offset,
            attempts,
            at: core.wall(),
            reason,
            batch: kept_bytes(&batch, limits::LETTER_BYTES_MAX, self.fold.letter_bytes),
        };
        self.commit(core, &Change::Letter(Box::new(letter)));
    }
}

fn at_once(core: &mut Core, results: Vec<Result<u64, SettleRefused>>) -> Settled {
    Settled {
        id: core.begin_settling(),
        results,
        left: 0,
    }
}

/// A member holds on whatever connection he is. What was polled without a name may be settled by anybody.
fn same(held: &Holder, asks: &Holder) -> bool {
    held.member.is_none() || held.member == asks.member
}

fn shortened(reason: Arc<str>) -> Arc<str> {
    if reason.len() <= limits::REASON_BYTES_MAX {
        return reason;
    }
    let mut end = limits::REASON_BYTES_MAX;
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    reason.get(..end).unwrap_or_default().into()
}
