//! Accepts client connections, within the limits on how many there may be.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quinn::{Endpoint, Incoming};
use socket2::{Domain, Protocol, Socket, Type};
use tokio_util::task::TaskTracker;

use crate::broker::Shared;
use crate::conn;
use crate::limits::AUTHENTICATION_TIMEOUT;
use crate::tls::{self, ServerConfigs};

/// What the kernel is asked to buffer per direction; it grants at most its own maximum.
const SOCKET_BUFFER_BYTES: usize = 8 * 1024 * 1024;

/// Opens the UDP socket and the endpoint on it.
///
/// # Errors
/// When the address is taken or not ours.
pub(crate) fn open(listen: SocketAddr, configs: &ServerConfigs) -> std::io::Result<Endpoint> {
    let socket = Socket::new(
        Domain::for_address(listen),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    if listen.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // A smaller buffer than asked for costs throughput, not correctness.
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER_BYTES);
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
    socket.bind(&listen.into())?;
    Endpoint::new(
        tls::endpoint_config(),
        Some(configs.default_config()),
        socket.into(),
        Arc::new(quinn::TokioRuntime),
    )
}

/// Takes connections until the endpoint is closed.
pub(crate) async fn accept(
    endpoint: Endpoint,
    configs: Arc<ServerConfigs>,
    shared: Arc<Shared>,
    tasks: TaskTracker,
) {
    let slots = Arc::new(Slots::default());
    let next_id = AtomicU64::new(1);
    while let Some(incoming) = endpoint.accept().await {
        let remote = incoming.remote_address();
        let taken = if shared.draining() {
            None
        } else {
            slots.take(
                remote.ip(),
                shared.config.connections,
                shared.config.connections_per_ip,
            )
        };
        let Some(slot) = taken else {
            shared.metrics.connections_refused.increment(1);
            incoming.refuse();
            continue;
        };
        let id = next_id.fetch_add(1, Ordering::Relaxed);
        let config = configs.for_peer(remote.ip());
        let shared = Arc::clone(&shared);
        tasks.spawn(async move {
            shake_hands(incoming, config, id, shared).await;
            drop(slot);
        });
    }
}

async fn shake_hands(
    incoming: Incoming,
    config: Arc<quinn::ServerConfig>,
    id: u64,
    shared: Arc<Shared>,
) {
    let handshake = async { incoming.accept_with(config)?.await };
    match tokio::time::timeout(AUTHENTICATION_TIMEOUT, handshake).await {
        Ok(Ok(connection)) => {
            shared.metrics.connections_total.increment(1);
            shared.metrics.connections.increment(1.0);
            let _open = shared.paths.enter(id, connection.clone());
            conn::serve(connection, id, Arc::clone(&shared)).await;
            shared.metrics.connections.decrement(1.0);
        }
        Ok(Err(error)) => {
            shared.metrics.handshake_failures.increment(1);
            tracing::debug!(%error, "a handshake failed");
        }
        Err(_) => shared.metrics.handshake_failures.increment(1),
    }
}

/// Counts connections in total and per address.
#[derive(Debug, Default)]
struct Slots {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    total: usize,
    by_ip: HashMap<IpAddr, usize>,
}

/// One connection's place; given back when dropped.
#[derive(Debug)]
struct Slot {
    slots: Arc<Slots>,
    ip: IpAddr,
}

impl Slots {
    fn take(self: &Arc<Self>, ip: IpAddr, total_max: usize, per_ip_max: usize) -> Option<Slot> {
        let ip = ip.to_canonical();
        let mut open = self.lock();
        let here = open.by_ip.get(&ip).copied().unwrap_or(0);
        if open.total >= total_max || here >= per_ip_max {
            return None;
        }
        open.total += 1;
        open.by_ip.insert(ip, here + 1);
        Some(Slot {
            slots: Arc::clone(self),
            ip,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut open = self.slots.lock();
        open.total -= 1;
        if let Some(here) = open.by_ip.get_mut(&self.ip) {
            *here -= 1;
            if *here == 0 {
                open.by_ip.remove(&self.ip);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_take_every_place() {
        let slots = Arc::new(Slots::default());
        let (near, far) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        let first = slots.take(near, 3, 2);
        let second = slots.take(near, 3, 2);
        assert!(first.is_some() && second.is_some());
        assert!(slots.take(near, 3, 2).is_none());
        let third = slots.take(far, 3, 2);
        assert!(third.is_some());
        assert!(slots.take(far, 3, 2).is_none(), "the total is reached");
        drop(first);
        assert!(slots.take(near, 3, 2).is_some());
    }

    #[test]
    fn a_mapped_address_counts_as_the_address_it_maps() {
        let slots = Arc::new(Slots::default());
        let mapped = IpAddr::from(std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped());
        let held = slots.take(mapped, 9, 1);
        assert!(held.is_some());
        assert!(slots.take(IpAddr::from([127, 0, 0, 1]), 9, 1).is_none());
    }
}
