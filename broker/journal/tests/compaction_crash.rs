//! Crashes and failing disks at every step of a compaction.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use common::keyed::{Written, compact, try_compact, upto};
use common::{dir, open, small};
use felix_journal::disk::Fault;
use felix_journal::{Disk, Keep, Log, RetentionPolicy, SimDisk, Verdict, inspect};
use felix_model::{BatchHeader, Offset, Record, TimeMs};

const KEYS: u64 = 7;

/// What must be there when the machine stopped.
#[derive(Clone, Debug, Default)]
struct Told {
    written: Written,
    /// Everything below was appended.
    end: u64,
    /// Everything below was synced.
    durable: u64,
    /// History may be collapsed up to here, …
    may_clean: u64,
    /// … and is up to here.
    cleaned: u64,
    /// Nothing above was asked to be forgotten.
    start_max: u64,
}

/// Writes, compacts, writes on, compacts what was compacted and what is new, forgets. Stops at the first error.
fn live(disk: &SimDisk, told: &mut Told) -> Option<()> {
    let (mut log, _) = Log::open(Arc::new(disk.clone()), &dir(), small()).ok()?;
    for round in 0..4 {
        for step in 0..(if round == 1 { 3 } else { 14 }) {
            let base = log.end().0;
            let batch = told.written.batch(base, 2 + step % 3, KEYS);
            log.append(&[batch]).ok()?;
            told.end = log.end().0;
        }
        // Small segments lie side by side, so that several become one.
        if round < 3 {
            log.close_segment().ok()?;
        }
        told.durable = log.sync().ok()?.0;
        told.may_clean = log.reader().closed_end().0;
        told.cleaned = try_compact(&mut log)?.cleaned_to.0;
        if round == 2 {
            let policy = RetentionPolicy {
                max_bytes: Some(log.bytes() / 2),
                max_age_ms: None,
            };
            told.start_max = told.durable;
            log.retain(policy, TimeMs(0), Offset(told.durable)).ok()?;
        }
    }
    log.close().ok()
}

/// Opens after a crash and checks every promise; then compacts again, writes on, and opens once more.
fn check(disk: &SimDisk, told: &Told, at_least: u64, context: &str) {
    let report = inspect(disk, &dir());
    let opened = Log::open(Arc::new(disk.clone()), &dir(), small());
    let (mut log, _) = opened.unwrap_or_else(|refused| panic!("{context}: {refused}"));
    if let Ok(report) = report {
        assert!(report.verdict < Verdict::WouldRefuse, "{context}: {report}");
        assert_eq!(
            report.end,
            log.end(),
            "{context}: what was inspected is what opens"
        );
    }
    let (start, end) = (log.start().0, log.end().0);
    assert!(
        end >= at_least,
        "{context}: ends at {end}, {at_least} was promised"
    );
    assert!(start <= told.start_max, "{context}: starts at {start}");
    let cleaned = log.reader().cleaned_to().0;
    assert!(
        (told.cleaned..=told.may_clean).contains(&cleaned),
        "{context}: {cleaned}"
    );
    let mut written = told.written.clone();
    written.0.split_off(&end);
    let found = written.check(&log.reader(), context);
    let from_start = |offsets: BTreeSet<u64>| -> BTreeSet<u64> {
        offsets
            .into_iter()
            .filter(|offset| *offset >= start)
            .collect()
    };
    // Segments are compacted one after the other: what is gone may go, and what is certain to be done is done.
    let most = from_start(written.left(told.cleaned));
    let least = from_start(written.left(told.may_clean));
    assert!(
        found.is_subset(&most),
        "{context}: {:?} came back",
        found.difference(&most)
    );
    assert!(
        found.is_superset(&least),
        "{context}: {:?} is lost",
        least.difference(&found)
    );
    assert_eq!(leftovers(disk), [""; 0], "{context}");
    log.close_segment().unwrap();
    compact(&mut log);
    let all = from_start(written.left(end));
    assert_eq!(written.check(&log.reader(), context), all, "{context}");
    let batch = written.batch(end, 5, KEYS);
    log.append(&[batch]).unwrap();
    log.close().unwrap();
    let (log, recovered) = open(disk, small());
    assert!(recovered.clean, "{context}");
    let found = written.check(&log.reader(), context);
    assert_eq!(found, from_start(written.left(end)), "{context}");
}

/// Files that nobody needs, as an opened log must not have them.
fn leftovers(disk: &SimDisk) -> Vec<String> {
    let entries = disk.list(&dir()).unwrap();
    let names = entries.into_iter().map(|entry| entry.name);
    names
        .filter(|name| name.ends_with(".cleaned") || name.ends_with(".tmp"))
        .collect()
}

#[test]
fn a_crash_at_any_step_of_a_compaction_loses_nothing_and_brings_nothing_back() {
    let whole = SimDisk::new(9);
    live(&whole, &mut Told::default()).unwrap();
    let calls = whole.calls();
    assert!(calls > 150, "{calls}");
    for step in 0..calls {
        let disk = SimDisk::new(9);
        disk.fail(step, Fault::Crash);
        let mut told = Told::default();
        let _ = live(&disk, &mut told);
        assert!(disk.calls() > step, "step {step} was not reached");
        let killed = disk.fork();
        killed.kill();
        check(&killed, &told, told.end, &format!("killed at step {step}"));
        for seed in 0..8 {
            let cut = disk.fork();
            cut.power_cut(step * 100 + seed);
            let context = format!("power cut at step {step}, seed {seed}");
            check(&cut, &told, told.durable, &context);
        }
    }
}

#[test]
fn finishing_an_interrupted_compaction_can_itself_be_interrupted_at_every_step() {
    let whole = SimDisk::new(3);
    live(&whole, &mut Told::default()).unwrap();
    for first in (0..whole.calls()).step_by(3) {
        let disk = SimDisk::new(3);
        disk.fail(first, Fault::Crash);
        let mut told = Told::default();
        let _ = live(&disk, &mut told);
        disk.power_cut(first);
        let calls = {
            let disk = disk.fork();
            let before = disk.calls();
            drop(open(&disk, small()));
            disk.calls() - before
        };
        for step in 0..calls {
            for seed in 0..2 {
                let disk = disk.fork();
                disk.fail(disk.calls() + step, Fault::Crash);
                let _ = Log::open(Arc::new(disk.clone()), &dir(), small());
                disk.power_cut(seed);
                let context = format!("first {first}, then step {step}, seed {seed}");
                check(&disk, &told, told.durable, &context);
            }
        }
    }
}

#[test]
fn one_failing_call_never_costs_a_record_and_never_brings_one_back() {
    let whole = SimDisk::new(4);
    live(&whole, &mut Told::default()).unwrap();
    for step in 0..whole.calls() {
        for fault in [Fault::Io, Fault::Full] {
            let disk = SimDisk::new(4);
            disk.fail(step, fault);
            let mut told = Told::default();
            let _ = live(&disk, &mut told);
            disk.heal();
            let killed = disk.fork();
            killed.kill();
            let context = format!("{fault:?} at {step}, killed");
            check(&killed, &told, told.durable, &context);
            for seed in 0..2 {
                let cut = disk.fork();
                cut.power_cut(seed);
                let context = format!("{fault:?} at {step}, power cut {seed}");
                check(&cut, &told, told.durable, &context);
            }
        }
    }
}

/// The process lives on after the failure, and so does the log unless it says that it is poisoned.
#[test]
fn a_log_whose_compaction_failed_goes_on_or_says_that_it_cannot() {
    let build = |disk: &SimDisk| {
        let (mut log, _) = open(disk, small());
        let mut written = Written::default();
        for _ in 0..60 {
            let base = log.end().0;
            log.append(&[written.batch(base, 3, KEYS)]).unwrap();
        }
        log.close_segment().unwrap();
        (log, written)
    };
    let calls = {
        let disk = SimDisk::new(2);
        let (mut log, _) = build(&disk);
        let before = disk.calls();
        compact(&mut log);
        disk.calls() - before
    };
    let mut poisoned = 0;
    for step in 0..calls {
        for fault in [Fault::Io, Fault::Full] {
            let disk = SimDisk::new(2);
            let (mut log, mut written) = build(&disk);
            disk.fail(disk.calls() + step, fault);
            let context = format!("{fault:?} at {step}");
            let done = try_compact(&mut log);
            let end = log.end().0;
            if log.is_poisoned() {
                assert_eq!(done, None, "{context}");
                poisoned += 1;
                drop(log);
                log = open(&disk, small()).0;
            }
            let found = written.check(&log.reader(), &context);
            assert!(found.is_superset(&written.left(end)), "{context}");
            compact(&mut log);
            assert_eq!(
                written.check(&log.reader(), &context),
                written.left(end),
                "{context}"
            );
            log.append(&[written.batch(end, 3, KEYS)]).unwrap();
            log.close().unwrap();
            let (log, _) = open(&disk, small());
            assert_eq!(
                written.check(&log.reader(), &context),
                written.left(end),
                "{context}"
            );
        }
    }
    assert!(poisoned > 0 && poisoned < calls);
}

/// A rule that knows the newest records although they were only written.
struct Knows(BTreeSet<u64>);

impl Keep for Knows {
    fn keep(&mut self, _: &BatchHeader, records: &[Record], stay: &mut Vec<bool>) {
        stay.extend(
            records
                .iter()
                .map(|record| self.0.contains(&record.offset.0)),
        );
    }
}

#[test]
fn a_record_never_goes_before_the_one_that_replaces_it_is_durable() {
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let (mut log, _) = open(&disk, small());
        let mut written = Written::default();
        let mut write = |log: &mut Log, records: u64| {
            let until = log.end().0 + records;
            while log.end().0 < until {
                let base = log.end().0;
                log.append(&[written.batch(base, 3, 2)]).unwrap();
            }
            written.clone()
        };
        write(&mut log, 90);
        log.close_segment().unwrap();
        let written = write(&mut log, 9);
        // Of each key the newest record is in the part that was not synced.
        let mut keep = Knows(written.left(log.end().0));
        log.compact(upto(log.durable_end()), &mut keep).unwrap();
        drop(log);
        disk.power_cut(seed);
        let (log, _) = open(&disk, small());
        let found = written.check(&log.reader(), "cut");
        assert!(found.is_superset(&keep.0), "seed {seed}");
        assert!(found.len() < written.0.len());
    }
}

#[test]
fn a_disk_without_room_is_not_compacted_onto() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk, small());
    let mut written = Written::default();
    for _ in 0..60 {
        let base = log.end().0;
        log.append(&[written.batch(base, 3, KEYS)]).unwrap();
    }
    log.close_segment().unwrap();
    disk.full(disk.space(&dir()).unwrap().total - disk.space(&dir()).unwrap().available + 1000);
    assert_eq!(try_compact(&mut log), None);
    assert!(!log.is_poisoned());
    assert_eq!(written.check(&log.reader(), "full").len(), 180);
    disk.full(1 << 30);
    compact(&mut log);
    assert_eq!(written.check(&log.reader(), "room"), written.left(180));
}
