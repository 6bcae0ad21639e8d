//! File names of a log.
//!
//! ```text
//! 00000000000000000000.log         record batches, back to back; named by the first offset
//! 00000000000000000000.index       offset -> position, sparse (derived)
//! 00000000000000000000.timeindex   time -> offset, running maxima (derived)
//! 00000000000000000000.seal        what the finished segment holds (derived)
//! durable.mark                     how far the log is known to have been synced
//! next.log                         an empty segment prepared for the next roll
//! compacted.manifest               which segments compaction wrote
//! 00000000000000000000.7.cleaned   a segment that compaction writes, or has written and not yet put into its place
//! ```

use std::path::{Path, PathBuf};

/// Kinds of files that belong to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The records.
    Log,
    /// The offset index.
    Index,
    /// The time index.
    TimeIndex,
    /// The seal.
    Seal,
}

/// Name of the durable mark.
pub(crate) const MARK: &str = "durable.mark";

/// Name of a prepared segment.
pub(crate) const NEXT: &str = "next.log";

/// Name of the manifest of compaction.
pub(crate) const MANIFEST: &str = "compacted.manifest";

/// Path of a segment that compaction writes, before it takes its place. No two have the same serial.
pub(crate) fn cleaned(dir: &Path, base: u64, serial: u64) -> PathBuf {
    dir.join(format!("{base:020}.{serial}.cleaned"))
}

/// What the name of such a file says: base and serial.
pub(crate) fn parse_cleaned(name: &str) -> Option<(u64, u64)> {
    let (digits, rest) = name.split_once('.')?;
    let (base, _) = parse(&format!("{digits}.log"))?;
    let serial = rest.strip_suffix(".cleaned")?.parse().ok()?;
    Some((base, serial))
}

/// All that is derived from a segment and goes with it.
pub(crate) const DERIVED: [Kind; 3] = [Kind::Seal, Kind::TimeIndex, Kind::Index];

/// Path of one of a segment's files.
pub(crate) fn path(dir: &Path, base: u64, kind: Kind) -> PathBuf {
    let ending = match kind {
        Kind::Log => "log",
        Kind::Index => "index",
        Kind::TimeIndex => "timeindex",
        Kind::Seal => "seal",
    };
    dir.join(format!("{base:020}.{ending}"))
}

/// What a file name says, if it names a segment's file.
pub(crate) fn parse(name: &str) -> Option<(u64, Kind)> {
    let (digits, ending) = name.split_once('.')?;
    if digits.len() != 20 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let base = digits
        .parse()
        .ok()
        .filter(|base| i64::try_from(*base).is_ok())?;
    let kind = match ending {
        "log" => Kind::Log,
        "index" => Kind::Index,
        "timeindex" => Kind::TimeIndex,
        "seal" => Kind::Seal,
        _ => return None,
    };
    Some((base, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_twenty_digits_and_a_known_ending_name_a_segment() {
        assert_eq!(parse("00000000000000000042.log"), Some((42, Kind::Log)));
        assert_eq!(
            parse("00000000000000000042.timeindex"),
            Some((42, Kind::TimeIndex))
        );
        for name in [
            "42.log",
            "next.log",
            "0000000000000000004x.log",
            "00000000000000000042.log.tmp",
            "99999999999999999999.log",
        ] {
            assert_eq!(parse(name), None, "{name}");
        }
        let cleaned = cleaned(Path::new("/d"), 42, 7);
        assert_eq!(cleaned, Path::new("/d/00000000000000000042.7.cleaned"));
        let name = "00000000000000000042.7.cleaned";
        assert_eq!((parse(name), parse_cleaned(name)), (None, Some((42, 7))));
        assert_eq!(
            path(Path::new("/d"), 7, Kind::Seal),
            Path::new("/d/00000000000000000007.seal")
        );
    }
}
