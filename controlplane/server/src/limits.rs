//! Bounds of the control plane, each with its reason.

use std::time::Duration;

/// Commands waiting for the ledger. More are told `busy`: each costs memory and would wait longer than its caller.
pub const COMMANDS_WAITING_MAX: usize = 1024;

/// Commands that share one flush of the disk. The flush dominates; beyond this its share is nothing.
pub const COMMANDS_PER_FLUSH: usize = 256;

/// Bytes of records that share one flush, which bounds what one ledger batch takes.
pub const FLUSH_BYTES: usize = 4 * 1024 * 1024;

/// How often commands are decided anew because another process wrote first. Of all who race one wins each time, so this
/// is reached only where many write without a pause.
pub const RACES_MAX: usize = 32;

/// How long until a ledger that could not be followed is tried again.
pub const FOLLOW_RETRY: Duration = Duration::from_secs(1);

/// Questions waiting for the ledger. Those who ask for the newest state share one answer, so they wait briefly.
pub const READS_WAITING_MAX: usize = 4096;

/// How long a read waits for the newest state. Longer than an election, shorter than a client's patience.
pub const CONFIRM_TIME: Duration = Duration::from_secs(8);

/// Bytes of records read from the ledger at a time while starting, and while following.
pub const REPLAY_BYTES: usize = 4 * 1024 * 1024;

/// Entries after which a start writes a snapshot, so that the next one need not read them again.
pub const SNAPSHOT_ENTRIES: u64 = 10_000;

/// Entries kept in memory for followers. One who is further behind takes a snapshot.
pub const HISTORY_ENTRIES: usize = 10_000;

/// Bytes of entries kept in memory for followers; entries of large batches count for what they are.
pub const HISTORY_BYTES: usize = 64 * 1024 * 1024;

/// Rows kept of each published feed, as in the field.
pub const FEED_ROWS: usize = 10_000;

/// Rows of a published feed, or entries of the catalogue's, in one answer.
pub const CHANGES_PER_ANSWER: usize = 1000;

/// Bytes of entries in one answer of the catalogue's feed.
pub const CHANGES_BYTES_PER_ANSWER: usize = 4 * 1024 * 1024;

/// Longest time a request for changes is held. Proxies cut idle requests at 30 s.
pub const CHANGES_WAIT_MAX: Duration = Duration::from_secs(25);

/// Bytes of a request body. The largest is a batch of 256 streams with long names.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of the body of a request from somebody who has not shown a good token of ours. A provider's token has 16 KiB.
pub const STRANGERS_BODY_BYTES_MAX: usize = 64 * 1024;

/// Items in a page unless the caller says otherwise, and the most he may ask for.
pub const PAGE_ITEMS: (usize, usize) = (1000, 10_000);

/// Life of a token unless the caller says otherwise, in seconds.
pub const TOKEN_SECONDS: u64 = 900;

/// Longest life of a development token, in seconds.
pub const DEV_TOKEN_SECONDS_MAX: u64 = 30 * 24 * 3600;

/// Development tokens that live longer than this are good only on connections from the same machine.
pub const DEV_TOKEN_SECONDS_ANYWHERE: u64 = 3600;

/// How long requests under way may take to end at a shutdown.
pub const DRAIN_TIME: Duration = Duration::from_secs(25);

/// Servers that the URL of a database may name.
pub const POSTGRES_HOSTS_MAX: usize = 8;

/// How long a start waits for a database that is starting too.
pub const POSTGRES_START_TIME: Duration = Duration::from_secs(30);

/// How long one connection may take to be made, for each host.
pub const POSTGRES_CONNECT_TIME: Duration = Duration::from_secs(3);

/// How long the database may work at one statement, in ms as it reads it: less than we wait for the answer, so that
/// usually it is the one who gives up, and says so.
pub const POSTGRES_STATEMENT_MS: &str = "4000";

/// How long an answer to an append is waited for before it counts as lost.
pub const POSTGRES_WRITE_TIME: Duration = Duration::from_secs(6);

/// The same for what changes nothing.
pub const POSTGRES_READ_TIME: Duration = Duration::from_secs(5);

/// How long what became of an append is asked for. A fail-over takes seconds; a caller waits half a minute.
pub const POSTGRES_SETTLE_TIME: Duration = Duration::from_secs(15);

/// How long until a server that refused is tried again: at first, and at last.
pub const POSTGRES_PAUSE: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_secs(1));

/// How often the end of the ledger is looked at although nobody told of an append.
pub const POSTGRES_POLL: Duration = Duration::from_secs(2);

/// Bytes of records in one append to a database, which takes 1 GiB in one message.
pub const POSTGRES_APPEND_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Records read from a database at a time.
pub const POSTGRES_PAGE_RECORDS: i64 = 10_000;

/// Different things noted for one tenant's audit in one round; more are counted together.
pub const AUDIT_NOTES_PER_TENANT_MAX: usize = 64;

/// Different things noted for all audits in one round. A flood costs about 200 bytes of ledger for each, twice.
pub const AUDIT_NOTES_MAX: usize = 512;

/// How long something new waits for others before it is written for the audit. It is what a crash can take of logins and
/// refusals; each writing is a flush of the ledger.
pub const AUDIT_NEW_PAUSE: Duration = Duration::from_millis(200);

/// Length of a round: how often the counts of what repeats are written.
pub const AUDIT_PAUSE: Duration = Duration::from_secs(10);

/// The same after a round in which there were too many different things to note.
pub const AUDIT_PAUSE_CROWDED: Duration = Duration::from_secs(60);

/// Lines of an audit that one request looks at, whether it wants them or not.
pub const AUDIT_LINES_LOOKED_AT: usize = 10_000;

/// Entries of the ledger that one request for an audit reads, about: they are decoded, and everybody's questions to the
/// ledger wait behind them.
pub const AUDIT_ENTRIES_READ: usize = 20_000;

/// Entries between two lines of an audit that are read with them. Lines further apart are read one by one.
pub const AUDIT_GAP_READ: u64 = 64;

/// Lines of an audit in an answer unless the caller says otherwise, and the most he may ask for.
pub const AUDIT_ITEMS: (usize, usize) = (100, 1000);

/// Bytes of the ledger read at a time for an audit.
pub const AUDIT_READ_BYTES: usize = 256 * 1024;

/// Lines about refused requests that the log takes in a second. More are only counted.
pub const LOG_REFUSALS_PER_SECOND: u64 = 50;

/// Connections of one listener at a time. Each takes a descriptor and, until its head is read, up to 64 KiB.
pub const CONNECTIONS_MAX: usize = 8192;

/// Connections of one listener at a time from one address that is not this machine.
pub const CONNECTIONS_PER_ADDRESS_MAX: usize = 512;

/// How long a TLS handshake may take.
pub const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// How long the first request of a connection may take to be there with its whole head.
pub const FIRST_REQUEST_TIME: Duration = Duration::from_secs(10);

/// How long a connection may wait for its next request, head included.
pub const IDLE_TIME: Duration = Duration::from_secs(30);

/// How long a request's body may take.
pub const BODY_TIME: Duration = Duration::from_secs(30);

/// Bytes of a request's head. The largest thing in it is a token of 16 KiB.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Headers of a request.
pub const HEADERS_MAX: usize = 64;

/// How long to wait after a connection could not be accepted.
pub const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// How often the files of certificates are looked at.
pub const CERTIFICATES_PAUSE: Duration = Duration::from_secs(30);

/// Bytes of the first lines of a backup's file.
pub const BACKUP_HEAD_BYTES_MAX: u64 = 4096;

/// Bytes of a record in a backup. The largest come from one request each, which is far smaller.
pub const BACKUP_RECORD_BYTES_MAX: u32 = 64 * 1024 * 1024;

/// How often expired sessions are looked for.
pub const EXPIRY_PAUSE: Duration = Duration::from_secs(3600);

/// Life of a session unless the operator says otherwise, in seconds: 30 days.
pub const SESSION_SECONDS: u64 = 30 * 24 * 3600;

/// How long a sign-in that a provider vouched for goes on unless the operator says otherwise, in seconds: a working day.
pub const SIGN_IN_SECONDS: u64 = 12 * 3600;

/// Times that one network place may fail to prove who it is before it is slowed down: a fleet behind one address may
/// come back with stale credentials at once.
pub const AUTH_FAILURES_AT_ONCE: f64 = 200.0;

/// Failures a second that are let through from one place after that.
pub const AUTH_FAILURES_PER_SECOND: f64 = 10.0;

/// Requests of one place that wait to be looked at. More are turned away: each holds a connection.
pub const AUTH_WAITING_MAX: u32 = 32;

/// Places that are told apart. The rest count as one.
pub const AUTH_PLACES_MAX: usize = 10_000;
