//! Why the other readings of a stream refused: caches, commits, settling records of a group.

use std::fmt;

use super::{CallFailed, Retry};

/// Why a cache or a counter was not read or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheFailed {
    /// The condition did not hold. Nothing was changed.
    #[error("{}", Mismatch(*current_version))]
    VersionMismatch {
        /// The version the key has; `None` when it holds nothing.
        current_version: Option<u64>,
    },
    /// As any request.
    #[error(transparent)]
    Call(CallFailed),
}

/// Why a commit did not land.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommitFailed {
    /// A key of the entity has another version than was demanded. Nothing was written.
    #[error("{message}")]
    VersionMismatch {
        /// The version the key has; `None` when it holds nothing.
        current_version: Option<u64>,
        /// For people; names the key.
        message: String,
    },
    /// The shard ends elsewhere. Nothing was written.
    #[error("the shard's next offset is {next}")]
    OffsetMismatch {
        /// The shard's next offset (exclusive end) at that moment.
        next: u64,
    },
    /// As any request.
    #[error(transparent)]
    Call(CallFailed),
}

/// Why a record was not settled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettleFailed {
    /// The claim no longer stands: it lapsed, or the record was settled or handed to another. It may come again.
    /// Told without asking the broker when the consumer has ended or given the shard back, and the claim has lapsed.
    #[error("the claim on record {offset} (delivery {attempts}) no longer stands ({code})")]
    Stale {
        /// The record.
        offset: u64,
        /// Which of its deliveries.
        attempts: u32,
        /// The broker's code, for example `stale_claim`.
        code: String,
    },
    /// As any request.
    #[error(transparent)]
    Call(#[from] CallFailed),
}

struct Mismatch(Option<u64>);

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(version) => write!(f, "the key's current version is {version}"),
            None => write!(f, "the key holds nothing"),
        }
    }
}

impl CacheFailed {
    /// A stable word: the broker's code, or one of this client's.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::VersionMismatch { .. } => "version_mismatch",
            Self::Call(failed) => failed.code(),
        }
    }

    /// Whether trying again can help.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::VersionMismatch { .. } => Retry::Fatal,
            Self::Call(failed) => failed.retry(),
        }
    }
}

impl From<CallFailed> for CacheFailed {
    fn from(failed: CallFailed) -> Self {
        if let CallFailed::Refused(refused) = &failed
            && refused.reason.as_deref() == Some(felix_wire::extension::VERSION_MISMATCH)
        {
            let current_version = refused.number;
            return Self::VersionMismatch { current_version };
        }
        Self::Call(failed)
    }
}

impl CommitFailed {
    /// A stable word: the broker's code, or one of this client's.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::VersionMismatch { .. } => "version_mismatch",
            Self::OffsetMismatch { .. } => "offset_mismatch",
            Self::Call(failed) => failed.code(),
        }
    }

    /// Whether trying again can help.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::VersionMismatch { .. } | Self::OffsetMismatch { .. } => Retry::Fatal,
            Self::Call(failed) => failed.retry(),
        }
    }
}

impl From<CallFailed> for CommitFailed {
    fn from(failed: CallFailed) -> Self {
        let CallFailed::Refused(refused) = failed else {
            return Self::Call(failed);
        };
        match (refused.reason.as_deref(), refused.number) {
            (Some(felix_wire::extension::VERSION_MISMATCH), current_version) => {
                Self::VersionMismatch {
                    current_version,
                    message: refused.message,
                }
            }
            (Some(felix_wire::extension::OFFSET_MISMATCH), Some(next)) => {
                Self::OffsetMismatch { next }
            }
            _ => Self::Call(CallFailed::Refused(refused)),
        }
    }
}

impl SettleFailed {
    /// A stable word: the broker's code, or one of this client's.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Stale { code, .. } => code,
            Self::Call(failed) => failed.code(),
        }
    }

    /// Whether trying again can help.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Stale { .. } => Retry::Fatal,
            Self::Call(failed) => failed.retry(),
        }
    }
}
