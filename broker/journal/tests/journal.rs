//! Many logs with a few threads.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use bytes::Bytes;
use common::{batch, expected, values};
use felix_journal::disk::{CallKind, Fault};
use felix_journal::{
    Completions, Journal, JournalOptions, Log, LogHandle, LogOptions, OpenRefused, RetentionPolicy,
    SimDisk, SyncFailed, SyncMode, WriteFailure,
};
use felix_model::{Offset, TimeMs};

/// One thing a log was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Written(u64),
    Flushed(u64),
    Failed(u64, WriteFailure),
}

/// Everything a log was told, in order.
#[derive(Default)]
struct Told {
    events: Mutex<Vec<Event>>,
    changed: Condvar,
}

impl Told {
    fn tell(&self, event: Event) {
        self.events.lock().unwrap().push(event);
        self.changed.notify_all();
    }

    /// Waits until something like this was told; answers everything so far.
    fn wait(&self, wanted: impl Fn(&Event) -> bool) -> Vec<Event> {
        let mut events = self.events.lock().unwrap();
        while !events.iter().any(&wanted) {
            events = self.changed.wait(events).unwrap();
        }
        events.clone()
    }

    fn all(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }
}

struct Listener(Arc<Told>);

impl Completions for Listener {
    fn written(&self, end: Offset) {
        self.0.tell(Event::Written(end.0));
    }

    fn flushed(&self, end: Offset) {
        self.0.tell(Event::Flushed(end.0));
    }

    fn failed(&self, from: Offset, why: WriteFailure) {
        self.0.tell(Event::Failed(from.0, why));
    }
}

fn start(disk: &SimDisk) -> Journal {
    Journal::start(
        Arc::new(disk.clone()),
        Path::new("/"),
        JournalOptions::default(),
    )
    .unwrap()
}

fn open(
    journal: &Journal,
    dir: &str,
    sync: SyncMode,
    segment_bytes: u64,
) -> (LogHandle, Arc<Told>) {
    let told = Arc::new(Told::default());
    let options = LogOptions {
        segment_bytes,
        ..LogOptions::default()
    };
    let listener = Arc::new(Listener(Arc::clone(&told)));
    (
        journal
            .open_log(Path::new(dir), options, sync, listener)
            .unwrap()
            .0,
        told,
    )
}

fn write(handle: &LogHandle, offsets: std::ops::Range<u64>) {
    for offset in offsets {
        handle.write(batch(offset, 1), Offset(offset + 1));
    }
}

/// A gate that a hook waits at: a disk that is slow for as long as a test wants.
#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    changed: Condvar,
    waiting: Mutex<usize>,
}

impl Gate {
    fn close_for(self: &Arc<Self>, disk: &SimDisk, kind: CallKind, dir: &'static str) {
        *self.closed.lock().unwrap() = true;
        let gate = Arc::clone(self);
        disk.set_hook(Some(Arc::new(move |call| {
            if call.kind == kind && call.path.starts_with(dir) {
                *gate.waiting.lock().unwrap() += 1;
                gate.changed.notify_all();
                let mut closed = gate.closed.lock().unwrap();
                while *closed {
                    closed = gate.changed.wait(closed).unwrap();
                }
            }
        })));
    }

    fn wait_for(&self, waiting: usize) {
        let mut now = self.waiting.lock().unwrap();
        while *now < waiting {
            now = self.changed.wait(now).unwrap();
        }
    }

    fn open(&self) {
        *self.closed.lock().unwrap() = false;
        self.changed.notify_all();
    }
}

#[test]
fn on_commit_reports_written_and_then_flushed_and_what_is_flushed_survives_a_power_cut() {
    let disk = SimDisk::new(1);
    let journal = start(&disk);
    let (handle, told) = open(&journal, "/a", SyncMode::OnCommit, 1 << 20);
    write(&handle, 0..3);
    let events = told.wait(|event| *event == Event::Flushed(3));
    let written = events
        .iter()
        .position(|event| *event == Event::Written(3))
        .unwrap();
    let flushed = events
        .iter()
        .position(|event| *event == Event::Flushed(3))
        .unwrap();
    assert!(written < flushed);
    disk.power_cut(5);
    drop((handle, journal));
    let (log, _) = Log::open(Arc::new(disk), Path::new("/a"), LogOptions::default()).unwrap();
    assert_eq!(values(&log.reader(), Offset(0)), expected(0..3));
}

#[test]
fn everything_queued_during_a_sync_goes_out_in_one_write_and_one_sync() {
    let disk = SimDisk::new(1);
    let journal = start(&disk);
    let (handle, told) = open(&journal, "/a", SyncMode::OnCommit, 1 << 20);
    write(&handle, 0..1);
    told.wait(|event| *event == Event::Flushed(1));
    let gate = Arc::new(Gate::default());
    gate.close_for(&disk, CallKind::Sync, "/a");
    write(&handle, 1..2);
    gate.wait_for(1);
    write(&handle, 2..50);
    let before = disk.calls();
    gate.open();
    told.wait(|event| *event == Event::Flushed(50));
    // The waiting sync and its mark, then one write, one sync, one mark.
    assert!(disk.calls() - before <= 5, "{}", disk.calls() - before);
    let flushes: Vec<Event> = told
        .all()
        .into_iter()
        .filter(|event| matches!(event, Event::Flushed(_)))
        .collect();
    assert_eq!(
        flushes,
        [Event::Flushed(1), Event::Flushed(2), Event::Flushed(50)]
    );
}

#[test]
fn a_periodic_log_is_flushed_by_itself_while_writes_go_on() {
    let disk = SimDisk::new(1);
    let journal = start(&disk);
    let (handle, told) = open(&journal, "/a", SyncMode::Periodic { ms: 5 }, 1 << 20);
    let gate = Arc::new(Gate::default());
    gate.close_for(&disk, CallKind::Sync, "/a");
    write(&handle, 0..2);
    gate.wait_for(1);
    write(&handle, 2..5);
    let events = told.wait(|event| *event == Event::Written(5));
    assert!(
        !events
            .iter()
            .any(|event| matches!(event, Event::Flushed(_)))
    );
    gate.open();
    told.wait(|event| *event == Event::Flushed(5));
}

#[test]
fn a_slow_disk_holds_up_only_the_logs_on_it() {
    let disk = SimDisk::new(1);
    let journal = start(&disk);
    let (slow, slow_told) = open(&journal, "/slow", SyncMode::OnCommit, 1 << 20);
    let (quick, quick_told) = open(&journal, "/quick", SyncMode::OnCommit, 1 << 20);
    let gate = Arc::new(Gate::default());
    gate.close_for(&disk, CallKind::Sync, "/slow");
    write(&slow, 0..1);
    gate.wait_for(1);
    write(&slow, 1..9);
    for offset in 0..200 {
        write(&quick, offset..offset + 1);
        quick_told.wait(|event| *event == Event::Flushed(offset + 1));
    }
    assert!(
        !slow_told
            .all()
            .iter()
            .any(|event| matches!(event, Event::Flushed(_)))
    );
    gate.open();
    slow_told.wait(|event| *event == Event::Flushed(9));
}

#[test]
fn after_a_failed_write_what_was_queued_behind_it_is_dropped_and_the_caller_goes_on_from_there() {
    let disk = SimDisk::new(1);
    let journal = start(&disk);
    let (handle, told) = open(&journal, "/a", SyncMode::OnCommit, 1 << 20);
    write(&handle, 0..2);
    told.wait(|event| *event == Event::Flushed(2));
    let gate = Arc::new(Gate::default());
    gate.close_for(&disk, CallKind::Write, "/a");
    write(&handle, 2..3);
    gate.wait_for(1);
    write(&handle, 3..6);
    disk.fail(disk.calls(), Fault::Full);
    gate.open();
    let events = told.wait(|event| matches!(event, Event::Failed(..)));
    assert_eq!(events.last(), Some(&Event::Failed(2, WriteFailure::Full)));
    handle.write(batch(2, 4), Offset(6));
    told.wait(|event| *event == Event::Flushed(6));
    let failures = told
        .all()
        .iter()
        .filter(|event| matches!(event, Event::Failed(..)))
        .count();
    assert_eq!(failures, 1);
    assert_eq!(values(&handle.reader(), Offset(0)), expected(0..6));
}

#[test]
fn a_failed_sync_is_reported_once_from_the_durable_end_and_nothing_is_flushed_after_it() {
    let disk = SimDisk::new(1);
    let journal = start(&disk);
    let (handle, told) = open(&journal, "/a", SyncMode::OnCommit, 1 << 20);
    write(&handle, 0..2);
    told.wait(|event| *event == Event::Flushed(2));
    let gate = Arc::new(Gate::default());
    gate.close_for(&disk, CallKind::Sync, "/a");
    write(&handle, 2..3);
    gate.wait_for(1);
    disk.fail(disk.calls(), Fault::Io);
    write(&handle, 3..9);
    gate.open();
    told.wait(|event| *event == Event::Failed(2, WriteFailure::Poisoned));
    write(&handle, 9..12);
    assert_eq!(handle.flush(), Err(SyncFailed::Poisoned));
    let after = told.all();
    let failed = after
        .iter()
        .position(|event| matches!(event, Event::Failed(..)))
        .unwrap();
    assert_eq!(after.len(), failed + 1, "{after:?}");
    assert_eq!(handle.reader().end(), Offset(2));
}

#[test]
fn a_nearly_full_disk_refuses_writes_before_it_is_full_and_recovers_by_itself() {
    let disk = SimDisk::new(1);
    disk.full(100_000);
    let journal = start(&disk);
    let (handle, told) = open(&journal, "/a", SyncMode::None, 1 << 20);
    let mut next = 0;
    let failed_at = loop {
        handle.write(batch(next, 10), Offset(next + 10));
        let events = told.wait(|event| {
            matches!(event, Event::Written(end) if *end == next + 10)
                || matches!(event, Event::Failed(..))
        });
        match events.last() {
            Some(Event::Failed(from, WriteFailure::Full)) => break *from,
            _ => next += 10,
        }
    };
    assert_eq!(failed_at, next);
    assert_eq!(
        handle
            .reader()
            .read(Offset(0), 1, Offset(10))
            .unwrap()
            .batches,
        [batch(0, 10)]
    );
    disk.full(1 << 30);
    let before = told.all().len();
    loop {
        handle.write(batch(next, 10), Offset(next + 10));
        let events = {
            let mut events = told.events.lock().unwrap();
            while events.len() == before {
                events = told.changed.wait(events).unwrap();
            }
            events.clone()
        };
        if events.contains(&Event::Written(next + 10)) {
            break;
        }
    }
}

#[test]
fn segments_are_prepared_and_sealed_in_the_background() {
    let disk = SimDisk::new(1);
    let journal = start(&disk);
    let (handle, told) = open(&journal, "/a", SyncMode::Periodic { ms: 10 }, 2_000);
    for offset in 0..200 {
        write(&handle, offset..offset + 1);
        told.wait(|event| matches!(event, Event::Written(end) if *end > offset));
    }
    assert!(handle.reader().segments() > 5);
    handle.close().unwrap();
    drop((handle, journal));
    let report = felix_journal::inspect(&disk, Path::new("/a")).unwrap();
    assert_eq!(report.verdict, felix_journal::Verdict::Clean, "{report}");
    assert_eq!(report.records, 200);
    let (_, sealed) = report.segments.split_last().unwrap();
    let good = |segment: &felix_journal::inspect::SegmentReport| {
        segment.seal == felix_journal::inspect::Derived::Good
    };
    assert!(sealed.iter().all(good), "{report}");
}

#[test]
fn many_logs_share_the_threads_and_each_keeps_its_own_order() {
    let disk = SimDisk::new(1);
    let journal = start(&disk);
    let logs: Vec<_> = (0..40)
        .map(|number| open(&journal, &format!("/log-{number}"), SyncMode::None, 1 << 20))
        .collect();
    for offset in 0..50 {
        for (handle, _) in &logs {
            handle.write(batch(offset, 1), Offset(offset + 1));
        }
    }
    for (handle, told) in &logs {
        let events = told.wait(|event| *event == Event::Written(50));
        assert!(
            events
                .iter()
                .all(|event| matches!(event, Event::Written(_))),
            "{events:?}"
        );
        assert_eq!(values(&handle.reader(), Offset(0)), expected(0..50));
    }
    assert_eq!(journal.threads(), 6);
}

#[test]
fn dropping_the_last_handle_and_the_journal_loses_nothing() {
    for drop_journal_first in [true, false] {
        let disk = SimDisk::new(1);
        let journal = start(&disk);
        let (handle, _) = open(&journal, "/a", SyncMode::Periodic { ms: 60_000 }, 2_000);
        write(&handle, 0..100);
        if drop_journal_first {
            drop(journal);
            drop(handle);
        } else {
            drop(handle);
            drop(journal);
        }
        disk.power_cut(1);
        let (log, recovered) =
            Log::open(Arc::new(disk), Path::new("/a"), LogOptions::default()).unwrap();
        assert_eq!((recovered.end, recovered.truncated_bytes), (Offset(100), 0));
        assert_eq!(values(&log.reader(), Offset(0)), expected(0..100));
    }
}

#[test]
fn retention_and_copies_run_beside_the_writes() {
    let disk = SimDisk::new(1);
    let journal = start(&disk);
    let (handle, told) = open(&journal, "/a", SyncMode::OnCommit, 2_000);
    for round in 0..5 {
        write(&handle, round * 40..round * 40 + 40);
        if round == 2 {
            let copied = handle.copy_to(Path::new("/copy"), Offset(100)).unwrap();
            assert_eq!(copied.end, Offset(100));
        }
    }
    told.wait(|event| *event == Event::Flushed(200));
    handle.flush().unwrap();
    let policy = RetentionPolicy {
        max_bytes: Some(4_000),
        max_age_ms: None,
    };
    let start = loop {
        // Segments that are still being sealed wait for a later sweep.
        let start = handle.retain(policy, TimeMs(0), Offset(200)).unwrap();
        if handle.reader().bytes() < 6_000 {
            break start;
        }
    };
    assert_eq!(values(&handle.reader(), start), expected(start.0..200));
}

#[test]
fn a_batch_that_does_not_follow_is_refused_and_not_lost_silently() {
    let disk = SimDisk::new(1);
    let journal = start(&disk);
    let (handle, told) = open(&journal, "/a", SyncMode::None, 1 << 20);
    write(&handle, 0..1);
    handle.write(batch(5, 1), Offset(6));
    told.wait(|event| *event == Event::Failed(1, WriteFailure::Io));
    handle.write(batch(1, 1), Offset(2));
    told.wait(|event| *event == Event::Written(2));
}

/// Keeps the compiler honest about what is shared between threads.
#[test]
fn handles_and_readers_go_to_any_thread() {
    fn any_thread<T: Clone + Send + Sync + 'static>() {}
    any_thread::<LogHandle>();
    any_thread::<felix_journal::LogReader>();
    let _: fn(&LogHandle, Bytes, Offset) = LogHandle::write;
}

#[test]
fn a_directory_has_one_open_log_at_a_time() {
    let disk = SimDisk::new(1);
    let journal = start(&disk);
    let again = |dir: &str| {
        let (options, told) = (LogOptions::default(), Arc::<Told>::default());
        let opened = journal.open_log(
            Path::new(dir),
            options,
            SyncMode::None,
            Arc::new(Listener(told)),
        );
        opened.map(|(handle, recovered)| (handle, recovered.end))
    };
    let (first, _) = again("/log").unwrap();
    write(&first, 0..3);
    let refused = again("/log/").unwrap_err();
    let dir = Path::new("/log").to_owned();
    assert_eq!(refused, OpenRefused::InUse { dir });
    again("/other").unwrap();

    first.close().unwrap();
    let (second, end) = again("/log").unwrap();
    assert_eq!(end, Offset(3));
    // The closed log's last handle takes nothing from the one that is open now.
    drop(first);
    again("/log").unwrap_err();

    // One that is dropped is closed first, with what was queued.
    write(&second, 3..5);
    drop(second);
    assert_eq!(again("/log").unwrap().1, Offset(5));
}

#[test]
fn a_directory_whose_log_was_refused_is_free() {
    let disk = SimDisk::new(1);
    let journal = start(&disk);
    let told = || Arc::new(Listener(Arc::default()));
    let open = |options| journal.open_log(Path::new("/log"), options, SyncMode::None, told());
    disk.fail(disk.calls(), Fault::Io);
    open(LogOptions::default()).map(drop).unwrap_err();
    disk.heal();
    open(LogOptions::default()).unwrap();
}
