//! The two queues of the pool: logs that have something to write, and chores that have a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// First come, first served, for several threads.
///
/// One idle thread at a time looks a little longer before it sleeps: a write that comes right after another then costs
/// no wakeup, which on a loaded machine is most of its latency.
#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    ready: Condvar,
    /// How many items there are, to look without the lock.
    waiting: AtomicUsize,
    looking: AtomicBool,
    stopped: AtomicBool,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    sleeping: usize,
}

/// How long the one idle thread looks before it sleeps. About what a wakeup costs.
const LOOK: Duration = Duration::from_micros(20);

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                items: VecDeque::new(),
                sleeping: 0,
            }),
            ready: Condvar::new(),
            waiting: AtomicUsize::new(0),
            looking: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    pub(super) fn push(&self, item: T) {
        let mut state = self.lock();
        state.items.push_back(item);
        self.waiting.store(state.items.len(), Ordering::Release);
        // A thread that is looking takes it sooner than one that would have to wake up.
        let wake =
            state.sleeping > 0 && (state.items.len() > 1 || !self.looking.load(Ordering::Acquire));
        drop(state);
        if wake {
            self.ready.notify_one();
        }
    }

    /// The next item; waits for one. None once the queue is stopped and empty.
    pub(super) fn pop(&self) -> Option<T> {
        loop {
            if let Some(item) = self.try_pop() {
                return Some(item);
            }
            self.look();
            let mut state = self.lock();
            while state.items.is_empty() {
                if self.stopped.load(Ordering::Acquire) {
                    return None;
                }
                state.sleeping += 1;
                state = self
                    .ready
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                state.sleeping -= 1;
            }
        }
    }

    fn try_pop(&self) -> Option<T> {
        let mut state = self.lock();
        let item = state.items.pop_front();
        self.waiting.store(state.items.len(), Ordering::Release);
        item
    }

    fn look(&self) {
        if self.looking.swap(true, Ordering::AcqRel) {
            return;
        }
        let until = Instant::now() + LOOK;
        while self.waiting.load(Ordering::Acquire) == 0 && Instant::now() < until {
            std::hint::spin_loop();
        }
        self.looking.store(false, Ordering::Release);
    }

    /// Lets the threads go once the queue is empty.
    pub(super) fn stop(&self) {
        let _state = self.lock();
        self.stopped.store(true, Ordering::Release);
        self.ready.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // The deque is whole between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Work that is due at a time.
#[derive(Debug)]
pub(super) struct Agenda<T> {
    state: Mutex<Due<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct Due<T> {
    items: BTreeMap<(Instant, u64), T>,
    count: u64,
    stopped: bool,
}

impl<T> Agenda<T> {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(Due {
                items: BTreeMap::new(),
                count: 0,
                stopped: false,
            }),
            changed: Condvar::new(),
        }
    }

    pub(super) fn push(&self, due: Instant, item: T) {
        let mut state = self.lock();
        let count = state.count;
        state.count += 1;
        state.items.insert((due, count), item);
        let first = state
            .items
            .keys()
            .next()
            .is_some_and(|(_, first)| *first == count);
        drop(state);
        if first {
            self.changed.notify_one();
        }
    }

    /// The next item whose time has come; waits for it. Once the agenda is stopped, everything left is due, then none.
    pub(super) fn pop(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            let next = state.items.keys().next().copied();
            let Some(key) = next else {
                if state.stopped {
                    return None;
                }
                state = self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let wait = key.0.saturating_duration_since(Instant::now());
            if wait.is_zero() || state.stopped {
                let item = state.items.remove(&key);
                if !state.items.is_empty() {
                    // Another thread may sleep until a later time than what is first now.
                    self.changed.notify_one();
                }
                return item;
            }
            state = self
                .changed
                .wait_timeout(state, wait)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Makes everything due and lets the threads go once nothing is left.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    fn lock(&self) -> MutexGuard<'_, Due<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
