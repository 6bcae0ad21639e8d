//! Compaction: what it leaves, and what readers see of it.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use common::keyed::{Written, compact, filled, read, upto};
use common::{Dice, open, small};
use felix_journal::compact::{NewestByKey, Remembered};
use felix_journal::{Keep, Log, ReadRefused, SimDisk};
use felix_model::forms::schedule_record;
use felix_model::{
    BatchBuilder, BatchHeader, BatchOptions, Generation, Offset, Record, TimeMs, patch, verify,
};

#[test]
fn the_newest_record_of_each_key_stays_at_its_offset_and_what_has_no_key_stays_too() {
    let disk = SimDisk::new(1);
    let (mut log, written) = filled(&disk, 9);
    let (before, end) = (log.bytes(), log.end());
    let done = compact(&mut log);
    let below = log.reader().cleaned_to().0;
    assert_eq!((done.cleaned_to, log.end()), (Offset(below), end));
    assert!(below > 250);
    assert!(log.bytes() < before / 2, "{} of {before}", log.bytes());
    assert_eq!(
        written.check(&log.reader(), "compacted"),
        written.left(below)
    );
    log.close().unwrap();
    let (mut log, recovered) = open(&disk, small());
    assert!(recovered.clean);
    assert_eq!(recovered.end, end);
    assert_eq!(written.check(&log.reader(), "opened"), written.left(below));
    assert_eq!(log.reader().cleaned_to(), Offset(below));
    assert_eq!(log.reader().scrub(|_| ()).unwrap().bytes, log.bytes());
    // Nothing is left to be done.
    let again = compact(&mut log);
    assert_eq!((again.segments, again.records_dropped), (0, 0));
}

#[test]
fn every_record_can_be_read_by_its_offset_and_what_is_gone_is_none() {
    let disk = SimDisk::new(1);
    let (mut log, written) = filled(&disk, 9);
    compact(&mut log);
    let reader = log.reader();
    let left = written.left(log.reader().cleaned_to().0);
    for offset in 0..log.end().0 {
        let record = reader.record(Offset(offset)).unwrap();
        assert_eq!(record.is_some(), left.contains(&offset), "{offset}");
        assert!(record.is_none_or(|record| record.offset == Offset(offset)));
    }
    let end = log.end();
    assert_eq!(reader.record(end), Err(ReadRefused::PastEnd { end }));
}

#[test]
fn a_read_from_any_offset_to_any_other_finds_what_is_left_between_them() {
    let disk = SimDisk::new(1);
    let (mut log, written) = filled(&disk, 5);
    compact(&mut log);
    let reader = log.reader();
    let left = written.left(log.reader().cleaned_to().0);
    for from in 0..log.end().0 {
        for until in [from + 1, from + 20, log.end().0] {
            let until = until.min(log.end().0);
            let mut next = from;
            let mut found = BTreeSet::new();
            while next < until {
                let page = reader.read(Offset(next), 1, Offset(until)).unwrap();
                if page.batches.is_empty() && page.next.0 == next {
                    // The batch that holds it goes on past the end that was asked for.
                    break;
                }
                assert!(page.next.0 > next);
                for batch in &page.batches {
                    let records = felix_model::Records::new(batch).unwrap();
                    let offsets = records.map(|record| record.unwrap().offset.0);
                    found.extend(offsets.filter(|offset| *offset >= next));
                }
                next = page.next.0;
            }
            let wanted: BTreeSet<u64> = left.range(from..next).copied().collect();
            assert_eq!(found, wanted, "{from}..{until}");
        }
    }
}

#[test]
fn a_time_is_found_at_the_first_record_left_that_has_it() {
    let disk = SimDisk::new(1);
    let (mut log, written) = filled(&disk, 9);
    compact(&mut log);
    let left = written.left(log.reader().cleaned_to().0);
    for time in 990..1_310_u64 {
        let found = log
            .reader()
            .offset_for_time(time as i64, log.end())
            .unwrap();
        let wanted = left.range(time.saturating_sub(1_000)..).next();
        assert_eq!(found.map(|found| found.offset.0).as_ref(), wanted, "{time}");
    }
}

/// A reader that opened a file before it was replaced, or looks at a segment that was.
#[test]
fn readers_in_the_middle_of_a_page_are_not_disturbed_by_compaction() {
    let disk = SimDisk::new(1);
    let (mut log, written) = filled(&disk, 9);
    let reader = log.reader();
    let job = log.begin_compact(upto(log.durable_end())).unwrap();
    let mut keep = NewestByKey::gather(&reader, upto(reader.closed_end()), &mut |_| {
        ControlFlow::Continue(())
    })
    .unwrap();
    let hook_reader = reader;
    let hook_written = written.clone();
    // At every change of the disk there is a whole log to be read, with no more missing than may be.
    let may_go: BTreeSet<u64> = {
        let left = written.left(keep.covered().0);
        written
            .0
            .keys()
            .copied()
            .filter(|offset| !left.contains(offset))
            .collect()
    };
    let looks = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let looked = Arc::clone(&looks);
    let inside = std::sync::atomic::AtomicBool::new(false);
    disk.set_hook(Some(Arc::new(move |call| {
        use std::sync::atomic::Ordering::SeqCst;
        // The rename is made while readers wait.
        if !call.kind.changes()
            || call.kind == felix_journal::disk::CallKind::Rename
            || inside.swap(true, SeqCst)
        {
            return;
        }
        let found = hook_written.check(&hook_reader, "during compaction");
        for offset in hook_written.0.keys() {
            assert!(
                found.contains(offset) || may_go.contains(offset),
                "{offset}"
            );
        }
        looked.fetch_add(1, SeqCst);
        inside.store(false, SeqCst);
    })));
    job.run(
        &mut keep,
        &mut || Ok(()),
        &mut |_| ControlFlow::Continue(()),
    )
    .unwrap();
    disk.set_hook(None);
    assert!(looks.load(std::sync::atomic::Ordering::SeqCst) > 20);
}

/// Lets everything go.
struct Nothing;

impl Keep for Nothing {
    fn keep(&mut self, _: &BatchHeader, records: &[Record], stay: &mut Vec<bool>) {
        stay.resize(records.len(), false);
    }
}

fn compact_all(log: &mut Log) {
    let options = upto(log.durable_end());
    log.compact(options, &mut Nothing).unwrap();
}

#[test]
fn a_log_of_which_nothing_is_left_goes_on_where_it_ended() {
    for reopen in [false, true] {
        let disk = SimDisk::new(1);
        let (mut log, mut written) = filled(&disk, 9);
        let end = log.close_segment().unwrap();
        assert_eq!(end, log.end());
        compact_all(&mut log);
        assert_eq!((log.bytes(), log.start(), log.end()), (0, Offset(0), end));
        assert_eq!(read(&log.reader(), "empty").len(), 0);
        let page = log.reader().read(Offset(0), 100, end).unwrap();
        assert_eq!((page.batches.len(), page.next), (0, end));
        if reopen {
            drop(log);
            disk.power_cut(3);
            (log, _) = open(&disk, small());
        }
        assert_eq!((log.start(), log.end()), (Offset(0), end));
        log.append(&[written.batch(end.0, 3, 9)]).unwrap();
        let found = written.check(&log.reader(), "after");
        assert_eq!(found, (end.0..end.0 + 3).collect());
    }
}

#[test]
fn small_neighbours_become_one_segment_although_nothing_goes() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk, small());
    let mut written = Written::default();
    for _ in 0..8 {
        let base = log.end().0;
        log.append(&[written.batch(base, 1, 1_000_000)]).unwrap();
        log.close_segment().unwrap();
    }
    let before = log.reader().segments();
    let done = compact(&mut log);
    assert_eq!((done.records_dropped, done.segments), (0, before - 1));
    assert!(log.reader().segments() < before / 2);
    assert_eq!(written.check(&log.reader(), "merged").len(), 8);
}

#[test]
fn a_scheduled_record_goes_as_one_that_was_published_when_its_key_has_a_newer_one() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk, small());
    for (base, id) in [(0, b"id-1"), (1, b"id-2")] {
        let mut batch = BatchBuilder::new(BatchOptions {
            internal: true,
            ..BatchOptions::default()
        });
        let users: [(&[u8], Option<&[u8]>); 1] = [(b"priority", Some(b"high"))];
        let record = (Some(b"key".as_slice()), Some(b"payload".as_slice()));
        schedule_record(&mut batch, 0, id, record, &users).unwrap();
        let mut batch = batch.finish().unwrap();
        patch(&mut batch, Offset(base), Generation::ZERO);
        log.append(&[batch.freeze()]).unwrap();
    }
    log.close_segment().unwrap();
    assert_eq!(compact(&mut log).records_dropped, 1);
    assert_eq!(log.reader().record(Offset(0)).unwrap(), None);
    assert!(log.reader().record(Offset(1)).unwrap().is_some());
}

#[test]
fn deletions_stay_for_their_grace_and_the_floor_tells_when_they_are_gone() {
    let disk = SimDisk::new(1);
    let (mut log, written) = filled(&disk, 40);
    let below = log.close_segment().unwrap();
    compact(&mut log);
    assert_eq!(log.reader().tombstone_floor(), Offset(0));
    let left = written.left(below.0);
    let reader = log.reader();
    let mut keep = NewestByKey::gather(&reader, upto(below), &mut |_| ControlFlow::Continue(()))
        .unwrap()
        .with_deletions_until(TimeMs(2_285), 1_000);
    log.compact(upto(keep.covered()), &mut keep).unwrap();
    let goes = |offset: &u64| {
        let (key, value) = &written.0[offset];
        key.is_some() && value.is_none() && *offset <= 285
    };
    let wanted: BTreeSet<u64> = left
        .iter()
        .copied()
        .filter(|offset| !goes(offset))
        .collect();
    let newest_gone = left.iter().copied().filter(goes).max().unwrap();
    assert_eq!(written.check(&reader, "deletions"), wanted);
    assert_eq!(reader.tombstone_floor(), Offset(newest_gone + 1));
    log.close().unwrap();
    let (log, _) = open(&disk, small());
    assert_eq!(log.reader().tombstone_floor(), Offset(newest_gone + 1));
}

#[test]
fn more_keys_than_there_is_room_for_are_compacted_in_several_passes() {
    let disk = SimDisk::new(1);
    let (mut log, written) = filled(&disk, 60);
    log.close_segment().unwrap();
    let reader = log.reader();
    let mut passes = 0;
    while reader.cleaned_to() < log.end() {
        let mut keep = NewestByKey::gather_at_most(25, &reader, upto(log.end()), &mut |_| {
            ControlFlow::Continue(())
        })
        .unwrap();
        assert!(keep.keys() <= 25);
        let options = upto(keep.covered());
        log.compact(options, &mut keep).unwrap();
        assert_eq!(reader.cleaned_to(), keep.covered());
        passes += 1;
        assert!(passes < 100);
    }
    assert!(passes > 2);
    assert_eq!(written.check(&reader, "passes"), written.left(log.end().0));
}

#[test]
fn the_last_batch_of_a_producer_stays_whole_and_those_before_for_a_while() {
    let first_two = |reader: &felix_journal::LogReader| {
        let page = reader.read(Offset(0), 4_000, reader.end()).unwrap();
        let headers = page
            .batches
            .iter()
            .map(|batch| BatchHeader::parse(batch).unwrap());
        let headers: Vec<_> = headers.take(2).collect();
        (headers[0], headers[1])
    };
    for is_late in [false, true] {
        let disk = SimDisk::new(1);
        let (mut log, written) = filled(&disk, 3);
        let reader = log.reader();
        let (earlier, last) = first_two(&reader);
        let remembered = Remembered {
            last: BTreeSet::from([last.base()]),
            earlier: BTreeSet::from([earlier.base()]),
        };
        let now = if is_late { 1_000 + 601_000 } else { 1_500 };
        let mut keep =
            NewestByKey::gather(&reader, upto(log.end()), &mut |_| ControlFlow::Continue(()))
                .unwrap()
                .with_remembered(remembered, TimeMs(now));
        log.compact(upto(keep.covered()), &mut keep).unwrap();
        let found = written.check(&reader, "whole");
        let whole = |header: BatchHeader| {
            (header.base().0..header.next_offset().0).all(|offset| found.contains(&offset))
        };
        assert_eq!((whole(earlier), whole(last)), (!is_late, true));
        assert!(!found.contains(&last.next_offset().0));
    }
}

#[test]
fn compaction_never_passes_the_offset_it_was_given() {
    for below in [0, 1, 40, 133] {
        let disk = SimDisk::new(1);
        let (mut log, written) = filled(&disk, 3);
        let options = upto(Offset(below));
        let done = log.compact(options, &mut Nothing).unwrap();
        assert_eq!(done.cleaned_to, Offset(below));
        let found = written.check(&log.reader(), "below");
        assert!((below..log.end().0).all(|offset| found.contains(&offset)));
        assert!(found.iter().filter(|offset| **offset < below).count() < 4);
    }
}

#[test]
fn a_compaction_that_is_stopped_leaves_what_it_committed_and_nothing_else() {
    let disk = SimDisk::new(1);
    let (mut log, written) = filled(&disk, 9);
    let job = log.begin_compact(upto(log.durable_end())).unwrap();
    let done = job
        .run(
            &mut Nothing,
            &mut || Ok(()),
            &mut |_| ControlFlow::Break(()),
        )
        .unwrap();
    drop(job);
    assert!(done.cleaned_to > Offset(0));
    let found = written.check(&log.reader(), "stopped");
    assert!((done.cleaned_to.0..log.end().0).all(|offset| found.contains(&offset)));
}

#[test]
fn batches_that_were_thinned_keep_their_ends_and_pass_every_check() {
    let disk = SimDisk::new(1);
    let (mut log, _) = filled(&disk, 9);
    let ends = |log: &Log| {
        let mut ends = BTreeSet::new();
        let mut next = log.start();
        while next < log.end() {
            let page = log.reader().read(next, 1 << 20, log.end()).unwrap();
            for batch in &page.batches {
                let header = verify(batch).unwrap();
                assert!(header.records() > 0);
                ends.insert((header.base().0, header.next_offset().0));
            }
            next = page.next;
        }
        ends
    };
    let before = ends(&log);
    compact(&mut log);
    let after = ends(&log);
    assert!(after.len() < before.len());
    assert!(after.is_subset(&before));
}

#[test]
fn any_history_of_writes_rolls_compactions_and_openings_leaves_what_it_must() {
    for seed in 0..60 {
        let mut dice = Dice::new(seed);
        let disk = SimDisk::new(seed);
        let (mut log, _) = open(&disk, small());
        let mut written = Written::default();
        let keys = 1 + dice.below(40);
        let mut cleaned_to = 0;
        for _ in 0..120 {
            match dice.below(10) {
                0..=5 => {
                    let base = log.end().0;
                    let batch = written.batch(base, 1 + dice.below(6), keys);
                    log.append(&[batch]).unwrap();
                }
                6 => {
                    log.close_segment().unwrap();
                }
                7 => {
                    log.sync().unwrap();
                    compact(&mut log);
                }
                8 => {
                    log.close().unwrap();
                    (log, _) = open(&disk, small());
                }
                _ => {
                    drop(log);
                    disk.kill();
                    (log, _) = open(&disk, small());
                }
            }
            let now = log.reader().cleaned_to().0;
            assert!(now >= cleaned_to, "seed {seed}");
            cleaned_to = now;
            let found = written.check(&log.reader(), &format!("seed {seed}"));
            assert_eq!(found, written.left(cleaned_to), "seed {seed}");
        }
    }
}
