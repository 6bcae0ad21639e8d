//! The `error` message, and what it is made of.

use std::time::Duration;

use serde::Serialize;

use crate::limits::{FAULT_CHARS_MAX, QUOTED_CHARS_MAX};

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
        let mut message = message.into();
        message.truncate(cut(&message, FAULT_CHARS_MAX).len());
        Self {
            code,
            message,
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
        self.stream = Some(quoted(alias).to_owned());
        self
    }

    pub(crate) fn cache(mut self, alias: &str) -> Self {
        self.cache = Some(quoted(alias).to_owned());
        self
    }

    /// Which subscription to the stream it is about.
    pub(crate) fn subscription(mut self, slot: Option<&str>, shard: Option<u32>) -> Self {
        self.slot = slot.map(|slot| quoted(slot).to_owned());
        self.shard = shard;
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

/// As much of somebody else's text as a fault repeats: names that may be are whole.
pub(crate) fn quoted(text: &str) -> &str {
    cut(text, QUOTED_CHARS_MAX)
}

fn cut(text: &str, chars_max: usize) -> &str {
    let end = text.char_indices().nth(chars_max);
    end.and_then(|(at, _)| text.get(..at)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_repeats_no_more_of_foreign_text_than_a_name_is_long() {
        let long = "é".repeat(100_000);
        let fault = Fault::new(Code::SubscribeFailed, &*long);
        assert_eq!(fault.message.chars().count(), FAULT_CHARS_MAX);
        let fault = fault.stream(&long).cache(&long);
        let fault = fault.subscription(Some(&long), None);
        for told in [&fault.stream, &fault.cache, &fault.slot] {
            assert_eq!(told.as_deref(), Some(&*"é".repeat(QUOTED_CHARS_MAX)));
        }
        assert_eq!(quoted("edits"), "edits");
    }
}
