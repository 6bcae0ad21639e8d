//! What went wrong, in numbers a program can act on.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a request was refused or failed. A code never changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Code {
    /// No authentication yet, or a token that is bad or has expired.
    Unauthenticated = 1,
    /// The principal lacks the permission, or names another tenant.
    Forbidden = 2,
    /// No such tenant, namespace, stream or cache.
    NotFound = 3,
    /// Malformed or impossible.
    InvalidRequest = 4,
    /// Nobody serves the shard just now.
    ShardUnavailable = 5,
    /// Another broker leads the shard.
    NotLeader = 6,
    /// A majority did not confirm in time.
    QuorumTimeout = 7,
    /// The leader changed after the write.
    LeadershipLost = 8,
    /// The broker stopped waiting for the outcome.
    Unacknowledged = 9,
    /// A queue, quota or disk is full.
    Overloaded = 10,
    /// Over a configured limit.
    LimitExceeded = 11,
    /// The broker is shutting down; the answer to `auth` then.
    Draining = 12,
    /// A bug of the broker's.
    Internal = 13,
    /// The disk failed.
    Storage = 14,
    /// The claim on a group record is not known.
    StaleClaim = 15,
    /// The token or its principal was revoked.
    Revoked = 16,
    /// A keyed publish was made for another width.
    StaleWidth = 17,
    /// The cluster has not enabled what was asked for.
    FeatureNotEnabled = 18,
    /// The stream holds atomic commits, which a trim would break.
    StreamHasCommits = 19,
}

impl Code {
    /// Every code, in the order of its numbers.
    pub const ALL: [Self; 19] = [
        Self::Unauthenticated,
        Self::Forbidden,
        Self::NotFound,
        Self::InvalidRequest,
        Self::ShardUnavailable,
        Self::NotLeader,
        Self::QuorumTimeout,
        Self::LeadershipLost,
        Self::Unacknowledged,
        Self::Overloaded,
        Self::LimitExceeded,
        Self::Draining,
        Self::Internal,
        Self::Storage,
        Self::StaleClaim,
        Self::Revoked,
        Self::StaleWidth,
        Self::FeatureNotEnabled,
        Self::StreamHasCommits,
    ];

    /// The number that stands in binary answers.
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// The code of a number; `None` for one this library does not know.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.number() == number)
    }

    /// The name that stands in JSON answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::InvalidRequest => "invalid_request",
            Self::ShardUnavailable => "shard_unavailable",
            Self::NotLeader => "not_leader",
            Self::QuorumTimeout => "quorum_timeout",
            Self::LeadershipLost => "leadership_lost",
            Self::Unacknowledged => "unacknowledged",
            Self::Overloaded => "overloaded",
            Self::LimitExceeded => "limit_exceeded",
            Self::Draining => "draining",
            Self::Internal => "internal",
            Self::Storage => "storage",
            Self::StaleClaim => "stale_claim",
            Self::Revoked => "revoked",
            Self::StaleWidth => "stale_width",
            Self::FeatureNotEnabled => "feature_not_enabled",
            Self::StreamHasCommits => "stream_has_commits",
        }
    }

    /// The code of a name; `None` for one this library does not know.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.name() == name)
    }

    /// The class that holds when an answer names none.
    pub const fn default_retry(self) -> Retry {
        match self {
            Self::ShardUnavailable | Self::Draining | Self::StaleClaim | Self::StaleWidth => {
                Retry::Retry
            }
            Self::NotFound | Self::Overloaded => Retry::RetryAfter,
            Self::NotLeader => Retry::Redirect,
            Self::QuorumTimeout
            | Self::LeadershipLost
            | Self::Unacknowledged
            | Self::Internal
            | Self::Storage => Retry::OutcomeUnknown,
            Self::Unauthenticated
            | Self::Forbidden
            | Self::InvalidRequest
            | Self::LimitExceeded
            | Self::Revoked
            | Self::FeatureNotEnabled
            | Self::StreamHasCommits => Retry::Fatal,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A code as it was received: one of ours, or the name of one that is newer than this library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedCode {
    /// A code this library knows.
    Known(Code),
    /// Any other, kept as it came; a binary answer's number becomes `code_<number>`.
    Unknown(Box<str>),
}

impl NamedCode {
    /// The code of a number, known or not.
    pub fn from_number(number: u16) -> Self {
        Code::from_number(number).map_or_else(
            || Self::Unknown(format!("code_{number}").into()),
            Self::Known,
        )
    }

    /// The number for a binary answer; `None` for a name that stands for no number.
    pub fn number(&self) -> Option<u16> {
        match self {
            Self::Known(code) => Some(code.number()),
            Self::Unknown(name) => name.strip_prefix("code_")?.parse().ok(),
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        match self {
            Self::Known(code) => code.name(),
            Self::Unknown(name) => name,
        }
    }
}

impl From<Code> for NamedCode {
    fn from(code: Code) -> Self {
        Self::Known(code)
    }
}

impl fmt::Display for NamedCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for NamedCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for NamedCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = Box::<str>::deserialize(deserializer)?;
        Ok(Code::from_name(&name).map_or(Self::Unknown(name), Self::Known))
    }
}

/// What a failure promises, and so whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Retry {
    /// Nothing was applied; try again.
    Retry = 1,
    /// Nothing was applied; try again after a while.
    RetryAfter = 2,
    /// Nothing was applied; another broker is the right one.
    Redirect = 3,
    /// It may have been applied.
    OutcomeUnknown = 4,
    /// It never works.
    Fatal = 5,
}

impl Retry {
    /// Every class, in the order of its bytes.
    pub const ALL: [Self; 5] = [
        Self::Retry,
        Self::RetryAfter,
        Self::Redirect,
        Self::OutcomeUnknown,
        Self::Fatal,
    ];

    /// The byte that stands in binary answers.
    pub const fn byte(self) -> u8 {
        self as u8
    }

    /// The class of a byte; one this library does not know is fatal.
    pub fn from_byte(byte: u8) -> Self {
        Self::ALL
            .into_iter()
            .find(|class| class.byte() == byte)
            .unwrap_or(Self::Fatal)
    }

    /// The name that stands in JSON answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::RetryAfter => "retry_after",
            Self::Redirect => "redirect",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Fatal => "fatal",
        }
    }

    /// The class of a name; one this library does not know is fatal.
    pub fn from_name(name: &str) -> Self {
        Self::ALL
            .into_iter()
            .find(|class| class.name() == name)
            .unwrap_or(Self::Fatal)
    }
}

impl fmt::Display for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Retry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Retry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;

        impl serde::de::Visitor<'_> for Name {
            type Value = Retry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a retry class")
            }

            fn visit_str<E>(self, name: &str) -> Result<Retry, E> {
                Ok(Retry::from_name(name))
            }
        }

        deserializer.deserialize_str(Name)
    }
}

/// What a failure says beyond its code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detail {
    /// A word that narrows the code down, such as `moving` or `tenant_quota`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When to try again, in milliseconds from now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// A refusal or failure as it crosses the wire; the body of `error`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// For people. Nobody parses it.
    pub message: String,
    /// For programs. Absent only from or for peers older than codes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<NamedCode>,
    /// Absent means the code's default; read it with [`Failure::retry`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// More about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<Detail>,
}

impl Failure {
    /// A failure with its code's default class.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: Some(code.into()),
            retry: Some(code.default_retry()),
            detail: None,
        }
    }

    /// A failure without a code, for peers older than codes.
    pub fn uncoded(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: None,
            retry: None,
            detail: None,
        }
    }

    /// The same with another class than the code's default.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// The same with a word that narrows the code down.
    #[must_use]
    pub fn with_reason(mut self, reason: impl Into<String>) -> Self {
        self.detail.get_or_insert_default().reason = Some(reason.into());
        self
    }

    /// The same with the time after which trying again makes sense, in milliseconds.
    #[must_use]
    pub fn with_retry_after_ms(mut self, retry_after_ms: u64) -> Self {
        self.detail.get_or_insert_default().retry_after_ms = Some(retry_after_ms);
        self
    }

    /// The same for a peer that cannot read codes: the message alone.
    #[must_use]
    pub fn without_code(self) -> Self {
        Self::uncoded(self.message)
    }

    /// The code, if this library knows it.
    pub fn code(&self) -> Option<Code> {
        match self.code {
            Some(NamedCode::Known(code)) => Some(code),
            Some(NamedCode::Unknown(_)) | None => None,
        }
    }

    /// The class that holds: the one named, else the code's default, else fatal.
    pub fn retry(&self) -> Retry {
        // protocol: error.2
        self.retry
            .or_else(|| self.code().map(Code::default_retry))
            .unwrap_or(Retry::Fatal)
    }

    /// The word that narrows the code down.
    pub fn reason(&self) -> Option<&str> {
        self.detail.as_ref()?.reason.as_deref()
    }

    /// When to try again, in milliseconds.
    pub fn retry_after_ms(&self) -> Option<u64> {
        self.detail.as_ref()?.retry_after_ms
    }
}
