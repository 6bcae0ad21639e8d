//! Produce: batches pass to the log as they are. Two stages, so that a client with several requests in flight is not
//! slowed to one at a time: the batches are put on their way in the order of the requests, then their answers are
//! awaited, while the next request is on its way already.

mod request;

use std::sync::Arc;
use std::time::Duration;

use felix_client::raw::{Appending, RawAppend, RawAppended, RawError};
use tokio::time::{Instant, timeout_at};

use self::request::{Asked, Partition, Request, TopicKey};
use super::{Answer, Call, Ctx, Head, Unreadable, answer_head, metadata, set_length};
use crate::api::settings::batch_bytes_max;
use crate::conn::Work;
use crate::limits::THROTTLE_MAX;
use crate::topics::{Topic, Topics};
use crate::wire::api::{Api, flexible_request};
use crate::wire::codes::{
    CORRUPT_MESSAGE, INVALID_RECORD, INVALID_REQUIRED_ACKS, KAFKA_STORAGE_ERROR, MESSAGE_TOO_LARGE,
    NONE, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT, TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_COMPRESSION_TYPE,
    UNSUPPORTED_VERSION, name,
};
use crate::wire::write::Writer;

/// First version whose batches can be taken. Earlier ones are announced so that clients compress, and refused.
const SERVED_FROM: i16 = 3;

/// First version that may carry zstd.
const ZSTD_FROM: i16 = 7;

/// How long a request may take at most and at least, whatever it says.
const TIMEOUTS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(120));

/// What became of one partition's batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Done {
    error: i16,
    base_offset: i64,
    append_time_ms: i64,
    log_start: i64,
    /// How long the broker wants to be left alone.
    throttle_ms: u64,
}

impl Done {
    const fn refused(error: i16) -> Self {
        Self {
            error,
            base_offset: -1,
            append_time_ms: -1,
            log_start: -1,
            throttle_ms: 0,
        }
    }
}

enum Sent {
    Done(Done),
    Underway(Appending),
}

/// Begins a produce request.
///
/// # Errors
/// [`Unreadable`] when its bytes are not what the protocol says.
pub(super) fn begin(ctx: &Arc<Ctx>, call: Call) -> Result<Work<Answer>, Unreadable> {
    let request = Request::read(call.head.version, call.body)?;
    let (ctx, head) = (Arc::clone(ctx), call.head);
    Ok(Box::pin(async move {
        let longest = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
        let deadline = Instant::now() + longest.clamp(TIMEOUTS.0, TIMEOUTS.1);
        let sent = send(&ctx, &head, &request, deadline).await;
        let mut done = Vec::with_capacity(sent.len());
        for sent in sent {
            done.push(match sent {
                Sent::Done(done) => done,
                Sent::Underway(appending) => finish(appending, deadline).await,
            });
        }
        count(&ctx, &request, &done);
        answer(&head, &request, &done)
    }))
}

/// Whether the bytes are such a request.
///
/// # Errors
/// [`Unreadable`] when they are not.
pub(super) fn readable(call: Call) -> Result<(), Unreadable> {
    let request = Request::read(call.head.version, call.body)?;
    let partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
    for records in partitions.filter_map(|partition| partition.records.as_ref()) {
        // Whether it is a batch is for the partition's answer to say.
        let _ = BatchHead::read(records);
    }
    Ok(())
}

/// Puts every batch on its way, in order. Requests of one connection come here one after the other.
async fn send(ctx: &Ctx, head: &Head, request: &Request, deadline: Instant) -> Vec<Sent> {
    let early = request.acks == 0;
    let _turn = ctx.turn.lock().await;
    let topics = topics(ctx, request).await;
    let mut all = Vec::new();
    for asked in &request.topics {
        let topic = look(ctx, &topics, asked);
        for partition in &asked.partitions {
            let sent = match topic
                .clone()
                .and_then(|topic| check(head, request, &topic, partition).map(|()| topic))
            {
                Ok(topic) => put_underway(ctx, &topic, partition, early, deadline).await,
                Err(error) => Sent::Done(Done::refused(error)),
            };
            all.push(sent);
        }
    }
    all
}

async fn topics(ctx: &Ctx, request: &Request) -> Arc<Topics> {
    let names = request.topics.iter().filter_map(|topic| match &topic.key {
        TopicKey::Name(name) => Some(super::utf8(name)),
        TopicKey::Id(_) => None,
    });
    ctx.topics_with(names).await
}

fn look(ctx: &Ctx, topics: &Topics, asked: &Asked) -> Result<Arc<Topic>, i16> {
    match &asked.key {
        TopicKey::Name(name) => metadata::named(ctx, topics, super::utf8(name)),
        TopicKey::Id(id) => topics
            .with_id(id)
            .filter(|topic| ctx.who.may_see(&topic.stream))
            .cloned()
            .ok_or(UNKNOWN_TOPIC_ID),
    }
}

/// What can be refused by looking at the header of the batch alone. The broker judges the rest.
fn check(head: &Head, request: &Request, topic: &Topic, asked: &Partition) -> Result<(), i16> {
    if head.version < SERVED_FROM {
        return Err(UNSUPPORTED_VERSION);
    }
    if !(-1..=1).contains(&request.acks) {
        return Err(INVALID_REQUIRED_ACKS);
    }
    if request.transactional {
        return Err(TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
    }
    let shards = i64::from(topic.stream.shards);
    if !(0..shards).contains(&i64::from(asked.index)) {
        return Err(UNKNOWN_TOPIC_OR_PARTITION);
    }
    let batch = asked.records.as_ref().ok_or(INVALID_RECORD)?;
    let batch = BatchHead::read(batch)?;
    if batch.bytes > batch_bytes_max(&topic.stream) {
        return Err(MESSAGE_TOO_LARGE);
    }
    if batch.attributes & BatchHead::TRANSACTIONAL != 0 {
        return Err(TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
    }
    if batch.attributes & BatchHead::CODEC == BatchHead::ZSTD && head.version < ZSTD_FROM {
        return Err(UNSUPPORTED_COMPRESSION_TYPE);
    }
    Ok(())
}

/// The few fields of a batch's header that are looked at here.
struct BatchHead {
    bytes: usize,
    attributes: u16,
}

impl BatchHead {
    const CODEC: u16 = 7;
    const ZSTD: u16 = 4;
    const TRANSACTIONAL: u16 = 1 << 4;
    /// Length of a header without records.
    const BYTES: usize = 61;

    /// Reads the head of records that must be exactly one batch.
    fn read(records: &[u8]) -> Result<Self, i16> {
        let field = |at: usize| records.get(at..);
        let length = field(8)
            .and_then(|at| at.first_chunk())
            .ok_or(INVALID_RECORD)?;
        let magic = *records.get(16).ok_or(INVALID_RECORD)?;
        if magic != 2 {
            return Err(INVALID_RECORD);
        }
        let attributes = field(21)
            .and_then(|at| at.first_chunk())
            .ok_or(CORRUPT_MESSAGE)?;
        let length = i64::from(i32::from_be_bytes(*length)) + 12;
        let there = records.len() as i64;
        if records.len() < Self::BYTES || length > there {
            return Err(CORRUPT_MESSAGE);
        }
        if length < there {
            // More than one batch, or something behind it.
            return Err(INVALID_RECORD);
        }
        Ok(Self {
            bytes: records.len(),
            attributes: u16::from_be_bytes(*attributes),
        })
    }
}

async fn put_underway(
    ctx: &Ctx,
    topic: &Topic,
    partition: &Partition,
    early: bool,
    deadline: Instant,
) -> Sent {
    let append = RawAppend {
        shard: partition.index.unsigned_abs(),
        generation: None,
        early,
        batch: partition.records.clone().unwrap_or_default(),
    };
    let sending = async {
        let stream = ctx.stream(topic).await?;
        stream.send_append(append).await
    };
    match timeout_at(deadline, sending).await {
        Ok(Ok(appending)) => Sent::Underway(appending),
        Ok(Err(failed)) => Sent::Done(refusal(&failed)),
        Err(_) => Sent::Done(Done::refused(REQUEST_TIMED_OUT)),
    }
}

async fn finish(appending: Appending, deadline: Instant) -> Done {
    match timeout_at(deadline, appending.answer()).await {
        Ok(Ok(appended)) => appended_at(&appended),
        Ok(Err(failed)) => refusal(&failed),
        Err(_) => Done::refused(REQUEST_TIMED_OUT),
    }
}

fn appended_at(appended: &RawAppended) -> Done {
    let offset = |offset| i64::try_from(offset).unwrap_or(-1);
    Done {
        error: NONE,
        base_offset: appended.base_offset.map_or(-1, offset),
        append_time_ms: appended.append_time_ms,
        log_start: offset(appended.start),
        throttle_ms: appended.throttle_ms,
    }
}

fn refusal(failed: &felix_client::CallFailed) -> Done {
    let error = failed.raw_error();
    let error = if error == RawError::ThrottlingQuotaExceeded {
        // Nothing was appended: the client waits as long as it is told and sends the batch again.
        NOT_LEADER_OR_FOLLOWER
    } else {
        error.number()
    };
    tracing::debug!(code = name(error), %failed, "a batch is refused");
    Done {
        throttle_ms: failed.throttled_ms().unwrap_or(0),
        // A producer that is told of a defect may send a batch twice that is in the log.
        ..Done::refused(if error < 0 {
            KAFKA_STORAGE_ERROR
        } else {
            error
        })
    }
}

fn count(ctx: &Ctx, request: &Request, done: &[Done]) {
    let partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
    for (partition, done) in partitions.zip(done) {
        if done.error == NONE {
            let bytes = partition.records.as_ref().map_or(0, bytes::Bytes::len);
            ctx.shared.metrics.produced_batches.increment(1);
            ctx.shared.metrics.produced_bytes.increment(bytes as u64);
        } else {
            ctx.shared.metrics.produce_refused.increment(1);
        }
    }
}

fn answer(head: &Head, request: &Request, done: &[Done]) -> Answer {
    let refused = |done: &Done| done.error != NONE;
    if request.acks == 0 {
        // Nobody reads an answer; that something went wrong is seen by the connection's end.
        return Answer {
            close: done.iter().any(refused),
            ..Answer::default()
        };
    }
    let throttle = done.iter().map(|done| done.throttle_ms).max().unwrap_or(0);
    let throttle = Duration::from_millis(throttle).min(THROTTLE_MAX);
    let version = head.version;
    let mut writer = Writer::new(
        flexible_request(Api::Produce, version),
        64 * done.len() + 64,
    );
    writer.out = answer_head(head, 64 * done.len() + 64);
    writer.count(request.topics.len());
    let mut done = done.iter();
    for topic in &request.topics {
        match &topic.key {
            TopicKey::Name(name) => writer.text(name),
            TopicKey::Id(id) => writer.uuid(id),
        }
        writer.count(topic.partitions.len());
        for (partition, done) in topic.partitions.iter().zip(&mut done) {
            put_partition(&mut writer, version, partition, done);
        }
        writer.no_tags();
    }
    if version >= 1 {
        writer.i32(throttle.as_millis().try_into().unwrap_or(i32::MAX));
    }
    writer.no_tags();
    let length = writer.out.len() - 4;
    set_length(&mut writer.out, length);
    Answer {
        throttle,
        ..Answer::of(writer.out.freeze())
    }
}

fn put_partition(writer: &mut Writer, version: i16, partition: &Partition, done: &Done) {
    writer.i32(partition.index);
    writer.i16(done.error);
    writer.i64(done.base_offset);
    if version >= 2 {
        writer.i64(done.append_time_ms);
    }
    if version >= 5 {
        writer.i64(done.log_start);
    }
    if version >= 8 {
        // Batches are taken or refused whole, so no record is at fault by itself.
        writer.count(0);
        match why(done.error) {
            Some(why) => writer.text(why.as_bytes()),
            None => writer.null_text(),
        }
    }
    writer.no_tags();
}

/// What is said beside a code where the code alone does not tell.
fn why(error: i16) -> Option<&'static str> {
    match error {
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED => Some(super::coordinator::NO_TRANSACTIONS),
        INVALID_RECORD => Some("a request has one batch of the newest format for each partition"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(length: i32, magic: u8, bytes: usize) -> Vec<u8> {
        let mut batch = vec![0; bytes];
        batch[8..12].copy_from_slice(&length.to_be_bytes());
        batch[16] = magic;
        batch
    }

    #[test]
    fn records_must_be_exactly_one_batch_of_the_newest_format() {
        assert!(BatchHead::read(&batch(58, 2, 70)).is_ok());
        let refused = |records: &[u8]| BatchHead::read(records).err();
        assert_eq!(refused(&batch(58, 1, 70)), Some(INVALID_RECORD));
        assert_eq!(refused(&batch(57, 2, 70)), Some(INVALID_RECORD));
        assert_eq!(refused(&batch(59, 2, 70)), Some(CORRUPT_MESSAGE));
        assert_eq!(refused(&batch(-1, 2, 70)), Some(INVALID_RECORD));
        assert_eq!(refused(&batch(i32::MAX, 2, 70)), Some(CORRUPT_MESSAGE));
        assert_eq!(refused(&batch(20, 2, 32)), Some(CORRUPT_MESSAGE));
        assert_eq!(refused(b""), Some(INVALID_RECORD));
    }

    fn request(acks: i16) -> Request {
        Request {
            transactional: false,
            acks,
            timeout_ms: 1,
            topics: vec![Asked {
                key: TopicKey::Name("t".into()),
                partitions: vec![Partition {
                    index: 3,
                    records: None,
                }],
            }],
        }
    }

    #[test]
    fn every_announced_version_is_answered_in_a_shape_that_clients_read() {
        let (min, max) = Api::Produce.versions();
        for version in min..=max {
            let head = Head {
                api: Api::Produce,
                version,
                correlation: 1,
                client_id: bytes::Bytes::new(),
            };
            let request = if version >= 13 {
                let mut request = request(-1);
                request.topics[0].key = TopicKey::Id([7; 16]);
                request
            } else {
                request(-1)
            };
            let answer = answer(&head, &request, &[Done::refused(INVALID_RECORD)]);
            let whole = &answer.parts[0];
            let length = u32::from_be_bytes(whole[..4].try_into().unwrap()) as usize;
            assert_eq!(length, whole.len() - 4, "version {version}");
        }
    }

    #[test]
    fn without_acknowledgement_there_is_no_answer_and_an_error_ends_the_connection() {
        let head = Head {
            api: Api::Produce,
            version: 9,
            correlation: 1,
            client_id: bytes::Bytes::new(),
        };
        let good = Done {
            error: NONE,
            ..Done::refused(NONE)
        };
        let quiet = answer(&head, &request(0), &[good]);
        assert!(quiet.parts.is_empty() && !quiet.close);
        let ended = answer(&head, &request(0), &[Done::refused(INVALID_RECORD)]);
        assert!(ended.parts.is_empty() && ended.close);
    }
}
