//! What browsers send, taken apart. Nothing here knows a scope; names are looked up in `state.rs`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, Bytes};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::fault::{Code, Fault};

/// A browser's first message.
pub(crate) struct Join {
    pub(crate) features: Vec<String>,
    /// Absent: the session of a sign-in at the gateway counts.
    pub(crate) token: Option<String>,
    pub(crate) scope: String,
    pub(crate) namespace: Option<String>,
}

/// A message after the first one.
#[derive(Debug, PartialEq)]
pub(crate) enum Message {
    Subscribe {
        wanted: Wanted,
    },
    /// With `resume`.
    SubscribeMany {
        wanted: Vec<Wanted>,
    },
    Publish(Publish),
    CounterAdd {
        counter: String,
        key: String,
        delta: i64,
        id: u64,
    },
    CacheGet {
        cache: String,
        key: String,
        id: u64,
    },
    CachePut {
        cache: String,
        key: String,
        payload: Bytes,
    },
    CacheDelete {
        cache: String,
        key: String,
    },
    CachePutIf {
        cache: String,
        key: String,
        payload: Bytes,
        condition: Condition,
        id: u64,
    },
    CacheDeleteIf {
        cache: String,
        key: String,
        version: u64,
        id: u64,
    },
    CacheWatch {
        cache: String,
    },
    StateGet {
        stream: String,
        key: String,
        entity: String,
        shard: Option<u32>,
        id: u64,
    },
    Read {
        stream: String,
        from: u64,
        end: Option<u64>,
        most: u32,
        shard: Option<u32>,
        id: u64,
    },
    OffsetForTime {
        stream: String,
        at_us: u64,
        shard: Option<u32>,
        id: u64,
    },
    Throttle {
        bits_per_second: Option<f64>,
    },
    /// With `refresh`.
    Refresh {
        token: Hidden,
    },
    /// With `refresh`.
    SignOut,
}

/// A subscription that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Wanted {
    pub(crate) stream: String,
    pub(crate) from: Begin,
    #[serde(default)]
    pub(crate) slot: Option<String>,
    #[serde(default)]
    pub(crate) shard: Option<u32>,
}

/// Where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Begin {
    /// The first offset wanted.
    Offset(u64),
    Word(Live),
}

/// With whatever comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Live {
    Live,
}

/// A publish, however it came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Publish {
    pub(crate) stream: Named,
    pub(crate) payload: Bytes,
    pub(crate) ack: bool,
    pub(crate) id: u64,
}

/// How a publish names its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Alias(String),
    /// The place in `hello.streams`.
    Number(u32),
}

/// What must hold for a conditional put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Condition {
    Absent,
    Version(u64),
}

/// A token on its way; never shown.
#[derive(PartialEq, Eq, Deserialize)]
pub(crate) struct Hidden(pub(crate) String);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hidden(..)")
    }
}

impl std::fmt::Debug for Join {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Join")
            .field("features", &self.features)
            .field("scope", &self.scope)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

/// Features asked for in one join; more are none of ours.
const FEATURES_MAX: usize = 64;

/// Subscriptions in one message.
pub(crate) const RESUMED_MAX: usize = 64;

/// Bytes of the header of a binary publish.
const BINARY_HEAD: usize = 32;

/// Kind byte of a binary publish.
const BINARY_PUBLISH: u8 = 2;

/// Flag of a binary publish: an ack is wanted.
const WANTS_ACK: u16 = 1;

impl Join {
    /// Reads a first message; `field` is the key of the scope's value.
    ///
    /// # Errors
    /// The fault to close with.
    pub(crate) fn read(text: &str, field: &str) -> Result<Self, Fault> {
        let message: Map<String, Value> = serde_json::from_str(text).map_err(|error| {
            Fault::bad_request(format!("the first message is no JSON object: {error}"))
        })?;
        let word = |key: &str| match message.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(Fault::bad_request(format!("`{key}` must be a string"))),
        };
        if word("type")?.as_deref() != Some("join") {
            return Err(Fault::bad_request("the first message must be `join`"));
        }
        match message.get("protocol") {
            None | Some(Value::Null) => {}
            Some(Value::Number(number)) if number.as_u64() == Some(super::PROTOCOL) => {}
            Some(other) => {
                let message = format!(
                    "protocol {other} is not spoken here; {} is",
                    super::PROTOCOL
                );
                return Err(Fault::new(Code::Unsupported, message));
            }
        }
        let features = match message.get("features") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(list)) if list.len() <= FEATURES_MAX => list
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            Some(_) => return Err(Fault::bad_request("`features` must be a list of names")),
        };
        let scope = word(field)?.filter(|scope| crate::scope::is_plain(scope));
        let scope = scope.ok_or_else(|| {
            Fault::bad_request(format!("`{field}` must be 1 to 64 of A-Z a-z 0-9 _ -"))
        })?;
        Ok(Self {
            features,
            token: word("token")?,
            scope,
            namespace: word("namespace")?,
        })
    }
}

/// What every message has: enough to answer one that cannot be read.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(rename = "type", borrow)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(default)]
    id: Option<Value>,
}

impl Message {
    /// Reads a text message.
    ///
    /// # Errors
    /// `bad_request` for what cannot be read, `unsupported` for a type nobody knows; with the id if there is one.
    pub(crate) fn read(text: &str) -> Result<Self, Fault> {
        let head: Head<'_> = serde_json::from_str(text)
            .map_err(|error| Fault::bad_request(format!("not a message: {error}")))?;
        let id = head.id.as_ref().and_then(Value::as_u64);
        Self::of_kind(&head.kind, text).map_err(|fault| fault.id(id))
    }

    fn of_kind(kind: &str, text: &str) -> Result<Self, Fault> {
        match kind {
            "subscribe" => subscribe(text),
            "publish" => {
                let written: PublishText = fields(kind, text)?;
                Ok(Self::Publish(Publish {
                    stream: Named::Alias(written.stream),
                    payload: payload(&written.payload)?,
                    ack: written.ack,
                    id: written.id,
                }))
            }
            "counter_add" => {
                let CounterAddText {
                    counter,
                    key,
                    delta,
                    id,
                } = fields(kind, text)?;
                Ok(Self::CounterAdd {
                    counter,
                    key,
                    delta,
                    id,
                })
            }
            "cache_get" => {
                let CacheGetText { cache, key, id } = fields(kind, text)?;
                Ok(Self::CacheGet { cache, key, id })
            }
            "cache_put" => {
                let CachePutText {
                    cache,
                    key,
                    payload: text,
                } = fields(kind, text)?;
                let payload = payload(&text).map_err(|fault| fault.cache(&cache))?;
                Ok(Self::CachePut {
                    cache,
                    key,
                    payload,
                })
            }
            "cache_delete" => {
                let CacheDeleteText { cache, key } = fields(kind, text)?;
                Ok(Self::CacheDelete { cache, key })
            }
            "cache_put_if" => {
                let CachePutIfText {
                    cache,
                    key,
                    payload: text,
                    condition,
                    id,
                } = fields(kind, text)?;
                let payload = payload(&text).map_err(|fault| fault.cache(&cache))?;
                Ok(Self::CachePutIf {
                    cache,
                    key,
                    payload,
                    condition,
                    id,
                })
            }
            "cache_delete_if" => {
                let CacheDeleteIfText {
                    cache,
                    key,
                    version,
                    id,
                } = fields(kind, text)?;
                Ok(Self::CacheDeleteIf {
                    cache,
                    key,
                    version,
                    id,
                })
            }
            "cache_watch" => {
                let CacheWatchText { cache } = fields(kind, text)?;
                Ok(Self::CacheWatch { cache })
            }
            "state_get" => {
                let StateGetText {
                    stream,
                    key,
                    entity,
                    shard,
                    id,
                } = fields(kind, text)?;
                let entity = entity.unwrap_or_default();
                Ok(Self::StateGet {
                    stream,
                    key,
                    entity,
                    shard,
                    id,
                })
            }
            "read" => {
                let ReadText {
                    stream,
                    from,
                    end,
                    max,
                    shard,
                    id,
                } = fields(kind, text)?;
                let most = max.unwrap_or(0);
                Ok(Self::Read {
                    stream,
                    from,
                    end,
                    most,
                    shard,
                    id,
                })
            }
            "offset_for_time" => {
                let OffsetForTimeText {
                    stream,
                    at_us,
                    shard,
                    id,
                } = fields(kind, text)?;
                Ok(Self::OffsetForTime {
                    stream,
                    at_us,
                    shard,
                    id,
                })
            }
            "throttle" => {
                let ThrottleText { bits_per_second } = fields(kind, text)?;
                Ok(Self::Throttle { bits_per_second })
            }
            "refresh" => {
                let RefreshText { token } = fields(kind, text)?;
                Ok(Self::Refresh { token })
            }
            "sign_out" => Ok(Self::SignOut),
            "join" => Err(Fault::bad_request("there was a `join` already")),
            other => Err(Fault::new(
                Code::Unsupported,
                format!("no message is called {other:?}"),
            )),
        }
    }

    /// Reads a binary message, which is a publish.
    ///
    /// # Errors
    /// `bad_request`, with the id if the frame has one.
    pub(crate) fn read_binary(mut frame: Bytes) -> Result<Self, Fault> {
        let length = frame.get(1).copied().map_or(0, usize::from);
        if frame.first() != Some(&BINARY_PUBLISH) || length < BINARY_HEAD || frame.len() < length {
            let message = "a binary frame must be a publish with a header of 32 bytes";
            return Err(Fault::bad_request(message));
        }
        let mut head = frame.split_to(length);
        head.advance(2);
        let flags = head.get_u16_le();
        let stream = head.get_u32_le();
        let id = head.get_u64_le();
        if flags & !WANTS_ACK != 0 {
            let message = format!("a publish has no flags {flags:#06x}");
            return Err(Fault::bad_request(message).id(Some(id)));
        }
        Ok(Self::Publish(Publish {
            stream: Named::Number(stream),
            payload: frame,
            ack: flags & WANTS_ACK != 0,
            id,
        }))
    }
}

fn subscribe(text: &str) -> Result<Message, Fault> {
    #[derive(Deserialize)]
    struct Many {
        #[serde(default)]
        streams: Option<Vec<Wanted>>,
    }
    let Many { streams } = fields("subscribe", text)?;
    match streams {
        Some(wanted) if wanted.is_empty() || wanted.len() > RESUMED_MAX => Err(Fault::bad_request(
            format!("`streams` must hold 1 to {RESUMED_MAX} subscriptions"),
        )),
        Some(wanted) => Ok(Message::SubscribeMany { wanted }),
        None => Ok(Message::Subscribe {
            wanted: fields("subscribe", text)?,
        }),
    }
}

fn fields<'a, T: Deserialize<'a>>(kind: &str, text: &'a str) -> Result<T, Fault> {
    serde_json::from_str(text).map_err(|error| Fault::bad_request(format!("`{kind}`: {error}")))
}

fn payload(text: &str) -> Result<Bytes, Fault> {
    let decoded = STANDARD.decode(text);
    let decoded =
        decoded.map_err(|error| Fault::bad_request(format!("`payload` is no base64: {error}")))?;
    Ok(decoded.into())
}

#[derive(Deserialize)]
struct PublishText {
    stream: String,
    payload: String,
    ack: bool,
    id: u64,
}

#[derive(Deserialize)]
struct CounterAddText {
    counter: String,
    key: String,
    delta: i64,
    id: u64,
}

#[derive(Deserialize)]
struct CacheGetText {
    cache: String,
    key: String,
    id: u64,
}

#[derive(Deserialize)]
struct CachePutText {
    cache: String,
    key: String,
    payload: String,
}

#[derive(Deserialize)]
struct CacheDeleteText {
    cache: String,
    key: String,
}

#[derive(Deserialize)]
struct CachePutIfText {
    cache: String,
    key: String,
    payload: String,
    #[serde(rename = "if")]
    condition: Condition,
    id: u64,
}

#[derive(Deserialize)]
struct CacheDeleteIfText {
    cache: String,
    key: String,
    version: u64,
    id: u64,
}

#[derive(Deserialize)]
struct CacheWatchText {
    cache: String,
}

#[derive(Deserialize)]
struct StateGetText {
    stream: String,
    key: String,
    #[serde(default)]
    entity: Option<String>,
    #[serde(default)]
    shard: Option<u32>,
    id: u64,
}

#[derive(Deserialize)]
struct ReadText {
    stream: String,
    from: u64,
    #[serde(default)]
    end: Option<u64>,
    #[serde(default)]
    max: Option<u32>,
    #[serde(default)]
    shard: Option<u32>,
    id: u64,
}

#[derive(Deserialize)]
struct OffsetForTimeText {
    stream: String,
    at_us: u64,
    #[serde(default)]
    shard: Option<u32>,
    id: u64,
}

#[derive(Deserialize)]
struct ThrottleText {
    bits_per_second: Option<f64>,
}

#[derive(Deserialize)]
struct RefreshText {
    token: Hidden,
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut as _, BytesMut};
    use proptest::prelude::*;

    use super::*;

    fn code(text: &str) -> (Code, Option<u64>) {
        let fault = Message::read(text).unwrap_err();
        (fault.code, fault.id)
    }

    fn binary(flags: u16, payload: &[u8]) -> BytesMut {
        let mut frame = BytesMut::new();
        frame.put_slice(&[2, 32]);
        frame.put_u16_le(flags);
        frame.put_u32_le(1);
        frame.put_u64_le(77);
        frame.put_bytes(0, 16);
        frame.put_slice(payload);
        frame
    }

    #[test]
    fn a_publish_is_read_in_both_forms() {
        let text = r#"{"type":"publish","stream":"edits","payload":"aGk=","ack":true,"id":77}"#;
        let Message::Publish(publish) = Message::read(text).unwrap() else {
            panic!("a publish");
        };
        assert_eq!(
            (publish.payload.as_ref(), publish.ack, publish.id),
            (&b"hi"[..], true, 77)
        );
        let Message::Publish(same) = Message::read_binary(binary(1, b"hi").freeze()).unwrap()
        else {
            panic!("a publish");
        };
        assert_eq!(same.stream, Named::Number(1));
        assert_eq!(
            (same.payload, same.ack, same.id),
            (publish.payload, true, 77)
        );
    }

    #[test]
    fn what_cannot_be_read_is_a_bad_request_with_its_id() {
        assert_eq!(code("{"), (Code::BadRequest, None));
        assert_eq!(code("[]"), (Code::BadRequest, None));
        assert_eq!(
            code(r#"{"type":"publish","id":3}"#),
            (Code::BadRequest, Some(3))
        );
        let wrong = r#"{"type":"publish","stream":"s","payload":"aGk","ack":true,"id":3}"#;
        assert_eq!(code(wrong), (Code::BadRequest, Some(3)));
        assert_eq!(code(r#"{"type":"join"}"#), (Code::BadRequest, None));
        assert_eq!(
            code(r#"{"type":"dance","id":9}"#),
            (Code::Unsupported, Some(9))
        );
    }

    #[test]
    fn a_subscription_begins_live_or_at_an_offset() {
        let from = |text: &str| {
            let text = format!(r#"{{"type":"subscribe","stream":"s","from":{text}}}"#);
            match Message::read(&text) {
                Ok(Message::Subscribe { wanted }) => Some(wanted.from),
                _ => None,
            }
        };
        assert_eq!(from(r#""live""#), Some(Begin::Word(Live::Live)));
        assert_eq!(from("12"), Some(Begin::Offset(12)));
        assert_eq!(from(r#""earliest""#), None);
        assert_eq!(from("-1"), None);
    }

    #[test]
    fn a_conditional_put_says_what_must_hold() {
        let put = |text: &str| {
            let text = format!(
                r#"{{"type":"cache_put_if","cache":"c","key":"k","payload":"","if":{text},"id":1}}"#
            );
            match Message::read(&text) {
                Ok(Message::CachePutIf { condition, .. }) => Some(condition),
                _ => None,
            }
        };
        assert_eq!(put(r#""absent""#), Some(Condition::Absent));
        assert_eq!(put(r#"{"version":4}"#), Some(Condition::Version(4)));
        assert_eq!(put(r#"{"version":"x"}"#), None);
    }

    #[test]
    fn a_join_says_which_protocol_scope_and_features() {
        let join = Join::read(
            r#"{"type":"join","board":"b-1","token":"t","features":["binary",3]}"#,
            "board",
        );
        let join = join.unwrap();
        assert_eq!(
            (join.scope.as_str(), join.features),
            ("b-1", vec!["binary".to_owned()])
        );
        let fault = |text| Join::read(text, "board").unwrap_err().code;
        assert_eq!(
            fault(r#"{"type":"join","board":"b","protocol":2}"#),
            Code::Unsupported
        );
        assert_eq!(fault(r#"{"type":"join","board":"b/1"}"#), Code::BadRequest);
        assert_eq!(fault(r#"{"type":"join","room":"b"}"#), Code::BadRequest);
        assert_eq!(fault(r#"{"type":"publish"}"#), Code::BadRequest);
    }

    proptest! {
        #[test]
        fn no_text_and_no_frame_upsets_the_reader(text in ".{0,200}", frame in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Message::read(&text);
            let _ = Join::read(&text, "board");
            let _ = Message::read_binary(frame.into());
        }

        #[test]
        fn no_damage_to_a_message_upsets_the_reader(at in 0usize..80, byte in 32u8..127) {
            let mut text = br#"{"type":"publish","stream":"edits","payload":"aGk=","ack":true,"id":77}"#.to_vec();
            let at = at % text.len();
            text[at] = byte;
            let text = String::from_utf8(text).unwrap();
            let _ = Message::read(&text);
        }

        #[test]
        fn every_payload_survives_both_forms(payload in prop::collection::vec(any::<u8>(), 0..300)) {
            let text = format!(
                r#"{{"type":"publish","stream":"s","payload":"{}","ack":false,"id":1}}"#,
                STANDARD.encode(&payload),
            );
            let read = |message| match message {
                Ok(Message::Publish(publish)) => publish.payload,
                other => panic!("{other:?}"),
            };
            prop_assert_eq!(&read(Message::read(&text))[..], &payload[..]);
            prop_assert_eq!(&read(Message::read_binary(binary(0, &payload).freeze()))[..], &payload[..]);
        }
    }
}
