//! Ledgers that are broken on purpose.

/// What is broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Twin {
    /// Nothing.
    #[default]
    Sound,
    /// Syncs do nothing: what is acknowledged is not on the disk.
    AckBeforeFlush,
    /// Nobody looks which disk a call is for: an empty member votes, and counts, at once.
    WipedVotes,
    /// A confirmed read is answered from what the member has.
    ConfirmFromLocal,
    /// A vote is forgotten when the member stops.
    ForgetVotes,
}
