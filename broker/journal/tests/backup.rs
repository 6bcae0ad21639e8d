//! Copies of a live log, and bringing them back.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{batch, dir, expected, open, segments, small, values};
use felix_journal::backup::{self, Copied, CopyRefused};
use felix_journal::inspect::{Verdict, inspect};
use felix_journal::{Disk, Log, RetentionPolicy, SimDisk};
use felix_model::{Offset, TimeMs};

fn filled() -> (SimDisk, Log) {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk, small());
    for base in (0..90).step_by(3) {
        log.append(&[batch(base, 3)]).unwrap();
    }
    log.sync().unwrap();
    (disk, log)
}

#[test]
fn a_copy_is_a_prefix_that_ends_at_a_batch_boundary_and_opens_as_a_log() {
    let (disk, mut log) = filled();
    log.append(&[batch(90, 3)]).unwrap();
    for (until, end) in [(u64::MAX, 90), (90, 90), (89, 87), (40, 39), (3, 3), (2, 0)] {
        let to = Path::new("/backup").join(until.to_string());
        let copied = backup::copy(&log.reader(), &disk, &to, Offset(until)).unwrap();
        assert_eq!(
            (copied.start, copied.end),
            (Offset(0), Offset(end)),
            "until {until}"
        );
        assert_eq!(inspect(&disk, &to).unwrap().verdict, Verdict::Clean);
        let (copy, recovered) = Log::open(Arc::new(disk.clone()), &to, small()).unwrap();
        assert_eq!(
            (recovered.end, recovered.bytes),
            (Offset(end), copied.bytes)
        );
        assert_eq!(values(&copy.reader(), Offset(0)), expected(0..end));
    }
}

#[test]
fn a_copy_keeps_the_start_and_end_of_a_log_that_has_forgotten_everything() {
    let (disk, mut log) = filled();
    let policy = RetentionPolicy {
        max_bytes: None,
        max_age_ms: Some(1),
    };
    assert_eq!(
        log.retain(policy, TimeMs(1 << 50), Offset(90)).unwrap(),
        Offset(90)
    );
    let to = Path::new("/backup");
    let copied = backup::copy(&log.reader(), &disk, to, Offset(90)).unwrap();
    assert_eq!(
        copied,
        Copied {
            start: Offset(90),
            end: Offset(90),
            bytes: 0
        }
    );
    let (copy, _) = Log::open(Arc::new(disk), to, small()).unwrap();
    assert_eq!((copy.start(), copy.end()), (Offset(90), Offset(90)));
}

#[test]
fn a_restored_log_goes_on_where_its_copy_ends() {
    let (disk, log) = filled();
    backup::copy(&log.reader(), &disk, Path::new("/backup"), Offset(60)).unwrap();
    drop(log);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let to = Path::new("/restored/log");
    let restored = backup::restore(&shared, Path::new("/backup"), to, Offset(u64::MAX)).unwrap();
    assert_eq!((restored.start, restored.end), (Offset(0), Offset(60)));
    disk.power_cut(3);
    let (mut log, recovered) = Log::open(Arc::new(disk), to, small()).unwrap();
    assert_eq!(recovered.end, Offset(60));
    log.append(&[batch(60, 3)]).unwrap();
    assert_eq!(values(&log.reader(), Offset(0)), expected(0..63));
}

#[test]
fn a_damaged_log_is_not_copied_and_a_used_place_is_not_overwritten() {
    let (disk, log) = filled();
    let used = backup::copy(&log.reader(), &disk, &dir(), Offset(60)).unwrap_err();
    assert_eq!(used, CopyRefused::NotEmpty(dir()));
    disk.flip(&segments(&disk, &dir())[1], 100, 1).unwrap();
    let damaged = backup::copy(&log.reader(), &disk, Path::new("/backup"), Offset(60)).unwrap_err();
    assert!(matches!(damaged, CopyRefused::Damaged(_)), "{damaged}");
    let shared: Arc<dyn Disk> = Arc::new(disk);
    let damaged =
        backup::restore(&shared, &dir(), Path::new("/elsewhere"), Offset(60)).unwrap_err();
    assert!(matches!(damaged, CopyRefused::Damaged(_)), "{damaged}");
    let missing =
        backup::restore(&shared, Path::new("/nowhere"), Path::new("/x"), Offset(1)).unwrap_err();
    assert!(matches!(missing, CopyRefused::NoLog(_)), "{missing}");
}
