//! The one history, and what clients were told of it.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// Members agree: one record per revision, the same everywhere, for ever.
    Agreement,
    /// What was acknowledged is there, at its place, whole.
    Durable,
    /// What was refused is not there.
    Refused,
    /// No append is there twice, or in part.
    Once,
    /// A confirmed read has everything acknowledged before it, and never goes back.
    Confirmed,
    /// A member starts again by itself, whatever ended it.
    Start,
    /// No member stops of itself, but for its disk.
    Running,
    /// When all is well again, everybody agrees before long.
    Liveness,
    /// A leader that is cut off claims nothing.
    Leadership,
    /// One seed, one run.
    Determinism,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub check: Check,
    /// How.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}: {}", self.check, self.detail)
    }
}

/// What a client was told of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Done,
    Raced,
    /// It was not done, and will not be.
    Not,
    /// Nobody knows.
    Unsure,
}

/// One append of a client. All of its records begin with its name.
#[derive(Clone, Debug)]
pub(crate) struct Appended {
    pub(crate) name: String,
    pub(crate) expected: u64,
    pub(crate) records: Vec<Bytes>,
    pub(crate) told: Told,
}

/// Everything that was seen.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Record by record, as the first member that showed it had it.
    records: Vec<Bytes>,
    appends: Vec<Appended>,
    /// The newest revision that was acknowledged, or confirmed, to anybody.
    known: u64,
    pub(crate) violations: Vec<Violation>,
}

/// More than this says nothing more.
const VIOLATIONS_MAX: usize = 20;

impl History {
    pub(crate) fn violate(&mut self, check: Check, detail: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation { check, detail });
        }
    }

    /// The newest revision that anybody was told of.
    pub(crate) fn known(&self) -> u64 {
        self.known
    }

    pub(crate) fn len(&self) -> u64 {
        self.records.len() as u64
    }

    pub(crate) fn records(&self) -> &[Bytes] {
        &self.records
    }

    pub(crate) fn appends(&self) -> &[Appended] {
        &self.appends
    }

    /// A member shows records behind a revision.
    pub(crate) fn shown(&mut self, member: u64, after: u64, records: &[Bytes]) {
        for (at, record) in (after..).zip(records) {
            let index = usize::try_from(at).unwrap_or(usize::MAX);
            match self.records.get(index) {
                Some(known) if known == record => {}
                Some(known) => {
                    let detail = format!(
                        "member {member} has {record:?} at revision {}, and {known:?} was seen there",
                        at + 1
                    );
                    self.violate(Check::Agreement, detail);
                    return;
                }
                None if index == self.records.len() => self.records.push(record.clone()),
                None => {
                    let detail = format!("member {member} shows revision {} before others", at + 1);
                    self.violate(Check::Agreement, detail);
                    return;
                }
            }
        }
    }

    /// A client has its answer.
    pub(crate) fn answered(&mut self, appended: Appended) {
        if appended.told == Told::Done {
            let upto = appended.expected + appended.records.len() as u64;
            self.known = self.known.max(upto);
        }
        self.appends.push(appended);
    }

    /// A confirmed read came back; `known` is what anybody had been told when it began.
    pub(crate) fn confirmed(&mut self, member: u64, known: u64, revision: u64) {
        if revision < known {
            let detail = format!(
                "member {member} confirmed revision {revision} after revision {known} was known"
            );
            self.violate(Check::Confirmed, detail);
        }
        self.known = self.known.max(revision);
    }

    /// Holds everything clients were told against the history, once everybody has shown all.
    pub(crate) fn conclude(&mut self) {
        let mut places: BTreeMap<Bytes, Vec<u64>> = BTreeMap::new();
        for (at, record) in (0..).zip(&self.records) {
            places.entry(record.clone()).or_default().push(at);
        }
        for (record, at) in places.iter().filter(|(_, at)| at.len() > 1) {
            let detail = format!("{record:?} is there {} times, at {at:?}", at.len());
            self.violate(Check::Once, detail);
        }
        for appended in std::mem::take(&mut self.appends) {
            let Appended {
                name,
                expected,
                records,
                told,
            } = &appended;
            let found: Vec<Option<u64>> = records
                .iter()
                .map(|record| places.get(record).and_then(|at| at.first().copied()))
                .collect();
            let right: Vec<Option<u64>> = (*expected..).take(records.len()).map(Some).collect();
            let is_there = found == right;
            let is_absent = found.iter().all(Option::is_none);
            match told {
                Told::Done if !is_there => self.violate(
                    Check::Durable,
                    format!("{name} was acknowledged behind {expected}, and is at {found:?}"),
                ),
                Told::Raced | Told::Not if !is_absent => self.violate(
                    Check::Refused,
                    format!("{name} was refused ({told:?}) behind {expected}, and is at {found:?}"),
                ),
                Told::Unsure if !is_there && !is_absent => self.violate(
                    Check::Once,
                    format!("{name} behind {expected} is there in part, at {found:?}"),
                ),
                Told::Done | Told::Raced | Told::Not | Told::Unsure => {}
            }
            self.appends.push(appended);
        }
    }
}
