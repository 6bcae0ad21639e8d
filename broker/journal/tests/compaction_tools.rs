//! What retention, copies, inspections and repairs make of a compacted log.

mod common;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use common::keyed::{compact, filled};
use common::{dir, open, segments, small};
use felix_journal::{
    Disk, Log, RetentionPolicy, SimDisk, TruncateRefused, Verdict, backup, inspect, repair,
};
use felix_model::{Offset, TimeMs};

#[test]
fn a_hole_in_a_segment_that_was_not_compacted_is_damage() {
    let disk = SimDisk::new(1);
    let (mut log, written) = filled(&disk, 9);
    compact(&mut log);
    assert!(written.check(&log.reader(), "before").len() < 300);
    log.close().unwrap();
    disk.unlink(&dir().join("compacted.manifest")).unwrap();
    let report = inspect(&disk, &dir()).unwrap();
    assert_eq!(report.verdict, Verdict::WouldRefuse);
    let refused = Log::open(Arc::new(disk), &dir(), small()).unwrap_err();
    assert!(refused.to_string().contains("is damaged"), "{refused}");
}

#[test]
fn a_manifest_that_cannot_be_read_is_refused_by_name() {
    let disk = SimDisk::new(1);
    let (mut log, _) = filled(&disk, 9);
    compact(&mut log);
    log.close().unwrap();
    let manifest = dir().join("compacted.manifest");
    disk.flip(&manifest, 30, 2).unwrap();
    let refused = Log::open(Arc::new(disk.clone()), &dir(), small()).unwrap_err();
    assert!(
        refused.to_string().contains("compacted.manifest"),
        "{refused}"
    );
    let report = inspect(&disk, &dir()).unwrap();
    assert_eq!(report.verdict, Verdict::WouldRefuse);
}

#[test]
fn what_compaction_wrote_is_never_taken_for_a_torn_end() {
    let disk = SimDisk::new(1);
    let (mut log, _) = filled(&disk, 9);
    log.close_segment().unwrap();
    compact(&mut log);
    drop(log);
    disk.power_cut(1);
    let first = segments(&disk, &dir()).remove(0);
    let length = disk.contents(&first).unwrap().len() as u64;
    for cut in [1, length / 2, length - 1] {
        let disk = disk.fork();
        disk.open(&first).unwrap().set_len(cut).unwrap();
        let refused = Log::open(Arc::new(disk.clone()), &dir(), small()).unwrap_err();
        assert!(refused.to_string().contains("were compacted"), "{refused}");
    }
    for byte in [0, 30, length - 1] {
        let disk = disk.fork();
        disk.flip(&first, byte, 1).unwrap();
        let refused = Log::open(Arc::new(disk.clone()), &dir(), small()).unwrap_err();
        assert!(refused.to_string().contains("is damaged"), "{refused}");
    }
}

#[test]
fn indexes_of_compacted_segments_can_be_lost_or_wrong_without_harm() {
    let disk = SimDisk::new(1);
    let (mut log, written) = filled(&disk, 9);
    compact(&mut log);
    let left = written.left(log.reader().cleaned_to().0);
    log.close().unwrap();
    let endings = ["index", "timeindex", "seal"];
    let files: Vec<PathBuf> = disk
        .list(&dir())
        .unwrap()
        .into_iter()
        .filter(|entry| endings.iter().any(|ending| entry.name.ends_with(ending)))
        .map(|entry| dir().join(entry.name))
        .collect();
    assert!(files.len() > 3);
    for file in &files {
        let lost = disk.fork();
        lost.unlink(file).unwrap();
        let (log, _) = open(&lost, small());
        assert_eq!(written.check(&log.reader(), "lost"), left);
        let wrong = disk.fork();
        if wrong.flip(file, 9, 0).is_ok() {
            let (log, _) = open(&wrong, small());
            assert_eq!(written.check(&log.reader(), "wrong"), left);
        }
    }
}

#[test]
fn retention_forgets_compacted_segments_and_the_log_opens_without_them() {
    let disk = SimDisk::new(1);
    let (mut log, written) = filled(&disk, 60);
    compact(&mut log);
    let left = written.left(log.reader().cleaned_to().0);
    let policy = RetentionPolicy {
        max_bytes: Some(log.bytes() / 2),
        max_age_ms: None,
    };
    let start = log.retain(policy, TimeMs(0), log.durable_end()).unwrap();
    assert!(start > Offset(0));
    let wanted: BTreeSet<u64> = left.range(start.0..).copied().collect();
    assert_eq!(written.check(&log.reader(), "retained"), wanted);
    compact(&mut log);
    log.close().unwrap();
    let (log, _) = open(&disk, small());
    assert_eq!(log.start(), start);
    assert_eq!(written.check(&log.reader(), "opened"), wanted);
}

#[test]
fn what_was_compacted_is_not_cut() {
    let disk = SimDisk::new(1);
    let (mut log, mut written) = filled(&disk, 9);
    compact(&mut log);
    let below = log.reader().cleaned_to().0;
    let next = Offset(below);
    for end in [0, 1, below - 1] {
        let refused = log.truncate_to(Offset(end)).unwrap_err();
        assert_eq!(refused, TruncateRefused::Compacted { next });
    }
    log.truncate_to(next).unwrap();
    assert_eq!(log.end(), next);
    written.0.split_off(&below);
    log.append(&[written.batch(below, 2, 9)]).unwrap();
    let mut wanted = written.left(below);
    wanted.extend([below, below + 1]);
    assert_eq!(written.check(&log.reader(), "cut"), wanted);
}

#[test]
fn a_copy_up_to_any_offset_holds_what_is_left_below_it_and_restores() {
    let disk = SimDisk::new(1);
    let (mut log, written) = filled(&disk, 9);
    compact(&mut log);
    let left = written.left(log.reader().cleaned_to().0);
    for until in (0..=log.end().0).step_by(7).chain([log.end().0]) {
        let copy = PathBuf::from(format!("/copy-{until}"));
        let copied = backup::copy(&log.reader(), &disk, &copy, Offset(until)).unwrap();
        assert!(copied.end.0 <= until);
        if until == log.end().0 {
            assert_eq!(copied.end, log.end());
        }
        let report = inspect(&disk, &copy).unwrap();
        assert_eq!(report.verdict, Verdict::Clean, "{until}: {report}");
        let back = PathBuf::from(format!("/back-{until}"));
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        backup::restore(&shared, &copy, &back, Offset(u64::MAX)).unwrap();
        let (mut restored, _) = Log::open(Arc::new(disk.clone()), &back, small()).unwrap();
        assert_eq!(restored.end(), copied.end);
        let wanted: BTreeSet<u64> = left.range(..copied.end.0).copied().collect();
        assert_eq!(written.check(&restored.reader(), "restored"), wanted);
        let mut more = written.clone();
        let end = restored.end().0;
        restored.append(&[more.batch(end, 1, 9)]).unwrap();
        restored.close().unwrap();
    }
}

#[test]
fn a_damaged_compacted_segment_is_cut_where_it_was_named_and_goes_on_there() {
    let disk = SimDisk::new(1);
    let (mut log, written) = filled(&disk, 40);
    compact(&mut log);
    let left = written.left(log.reader().cleaned_to().0);
    log.close().unwrap();
    let first = segments(&disk, &dir()).remove(0);
    let length = disk.contents(&first).unwrap().len() as u64;
    disk.flip(&first, length * 2 / 3, 1).unwrap();
    let place = inspect(&disk, &dir()).unwrap().place.unwrap();
    let repaired = repair::cut(&disk, &dir(), place.segment, place.position).unwrap();
    let (mut log, _) = open(&disk, small());
    assert_eq!(log.end(), repaired.end);
    let wanted: BTreeSet<u64> = left.range(..repaired.end.0).copied().collect();
    assert!(!wanted.is_empty());
    assert_eq!(written.check(&log.reader(), "cut"), wanted);
    // The same segment takes appends, and is compacted again in its turn.
    let mut again = written;
    again.0.split_off(&repaired.end.0);
    for _ in 0..40 {
        let end = log.end().0;
        log.append(&[again.batch(end, 3, 4)]).unwrap();
    }
    log.close().unwrap();
    let (mut log, _) = open(&disk, small());
    compact(&mut log);
    let mut expected = again.left(log.reader().cleaned_to().0);
    expected.retain(|offset| *offset >= repaired.end.0 || wanted.contains(offset));
    assert_eq!(again.check(&log.reader(), "again"), expected);
}

#[test]
fn an_inspection_says_which_segments_were_compacted() {
    let disk = SimDisk::new(1);
    let (mut log, _) = filled(&disk, 9);
    compact(&mut log);
    let (cleaned_to, end) = (log.reader().cleaned_to(), log.end());
    log.close().unwrap();
    let report = inspect(&disk, &dir()).unwrap();
    assert_eq!(report.verdict, Verdict::Clean);
    assert_eq!((report.cleaned_to, report.end), (cleaned_to, end));
    let compacted = report.segments.iter().filter(|segment| segment.compacted);
    assert!(compacted.count() > 0);
    assert!(!report.segments.last().unwrap().compacted);
    assert!(report.to_string().contains(".log compacted"));
}
