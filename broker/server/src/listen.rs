//! Accepts client connections, within the limits on how many there may be.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use felix_process::Slots;
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
                // A mapped address counts as the address it maps.
                remote.ip().to_canonical(),
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
