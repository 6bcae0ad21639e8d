//! One record as a reader sees it, and its JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value};

use crate::parse::show_time;

/// Schema of the JSON of one record. Fields are only ever added under this name.
pub const RECORD_SCHEMA: &str = "felixctl.record/1";

/// One record that was read, with the place it came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The stream it was read from.
    pub stream: String,
    /// The shard it was read from.
    pub shard: u32,
    /// Its offset; an in-memory stream shows none.
    pub offset: Option<u64>,
    /// When the broker appended it, in Unix milliseconds, when the broker says so.
    pub timestamp_ms: Option<i64>,
    /// Its key, when it has one.
    pub key: Option<Bytes>,
    /// Its value; `None` is a tombstone.
    pub value: Option<Bytes>,
    /// Its headers in order; a header may have no value.
    pub headers: Vec<(Bytes, Option<Bytes>)>,
    /// How many offsets before it were never meant for readers.
    pub skipped_before: u64,
    /// Who published it, when the broker says so.
    pub publisher: Option<String>,
}

impl Seen {
    /// The record as one JSON object. A text is given as it is with the encoding `utf-8`, any
    /// other bytes as `base64`; `null` stands for what is absent.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut object = Map::new();
        object.insert("schema".into(), RECORD_SCHEMA.into());
        object.insert("stream".into(), self.stream.clone().into());
        object.insert("shard".into(), self.shard.into());
        object.insert("offset".into(), self.offset.into());
        object.insert("timestamp_ms".into(), self.timestamp_ms.into());
        object.insert("timestamp".into(), self.timestamp_ms.map(show_time).into());
        insert_bytes(&mut object, "key", self.key.as_deref());
        insert_bytes(&mut object, "value", self.value.as_deref());
        let headers = self.headers.iter().map(|(name, value)| {
            let mut header = Map::new();
            header.insert("name".into(), String::from_utf8_lossy(name).into());
            insert_bytes(&mut header, "value", value.as_deref());
            Value::Object(header)
        });
        object.insert("headers".into(), headers.collect());
        object.insert("skipped_before".into(), self.skipped_before.into());
        object.insert("publisher".into(), self.publisher.clone().into());
        Value::Object(object)
    }
}

fn insert_bytes(object: &mut Map<String, Value>, name: &str, bytes: Option<&[u8]>) {
    let (text, encoding) = json_text(bytes);
    object.insert(name.to_owned(), text);
    object.insert(format!("{name}_encoding"), encoding);
}

/// Bytes as a JSON value and the name of its encoding: text as text, other bytes as base64.
#[must_use]
pub fn json_text(bytes: Option<&[u8]>) -> (Value, Value) {
    match bytes {
        None => (Value::Null, Value::Null),
        Some(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => (text.into(), "utf-8".into()),
            Err(_) => (STANDARD.encode(bytes).into(), "base64".into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_json_whatever_its_bytes() {
        let record = Seen {
            stream: "orders".into(),
            shard: 2,
            offset: Some(41),
            timestamp_ms: Some(1_796_030_100_000),
            key: Some(Bytes::from_static(b"cust-7")),
            value: Some(Bytes::from_static(&[0xff, 0x00])),
            headers: vec![
                (
                    Bytes::from_static(b"source"),
                    Some(Bytes::from_static(b"web")),
                ),
                (Bytes::from_static(b"flag"), None),
            ],
            skipped_before: 0,
            publisher: None,
        };
        insta::assert_snapshot!(serde_json::to_string_pretty(&record.json()).expect("json"));
    }

    #[test]
    fn a_tombstone_has_a_null_value() {
        let json = Seen::default().json();
        assert_eq!(json["value"], Value::Null);
        assert_eq!(json["value_encoding"], Value::Null);
        assert_eq!(json["offset"], Value::Null);
    }
}
