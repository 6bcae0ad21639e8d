//! Measures the journal alone: records a second by sync mode, and the longest time a group waited around a roll.
//!
//! `cargo run --release -p felix-journal --example journal_bench [-- <directory> [<seconds> [none|periodic|commit|idle [<logs>]]]]`

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a tool for developers may panic"
)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use felix_journal::{
    Completions, Journal, JournalOptions, LogHandle, LogOptions, RealDisk, RetentionPolicy,
    SyncMode, WriteFailure,
};
use felix_model::{BatchBuilder, BatchOptions, Generation, Offset, TimeMs, patch};

/// What the writers wait for.
#[derive(Default)]
struct Told {
    state: Mutex<State>,
    changed: Condvar,
    failed: AtomicU64,
}

#[derive(Default)]
struct State {
    written: u64,
    flushed: u64,
    waiting: Vec<(u64, Arc<Turnstile>)>,
}

/// Where one client waits for its own record.
#[derive(Default)]
struct Turnstile {
    open: Mutex<bool>,
    changed: Condvar,
}

/// Completions that count in one of the two ways.
struct Count {
    told: Arc<Told>,
    on_flush: bool,
}

impl Count {
    fn reached(&self, end: Offset, flush: bool) {
        let mut state = self.told.state.lock().unwrap();
        if flush {
            state.flushed = end.0;
        } else {
            state.written = end.0;
        }
        if flush != self.on_flush {
            return;
        }
        let mut free = Vec::new();
        state.waiting.retain(|(offset, turnstile)| {
            let wait = *offset > end.0;
            if !wait {
                free.push(Arc::clone(turnstile));
            }
            wait
        });
        drop(state);
        self.told.changed.notify_all();
        for turnstile in free {
            *turnstile.open.lock().unwrap() = true;
            turnstile.changed.notify_one();
        }
    }
}

impl Completions for Count {
    fn written(&self, end: Offset) {
        self.reached(end, false);
    }

    fn flushed(&self, end: Offset) {
        self.reached(end, true);
    }

    fn failed(&self, from: Offset, why: WriteFailure) {
        eprintln!("failed from {from}: {why:?}");
        self.told.failed.fetch_add(1, Ordering::Relaxed);
    }
}

fn template(records: u64, bytes: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    let value = vec![b'x'; bytes];
    for _ in 0..records {
        builder
            .push(1_700_000_000_000, None, Some(&value), &[])
            .unwrap();
    }
    builder.finish().unwrap().to_vec()
}

fn stamped(template: &[u8], base: u64) -> Bytes {
    let mut bytes = template.to_vec();
    patch(&mut bytes, Offset(base), Generation(1));
    Bytes::from(bytes)
}

fn open(journal: &Journal, dir: &Path, sync: SyncMode, told: &Arc<Told>) -> LogHandle {
    let count = Count {
        told: Arc::clone(told),
        on_flush: sync == SyncMode::OnCommit,
    };
    journal
        .open_log(dir, LogOptions::default(), sync, Arc::new(count))
        .unwrap()
        .0
}

/// One producer that keeps at most 1 MiB in the queue, as a broker's budget would.
fn stream(journal: &Journal, dir: &Path, sync: SyncMode, records: u64, seconds: u64) {
    let told = Arc::new(Told::default());
    let handle = open(journal, dir, sync, &told);
    let template = template(records, 256);
    let window = (1024 * 1024 / template.len() as u64).max(1) * records;
    let (start, mut next, mut longest_wait) = (Instant::now(), 0, Duration::ZERO);
    let stop = Arc::new(AtomicBool::new(false));
    let forgetting = std::thread::spawn({
        let (handle, stop) = (handle.clone(), Arc::clone(&stop));
        // The disk of a bench machine is finite.
        let policy = RetentionPolicy {
            max_bytes: Some(2 << 30),
            max_age_ms: None,
        };
        move || {
            while !stop.load(Ordering::Relaxed) {
                handle.retain(policy, TimeMs(0), Offset(u64::MAX)).unwrap();
                std::thread::sleep(Duration::from_millis(500));
            }
        }
    });
    while start.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..64 {
            handle.write(stamped(&template, next), Offset(next + records));
            next += records;
        }
        let waited = Instant::now();
        let mut state = told.state.lock().unwrap();
        while next - state.written.max(state.flushed) > window {
            state = told.changed.wait(state).unwrap();
        }
        drop(state);
        longest_wait = longest_wait.max(waited.elapsed());
    }
    let took = start.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    forgetting.join().unwrap();
    let written = {
        let state = told.state.lock().unwrap();
        state.written.max(state.flushed)
    };
    println!(
        "{:<22} batch {records:>2} x 256 B   {:>9.0} records/s  {:>6.0} MB/s   {} segments   longest wait {:>6.2} ms",
        format!("{sync:?}"),
        written as f64 / took,
        written as f64 / took * template.len() as f64 / records as f64 / 1e6,
        handle.reader().end().0 * template.len() as u64 / records / (256 << 20) + 1,
        longest_wait.as_secs_f64() * 1e3,
    );
    handle.close().unwrap();
}

/// Clients that each write one small batch and wait for it to be durable.
fn clients(journal: &Journal, dir: &Path, clients: usize, records: u64, seconds: u64) {
    let told = Arc::new(Told::default());
    let handle = open(journal, dir, SyncMode::OnCommit, &told);
    let next = Arc::new(Mutex::new(0_u64));
    let template = Arc::new(template(records, 256));
    let start = Instant::now();
    let threads: Vec<_> = (0..clients)
        .map(|_| {
            let (told, handle, next, template) = (
                Arc::clone(&told),
                handle.clone(),
                Arc::clone(&next),
                Arc::clone(&template),
            );
            std::thread::spawn(move || {
                let turnstile = Arc::new(Turnstile::default());
                let mut waits = Vec::new();
                while start.elapsed() < Duration::from_secs(seconds) {
                    let begun = Instant::now();
                    *turnstile.open.lock().unwrap() = false;
                    {
                        let mut next = next.lock().unwrap();
                        let base = *next;
                        *next += records;
                        told.state
                            .lock()
                            .unwrap()
                            .waiting
                            .push((*next, Arc::clone(&turnstile)));
                        handle.write(stamped(&template, base), Offset(*next));
                    }
                    let mut open = turnstile.open.lock().unwrap();
                    while !*open {
                        open = turnstile.changed.wait(open).unwrap();
                    }
                    drop(open);
                    waits.push(begun.elapsed());
                }
                waits
            })
        })
        .collect();
    let mut waits: Vec<Duration> = threads
        .into_iter()
        .flat_map(|thread| thread.join().unwrap())
        .collect();
    waits.sort_unstable();
    let took = start.elapsed().as_secs_f64();
    let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    println!(
        "OnCommit  {clients:>3} clients   batch {records:>2} x 256 B   {:>9.0} records/s   p50 {:>5.0} us  p99 {:>5.0} us  max {:>6.0} us",
        waits.len() as f64 * records as f64 / took,
        at(0.5),
        at(0.99),
        at(1.0),
    );
    handle.close().unwrap();
}

/// What ten thousand idle logs cost.
fn idle(journal: &Journal, dir: &Path, logs: usize) {
    let told = Arc::new(Told::default());
    let before = resident();
    let start = Instant::now();
    let handles: Vec<LogHandle> = (0..logs)
        .map(|number| {
            open(
                journal,
                &dir.join(number.to_string()),
                SyncMode::Periodic { ms: 250 },
                &told,
            )
        })
        .collect();
    let opened = start.elapsed();
    let each = resident().saturating_sub(before) / logs as u64;
    println!(
        "{logs} idle logs: {each} bytes each, {} files open, {} threads, created in {:.2} s",
        std::fs::read_dir("/proc/self/fd").unwrap().count(),
        journal.threads(),
        opened.as_secs_f64(),
    );
    drop(handles);
}

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * 4096
}

/// The longest time this machine keeps a thread that only looks at the clock from running: what no journal can beat.
fn pause_of_the_machine(seconds: u64) -> Duration {
    let (start, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
    while start.elapsed() < Duration::from_secs(seconds) {
        let now = Instant::now();
        longest = longest.max(now - last);
        last = now;
    }
    longest
}

fn main() {
    let pause = pause_of_the_machine(2);
    println!(
        "longest pause of this machine without any journal: {:.2} ms",
        pause.as_secs_f64() * 1e3
    );
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = arguments
        .first()
        .map_or_else(|| PathBuf::from("/tmp/journal-bench"), PathBuf::from);
    let seconds = arguments.get(1).map_or(5, |text| text.parse().unwrap());
    let only = arguments.get(2).cloned().unwrap_or_default();
    felix_journal::durable::create_dirs(&RealDisk, &root).unwrap();
    let run = tempfile::tempdir_in(&root).unwrap();
    let journal =
        Journal::start(Arc::new(RealDisk), run.path(), JournalOptions::default()).unwrap();
    let dir = |name: &str| run.path().join(name);
    let wanted = |name: &str| only.is_empty() || only == name;
    if wanted("none") {
        stream(&journal, &dir("n16"), SyncMode::None, 16, seconds);
        stream(&journal, &dir("n64"), SyncMode::None, 64, seconds);
        stream(&journal, &dir("n1"), SyncMode::None, 1, seconds);
    }
    if wanted("periodic") {
        stream(
            &journal,
            &dir("p16"),
            SyncMode::Periodic { ms: 250 },
            16,
            seconds,
        );
        stream(
            &journal,
            &dir("p64"),
            SyncMode::Periodic { ms: 250 },
            64,
            seconds,
        );
    }
    if wanted("commit") {
        for count in [1, 8, 64] {
            clients(&journal, &dir(&format!("c{count}")), count, 1, seconds);
        }
        clients(&journal, &dir("c64x16"), 64, 16, seconds);
    }
    if wanted("idle") {
        let logs = arguments
            .get(3)
            .map_or(10_000, |text| text.parse().unwrap());
        idle(&journal, &dir("idle"), logs);
    }
}
