//! Making the disk fail where it hurts: at a call of some kind, some calls from now.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use felix_journal::SimDisk;
use felix_journal::disk::{Call, CallKind, Fault};

use crate::random::Random;

/// Waits at the disk and makes calls fail.
#[derive(Clone)]
pub(crate) struct Injector {
    disk: SimDisk,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    arms: Vec<Arm>,
    has_stopped: bool,
    done: BTreeMap<(CallKind, FaultName), u64>,
}

/// The name of a fault, to be counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultName {
    /// An input/output error.
    Io,
    /// No space left.
    Full,
    /// The machine, or the process, stops in the middle of the call.
    Stop,
}

/// A fault that waits for its call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arm {
    /// At calls of this kind; at any that changes something when none is given.
    pub(crate) kind: Option<CallKind>,
    /// How many such calls are let through.
    pub(crate) skip: u64,
    pub(crate) fault: Fault,
}

impl fmt::Debug for Injector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Injector").finish_non_exhaustive()
    }
}

impl Injector {
    pub(crate) fn new(disk: &SimDisk) -> Self {
        let injector = Self {
            disk: disk.clone(),
            state: Arc::default(),
        };
        let hooked = injector.clone();
        disk.set_hook(Some(Arc::new(move |call| hooked.see(call))));
        injector
    }

    /// The disk holds the hook and the hook the disk: this lets both go.
    pub(crate) fn leave(&self) {
        self.disk.set_hook(None);
    }

    pub(crate) fn arm(&self, arm: Arm) {
        self.lock().arms.push(arm);
    }

    /// The machine will stop in the middle of a call, not many from now.
    pub(crate) fn arm_stop(&self, random: &mut Random, calls_max: u64) {
        let kind = random.pick([
            None,
            None,
            None,
            Some(CallKind::Write),
            Some(CallKind::Sync),
            Some(CallKind::SyncDir),
            Some(CallKind::Rename),
            Some(CallKind::Unlink),
            Some(CallKind::SetLen),
        ]);
        self.arm(Arm {
            kind,
            skip: random.below(calls_max),
            fault: Fault::Crash,
        });
    }

    /// Forgets the faults that did not happen yet.
    pub(crate) fn heal(&self) {
        self.lock().arms.clear();
        self.disk.heal();
    }

    /// Whether a fault stopped the machine.
    pub(crate) fn has_stopped(&self) -> bool {
        self.lock().has_stopped
    }

    /// The machine runs again, without any fault that was waiting to stop it.
    pub(crate) fn restart(&self) {
        let mut state = self.lock();
        state.has_stopped = false;
        state.arms.retain(|arm| arm.fault != Fault::Crash);
    }

    /// Faults that happened, by call and kind.
    pub(crate) fn done(&self) -> BTreeMap<(CallKind, FaultName), u64> {
        self.lock().done.clone()
    }

    fn see(&self, call: &Call) {
        if !call.kind.changes() {
            return;
        }
        let mut state = self.lock();
        if state.has_stopped {
            return;
        }
        let mut due = None;
        for (index, arm) in state.arms.iter_mut().enumerate() {
            if arm.kind.is_some_and(|kind| kind != call.kind) {
                continue;
            }
            match arm.skip.checked_sub(1) {
                Some(left) => arm.skip = left,
                None => due = due.or(Some(index)),
            }
        }
        let Some(index) = due else { return };
        let fault = state.arms.remove(index).fault;
        let name = match fault {
            Fault::Io => FaultName::Io,
            Fault::Full => FaultName::Full,
            Fault::Crash => FaultName::Stop,
        };
        *state.done.entry((call.kind, name)).or_default() += 1;
        state.has_stopped |= fault == Fault::Crash;
        drop(state);
        self.disk.fail(call.number, fault);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
