//! Publishing one record.

use axum::Json;
use axum::extract::Path;
use bytes::Bytes;
use felix_client::Record;
use serde::{Deserialize, Serialize};

use super::caller::Caller;
use super::limits::HEADERS;
use super::refusal::Refusal;
use super::shown::bytes_of;

/// A record that is to be published; bytes as base64.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    key: Option<String>,
    #[serde(default)]
    headers: Vec<Header>,
    value: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    name: String,
    value: String,
}

/// Where it stands.
#[derive(Debug, Serialize)]
pub(super) struct Published {
    shard: u32,
    offset: Option<u64>,
}

/// Publishes, and answers when the stream's promise holds.
pub(super) async fn publish(
    caller: Caller,
    Path((namespace, stream)): Path<(String, String)>,
    Json(wanted): Json<Wanted>,
) -> Result<Json<Published>, Refusal> {
    if wanted.headers.len() > HEADERS {
        return Err(Refusal::invalid(format!(
            "a record from here has at most {HEADERS} headers"
        )));
    }
    let key = wanted
        .key
        .as_deref()
        .map(|key| bytes_of(key, "the key"))
        .transpose()?;
    let mut record = Record::new(bytes_of(&wanted.value, "the value")?);
    if let Some(key) = &key {
        record = record.key(key.clone());
    }
    for header in wanted.headers {
        let value = bytes_of(&header.value, "a header")?;
        record = record.header(Bytes::from(header.name), value);
    }
    let client = caller.client(&namespace).await?;
    let width = client.stream_shards(&stream).await?;
    let published = client.publish(&stream, record).await?;
    let shard = key.map_or(0, |key| width.routing.shard(Some(&key), width.shards).0);
    Ok(Json(Published {
        shard,
        offset: published.offset,
    }))
}
