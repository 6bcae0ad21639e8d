//! Bounds that nobody turns: each with the reason for its value. What an operator turns is in the scope file.

use std::time::Duration;

/// A browser's first message must be there after this long, and so must the head of any request.
pub(crate) const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a request's head. Cookies and an ID token in a header fit.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;

/// How long a gateway that stops waits for sessions to end after it told them to go.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long is waited after the system had no room for a connection.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How often histograms are folded and rates that have filled up again are forgotten.
pub(crate) const UPKEEP_INTERVAL: Duration = Duration::from_secs(1);
