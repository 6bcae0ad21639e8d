//! Bounds of the console: each with the reason for its value.

use std::time::Duration;

/// Requests of one person that run at a time. A page asks for three things at once; several tabs fit.
pub(super) const CALLS: usize = 16;
/// Live views of one person at a time: one a tab.
pub(super) const LIVES: usize = 8;
/// Requests of one person that change something and run at a time. Each may have a body as large as any.
pub(super) const CHANGES: usize = 4;
/// Bytes of bodies that are held at a time, of everybody. With what is made of a body it takes up to three times as much.
pub(super) const BODIES_BYTES: usize = 256 * 1024 * 1024;
/// Tokens of one person that are known at a time. One more takes the place of his that was not used for the longest.
pub(super) const TOKENS: usize = 8;
/// People whose connections are kept. The one who was not here for the longest goes first.
pub(super) const PEOPLE: usize = 256;
/// Tokens that a broker is asked about at a time, of people who were not here lately: of all, and of one address. Whoever
/// sends tokens that are none costs connections to brokers, and no more than these.
pub(super) const STRANGERS: usize = 64;
/// Of one address: several tabs that are opened at once fit.
pub(super) const STRANGERS_PER_ADDRESS: usize = 8;
/// A person who asked nothing for this long is forgotten, with his connections.
pub(super) const IDLE: Duration = Duration::from_secs(300);
/// What a call to brokers or the control plane may take before the page is told so.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long dialling a broker may take.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of a body: a record of the largest size a stream may allow, as base64.
pub(super) const BODY_BYTES: usize = 23 * 1024 * 1024;
/// Bytes of a value in a listing; the whole of it is asked for by itself.
pub(super) const PREVIEW_BYTES: usize = 4 * 1024;
/// Bytes of a key in a listing, and of a header's value.
pub(super) const KEY_BYTES: usize = 1024;
/// Headers of a record that are shown in a listing.
pub(super) const HEADERS: usize = 64;
/// Rows of a page of records.
pub(super) const ROWS: u64 = 200;
/// Things of a page of a listing.
pub(super) const ITEMS: u32 = 200;
/// Bytes of batches that one fetch takes; pages are read with several when they need to be.
pub(super) const FETCH_BYTES: u32 = 1024 * 1024;
/// Fetches that one page of records may take. Compacted logs hold long stretches without a record.
pub(super) const FETCHES: u32 = 64;
/// Records that one call of a search looks at, at most.
pub(super) const SEARCH_RECORDS: u64 = 10_000;
/// What one call of a search may take; then the page is told how far it came.
pub(super) const SEARCH_TIME: Duration = Duration::from_secs(2);
/// Matches of one call of a search.
pub(super) const MATCHES: usize = 100;
/// Bytes of what is searched for.
pub(super) const NEEDLE_BYTES: usize = 512;
/// Shards that one live view follows.
pub(super) const TAIL_SHARDS: usize = 64;
/// Records that wait for a browser which is slower than the stream; more are dropped and counted.
pub(super) const TAIL_WAITING: usize = 512;
/// Records of one event of a live view.
pub(super) const TAIL_BATCH: usize = 128;
/// How often a live view says that it is alive while nothing happens.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(10);
/// Streams whose groups one listing looks at, and shards of each.
pub(super) const GROUP_STREAMS: usize = 50;
/// Shards of a stream whose groups are looked at.
pub(super) const GROUP_SHARDS: u32 = 64;
/// Dead letters of a page.
pub(super) const LETTERS: usize = 100;
/// Versions of a key that its history shows, the newest.
pub(super) const VERSIONS: usize = 200;
/// How long a history waits for the next version of a key that holds nothing now, so that its end is not known.
pub(super) const HISTORY_QUIET: Duration = Duration::from_millis(700);
