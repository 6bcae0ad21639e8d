//! What a broker that comes back must still have.

use bytes::Bytes;
use felix_model::{Offset, TimeMs, verify};

use super::{Oracle, Revoked};
use crate::check::Check;
use crate::plan::Mode;
use crate::pool::SYNC_MS_MAX;

/// How a life of the broker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// It was closed in order.
    Orderly,
    /// A write or a sync failed, and only the shard is opened again.
    Reopen,
    /// The process was killed; what it wrote is there.
    Kill,
    /// The power failed.
    PowerCut,
}

/// What recovery found, and what happened before.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) start: Offset,
    pub(crate) end: Offset,
    /// The whole log.
    pub(crate) batches: Vec<Bytes>,
    /// How the worst of the lives since the last recovery ended.
    pub(crate) ending: Ending,
    /// When the power failed, or the first write or sync before that.
    pub(crate) failed_at: TimeMs,
}

/// What a power cut took that it was allowed to take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Loss {
    /// Acknowledged records.
    pub(crate) acked: u64,
    /// Records that were read and not acknowledged.
    pub(crate) read: u64,
}

impl Oracle {
    /// Holds the log that recovery found against what was promised.
    pub(crate) fn recovered(&mut self, found: &Found) -> Loss {
        let (retained, start) = (self.retained, found.start);
        self.findings.expect(start <= retained, Check::Durable, || {
            format!("the log starts at {start}, and retention went to {retained} at most")
        });
        self.start = start;
        let loss = self.judge_loss(found);
        self.walk(found);
        self.flushed = found.end;
        self.written.clear();
        loss
    }

    fn judge_loss(&mut self, found: &Found) -> Loss {
        let (end, flushed) = (found.end, self.flushed);
        self.findings.expect(end >= flushed, Check::Durable, || {
            format!(
                "everything below {flushed} was durable, and the log ends at {end} after {:?}",
                found.ending
            )
        });
        let mut loss = Loss::default();
        let lost: Vec<_> = self
            .claims
            .iter()
            .filter(|(_, claim)| claim.end > end.0)
            .map(|(base, claim)| (*base, *claim))
            .collect();
        for (base, claim) in lost {
            if let Some(what) = self.is_forbidden(base, found) {
                let acked = if claim.acked { "acknowledged" } else { "read" };
                let what = format!("batch {} at {base}, {acked}, is lost: {what}", claim.uid.0);
                self.findings.report(Check::Durable, what);
                continue;
            }
            let records = claim.end - base;
            if claim.acked {
                loss.acked += records;
            } else {
                loss.read += records;
            }
            self.claims.remove(&base);
            let revoked = Revoked {
                uid: claim.uid,
                end: claim.end,
                generation: claim.generation,
            };
            self.revoked.entry(base).or_default().push(revoked);
        }
        loss
    }

    /// Why what is at `base` may not be lost.
    fn is_forbidden(&self, base: u64, found: &Found) -> Option<String> {
        match (found.ending, self.mode) {
            (Ending::PowerCut, Mode::None) => None,
            (Ending::PowerCut, Mode::Periodic) => {
                let written = self
                    .written
                    .iter()
                    .find(|(end, _)| end.0 > base)
                    .map(|(_, at)| *at)?;
                let bound = self.interval_ms + SYNC_MS_MAX;
                let age = found.failed_at.since(written);
                (age > bound).then(|| format!("it was {age} ms old, and {bound} ms is the bound"))
            }
            (ending, mode) => Some(format!(
                "{ending:?} with sync {mode}, and the log ends at {}",
                found.end
            )),
        }
    }

    /// Everything in the log can be read by everybody from now on.
    fn walk(&mut self, found: &Found) {
        let mut next = found.start;
        for log in &found.batches {
            if let Err(refused) = verify(log) {
                return self.findings.report(
                    Check::Bytes,
                    format!("batch at {next} is not one: {refused}"),
                );
            }
            let base = felix_model::BatchHeader::parse(log).map(|header| header.base());
            let Some((_, end)) = self.in_log(log) else {
                return;
            };
            if base != Ok(next) {
                return self.findings.report(
                    Check::Offsets,
                    format!("{base:?} follows {next} in the log"),
                );
            }
            next = end;
        }
        let end = found.end;
        self.findings.expect(next == end, Check::Offsets, || {
            format!("the log ends at {next}, and recovery said {end}")
        });
    }
}
