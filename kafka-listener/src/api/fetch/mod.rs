//! Fetch: batches leave as they are in the log, sent from where they were received.

mod request;
mod sessions;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use felix_client::CallFailed;
use felix_client::raw::{FetchShard, FetchStream, FetchedShard, List, Pieces, RawFetch};

use self::request::{Place, Request, TopicKey, Wanted};
pub(crate) use self::sessions::FetchSessions;
use super::{Answer, Call, Ctx, Head, Unreadable, answer_head, metadata, set_length, utf8};
use crate::conn::Work;
use crate::limits::{FETCH_BYTES_MAX, FETCH_WAIT_MAX};
use crate::topics::{Topic, Topics};
use crate::wire::api::{Api, flexible_request};
use crate::wire::codes::{NONE, OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION};
use crate::wire::write::Writer;

/// Batches below this size are copied together with what stands around them, rather than handed to the system apart.
const SMALL_BYTES: usize = 2 * 1024;

/// Tag of where a reader's log and ours part ways.
const DIVERGING_TAG: u32 = 0;

/// What was got of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Got {
    place: Place,
    error: i16,
    high_watermark: i64,
    stable: i64,
    log_start: i64,
    /// The generation that the reader's log ends differently in, and where it ended here.
    diverging: Option<(i32, i64)>,
    records: Pieces,
}

impl Got {
    fn empty(place: Place, error: i16, high_watermark: i64) -> Self {
        Self {
            place,
            error,
            high_watermark,
            stable: high_watermark,
            log_start: if error == NONE { 0 } else { -1 },
            diverging: None,
            records: Pieces::default(),
        }
    }

    /// Whether there is something to tell beside how far the log goes.
    fn has_news(&self) -> bool {
        self.error != NONE || self.diverging.is_some() || !self.records.is_empty()
    }
}

/// Begins a fetch request.
///
/// # Errors
/// [`Unreadable`] when its bytes are not what the protocol says.
pub(super) fn begin(ctx: &Arc<Ctx>, call: Call) -> Result<Work<Answer>, Unreadable> {
    let request = Request::read(call.head.version, call.body)?;
    let (ctx, head) = (Arc::clone(ctx), call.head);
    Ok(Box::pin(async move { serve(&ctx, &head, request).await }))
}

/// Whether the bytes are such a request.
///
/// # Errors
/// [`Unreadable`] when they are not.
pub(super) fn readable(call: Call) -> Result<(), Unreadable> {
    Ok(Request::read(call.head.version, call.body).map(drop)?)
}

async fn serve(ctx: &Ctx, head: &Head, mut request: Request) -> Answer {
    let sessions = &ctx.shared.fetch_sessions;
    let owner = (
        Arc::from(ctx.who.tenant().as_str()),
        Arc::clone(&ctx.who.principal.subject),
    );
    let topics = known(ctx, &request.wanted).await;
    let is_there = |wanted: &Wanted| find(ctx, &topics, &wanted.place).is_ok();
    let plan = match sessions.plan(&owner, &mut request, &is_there) {
        Ok(plan) => plan,
        Err(error) => return write(head, error, 0, &[]),
    };
    let mut got = fetch(ctx, &request, &plan.wanted).await;
    if plan.session_id != 0 {
        sessions.told(&plan, &mut got);
    }
    // Partitions of one topic stand together in the answer.
    got.sort_by(|a, b| a.place.topic.cmp(&b.place.topic));
    let bytes: usize = got.iter().map(|got| got.records.len()).sum();
    ctx.shared.metrics.fetched_bytes.increment(bytes as u64);
    write(head, NONE, plan.session_id, &got)
}

/// The topics, after asking for those that are wanted and not known.
async fn known(ctx: &Ctx, wanted: &[Wanted]) -> Arc<Topics> {
    let names = wanted.iter().filter_map(|one| match &one.place.topic {
        TopicKey::Name(name) => Some(utf8(name)),
        TopicKey::Id(_) => None,
    });
    ctx.topics_with(names).await
}

/// Fetches every partition, one answer for each in the same order.
async fn fetch(ctx: &Ctx, request: &Request, wanted: &[Wanted]) -> Vec<Got> {
    let topics = known(ctx, wanted).await;
    let mut all: Vec<Result<Arc<Topic>, i16>> = Vec::with_capacity(wanted.len());
    all.extend(wanted.iter().map(|one| look(ctx, &topics, one)));
    let found = wanted.iter().zip(&all);
    let found: Vec<(&Wanted, &Topic)> = found
        .filter_map(|(wanted, topic)| Some((wanted, topic.as_deref().ok()?)))
        .collect();
    // Something is wrong with one of them, so that there is nothing to wait for.
    let at_once = found.len() < wanted.len();
    let fetched = ask(ctx, request, &found, at_once).await;
    let mut fetched = fetched.into_iter();
    let one = |(wanted, topic): (&Wanted, &Result<Arc<Topic>, i16>)| match topic {
        Err(error) => Got::empty(wanted.place.clone(), *error, -1),
        Ok(_) => fetched
            .next()
            .unwrap_or_else(|| Got::empty(wanted.place.clone(), UNKNOWN_TOPIC_OR_PARTITION, -1)),
    };
    wanted.iter().zip(&all).map(one).collect()
}

fn look(ctx: &Ctx, topics: &Topics, wanted: &Wanted) -> Result<Arc<Topic>, i16> {
    let topic = find(ctx, topics, &wanted.place)?;
    if wanted.offset < 0 {
        return Err(OFFSET_OUT_OF_RANGE);
    }
    Ok(topic)
}

/// The topic of a partition that exists.
fn find(ctx: &Ctx, topics: &Topics, place: &Place) -> Result<Arc<Topic>, i16> {
    let topic = match &place.topic {
        TopicKey::Name(name) => metadata::named(ctx, topics, utf8(name))?,
        TopicKey::Id(id) => topics
            .with_id(id)
            .filter(|topic| ctx.who.may_see(&topic.stream))
            .cloned()
            .ok_or(UNKNOWN_TOPIC_ID)?,
    };
    let shards = i64::from(topic.stream.shards);
    if !(0..shards).contains(&i64::from(place.partition)) {
        return Err(UNKNOWN_TOPIC_OR_PARTITION);
    }
    Ok(topic)
}

async fn ask(ctx: &Ctx, request: &Request, found: &[(&Wanted, &Topic)], at_once: bool) -> Vec<Got> {
    if found.is_empty() {
        if !at_once {
            // Nothing is wanted at all: a client that asks again at once would never rest.
            tokio::time::sleep(wait(request)).await;
        }
        return Vec::new();
    }
    let failed = |error: i16| -> Vec<Got> {
        let places = found.iter().map(|(wanted, _)| wanted.place.clone());
        places.map(|place| Got::empty(place, error, -1)).collect()
    };
    let Ok(streams) = streams(found) else {
        return failed(UNKNOWN_TOPIC_OR_PARTITION);
    };
    let positive = |number: i32| u32::try_from(number).unwrap_or(0);
    let wait = if at_once {
        Duration::ZERO
    } else {
        wait(request)
    };
    let fetch = RawFetch {
        max_bytes: positive(request.max_bytes).min(FETCH_BYTES_MAX),
        min_bytes: positive(request.min_bytes).min(FETCH_BYTES_MAX),
        max_wait_ms: wait.as_millis().try_into().unwrap_or(0),
        committed: request.committed,
        streams,
    };
    let fetched = async {
        let raw = ctx.raw().await?;
        raw.fetch(fetch).await
    };
    match fetched.await {
        Ok(fetched) => {
            let shards = found.iter().zip(fetched.iter());
            shards
                .map(|((wanted, _), (shard, records))| got(&wanted.place, &shard, records))
                .collect()
        }
        Err(why) => {
            tracing::debug!(%why, "a fetch failed");
            failed(code(&why))
        }
    }
}

fn code(failed: &CallFailed) -> i16 {
    failed.raw_error().number()
}

fn wait(request: &Request) -> Duration {
    let wait = u64::try_from(request.max_wait_ms).unwrap_or(0);
    Duration::from_millis(wait).min(FETCH_WAIT_MAX)
}

/// The call's own form: shards that follow each other and are of one stream stand together.
fn streams(found: &[(&Wanted, &Topic)]) -> Result<List<FetchStream>, Box<dyn std::error::Error>> {
    let epoch = |epoch: i32| u64::try_from(epoch).ok();
    let mut streams: Vec<(&Topic, Vec<FetchShard>)> = Vec::new();
    for (wanted, topic) in found {
        let shard = FetchShard {
            shard: wanted.place.partition.unsigned_abs(),
            offset: wanted.offset.unsigned_abs(),
            max_bytes: u32::try_from(wanted.max_bytes).unwrap_or(0),
            generation: epoch(wanted.current_leader_epoch),
            last_generation: epoch(wanted.last_fetched_epoch),
        };
        match streams.last_mut() {
            Some((last, shards)) if last.id == topic.id => shards.push(shard),
            _ => streams.push((topic, vec![shard])),
        }
    }
    let built: Result<Vec<FetchStream>, _> = streams
        .into_iter()
        .map(|(topic, shards)| {
            List::build(shards).map(|shards| FetchStream {
                namespace: topic.stream.namespace.as_str().into(),
                stream: topic.stream.stream.as_str().into(),
                incarnation: topic.stream.incarnation.0,
                shards,
            })
        })
        .collect();
    Ok(List::build(built?)?)
}

fn got(place: &Place, shard: &FetchedShard, records: Pieces) -> Got {
    let offset = |offset: u64| i64::try_from(offset).unwrap_or(i64::MAX);
    if shard.error != NONE {
        return Got::empty(place.clone(), shard.error, -1);
    }
    let diverging = shard.diverging.map(|generation| {
        let generation = i32::try_from(generation).unwrap_or(i32::MAX);
        (generation, offset(shard.diverging_end))
    });
    Got {
        place: place.clone(),
        error: NONE,
        high_watermark: offset(shard.high_watermark),
        stable: offset(shard.stable),
        log_start: offset(shard.start),
        records: if diverging.is_some() {
            Pieces::default()
        } else {
            records
        },
        diverging,
    }
}

fn write(head: &Head, error: i16, session_id: i32, got: &[Got]) -> Answer {
    let version = head.version;
    let flexible = flexible_request(Api::Fetch, version);
    let room = 64 + 80 * got.len();
    let mut writer = Writer::new(flexible, 0);
    writer.out = answer_head(head, room);
    writer.i32(0);
    if version >= 7 {
        writer.i16(error);
        writer.i32(session_id);
    }
    let topics: Vec<&[Got]> = got
        .chunk_by(|a, b| a.place.topic == b.place.topic)
        .collect();
    writer.count(topics.len());
    let mut parts = Vec::new();
    for topic in topics {
        match topic.first().map(|got| &got.place.topic) {
            Some(TopicKey::Name(name)) => writer.text(name),
            Some(TopicKey::Id(id)) => writer.uuid(id),
            None => {}
        }
        writer.count(topic.len());
        for got in topic {
            put_partition(&mut writer, version, flexible, got, &mut parts);
        }
        writer.no_tags();
    }
    writer.no_tags();
    parts.push(writer.out.freeze());
    finish(parts)
}

fn put_partition(
    writer: &mut Writer,
    version: i16,
    flexible: bool,
    got: &Got,
    parts: &mut Vec<Bytes>,
) {
    writer.i32(got.place.partition);
    writer.i16(got.error);
    writer.i64(got.high_watermark);
    writer.i64(got.stable);
    if version >= 5 {
        writer.i64(got.log_start);
    }
    // There are no transactions, so none was aborted.
    writer.null_count();
    if version >= 11 {
        // No replica is preferred to this one.
        writer.i32(-1);
    }
    // Never null: librdkafka takes that for damage.
    writer.blob_length(got.records.len());
    for piece in got.records.clone() {
        if piece.len() < SMALL_BYTES {
            writer.out.extend_from_slice(&piece);
        } else {
            parts.push(writer.out.split().freeze());
            parts.push(piece);
        }
    }
    match got.diverging.filter(|_| version >= 12) {
        Some((generation, end)) => {
            writer.varint(1);
            writer.varint(DIVERGING_TAG);
            writer.varint(13);
            writer.i32(generation);
            writer.i64(end);
            writer.no_tags();
        }
        None if flexible => writer.no_tags(),
        None => {}
    }
}

/// Sets the length of an answer of several parts.
fn finish(mut parts: Vec<Bytes>) -> Answer {
    let length = parts.iter().map(Bytes::len).sum::<usize>() - 4;
    if let Some(first) = parts.first_mut() {
        match std::mem::take(first).try_into_mut() {
            Ok(mut head) => {
                set_length(&mut head, length);
                *first = head.freeze();
            }
            // What was split off shares memory with what follows.
            Err(head) => {
                let mut copy = bytes::BytesMut::from(&head[..]);
                set_length(&mut copy, length);
                *first = copy.freeze();
            }
        }
    }
    Answer {
        parts,
        ..Answer::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &'static str, partition: i32) -> Place {
        Place {
            topic: TopicKey::Name(Bytes::from_static(name.as_bytes())),
            partition,
        }
    }

    fn head(version: i16) -> Head {
        Head {
            api: Api::Fetch,
            version,
            correlation: 7,
            client_id: Bytes::new(),
        }
    }

    fn joined(answer: &Answer) -> Vec<u8> {
        answer.parts.concat()
    }

    #[test]
    fn the_length_covers_every_part_in_every_version() {
        let large = Pieces::from(Bytes::from(vec![9; SMALL_BYTES + 1]));
        let got = [
            Got {
                records: large.clone(),
                ..Got::empty(place("a", 0), NONE, 5)
            },
            Got::empty(place("a", 1), OFFSET_OUT_OF_RANGE, -1),
            Got {
                diverging: Some((3, 4)),
                ..Got::empty(place("b", 0), NONE, 5)
            },
            Got {
                records: large,
                ..Got::empty(place("b", 2), NONE, 5)
            },
        ];
        let (min, max) = Api::Fetch.versions();
        for version in min..=max.min(12) {
            let whole = joined(&write(&head(version), NONE, 3, &got));
            let length = u32::from_be_bytes(whole[..4].try_into().unwrap()) as usize;
            assert_eq!(length, whole.len() - 4, "version {version}");
            assert_eq!(&whole[4..8], &7_i32.to_be_bytes());
        }
    }

    #[test]
    fn no_records_are_an_empty_text_and_never_null() {
        let whole = joined(&write(
            &head(11),
            NONE,
            0,
            &[Got::empty(place("t", 0), NONE, 5)],
        ));
        // preferred replica -1, then length 0
        assert!(whole.ends_with(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]));
    }
}
