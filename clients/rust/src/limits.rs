//! Bounds that nobody turns: each with the reason for its value.

use std::time::Duration;

/// The connection dies when nothing is heard for this long. Three keep-alives may be lost.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_millis(6_000);

/// A ping goes out after this much silence.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_millis(2_000);

/// Datagram size that every path carries; discovery starts here when the broker is not on this machine.
pub(crate) const DATAGRAM_BYTES_MIN: u16 = 1_200;

/// Largest datagram sent or accepted. Ten of them fit one segmentation-offload send (65,535 bytes), and larger
/// ones were measured to be no faster.
pub(crate) const DATAGRAM_BYTES_MAX: u16 = 4_096;

/// How long datagrams stay small after loss was taken for a path that swallows large ones: it is mostly ordinary
/// loss, and a bulk transfer should not go on in small datagrams.
pub(crate) const BLACK_HOLE_COOLDOWN: Duration = Duration::from_secs(2);

/// Kernel buffers asked for; the kernel grants what `net.core.{r,w}mem_max` allows.
pub(crate) const UDP_BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// Streams the broker may open: one per subscription.
pub(crate) const BROKER_STREAMS_MAX: u32 = 4_096;

/// What may be written to one connection and not be acknowledged by its transport yet.
pub(crate) const SEND_WINDOW_BYTES: u64 = 16 * 1024 * 1024;

/// Unread bytes a subscription may have in this process before the broker has to wait. Covers a path of
/// 100 ms at 40 MB/s.
pub(crate) const SUBSCRIPTION_WINDOW_BYTES: u32 = 4 * 1024 * 1024;

/// Payload bytes that may be published and not answered yet, per connection.
pub(crate) const INFLIGHT_BYTES: u32 = 4 * 1024 * 1024;

/// Publishes that may be unanswered on one stream when the broker grants no window of its own.
pub(crate) const PUBLISH_WINDOW: u32 = 1_024;

/// Batches an idempotent producer may have unanswered per shard: as many as a broker remembers.
pub(crate) const PRODUCER_WINDOW: u32 = 64;

/// Frames collected for a busy stream are written once they are this many bytes.
pub(crate) const COALESCE_BYTES: usize = 64 * 1024;

/// Payloads below this size are copied beside their frame's head: the transport walks its chunks for every
/// datagram, so a short copy is cheaper than another chunk.
pub(crate) const COPY_BYTES_MAX: usize = 2 * 1024;

/// Block in which frame heads and short payloads are collected.
pub(crate) const SCRATCH_BYTES: usize = 16 * 1024;

/// Chunks taken from the transport under one lock.
pub(crate) const CHUNKS_PER_READ: usize = 32;

/// First allocation for a frame that arrives in pieces; it grows with what really arrives, so that a length
/// field alone takes no memory.
pub(crate) const FRAME_FIRST_BYTES: usize = 64 * 1024;

/// A broker-opened stream that has not said which subscription it belongs to is dropped after this long.
pub(crate) const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Event streams that may wait for their subscription's answer; the two are in flight at once.
pub(crate) const UNCLAIMED_STREAMS_MAX: usize = BROKER_STREAMS_MAX as usize;

/// Redirects followed for one request.
pub(crate) const HOPS_MAX: usize = 3;

/// A provider that takes longer than this fails those who wait for it; its late answer is still used.
pub(crate) const TOKEN_TIMEOUT: Duration = Duration::from_secs(30);

/// After a failed fetch the held token is used for this long before the provider is asked again.
pub(crate) const TOKEN_RETRY_MS: u64 = 5_000;

/// How long [`close`](crate::Client::close) waits for publishes that are still unanswered.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long `close` waits until the broker has heard that the connection is gone.
pub(crate) const GOODBYE_TIMEOUT: Duration = Duration::from_millis(500);

/// The width and routing of a stream are asked for again after this long.
pub(crate) const WIDTH_TTL: Duration = Duration::from_secs(5);

/// Calls that may be unanswered on one connection. Below what a broker allows, so that it is this client that waits.
pub(crate) const CALLS_UNANSWERED: usize = 2_048;

/// Bytes of calls that may be unanswered on one connection.
pub(crate) const CALL_BYTES: u32 = 16 * 1024 * 1024;

/// Changes that may wait for a watcher, per watch. Then the broker waits, as for a slow subscription.
pub(crate) const CHANGES_WAITING: usize = 1_024;
