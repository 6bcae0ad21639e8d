//! The shapes of answers: bytes as base64, bounded, and said to be cut when they are.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use felix_client::{Event, Headers};
use serde::Serialize;

use super::limits::{HEADERS, KEY_BYTES, PREVIEW_BYTES};
use super::refusal::Refusal;

/// Bytes for the page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Shown {
    base64: String,
    bytes: usize,
    cut: bool,
}

/// One header of a record.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Header {
    name: String,
    value: Option<Shown>,
}

/// One record.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) shard: u32,
    pub(super) offset: Option<u64>,
    pub(super) timestamp_ms: Option<i64>,
    pub(super) key: Option<Shown>,
    pub(super) value: Option<Shown>,
    pub(super) headers: Vec<Header>,
    pub(super) publisher: Option<String>,
}

/// One page of a listing.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Listing<T> {
    pub(super) items: Vec<T>,
    pub(super) next: Option<String>,
}

impl<T> Listing<T> {
    /// All of it.
    pub(super) fn whole(items: Vec<T>) -> Self {
        Self { items, next: None }
    }
}

/// At most this many bytes of something.
pub(super) fn cut(bytes: &[u8], most: usize) -> Shown {
    let head = bytes.get(..most).unwrap_or(bytes);
    Shown {
        base64: STANDARD.encode(head),
        bytes: bytes.len(),
        cut: head.len() < bytes.len(),
    }
}

/// Bytes that a body brought as base64.
pub(super) fn bytes_of(text: &str, what: &str) -> Result<Bytes, Refusal> {
    let bytes = STANDARD.decode(text);
    bytes
        .map(Bytes::from)
        .map_err(|why| Refusal::invalid(format!("{what} is not base64: {why}")))
}

/// How much of a record is shown.
#[derive(Clone, Copy, Debug)]
pub(super) enum Extent {
    /// As much as a table needs.
    Preview,
    /// Everything.
    Whole,
}

impl Extent {
    const fn bounds(self) -> (usize, usize, usize) {
        match self {
            Self::Preview => (PREVIEW_BYTES, KEY_BYTES, HEADERS),
            Self::Whole => (usize::MAX, usize::MAX, usize::MAX),
        }
    }
}

/// Headers as they are shown.
pub(super) fn headers<'h>(
    pairs: impl Iterator<Item = (&'h [u8], Option<&'h [u8]>)>,
    extent: Extent,
) -> Vec<Header> {
    let (_, bytes, most) = extent.bounds();
    pairs
        .take(most)
        .map(|(name, value)| Header {
            name: String::from_utf8_lossy(name).into_owned(),
            value: value.map(|value| cut(value, bytes)),
        })
        .collect()
}

impl Row {
    /// A record of a log.
    pub(super) fn of_record(
        shard: u32,
        record: &felix_model::Record,
        publisher: Option<String>,
        extent: Extent,
    ) -> Self {
        let (value, key, _) = extent.bounds();
        Self {
            shard,
            offset: Some(record.offset.0),
            timestamp_ms: Some(record.timestamp_ms).filter(|at| *at >= 0),
            key: record.key.as_deref().map(|bytes| cut(bytes, key)),
            value: record.value.as_deref().map(|bytes| cut(bytes, value)),
            headers: record_headers(&record.headers, extent),
            publisher,
        }
    }

    /// A record of a subscription.
    pub(super) fn of_event(event: &Event, extent: Extent) -> Self {
        let (value, key, _) = extent.bounds();
        let at = event.timestamp_micros.map(|micros| micros / 1_000);
        Self {
            shard: event.shard,
            offset: event.offset,
            timestamp_ms: at.and_then(|at| i64::try_from(at).ok()),
            key: event.key.as_deref().map(|bytes| cut(bytes, key)),
            value: (!event.is_tombstone).then(|| cut(&event.payload, value)),
            headers: record_headers(&event.headers, extent),
            publisher: event.publisher.as_deref().map(str::to_owned),
        }
    }
}

fn record_headers(all: &Headers, extent: Extent) -> Vec<Header> {
    let pairs: Vec<(Bytes, Option<Bytes>)> = all.iter().take(extent.bounds().2).collect();
    let pairs = pairs
        .iter()
        .map(|(name, value)| (name.as_ref(), value.as_deref()));
    headers(pairs, extent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_says_so_and_how_long_it_was() {
        let shown = cut(&[7; 10], 4);
        assert_eq!((shown.bytes, shown.cut), (10, true));
        assert_eq!(bytes_of(&shown.base64, "x").unwrap(), vec![7; 4]);
        assert!(!cut(b"", 4).cut);
        assert!(bytes_of("%", "the value").is_err());
    }
}
