//! Bounds of this client, each with its reason.

use std::time::Duration;

/// Time to reach the control plane. It is near; a packet lost twice still fits.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Time for an answer. A create waits for one flush of the control plane's disk.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the control plane may hold a request for changes. Under the 25 s it allows.
pub const POLL_WAIT: Duration = Duration::from_secs(20);

/// Time for an answer to a held request: the wait itself and an ordinary call.
pub const POLL_TIMEOUT: Duration = Duration::from_secs(30);

/// First and longest pause between attempts while the control plane cannot be reached.
pub const RETRY_PAUSE: (Duration, Duration) =
    (Duration::from_millis(50), Duration::from_millis(2000));

/// Items asked for per page; the API's default.
pub const PAGE_ITEMS: usize = 1000;

/// Bytes of an error body that are read. It is for people, and may come from something that is no control plane.
pub const ERROR_BYTES_MAX: usize = 64 * 1024;

/// Bytes of a good answer that are read. The largest is a page of a thousand sessions of 64 KiB each; what answers with more
/// is no control plane.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The same for a whole catalogue, as brokers read it: some kilobytes for each stream, and 100,000 revocations of a few
/// hundred bytes for each tenant.
pub const SNAPSHOT_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// Pages of one listing. No listing of ours has more than a million items.
pub const PAGES_MAX: usize = 1_001;

/// How long an unused connection is kept. The control plane closes it after 30 s.
pub const IDLE_TIME: Duration = Duration::from_secs(20);

/// After a renewal of a credential that failed for want of an answer, it is tried again after this long.
pub const CREDENTIAL_RETRY: Duration = Duration::from_secs(5);

/// How often it is looked whether somebody put another credential into the file of one that was refused.
pub const CREDENTIAL_LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// A token that does not say when it runs out is renewed this often.
pub const UNDATED_LIFE: Duration = Duration::from_secs(60);

/// First and longest pause before a token is replaced that was refused soon after the last one. Long enough that an
/// account that is refused for good is no load, short enough for a rotation right after another.
pub const REFUSED_PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
