//! Keys: caches, counters, watches, and the state of entities that commits keep.

mod cache;
mod commit;
mod counter;
mod schedule;
mod watch;

use felix_wire::publish::Names;

pub use self::cache::{Cache, CachePage, Condition, Entry, KeyEntry, ListOptions};
pub use self::commit::{Commit, Committed, State, StateEntry, StateRead};
pub use self::counter::{Added, Counter};
pub(crate) use self::schedule::headers;
pub use self::schedule::{Schedule, ScheduledRecord, Waiting};
pub use self::watch::{Change, Watch, WatchFrom, WatchSignal, Watched};
use crate::client::Client;
use crate::error::CallFailed;

impl Client {
    /// The names of an object of this client's namespace as they stand in a frame. Caches are named like streams.
    pub(crate) fn object(&self, name: &str) -> Result<Names, CallFailed> {
        let target = self.named(name)?;
        let (tenant, namespace, name) = target.strings();
        Names::new(&tenant, &namespace, &name).map_err(|error| CallFailed::Protocol {
            what: error.to_string(),
        })
    }
}

/// What a call that cannot be written is reported as.
pub(crate) fn unsendable(error: impl std::fmt::Display) -> CallFailed {
    let failure = felix_wire::Failure::new(felix_wire::Code::InvalidRequest, error.to_string());
    CallFailed::Refused(failure.with_reason("too_large").into())
}
