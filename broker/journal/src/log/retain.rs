//! Forgetting: whole segments from the front for retention, batches from the end for a restore.
//!
//! Retention removes the oldest segment first and truncation the newest, with a directory sync after each, so that a
//! power cut anywhere leaves segments that meet.

use std::sync::Arc;

use felix_model::{Offset, TimeMs};

use super::index::Index;
use super::scan::Stop;
use super::segment::{self, Reach, Segment};
use super::shared::Shared;
use super::{Damage, Kind, Log, SyncFailed, durable, names};
use crate::disk::{DiskError, Doing};

/// What a log may forget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// Keep at least this many bytes, and less than one segment more.
    pub max_bytes: Option<u64>,
    /// Keep records at least this long, by the time of a segment's newest record.
    pub max_age_ms: Option<u64>,
}

/// Why a log was not cut back. Unless the disk failed, nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TruncateRefused {
    /// The log begins after that offset.
    #[error("the log begins at {start}")]
    BelowStart {
        /// Its start.
        start: Offset,
    },
    /// A batch holds offsets on both sides.
    #[error("offset is inside the batch that begins at {base}")]
    InsideBatch {
        /// First offset of that batch.
        base: Offset,
    },
    /// What lies there was compacted: it was committed, and what is committed is not cut.
    #[error("the log was compacted up to {next}")]
    Compacted {
        /// The first offset (exclusive) at which it can be cut.
        next: Offset,
    },
    /// The log is damaged before that offset.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// The disk failed; the log takes no more writes until it is opened again.
    #[error(transparent)]
    Io(#[from] DiskError),
    /// An earlier disk failure left the log in doubt.
    #[error("the log takes no more writes after an earlier disk failure")]
    Poisoned,
}

impl From<SyncFailed> for TruncateRefused {
    fn from(failed: SyncFailed) -> Self {
        match failed {
            SyncFailed::Io(error) => Self::Io(error),
            SyncFailed::Poisoned => Self::Poisoned,
        }
    }
}

/// Removes the files of segments that no reader sees any more.
#[derive(Debug)]
pub struct RetainJob {
    shared: Arc<Shared>,
}

impl RetainJob {
    /// Removes them, the oldest first. Readers that hold one open go on reading it. What cannot be removed is left to
    /// the next job, and with it all that is newer.
    ///
    /// # Errors
    /// The disk's.
    pub fn run(&self) -> Result<(), DiskError> {
        let disk = self.shared.files.disk().as_ref();
        let mut forgotten = self.shared.forgotten();
        while let Some(segment) = forgotten.first().map(Arc::clone) {
            durable::unlink(disk, &segment.path(&self.shared))?;
            forgotten.remove(0);
            self.shared.files.forget(segment.id);
            for kind in names::DERIVED {
                durable::unlink_derived(disk, &self.shared.path(segment.base, kind))?;
            }
        }
        Ok(())
    }
}

impl Log {
    /// Forgets whole segments from the front, never past `never_past`; answers the new start. An active segment whose
    /// newest record is too old is rolled and forgotten as well.
    ///
    /// # Errors
    /// The disk's. The start has moved nevertheless; files that were not removed are removed by the next call.
    pub fn retain(
        &mut self,
        policy: RetentionPolicy,
        now: TimeMs,
        never_past: Offset,
    ) -> Result<Offset, DiskError> {
        if let Some(job) = self.begin_retain(policy, now, never_past) {
            job.run()?;
        }
        Ok(self.start())
    }

    /// Takes from readers what may be forgotten; the files are for the job to remove.
    pub fn begin_retain(
        &mut self,
        policy: RetentionPolicy,
        now: TimeMs,
        never_past: Offset,
    ) -> Option<RetainJob> {
        self.roll_if_expired(policy, now, never_past);
        let mut bytes = self.shared.bytes();
        let mut segments = self.shared.segments_mut();
        let sealed = segments.len().saturating_sub(1);
        let forgotten = segments
            .iter()
            .take(sealed)
            .take_while(|segment| {
                // A segment that is still being sealed or compacted is left for the next sweep.
                let sealing = segment.is_busy()
                    || self
                        .unsealed
                        .iter()
                        .any(|unsealed| unsealed.segment.id == segment.id);
                let left = bytes.saturating_sub(segment.bytes());
                let too_many = policy.max_bytes.is_some_and(|max| left >= max);
                let forget = !sealing
                    && Offset(segment.next()) <= never_past
                    && (too_many || is_expired(segment, policy, now));
                bytes = left;
                forget
            })
            .count();
        let gone: Vec<Arc<Segment>> = segments.drain(..forgotten).collect();
        drop(segments);
        self.unsynced
            .retain(|segment| !gone.iter().any(|gone| gone.id == segment.id));
        let mut waiting = self.shared.forgotten();
        waiting.extend(gone);
        (!waiting.is_empty()).then(|| RetainJob {
            shared: Arc::clone(&self.shared),
        })
    }

    /// A quiet log would otherwise keep its last records for ever.
    fn roll_if_expired(&mut self, policy: RetentionPolicy, now: TimeMs, never_past: Offset) {
        let expired = self.active.bytes() > 0
            && is_expired(&self.active, policy, now)
            && self.end() <= never_past
            && !self.shared.is_poisoned();
        if !expired {
            return;
        }
        let rolled = self.wake().and_then(|()| self.roll());
        if let Err(error) = rolled {
            tracing::warn!(%error, dir = %self.shared.dir.display(), "expired segment not rolled");
            return;
        }
        // Forgetting it needs no seal, but its successor's name must be durable before it goes.
        if let Err(error) = self.sync() {
            tracing::warn!(%error, dir = %self.shared.dir.display(), "expired segment not forgotten");
        }
    }

    /// Cuts the log back so that it ends at `end`, which must be where a batch begins. Only what nobody relies on may
    /// be cut: a restore's business, or a follower's.
    ///
    /// # Errors
    /// See [`TruncateRefused`].
    pub fn truncate_to(&mut self, end: Offset) -> Result<(), TruncateRefused> {
        if end >= self.end() {
            return Ok(());
        }
        if end < self.start() {
            return Err(TruncateRefused::BelowStart {
                start: self.start(),
            });
        }
        self.sync()?;
        // No compaction begins or ends meanwhile.
        let shared = Arc::clone(&self.shared);
        let _unchanged = shared.manifest();
        let Some(target) = self.shared.segment_of(end.0) else {
            return Err(TruncateRefused::BelowStart {
                start: self.start(),
            });
        };
        let segments = shared.segments().clone();
        let sparse = segments.iter().filter_map(|segment| segment.sparse);
        let compacted = sparse.map(|sparse| sparse.next).max().unwrap_or(0);
        let next = Offset(compacted.max(shared.cleaned_to()));
        if end < next {
            return Err(TruncateRefused::Compacted { next });
        }
        let place = self.place_of(&target, end)?;
        self.cut_at(&target, place).map_err(|error| {
            self.shared.poison();
            TruncateRefused::Io(error)
        })
    }

    /// Reads a segment up to `end`.
    fn place_of(&self, target: &Segment, end: Offset) -> Result<Place, TruncateRefused> {
        let path = target.path(&self.shared);
        let file = self
            .shared
            .files
            .disk()
            .open_read_only(&path)
            .doing("open", &path)?;
        let mut scan = target.scan(file.as_ref(), 0, target.base);
        let mut place = Place {
            reach: Reach {
                bytes: 0,
                next: scan.expected,
                max_timestamp: -1,
            },
            generation: None,
            index: Index::default(),
            headers_crc: 0,
        };
        while scan.expected < end.0 {
            match scan.next() {
                Ok(Some(found)) if found.next() > end.0 => {
                    return Err(TruncateRefused::InsideBatch {
                        base: Offset(found.base()),
                    });
                }
                Ok(Some(found)) => {
                    place.index.note(target.placed(&found));
                    place.generation = u32::try_from(found.header.leader_epoch).ok();
                    place.headers_crc = scan.headers_crc;
                    place.reach = Reach {
                        bytes: scan.position,
                        next: scan.expected,
                        max_timestamp: place.reach.max_timestamp.max(found.header.max_timestamp),
                    };
                }
                Ok(None) => break,
                Err(Stop::Bad(kind)) => {
                    let (position, offset) = (scan.position, scan.expected);
                    return Err(target.damage(&self.shared, position, offset, kind).into());
                }
                Err(Stop::Io(error)) => return Err(DiskError::new("read", &path, &error).into()),
            }
        }
        Ok(place)
    }

    fn cut_at(&mut self, target: &Arc<Segment>, place: Place) -> Result<(), DiskError> {
        let disk = Arc::clone(self.shared.files.disk());
        // The mark first: it must never claim what is no longer there.
        self.last_generation = place.generation.unwrap_or(self.last_generation);
        let mark = self.mark_at(target.base, place.reach);
        self.lower_mark(&mark)?;
        self.shared.set_durable(place.reach.next);
        self.shared.set_end(place.reach.next);
        let later = {
            let mut segments = self.shared.segments_mut();
            let keep = segments.partition_point(|segment| segment.base <= target.base);
            segments.split_off(keep)
        };
        for segment in later.iter().rev() {
            durable::unlink(disk.as_ref(), &segment.path(&self.shared))?;
            for kind in names::DERIVED {
                durable::unlink(disk.as_ref(), &self.shared.path(segment.base, kind))?;
            }
            self.shared.files.forget(segment.id);
        }
        let path = target.path(&self.shared);
        let file = disk.open(&path).doing("open", &path)?;
        file.set_len(place.reach.bytes).doing("cut", &path)?;
        file.sync_data().doing("sync", &path)?;
        // A seal that came back could one day fit other batches of the same length.
        for kind in names::DERIVED {
            durable::unlink(disk.as_ref(), &self.shared.path(target.base, kind))?;
        }
        self.shared.files.forget(target.id);
        let id = self.shared.files.new_id();
        let active = Segment::new(id, target.base, place.reach).with_sparse(target.sparse);
        let active = Arc::new(active);
        *active.live() = segment::Live {
            file: Some(file),
            index: Some(place.index),
        };
        if let Some(last) = self.shared.segments_mut().last_mut() {
            *last = Arc::clone(&active);
        }
        self.active = active;
        self.headers_crc = Some(place.headers_crc);
        self.reserved = Some(place.reach.bytes);
        self.unsynced.clear();
        self.unsealed.clear();
        debug_assert_eq!(self.shared.path(target.base, Kind::Log), path);
        Ok(())
    }
}

/// Where a log is cut, and what is known of what stays in that segment.
#[derive(Debug)]
struct Place {
    reach: Reach,
    /// Of the last batch that stays; none when the segment is left empty.
    generation: Option<u32>,
    index: Index,
    headers_crc: u32,
}

/// Whether a segment's newest record is older than may be. Records without a time do not age.
fn is_expired(segment: &Segment, policy: RetentionPolicy, now: TimeMs) -> bool {
    let Some(max_age) = policy.max_age_ms else {
        return false;
    };
    let Ok(newest) = u64::try_from(segment.max_timestamp()) else {
        return false;
    };
    now.since(TimeMs(newest)) > max_age
}
