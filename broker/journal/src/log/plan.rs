//! What recovery would do, without doing it.
//!
//! What the manifest of compaction says comes first: the segments that it replaced are leftovers, and one that it
//! committed is there under the name it was written with until it has taken its place.
//!
//! The rules, in the order in which they are tried for the first place that is not a good batch:
//!
//! 1. The machine lost power since the mark was written, and the place is past the mark: what follows was never
//!    known to be durable and may have been written in any order. Cut there.
//! 2. It is in the newest segment and no good batch follows: a torn end. Cut there.
//! 3. Anything else: refuse, and name the place. So is all that compaction wrote: it was durable before it counted.

use std::path::{Path, PathBuf};

use felix_model::Offset;

use super::index::Index;
use super::listing::{Held, Listing};
use super::manifest::{Manifest, Sparse};
use super::mark::Mark;
use super::scan::{Scan, Stop, valid_after};
use super::seal::Seal;
use super::segment::{Reach, Segment};
use super::{Damage, DamageKind, Kind, OpenRefused, names};
use crate::disk::{Disk, DiskError, DiskFile, Doing};
use crate::durable;

/// What recovery found and would do.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The segments that stay, oldest first; empty when there is no log yet.
    pub(crate) segments: Vec<Planned>,
    /// The mark, if there is one that can be believed.
    pub(crate) mark: Option<Mark>,
    /// What is cut off the end.
    pub(crate) cut: Option<Cut>,
    /// Files that belong to nothing.
    pub(crate) leftovers: Vec<String>,
    /// What compaction did.
    pub(crate) manifest: Manifest,
}

impl Plan {
    /// How many durable bytes are gone: below a cut, or because the file ends between two batches and before its mark. Nothing
    /// of ours leaves it so, since the mark is lowered before anything is cut.
    pub(crate) fn lost_durable_bytes(&self) -> u64 {
        match (&self.cut, self.mark, self.segments.last()) {
            (Some(cut), _, _) => cut.durable_bytes,
            (None, Some(mark), Some(newest)) if mark.segment == newest.base => {
                mark.bytes.saturating_sub(newest.reach.bytes)
            }
            (None, _, _) => 0,
        }
    }
}

/// A segment that stays.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) base: u64,
    /// The part that compaction wrote.
    pub(crate) sparse: Option<Sparse>,
    /// The serial in the name that its file still has.
    pub(crate) swap: Option<u64>,
    /// How far it reaches after the cut.
    pub(crate) reach: Reach,
    pub(crate) last_generation: u32,
    /// Its seal, when that can be believed.
    pub(crate) seal: Option<Seal>,
    /// Its indexes and the checksum over its headers, when all of it was read.
    pub(crate) read: Option<(Index, u32)>,
}

/// A torn end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The segment, by its first offset.
    pub(crate) segment: u64,
    /// Where its good batches end.
    pub(crate) position: u64,
    /// Bytes cut, later segments included.
    pub(crate) bytes: u64,
    /// Bytes of them that had been durable.
    pub(crate) durable_bytes: u64,
    /// Later segments that go.
    pub(crate) dropped: Vec<u64>,
    /// What is wrong there.
    pub(crate) why: DamageKind,
}

/// Reads the mark of a log.
pub(crate) fn read_mark(disk: &dyn Disk, dir: &Path) -> Result<Option<Mark>, DiskError> {
    let path = dir.join(names::MARK);
    let Some(bytes) = durable::read(disk, &path)? else {
        return Ok(None);
    };
    let mark = Mark::decode(&bytes);
    if mark.is_none() {
        tracing::warn!(file = %path.display(), "durable mark is unreadable; the strict rules apply");
    }
    Ok(mark)
}

/// Reads the seal of a segment, if it fits the file.
pub(crate) fn read_seal(
    disk: &dyn Disk,
    dir: &Path,
    base: u64,
    bytes: u64,
) -> Result<Option<Seal>, DiskError> {
    let file = durable::read(disk, &names::path(dir, base, Kind::Seal))?;
    let seal = file.and_then(|file| Seal::decode(&file));
    Ok(seal.filter(|seal| seal.base == base && seal.bytes == bytes && seal.next >= base))
}

/// Says what opening the log in `dir` would do. Changes nothing.
pub(crate) fn plan(disk: &dyn Disk, dir: &Path, verify_bytes: u64) -> Result<Plan, OpenRefused> {
    let listing = Listing::read(disk, dir)?;
    if let Some(damage) = listing.bad_manifest {
        return Err(OpenRefused::Damaged(damage));
    }
    let mark = if listing.exists {
        read_mark(disk, dir)?
    } else {
        None
    };
    let planner = Planner {
        disk,
        dir,
        logs: &listing.logs,
        mark,
        verify: verified(&listing.logs, verify_bytes),
    };
    planner.all_segments_are_there()?;
    let (segments, cut) = planner.walk()?;
    Ok(Plan {
        segments,
        mark,
        cut,
        leftovers: listing.leftovers,
        manifest: listing.manifest,
    })
}

/// How many of the newest segments fit into the bytes that are to be checked.
fn verified(logs: &[Held], bytes: u64) -> usize {
    let mut left = bytes;
    logs.iter()
        .rev()
        .take_while(|held| {
            let fits = held.bytes <= left;
            left = left.saturating_sub(held.bytes);
            fits
        })
        .count()
}

struct Planner<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    logs: &'a [Held],
    mark: Option<Mark>,
    /// This many of the newest segments are read whole.
    verify: usize,
}

/// What reading a segment came to.
enum Walked {
    Whole(Planned),
    /// Good up to here, and what is wrong next.
    Broken(Planned, DamageKind),
}

impl Planner<'_> {
    /// A mark in a segment that is not there says that segments were lost.
    fn all_segments_are_there(&self) -> Result<(), OpenRefused> {
        let Some(mark) = self.mark else { return Ok(()) };
        let newest = self.logs.last().map(|held| held.base);
        let missing = match newest {
            None => mark.next > 0,
            Some(newest) => mark.segment > newest,
        };
        if !missing {
            return Ok(());
        }
        let expected = Offset(newest.unwrap_or(0));
        Err(OpenRefused::Damaged(Damage {
            file: names::path(self.dir, mark.segment, Kind::Log),
            position: 0,
            offset: expected,
            kind: DamageKind::MissingSegment {
                expected,
                found: Offset(mark.next),
            },
        }))
    }

    fn walk(&self) -> Result<(Vec<Planned>, Option<Cut>), OpenRefused> {
        let mut segments: Vec<Planned> = Vec::with_capacity(self.logs.len());
        for (at, Held { base, .. }) in self.logs.iter().enumerate() {
            match self.segment(at, segments.last())? {
                Walked::Whole(planned) => segments.push(planned),
                Walked::Broken(planned, why) => {
                    let cut = self.cut(at, &planned, why)?;
                    tracing::debug!(segment = base, position = cut.position, "log ends here");
                    segments.push(planned);
                    return Ok((segments, Some(cut)));
                }
            }
        }
        Ok((segments, None))
    }

    /// Reads as much of a segment as has to be read.
    fn segment(&self, at: usize, before: Option<&Planned>) -> Result<Walked, OpenRefused> {
        let Some(held) = self.logs.get(at).copied() else {
            return Err(self.io("read", self.dir, std::io::ErrorKind::NotFound));
        };
        let (base, length, sparse) = (held.base, held.bytes, held.sparse);
        if let Some(sparse) = sparse.filter(|sparse| sparse.bytes > length) {
            let why = format!(
                "{} bytes were compacted, of which {length} are left",
                sparse.bytes
            );
            return Err(self.damaged(base, length, base, DamageKind::Batch(why)));
        }
        let next_base = self.logs.get(at + 1).map(|held| held.base);
        let seal = read_seal(self.disk, self.dir, base, length)?;
        // A seal that is there while the file has not taken its place is that of the file before it.
        let seal = seal
            .filter(|seal| held.swap.is_none() && next_base.is_none_or(|next| next == seal.next));
        let path = held.path(self.dir);
        let file = self.disk.open_read_only(&path).doing("open", &path)?;
        let generation = before.map_or(0, |before| before.last_generation);
        let verify = at + self.verify >= self.logs.len();
        let sealed = seal.filter(|_| !verify);
        let planned = match (sealed, self.mark) {
            (Some(seal), _) => {
                let mut first = Scan::new(file.as_ref(), 0, base, length).sparse(sparse);
                match first.next() {
                    Ok(_) => {}
                    Err(Stop::Bad(kind)) => return Err(self.damaged(base, 0, base, kind)),
                    Err(Stop::Io(error)) => {
                        return Err(DiskError::new("read", &path, &error).into());
                    }
                }
                let reach = Reach {
                    bytes: length,
                    next: seal.next,
                    max_timestamp: seal.max_timestamp,
                };
                let last_generation = seal.last_generation;
                return Ok(Walked::Whole(Planned {
                    base,
                    sparse,
                    swap: held.swap,
                    reach,
                    last_generation,
                    seal: Some(seal),
                    read: None,
                }));
            }
            (None, Some(mark))
                if !verify
                    && next_base.is_none()
                    && mark.segment == base
                    && mark.bytes <= length
                    && sparse.is_none_or(|sparse| sparse.bytes <= mark.bytes) =>
            {
                Planned {
                    base,
                    sparse,
                    swap: held.swap,
                    reach: Reach {
                        bytes: mark.bytes,
                        next: mark.next,
                        max_timestamp: mark.max_timestamp,
                    },
                    last_generation: mark.last_generation,
                    seal: None,
                    read: None,
                }
            }
            _ => Planned {
                base,
                sparse,
                swap: held.swap,
                reach: Reach {
                    bytes: 0,
                    next: base,
                    max_timestamp: -1,
                },
                last_generation: generation,
                seal,
                read: Some((Index::default(), 0)),
            },
        };
        let walked = scan(file.as_ref(), planned, length)
            .map_err(|error| OpenRefused::Io(DiskError::new("read", &path, &error)))?;
        self.judge(walked, next_base)
    }

    /// A segment whose batches are good must also meet the next one, and be what was sealed.
    fn judge(&self, walked: Walked, next_base: Option<u64>) -> Result<Walked, OpenRefused> {
        let Walked::Whole(mut planned) = walked else {
            return Ok(walked);
        };
        if let (Some(seal), Some((_, crc))) = (planned.seal, planned.read.as_ref())
            && seal.headers_crc != *crc
        {
            let why = "the batch headers are not those that were sealed".to_owned();
            return Err(self.damaged(planned.base, 0, planned.base, DamageKind::Batch(why)));
        }
        if planned
            .seal
            .is_some_and(|seal| seal.max_timestamp != planned.reach.max_timestamp)
        {
            planned.seal = None;
        }
        let next = planned.reach.next;
        match next_base {
            Some(base) if base > next => {
                let kind = DamageKind::MissingSegment {
                    expected: Offset(next),
                    found: Offset(base),
                };
                Ok(Walked::Broken(planned, kind))
            }
            Some(base) if base < next => {
                let kind = DamageKind::Gap {
                    expected: Offset(next),
                    found: Offset(base),
                };
                Err(self.damaged(base, 0, next, kind))
            }
            Some(_) | None => Ok(Walked::Whole(planned)),
        }
    }

    /// Decides what to do about the first place that is not good.
    fn cut(&self, at: usize, planned: &Planned, why: DamageKind) -> Result<Cut, OpenRefused> {
        let (position, offset) = (planned.reach.bytes, planned.reach.next);
        let length = self.logs.get(at).map_or(0, |held| held.bytes);
        let later = self.logs.get(at + 1..).unwrap_or_default();
        // Compaction syncs all that lies before what it writes, and that as well.
        let compacted = planned.sparse.is_some_and(|sparse| position < sparse.bytes)
            || later.iter().any(|held| held.sparse.is_some());
        if compacted {
            return Err(self.damaged(planned.base, position, offset, why));
        }
        if !self.power_was_lost_before(planned.base, position) {
            if !later.is_empty() {
                return Err(self.damaged(planned.base, position, offset, why));
            }
            let path = names::path(self.dir, planned.base, Kind::Log);
            let file = self.disk.open_read_only(&path).doing("open", &path)?;
            let valid =
                valid_after(file.as_ref(), position, offset, length).doing("read", &path)?;
            if let Some(valid) = valid {
                let kind =
                    DamageKind::Batch(format!("{why}; a good batch follows at byte {valid}"));
                return Err(self.damaged(planned.base, position, offset, kind));
            }
        }
        let durable = self
            .mark
            .filter(|mark| mark.segment == planned.base)
            .map_or(0, |mark| mark.bytes);
        Ok(Cut {
            segment: planned.base,
            position,
            bytes: length - position + later.iter().map(|held| held.bytes).sum::<u64>(),
            durable_bytes: durable.saturating_sub(position),
            dropped: later.iter().map(|held| held.base).collect(),
            why,
        })
    }

    /// Whether a place may hold anything, because the machine stopped before it was made durable. Without a mark,
    /// or in the same run of the machine, everything that was written is still there, in order.
    fn power_was_lost_before(&self, segment: u64, position: u64) -> bool {
        let Some(mark) = self.mark else { return false };
        let same_run = mark.boot.is_some() && mark.boot == self.disk.boot();
        !same_run && (segment, position) >= (mark.segment, mark.bytes)
    }

    fn damaged(&self, segment: u64, position: u64, offset: u64, kind: DamageKind) -> OpenRefused {
        let file: PathBuf = names::path(self.dir, segment, Kind::Log);
        OpenRefused::Damaged(Damage {
            file,
            position,
            offset: Offset(offset),
            kind,
        })
    }

    fn io(&self, verb: &'static str, path: &Path, kind: std::io::ErrorKind) -> OpenRefused {
        debug_assert!(path.starts_with(self.dir));
        OpenRefused::Io(DiskError::new(verb, path, &kind.into()))
    }
}

/// Reads a segment from where `planned` ends.
fn scan(file: &dyn DiskFile, mut planned: Planned, length: u64) -> std::io::Result<Walked> {
    let Reach { bytes, next, .. } = planned.reach;
    let mut scan = Scan::new(file, bytes, next, length).sparse(planned.sparse);
    let shape = Segment::new(0, planned.base, planned.reach);
    loop {
        match scan.next() {
            Ok(Some(found)) => {
                planned.reach = Reach {
                    bytes: scan.position,
                    next: scan.expected,
                    max_timestamp: planned.reach.max_timestamp.max(found.header.max_timestamp),
                };
                planned.last_generation = u32::try_from(found.header.leader_epoch).unwrap_or(0);
                if let Some((index, crc)) = planned.read.as_mut() {
                    index.note(shape.placed(&found));
                    *crc = scan.headers_crc;
                }
            }
            Ok(None) => {
                planned.reach.next = scan.expected;
                return Ok(Walked::Whole(planned));
            }
            Err(Stop::Bad(why)) => return Ok(Walked::Broken(planned, why)),
            Err(Stop::Io(error)) => return Err(error),
        }
    }
}
