//! What a ledger in a database counts.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::ledger::Measure;

#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Appends that others were quicker than.
    pub(super) races: AtomicU64,
    /// Appends that had to be asked about.
    pub(super) settled: AtomicU64,
    /// Those of them about which nobody could say anything.
    pub(super) unconfirmed: AtomicU64,
    /// Times that following began anew.
    pub(super) reconnects: AtomicU64,
}

impl Counts {
    pub(super) fn measures(&self) -> Vec<Measure> {
        vec![
            measure(
                "counter",
                "felix_controlplane_postgres_races_total",
                "Appends to the ledger that another process was quicker than.",
                &self.races,
            ),
            measure(
                "counter",
                "felix_controlplane_postgres_settled_total",
                "Appends to the ledger whose answer was lost and that were asked about.",
                &self.settled,
            ),
            measure(
                "counter",
                "felix_controlplane_postgres_unconfirmed_total",
                "Appends to the ledger about which nothing could be found out.",
                &self.unconfirmed,
            ),
            measure(
                "counter",
                "felix_controlplane_postgres_reconnects_total",
                "Times that the database was followed again after an outage.",
                &self.reconnects,
            ),
        ]
    }
}

fn measure(
    kind: &'static str,
    name: &'static str,
    help: &'static str,
    value: &AtomicU64,
) -> Measure {
    Measure {
        kind,
        name,
        help,
        value: value.load(Ordering::Relaxed),
    }
}
