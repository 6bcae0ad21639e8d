//! Streams and their shards, as the caller's own rights show them.

use axum::Json;
use axum::extract::{Path, Query};
use felix_client::Client;
use felix_client::raw::{DescribedStream, List, RawDescribe, RawError, StreamName};
use felix_meta::{Cleanup, Consistency, StreamRecord, SyncMode};
use serde::{Deserialize, Serialize};

use super::caller::Caller;
use super::limits::ITEMS;
use super::refusal::Refusal;
use super::shown::Listing;

/// One shard of a stream.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Shard {
    pub(super) shard: u32,
    /// The oldest offset.
    pub(super) start: u64,
    /// The next offset (exclusive end).
    pub(super) end: u64,
    bytes: u64,
    error: Option<String>,
}

/// One stream.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Stream {
    pub(super) stream: String,
    incarnation: u64,
    pub(super) durable: bool,
    compacted: bool,
    pub(super) shards: Vec<Shard>,
    may_publish: bool,
    pub(super) may_subscribe: bool,
    may_manage: bool,
    max_record_bytes: u32,
    retention_ms: Option<i64>,
    retention_bytes: Option<i64>,
}

/// A stream with what the control plane keeps of it.
#[derive(Debug, Serialize)]
pub(super) struct Full {
    #[serde(flatten)]
    stream: Stream,
    settings: Option<Settings>,
    acknowledged_means: String,
}

/// What those who manage a stream see of it.
#[derive(Debug, Serialize)]
struct Settings {
    sync: SyncMode,
    consistency: Consistency,
    replication_factor: u32,
    routing: String,
    cleanup: Cleanup,
    region: Option<String>,
}

/// Which part of a listing.
#[derive(Debug, Deserialize)]
pub(super) struct Part {
    pub(super) after: Option<String>,
    pub(super) limit: Option<u32>,
}

impl Part {
    pub(super) fn limit(&self) -> usize {
        self.limit.unwrap_or(ITEMS).clamp(1, ITEMS) as usize
    }
}

/// The streams of a namespace that the caller may publish or subscribe to.
pub(super) async fn list(
    caller: Caller,
    Path(namespace): Path<String>,
    Query(part): Query<Part>,
) -> Result<Json<Listing<Stream>>, Refusal> {
    let client = caller.client(&namespace).await?;
    let (names, next) = names(&client, &namespace, &part).await?;
    let items = match names.is_empty() {
        true => Vec::new(),
        false => describe(&client, &namespace, &names).await?,
    };
    Ok(Json(Listing { items, next }))
}

/// Names of a page, and where the next one begins.
pub(super) async fn names(
    client: &Client,
    namespace: &str,
    part: &Part,
) -> Result<(Vec<String>, Option<String>), Refusal> {
    let every = RawDescribe {
        streams: None,
        want_shards: false,
    };
    let described = client.raw().describe(every).await?;
    let mut names: Vec<String> = described
        .streams
        .iter()
        .filter(|stream| stream.error == 0 && stream.namespace.as_str() == namespace)
        .map(|stream| stream.stream.as_str().to_owned())
        .filter(|name| part.after.as_ref().is_none_or(|after| name > after))
        .collect();
    names.sort_unstable();
    let limit = part.limit();
    let more = names.len() > limit;
    names.truncate(limit);
    let next = names.last().filter(|_| more).cloned();
    Ok((names, next))
}

/// Streams with their shards.
async fn describe(
    client: &Client,
    namespace: &str,
    names: &[String],
) -> Result<Vec<Stream>, Refusal> {
    let names = names.iter().map(|stream| StreamName {
        namespace: namespace.into(),
        stream: stream.as_str().into(),
    });
    let ask = RawDescribe {
        streams: Some(List::build(names).map_err(Refusal::invalid)?),
        want_shards: true,
    };
    let described = client.raw().describe(ask).await?;
    let streams = described.streams.iter();
    Ok(streams
        .filter(|stream| stream.error == 0)
        .map(|stream| Stream::of(&stream))
        .collect())
}

/// One stream with its shards.
pub(super) async fn look(
    client: &Client,
    namespace: &str,
    stream: &str,
) -> Result<Stream, Refusal> {
    let name = StreamName {
        namespace: namespace.into(),
        stream: stream.into(),
    };
    let ask = RawDescribe {
        streams: Some(List::build([name]).map_err(Refusal::invalid)?),
        want_shards: true,
    };
    let described = client.raw().describe(ask).await?;
    let found = described.streams.iter().next();
    let missing = || Refusal::not_found(format!("there is no stream {stream} in {namespace}"));
    let found = found.ok_or_else(missing)?;
    match error(found.error) {
        None => Ok(Stream::of(&found)),
        Some(RawError::TopicAuthorizationFailed) => {
            let message = format!("your roles do not show you stream {stream}");
            Err(Refusal::forbidden("forbidden", message))
        }
        Some(_) => Err(missing()),
    }
}

/// One shard of a stream.
pub(super) async fn shard(
    client: &Client,
    namespace: &str,
    stream: &str,
    shard: u32,
) -> Result<Shard, Refusal> {
    let found = look(client, namespace, stream).await?;
    let wanted = found.shards.into_iter().find(|one| one.shard == shard);
    let found =
        wanted.ok_or_else(|| Refusal::invalid(format!("stream {stream} has no shard {shard}")))?;
    match &found.error {
        None => Ok(found),
        Some(why) => {
            let message = format!("shard {shard} of {stream} is not served: {why}");
            Err(Refusal::unavailable("shard_unavailable", message))
        }
    }
}

/// One stream, its shards, and its settings if the caller manages it.
pub(super) async fn one(
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Json<Full>, Refusal> {
    let client = caller.client(&namespace).await?;
    let stream = look(&client, &namespace, &name).await?;
    let record = record(&caller, &namespace, &name).await?;
    Ok(Json(Full {
        acknowledged_means: acknowledged_means(&stream, record.as_ref()),
        settings: record.map(Settings::of),
        stream,
    }))
}

/// What the control plane keeps of it; `None` for who does not manage it.
async fn record(
    caller: &Caller,
    namespace: &str,
    stream: &str,
) -> Result<Option<StreamRecord>, Refusal> {
    let console = &caller.app.console;
    let Some(api) = caller.person.api(console).await? else {
        return Ok(None);
    };
    let (Ok(namespace), Ok(stream)) = (namespace.parse(), stream.parse()) else {
        return Ok(None);
    };
    match api.stream(console.tenant(), &namespace, &stream).await {
        Ok(record) => Ok(Some(record)),
        // The page shows what brokers say all the same.
        Err(failed) => {
            tracing::debug!(%failed, "the control plane does not show a stream");
            Ok(None)
        }
    }
}

/// One sentence: what a record that was acknowledged survives.
fn acknowledged_means(stream: &Stream, record: Option<&StreamRecord>) -> String {
    if !stream.durable {
        return "the broker has it in memory; it does not survive the end of the broker".into();
    }
    let Some(record) = record else {
        return "the broker has written it to its log; when that is flushed is shown to those who \
                manage the stream"
            .into();
    };
    let disk = match record.sync {
        SyncMode::OnCommit => "flushed to disk: it survives a crash and a power cut",
        SyncMode::None => {
            "written to the file: it survives a crash, not a power cut before the system flushes"
        }
        SyncMode::Periodic => {
            "written to the file: it survives a crash; a power cut can take the last quarter of a \
             second"
        }
    };
    let copies = record.replication_factor;
    match record.consistency {
        Consistency::Quorum if copies > 1 => {
            format!("on a majority of its {copies} copies, {disk}")
        }
        Consistency::Quorum | Consistency::Leader => disk.to_owned(),
    }
}

impl Stream {
    fn of(found: &DescribedStream) -> Self {
        Self {
            stream: found.stream.as_str().to_owned(),
            incarnation: found.incarnation,
            durable: found.is(DescribedStream::DURABLE),
            compacted: found.is(DescribedStream::COMPACTED),
            shards: (0..).zip(found.shards.iter()).map(Shard::of).collect(),
            may_publish: found.is(DescribedStream::MAY_PUBLISH),
            may_subscribe: found.is(DescribedStream::MAY_SUBSCRIBE),
            may_manage: found.is(DescribedStream::MAY_MANAGE),
            max_record_bytes: found.max_record_bytes,
            retention_ms: Some(found.retention_ms).filter(|ms| *ms >= 0),
            retention_bytes: Some(found.retention_bytes).filter(|bytes| *bytes >= 0),
        }
    }
}

impl Shard {
    fn of((shard, found): (u32, felix_client::raw::DescribedShard)) -> Self {
        Self {
            shard,
            start: found.start,
            end: found.high_watermark,
            bytes: found.bytes,
            error: (found.error != 0).then(|| {
                error(found.error)
                    .map_or("unknown", RawError::word)
                    .to_owned()
            }),
        }
    }
}

impl Settings {
    fn of(record: StreamRecord) -> Self {
        Self {
            sync: record.sync,
            consistency: record.consistency,
            replication_factor: record.replication_factor,
            routing: record.routing.to_string(),
            cleanup: record.cleanup,
            region: record.region,
        }
    }
}

/// What a number of the `raw` extension stands for; `None` for no error.
pub(super) fn error(number: i16) -> Option<RawError> {
    let known = RawError::ALL
        .iter()
        .copied()
        .find(|one| *one as i16 == number);
    (number != 0).then_some(known.unwrap_or(RawError::StorageError))
}
