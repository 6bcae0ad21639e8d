//! Compaction of logs that a journal writes meanwhile.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use common::keyed::{Written, upto};
use felix_journal::compact::{NewestByKey, is_due};
use felix_journal::disk::{CallKind, Fault};
use felix_journal::{
    CompactOptions, Compacted, Completions, Journal, JournalOptions, Keep, LogHandle, LogOptions,
    SimDisk, SyncMode, WriteFailure,
};
use felix_model::{BatchHeader, Offset, Record};

/// Hears of failures.
#[derive(Default)]
struct Failures(Mutex<Vec<(u64, WriteFailure)>>);

impl Completions for Failures {
    fn written(&self, _: Offset) {}

    fn flushed(&self, _: Offset) {}

    fn failed(&self, from: Offset, why: WriteFailure) {
        self.0.lock().unwrap().push((from.0, why));
    }
}

fn start(disk: &SimDisk) -> Journal {
    let options = JournalOptions::default();
    Journal::start(Arc::new(disk.clone()), Path::new("/"), options).unwrap()
}

fn open(journal: &Journal, dir: &str, segment_bytes: u64) -> (LogHandle, Arc<Failures>) {
    let failures = Arc::new(Failures::default());
    let options = LogOptions {
        segment_bytes,
        ..LogOptions::default()
    };
    let heard = Arc::clone(&failures) as Arc<dyn Completions>;
    let opened = journal.open_log(Path::new(dir), options, SyncMode::None, heard);
    (opened.unwrap().0, failures)
}

/// Writes batches until the log ends at or past an offset.
fn write(log: &LogHandle, written: &mut Written, until: u64, keys: u64) {
    let mut end = written.0.keys().next_back().map_or(0, |last| last + 1);
    while end < until {
        log.write(written.batch(end, 5, keys), Offset(end + 5));
        end += 5;
    }
    log.flush().unwrap();
}

fn go_on(_: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn compact(log: &LogHandle) -> Compacted {
    log.roll().unwrap();
    let reader = log.reader();
    let options = upto(reader.closed_end());
    let mut keep = NewestByKey::gather(&reader, options, &mut go_on).unwrap();
    log.compact(options, &mut keep, &mut go_on).unwrap()
}

#[test]
fn what_is_closed_is_compacted_while_writes_go_on() {
    let disk = SimDisk::new(1);
    let journal = start(&disk);
    let (log, _) = open(&journal, "/a", 4096);
    let mut written = Written::default();
    for round in 1..=10 {
        let end = round * 200;
        std::thread::scope(|scope| {
            let compacting = scope.spawn(|| compact(&log));
            write(&log, &mut written, end, 20);
            compacting.join().unwrap();
        });
    }
    let end = log.reader().end();
    // Segments that are still being sealed are left for the next run.
    while log.cleaned_to() < end {
        compact(&log);
    }
    assert_eq!(written.check(&log.reader(), "live"), written.left(end.0));
    log.close().unwrap();
    let (log, _) = open(&journal, "/a", 4096);
    assert_eq!(written.check(&log.reader(), "opened"), written.left(end.0));
    assert_eq!(log.cleaned_to(), end);
}

#[test]
fn a_log_is_due_when_its_dirty_part_is_over_a_mebibyte_and_over_half_of_it() {
    let disk = SimDisk::new(1);
    let journal = start(&disk);
    let (log, _) = open(&journal, "/a", 64 * 1024);
    let mut written = Written::default();
    let mut end = 0;
    let mut until_due = |log: &LogHandle, written: &mut Written| {
        let before = log.reader().bytes();
        while !is_due(&log.reader()) {
            end += 500;
            // No two records have one key, so that all of them stay.
            write(log, written, end, u64::MAX);
        }
        log.reader().bytes() - before
    };
    let first = until_due(&log, &mut written);
    assert!((1 << 20..5 << 18).contains(&first), "{first}");
    while is_due(&log.reader()) {
        compact(&log);
    }
    let second = until_due(&log, &mut written);
    assert!(second > first * 9 / 10, "{second} after {first}");
}

/// Says that it was asked, and keeps everything.
struct Asked(Option<Sender<()>>);

impl Keep for Asked {
    fn keep(&mut self, _: &BatchHeader, _: &[Record], _: &mut Vec<bool>) {
        if let Some(asked) = self.0.take() {
            asked.send(()).unwrap();
        }
    }
}

fn slowly(below: Offset) -> CompactOptions {
    CompactOptions {
        below,
        bytes_per_second: Some(1),
    }
}

/// More than is read between two looks around.
const LARGE: u64 = 12_000;

#[test]
fn a_log_that_is_closed_does_not_wait_for_the_end_of_its_compaction() {
    let disk = SimDisk::new(1);
    let journal = start(&disk);
    let (log, failures) = open(&journal, "/a", 1 << 20);
    let mut written = Written::default();
    write(&log, &mut written, LARGE, 50);
    log.roll().unwrap();
    let (asked, begun) = channel();
    let compacting = {
        let log = log.clone();
        std::thread::spawn(move || {
            let options = slowly(log.reader().closed_end());
            log.compact(options, &mut Asked(Some(asked)), &mut go_on)
        })
    };
    begun.recv().unwrap();
    log.close().unwrap();
    let done = compacting.join().unwrap().unwrap();
    assert_eq!((done.segments, done.cleaned_to), (0, Offset(0)));
    assert_eq!(*failures.0.lock().unwrap(), []);
    // A closed log is left alone.
    let after = log.compact(slowly(Offset(LARGE)), &mut Asked(None), &mut go_on);
    assert_eq!(after.unwrap(), Compacted::default());
    let (log, _) = open(&journal, "/a", 1 << 20);
    assert_eq!(written.check(&log.reader(), "opened").len() as u64, LARGE);
}

#[test]
fn one_log_is_compacted_at_a_time() {
    let disk = SimDisk::new(1);
    let journal = start(&disk);
    let logs: Vec<LogHandle> = ["/a", "/b"]
        .map(|dir| open(&journal, dir, 1 << 20).0)
        .into_iter()
        .collect();
    for log in &logs {
        write(log, &mut Written::default(), LARGE, 50);
        log.roll().unwrap();
    }
    let (asked, begun) = channel();
    let order = Arc::new(Mutex::new(Vec::new()));
    let run = |log: &LogHandle, options, mut keep: Asked, name| {
        let (log, order) = (log.clone(), Arc::clone(&order));
        std::thread::spawn(move || {
            log.compact(options, &mut keep, &mut go_on).unwrap();
            order.lock().unwrap().push(name);
        })
    };
    let first = run(&logs[0], slowly(Offset(LARGE)), Asked(Some(asked)), "first");
    begun.recv().unwrap();
    let second = run(&logs[1], upto(Offset(LARGE)), Asked(None), "second");
    // The first goes on for ever, unless its log is closed.
    logs[0].close().unwrap();
    first.join().unwrap();
    second.join().unwrap();
    let order: BTreeSet<_> = order.lock().unwrap().iter().copied().collect();
    assert_eq!(order.len(), 2);
}

#[test]
fn a_compaction_that_cannot_be_committed_poisons_its_log_and_says_so_once() {
    let disk = SimDisk::new(1);
    let journal = start(&disk);
    let (log, _) = open(&journal, "/a", 1024);
    let mut written = Written::default();
    write(&log, &mut written, 200, 5);
    // Opened again, it has no work under way in the background, so that the call that fails is the one that is meant.
    log.close().unwrap();
    let (log, failures) = open(&journal, "/a", 1024);
    log.roll().unwrap();
    let failing = disk.clone();
    disk.set_hook(Some(Arc::new(move |call| {
        if call.kind == CallKind::Rename && call.path.ends_with("compacted.manifest") {
            failing.fail(call.number, Fault::Io);
        }
    })));
    let reader = log.reader();
    let options = upto(reader.closed_end());
    let mut keep = NewestByKey::gather(&reader, options, &mut go_on).unwrap();
    assert!(log.compact(options, &mut keep, &mut go_on).is_err());
    disk.set_hook(None);
    assert!(log.compact(options, &mut keep, &mut go_on).is_err());
    let end = reader.end().0;
    assert_eq!(*failures.0.lock().unwrap(), [(end, WriteFailure::Poisoned)]);
    assert_eq!(written.check(&reader, "poisoned").len(), 200);
    let _ = log.close();
    let (log, _) = open(&journal, "/a", 1024);
    compact(&log);
    let cleaned_to = log.cleaned_to().0;
    assert_eq!(
        written.check(&log.reader(), "again"),
        written.left(cleaned_to)
    );
}
