//! The control plane's clock.

use std::time::{SystemTime, UNIX_EPOCH};

use felix_model::TimeMs;

/// Now, in milliseconds since 1970.
pub(crate) fn now() -> TimeMs {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    TimeMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
