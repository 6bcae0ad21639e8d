//! The network paths of open connections, for two metrics: how large datagrams are, and how often a path was taken for
//! narrower than it is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quinn::Connection;

/// The connections that are open now: as many as the limit on connections allows.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    connections: BTreeMap<u64, Connection>,
    /// Black holes of connections that are gone.
    black_holes: u64,
}

/// An open connection's entry; dropped with it.
#[derive(Debug)]
pub(crate) struct OpenPath {
    paths: Arc<Paths>,
    id: u64,
}

/// What the paths look like together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measured {
    /// The smallest current datagram size over open connections; 0 without one.
    pub(crate) mtu_bytes: u64,
    /// Times that a path was taken for a black hole for large datagrams, since the broker started.
    pub(crate) black_holes: u64,
}

impl Paths {
    /// Counts a connection in until the answer is dropped.
    pub(crate) fn enter(self: &Arc<Self>, id: u64, connection: Connection) -> OpenPath {
        self.lock().connections.insert(id, connection);
        OpenPath {
            paths: Arc::clone(self),
            id,
        }
    }

    /// Looks at every open connection.
    pub(crate) fn measure(&self) -> Measured {
        let open = self.lock();
        let mut measured = Measured {
            mtu_bytes: 0,
            black_holes: open.black_holes,
        };
        let mut smallest = None;
        for connection in open.connections.values() {
            let path = connection.stats().path;
            smallest =
                Some(smallest.map_or(path.current_mtu, |least: u16| least.min(path.current_mtu)));
            measured.black_holes += path.black_holes_detected;
        }
        measured.mtu_bytes = smallest.map_or(0, u64::from);
        measured
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenPath {
    fn drop(&mut self) {
        let mut open = self.paths.lock();
        if let Some(connection) = open.connections.remove(&self.id) {
            open.black_holes += connection.stats().path.black_holes_detected;
        }
    }
}
