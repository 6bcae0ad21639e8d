//! From the lane to the groups and back: replay, checkpoints, and what compaction may drop.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use felix_model::{Offset, Record, Records};

use super::ask::{GroupName, ScheduleId};
use super::core::{Core, GroupId};
use super::fold::Fold;
use super::group::Group;
use super::io::Moment;
use super::lane::{self, Change, Entry, LaneRefused, Writer};
use super::schedule::{InDoubt, Schedules};
use super::{GroupOptions, Groups};

/// Reads a lane from its beginning to its end.
#[derive(Debug)]
pub struct Replay {
    options: GroupOptions,
    folds: BTreeMap<GroupName, Fold>,
    schedules: Schedules,
    checkpoint: u64,
    cut: Option<Offset>,
}

impl Replay {
    /// Nothing read yet.
    pub fn new(options: GroupOptions) -> Self {
        Self {
            options,
            folds: BTreeMap::new(),
            schedules: Schedules::default(),
            checkpoint: 0,
            cut: None,
        }
    }

    /// Says that the stream's log ended at `end` (exclusive) when it was recovered, and was appended to since. Without
    /// this it ends at the moment's tail.
    pub fn cut(&mut self, end: Offset) {
        self.cut = Some(end);
    }

    /// Reads the next batch. Compaction may have left out records, and batches.
    ///
    /// # Errors
    /// [`LaneRefused`]: the lane is not what groups write, or is newer than this build.
    pub fn batch(&mut self, batch: &Bytes) -> Result<(), LaneRefused> {
        for record in Records::new(batch)? {
            self.record(&record?)?;
        }
        Ok(())
    }

    fn record(&mut self, record: &Record) -> Result<(), LaneRefused> {
        let at = record.offset;
        let malformed = || LaneRefused::Malformed { at };
        match Entry::read(at, record)? {
            Entry::Group(name, change) => {
                let name = group(&name).ok_or_else(malformed)?;
                if change == Change::Deleted {
                    self.folds.remove(&name);
                } else {
                    self.folds.entry(name).or_default().apply(&change, at.0);
                }
            }
            Entry::Schedule(id, planned) => {
                let id = ScheduleId::new(&id).map_err(|_| malformed())?;
                self.schedules.apply(id, &planned, at.0);
            }
            Entry::Checkpoint => {
                self.folds.clear();
                self.schedules = Schedules::default();
                self.checkpoint = at.0;
            }
            Entry::GroupState(name, fields) => {
                let name = group(&name).ok_or_else(malformed)?;
                let fold = Fold::decode(fields).ok_or_else(malformed)?;
                self.folds.insert(name, fold);
            }
            Entry::ScheduleState(id, fields) => {
                let id = ScheduleId::new(&id).map_err(|_| malformed())?;
                self.schedules.decode(id, fields).ok_or_else(malformed)?;
            }
        }
        Ok(())
    }

    /// Scheduled records that may be in the stream already. Look for each, and say which are not there.
    pub fn in_doubt(&self) -> Vec<InDoubt> {
        self.schedules.in_doubt()
    }

    /// The groups, once everything was read. `lane_end` is where the lane ends; `appended` are those of
    /// [`Self::in_doubt`] that the stream has.
    ///
    /// What lies at or above the end of the stream's log, see [`Self::cut`], was lost with the power: it is forgotten here, so that what
    /// is appended there next is handed out.
    pub fn finish(self, moment: Moment, lane_end: Offset, appended: &[ScheduleId]) -> Groups {
        let mut groups = Groups {
            core: Core::new(self.options, moment, lane_end),
            groups: BTreeMap::new(),
            names: BTreeMap::new(),
            schedules: self.schedules,
            checkpoint: self.checkpoint,
            idle_at: moment.now,
            stopped: None,
        };
        let end = self.cut.map_or(moment.tail, |cut| cut.min(moment.tail)).0;
        let core = &mut groups.core;
        for doubt in groups.schedules.in_doubt() {
            if appended.contains(&doubt.id) {
                groups.schedules.appended(core, doubt.id, Ok(()));
            } else {
                groups.schedules.not_found(&doubt.id);
            }
        }
        for (name, mut fold) in self.folds {
            fold.forget_holders();
            let id = GroupId(core.name());
            let mut group = Group::new(id, name.clone(), fold, core);
            let beyond = group.fold.next > end
                || group.fold.open.range(end..).next().is_some()
                || group
                    .fold
                    .ahead
                    .iter()
                    .any(|run| run.start + run.count > end);
            if beyond {
                group.commit(core, &Change::Cut { end });
                // The change was counted as if these had been open in memory before.
                core.open = 0;
            }
            groups.names.insert(name, id);
            groups.groups.insert(id, group);
        }
        core.open = 0;
        for group in groups.groups.values_mut() {
            group.restore(core);
        }
        groups
    }
}

fn group(name: &[u8]) -> Option<GroupName> {
    GroupName::new(std::str::from_utf8(name).ok()?).ok()
}

/// What compaction of the lane keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keeping {
    /// Everything from here on is needed: the newest checkpoint.
    pub from: Offset,
    refs: BTreeSet<u64>,
}

impl Keeping {
    /// Whether the record at this offset of the lane is needed.
    pub fn keeps(&self, at: Offset) -> bool {
        at >= self.from || self.refs.contains(&at.0)
    }

    /// The lowest offset that is needed.
    pub fn oldest(&self) -> Offset {
        let oldest = self.refs.first().copied().map_or(self.from, Offset);
        oldest.min(self.from)
    }
}

impl Groups {
    /// What of the lane is needed, as of the newest checkpoint. Before anything is dropped by it, the lane must be
    /// durable up to [`Groups::lane_end`] as it was when this was asked.
    pub fn keeping(&self) -> Keeping {
        let mut refs = BTreeSet::new();
        for group in self.groups.values() {
            group.fold.lane_refs(&mut refs);
        }
        self.schedules.lane_refs(&mut refs);
        Keeping {
            from: Offset(self.checkpoint),
            refs,
        }
    }

    /// About how many bytes of the lane are needed: the records it keeps, and a checkpoint.
    pub fn live_bytes(&self) -> u64 {
        const GROUP: u64 = 64;
        const OPEN: u64 = 8;
        const ENTRY: u64 = 64;
        let groups: u64 = self
            .groups
            .values()
            .map(|group| {
                let fold = &group.fold;
                let letters = fold.letters.len() as u64;
                let open = (fold.open.len() + fold.ahead.len()) as u64;
                GROUP + fold.letter_bytes + letters * ENTRY + open * OPEN
            })
            .sum();
        groups + self.schedules.bytes() + self.schedules.len() as u64 * ENTRY
    }

    pub(super) fn write_checkpoint(&mut self) {
        let mut states: Vec<(Bytes, Writer)> = Vec::new();
        for group in self.groups.values().filter(|group| group.fold.persisted) {
            let name = Bytes::copy_from_slice(group.name.as_str().as_bytes());
            states.push((name, group.fold.encode()));
        }
        self.schedules.encode(&mut states);
        let now = self.core.now();
        let core = &mut self.core;
        // One too large for a batch is left out; the lane grows until there is less to say.
        if let Ok(at) = core.lane.push_checkpoint(now, &states, &mut core.effects) {
            self.checkpoint = at;
        }
    }

    /// The record that a lane record keeps: of a dead letter, or of a schedule.
    pub fn kept(at: Offset, lane: &Record) -> Option<Record> {
        lane::kept(at, lane)
    }
}
