//! File names of a log.
//!
//! ```text
//! 00000000000000000000.log         record batches, back to back; named by the first offset
//! 00000000000000000000.index       offset -> position, sparse (derived)
//! 00000000000000000000.timeindex   time -> offset, running maxima (derived)
//! 00000000000000000000.seal        what the finished segment holds (derived)
//! durable.mark                     how far the log is known to have been synced
//! next.log                         an empty segment prepared for the next roll
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
        assert_eq!(
            path(Path::new("/d"), 7, Kind::Seal),
            Path::new("/d/00000000000000000007.seal")
        );
    }
}
