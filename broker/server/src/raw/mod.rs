//! The `raw` extension: record batches appended and fetched as they stand in the log, and what goes with them.
//!
//! Appends keep the order in which they were read. Everything else is answered when it is ready: a fetch that waits is a
//! task, and a look into the log goes to a thread that may block.

mod append;
mod describe;
mod fetch;
mod lookup;
mod trim;
mod watch;

use std::sync::Arc;

use felix_auth::{Action, Principal, Resource};
use felix_model::{Offset, ShardIndex, StreamId};
use felix_wire::error::{Code, Failure};
use felix_wire::extension::raw::{RawError, RawProducerGiven, RawProducerId};
use felix_wire::extension::requests::{Ask, Reply};

pub(crate) use self::append::RawWaiting;
pub(crate) use self::trim::{copy_start, kept_start};
use crate::broker::Shared;
use crate::conn::calls::{Caller, Turn};
use crate::conn::stream::StreamState;
use crate::shards::cell::Cell;
use crate::shards::{Kind, StreamHandle};

/// Carries out the calls of one turn that name the same stream, in their order.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "what is left is told apart behind it"
)]
pub(crate) async fn turn(state: &mut StreamState, turn: Turn) {
    let Turn { names, asks } = turn;
    for (ask, caller) in asks {
        match ask {
            Ask::RawAppend(ask) => append::append(state, &names, ask, caller).await,
            Ask::RawFetch(ask) => fetch::fetch(state, &names, ask, caller).await,
            other => one(state, &names, other, caller).await,
        }
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "calls of other families are never handed over here"
)]
async fn one(
    state: &mut StreamState,
    names: &felix_wire::publish::Names,
    ask: Ask,
    caller: Caller,
) {
    match ask {
        Ask::RawProducerId(ask) => {
            let given = own_tenant(state, names.tenant()).and_then(|()| producer_id(&ask));
            answer(caller, given.map(Reply::RawProducerId));
        }
        Ask::RawDescribe(ask) => describe::describe(state, names, &ask, caller).await,
        Ask::RawOffsets(ask) => lookup::offsets(state, names, &ask, caller).await,
        Ask::RawEpochEnd(ask) => lookup::epoch_end(state, names, &ask, caller).await,
        Ask::RawDeleteRecords(ask) => trim::delete_records(state, names, &ask, caller).await,
        _ => caller.fail(Failure::new(Code::Internal, "the call is another family's")),
    }
}

fn answer(caller: Caller, outcome: Result<Reply, Failure>) {
    caller.answer(outcome.map_err(Into::into));
}

/// A failure that reads as this error.
pub(crate) fn failure(code: Code, error: RawError, message: impl Into<String>) -> Failure {
    Failure::new(code, message).with_reason(error.word())
}

pub(crate) fn own_tenant(state: &StreamState, tenant: &str) -> Result<(), Failure> {
    if tenant == state.principal.tenant.as_str() {
        return Ok(());
    }
    Err(Failure::new(
        Code::Forbidden,
        "the request names another tenant than the token",
    ))
}

/// A producer id that nobody else has, or the next epoch of the caller's. Whoever guessed another's id could fence it;
/// ids are 63 random bits.
fn producer_id(ask: &RawProducerId) -> Result<RawProducerGiven, Failure> {
    const EPOCH_MAX: u16 = i16::MAX.cast_unsigned() - 1;
    match ask.id {
        Some(id) if ask.epoch < EPOCH_MAX && i64::try_from(id).is_ok() => Ok(RawProducerGiven {
            id,
            epoch: ask.epoch + 1,
        }),
        Some(_) | None => Ok(RawProducerGiven {
            id: crate::conn::producer_id()?,
            epoch: 0,
        }),
    }
}

/// Whether a principal may do something to a stream.
pub(crate) fn may(principal: &Principal, action: Action, id: &StreamId) -> bool {
    let resource = Resource::Stream {
        tenant: id.tenant.as_str(),
        namespace: id.namespace.as_str(),
        stream: id.stream.as_str(),
    };
    principal.allows(action, &resource)
}

/// A shard that is being read, with what it was found under.
#[derive(Clone, Debug)]
pub(crate) struct Shard {
    pub(crate) handle: Arc<StreamHandle>,
    pub(crate) index: ShardIndex,
}

impl Shard {
    /// The shard, opened if need be.
    pub(crate) async fn cell(&self, shared: &Shared) -> Result<Arc<Cell>, Failure> {
        if self.index.0 >= self.handle.spec().shards {
            return Err(no_such_shard(self.index.0));
        }
        match self.handle.open_cell(self.index) {
            Some(cell) => Ok(cell),
            None => {
                let opened = shared.shards.open(&self.handle, self.index).await;
                opened.map_err(|error| error.failure())
            }
        }
    }

    pub(crate) fn is_durable(&self) -> bool {
        matches!(self.handle.spec().kind, Kind::Durable { .. })
    }
}

pub(crate) fn no_such_shard(shard: u32) -> Failure {
    failure(
        Code::InvalidRequest,
        RawError::UnknownTopicOrPartition,
        format!("the stream has no shard {shard}"),
    )
}

/// Whether the caller's generation is the shard's.
pub(crate) fn same_generation(asked: Option<u64>, cell: &Cell) -> Result<(), RawError> {
    let generation = u64::from(cell.generation().0);
    match asked {
        Some(asked) if asked < generation => Err(RawError::FencedLeaderEpoch),
        Some(asked) if asked > generation => Err(RawError::UnknownLeaderEpoch),
        Some(_) | None => Ok(()),
    }
}

/// An offset as Kafka has it.
pub(crate) fn signed(offset: Offset) -> i64 {
    i64::try_from(offset.0).unwrap_or(i64::MAX)
}
