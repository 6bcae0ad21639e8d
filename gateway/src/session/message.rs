//! What browsers send, taken apart. Nothing here knows a scope; names are looked up in `state.rs`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, Bytes};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::fault::{Code, Fault, quoted};
use super::fields::{
    CacheDeleteIfText, CacheDeleteText, CacheGetText, CachePutIfText, CachePutText, CacheWatchText,
    CounterAddText, OffsetForTimeText, PublishText, ReadText, RefreshText, StateGetText,
    ThrottleText,
};

/// A browser's first message.
pub(crate) struct Join {
    pub(crate) features: Vec<String>,
    /// Absent: the session of a sign-in at the gateway counts.
    pub(crate) token: Option<String>,
    pub(crate) scope: String,
    pub(crate) namespace: Option<String>,
    /// The page's name for itself, for `idempotent_publish`.
    pub(crate) session: Option<String>,
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
    /// Its number among those of its page, if it may be repeated.
    pub(crate) seq: Option<u64>,
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

/// Flag of a binary publish: it has a number.
const HAS_SEQ: u16 = 2;

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
                let other = other.to_string();
                let message = format!(
                    "protocol {} is not spoken here; {} is",
                    quoted(&other),
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
            session: page_name(word("session")?, field)?,
        })
    }
}

/// The name that a page gives itself. Where that key is the scope's own, pages have no name.
fn page_name(name: Option<String>, field: &str) -> Result<Option<String>, Fault> {
    match name.filter(|_| field != "session") {
        Some(name) if !crate::scope::is_plain(&name) => Err(Fault::bad_request(
            "`session` must be 1 to 64 of A-Z a-z 0-9 _ -",
        )),
        name => Ok(name),
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
                    seq: written.seq,
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
                format!("no message is called {:?}", quoted(other)),
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
        let seq = head.get_u64_le();
        if flags & !(WANTS_ACK | HAS_SEQ) != 0 {
            let message = format!("a publish has no flags {flags:#06x}");
            return Err(Fault::bad_request(message).id(Some(id)));
        }
        Ok(Self::Publish(Publish {
            stream: Named::Number(stream),
            payload: frame,
            ack: flags & WANTS_ACK != 0,
            id,
            seq: (flags & HAS_SEQ != 0).then_some(seq),
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

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
