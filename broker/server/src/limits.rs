//! Bounds that nobody turns: each with the reason for its value.

use std::time::Duration;

/// Longest ClientHello that is collected before a TLS configuration is chosen. Ordinary ones with post-quantum
/// key shares take under 2 KiB.
pub(crate) const CLIENT_HELLO_BYTES_MAX: usize = 64 * 1024;

/// Streams of one connection that may be read at once before they authenticated.
pub(crate) const UNAUTHENTICATED_STREAMS_MAX: usize = 16;

/// A connection on which no stream authenticated is closed after this long.
pub(crate) const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Bidirectional and unidirectional streams a client may have open. The published client opens 41 at start and
/// one per outstanding request after that.
pub(crate) const CLIENT_STREAMS_MAX: u32 = 1024;

/// Bidirectional streams that a client may have open at first. The transport keeps room for every stream that may come, so
/// a connection gets more, up to [`CLIENT_STREAMS_MAX`], when it uses a quarter of what it has. Together with the unidirectional
/// ones, as many as its smallest table holds.
pub(crate) const CLIENT_STREAMS_FIRST: u32 = 12;

/// The same for unidirectional streams, of which a client needs one at most.
pub(crate) const CLIENT_UNI_STREAMS_FIRST: u32 = 2;

/// Receive windows: at least one frame of the largest size.
pub(crate) const RECEIVE_WINDOW_BYTES: u32 = 16 * 1024 * 1024;

/// What may be sent to one connection and not be acknowledged by its transport yet.
pub(crate) const SEND_WINDOW_BYTES: u64 = 32 * 1024 * 1024;

/// The connection dies when nothing is heard for this long.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_millis(6_000);

/// A ping goes out after this much silence.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_millis(2_000);

/// Unanswered acknowledged publishes on one stream.
pub(crate) const PUBLISH_WINDOW: u32 = 256;

/// Calls on one stream whose replies have not left yet. Deep enough for a client of many threads; beyond it the
/// stream is not read, so that a client that does not read its replies cannot pile them up.
pub(crate) const CALLS_UNANSWERED_MAX: usize = 4096;

/// Subscriptions on one connection.
pub(crate) const SUBSCRIPTIONS_PER_CONNECTION_MAX: usize = 4096;

/// Bytes a subscription takes from its shard in one pull: large enough to fill several datagram trains, small
/// enough that ten thousand subscriptions stay bounded.
pub(crate) const PULL_BYTES: u32 = 256 * 1024;

/// Frames below this size are copied together before they are handed to the transport, which walks its list of
/// chunks for every datagram.
pub(crate) const SMALL_FRAME_BYTES: usize = 2 * 1024;

/// Records of one `stream_read` answer, unless the caller asks for fewer.
pub(crate) const READ_RECORDS_MAX: usize = 10_000;

/// Bytes of one `stream_read` answer, unless the caller asks for fewer.
pub(crate) const READ_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A log whose compaction failed is left alone for this long: neither a full disk nor damage is gone sooner.
pub(crate) const COMPACTION_RETRY: Duration = Duration::from_secs(60);

/// How long a publish may wait for its turn in the tenant's queue.
pub(crate) const PUBLISH_QUEUE_WAIT: Duration = Duration::from_millis(2_000);

/// Publishes of one tenant that may wait for their turn.
pub(crate) const PUBLISH_QUEUE_DEPTH: usize = 512;

/// A deficit round hands out this many bytes to each waiting tenant.
pub(crate) const FAIR_QUANTUM_BYTES: u64 = 64 * 1024;

/// A name that the catalogue does not know is not asked for again for this long.
pub(crate) const UNKNOWN_NAME_TTL: Duration = Duration::from_secs(1);

/// Distinct unknown names that are remembered; beyond it the oldest are forgotten.
pub(crate) const UNKNOWN_NAMES_MAX: usize = 10_000;

/// Open connections that fit a default file and memory budget, and per remote address.
pub(crate) const CONNECTIONS_MAX: usize = 8192;

/// Connections of one remote address.
pub(crate) const CONNECTIONS_PER_IP_MAX: usize = 512;

/// How long a draining broker waits for accepted writes to be answered.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(25);

/// Verified tokens remembered per connection, so that forty streams cost one signature check.
pub(crate) const TOKENS_REMEMBERED_MAX: usize = 64;

/// Tokens whose principals connections share: as many as there can be connections.
pub(crate) const PRINCIPALS_SHARED_MAX: usize = CONNECTIONS_MAX;

/// Names of streams kept resolved per publish stream.
pub(crate) const ROUTES_REMEMBERED_MAX: usize = 64;

/// Names of streams kept resolved per stream that fetches: a consumer reads many.
pub(crate) const FETCHED_REMEMBERED_MAX: usize = 1_024;

/// Bytes of batches in one reply to a fetch, but for a first one that is larger. What is left of a frame holds the answers
/// for many thousand shards.
pub(crate) const FETCH_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Shards of one fetch: each has an answer in the reply's frame.
pub(crate) const FETCH_SHARDS_MAX: usize = 20_000;

/// Bytes of fetched batches that may wait for one client to read them. Beyond it fetches are answered without any.
pub(crate) const FETCHED_UNREAD_BYTES: usize = 32 * 1024 * 1024;

/// The longest that a fetch may wait.
pub(crate) const FETCH_WAIT_MAX: Duration = Duration::from_secs(60);

/// Groups that have members on this broker. Each costs a few kilobytes.
pub(crate) const GROUPS_WITH_MEMBERS_MAX: usize = 10_000;

/// Members of one group: more than a stream has shards would have nothing to do.
pub(crate) const MEMBERS_PER_GROUP_MAX: usize = 1_024;

/// How long before a token runs out its client is told, at most: enough to fetch another one slowly.
pub(crate) const EXPIRY_WARNING_MS_MAX: u64 = 60_000;

/// A client is told no sooner than this after it brought a token.
pub(crate) const EXPIRY_WARNING_PAUSE_MS: u64 = 500;

/// How far somebody may be ahead of his rate who is told to wait afterwards, as Kafka clients are, in milliseconds. What
/// a client has in flight when it is told fits; a crowd that never waits is refused beyond it.
pub(crate) const AHEAD_MS_MAX: u64 = 10_000;

/// When it is worth trying again where a quota is used up that only somebody's leaving frees, in milliseconds.
pub(crate) const QUOTA_RETRY_MS: u64 = 1_000;

/// Principals of one tenant in the listing of what is used.
pub(crate) const PRINCIPALS_LISTED_MAX: usize = 1_000;

/// How long what was accepted on a stream may take to be answered after its token was revoked, and how long a client may
/// take to read what it is owed. After that the stream is cut.
pub(crate) const ENDING_WAIT: Duration = Duration::from_secs(2);

/// How often it is looked at which tokens run out.
pub(crate) const EXPIRY_LOOK_INTERVAL: Duration = Duration::from_millis(250);
