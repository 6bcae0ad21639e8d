//! Dead letters: listing them, and making them owed again or dropping them.

use std::collections::BTreeMap;
use std::ops::Bound;

use felix_model::Offset;

use super::ask::{Answer, LetterView, Ticket, Which};
use super::core::{Core, Reading};
use super::group::Group;
use super::io::{Found, Place, Want};
use super::lane::Change;
use super::limits;
use super::ranges::Run;
use super::serve::carried_bytes;

impl Group {
    pub(super) fn list_letters(
        &mut self,
        core: &mut Core,
        ticket: Ticket,
        after: Option<Offset>,
        limit: u32,
        payloads: bool,
    ) {
        self.used = core.now();
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.0));
        let mut left = self.fold.letters.range((from, Bound::Unbounded));
        let most = if payloads {
            limits::PAGE_MAX as usize
        } else {
            limits::LETTERS_MAX
        };
        let limit = (limit as usize).clamp(1, most);
        let page: Vec<(LetterView, Want)> = left
            .by_ref()
            .take(limit)
            .map(|(&offset, letter)| {
                let view = LetterView {
                    offset: Offset(offset),
                    attempts: letter.attempts,
                    reason: letter.reason.clone(),
                    at: letter.at,
                    record: None,
                };
                let at = if letter.bytes > 0 {
                    letter.lane
                } else {
                    u64::MAX
                };
                let place = Place::Lane;
                let at = Offset(at);
                (view, Want { place, at })
            })
            .collect();
        let more = left.next().is_some();
        let wants: Vec<Want> = page
            .iter()
            .filter(|(_, want)| want.at.0 != u64::MAX)
            .map(|(_, want)| *want)
            .collect();
        if !payloads || wants.is_empty() {
            let letters = page.into_iter().map(|(view, _)| view).collect();
            return core.answer(ticket, Answer::Letters { letters, more });
        }
        let reading = Reading::Letters {
            ticket,
            letters: page,
            more,
        };
        core.read(reading, wants);
    }

    /// Makes dead letters owed again, from the first attempt on.
    pub(super) fn redrive(&mut self, core: &mut Core, ticket: Ticket, which: &Which) {
        let (runs, missing) = self.choose(core, which);
        if !runs.is_empty() {
            let fresh: Vec<u64> = runs
                .iter()
                .copied()
                .flat_map(Run::offsets)
                .filter(|offset| !self.fold.open.contains_key(offset))
                .collect();
            self.commit(core, &Change::Redriven(runs.clone()));
            self.owe(core, fresh);
        }
        self.answer_moved(core, ticket, &runs, missing);
        self.serve(core);
    }

    /// Drops dead letters.
    pub(super) fn discard(&mut self, core: &mut Core, ticket: Ticket, which: &Which) {
        let (runs, missing) = self.choose(core, which);
        if !runs.is_empty() {
            self.commit(core, &Change::Discarded(runs.clone()));
        }
        self.answer_moved(core, ticket, &runs, missing);
    }

    fn answer_moved(&self, core: &mut Core, ticket: Ticket, runs: &[Run], missing: Vec<Offset>) {
        let count = runs.iter().map(|run| run.count).sum();
        let left = self.fold.letters.len() as u64;
        core.answer(
            ticket,
            Answer::Moved {
                count,
                left,
                missing,
            },
        );
    }

    /// Those that are there, as runs, and those that are not.
    fn choose(&mut self, core: &Core, which: &Which) -> (Vec<Run>, Vec<Offset>) {
        self.used = core.now();
        let (mut runs, mut missing) = (Vec::new(), Vec::new());
        match which {
            Which::All => {
                for &offset in self.fold.letters.keys().take(limits::MOVED_MAX) {
                    Run::add(&mut runs, offset);
                }
            }
            Which::These(offsets) => {
                let mut offsets = offsets.clone();
                offsets.sort_unstable();
                offsets.dedup();
                for offset in offsets {
                    if self.fold.letters.contains_key(&offset.0) {
                        Run::add(&mut runs, offset.0);
                    } else {
                        missing.push(offset);
                    }
                }
            }
        }
        (runs, missing)
    }
}

/// A page of dead letters with the records that were read for it. Those for which there was no room go onto the next
/// page.
pub(super) fn page(
    letters: Vec<(LetterView, Want)>,
    found: Vec<(Want, Found)>,
    mut more: bool,
) -> Answer {
    let mut found: BTreeMap<Want, Found> = found.into_iter().collect();
    let mut page = Vec::with_capacity(letters.len());
    let mut bytes = 0;
    for (mut view, want) in letters {
        if want.at.0 != u64::MAX {
            match found.remove(&want) {
                Some(Found::Record(record)) => {
                    let size = carried_bytes(&record);
                    if bytes > 0 && bytes + size > limits::READ_BYTES {
                        more = true;
                        break;
                    }
                    if size <= limits::LISTED_BYTES_MAX {
                        bytes += size;
                        view.record = Some(record);
                    }
                }
                Some(Found::Nothing | Found::Unreadable) => {}
                None if page.is_empty() => {}
                None => {
                    more = true;
                    break;
                }
            }
        }
        page.push(view);
    }
    Answer::Letters {
        letters: page,
        more,
    }
}
