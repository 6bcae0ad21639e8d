//! The fields of each message as they stand in JSON.

use serde::Deserialize;

use super::message::{Condition, Hidden};

#[derive(Deserialize)]
pub(super) struct PublishText {
    pub(super) stream: String,
    pub(super) payload: String,
    pub(super) ack: bool,
    pub(super) id: u64,
    /// With `idempotent_publish`.
    #[serde(default)]
    pub(super) seq: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct CounterAddText {
    pub(super) counter: String,
    pub(super) key: String,
    pub(super) delta: i64,
    pub(super) id: u64,
}

#[derive(Deserialize)]
pub(super) struct CacheGetText {
    pub(super) cache: String,
    pub(super) key: String,
    pub(super) id: u64,
}

#[derive(Deserialize)]
pub(super) struct CachePutText {
    pub(super) cache: String,
    pub(super) key: String,
    pub(super) payload: String,
}

#[derive(Deserialize)]
pub(super) struct CacheDeleteText {
    pub(super) cache: String,
    pub(super) key: String,
}

#[derive(Deserialize)]
pub(super) struct CachePutIfText {
    pub(super) cache: String,
    pub(super) key: String,
    pub(super) payload: String,
    #[serde(rename = "if")]
    pub(super) condition: Condition,
    pub(super) id: u64,
}

#[derive(Deserialize)]
pub(super) struct CacheDeleteIfText {
    pub(super) cache: String,
    pub(super) key: String,
    pub(super) version: u64,
    pub(super) id: u64,
}

#[derive(Deserialize)]
pub(super) struct CacheWatchText {
    pub(super) cache: String,
}

#[derive(Deserialize)]
pub(super) struct StateGetText {
    pub(super) stream: String,
    pub(super) key: String,
    #[serde(default)]
    pub(super) entity: Option<String>,
    #[serde(default)]
    pub(super) shard: Option<u32>,
    pub(super) id: u64,
}

#[derive(Deserialize)]
pub(super) struct ReadText {
    pub(super) stream: String,
    pub(super) from: u64,
    #[serde(default)]
    pub(super) end: Option<u64>,
    #[serde(default)]
    pub(super) max: Option<u32>,
    #[serde(default)]
    pub(super) shard: Option<u32>,
    pub(super) id: u64,
}

#[derive(Deserialize)]
pub(super) struct OffsetForTimeText {
    pub(super) stream: String,
    pub(super) at_us: u64,
    #[serde(default)]
    pub(super) shard: Option<u32>,
    pub(super) id: u64,
}

#[derive(Deserialize)]
pub(super) struct ThrottleText {
    pub(super) bits_per_second: Option<f64>,
}

#[derive(Deserialize)]
pub(super) struct RefreshText {
    pub(super) token: Hidden,
}
