//! Publishing, in every form a client may use: admit, route, append, answer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use felix_auth::{Action, Resource};
use felix_engine::{AppendRefused, Appended, CloseReason, Draft, Produced};
use felix_model::native::{NativeProducer, payload_digest};
use felix_model::{InternalHeaders, Offset, Payloads, ProducerId, Routing};
use felix_wire::ack::{Ack, AckForm};
use felix_wire::error::{Code, Failure, Retry};
use felix_wire::extension::raw::RawError;
use felix_wire::extension::{PublishRecords, Published, Refused};
use felix_wire::message::{AckMode, Message, PublishRefused, RefusedReason};
use felix_wire::negotiate::{Features, Peer};
use felix_wire::publish::{Names, Producer, Publish};

use super::answers::Place;
use super::stream::{Route, StreamState};
use crate::broker::Shared;
use crate::fair::Grant;
use crate::shards::cell::now;
use crate::shards::{Kind, Marker, StreamSpec};

/// A publish as it was read, whatever its form.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) key: Option<Bytes>,
    pub(crate) shard: Option<u32>,
    pub(crate) content: Content,
    pub(crate) producer: Option<Producer>,
    pub(crate) expected: Option<u64>,
    /// How to answer; `None` for a publish that is never answered.
    pub(crate) reply: Option<Reply>,
}

/// What is published.
#[derive(Debug)]
pub(crate) enum Content {
    /// Payloads without keys or headers of their own.
    Payloads(Payloads),
    /// A record batch v2.
    Records(Bytes),
}

/// In which form a publish is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply {
    /// By a binary ack.
    Binary { request_id: u64 },
    /// By `publish_ok`, `publish_error` or `publish_refused`.
    Json { request_id: u64 },
    /// By a frame of the `records` extension.
    Extension { correlation: u64 },
}

/// Why a publish did not happen.
#[derive(Debug)]
pub(crate) enum NotPublished {
    /// Anything that has a code.
    Failed(Failure),
    /// The log's state forbids it; published clients read a reason of its own for this.
    Refused(RefusedReason, String),
}

impl From<Failure> for NotPublished {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// A publish whose outcome is still open. Whoever learns it settles it.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Emptied by whoever answers first: with acks on acceptance that is not the outcome.
    answer: Arc<Mutex<Option<Answer>>>,
    started: Instant,
    records: u32,
    bytes: u64,
    grant: Option<Grant>,
    /// Offsets of in-memory streams are for this broker only: the published protocol shows none.
    tells_offset: bool,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Answer {
    place: Place,
    reply: Reply,
    peer: Peer,
}

impl Request {
    pub(crate) fn binary(publish: Publish) -> (Names, Self) {
        let reply = publish.request.map(|request| match publish.producer {
            // Refusals of idempotent publishes exist only in JSON.
            Some(_) => Reply::Json {
                request_id: request.id,
            },
            None => Reply::Binary {
                request_id: request.id,
            },
        });
        let request = Self {
            key: publish.key,
            shard: None,
            content: Content::Payloads(publish.payloads),
            producer: publish.producer,
            expected: None,
            reply,
        };
        (publish.names, request)
    }

    pub(crate) fn records(correlation: u64, publish: PublishRecords) -> (Names, Self) {
        let request = Self {
            key: publish.key,
            shard: publish.shard,
            content: Content::Records(publish.batch),
            producer: publish.producer,
            expected: publish.expected_offset,
            reply: (!publish.silent).then_some(Reply::Extension { correlation }),
        };
        (publish.names, request)
    }
}

/// The reply of a JSON publish.
///
/// # Errors
/// An ack was asked for without a request id to answer under.
pub(crate) fn json_reply(
    ack: Option<AckMode>,
    request_id: Option<u64>,
) -> Result<Option<Reply>, Failure> {
    match (ack.unwrap_or(AckMode::None), request_id) {
        (AckMode::None, _) => Ok(None),
        (_, Some(request_id)) => Ok(Some(Reply::Json { request_id })),
        (_, None) => Err(Failure::new(
            Code::InvalidRequest,
            "a publish that asks for an ack needs a request_id",
        )),
    }
}

/// Carries a publish out. Its answer, if it has one, leaves through the stream's answers.
pub(crate) async fn publish(stream: &mut StreamState, route: Route<'_>, request: Request) {
    let started = Instant::now();
    let answer = request.reply.map(|reply| Answer {
        place: stream.answers.reserve(),
        reply,
        peer: stream.peer,
    });
    if let Err((answer, refused)) = try_publish(stream, route, request, answer, started).await {
        stream.conn.shared.metrics.publish_refused.increment(1);
        if let Some(answer) = answer {
            answer.send(Err(refused));
        }
    }
}

type Unanswered = (Option<Answer>, NotPublished);

async fn try_publish(
    stream: &mut StreamState,
    route: Route<'_>,
    request: Request,
    answer: Option<Answer>,
    started: Instant,
) -> Result<(), Unanswered> {
    let Request {
        key,
        shard,
        content,
        producer,
        expected,
        ..
    } = request;
    if stream.conn.shared.draining() {
        return Err((answer, closed(CloseReason::Stopping).into()));
    }
    if let Some(failure) = stream.refusal() {
        return Err((answer, failure.into()));
    }
    let handle = match stream.route_publish(route).await {
        Ok(handle) => handle,
        Err(failure) => return Err((answer, failure.into())),
    };
    let spec = handle.spec();
    let admitted = admit(stream, &spec, key.as_deref(), shard, &content);
    let (shard, size) = match admitted {
        Ok(admitted) => admitted,
        Err(failure) => return Err((answer, failure.into())),
    };
    let shared = Arc::clone(&stream.conn.shared);
    let cell = match handle.open_cell(shard) {
        Some(cell) => cell,
        None => match shared.shards.open(&handle, shard).await {
            Ok(cell) => cell,
            Err(error) => return Err((answer, error.failure().into())),
        },
    };
    let durable = matches!(spec.kind, Kind::Durable { .. });
    let grant = if durable {
        match shared.queue.acquire(&handle.tenant.id, size.bytes).await {
            Ok(grant) => Some(grant),
            Err(full) => {
                shared.metrics.queue_full.increment(1);
                let failure = Failure::new(Code::Overloaded, full.to_string())
                    .with_reason("publish_queue_full")
                    .with_retry_after_ms(full.retry_after_ms);
                return Err((answer, failure.into()));
            }
        }
    } else {
        None
    };
    let produced = producer
        .map(|producer| produced(producer, &content))
        .transpose();
    let (produced, draft) = match produced
        .and_then(|produced| Ok((produced, draft(&content, key.as_deref(), &spec, producer)?)))
    {
        Ok(both) => both,
        Err(failure) => return Err((answer, failure.into())),
    };
    if produced.is_some()
        && durable
        && let Err(failure) = shared.shards.mark(&handle, shard, Marker::Producers).await
    {
        return Err((answer, failure.into()));
    }
    let early = answer.is_some()
        && durable
        && !shared.config.ack_on_commit
        && produced.is_none()
        && expected.is_none()
        && !stream.peer.has(Features::ACK_ON_COMMIT);
    let answer = Arc::new(Mutex::new(answer));
    let waiting = Waiting {
        answer: Arc::clone(&answer),
        started,
        records: size.records,
        bytes: size.payload_bytes,
        grant,
        tells_offset: durable,
        shared,
    };
    cell.append(draft, expected.map(Offset), produced, waiting);
    if early && let Some(answer) = take(&answer) {
        answer.send(Ok(None));
    }
    Ok(())
}

/// What a publish weighs.
#[derive(Clone, Copy, Debug)]
struct Size {
    records: u32,
    payload_bytes: u64,
    /// Against the budget of what may be in flight.
    bytes: u64,
}

/// Which shard a publish goes to, once nothing about it is against the rules.
fn admit(
    stream: &StreamState,
    spec: &StreamSpec,
    key: Option<&[u8]>,
    shard: Option<u32>,
    content: &Content,
) -> Result<(felix_model::ShardIndex, Size), Failure> {
    if key.is_some() {
        stream.check_width(spec)?;
    }
    let shard = match shard {
        Some(shard) if shard < spec.shards => felix_model::ShardIndex(shard),
        Some(shard) => {
            return Err(Failure::new(
                Code::InvalidRequest,
                format!(
                    "shard {shard} is out of range: the stream has {} shards",
                    spec.shards
                ),
            ));
        }
        None => spec.routing.shard(key, spec.shards),
    };
    let size = measure(content, spec)?;
    let namespace = spec.id.namespace.as_str();
    stream.writes(namespace, size.payload_bytes, size.records.into())?;
    Ok((shard, size))
}

fn measure(content: &Content, spec: &StreamSpec) -> Result<Size, Failure> {
    let limit = spec.max_record_bytes as usize;
    let too_large = |size: usize| {
        Failure::new(
            Code::LimitExceeded,
            format!("a payload of {size} bytes is over the stream's limit of {limit}"),
        )
        .with_reason("record_bytes")
    };
    match content {
        Content::Payloads(payloads) => {
            if payloads.count == 0 {
                return Err(Failure::new(
                    Code::InvalidRequest,
                    "the batch holds no payload",
                ));
            }
            // A list no longer than the limit holds no longer payload; most are.
            if payloads.bytes.len() > limit
                && let Some(large) = payloads.iter().map(<[u8]>::len).find(|size| *size > limit)
            {
                return Err(too_large(large));
            }
            let list = payloads.bytes.len() as u64;
            let lengths = 4 * (u64::from(payloads.count) + 1);
            Ok(Size {
                records: payloads.count,
                payload_bytes: list.saturating_sub(lengths),
                bytes: list,
            })
        }
        Content::Records(batch) => {
            let header = felix_model::verify_from_client(batch)
                .map_err(|error| Failure::new(Code::InvalidRequest, error.to_string()))?;
            if batch.len() > limit && header.records() == 1 {
                return Err(too_large(batch.len()));
            }
            let bytes = batch.len() as u64;
            Ok(Size {
                records: header.records(),
                payload_bytes: bytes,
                bytes,
            })
        }
    }
}

fn produced(producer: Producer, content: &Content) -> Result<Produced, Failure> {
    let digest = match content {
        Content::Payloads(payloads) => payload_digest(payloads.iter()),
        Content::Records(_) => {
            return Err(Failure::new(
                Code::FeatureNotEnabled,
                "idempotent publishing takes payloads, not record batches",
            )
            .with_reason("idempotent_records"));
        }
    };
    Ok(Produced {
        producer: ProducerId(producer.id),
        sequence: producer.sequence,
        digest,
    })
}

fn draft(
    content: &Content,
    key: Option<&[u8]>,
    spec: &StreamSpec,
    producer: Option<Producer>,
) -> Result<Draft, Failure> {
    let invalid =
        |error: &dyn std::fmt::Display| Failure::new(Code::InvalidRequest, error.to_string());
    let time = now();
    match (content, spec.kind) {
        (Content::Payloads(payloads), Kind::Memory { .. }) => {
            let mut draft = Draft::from_payloads(payloads.clone(), time);
            if let Some(key) = key {
                draft = draft.with_key(Bytes::copy_from_slice(key));
            }
            Ok(draft)
        }
        (Content::Payloads(payloads), Kind::Durable { .. }) => {
            let internal = InternalHeaders {
                // The name of the publisher is not kept: readers could not be given the batch verbatim.
                publisher: None,
                sequence: producer.map(|p| NativeProducer {
                    producer: ProducerId(p.id),
                    sequence: p.sequence,
                }),
            };
            let time = i64::try_from(time.0).unwrap_or(i64::MAX);
            let log = felix_model::records_from_payloads(payloads, key, time, &internal)
                .map_err(|error| invalid(&error))?;
            let draft = Draft::from_log(log).map_err(|error| invalid(&error))?;
            Ok(draft.with_native(payloads.clone()))
        }
        (Content::Records(batch), _) => {
            Draft::from_log(BytesMut::from(batch.as_ref())).map_err(|error| invalid(&error))
        }
    }
}

fn take(answer: &Mutex<Option<Answer>>) -> Option<Answer> {
    answer.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl Waiting {
    /// Tells the publisher what became of it, and gives back what it held.
    pub(crate) fn settle(self, outcome: Result<Appended, AppendRefused>) {
        let metrics = &self.shared.metrics;
        let answer = take(&self.answer);
        match outcome {
            Ok(_) => {
                metrics
                    .published_messages
                    .increment(u64::from(self.records));
                metrics.published_bytes.increment(self.bytes);
            }
            Err(_) => metrics.publish_refused.increment(1),
        }
        match (answer, outcome) {
            (Some(answer), outcome) => {
                let reads_reused = answer.peer.has(Features::SEQUENCE_REUSED);
                answer.send(match outcome {
                    Ok(appended) => Ok(appended.base().filter(|_| self.tells_offset)),
                    // A client that cannot read this refusal takes its batch for stored, as it is.
                    Err(AppendRefused::SequenceReused { base, .. }) if !reads_reused => {
                        Ok(Some(base))
                    }
                    Err(refused) => Err(not_appended(refused)),
                });
                metrics.publish_seconds.record(self.started.elapsed());
            }
            (None, Err(_)) => metrics.acked_dropped.increment(u64::from(self.records)),
            (None, Ok(_)) => {}
        }
        drop(self.grant);
    }
}

impl Answer {
    fn send(self, outcome: Result<Option<Offset>, NotPublished>) {
        self.place.fill(encode(outcome, self.reply, &self.peer));
    }
}

fn encode(outcome: Result<Option<Offset>, NotPublished>, reply: Reply, peer: &Peer) -> Bytes {
    let offset = |offset: Option<Offset>| offset.map(|offset| offset.0);
    match (reply, outcome) {
        (Reply::Json { request_id }, Err(NotPublished::Refused(reason, message))) => {
            Message::from(PublishRefused {
                request_id,
                reason,
                message,
            })
            .encode()
        }
        (Reply::Binary { request_id }, outcome) => {
            let outcome = outcome.map(offset).map_err(NotPublished::into_failure);
            ack(request_id, outcome, AckForm::Binary, peer)
        }
        (Reply::Json { request_id }, outcome) => {
            let outcome = outcome.map(offset).map_err(NotPublished::into_failure);
            ack(request_id, outcome, AckForm::Json, peer)
        }
        (Reply::Extension { correlation }, Ok(base)) => {
            let mut frame = BytesMut::with_capacity(32);
            Published {
                offset: offset(base),
                owner: None,
            }
            .encode_into(correlation, &mut frame);
            frame.freeze()
        }
        (Reply::Extension { correlation }, Err(refused)) => {
            Refused::from(refused.into_failure()).encode(correlation)
        }
    }
}

fn ack(
    request_id: u64,
    outcome: Result<Option<u64>, Failure>,
    form: AckForm,
    peer: &Peer,
) -> Bytes {
    let mut frame = BytesMut::with_capacity(32);
    peer.ack_into(
        Ack {
            request_id,
            outcome,
            owner: None,
        },
        form,
        &mut frame,
    );
    frame.freeze()
}

impl NotPublished {
    /// The same with a code, for answers that have no place for a reason of its own.
    pub(crate) fn into_failure(self) -> Failure {
        match self {
            Self::Failed(failure) => failure,
            Self::Refused(reason, message) => {
                let word = match reason {
                    RefusedReason::UnknownProducer => "unknown_producer",
                    RefusedReason::SequenceExpired => "sequence_expired",
                    RefusedReason::SequenceReused => "sequence_reused",
                    RefusedReason::SequenceGap { .. } => "sequence_gap",
                    RefusedReason::OffsetMismatch { .. } => "offset_mismatch",
                    RefusedReason::NotLeader { .. } => "not_leader",
                };
                Failure::new(Code::InvalidRequest, message).with_reason(word)
            }
        }
    }
}

/// What a refusal of the shard is called on the wire.
pub(crate) fn not_appended(refused: AppendRefused) -> NotPublished {
    let message = refused.to_string();
    let reason = match refused {
        AppendRefused::OffsetMismatch { tail } => RefusedReason::OffsetMismatch { tail: tail.0 },
        AppendRefused::SequenceGap { expected } => RefusedReason::SequenceGap { expected },
        AppendRefused::SequenceExpired { .. } => RefusedReason::SequenceExpired,
        AppendRefused::SequenceReused { .. } => RefusedReason::SequenceReused,
        AppendRefused::UnknownProducer => RefusedReason::UnknownProducer,
        AppendRefused::KafkaSequence { .. } => {
            return Failure::new(Code::InvalidRequest, message)
                .with_reason(RawError::OutOfOrderSequence.word())
                .into();
        }
        AppendRefused::ProducerFenced { .. } => {
            return Failure::new(Code::InvalidRequest, message)
                .with_reason(RawError::InvalidProducerEpoch.word())
                .into();
        }
        AppendRefused::Empty => return Failure::new(Code::InvalidRequest, message).into(),
        AppendRefused::TooLarge { .. } => {
            return Failure::new(Code::LimitExceeded, message)
                .with_reason("record_bytes")
                .into();
        }
        AppendRefused::Busy { .. } => {
            return Failure::new(Code::Overloaded, message)
                .with_reason("publish_queue_full")
                .with_retry_after_ms(50)
                .into();
        }
        AppendRefused::Blocked { .. } => {
            return Failure::new(Code::Overloaded, message)
                .with_reason("readers_behind")
                .with_retry_after_ms(500)
                .into();
        }
        AppendRefused::StorageFull => {
            return Failure::new(Code::Overloaded, message)
                .with_reason("storage_full")
                .with_retry_after_ms(5_000)
                .into();
        }
        AppendRefused::Poisoned => return not_ready(message).into(),
        AppendRefused::OutcomeUnknown => {
            return Failure::new(Code::Storage, message)
                .with_retry(Retry::OutcomeUnknown)
                .into();
        }
        AppendRefused::Closed { reason } => return closed(reason).into(),
    };
    NotPublished::Refused(reason, message)
}

fn not_ready(message: String) -> Failure {
    Failure::new(Code::ShardUnavailable, message)
        .with_reason("not_ready")
        .with_retry_after_ms(250)
}

/// An append that a shard refused, for requests that know no reasons of their own.
pub(crate) fn append_failure(refused: AppendRefused) -> Failure {
    match not_appended(refused) {
        NotPublished::Failed(failure) => failure,
        NotPublished::Refused(_, message) => Failure::new(Code::InvalidRequest, message),
    }
}

/// What a closed shard is called on the wire.
pub(crate) fn closed(reason: CloseReason) -> Failure {
    match reason {
        CloseReason::Deleted => Failure::new(Code::NotFound, "the stream was deleted"),
        CloseReason::Moved => {
            Failure::new(Code::ShardUnavailable, "the shard is moving").with_reason("moving")
        }
        CloseReason::Stopping => not_ready("the broker is shutting down".into()),
        CloseReason::Reopening => not_ready("the shard is being recovered".into()),
    }
}

/// Whether a declared width is the real one.
pub(crate) fn width_matches(spec: &StreamSpec, shards: u32, routing: Option<&str>) -> bool {
    let declared = match routing {
        None => Some(Routing::Modulo),
        Some(name) => name.parse().ok(),
    };
    spec.shards == shards && declared == Some(spec.routing)
}

/// What publishing to a stream needs.
pub(crate) fn may_publish(principal: &felix_auth::Principal, id: &felix_model::StreamId) -> bool {
    let resource = Resource::Stream {
        tenant: id.tenant.as_str(),
        namespace: id.namespace.as_str(),
        stream: id.stream.as_str(),
    };
    principal.allows(Action::StreamPublish, &resource)
}
