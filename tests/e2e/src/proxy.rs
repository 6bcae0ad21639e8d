//! A path between a client and a node that loses datagrams.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// Largest datagram there can be.
const DATAGRAM_BYTES_MAX: usize = 65_535;

/// What a path asks of the kernel, so that it loses only what it is meant to lose.
const BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// Passes datagrams on in both directions, all but a share of them, chosen by a seed. Ends when dropped.
#[derive(Debug)]
pub struct LossyPath {
    address: SocketAddr,
    seen: Arc<[Direction; 2]>,
    task: JoinHandle<()>,
}

/// What went one way.
#[derive(Debug, Default)]
struct Direction {
    bytes: AtomicU64,
    /// Bytes in datagrams that are larger than what every path carries.
    large_bytes: AtomicU64,
    lost: AtomicU64,
    random: AtomicU64,
}

/// What went one way since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Bytes that came in.
    pub bytes: u64,
    /// Those of them in datagrams of more than 1,300 bytes.
    pub large_bytes: u64,
    /// Datagrams that were lost here.
    pub lost: u64,
}

impl Direction {
    /// Counts a datagram; `false` when it is lost.
    fn passes(&self, length: usize, lost_of_thousand: u64) -> bool {
        let length = length as u64;
        self.bytes.fetch_add(length, Ordering::Relaxed);
        if length > 1_300 {
            self.large_bytes.fetch_add(length, Ordering::Relaxed);
        }
        let mut mixed = self
            .random
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        if mixed % 1_000 < lost_of_thousand {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    fn take(&self) -> Passed {
        Passed {
            bytes: self.bytes.swap(0, Ordering::Relaxed),
            large_bytes: self.large_bytes.swap(0, Ordering::Relaxed),
            lost: self.lost.swap(0, Ordering::Relaxed),
        }
    }
}

impl LossyPath {
    /// Opens a path to `node`.
    ///
    /// # Errors
    /// When there is no socket.
    pub async fn open(node: SocketAddr, lost_of_thousand: u64, seed: u64) -> std::io::Result<Self> {
        let front = Arc::new(socket()?);
        let address = front.local_addr()?;
        let seen: Arc<[Direction; 2]> = Arc::default();
        for (direction, apart) in seen.iter().zip(0..) {
            direction.random.store(seed + apart, Ordering::Relaxed);
        }
        let task = tokio::spawn(forward(front, node, lost_of_thousand, Arc::clone(&seen)));
        Ok(Self {
            address,
            seen,
            task,
        })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What went to the node, and what came from it, since the last call.
    pub fn passed(&self) -> [Passed; 2] {
        let [there, back] = &*self.seen;
        [there.take(), back.take()]
    }
}

impl Drop for LossyPath {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn socket() -> std::io::Result<UdpSocket> {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    // With less than asked for, a few more are lost.
    let _ = socket2::SockRef::from(&socket).set_recv_buffer_size(BUFFER_BYTES);
    UdpSocket::from_std(socket)
}

/// A socket of its own for every client, so that the node can tell them apart.
type Clients = Mutex<HashMap<SocketAddr, Arc<UdpSocket>>>;

async fn forward(
    front: Arc<UdpSocket>,
    node: SocketAddr,
    lost_of_thousand: u64,
    seen: Arc<[Direction; 2]>,
) {
    let clients = Clients::default();
    let mut backs = tokio::task::JoinSet::new();
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let Ok((length, client)) = front.recv_from(&mut buffer).await else {
            continue;
        };
        let known = clients
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&client)
            .cloned();
        let back = match known {
            Some(back) => back,
            None => {
                let Ok(back) = socket() else { return };
                let back = Arc::new(back);
                clients
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(client, Arc::clone(&back));
                backs.spawn(return_to(
                    client,
                    Arc::clone(&back),
                    Arc::clone(&front),
                    lost_of_thousand,
                    Arc::clone(&seen),
                ));
                back
            }
        };
        let [there, _] = &*seen;
        if there.passes(length, lost_of_thousand)
            && let Some(datagram) = buffer.get(..length)
        {
            // A datagram that cannot be sent is lost, as on any path.
            let _ = back.send_to(datagram, node).await;
        }
    }
}

async fn return_to(
    client: SocketAddr,
    from_node: Arc<UdpSocket>,
    front: Arc<UdpSocket>,
    lost_of_thousand: u64,
    seen: Arc<[Direction; 2]>,
) {
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let Ok(length) = from_node.recv(&mut buffer).await else {
            continue;
        };
        let [_, back] = &*seen;
        if back.passes(length, lost_of_thousand)
            && let Some(datagram) = buffer.get(..length)
        {
            let _ = front.send_to(datagram, client).await;
        }
    }
}
