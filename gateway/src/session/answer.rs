//! The messages a browser is sent, but for events.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// Bytes as they stand in JSON.
#[derive(Clone, Debug)]
pub(crate) struct Base64(pub(crate) Bytes);

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

/// An answer that is always the same kind of object.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Answer {
    Subscribed {
        stream: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        slot: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        shard: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        sub: Option<u32>,
        start_offset: Option<u64>,
        live_offset: Option<u64>,
    },
    Ack {
        id: u64,
        offset: Option<u64>,
    },
    Counter {
        id: u64,
        value: i64,
    },
    CacheValue {
        id: u64,
        payload: Option<Base64>,
        /// Only with `cache_versions`.
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<Option<u64>>,
    },
    CachePutResult {
        id: u64,
        applied: bool,
        version: Option<u64>,
    },
    CacheDeleteResult {
        id: u64,
        applied: bool,
        version: Option<u64>,
    },
    CacheEntries {
        cache: String,
        entries: Vec<CacheEntry>,
    },
    CacheChange {
        cache: String,
        key: String,
        payload: Option<Base64>,
        expires_in_ms: Option<u64>,
    },
    StateValue {
        id: u64,
        payload: Option<Base64>,
        version: Option<u64>,
        as_of: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        shard: Option<u32>,
    },
    Records {
        id: u64,
        records: Vec<RecordRead>,
        next_offset: u64,
    },
    Offset {
        id: u64,
        offset: Option<u64>,
    },
    Refreshed {
        expires_in_ms: u64,
    },
    GoingAway {
        reconnect_after_ms: u64,
    },
}

/// One entry of a cache as a watch begins.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CacheEntry {
    pub(crate) key: String,
    pub(crate) payload: Base64,
    pub(crate) expires_in_ms: Option<u64>,
}

/// One record of a page.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RecordRead {
    pub(crate) offset: u64,
    pub(crate) payload: Base64,
}

/// What `hello` says.
#[derive(Clone, Debug)]
pub(crate) struct Hello<'a> {
    pub(crate) features: &'a [&'static str],
    pub(crate) namespace: &'a str,
    /// The scope's field and value.
    pub(crate) scope: (&'a str, &'a str),
    pub(crate) cache_ttl_ms: BTreeMap<&'a str, u64>,
    pub(crate) missing: Vec<&'a str>,
    /// With `principal`.
    pub(crate) principal: Option<&'a str>,
    /// With `binary`: aliases by the number that publishes name them by.
    pub(crate) streams: Option<Vec<&'a str>>,
    /// With `refresh`.
    pub(crate) expires_in_ms: Option<u64>,
}

impl Answer {
    pub(crate) fn to_text(&self) -> String {
        to_text(self)
    }
}

impl Hello<'_> {
    pub(crate) fn to_text(&self) -> String {
        let mut all = Map::new();
        all.insert("type".into(), "hello".into());
        all.insert("protocol".into(), super::PROTOCOL.into());
        all.insert("features".into(), Value::from(self.features.to_vec()));
        all.insert("namespace".into(), self.namespace.into());
        all.insert(self.scope.0.to_owned(), self.scope.1.into());
        let ttl: Map<_, _> = self
            .cache_ttl_ms
            .iter()
            .map(|(alias, ms)| ((*alias).to_owned(), Value::from(*ms)))
            .collect();
        all.insert("cache_ttl_ms".into(), ttl.into());
        if !self.missing.is_empty() {
            all.insert("missing".into(), self.missing.clone().into());
        }
        if let Some(principal) = self.principal {
            all.insert("principal".into(), principal.into());
        }
        if let Some(streams) = &self.streams {
            all.insert("streams".into(), streams.clone().into());
        }
        if let Some(ms) = self.expires_in_ms {
            all.insert("expires_in_ms".into(), ms.into());
        }
        Value::Object(all).to_string()
    }
}

/// No message of ours can fail to be written; if one could, its browser would see that something is missing.
pub(super) fn to_text(message: &impl Serialize) -> String {
    serde_json::to_string(message).unwrap_or_else(|error| {
        tracing::error!(%error, "a message could not be written");
        String::from("{}")
    })
}

#[cfg(test)]
mod tests {
    use super::super::fault::{Code, Fault};
    use super::*;

    #[test]
    fn messages_stand_as_the_specification_has_them() {
        let subscribed = Answer::Subscribed {
            stream: "edits".into(),
            slot: None,
            shard: None,
            sub: None,
            start_offset: Some(3),
            live_offset: None,
        };
        let expected =
            r#"{"type":"subscribed","stream":"edits","start_offset":3,"live_offset":null}"#;
        assert_eq!(subscribed.to_text(), expected);
        let value = Answer::CacheValue {
            id: 4,
            payload: Some(Base64(Bytes::from_static(b"hi"))),
            version: None,
        };
        assert_eq!(
            value.to_text(),
            r#"{"type":"cache_value","id":4,"payload":"aGk="}"#
        );
        let versioned = Answer::CacheValue {
            id: 4,
            payload: None,
            version: Some(None),
        };
        let expected = r#"{"type":"cache_value","id":4,"payload":null,"version":null}"#;
        assert_eq!(versioned.to_text(), expected);
        let fault = Fault::new(Code::PublishFailed, "no").id(Some(1));
        let expected = r#"{"type":"error","code":"publish_failed","message":"no","id":1}"#;
        assert_eq!(fault.to_text(), expected);
    }

    #[test]
    fn hello_names_the_scope_under_its_own_field_and_what_is_missing_only_when_something_is() {
        let hello = Hello {
            features: &["binary"],
            namespace: "default",
            scope: ("board", "b1"),
            cache_ttl_ms: [("presence", 15_000)].into(),
            missing: Vec::new(),
            principal: None,
            streams: Some(vec!["edits"]),
            expires_in_ms: None,
        };
        let value: Value = serde_json::from_str(&hello.to_text()).unwrap();
        assert_eq!(value["board"], "b1");
        assert_eq!(value["protocol"], 1);
        assert_eq!(value["cache_ttl_ms"]["presence"], 15_000);
        assert!(value.get("missing").is_none());
        assert_eq!(value["streams"][0], "edits");
    }
}
