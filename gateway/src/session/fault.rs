//! The `error` message, and what it is made of.

use std::time::Duration;

use serde::Serialize;

/// What a browser is told when something is not done. A code never changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Code {
    BadRequest,
    Unsupported,
    Forbidden,
    SignedOut,
    Unavailable,
    PublishFailed,
    SubscribeFailed,
    SubscriptionEnded,
    CounterFailed,
    CacheFailed,
    WatchFailed,
    StateFailed,
    ReadFailed,
    Trimmed,
    PastEnd,
    RateLimited,
}

/// An `error` message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "error")]
pub(crate) struct Fault {
    pub(crate) code: Code,
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stream: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) slot: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shard: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cache: Option<String>,
    /// With `trimmed`: the first offset that can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) oldest: Option<u64>,
    /// With `past_end`: the offset the next record will get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tail: Option<u64>,
    /// With `rate_limited`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_ms: Option<u64>,
}

impl Fault {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            id: None,
            stream: None,
            slot: None,
            shard: None,
            cache: None,
            oldest: None,
            tail: None,
            retry_after_ms: None,
        }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Code::BadRequest, message)
    }

    pub(crate) fn id(mut self, id: Option<u64>) -> Self {
        self.id = id;
        self
    }

    pub(crate) fn stream(mut self, alias: &str) -> Self {
        self.stream = Some(alias.to_owned());
        self
    }

    pub(crate) fn cache(mut self, alias: &str) -> Self {
        self.cache = Some(alias.to_owned());
        self
    }

    /// Rounded up, so that who waits this long does not come too early.
    pub(crate) fn retry_after(mut self, wait: Duration) -> Self {
        let ms = wait.as_micros().div_ceil(1_000);
        self.retry_after_ms = Some(u64::try_from(ms).unwrap_or(u64::MAX));
        self
    }

    pub(crate) fn to_text(&self) -> String {
        super::answer::to_text(self)
    }
}
