//! A look at a log that changes nothing: every byte is read, and what an open would do is said.

use std::fmt;
use std::io;
use std::path::Path;

use felix_model::Offset;
use serde::Serialize;

use crate::disk::{Disk, DiskError, Doing};
use crate::durable;
use crate::log::{
    Cut, Damage, DamageKind, Held, Index, Kind, Listing, OpenRefused, Scan, Stop, plan, read_mark,
    read_seal, segment_path, valid_after,
};

/// What an open of the log would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It would open, and change nothing but what is derived.
    Clean,
    /// It would cut off a torn end or remove leftovers, and open.
    WouldRepair,
    /// It would refuse.
    WouldRefuse,
}

impl Verdict {
    /// What a command that inspects exits with: 0 clean, 6 would repair, 7 would refuse.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Clean => 0,
            Self::WouldRepair => 6,
            Self::WouldRefuse => 7,
        }
    }
}

/// What was found in a log directory. The JSON field names are a stable contract.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// The directory.
    pub dir: String,
    /// What an open would do.
    pub verdict: Verdict,
    /// Why, when it is not clean.
    pub reason: Option<String>,
    /// Where an open would cut or refuse.
    pub place: Option<Place>,
    /// Oldest offset.
    pub start: Offset,
    /// One past the newest offset of a good batch before the first bad one (exclusive).
    pub end: Offset,
    /// How far the log is known to have been synced (exclusive); none without a readable mark.
    pub durable_end: Option<Offset>,
    /// Below it (exclusive) compaction has collapsed the history.
    pub cleaned_to: Offset,
    /// Below it (exclusive) deletions may be gone.
    pub tombstone_floor: Offset,
    /// Good batches.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of all segments.
    pub bytes: u64,
    /// Files that an interrupted change left behind.
    pub leftovers: Vec<String>,
    /// Oldest first.
    pub segments: Vec<SegmentReport>,
}

/// A byte of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The file.
    pub file: String,
    /// The segment, by its first offset: what `repair` wants.
    pub segment: Offset,
    /// The byte at which the bad batch begins: what `repair` wants.
    pub position: u64,
    /// The offset that belongs there.
    pub offset: Offset,
}

/// One segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SegmentReport {
    /// File name.
    pub file: String,
    /// Whether compaction wrote it, so that offsets may be missing.
    pub compacted: bool,
    /// First offset.
    pub base: Offset,
    /// One past the offset of its last good batch (exclusive).
    pub next: Offset,
    /// Length in bytes.
    pub bytes: u64,
    /// Good batches from the start on.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Largest record time in unix ms, or -1.
    pub max_timestamp: i64,
    /// Generation of the last good batch.
    pub last_generation: u32,
    /// Whether every batch passed its checksum and follows the one before it.
    pub valid: bool,
    /// The first place that did not.
    pub bad: Option<BadPlace>,
    /// What the files derived from it are worth.
    pub index: Derived,
    /// The same of its seal.
    pub seal: Derived,
}

/// The first place of a segment that is not a good batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadPlace {
    /// Where it begins.
    pub position: u64,
    /// What is wrong there.
    pub why: String,
    /// Where the next good batch begins, if there is one.
    pub valid_after: Option<u64>,
}

/// State of a file that can be made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Derived {
    /// There is none; the newest segment needs none.
    Missing,
    /// It agrees with the segment.
    Good,
    /// It does not, and would not be used.
    Wrong,
}

/// Reads a whole log and says what an open would do. Nothing is changed; a log in use may look torn at its end.
///
/// # Errors
/// The disk's, `NotFound` for a missing directory among them.
pub fn inspect(disk: &dyn Disk, dir: &Path) -> Result<Inspection, DiskError> {
    let listing = Listing::read(disk, dir)?;
    if !listing.exists {
        return Err(DiskError::new(
            "inspect",
            dir,
            &io::ErrorKind::NotFound.into(),
        ));
    }
    let newest = listing.logs.last().map(|held| held.base);
    let mut segments = Vec::with_capacity(listing.logs.len());
    let mut leftovers = listing.leftovers;
    for held in &listing.logs {
        segments.push(segment(disk, dir, held, newest == Some(held.base))?);
        // It would be given its place.
        leftovers.extend(held.swap.and_then(|_| file_name(&held.path(dir))));
    }
    let mark = read_mark(disk, dir)?;
    let mut inspection = Inspection {
        dir: dir.display().to_string(),
        verdict: Verdict::Clean,
        reason: None,
        place: None,
        start: segments
            .first()
            .map_or(Offset::ZERO, |segment| segment.base),
        end: end(&segments),
        durable_end: mark.map(|mark| Offset(mark.next)),
        batches: segments.iter().map(|segment| segment.batches).sum(),
        records: segments.iter().map(|segment| segment.records).sum(),
        bytes: segments.iter().map(|segment| segment.bytes).sum(),
        cleaned_to: Offset(listing.manifest.cleaned_to),
        tombstone_floor: Offset(listing.manifest.tombstone_floor),
        leftovers,
        segments,
    };
    match plan(disk, dir, u64::MAX) {
        Ok(plan) => inspection.judge(dir, plan.cut),
        Err(OpenRefused::Damaged(damage)) => inspection.refuse(&damage),
        Err(OpenRefused::Io(error)) => return Err(error),
        Err(OpenRefused::InUse { dir }) => {
            return Err(DiskError::new(
                "open",
                &dir,
                &io::ErrorKind::ResourceBusy.into(),
            ));
        }
    }
    Ok(inspection)
}

/// Where the good batches end.
fn end(segments: &[SegmentReport]) -> Offset {
    let mut end = segments
        .first()
        .map_or(Offset::ZERO, |segment| segment.base);
    for segment in segments {
        if segment.base != end {
            break;
        }
        end = segment.next;
        if !segment.valid {
            break;
        }
    }
    end
}

impl Inspection {
    fn judge(&mut self, dir: &Path, cut: Option<Cut>) {
        if let Some(cut) = cut {
            self.verdict = Verdict::WouldRepair;
            self.reason = Some(format!(
                "a torn end of {} bytes would be cut off: {}",
                cut.bytes, cut.why
            ));
            self.place = Some(Place {
                file: segment_path(dir, cut.segment, Kind::Log)
                    .display()
                    .to_string(),
                segment: Offset(cut.segment),
                position: cut.position,
                offset: self.end,
            });
        } else if !self.leftovers.is_empty() {
            self.verdict = Verdict::WouldRepair;
            self.reason = Some(format!(
                "{} leftover files would be removed or put into their place",
                self.leftovers.len()
            ));
        }
    }

    fn refuse(&mut self, damage: &Damage) {
        self.verdict = Verdict::WouldRefuse;
        self.reason = Some(damage.to_string());
        let segment = self
            .segments
            .iter()
            .rev()
            .find(|segment| damage.file.ends_with(&segment.file));
        self.place = Some(Place {
            file: damage.file.display().to_string(),
            segment: segment.map_or(damage.offset, |segment| segment.base),
            position: damage.position,
            offset: damage.offset,
        });
    }

    /// The report as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Strings, numbers and lists always have a JSON form.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

impl fmt::Display for Inspection {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(to, "{}", self.dir)?;
        let verdict = match self.verdict {
            Verdict::Clean => "clean",
            Verdict::WouldRepair => "would repair",
            Verdict::WouldRefuse => "would refuse",
        };
        writeln!(
            to,
            "  {verdict}{}",
            self.reason
                .as_ref()
                .map(|why| format!(": {why}"))
                .unwrap_or_default()
        )?;
        writeln!(
            to,
            "  offsets {}..{}  {} batches  {} records  {} bytes  durable to {}",
            self.start,
            self.end,
            self.batches,
            self.records,
            self.bytes,
            self.durable_end
                .map_or_else(|| "unknown".to_owned(), |end| end.to_string()),
        )?;
        for leftover in &self.leftovers {
            writeln!(to, "  leftover {leftover}")?;
        }
        for segment in &self.segments {
            write!(
                to,
                "  {}{}  {}..{}  {} batches  {} records  {} bytes  index {}  seal {}",
                segment.file,
                if segment.compacted { " compacted" } else { "" },
                segment.base,
                segment.next,
                segment.batches,
                segment.records,
                segment.bytes,
                segment.index,
                segment.seal,
            )?;
            match &segment.bad {
                None => writeln!(to, "  checksums good")?,
                Some(bad) => {
                    write!(to, "  BAD at byte {}: {}", bad.position, bad.why)?;
                    match bad.valid_after {
                        Some(at) => writeln!(to, "; a good batch follows at byte {at}")?,
                        None => writeln!(to, "; nothing good follows")?,
                    }
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Derived {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Missing => "missing",
            Self::Good => "good",
            Self::Wrong => "wrong",
        })
    }
}

fn segment(
    disk: &dyn Disk,
    dir: &Path,
    held: &Held,
    newest: bool,
) -> Result<SegmentReport, DiskError> {
    let (base, bytes) = (held.base, held.bytes);
    let path = held.path(dir);
    let file = disk.open_read_only(&path).doing("open", &path)?;
    let mut report = SegmentReport {
        file: file_name(&path).unwrap_or_default(),
        compacted: held.sparse.is_some(),
        base: Offset(base),
        next: Offset(base),
        bytes,
        batches: 0,
        records: 0,
        max_timestamp: -1,
        last_generation: 0,
        valid: true,
        bad: None,
        index: Derived::Missing,
        seal: Derived::Missing,
    };
    let mut batches = std::collections::BTreeMap::new();
    let mut scan = Scan::new(file.as_ref(), 0, base, bytes).sparse(held.sparse);
    let bad: Option<DamageKind> = loop {
        match scan.next() {
            Ok(Some(found)) => {
                report.batches += 1;
                report.records += u64::try_from(found.header.record_count).unwrap_or(0);
                report.max_timestamp = report.max_timestamp.max(found.header.max_timestamp);
                report.last_generation = u32::try_from(found.header.leader_epoch).unwrap_or(0);
                report.next = Offset(scan.expected);
                batches.insert(found.position, found.next() - 1 - base);
            }
            Ok(None) => {
                report.next = Offset(scan.expected);
                break None;
            }
            Err(Stop::Bad(kind)) => break Some(kind),
            Err(Stop::Io(error)) => return Err(DiskError::new("read", &path, &error)),
        }
    };
    if let Some(kind) = bad {
        let valid_after =
            valid_after(file.as_ref(), scan.position, scan.expected, bytes).doing("read", &path)?;
        report.valid = false;
        report.bad = Some(BadPlace {
            position: scan.position,
            why: kind.to_string(),
            valid_after,
        });
    }
    report.index = index(disk, dir, base, bytes, &batches)?;
    report.seal = seal(disk, dir, base, bytes, newest, &report, scan.headers_crc)?;
    Ok(report)
}

fn file_name(path: &Path) -> Option<String> {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
}

/// Holds each entry of the offset index against the batches.
fn index(
    disk: &dyn Disk,
    dir: &Path,
    base: u64,
    bytes: u64,
    batches: &std::collections::BTreeMap<u64, u64>,
) -> Result<Derived, DiskError> {
    let points = durable::read(disk, &segment_path(dir, base, Kind::Index))?;
    let moments = durable::read(disk, &segment_path(dir, base, Kind::TimeIndex))?;
    let (Some(points), Some(moments)) = (points, moments) else {
        return Ok(Derived::Missing);
    };
    let Some(index) = Index::decode(&points, &moments, bytes) else {
        return Ok(Derived::Wrong);
    };
    let good = index
        .points
        .iter()
        .all(|point| batches.get(&u64::from(point.position)) == Some(&u64::from(point.last)));
    Ok(if good { Derived::Good } else { Derived::Wrong })
}

fn seal(
    disk: &dyn Disk,
    dir: &Path,
    base: u64,
    bytes: u64,
    newest: bool,
    report: &SegmentReport,
    headers_crc: u32,
) -> Result<Derived, DiskError> {
    let Some(_) = durable::read(disk, &segment_path(dir, base, Kind::Seal))? else {
        return Ok(Derived::Missing);
    };
    let Some(seal) = read_seal(disk, dir, base, bytes)? else {
        return Ok(Derived::Wrong);
    };
    let fits = seal.next == report.next.0
        && seal.max_timestamp == report.max_timestamp
        && seal.headers_crc == headers_crc
        && report.valid
        && !newest;
    Ok(if fits { Derived::Good } else { Derived::Wrong })
}

/// Looks at every log of a data directory; see [`inspect`].
///
/// # Errors
/// The disk's.
pub fn inspect_all(disk: &dyn Disk, root: &Path) -> Result<Vec<Inspection>, DiskError> {
    let logs = crate::data_dir::logs(disk, root)?;
    let lanes = crate::data_dir::lanes(disk, root)?;
    let caches = crate::data_dir::cache_logs(disk, root)?;
    let places = logs.into_iter().chain(lanes).map(|place| place.dir);
    places
        .chain(caches.into_iter().map(|place| place.dir))
        .map(|dir| inspect(disk, &dir))
        .collect()
}
