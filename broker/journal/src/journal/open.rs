//! Which directories have an open log, so that none is ever written by two.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::log::OpenRefused;

/// The directories of the logs that are open.
#[derive(Debug, Default)]
pub(super) struct OpenDirs {
    dirs: Mutex<HashMap<PathBuf, State>>,
    released: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Its handles are gone, and it is closed in the background.
    Closing,
}

/// A directory that nobody else may open a log in. Dropped, others may.
#[derive(Debug)]
pub(super) struct Claim {
    dir: PathBuf,
    open: Arc<OpenDirs>,
}

impl OpenDirs {
    /// Claims a directory. One whose log is only being closed is waited for.
    pub(super) fn claim(self: &Arc<Self>, dir: &Path) -> Result<Claim, OpenRefused> {
        let mut dirs = self.dirs();
        loop {
            match dirs.get(dir) {
                Some(State::Open) => {
                    return Err(OpenRefused::InUse {
                        dir: dir.to_owned(),
                    });
                }
                Some(State::Closing) => {
                    let released = self.released.wait(dirs);
                    dirs = released.unwrap_or_else(PoisonError::into_inner);
                }
                None => break,
            }
        }
        dirs.insert(dir.to_owned(), State::Open);
        Ok(Claim {
            dir: dir.to_owned(),
            open: Arc::clone(self),
        })
    }

    fn dirs(&self) -> MutexGuard<'_, HashMap<PathBuf, State>> {
        self.dirs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claim {
    /// The log's last handle is gone: it is closed soon, and opening it again is only a matter of waiting.
    pub(super) fn closing(&self) {
        if let Some(state) = self.open.dirs().get_mut(&self.dir) {
            *state = State::Closing;
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.open.dirs().remove(&self.dir);
        self.open.released.notify_all();
    }
}
