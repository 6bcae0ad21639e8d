//! What is served: one file for each request, and the way from bytes to its answer and back.

mod acls;
mod admin;
pub(crate) mod api_versions;
mod cluster;
mod configs;
mod coordinator;
mod create_topics;
mod delete_records;
mod delete_topics;
pub(crate) mod fetch;
mod groups;
mod leader_epoch;
mod list_offsets;
mod log_dirs;
mod metadata;
mod once;
mod partitions;
mod produce;
mod producer_id;
mod readable;
mod reassignments;
pub(crate) mod settings;

pub use self::readable::readable;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use felix_client::CallFailed;
use felix_client::raw::{Raw, RawStream};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};

use crate::conn::{Pending, Weight, Work};
use crate::limits::GATHERED_AT_ONCE;
use crate::listener::Shared;
use crate::sasl::Judged;
use crate::topics::{Topic, Topics};
use crate::who::Who;
use crate::wire::api::{Api, flexible_answer_header};
use crate::wire::guard;
use crate::wire::read::Malformed;

/// What an answer is needed for.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) api: Api,
    pub(crate) version: i16,
    pub(crate) correlation: i32,
    /// What the client calls itself.
    pub(crate) client_id: Bytes,
}

/// A request: its head, and the bytes of its body.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) head: Head,
    pub(crate) body: Bytes,
}

/// Who asks, and everything there is to answer with.
#[derive(Debug)]
pub(crate) struct Ctx {
    pub(crate) shared: Arc<Shared>,
    pub(crate) who: Arc<Who>,
    pub(crate) peer: SocketAddr,
    /// Held while the batches of one request are put on their way, so that those of the next stay behind them.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

/// An answer as it is sent.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// The bytes, length included; nothing for a request that is not answered.
    pub(crate) parts: Vec<Bytes>,
    /// How long nothing is read after it.
    pub(crate) throttle: Duration,
    /// Whether the connection ends after it.
    pub(crate) close: bool,
    /// What a login came to.
    pub(crate) login: Option<Judged>,
}

/// Why a request cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("{0}")]
    Undecodable(String),
}

impl Ctx {
    pub(crate) fn new(shared: &Arc<Shared>, who: Arc<Who>, peer: SocketAddr) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(shared),
            who,
            peer,
            turn: tokio::sync::Mutex::new(()),
        })
    }

    /// Raw calls in the name of who asks.
    ///
    /// # Errors
    /// When no broker answers.
    pub(crate) async fn raw(&self) -> Result<Raw, CallFailed> {
        self.who.raw(&self.shared.upstream).await
    }

    /// Raw calls about the stream of a topic.
    ///
    /// # Errors
    /// When no broker answers.
    pub(crate) async fn stream(&self, topic: &Topic) -> Result<Arc<RawStream>, CallFailed> {
        self.who.stream(&self.shared.upstream, topic).await
    }

    /// The topics of the tenant, as far as they are known here.
    pub(crate) fn topics(&self) -> Arc<Topics> {
        self.shared.names.topics(self.who.tenant())
    }

    /// The topics of the tenant, after asking the control plane if one of these names is not known here.
    pub(crate) async fn topics_with<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
    ) -> Arc<Topics> {
        self.shared
            .names
            .topics_with(self.who.tenant(), names)
            .await
    }
}

/// Begins a request of somebody who is logged in.
///
/// # Errors
/// [`Unreadable`] when its bytes are not what the protocol says.
pub(crate) fn begin(ctx: &Arc<Ctx>, call: Call) -> Result<Work<Answer>, Unreadable> {
    match call.head.api {
        Api::Produce => produce::begin(ctx, call),
        Api::Fetch => fetch::begin(ctx, call),
        Api::Metadata => run(ctx, call, metadata::answer),
        Api::FindCoordinator => run(ctx, call, coordinator::answer),
        Api::DescribeCluster => run(ctx, call, cluster::answer),
        Api::DescribeConfigs => run(ctx, call, configs::answer),
        Api::AlterConfigs => run(ctx, call, configs::replace),
        Api::IncrementalAlterConfigs => run(ctx, call, configs::alter),
        Api::CreateTopics => run(ctx, call, create_topics::answer),
        Api::DeleteTopics => run(ctx, call, delete_topics::answer),
        Api::CreatePartitions => run(ctx, call, partitions::answer),
        Api::ListOffsets => run(ctx, call, list_offsets::answer),
        Api::OffsetForLeaderEpoch => run(ctx, call, leader_epoch::answer),
        Api::InitProducerId => run(ctx, call, producer_id::answer),
        Api::DeleteRecords => run(ctx, call, delete_records::answer),
        Api::DescribeLogDirs => run(ctx, call, log_dirs::answer),
        Api::DescribeAcls => run(ctx, call, acls::answer),
        Api::ListPartitionReassignments => run(ctx, call, reassignments::answer),
        Api::JoinGroup => run(ctx, call, groups::join_group),
        Api::SyncGroup => run(ctx, call, groups::sync_group),
        Api::Heartbeat => run(ctx, call, groups::heartbeat),
        Api::LeaveGroup => run(ctx, call, groups::leave_group),
        Api::OffsetCommit => run(ctx, call, groups::offset_commit),
        Api::OffsetFetch => run(ctx, call, groups::offset_fetch),
        Api::OffsetDelete => run(ctx, call, groups::offset_delete),
        Api::DescribeGroups => run(ctx, call, groups::describe_groups),
        Api::ListGroups => run(ctx, call, groups::list_groups),
        Api::DeleteGroups => run(ctx, call, groups::delete_groups),
        Api::ConsumerGroupHeartbeat => run(ctx, call, groups::consumer_heartbeat),
        Api::ConsumerGroupDescribe => run(ctx, call, groups::consumer_describe),
        // The connection answers these itself.
        Api::ApiVersions | Api::SaslHandshake | Api::SaslAuthenticate => Err(
            Unreadable::Undecodable("it is no request of its own".into()),
        ),
    }
}

/// Decodes a request, lets it be answered, encodes the answer.
fn run<Q, A, W>(
    ctx: &Arc<Ctx>,
    call: Call,
    answer: fn(Arc<Ctx>, Head, Q) -> W,
) -> Result<Work<Answer>, Unreadable>
where
    Q: Decodable,
    A: Encodable + Default,
    W: Future<Output = A> + Send + 'static,
{
    let request = decode::<Q>(&call)?;
    let (ctx, head) = (Arc::clone(ctx), call.head);
    let work = answer(Arc::clone(&ctx), head.clone(), request);
    Ok(Box::pin(async move {
        let body = work.await;
        encode(&head, &body).unwrap_or_else(|why| {
            ctx.shared.metrics.unencodable.increment(1);
            unencodable::<A>(&head, &why)
        })
    }))
}

/// Holds a request against its type, then decodes it.
///
/// # Errors
/// [`Unreadable`] when its bytes are not what the protocol says.
pub(crate) fn decode<Q: Decodable>(call: &Call) -> Result<Q, Unreadable> {
    let Head { api, version, .. } = call.head;
    guard::check(api, version, &call.body)?;
    let mut body = call.body.clone();
    Q::decode(&mut body, version).map_err(|error| Unreadable::Undecodable(error.to_string()))
}

/// Writes an answer with its length and header.
///
/// # Errors
/// When the answer has something that its version has not.
pub(crate) fn encode<A: Encodable>(head: &Head, body: &A) -> Result<Answer, String> {
    let wrong = |error: &dyn std::fmt::Display| error.to_string();
    let size = body
        .compute_size(head.version)
        .map_err(|error| wrong(&error))?;
    let mut out = answer_head(head, size);
    let header = out.len() - 4;
    body.encode(&mut out, head.version)
        .map_err(|error| wrong(&error))?;
    let length = out.len() - 4;
    debug_assert_eq!(length, header + size, "the size was computed right");
    set_length(&mut out, length);
    Ok(Answer::of(out.freeze()))
}

/// Four bytes of length yet to be set, and the header of the answer; with room for a body.
pub(crate) fn answer_head(head: &Head, room: usize) -> BytesMut {
    let mut out = BytesMut::with_capacity(room + 9);
    out.put_i32(0);
    out.put_i32(head.correlation);
    if flexible_answer_header(head.api, head.version) {
        out.put_u8(0);
    }
    out
}

/// Sets the length of an answer that begins with room for it.
pub(crate) fn set_length(out: &mut BytesMut, length: usize) {
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    if let Some(place) = out.first_chunk_mut() {
        *place = length.to_be_bytes();
    }
}

/// An empty answer of the right shape, for the defect that the right one cannot be written. A client that gets it sees
/// an answer it can read; the log has why.
fn unencodable<A: Encodable + Default>(head: &Head, why: &str) -> Answer {
    tracing::error!(
        api = head.api.name(),
        version = head.version,
        why,
        "an answer cannot be written"
    );
    encode(head, &A::default()).unwrap_or_else(|_| Answer {
        close: true,
        ..Answer::default()
    })
}

impl Answer {
    /// How long it is.
    pub(crate) fn bytes(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }

    /// An answer after which the connection goes on.
    pub(crate) fn of(bytes: Bytes) -> Self {
        Self {
            parts: vec![bytes],
            ..Self::default()
        }
    }
}

/// What clients take for the name of the cluster: each tenant has one of its own.
pub(crate) fn cluster_id(ctx: &Ctx) -> String {
    format!("felix.{}", ctx.who.tenant())
}

/// Does work at the same time, so much of it, and gives the results in its order.
async fn gather<T, W>(work: impl Iterator<Item = W>) -> Vec<T>
where
    T: Send + 'static,
    W: Future<Output = T> + Send + 'static,
{
    let mut work = work.fuse();
    let mut pending = Pending::new(|_| 0, 1);
    let mut results = Vec::new();
    loop {
        // Each that is under way is looked at whenever one of them goes on.
        let room = GATHERED_AT_ONCE.saturating_sub(pending.len());
        for work in work.by_ref().take(room) {
            pending.push(Box::pin(work), Weight::Light);
        }
        if pending.is_empty() {
            return results;
        }
        results.push(pending.next().await);
    }
}

/// What was asked does not fit into a call; the guard lets less through than does.
fn too_long<E: std::fmt::Display>(error: E) -> CallFailed {
    CallFailed::Protocol {
        what: error.to_string(),
    }
}

/// A text for an answer.
pub(crate) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// A text of a request; what is not UTF-8 was refused before.
pub(crate) fn utf8(bytes: &Bytes) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}
