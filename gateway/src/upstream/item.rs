//! One event on its way to browsers, written once for all who take it in the same form.

use std::sync::OnceLock;
use std::time::Instant;

use axum::extract::ws::{Message, Utf8Bytes};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut as _, Bytes, BytesMut};

use super::ring::Weighed;
use crate::session::Shape;

/// Kind byte of a binary event, in both layouts.
const KIND_EVENT: u8 = 1;

/// Header bytes of `binary`.
const BINARY_HEAD: u8 = 32;

/// Header bytes of `binary_events`.
const BINARY_EVENTS_HEAD: u8 = 40;

/// An event.
#[derive(Debug)]
pub(crate) struct Item {
    /// `None` on streams without a log.
    pub(crate) offset: Option<u64>,
    /// Offsets before it that hold no event.
    pub(crate) skipped_before: u64,
    /// When it was appended, Unix microseconds; 0: unknown.
    pub(crate) time_us: u64,
    pub(crate) payload: Bytes,
    /// When the broker's frame was read here.
    pub(crate) arrived: Instant,
    text: OnceLock<Utf8Bytes>,
    binary: OnceLock<Bytes>,
}

/// What of an event differs from browser to browser.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dress<'a> {
    pub(crate) shape: Shape,
    pub(crate) alias: &'a str,
    pub(crate) slot: Option<&'a str>,
    pub(crate) sub: u32,
}

impl Weighed for Item {
    /// Its payload, once for each form that it may be written in.
    fn bytes(&self) -> usize {
        3 * self.payload.len()
    }
}

impl Item {
    pub(crate) fn new(offset: Option<u64>, payload: Bytes, arrived: Instant) -> Self {
        Self {
            offset,
            skipped_before: 0,
            time_us: 0,
            payload,
            arrived,
            text: OnceLock::new(),
            binary: OnceLock::new(),
        }
    }

    /// As a message of this browser. Without a slot it is written once and shared: an alias and its number are the same
    /// for every browser of a gateway.
    pub(crate) fn message(&self, dress: Dress<'_>) -> Message {
        match (dress.shape, dress.slot) {
            (Shape::Text, None) => {
                Message::Text(self.text.get_or_init(|| self.text(dress)).clone())
            }
            (Shape::Text, Some(_)) => Message::Text(self.text(dress)),
            (Shape::Binary, None) => {
                Message::Binary(self.binary.get_or_init(|| self.binary(dress.sub)).clone())
            }
            (Shape::Binary, Some(_)) => Message::Binary(self.binary(dress.sub)),
            // Its header says when it was handed over, which differs.
            (Shape::BinaryEvents, _) => Message::Binary(self.binary_events(dress.sub)),
        }
    }

    fn text(&self, dress: Dress<'_>) -> Utf8Bytes {
        use std::fmt::Write as _;
        let mut text = String::with_capacity(96 + self.payload.len().div_ceil(3) * 4);
        text.push_str(r#"{"type":"event","stream":""#);
        // Aliases and slots are plain characters.
        text.push_str(dress.alias);
        if let Some(slot) = dress.slot {
            text.push_str(r#"","slot":""#);
            text.push_str(slot);
        }
        text.push_str(r#"","offset":"#);
        let written = match self.offset {
            Some(offset) => write!(text, "{offset}"),
            None => write!(text, "null"),
        };
        text.push_str(r#","payload":""#);
        STANDARD.encode_string(&self.payload, &mut text);
        text.push('"');
        let skipped = match self.skipped_before {
            0 => Ok(()),
            skipped => write!(text, r#","skipped_before":{skipped}"#),
        };
        // Writing to a string cannot fail.
        debug_assert!(written.and(skipped).is_ok());
        text.push('}');
        text.into()
    }

    fn binary(&self, sub: u32) -> Bytes {
        let mut frame = self.head(BINARY_HEAD, sub);
        frame.put_u64_le(self.skipped_before);
        frame.put_u64_le(self.time_us);
        frame.put_slice(&self.payload);
        frame.freeze()
    }

    fn binary_events(&self, sub: u32) -> Bytes {
        let mut frame = self.head(BINARY_EVENTS_HEAD, sub);
        frame.put_u32_le(u32::try_from(self.skipped_before).unwrap_or(u32::MAX));
        frame.put_u32_le(0);
        let handed = crate::identity::now().0.saturating_mul(1_000);
        let waited = u64::try_from(self.arrived.elapsed().as_micros()).unwrap_or(u64::MAX);
        frame.put_u64_le(handed.saturating_sub(waited));
        frame.put_u64_le(handed);
        frame.put_slice(&self.payload);
        frame.freeze()
    }

    fn head(&self, length: u8, sub: u32) -> BytesMut {
        let mut frame = BytesMut::with_capacity(usize::from(length) + self.payload.len());
        frame.put_u8(KIND_EVENT);
        frame.put_u8(length);
        frame.put_u16_le(0);
        frame.put_u32_le(sub);
        frame.put_u64_le(self.offset.unwrap_or(u64::MAX));
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dress(shape: Shape, slot: Option<&str>) -> Dress<'_> {
        Dress {
            shape,
            alias: "edits",
            slot,
            sub: 7,
        }
    }

    fn item(offset: Option<u64>, skipped_before: u64) -> Item {
        Item {
            skipped_before,
            time_us: 9,
            ..Item::new(offset, Bytes::from_static(b"hi"), Instant::now())
        }
    }

    #[test]
    fn an_event_is_text_as_the_specification_has_it() {
        let text = |item: Item, slot| {
            let Message::Text(text) = item.message(dress(Shape::Text, slot)) else {
                panic!("not text");
            };
            text.as_str().to_owned()
        };
        let plain = r#"{"type":"event","stream":"edits","offset":3,"payload":"aGk="}"#;
        assert_eq!(text(item(Some(3), 0), None), plain);
        let skipped = r#"{"type":"event","stream":"edits","offset":null,"payload":"aGk=","skipped_before":2}"#;
        assert_eq!(text(item(None, 2), None), skipped);
        let slotted = r#"{"type":"event","stream":"edits","slot":"a","offset":3,"payload":"aGk="}"#;
        assert_eq!(text(item(Some(3), 0), Some("a")), slotted);
    }

    #[test]
    fn a_binary_event_has_a_header_of_32_bytes_and_the_published_one_40() {
        let bytes = |shape| {
            let Message::Binary(bytes) = item(None, 5).message(dress(shape, None)) else {
                panic!("not binary");
            };
            bytes
        };
        let ours = bytes(Shape::Binary);
        assert_eq!(&ours[..8], [1, 32, 0, 0, 7, 0, 0, 0]);
        assert_eq!(&ours[8..16], [255; 8]);
        assert_eq!(ours[16], 5);
        assert_eq!(ours[24], 9);
        assert_eq!(&ours[32..], b"hi");
        let published = bytes(Shape::BinaryEvents);
        assert_eq!((published[0], published[1], published[16]), (1, 40, 5));
        assert_eq!(&published[40..], b"hi");
    }

    #[test]
    fn browsers_of_one_form_share_one_writing() {
        let item = item(Some(1), 0);
        let address = |message: Message| {
            let Message::Binary(bytes) = message else {
                panic!("not binary");
            };
            bytes.as_ptr()
        };
        let first = address(item.message(dress(Shape::Binary, None)));
        assert_eq!(first, address(item.message(dress(Shape::Binary, None))));
        assert_ne!(
            first,
            address(item.message(dress(Shape::Binary, Some("a"))))
        );
    }
}
