//! Opening a log: the plan is made first and then carried out, so that a refusal has changed nothing.

use std::path::Path;
use std::sync::Arc;

use felix_model::{Generation, Offset};

use super::mark::Mark;
use super::plan::{self, Cut, Plan, Planned};
use super::segment::{self, Reach, Segment};
use super::shared::Shared;
use super::{Kind, Log, LogOptions, OpenFiles, OpenRefused, Recovered, names};
use crate::disk::{Disk, DiskError, DiskFile, Doing, read_full};
use crate::{durable, limits};

/// Opens and recovers a log, or creates it.
pub(super) fn open(
    files: &Arc<OpenFiles>,
    dir: &Path,
    options: LogOptions,
) -> Result<(Log, Recovered), OpenRefused> {
    let disk = files.disk().as_ref();
    let mut plan = plan::plan(disk, dir, options.verify_bytes)?;
    if plan.segments.is_empty() {
        create(disk, dir)?;
        plan.mark = Some(blank(disk));
        plan.segments.push(Planned {
            base: 0,
            sparse: None,
            swap: None,
            reach: Reach {
                bytes: 0,
                next: 0,
                max_timestamp: -1,
            },
            last_generation: 0,
            seal: None,
            read: Some(Default::default()),
        });
    } else if plan
        .segments
        .last()
        .is_some_and(|newest| newest.reach.next == 0)
    {
        // Whoever created it may have been interrupted before its names were durable.
        durable::create_dirs(disk, dir)?;
        durable::sync_later(disk, dir)?;
    }
    for planned in &mut plan.segments {
        finish_swap(disk, dir, planned)?;
    }
    for name in &plan.leftovers {
        durable::unlink(disk, &dir.join(name))?;
    }
    match &plan.cut {
        Some(cut) => apply(disk, dir, cut, &plan)?,
        None if plan.lost_durable_bytes() > 0 => tracing::error!(
            dir = %dir.display(), durable_bytes = plan.lost_durable_bytes(),
            "the end of the log is gone that had been durable: the disk lost what it promised to keep"
        ),
        None => {}
    }
    if let Some(newest) = plan.segments.last() {
        // It grows again, and a stale seal could one day fit other batches of the same length.
        durable::unlink(disk, &names::path(dir, newest.base, Kind::Seal))?;
    }
    let mut log = assemble(files, dir, options, &plan)?;
    let recovered = log.settle(&mut plan)?;
    Ok((log, recovered))
}

/// Puts a segment that compaction committed into its place.
fn finish_swap(disk: &dyn Disk, dir: &Path, planned: &mut Planned) -> Result<(), DiskError> {
    let Some(serial) = planned.swap.take() else {
        return Ok(());
    };
    tracing::info!(dir = %dir.display(), segment = planned.base, "finishing an interrupted compaction");
    // The seal first: it could fit the new file as well.
    durable::unlink(disk, &names::path(dir, planned.base, Kind::Seal))?;
    let written = names::cleaned(dir, planned.base, serial);
    durable::rename(disk, &written, &names::path(dir, planned.base, Kind::Log))
}

/// A reader of a log that nobody writes, without changing anything; none when there is no log. A torn end is left out.
pub(crate) fn open_existing(
    files: &Arc<OpenFiles>,
    dir: &Path,
    options: LogOptions,
) -> Result<Option<crate::reader::LogReader>, OpenRefused> {
    let plan = plan::plan(files.disk().as_ref(), dir, options.verify_bytes)?;
    if plan.segments.is_empty() {
        return Ok(None);
    }
    Ok(Some(assemble(files, dir, options, &plan)?.reader()))
}

/// The mark of a log that holds nothing.
fn blank(disk: &dyn Disk) -> Mark {
    Mark {
        boot: disk.boot(),
        segment: 0,
        bytes: 0,
        next: 0,
        max_timestamp: -1,
        last_generation: 0,
    }
}

/// Creates an empty log. Its directory entries are durable before anything is written into it. One directory sync
/// serves both files: whichever of them a crash leaves behind, the next open takes the log for a new one.
fn create(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
    durable::create_dirs(disk, dir)?;
    let path = dir.join(names::MARK);
    let mark = match disk.open(&path) {
        Ok(mark) => mark,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let (mark, durable::Unsynced) = durable::create_unsynced(disk, &path)?;
            mark
        }
        Err(error) => return Err(DiskError::new("open", &path, &error)),
    };
    let blank = blank(disk).encode();
    mark.write_at(&[std::io::IoSlice::new(&blank)], 0)
        .doing("write", &path)?;
    mark.sync_data().doing("sync", &path)?;
    durable::create(disk, &names::path(dir, 0, Kind::Log))?;
    Ok(())
}

/// Cuts a torn end off, newest part first, so that a crash half way leaves a shorter torn end.
fn apply(disk: &dyn Disk, dir: &Path, cut: &Cut, plan: &Plan) -> Result<(), DiskError> {
    let Some(last) = plan.segments.last() else {
        return Ok(());
    };
    if cut.durable_bytes > 0 {
        tracing::error!(
            dir = %dir.display(), segment = cut.segment, position = cut.position, bytes = cut.bytes,
            durable_bytes = cut.durable_bytes, why = %cut.why,
            "cutting off a torn end that had been durable: the disk lost what it promised to keep"
        );
        durable::replace(disk, &dir.join(names::MARK), &mark_of(disk, last).encode())?;
    } else {
        tracing::warn!(
            dir = %dir.display(), segment = cut.segment, position = cut.position, bytes = cut.bytes,
            why = %cut.why, "cutting off a torn end"
        );
    }
    for base in cut.dropped.iter().rev() {
        durable::unlink(disk, &names::path(dir, *base, Kind::Log))?;
        for kind in names::DERIVED {
            durable::unlink(disk, &names::path(dir, *base, kind))?;
        }
    }
    let path = names::path(dir, cut.segment, Kind::Log);
    let file = disk.open(&path).doing("open", &path)?;
    file.set_len(cut.position).doing("cut", &path)?;
    file.sync_data().doing("sync", &path)
}

/// The mark that says a log is durable to the end of its newest segment.
fn mark_of(disk: &dyn Disk, newest: &Planned) -> Mark {
    Mark {
        boot: disk.boot(),
        segment: newest.base,
        bytes: newest.reach.bytes,
        next: newest.reach.next,
        max_timestamp: newest.reach.max_timestamp,
        last_generation: newest.last_generation,
    }
}

/// Puts the log together from what the plan found.
fn assemble(
    files: &Arc<OpenFiles>,
    dir: &Path,
    options: LogOptions,
    plan: &Plan,
) -> Result<Log, OpenRefused> {
    let segments: Vec<Arc<Segment>> = plan
        .segments
        .iter()
        .map(|planned| {
            let mut segment = Segment::new(files.new_id(), planned.base, planned.reach)
                .with_sparse(planned.sparse);
            segment.swap = planned.swap;
            if let Some(seal) = planned.seal {
                let _ = segment.sums.set((seal.index, seal.time_index));
            }
            Arc::new(segment)
        })
        .collect();
    let (Some(active), Some(newest)) = (segments.last().cloned(), plan.segments.last()) else {
        let missing = std::io::ErrorKind::NotFound.into();
        return Err(OpenRefused::Io(DiskError::new("open", dir, &missing)));
    };
    // The newest segment grows again, so a seal it may have had no longer holds.
    let active = match newest.seal {
        Some(_) => Arc::new(
            Segment::new(files.new_id(), active.base, active.reach()).with_sparse(active.sparse),
        ),
        None => active,
    };
    let mut segments = segments;
    segments.pop();
    segments.push(Arc::clone(&active));
    let options = LogOptions {
        segment_bytes: options.segment_bytes.clamp(1, limits::SEGMENT_BYTES_MAX),
        ..options
    };
    Ok(Log {
        shared: Arc::new(Shared::new(
            dir.to_path_buf(),
            Arc::clone(files),
            segments,
            newest.reach.next,
            plan.manifest.clone(),
        )),
        options,
        active,
        headers_crc: newest.read.as_ref().map(|(_, crc)| *crc),
        last_generation: newest.last_generation,
        reserved: Some(0),
        prepared: None,
        preparing: false,
        unsynced: Vec::new(),
        unsealed: Vec::new(),
        entries_changed: 0,
        entries_synced: 0,
        mark_file: None,
    })
}

/// Writes part of a file again, as it reads. After a failed sync the kernel may hold bytes that it takes for written
/// and that never reached the medium; no sync would write them, and whatever follows them would be lost with them.
fn rewrite(file: &dyn DiskFile, from: u64, end: u64) -> std::io::Result<()> {
    let mut position = from;
    while position < end {
        let length = usize::try_from(end - position).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length.min(REWRITE_BYTES)];
        let read = read_full(file, &mut bytes, position)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        bytes.truncate(read);
        file.write_at(&[std::io::IoSlice::new(&bytes)], position)?;
        position += read as u64;
    }
    Ok(())
}

/// How much is rewritten at a time.
const REWRITE_BYTES: usize = 1024 * 1024;

impl Log {
    /// Makes durable what was only written before the crash, and writes what is derived. Nothing is to be done after
    /// an orderly close.
    fn settle(&mut self, plan: &mut Plan) -> Result<Recovered, OpenRefused> {
        let disk = Arc::clone(self.shared.files.disk());
        let lost_durable_bytes = plan.lost_durable_bytes();
        let newest = plan.segments.pop();
        let here = newest.as_ref().map(|newest| mark_of(disk.as_ref(), newest));
        // In another run of the machine nothing need be missing for something to have been lost: all that followed the
        // mark may be gone without a trace, with its offsets and its generation.
        let clean = plan.cut.is_none()
            && plan.mark.zip(here).is_some_and(|(mark, here)| {
                here.boot.is_some()
                    && Mark {
                        last_generation: here.last_generation,
                        ..mark
                    } == here
            });
        // The mark remembers a generation of which no batch is left.
        let last_generation = plan.mark.map_or(0, |mark| mark.last_generation);
        let last_generation = last_generation.max(self.last_generation);
        self.last_generation = last_generation;
        if !clean {
            self.make_durable(&plan.segments, newest.as_ref(), plan.mark)?;
            self.last_generation = last_generation.saturating_add(1);
        }
        if let Some(here) = here {
            let here = Mark {
                last_generation: self.last_generation,
                ..here
            };
            if plan.mark != Some(here) {
                self.write_mark(&here, !clean)?;
            }
        }
        for planned in plan
            .segments
            .iter_mut()
            .filter(|planned| planned.seal.is_none())
        {
            self.seal_planned(planned);
        }
        let oldest = self
            .shared
            .segments()
            .iter()
            .map(|segment| segment.max_timestamp())
            .max();
        Ok(Recovered {
            start: self.start(),
            end: self.end(),
            last_generation: Generation(last_generation),
            max_timestamp: oldest.unwrap_or(-1),
            bytes: self.bytes(),
            truncated_bytes: plan.cut.as_ref().map_or(0, |cut| cut.bytes),
            lost_durable_bytes,
            clean,
        })
    }

    /// Makes what was written and not sealed durable, and the names of the segments.
    fn make_durable(
        &self,
        segments: &[Planned],
        newest: Option<&Planned>,
        mark: Option<Mark>,
    ) -> Result<(), DiskError> {
        let disk = self.shared.files.disk().as_ref();
        let unsealed = segments.iter().filter(|planned| planned.seal.is_none());
        for planned in unsealed.chain(newest) {
            let path = self.shared.path(planned.base, Kind::Log);
            let file = disk.open(&path).doing("open", &path)?;
            if mark.is_none_or(|mark| mark.boot == disk.boot()) {
                let durable = match mark {
                    // Compaction syncs before it commits.
                    _ if planned
                        .sparse
                        .is_some_and(|sparse| sparse.bytes == planned.reach.bytes) =>
                    {
                        planned.reach.bytes
                    }
                    Some(mark) if planned.base < mark.segment => planned.reach.bytes,
                    Some(mark) if planned.base == mark.segment => mark.bytes,
                    Some(_) | None => 0,
                };
                rewrite(file.as_ref(), durable, planned.reach.bytes).doing("write", &path)?;
            }
            file.sync_data().doing("sync", &path)?;
        }
        newest.inspect(|newest| self.write_indexes(newest));
        durable::sync_later(disk, &self.shared.dir)
    }

    /// Writes the mark. It is made durable when it raises the generation, because what is appended under that one may
    /// be read before it is durable itself.
    fn write_mark(&self, mark: &Mark, is_raised: bool) -> Result<(), DiskError> {
        let disk = self.shared.files.disk();
        let path = self.shared.dir.join(names::MARK);
        let file = match disk.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return durable::replace(disk.as_ref(), &path, &mark.encode());
            }
            Err(error) => return Err(DiskError::new("open", &path, &error)),
        };
        let write = |mark: Mark| {
            file.write_at(&[std::io::IoSlice::new(&mark.encode())], 0)
                .doing("write", &path)
        };
        if is_raised {
            // Of no run of the machine, so that the log stays unclean if this cannot be made durable.
            write(Mark {
                boot: None,
                ..*mark
            })?;
            file.sync_data().doing("sync", &path)?;
        }
        write(*mark)
    }

    /// Keeps the indexes that recovery made. They can be made again, so failing is no reason not to open.
    fn write_indexes(&self, newest: &Planned) {
        let Some((index, _)) = newest
            .read
            .as_ref()
            .filter(|(index, _)| !index.points.is_empty())
        else {
            return;
        };
        let (points, moments) = index.encode();
        for (kind, bytes) in [(Kind::Index, points), (Kind::TimeIndex, moments)] {
            let path = self.shared.path(newest.base, kind);
            if let Err(error) = segment::write_derived(&self.shared, &path, &bytes) {
                tracing::warn!(%error, "index not written; it will be made again");
            }
        }
    }

    /// Seals a rolled segment that the crash left without a seal.
    fn seal_planned(&self, planned: &Planned) {
        let segments = self.shared.segments();
        let Some(segment) = segments
            .iter()
            .find(|segment| segment.base == planned.base)
            .cloned()
        else {
            return;
        };
        drop(segments);
        let job = super::chores::SealJob::of_recovered(
            Arc::clone(&self.shared),
            segment,
            planned.read.as_ref().map(|(_, crc)| *crc),
            planned.last_generation,
        );
        if let Err(error) = job.run() {
            tracing::warn!(%error, "segment not sealed; the next open will read it");
        }
    }
}

impl Recovered {
    /// What opening an empty log answers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end && self.end == Offset(0)
    }
}
