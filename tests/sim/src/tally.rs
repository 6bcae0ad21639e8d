//! What happened in runs, counted.

use std::collections::BTreeMap;

use felix_journal::disk::CallKind;

use crate::faults::FaultName;
use crate::oracle::Ending;

/// Sums over a run, or over many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Runs.
    pub runs: u64,
    /// Ends of lives at a step between two disk calls.
    pub endings: BTreeMap<Ending, u64>,
    /// Ends of lives in the middle of a disk call while serving.
    pub inside: BTreeMap<Ending, u64>,
    /// Ends of lives in the middle of a disk call of recovery.
    pub in_recovery: BTreeMap<Ending, u64>,
    /// Recoveries.
    pub recoveries: u64,
    /// Recoveries that cut a torn end off, and the bytes.
    pub torn: (u64, u64),
    /// Logs that were closed in order and cost their next start a new generation all the same.
    pub unclean: u64,
    /// Records sent.
    pub sent: u64,
    /// Records acknowledged.
    pub acked: u64,
    /// Batches answered as sent before.
    pub duplicates: u64,
    /// Appends refused.
    pub refused: u64,
    /// Acknowledged records lost, all allowed by the mode.
    pub lost_acked: u64,
    /// Records lost that were only read.
    pub lost_read: u64,
    /// Batches delivered to readers.
    pub delivered: u64,
    /// Pages read from the log for readers.
    pub pages: u64,
    /// Retention passes that moved the start.
    pub trimmed: u64,
    /// Offsets held when a recovery had finished, the largest.
    pub end_max: u64,
    /// Faults that happened.
    pub faults: BTreeMap<(CallKind, FaultName), u64>,
    /// Times the disk was made full.
    pub fillings: u64,
    /// Times reads were made to fail.
    pub read_faults: u64,
    /// Milliseconds that passed on the clock of the runs.
    pub virtual_ms: u64,
    /// Lines of transcript.
    pub events: u64,
}

impl Tally {
    /// Crashes: lives that a kill or a power cut ended.
    pub fn crashes(&self) -> u64 {
        [&self.endings, &self.inside, &self.in_recovery]
            .into_iter()
            .flatten()
            .filter(|(ending, _)| matches!(ending, Ending::Kill | Ending::PowerCut))
            .map(|(_, count)| count)
            .sum()
    }

    /// Adds what happened in another run.
    pub fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        add(&mut self.endings, &other.endings);
        add(&mut self.inside, &other.inside);
        add(&mut self.in_recovery, &other.in_recovery);
        self.recoveries += other.recoveries;
        self.torn.0 += other.torn.0;
        self.torn.1 += other.torn.1;
        self.unclean += other.unclean;
        self.sent += other.sent;
        self.acked += other.acked;
        self.duplicates += other.duplicates;
        self.refused += other.refused;
        self.lost_acked += other.lost_acked;
        self.lost_read += other.lost_read;
        self.delivered += other.delivered;
        self.pages += other.pages;
        self.trimmed += other.trimmed;
        self.end_max = self.end_max.max(other.end_max);
        add(&mut self.faults, &other.faults);
        self.fillings += other.fillings;
        self.read_faults += other.read_faults;
        self.virtual_ms += other.virtual_ms;
        self.events += other.events;
    }
}

fn add<K: Copy + Ord>(to: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
    for (key, count) in from {
        *to.entry(*key).or_default() += count;
    }
}
