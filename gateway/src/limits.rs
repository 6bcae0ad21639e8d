//! Bounds that nobody turns: each with the reason for its value. What an operator turns is in the scope file.

use std::time::Duration;

/// A browser's first message must be there after this long, and so must the head of any request.
pub(crate) const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a first message may take to be judged, with everybody asked who has a say: then the browser is told to come
/// back later.
pub(crate) const JOIN_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a browser may take to take in the answer to its first message. With [`GOODBYE_TIMEOUT`] it is less than
/// [`DRAIN_TIMEOUT`].
pub(crate) const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Characters of foreign text that an error repeats: a name that may be is no longer.
pub(crate) const QUOTED_CHARS_MAX: usize = 64;

/// Characters of an error's message, where others have a say in it: parsers repeat what they read.
pub(crate) const FAULT_CHARS_MAX: usize = 256;

/// Bytes of a request's head. Cookies and an ID token in a header fit.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;

/// How long a gateway that stops waits for sessions to end after it told them to go.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections of browsers in total, WebSockets for as long as they stand; more are closed at once. One holds under 40 KB
/// while it is idle, so that this guards descriptors, of which there is one for each.
pub(crate) const CONNECTIONS_MAX: usize = 20_000;

/// Connections of one address for each session that it may have, where no proxy stands between: a browser opens several for
/// the files of a page.
pub(crate) const CONNECTIONS_PER_SESSION: usize = 8;

/// An answer must begin after this long, however slowly its request comes: nobody holds a connection with half a body.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Beacons that are carried out at a time, of everybody and of one address. A browser sends one for each tab it closes.
pub(crate) const BEACONS_MAX: usize = 1_024;

/// Of one address.
pub(crate) const BEACONS_PER_ADDRESS: usize = 16;

/// When a beacon may come again that found no place.
pub(crate) const BEACON_WAIT: Duration = Duration::from_secs(1);

/// Subscriptions and watches that a session may begin: so many at once, and then so many a second. A page that comes back
/// begins all of its own in one message; nobody needs to begin them over and over.
pub(crate) const BEGINS_BURST: u64 = 256;

/// And then so many a second.
pub(crate) const BEGINS_PER_SECOND: u64 = 16;

/// How long is waited after the system had no room for a connection.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How often histograms are folded and rates that have filled up again are forgotten.
pub(crate) const UPKEEP_INTERVAL: Duration = Duration::from_secs(1);

/// How often people who have all their writes again are forgotten.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Writes of one session that are not answered yet. Then no more is heard from it.
pub(crate) const WRITES_WAITING_MAX: usize = 256;

/// Questions of one session that are not answered yet. Then no more is heard from it.
pub(crate) const ASKS_WAITING_MAX: usize = 64;

/// Pages and look-ups by time that one session may wait for.
pub(crate) const READS_WAITING_MAX: usize = 4;

/// Subscriptions of one session, unless its scope has more streams.
pub(crate) const SUBSCRIPTIONS_MAX: usize = 64;

/// People on one shared connection. A broker carries 1,024 streams of a connection, and a person takes up to five.
pub(crate) const PEOPLE_PER_CONNECTION: usize = 200;

/// Events that are held for a browser that does not take them. Then nothing more is read for it.
pub(crate) const EVENTS_HELD_MAX: usize = 1_024;

/// And of so many bytes at most, for streams of large records: what a feed holds of a stream, whoever reads it.
pub(crate) const EVENTS_HELD_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Bytes of keys and values that a cache may hold which browsers watch: all of it is one message to each of them.
pub(crate) const WATCHED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Events that are written before the socket is flushed.
pub(crate) const EVENTS_PER_FLUSH: usize = 128;

/// Buffers of a socket. Small, because most browsers are idle: they grow with what is written at once.
pub(crate) const SOCKET_READ_BYTES: usize = 2 * 1024;

/// What is written to a socket is handed to the system once it is this much, or when nothing more is at hand.
pub(crate) const SOCKET_WRITE_BYTES: usize = 16 * 1024;

/// Bytes of a beacon's body: an ID token and a few names.
pub(crate) const BEACON_BYTES_MAX: usize = 64 * 1024;

/// How long a goodbye may take before the socket is dropped.
pub(crate) const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the writes of a browser that left may take.
pub(crate) const LAST_WRITES_TIMEOUT: Duration = Duration::from_secs(30);

/// What a browser is told to wait at least before it comes back from a gateway that stops.
pub(crate) const RECONNECT_AFTER: Duration = Duration::from_millis(500);

/// Over how long the browsers of a gateway that stops are spread.
pub(crate) const RECONNECT_SPREAD: Duration = Duration::from_millis(2_500);

/// What a browser that was refused for its number of sessions is told to wait.
pub(crate) const SESSIONS_WAIT: Duration = Duration::from_secs(5);

/// How often a session looks whether its rights still cover what it reads.
pub(crate) const RIGHTS_INTERVAL: Duration = Duration::from_secs(2);

/// How often a session looks whether a ping is due and whether its browser is dead.
pub(crate) const TICK_INTERVAL: Duration = Duration::from_secs(1);

/// How long the writes of a browser may take that is told to go.
pub(crate) const DRAIN_WRITES_TIMEOUT: Duration = Duration::from_secs(5);

/// Rooms that are remembered to be there, so that joining them asks nobody.
pub(crate) const ROOMS_KNOWN_MAX: usize = 100_000;
