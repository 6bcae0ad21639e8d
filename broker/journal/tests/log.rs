//! A log that nothing bad happens to.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::sync::Arc;

use common::{Dice, batch, batch_at, dir, expected, open, segments, small, values};
use felix_journal::disk::CallKind;
use felix_journal::{
    AppendFailed, Disk, Log, LogOptions, OpenFiles, ReadRefused, RealDisk, RetentionPolicy,
    SimDisk, TimePoint, TruncateRefused,
};
use felix_model::{Generation, Offset, TimeMs};

/// Appends single-record batches for these offsets.
fn fill(log: &mut Log, offsets: std::ops::Range<u64>) {
    for offset in offsets {
        log.append(&[batch(offset, 1)]).unwrap();
    }
}

#[test]
fn a_new_log_begins_at_offset_zero_and_is_empty() {
    let (log, recovered) = open(&SimDisk::new(1), LogOptions::default());
    assert_eq!(
        (log.start(), log.end(), log.bytes()),
        (Offset(0), Offset(0), 0)
    );
    assert_eq!(
        (recovered.last_generation, recovered.max_timestamp),
        (Generation(0), -1)
    );
    assert!(recovered.is_empty());
}

#[test]
fn what_was_appended_is_read_back_from_any_offset() {
    let (mut log, _) = open(&SimDisk::new(1), LogOptions::default());
    log.append(&[batch(0, 3), batch(3, 1), batch(4, 6)])
        .unwrap();
    for from in 0..=10 {
        assert_eq!(
            values(&log.reader(), Offset(from)),
            expected(from..10),
            "from {from}"
        );
    }
    let refused = log.reader().read(Offset(11), 100, Offset(20)).unwrap_err();
    assert_eq!(refused, ReadRefused::PastEnd { end: Offset(10) });
}

#[test]
fn a_page_holds_whole_batches_and_never_one_that_ends_past_until() {
    let (mut log, _) = open(&SimDisk::new(1), LogOptions::default());
    log.append(&[batch(0, 3), batch(3, 3), batch(6, 3)])
        .unwrap();
    let reader = log.reader();
    assert_eq!(
        reader.read(Offset(1), 1 << 20, Offset(6)).unwrap().batches,
        [batch(0, 3), batch(3, 3)]
    );
    assert_eq!(
        reader.read(Offset(1), 1 << 20, Offset(5)).unwrap().batches,
        [batch(0, 3)]
    );
    assert_eq!(
        reader.read(Offset(4), 1, Offset(9)).unwrap().batches,
        [batch(3, 3)]
    );
    assert!(
        reader
            .read(Offset(4), 1, Offset(4))
            .unwrap()
            .batches
            .is_empty()
    );
}

#[test]
fn a_group_is_one_write() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk, LogOptions::default());
    log.append(&[batch(0, 1)]).unwrap();
    let before = disk.calls();
    log.append(&(1..50).map(|offset| batch(offset, 1)).collect::<Vec<_>>())
        .unwrap();
    assert_eq!(disk.calls() - before, 1);
}

#[test]
fn batches_that_do_not_continue_the_log_are_refused_and_change_nothing() {
    let (mut log, _) = open(&SimDisk::new(1), LogOptions::default());
    log.append(&[batch(0, 2)]).unwrap();
    let refused = log.append(&[batch(2, 1), batch(4, 1)]).unwrap_err();
    assert_eq!(
        refused,
        AppendFailed::NotContiguous {
            expected: Offset(3),
            found: Offset(4)
        }
    );
    assert!(matches!(
        log.append(&[batch(2, 1).slice(..70)]),
        Err(AppendFailed::Malformed(_))
    ));
    assert_eq!(log.end(), Offset(2));
}

/// B19: a reader that starts at 0 reads through every roll.
#[test]
fn rollover_is_invisible_to_readers() {
    let disk = SimDisk::new(1);
    let options = LogOptions {
        segment_bytes: 64 * 1024,
        ..LogOptions::default()
    };
    let (mut log, _) = open(&disk, options);
    let mut next = 0;
    while log.bytes() < 1024 * 1024 {
        log.append(&[batch_at(next, 4, 0, 1000)]).unwrap();
        next += 4;
    }
    assert!(segments(&disk, &dir()).len() > 15);
    assert_eq!(values(&log.reader(), Offset(0)), expected(0..next));
    log.close().unwrap();
    let (log, recovered) = open(&disk, options);
    assert!(recovered.clean);
    assert_eq!(values(&log.reader(), Offset(0)), expected(0..next));
}

#[test]
fn a_batch_larger_than_a_segment_gets_one_to_itself() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk, small());
    log.append(&[batch(0, 1), batch_at(1, 1, 0, 5000), batch(2, 1)])
        .unwrap();
    assert_eq!(segments(&disk, &dir()).len(), 3);
    assert_eq!(values(&log.reader(), Offset(0)), expected(0..3));
}

#[test]
fn a_batch_larger_than_a_page_is_still_delivered() {
    let (mut log, _) = open(&SimDisk::new(1), LogOptions::default());
    log.append(&[batch_at(0, 2, 0, 300_000), batch(2, 1)])
        .unwrap();
    let page = log.reader().read(Offset(1), 10, Offset(3)).unwrap();
    assert_eq!(page.batches, [batch_at(0, 2, 0, 300_000)]);
}

/// B11: offsets come from the log, not from counting what is left in it.
#[test]
fn retention_moves_the_start_and_never_the_end() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk, small());
    fill(&mut log, 0..60);
    log.sync().unwrap();
    let policy = RetentionPolicy {
        max_bytes: Some(1500),
        max_age_ms: None,
    };
    let start = log.retain(policy, TimeMs(0), Offset(u64::MAX)).unwrap();
    assert!(start > Offset(0));
    assert_eq!((log.start(), log.end()), (start, Offset(60)));
    assert!(log.bytes() >= 1500 && log.bytes() < 1500 + 1024);
    assert_eq!(values(&log.reader(), start), expected(start.0..60));
    let refused = log.reader().read(Offset(0), 100, Offset(60)).unwrap_err();
    assert_eq!(refused, ReadRefused::BelowStart { oldest: start });
    log.close().unwrap();
    let (mut log, recovered) = open(&disk, small());
    assert_eq!((recovered.start, recovered.end), (start, Offset(60)));
    fill(&mut log, 60..61);
    assert_eq!(log.end(), Offset(61));
}

#[test]
fn retention_never_passes_the_offset_it_is_told() {
    let (mut log, _) = open(&SimDisk::new(1), small());
    fill(&mut log, 0..60);
    log.sync().unwrap();
    let policy = RetentionPolicy {
        max_bytes: Some(0),
        max_age_ms: Some(0),
    };
    let start = log.retain(policy, TimeMs(1 << 40), Offset(20)).unwrap();
    assert!(start <= Offset(20) && start > Offset(5));
}

#[test]
fn a_quiet_log_forgets_its_last_records_too_and_keeps_its_end() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk, LogOptions::default());
    fill(&mut log, 0..5);
    log.sync().unwrap();
    let policy = RetentionPolicy {
        max_bytes: None,
        max_age_ms: Some(100),
    };
    assert_eq!(
        log.retain(policy, TimeMs(1_050), Offset(5)).unwrap(),
        Offset(0)
    );
    assert_eq!(
        log.retain(policy, TimeMs(5_000), Offset(5)).unwrap(),
        Offset(5)
    );
    log.close().unwrap();
    let (log, recovered) = open(&disk, LogOptions::default());
    assert_eq!((recovered.start, recovered.end), (Offset(5), Offset(5)));
    assert_eq!(log.bytes(), 0);
}

/// B79: sizes are known right after a start.
#[test]
fn size_and_times_are_rebuilt_when_a_log_is_opened() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk, small());
    fill(&mut log, 0..40);
    let bytes = log.bytes();
    log.close().unwrap();
    let (_, recovered) = open(&disk, small());
    assert_eq!((recovered.bytes, recovered.max_timestamp), (bytes, 1_039));
    assert_eq!(recovered.last_generation, Generation(1));
}

#[test]
fn lookup_by_time_finds_the_first_record_however_times_go_back_and_forth() {
    let options = LogOptions {
        segment_bytes: 200_000,
        ..LogOptions::default()
    };
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk, options);
    let mut dice = Dice::new(7);
    let mut times = Vec::new();
    for base in (0..2_000).step_by(4) {
        let time = dice.below(10_000) as i64 + base as i64;
        log.append(&[batch_at(base, 4, time, 400)]).unwrap();
        times.extend((0..4).map(|record| time + record));
    }
    let check = |log: &Log, until: u64| {
        for time in (0..13_000).step_by(97) {
            let first = times
                .iter()
                .take(until as usize)
                .position(|found| *found >= time);
            let wanted = first.map(|at| TimePoint {
                offset: Offset(at as u64),
                timestamp_ms: times[at],
            });
            let found = log.reader().offset_for_time(time, Offset(until)).unwrap();
            assert_eq!(found, wanted, "time {time} until {until}");
        }
    };
    check(&log, 2_000);
    check(&log, 1_002);
    log.close().unwrap();
    check(&open(&disk, options).0, 2_000);
}

#[test]
fn a_log_that_rests_lets_go_of_everything_and_goes_on_afterwards() {
    let disk = SimDisk::new(1);
    let options = LogOptions {
        segment_bytes: 100_000,
        ..LogOptions::default()
    };
    let (mut log, _) = open(&disk, options);
    for base in 0..150 {
        log.append(&[batch_at(base, 1, base as i64, 1000)]).unwrap();
    }
    log.rest().unwrap();
    assert_eq!(log.durable_end(), Offset(150));
    assert_eq!(values(&log.reader(), Offset(0)), expected(0..150));
    for base in 150..300 {
        log.append(&[batch_at(base, 1, base as i64, 1000)]).unwrap();
    }
    assert_eq!(values(&log.reader(), Offset(0)), expected(0..300));
    let found = log
        .reader()
        .offset_for_time(299, Offset(300))
        .unwrap()
        .unwrap();
    assert_eq!(found.offset, Offset(299));
}

#[test]
fn hundreds_of_resting_logs_keep_no_more_files_open_than_they_are_allowed() {
    let disk = SimDisk::new(1);
    let files = OpenFiles::new(Arc::new(disk), 8);
    let mut logs: Vec<Log> = (0..300)
        .map(|number| {
            let dir = std::path::PathBuf::from(format!("/logs/{number}"));
            Log::open_in(&files, &dir, small()).unwrap().0
        })
        .collect();
    assert_eq!(files.open_now(), 0);
    for log in &mut logs {
        fill(log, 0..30);
        log.rest().unwrap();
    }
    for log in &logs {
        assert_eq!(values(&log.reader(), Offset(0)), expected(0..30));
    }
    assert!(files.open_now() <= 8);
    for log in &mut logs {
        fill(log, 30..31);
    }
    // What a log costs while it rests, its segments aside.
    assert!(size_of::<Log>() < 512);
}

#[test]
fn a_clean_open_writes_and_syncs_nothing() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk, small());
    fill(&mut log, 0..40);
    log.close().unwrap();
    let before = disk.calls();
    let (_, recovered) = open(&disk, small());
    assert!(recovered.clean);
    // The one call is the attempt to remove a seal of the newest segment, which has none.
    assert_eq!(disk.calls() - before, 1);
}

#[test]
fn a_wrong_index_costs_a_scan_and_never_an_answer() {
    let options = LogOptions {
        segment_bytes: 300_000,
        ..LogOptions::default()
    };
    let build = || {
        let disk = SimDisk::new(1);
        let (mut log, _) = open(&disk, options);
        for base in 0..700 {
            log.append(&[batch_at(base, 1, base as i64, 1000)]).unwrap();
        }
        log.close().unwrap();
        disk
    };
    let disk = build();
    let names: Vec<_> = disk
        .list(&dir())
        .unwrap()
        .into_iter()
        .filter(|entry| entry.name.ends_with("index"))
        .collect();
    assert!(names.len() >= 4);
    let newest: u64 = segments(&disk, &dir())
        .last()
        .unwrap()
        .file_stem()
        .unwrap()
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    for name in names {
        let path = dir().join(&name.name);
        for damage in 0..name.bytes + 3 {
            let disk = disk.fork();
            let file = disk.open(&path).unwrap();
            match damage.checked_sub(name.bytes) {
                None => disk.flip(&path, damage, (damage % 8) as u8).unwrap(),
                Some(0) => disk.unlink(&path).unwrap(),
                Some(1) => file.set_len(name.bytes - 5).unwrap(),
                Some(_) => file.set_len(name.bytes / 24 * 12).unwrap(),
            }
            let options = LogOptions {
                verify_bytes: 0,
                ..options
            };
            let (mut log, _) = open(&disk, options);
            let reader = log.reader();
            // The newest segment has no seal to give a wrong index away, so each of its offsets is asked for.
            for from in (0..newest).step_by(61).chain(newest..700) {
                let page = reader.read(Offset(from), 1, Offset(700)).unwrap();
                assert_eq!(
                    page.batches,
                    [batch_at(from, 1, from as i64, 1000)],
                    "{} {damage}",
                    name.name
                );
                let found = reader
                    .offset_for_time(from as i64, Offset(700))
                    .unwrap()
                    .unwrap();
                assert_eq!(found.offset, Offset(from), "{} {damage}", name.name);
            }
            log.append(&[batch_at(700, 1, 700, 1000)]).unwrap();
            assert_eq!(
                reader
                    .read(Offset(700), 1, Offset(701))
                    .unwrap()
                    .batches
                    .len(),
                1
            );
        }
    }
}

#[test]
fn a_log_is_cut_back_at_a_batch_boundary_and_goes_on_from_there() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk, small());
    for base in (0..60).step_by(3) {
        log.append(&[batch(base, 3)]).unwrap();
    }
    assert_eq!(
        log.truncate_to(Offset(31)).unwrap_err(),
        TruncateRefused::InsideBatch { base: Offset(30) }
    );
    for end in [54, 30, 0] {
        log.truncate_to(Offset(end)).unwrap();
        assert_eq!(log.end(), Offset(end));
        assert_eq!(values(&log.reader(), Offset(0)), expected(0..end));
    }
    fill(&mut log, 0..7);
    log.close().unwrap();
    let (log, recovered) = open(&disk, small());
    assert!(recovered.clean);
    assert_eq!(values(&log.reader(), Offset(0)), expected(0..7));
}

#[test]
fn a_reader_outlives_the_segments_that_retention_removes() {
    let root = tempfile::tempdir().unwrap();
    let (mut log, _) = Log::open(Arc::new(RealDisk), &root.path().join("log"), small()).unwrap();
    let reader = log.reader();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let reading = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let (mut next, mut read, mut trimmed) = (Offset(0), 0_u64, 0_u64);
            loop {
                let last_round = stop.load(std::sync::atomic::Ordering::Acquire);
                match reader.read(next, 2000, reader.end()) {
                    Ok(page) if page.batches.is_empty() && last_round => {
                        return (next, read, trimmed);
                    }
                    Ok(page) => {
                        for bytes in page.batches {
                            let header = felix_model::BatchHeader::parse(&bytes).unwrap();
                            assert_eq!(bytes, batch(header.base_offset as u64, 1));
                            next = header.next_offset();
                            read += 1;
                        }
                    }
                    Err(ReadRefused::BelowStart { oldest }) => {
                        assert!(oldest > next);
                        next = oldest;
                        trimmed += 1;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
    });
    let policy = RetentionPolicy {
        max_bytes: Some(3000),
        max_age_ms: None,
    };
    for offset in 0..3_000 {
        log.append(&[batch(offset, 1)]).unwrap();
        if offset % 100 == 99 {
            log.sync().unwrap();
            log.retain(policy, TimeMs(0), Offset(u64::MAX)).unwrap();
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Release);
    let (next, read, _) = reading.join().unwrap();
    assert_eq!(next, Offset(3_000));
    assert!(read > 0);
}

#[test]
fn every_new_name_is_followed_by_a_directory_sync_before_anything_is_durable() {
    let disk = SimDisk::new(1);
    let calls = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    disk.set_hook(Some(Arc::new(move |call| {
        seen.lock().unwrap().push(call.clone())
    })));
    let (mut log, _) = open(&disk, small());
    fill(&mut log, 0..20);
    log.sync().unwrap();
    let calls = calls.lock().unwrap().clone();
    let changes = |kind: CallKind| {
        matches!(
            kind,
            CallKind::Create | CallKind::Rename | CallKind::CreateDir
        )
    };
    let last_change = calls
        .iter()
        .rposition(|call| changes(call.kind) && !call.path.to_string_lossy().contains("index"))
        .unwrap();
    assert!(
        calls[last_change..]
            .iter()
            .any(|call| call.kind == CallKind::SyncDir)
    );
    for parent in ["/", "/data", "/data/log"] {
        let synced = |call: &felix_journal::disk::Call| {
            call.kind == CallKind::SyncDir && call.path == std::path::Path::new(parent)
        };
        let first_write = calls
            .iter()
            .position(|call| {
                call.kind == CallKind::Write && call.path.extension().is_some_and(|e| e == "log")
            })
            .unwrap();
        assert!(calls[..first_write].iter().any(synced), "{parent}");
    }
}
