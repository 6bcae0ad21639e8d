//! Fetch sessions (KIP-227): what a client fetches is remembered, so that it says only what changes.

/// The sessions of all connections.
#[derive(Debug, Default)]
pub(crate) struct FetchSessions {}

impl FetchSessions {
    pub(crate) fn len(&self) -> usize {
        0
    }
}
