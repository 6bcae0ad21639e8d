//! Crashes at every step: the process dies or the power fails in the middle of any call that changes the disk.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::sync::Arc;

use common::{batch, batch_at, dir, expected, open, segments, small, values};
use felix_journal::disk::Fault;
use felix_journal::{AppendFailed, Disk, Log, LogOptions, RetentionPolicy, SimDisk};
use felix_model::{Offset, TimeMs};

/// What a caller had been told when the machine stopped.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// Everything below was appended.
    written: u64,
    /// Everything below was synced.
    durable: u64,
    /// Nothing above was ever asked to be forgotten.
    start_max: u64,
    /// The log may end anywhere from here on: a cut was under way.
    cut_to: Option<u64>,
}

/// A life of a log: appends, rolls, syncs, retention, a cut, a rest. Stops at the first error.
fn live(disk: &SimDisk, sync_every: u64, told: &mut Told) -> Option<()> {
    let (mut log, _) = Log::open(Arc::new(disk.clone()), &dir(), small()).ok()?;
    for round in 0..40 {
        let base = log.end().0;
        log.append(&[
            batch(base, 2),
            batch_at(base + 2, 1, 2_000 + base as i64, 100),
        ])
        .ok()?;
        told.written = log.end().0;
        if round % sync_every == sync_every - 1 {
            told.durable = log.sync().ok()?.0;
        }
        if round == 15 {
            log.rest().ok()?;
            told.durable = log.durable_end().0;
        }
        if round % 12 == 11 {
            let policy = RetentionPolicy {
                max_bytes: Some(3_000),
                max_age_ms: None,
            };
            told.start_max = told.durable;
            log.retain(policy, TimeMs(0), Offset(told.durable)).ok()?;
        }
        if round == 30 {
            let cut = log.end().0 - 9;
            told.cut_to = Some(cut);
            log.truncate_to(Offset(cut)).ok()?;
            *told = Told {
                written: cut,
                durable: cut,
                start_max: told.start_max,
                cut_to: None,
            };
        }
    }
    log.close().ok()
}

/// Opens after a crash and checks every promise; then goes on writing and opens once more.
fn check(disk: &SimDisk, told: Told, at_least: u64, context: &str) {
    let opened = Log::open(Arc::new(disk.clone()), &dir(), small());
    let (mut log, recovered) = opened.unwrap_or_else(|refused| panic!("{context}: {refused}"));
    let at_least = told.cut_to.unwrap_or(at_least).min(at_least);
    assert!(
        log.end().0 >= at_least,
        "{context}: ends at {}, {at_least} was promised",
        log.end()
    );
    assert!(
        log.start().0 <= told.start_max,
        "{context}: starts at {}",
        log.start()
    );
    let (start, end) = (log.start(), log.end());
    assert_eq!(recovered.end, end);
    assert_eq!(
        values(&log.reader(), start),
        expected(start.0..end.0),
        "{context}"
    );
    for _ in 0..3 {
        log.append(&[batch(log.end().0, 5)]).unwrap();
    }
    log.close().unwrap();
    let (log, recovered) = open(disk, small());
    assert!(recovered.clean, "{context}");
    assert_eq!(
        values(&log.reader(), start),
        expected(start.0..end.0 + 15),
        "{context}"
    );
}

fn crash_everywhere(sync_every: u64) {
    let whole = SimDisk::new(9);
    live(&whole, sync_every, &mut Told::default()).unwrap();
    let calls = whole.calls();
    assert!(calls > 100, "{calls}");
    for step in 0..calls {
        let disk = SimDisk::new(9);
        disk.fail(step, Fault::Crash);
        let mut told = Told::default();
        let _ = live(&disk, sync_every, &mut told);
        assert!(disk.calls() > step, "step {step} was not reached");
        let killed = disk.fork();
        killed.kill();
        check(
            &killed,
            told,
            told.written,
            &format!("killed at step {step}"),
        );
        for seed in 0..6 {
            let cut = disk.fork();
            cut.power_cut(step * 100 + seed);
            check(
                &cut,
                told,
                told.durable,
                &format!("power cut at step {step}, seed {seed}"),
            );
        }
    }
}

#[test]
fn nothing_that_was_synced_is_lost_whenever_the_machine_stops_and_every_append_is_synced() {
    crash_everywhere(1);
}

#[test]
fn nothing_that_was_synced_is_lost_whenever_the_machine_stops_and_syncs_are_rare() {
    crash_everywhere(7);
}

/// A second crash during the recovery from the first one.
#[test]
fn recovery_can_itself_be_interrupted_at_every_step() {
    for first in [20, 60, 110, 150] {
        let disk = SimDisk::new(3);
        disk.fail(first, Fault::Crash);
        let mut told = Told::default();
        let _ = live(&disk, 3, &mut told);
        disk.power_cut(first);
        let calls = {
            let disk = disk.fork();
            let before = disk.calls();
            drop(open(&disk, small()));
            disk.calls() - before
        };
        for step in 0..calls {
            for seed in 0..4 {
                let disk = disk.fork();
                disk.fail(disk.calls() + step, Fault::Crash);
                let _ = Log::open(Arc::new(disk.clone()), &dir(), small());
                disk.power_cut(seed);
                check(
                    &disk,
                    told,
                    told.durable,
                    &format!("first {first}, then step {step}, seed {seed}"),
                );
            }
        }
    }
}

/// B12: what the first sync promised is there, although the directories are as new as the log.
#[test]
fn the_first_record_of_a_new_log_survives_a_power_cut_right_after_its_sync() {
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let (mut log, _) = open(&disk, LogOptions::default());
        log.append(&[batch(0, 1)]).unwrap();
        log.sync().unwrap();
        drop(log);
        disk.power_cut(seed);
        let (log, _) = open(&disk, LogOptions::default());
        assert_eq!(
            values(&log.reader(), Offset(0)),
            expected(0..1),
            "seed {seed}"
        );
    }
}

/// B08: a torn end is cut at the last good batch, wherever in the batch it was torn.
#[test]
fn a_segment_cut_at_any_byte_of_its_last_batch_opens_without_that_batch() {
    for close in [true, false] {
        let disk = SimDisk::new(1);
        let (mut log, _) = open(&disk, LogOptions::default());
        log.append(&(0..5).map(|base| batch(base, 1)).collect::<Vec<_>>())
            .unwrap();
        let whole = log.bytes();
        let last = batch(4, 1).len() as u64;
        if close {
            log.close().unwrap();
        } else {
            drop(log);
        }
        let file = segments(&disk, &dir()).remove(0);
        for length in whole - last..whole {
            let disk = disk.fork();
            disk.open(&file).unwrap().set_len(length).unwrap();
            disk.kill();
            let (mut log, recovered) = open(&disk, LogOptions::default());
            assert_eq!(
                recovered.truncated_bytes,
                length - (whole - last),
                "cut at {length}"
            );
            assert_eq!(
                values(&log.reader(), Offset(0)),
                expected(0..4),
                "cut at {length}"
            );
            log.append(&[batch(4, 1)]).unwrap();
            assert_eq!(log.end(), Offset(5));
        }
    }
}

#[test]
fn a_tail_of_zeros_is_cut() {
    for zeros in [1, 11, 60, 61, 511, 4096, 700_000] {
        let disk = SimDisk::new(1);
        let (mut log, _) = open(&disk, LogOptions::default());
        log.append(&[batch(0, 3)]).unwrap();
        let length = log.bytes();
        drop(log);
        disk.kill();
        let file = segments(&disk, &dir()).remove(0);
        disk.open(&file).unwrap().set_len(length + zeros).unwrap();
        let (log, recovered) = open(&disk, LogOptions::default());
        assert_eq!(recovered.truncated_bytes, zeros);
        assert_eq!(values(&log.reader(), Offset(0)), expected(0..3));
    }
}

/// B14: power cut at every call of a retention sweep over five segments, and of a cut back over five segments.
#[test]
fn a_sweep_that_is_interrupted_leaves_segments_that_meet() {
    let build = || {
        let disk = SimDisk::new(5);
        let (mut log, _) = open(&disk, small());
        for offset in 0..100 {
            log.append(&[batch(offset, 1)]).unwrap();
        }
        log.sync().unwrap();
        (disk, log)
    };
    let sweep = |log: &mut Log| {
        let _ = log.retain(
            RetentionPolicy {
                max_bytes: Some(500),
                max_age_ms: None,
            },
            TimeMs(0),
            Offset(100),
        );
    };
    let cut = |log: &mut Log| {
        let _ = log.truncate_to(Offset(5));
    };
    let changes: [&dyn Fn(&mut Log); 2] = [&sweep, &cut];
    for (number, change) in changes.into_iter().enumerate() {
        let (disk, mut log) = build();
        assert!(log.reader().segments() > 6);
        let before = disk.calls();
        change(&mut log);
        let calls = disk.calls() - before;
        assert!(calls > 10);
        for step in 0..calls {
            for seed in 0..20 {
                let (disk, mut log) = build();
                disk.fail(disk.calls() + step, Fault::Crash);
                change(&mut log);
                drop(log);
                if seed == 0 {
                    disk.kill();
                } else {
                    disk.power_cut(seed);
                }
                let (log, _) = open(&disk, small());
                let (start, end) = (log.start(), log.end());
                assert!(number == 1 || end == Offset(100), "step {step} seed {seed}");
                assert!(number == 0 || start == Offset(0), "step {step} seed {seed}");
                assert_eq!(values(&log.reader(), start), expected(start.0..end.0));
            }
        }
    }
}

/// B10: a kill loses nothing that was confirmed after its write, so no offset is given to other bytes.
#[test]
fn after_a_kill_the_next_offset_follows_what_was_confirmed() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk, LogOptions::default());
    log.append(&(0..10).map(|base| batch(base, 1)).collect::<Vec<_>>())
        .unwrap();
    drop(log);
    disk.kill();
    let (mut log, recovered) = open(&disk, LogOptions::default());
    assert_eq!(recovered.end, Offset(10));
    log.append(&(10..20).map(|base| batch(base, 1)).collect::<Vec<_>>())
        .unwrap();
    assert_eq!(values(&log.reader(), Offset(0)), expected(0..20));
}

/// What an opened log holds is durable, although the process that wrote it never synced.
#[test]
fn what_was_recovered_after_a_kill_survives_a_power_cut() {
    for seed in 0..50 {
        let disk = SimDisk::new(1);
        let (mut log, _) = open(&disk, small());
        for base in 0..30 {
            log.append(&[batch(base, 1)]).unwrap();
        }
        drop(log);
        disk.kill();
        let (log, _) = open(&disk, small());
        assert_eq!(log.durable_end(), Offset(30));
        drop(log);
        disk.power_cut(seed);
        let (log, _) = open(&disk, small());
        assert_eq!(
            values(&log.reader(), Offset(0)),
            expected(0..30),
            "seed {seed}"
        );
    }
}

#[test]
fn a_power_cut_that_may_have_taken_confirmed_offsets_is_reported_as_unclean() {
    let mut lost = 0;
    for seed in 0..50 {
        let disk = SimDisk::new(1);
        let (mut log, _) = open(&disk, LogOptions::default());
        log.append(&[batch(0, 1)]).unwrap();
        log.sync().unwrap();
        log.append(&[batch(1, 9)]).unwrap();
        drop(log);
        disk.power_cut(seed);
        let (_, recovered) = open(&disk, LogOptions::default());
        if recovered.end < Offset(10) {
            lost += 1;
            assert!(recovered.end == Offset(1));
        }
        if recovered.truncated_bytes > 0 {
            assert!(!recovered.clean);
        }
    }
    assert!(lost > 5);
}

#[test]
fn a_failed_sync_stops_the_log_for_good_and_readers_stop_at_what_is_durable() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk, LogOptions::default());
    log.append(&[batch(0, 2)]).unwrap();
    log.sync().unwrap();
    log.append(&[batch(2, 2)]).unwrap();
    disk.fail(disk.calls(), Fault::Io);
    assert!(log.sync().is_err());
    assert!(matches!(
        log.sync(),
        Err(felix_journal::SyncFailed::Poisoned)
    ));
    assert_eq!(log.append(&[batch(4, 1)]), Err(AppendFailed::Poisoned));
    assert_eq!(log.reader().end(), Offset(2));
    assert_eq!(values(&log.reader(), Offset(0)), expected(0..2));
    drop(log);
    disk.power_cut(1);
    let (log, _) = open(&disk, LogOptions::default());
    assert_eq!(log.end(), Offset(2));
}

#[test]
fn a_log_that_is_opened_again_after_a_failed_sync_writes_again_what_the_kernel_only_remembers() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk, LogOptions::default());
    log.append(&[batch(0, 2)]).unwrap();
    log.sync().unwrap();
    log.append(&[batch(2, 2)]).unwrap();
    disk.fail(disk.calls(), Fault::Io);
    assert!(log.sync().is_err());
    drop(log);
    // The same process, the same run of the machine: only this log is opened again.
    let (log, recovered) = open(&disk, LogOptions::default());
    assert_eq!(recovered.end, Offset(4));
    disk.power_cut(1);
    drop(log);
    assert_eq!(open(&disk, LogOptions::default()).1.end, Offset(4));
}

#[test]
fn a_write_that_fails_leaves_nothing_behind_and_its_offsets_are_free() {
    for seed in 0..20 {
        for fault in [Fault::Io, Fault::Full] {
            let disk = SimDisk::new(seed);
            let (mut log, _) = open(&disk, LogOptions::default());
            log.append(&[batch(0, 2)]).unwrap();
            disk.fail(disk.calls(), fault);
            assert!(log.append(&[batch(2, 1), batch(3, 4)]).is_err());
            assert_eq!(log.end(), Offset(2));
            log.append(&[batch(2, 3)]).unwrap();
            assert_eq!(values(&log.reader(), Offset(0)), expected(0..5));
            drop(log);
            disk.kill();
            assert_eq!(open(&disk, LogOptions::default()).1.end, Offset(5));
        }
    }
}

#[test]
fn a_failed_write_that_cannot_be_undone_stops_the_log_for_good() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk, LogOptions::default());
    log.append(&[batch(0, 2)]).unwrap();
    disk.fail(disk.calls(), Fault::Io);
    disk.fail(disk.calls() + 1, Fault::Io);
    assert!(log.append(&[batch(2, 1)]).is_err());
    assert!(log.is_poisoned());
    assert_eq!(log.append(&[batch(2, 1)]), Err(AppendFailed::Poisoned));
}

#[test]
fn a_full_disk_refuses_writes_and_goes_on_when_there_is_room_again() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk, small());
    disk.full(3_000);
    let mut next = 0;
    let refused = loop {
        match log.append(&[batch(next, 1)]) {
            Ok(()) => next += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused, AppendFailed::Full);
    assert_eq!(log.append(&[batch(next, 1)]), Err(AppendFailed::Full));
    assert_eq!(values(&log.reader(), Offset(0)), expected(0..next));
    disk.full(1 << 20);
    for offset in next..next + 20 {
        log.append(&[batch(offset, 1)]).unwrap();
    }
    log.close().unwrap();
    let (log, _) = open(&disk, small());
    assert_eq!(values(&log.reader(), Offset(0)), expected(0..next + 20));
}

/// Any call at all fails once, with any error: the log never lies, and opens again.
#[test]
fn one_failing_call_never_costs_a_durable_record() {
    let whole = SimDisk::new(4);
    live(&whole, 3, &mut Told::default()).unwrap();
    for step in 0..whole.calls() {
        for fault in [Fault::Io, Fault::Full] {
            let disk = SimDisk::new(4);
            disk.fail(step, fault);
            let mut told = Told::default();
            let _ = live(&disk, 3, &mut told);
            disk.heal();
            let killed = disk.fork();
            killed.kill();
            check(
                &killed,
                told,
                told.durable,
                &format!("{fault:?} at {step}, killed"),
            );
            for seed in 0..3 {
                let cut = disk.fork();
                cut.power_cut(seed);
                check(
                    &cut,
                    told,
                    told.durable,
                    &format!("{fault:?} at {step}, power cut {seed}"),
                );
            }
        }
    }
}

#[test]
fn a_write_that_was_refused_for_want_of_room_does_not_come_back_after_a_power_cut() {
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let (mut log, _) = Log::open(Arc::new(disk.clone()), &dir(), small()).unwrap();
        log.append(&[batch(0, 2)]).unwrap();
        log.sync().unwrap();
        // The first of two batches fits, and is there when the write fails.
        let (first, second) = (batch(2, 3), batch(5, 3));
        let space = disk.space(&dir()).unwrap();
        disk.full(space.total - space.available + first.len() as u64 + 10);
        let refused = log.append(&[first, second]);
        assert_eq!(refused, Err(AppendFailed::Full), "seed {seed}");
        assert_eq!(log.end(), Offset(2));
        drop(log);
        disk.power_cut(seed);
        let (log, _) = open(&disk, small());
        assert_eq!(log.end(), Offset(2), "seed {seed}");
        assert_eq!(values(&log.reader(), Offset(0)), expected(0..2));
    }
}
