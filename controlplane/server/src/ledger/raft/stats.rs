//! What a member counts.

use std::sync::atomic::{AtomicU64, Ordering};

use super::core::Core;
use crate::ledger::Measure;

/// Counts for `/metrics`.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) forwarded: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    pub(crate) rejected: AtomicU64,
}

impl Counts {
    pub(crate) fn add(count: &AtomicU64) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

impl Core {
    /// Numbers for `/metrics`.
    pub(crate) fn measures(&self) -> Vec<Measure> {
        let metrics = self.metrics();
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let next = |index: Option<u64>| index.map_or(0, |index| index + 1);
        vec![
            measure(
                "gauge",
                "felix_meta_raft_term",
                "Term of the raft ledger.",
                metrics.current_term,
            ),
            measure(
                "gauge",
                "felix_meta_raft_is_leader",
                "1 while this member leads and a majority says so.",
                self.leads_by(&metrics).into(),
            ),
            measure(
                "gauge",
                "felix_meta_raft_leader_known",
                "1 while this member knows a leader.",
                self.leader().is_some().into(),
            ),
            measure(
                "gauge",
                "felix_meta_raft_last_log_index",
                "Entries of the raft log, applied or not.",
                next(metrics.last_log_index),
            ),
            measure(
                "gauge",
                "felix_meta_raft_last_applied_index",
                "Entries of the raft log that were applied.",
                self.reach().next_index(),
            ),
            measure(
                "gauge",
                "felix_meta_raft_snapshot_index",
                "Entries that the raft log may let go of.",
                next(metrics.snapshot.map(|snapshot| snapshot.index)),
            ),
            measure(
                "gauge",
                "felix_meta_raft_voters",
                "Members that vote.",
                self.voters().len() as u64,
            ),
            measure(
                "counter",
                "felix_meta_raft_forwarded_proposals_total",
                "Appends sent to the leader.",
                count(&self.counts.forwarded),
            ),
            measure(
                "counter",
                "felix_meta_raft_write_timeouts_total",
                "Appends that found no leader in time, or whose outcome stayed unknown.",
                count(&self.counts.timed_out),
            ),
            measure(
                "counter",
                "felix_meta_raft_peer_rejected_total",
                "Calls of other members that were refused.",
                count(&self.counts.rejected),
            ),
        ]
    }
}

fn measure(kind: &'static str, name: &'static str, help: &'static str, value: u64) -> Measure {
    Measure {
        kind,
        name,
        help,
        value,
    }
}
