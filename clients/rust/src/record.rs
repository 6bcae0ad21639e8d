//! What is published.

use bytes::Bytes;

/// One record: a payload and what may go with it.
///
/// Anything that becomes [`Bytes`] is a record without key and headers, so `publish("orders", "hello")` works.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    pub(crate) payload: Bytes,
    pub(crate) key: Option<Bytes>,
    pub(crate) headers: Vec<(Bytes, Bytes)>,
    pub(crate) timestamp_ms: Option<i64>,
}

impl Record {
    /// A record with this payload.
    #[must_use]
    pub fn new(payload: impl Into<Bytes>) -> Self {
        Self {
            payload: payload.into(),
            ..Self::default()
        }
    }

    /// Records with the same key go to the same shard, in order. An empty key is a key; without one, shard 0.
    #[must_use]
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Adds a header. Needs a broker with the `records` extension.
    #[must_use]
    pub fn header(mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// When it happened, in Unix milliseconds, instead of when it is appended. Needs a broker with the `records`
    /// extension.
    #[must_use]
    pub fn timestamp_ms(mut self, timestamp_ms: i64) -> Self {
        self.timestamp_ms = Some(timestamp_ms);
        self
    }

    /// Whether only the `records` extension can carry it.
    pub(crate) fn is_rich(&self) -> bool {
        !self.headers.is_empty() || self.timestamp_ms.is_some()
    }
}

macro_rules! from_payload {
    ($($payload:ty),*) => {$(
        impl From<$payload> for Record {
            fn from(payload: $payload) -> Self {
                Self::new(payload)
            }
        }
    )*};
}
from_payload!(
    Bytes,
    Vec<u8>,
    String,
    &'static str,
    &'static [u8],
    bytes::BytesMut
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_payloads_are_records_without_extras() {
        for record in [
            Record::from("a"),
            Record::from(vec![b'a']),
            Record::from("a".to_owned()),
        ] {
            assert_eq!(record, Record::new("a"));
            assert!(!record.is_rich());
        }
        assert!(!Record::new("a").key("k").is_rich());
        assert!(Record::new("a").header("h", "v").is_rich());
        assert!(Record::new("a").timestamp_ms(1).is_rich());
    }
}
