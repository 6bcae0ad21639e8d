//! Why something did not work, and whether trying again can help.
//!
//! Each operation has its own enum; all of them answer `code()` (a stable word, for programs and exit codes) and
//! `retry()` (a [`Retry`], for loops). [`enum@Error`] holds any of them.

mod readings;

use std::fmt;
use std::time::Duration;

use felix_wire::Failure;

pub use self::readings::{CacheFailed, CommitFailed, SettleFailed};
use crate::builder::BadConfig;
use crate::token::TokenFailed;

/// What trying again may do. The names are those of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retry {
    /// Nothing was applied; try again.
    Retry,
    /// Nothing was applied; try again after this long.
    RetryAfter(Duration),
    /// Nothing was applied; another broker is responsible.
    Redirect,
    /// It may have been applied: trying again may do it twice.
    OutcomeUnknown,
    /// It will never work like this.
    Fatal,
}

impl Retry {
    /// Whether the same request may simply be sent again without doing anything twice.
    #[must_use]
    pub fn is_safe(self) -> bool {
        matches!(self, Self::Retry | Self::RetryAfter(_) | Self::Redirect)
    }
}

/// A broker's refusal: nothing this client decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}{}", Because(reason.as_deref()))]
#[non_exhaustive]
pub struct Refused {
    /// The code of the protocol, for example `not_found`. A code this client does not know is kept as it came.
    pub code: String,
    /// For people; never to be parsed.
    pub message: String,
    /// The class the broker gave, or the code's own.
    pub retry: Retry,
    /// A finer word under the code, for example `moving` under `shard_unavailable`.
    pub reason: Option<String>,
    /// The number that the reason is about: the current version under `version_mismatch`, the next offset under
    /// `offset_mismatch`.
    pub number: Option<u64>,
}

impl From<felix_wire::extension::Refused> for Refused {
    fn from(refused: felix_wire::extension::Refused) -> Self {
        Self {
            number: refused.number,
            ..refused.failure.into()
        }
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        let retry = match failure.retry() {
            felix_wire::Retry::Retry => Retry::Retry,
            felix_wire::Retry::RetryAfter => {
                Retry::RetryAfter(Duration::from_millis(failure.retry_after_ms().unwrap_or(0)))
            }
            felix_wire::Retry::Redirect => Retry::Redirect,
            felix_wire::Retry::OutcomeUnknown => Retry::OutcomeUnknown,
            felix_wire::Retry::Fatal => Retry::Fatal,
        };
        let code = failure
            .code
            .as_ref()
            .map_or("uncoded", |code| code.name())
            .to_owned();
        let reason = failure.reason().map(ToOwned::to_owned);
        Self {
            code,
            retry,
            reason,
            message: failure.message,
            number: None,
        }
    }
}

struct Because<'a>(Option<&'a str>);

impl fmt::Display for Because<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |reason| write!(f, " ({reason})"))
    }
}

/// One broker that was tried, and what happened there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{broker}: {why}")]
#[non_exhaustive]
pub struct Attempt {
    /// The address as it was configured or learned.
    pub broker: String,
    /// For people.
    pub why: String,
    /// What the broker says of the certificate of this client, if that is what it is about.
    pub certificate: Option<CertificateRefused>,
}

/// What a broker says of the certificate a client presents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateRefused {
    /// It demands one, and none was presented.
    #[error("demands a client certificate, and this client presents none")]
    Missing,
    /// It does not take the one that was presented.
    #[error("does not take this client's certificate: {0}")]
    Unfit(&'static str),
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectFailed {
    /// The configuration cannot work.
    #[error(transparent)]
    Config(#[from] BadConfig),
    /// No broker could be reached, or those that were are leaving.
    #[error("no broker answered ({})", List(attempts))]
    NoBroker {
        /// In the order of trying.
        attempts: Vec<Attempt>,
    },
    /// A broker was reached and did not take this client's certificate, or the lack of one; no other took it either.
    #[error(
        "broker {broker} {why}; present one that was signed by an authority the broker trusts (its tls_client_ca)"
    )]
    Certificate {
        /// The address as it was configured or learned.
        broker: String,
        /// What it says.
        why: CertificateRefused,
    },
    /// A broker looked at the token and said no.
    #[error("the token was refused: {0}")]
    Refused(Refused),
    /// There was no token to show.
    #[error(transparent)]
    Token(#[from] TokenFailed),
    /// [`close`](crate::Client::close) was called.
    #[error("the client is closed")]
    Closed,
}

struct List<'a>(&'a [Attempt]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, attempt) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{attempt}")?;
        }
        Ok(())
    }
}

/// Why a request was not answered with what it asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallFailed {
    /// There was no connection to send it on. Nothing was sent.
    #[error(transparent)]
    Connect(#[from] ConnectFailed),
    /// The connection was lost before anything was sent.
    #[error("not sent: {why}")]
    NotSent {
        /// For people.
        why: String,
    },
    /// The broker said no.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// It was sent, and then the connection was lost or time ran out.
    #[error("sent, but the answer never came: {why}")]
    Unanswered {
        /// For people.
        why: String,
        /// Whether the request changes anything. If not, it may be sent again.
        changes: bool,
    },
    /// The broker does not offer what this needs. Nothing was sent.
    #[error("this broker does not support {feature}")]
    Unsupported {
        /// The feature's or extension's name in the protocol.
        feature: &'static str,
    },
    /// The broker answered something the protocol does not allow here.
    #[error("the broker broke the protocol: {what}")]
    Protocol {
        /// For people.
        what: String,
    },
}

/// Why a publish was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishFailed {
    /// Larger than a frame can carry. Nothing was sent.
    #[error("{bytes} bytes do not fit a frame of at most {limit}")]
    TooLarge {
        /// Bytes of the whole frame.
        bytes: usize,
        /// Largest frame the protocol allows.
        limit: usize,
    },
    /// A name, key or header that cannot be written on the wire. Nothing was sent.
    #[error("{what} cannot be sent: {why}")]
    Malformed {
        /// Which part.
        what: &'static str,
        /// For people.
        why: String,
    },
    /// A conditional publish found another end of the shard. Nothing was appended.
    #[error("the shard's next offset is {next}, not {expected}")]
    OffsetMismatch {
        /// The shard's next offset (exclusive end) at that moment.
        next: u64,
        /// The offset that was expected.
        expected: u64,
    },
    /// The idempotent producer cannot go on: its place in the sequence is lost. Earlier acknowledgements stand.
    #[error("the idempotent producer ended: {why}")]
    ProducerEnded {
        /// For people.
        why: String,
    },
    /// As any request.
    #[error(transparent)]
    Call(#[from] CallFailed),
}

/// Why reading could not begin or go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadFailed {
    /// The offset is below the retained log.
    #[error("offset {requested} is gone; the oldest retained is {oldest}")]
    TooOld {
        /// The offset that was asked for.
        requested: u64,
        /// The first offset that can be read.
        oldest: u64,
    },
    /// The offset is past the end of the log.
    #[error("offset {requested} does not exist yet; the next is {next}")]
    InFuture {
        /// The offset that was asked for.
        requested: u64,
        /// The offset the next record will get.
        next: u64,
    },
    /// The broker ended a running subscription.
    #[error("the subscription was ended: {0}")]
    Ended(Refused),
    /// As any request.
    #[error(transparent)]
    Call(#[from] CallFailed),
}

/// Anything this crate reports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// From connecting.
    #[error(transparent)]
    Connect(#[from] ConnectFailed),
    /// From publishing.
    #[error(transparent)]
    Publish(#[from] PublishFailed),
    /// From subscribing or reading.
    #[error(transparent)]
    Read(#[from] ReadFailed),
    /// From caches and counters.
    #[error(transparent)]
    Cache(#[from] CacheFailed),
    /// From commits.
    #[error(transparent)]
    Commit(#[from] CommitFailed),
    /// From settling records of a group.
    #[error(transparent)]
    Settle(#[from] SettleFailed),
    /// From any other request.
    #[error(transparent)]
    Call(#[from] CallFailed),
}

impl ConnectFailed {
    /// A stable word: the broker's code, or one of this client's.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Config(_) => "invalid_config",
            Self::NoBroker { .. } => "unreachable",
            Self::Certificate { why, .. } => match why {
                CertificateRefused::Missing => "certificate_required",
                CertificateRefused::Unfit(_) => "certificate_refused",
            },
            Self::Refused(refused) => &refused.code,
            Self::Token(_) => "no_token",
            Self::Closed => "closed",
        }
    }

    /// Whether trying again can help.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::NoBroker { .. } => Retry::Retry,
            Self::Refused(refused) => refused.retry,
            Self::Certificate { .. } | Self::Config(_) | Self::Token(_) | Self::Closed => {
                Retry::Fatal
            }
        }
    }

    /// What it comes to that none of these brokers took the client.
    pub(crate) fn nowhere(attempts: Vec<Attempt>) -> Self {
        let about_certificate = attempts
            .iter()
            .find_map(|attempt| Some((attempt.broker.clone(), attempt.certificate?)));
        match about_certificate {
            Some((broker, why)) => Self::Certificate { broker, why },
            None => Self::NoBroker { attempts },
        }
    }

    /// Whether it is about brokers and may be otherwise a moment later, without anybody doing anything here: one may come
    /// back, and a certificate may be renewed on disk.
    pub(crate) const fn may_pass(&self) -> bool {
        matches!(self, Self::NoBroker { .. } | Self::Certificate { .. })
    }
}

impl CallFailed {
    /// A stable word: the broker's code, or one of this client's.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Connect(failed) => failed.code(),
            Self::NotSent { .. } => "not_sent",
            Self::Refused(refused) => &refused.code,
            Self::Unanswered { .. } => "unanswered",
            Self::Unsupported { .. } => "unsupported",
            Self::Protocol { .. } => "protocol",
        }
    }

    /// Whether trying again can help.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Connect(failed) => failed.retry(),
            Self::Refused(refused) => refused.retry,
            Self::Unanswered { changes: true, .. } => Retry::OutcomeUnknown,
            Self::NotSent { .. } | Self::Unanswered { changes: false, .. } => Retry::Retry,
            Self::Unsupported { .. } | Self::Protocol { .. } => Retry::Fatal,
        }
    }
}

impl PublishFailed {
    /// A stable word: the broker's code, or one of this client's.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::TooLarge { .. } => "too_large",
            Self::Malformed { .. } => "malformed",
            Self::OffsetMismatch { .. } => "offset_mismatch",
            Self::ProducerEnded { .. } => "producer_ended",
            Self::Call(failed) => failed.code(),
        }
    }

    /// Whether trying again can help.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Call(failed) => failed.retry(),
            Self::ProducerEnded { .. } => Retry::OutcomeUnknown,
            Self::TooLarge { .. } | Self::Malformed { .. } | Self::OffsetMismatch { .. } => {
                Retry::Fatal
            }
        }
    }
}

impl ReadFailed {
    /// A stable word: the broker's code, or one of this client's.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::TooOld { .. } => "too_old",
            Self::InFuture { .. } => "in_future",
            Self::Ended(refused) => &refused.code,
            Self::Call(failed) => failed.code(),
        }
    }

    /// Whether trying again can help.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::TooOld { .. } | Self::InFuture { .. } => Retry::Fatal,
            Self::Ended(refused) => refused.retry,
            Self::Call(failed) => failed.retry(),
        }
    }
}

impl Error {
    /// A stable word: the broker's code, or one of this client's.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Connect(failed) => failed.code(),
            Self::Publish(failed) => failed.code(),
            Self::Read(failed) => failed.code(),
            Self::Cache(failed) => failed.code(),
            Self::Commit(failed) => failed.code(),
            Self::Settle(failed) => failed.code(),
            Self::Call(failed) => failed.code(),
        }
    }

    /// Whether trying again can help.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Connect(failed) => failed.retry(),
            Self::Publish(failed) => failed.retry(),
            Self::Read(failed) => failed.retry(),
            Self::Cache(failed) => failed.retry(),
            Self::Commit(failed) => failed.retry(),
            Self::Settle(failed) => failed.retry(),
            Self::Call(failed) => failed.retry(),
        }
    }
}

macro_rules! through_call {
    ($($outer:ident),*) => {$(
        impl From<ConnectFailed> for $outer {
            fn from(failed: ConnectFailed) -> Self {
                Self::Call(CallFailed::Connect(failed))
            }
        }
        impl From<Refused> for $outer {
            fn from(refused: Refused) -> Self {
                Self::Call(CallFailed::Refused(refused))
            }
        }
    )*};
}
through_call!(PublishFailed, ReadFailed);

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(retry: Retry) -> Refused {
        Refused {
            code: "overloaded".to_owned(),
            message: "queue full".to_owned(),
            retry,
            reason: Some("publish_queue_full".to_owned()),
            number: None,
        }
    }

    #[test]
    fn a_refusal_keeps_its_code_and_class_through_every_layer() {
        let after = Retry::RetryAfter(Duration::from_millis(50));
        let error = Error::from(PublishFailed::from(refused(after)));
        assert_eq!(error.code(), "overloaded");
        assert_eq!(error.retry(), after);
        assert_eq!(
            error.to_string(),
            "overloaded: queue full (publish_queue_full)"
        );
    }

    #[test]
    fn a_lost_answer_is_an_unknown_outcome_only_for_requests_that_change_something() {
        let lost = |changes| CallFailed::Unanswered {
            why: "lost".to_owned(),
            changes,
        };
        assert_eq!(lost(true).retry(), Retry::OutcomeUnknown);
        assert_eq!(lost(false).retry(), Retry::Retry);
        assert!(!lost(true).retry().is_safe());
    }

    #[test]
    fn every_broker_that_was_tried_is_named() {
        let attempt = |broker: &str| Attempt {
            broker: broker.to_owned(),
            why: "timed out".to_owned(),
            certificate: None,
        };
        let failed = ConnectFailed::NoBroker {
            attempts: vec![attempt("a:1"), attempt("b:2")],
        };
        assert_eq!(
            failed.to_string(),
            "no broker answered (a:1: timed out, b:2: timed out)"
        );
    }

    #[test]
    fn a_broker_that_wants_another_certificate_is_told_apart_from_one_that_is_away() {
        let attempt = |certificate| Attempt {
            broker: "a:1".to_owned(),
            why: "lost".to_owned(),
            certificate,
        };
        let away = ConnectFailed::nowhere(vec![attempt(None)]);
        assert_eq!((away.code(), away.retry()), ("unreachable", Retry::Retry));
        let wanted = [attempt(None), attempt(Some(CertificateRefused::Missing))];
        let wanted = ConnectFailed::nowhere(wanted.into());
        assert_eq!(
            (wanted.code(), wanted.retry()),
            ("certificate_required", Retry::Fatal)
        );
        let expired = CertificateRefused::Unfit("it has expired");
        let refused = ConnectFailed::nowhere(vec![attempt(Some(expired))]);
        assert_eq!(refused.code(), "certificate_refused");
        assert!(refused.to_string().contains("tls_client_ca"), "{refused}");
    }
}
