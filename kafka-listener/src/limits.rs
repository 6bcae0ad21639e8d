//! Bounds that nobody turns: each with the reason for its value.

use std::time::Duration;

/// Frame that is read before a connection authenticated. A token of 16 KiB and its framing fit many times.
pub(crate) const FRAME_BYTES_BEFORE_AUTH: usize = 64 * 1024;

/// Largest frame of an authenticated connection: what librdkafka and the Java client send at most by themselves
/// (`socket.request.max.bytes` of Kafka).
pub(crate) const FRAME_BYTES_MAX: usize = 100 * 1024 * 1024;

/// Largest frame of a request that carries no records: 100,000 partitions of an offset commit fit.
pub(crate) const CONTROL_FRAME_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Elements of all arrays of one request together. A fetch of 50,000 partitions has half of it.
pub(crate) const ELEMENTS_PER_REQUEST_MAX: usize = 100_000;

/// Partitions in one answer that names them all, about 200 bytes of memory each. A broker is built for 10,000 shards.
pub(crate) const ANSWER_PARTITIONS_MAX: usize = 100_000;

/// Parts of one request, its topics or groups, that are asked for at the same time.
pub(crate) const GATHERED_AT_ONCE: usize = 64;

/// Requests of one connection that are not answered yet. librdkafka has a million by default and a handful in fact.
pub(crate) const UNANSWERED_MAX: usize = 64;

/// Answers of one connection that wait to be sent, or for those before them, in bytes, before no more is read from it
/// and nothing more begins.
pub(crate) const UNSENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Room that is made ahead of what a connection sends. A frame takes memory as its bytes come in.
pub(crate) const READ_AHEAD_BYTES: usize = 64 * 1024;

/// A frame must be whole this long after its first byte, and after room for it was had, beside what it may take for its
/// length.
pub(crate) const FRAME_TIMEOUT: Duration = Duration::from_secs(30);

/// Slowest that a long frame may come in: two megabits a second. The largest one has seven minutes.
pub(crate) const FRAME_BYTES_PER_SECOND_MIN: usize = 256 * 1024;

/// An answer must make way for this long at most before the connection is given up.
pub(crate) const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// What a client sent before it ended its side is carried out for this long.
pub(crate) const LEFT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection on which nothing happens is closed after this long, as Kafka does (`connections.max.idle.ms`).
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// Client connections in total; more are closed at once. What they may make the listener hold is bounded by itself
/// (`inflight_bytes`), so this guards descriptors alone, of which there is one for each.
pub(crate) const CONNECTIONS_MAX: usize = 8_192;

/// TLS handshake and authentication must be done after this long.
pub(crate) const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(10);

/// A refused login is answered after this long, so that guessing is slow.
pub(crate) const REFUSED_LOGIN_PAUSE: Duration = Duration::from_millis(100);

/// Sessions of fetches that are remembered, over all connections. A fetch without one names all its partitions each time.
pub(crate) const FETCH_SESSIONS_MAX: usize = 2_000;

/// Of them those of one tenant.
pub(crate) const FETCH_SESSIONS_PER_TENANT_MAX: usize = 1_000;

/// Partitions of all fetch sessions together, about 300 bytes each, and of those of one tenant.
pub(crate) const FETCH_SESSIONS_PARTITIONS_MAX: usize = 400_000;
pub(crate) const FETCH_SESSIONS_PARTITIONS_PER_TENANT_MAX: usize = 200_000;

/// A fetch session that was not used for so long goes when another one needs its room, as Kafka does
/// (`min.incremental.fetch.session.eviction.ms`).
pub(crate) const FETCH_SESSION_IDLE: Duration = Duration::from_secs(120);

/// Partitions of one fetch session. Without a session a fetch names them all each time.
pub(crate) const FETCH_SESSION_PARTITIONS_MAX: usize = 10_000;

/// Longest that a fetch waits. Clients ask for half a second; what waits holds an answer back.
pub(crate) const FETCH_WAIT_MAX: Duration = Duration::from_secs(30);

/// Bytes of one fetch answer, below what the native protocol carries in one frame.
pub(crate) const FETCH_BYTES_MAX: u32 = 15 * 1024 * 1024;

/// Largest record batch (`max.message.bytes` of Kafka).
pub(crate) const BATCH_BYTES_MAX: usize = 1_048_588;

/// Largest batch of a stream that allows larger records, below what the native protocol carries in one frame.
pub(crate) const BATCH_BYTES_CEILING: usize = 15 * 1024 * 1024;

/// Longest answer to a login, either way.
pub(crate) const SASL_BYTES_MAX: usize = 32 * 1024;

/// Bytes of an offset's metadata (`offset.metadata.max.bytes` of Kafka).
pub(crate) const OFFSET_METADATA_BYTES_MAX: usize = 4096;

/// Logins whose connections to brokers are kept for others with the same token.
pub(crate) const LOGINS_SHARED_MAX: usize = 8192;

/// A name that nobody knows is not asked for again for this long.
pub(crate) const UNKNOWN_NAME_TTL: Duration = Duration::from_secs(1);

/// Distinct unknown names that are remembered.
pub(crate) const UNKNOWN_NAMES_MAX: usize = 10_000;

/// How long a listener that stops waits for accepted requests to be answered.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(25);

/// Longest that a refused quota is told to wait.
pub(crate) const THROTTLE_MAX: Duration = Duration::from_secs(30);

/// Longest life of a login before it must be renewed, whatever its token says.
pub(crate) const LOGIN_LIFE_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// How often a certificate on disk is looked at.
pub(crate) const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(30);

/// Partitions of a topic that is made without saying how many.
pub(crate) const PARTITIONS_DEFAULT: u32 = 1;

/// Streams whose names are kept encoded for one login.
pub(crate) const STREAMS_KEPT_MAX: usize = 4096;
