//! Record batches as they stand in the log, and groups of the Kafka protocol: what a listener of that protocol is
//! built on. Needs a broker with the `raw` extension.
//!
//! The calls and replies are those of the wire and are given out as they are; their fields are described there.
//! Whatever a call needs to know of order: calls are sent in the order in which [`RawStream::send_append`] returned, and are
//! answered in any order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use felix_wire::extension::raw::*;
pub use felix_wire::extension::requests::{Asks, List, Text};
use felix_wire::publish::Names;

use crate::asks::{Dispatched, How, Repeat};
use crate::client::Client;
use crate::error::{CallFailed, ConnectFailed, Retry};

/// Raw calls in the name of the client's tenant. Cheap to make and to clone.
#[derive(Clone, Debug)]
pub struct Raw {
    client: Client,
    slot: usize,
}

/// One stream that raw calls are about. Worth keeping: it is encoded once.
#[derive(Clone, Debug)]
pub struct RawStream {
    raw: Raw,
    names: Names,
    underway: Underway,
}

/// An append on its way. Dropped, it may be carried out all the same.
#[derive(Debug)]
pub struct Appending {
    stream: RawStream,
    append: RawAppend,
    sent: Dispatched<RawAppend>,
    flight: Flight,
}

/// The appends of a stream that are not answered yet, by shard.
#[derive(Clone, Debug, Default)]
struct Underway(Arc<Mutex<HashMap<u32, OfShard>>>);

#[derive(Debug, Default)]
struct OfShard {
    unanswered: u32,
    /// How many were begun since the first of them.
    begun: u64,
}

/// One append's place among those of its shard.
#[derive(Debug)]
struct Flight {
    underway: Underway,
    shard: u32,
    /// Nothing was on its way before it.
    is_first: bool,
}

impl Client {
    /// Raw calls. Each of these handles uses one of the client's connections.
    #[must_use]
    pub fn raw(&self) -> Raw {
        Raw {
            slot: self.inner.next_slot(),
            client: self.clone(),
        }
    }
}

impl Raw {
    /// A stream in a namespace of the tenant. Whether it exists is seen by the first call.
    ///
    /// # Errors
    /// When a name is too long to be sent.
    pub fn stream(&self, namespace: &str, stream: &str) -> Result<RawStream, CallFailed> {
        Ok(RawStream {
            raw: self.clone(),
            names: self.names(namespace, stream)?,
            underway: Underway::default(),
        })
    }

    /// Fetches whole batches of many shards; waits as long as the call says. Cancel-safe.
    ///
    /// # Errors
    /// [`CallFailed`]; what is wrong with one shard stands in the reply.
    pub async fn fetch(&self, fetch: RawFetch) -> Result<RawFetched, CallFailed> {
        let patience = Duration::from_millis(fetch.max_wait_ms.into());
        self.ask(fetch, Repeat::Always, patience).await
    }

    /// Describes streams and their shards.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn describe(&self, describe: RawDescribe) -> Result<RawDescribed, CallFailed> {
        self.ask(describe, Repeat::Always, Duration::ZERO).await
    }

    /// A producer id of one's own, or the next epoch of one.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn producer_id(&self, ask: RawProducerId) -> Result<RawProducerGiven, CallFailed> {
        self.ask(ask, Repeat::Always, Duration::ZERO).await
    }

    /// A call about a group, or about groups. `wait` is how long the broker may take beyond a request's usual time:
    /// a join is answered when the other members have joined. Sent once: members of the Kafka protocol try again by
    /// themselves.
    ///
    /// # Errors
    /// [`CallFailed`]; what is wrong with the group or member stands in the reply.
    pub async fn group<A: Asks>(&self, ask: A, wait: Duration) -> Result<A::Reply, CallFailed> {
        self.ask(ask, Repeat::Unapplied, wait).await
    }

    async fn ask<A: Asks>(
        &self,
        ask: A,
        repeat: Repeat,
        patience: Duration,
    ) -> Result<A::Reply, CallFailed> {
        let names = self.names("", "")?;
        let how = self.how(repeat, patience);
        self.client.inner.ask(&names, ask, how).await
    }

    fn how(&self, repeat: Repeat, patience: Duration) -> How {
        How {
            repeat,
            patience,
            slot: self.slot,
        }
    }

    fn names(&self, namespace: &str, stream: &str) -> Result<Names, CallFailed> {
        let tenant = self.client.inner.brokers.config.tenant.as_str();
        Names::new(tenant, namespace, stream).map_err(|error| CallFailed::Protocol {
            what: error.to_string(),
        })
    }
}

impl RawStream {
    /// Appends a batch and waits for the answer. It is not repeated, as what was sent behind it would overtake it. Alone on
    /// its way to its shard it goes on to the broker that leads it, if the one that was asked names that.
    ///
    /// # Errors
    /// [`CallFailed`]; [`CallFailed::raw_error`] says what it is in the Kafka protocol.
    pub async fn append(&self, append: RawAppend) -> Result<RawAppended, CallFailed> {
        self.send_append(append).await?.answer().await
    }

    /// Puts a batch on its way behind those before it, as soon as there is room for it.
    ///
    /// # Errors
    /// [`CallFailed`]; nothing was sent.
    pub async fn send_append(&self, append: RawAppend) -> Result<Appending, CallFailed> {
        let how = self.raw.how(Repeat::Never, Duration::ZERO);
        let inner = &self.raw.client.inner;
        let flight = self.underway.begin(append.shard);
        let sent = inner.dispatch(&self.names, append.clone(), how).await?;
        Ok(Appending {
            stream: self.clone(),
            append,
            sent,
            flight,
        })
    }

    /// Looks for offsets, by time or by their place.
    ///
    /// # Errors
    /// [`CallFailed`]; what is wrong with one shard stands in the reply.
    pub async fn offsets(&self, ask: RawOffsets) -> Result<RawOffsetsFound, CallFailed> {
        self.ask(ask).await
    }

    /// Asks where generations ended.
    ///
    /// # Errors
    /// [`CallFailed`]; what is wrong with one shard stands in the reply.
    pub async fn epoch_end(&self, ask: RawEpochEnd) -> Result<RawEpochEnded, CallFailed> {
        self.ask(ask).await
    }

    /// Forgets the records below an offset.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn delete_records(
        &self,
        ask: RawDeleteRecords,
    ) -> Result<RawRecordsDeleted, CallFailed> {
        self.ask(ask).await
    }

    async fn ask<A: Asks>(&self, ask: A) -> Result<A::Reply, CallFailed> {
        let how = self.raw.how(Repeat::Always, Duration::ZERO);
        self.raw.client.inner.ask(&self.names, ask, how).await
    }
}

impl Appending {
    /// Waits for the answer. Cancel-safe: the batch may be appended all the same.
    ///
    /// # Errors
    /// [`CallFailed`]; [`CallFailed::raw_error`] says what it is in the Kafka protocol.
    pub async fn answer(self) -> Result<RawAppended, CallFailed> {
        let (failed, leader) = match self.sent.answer().await {
            Ok(appended) => return Ok(appended),
            Err(failed) => failed,
        };
        let Some(leader) = leader.filter(|_| self.flight.is_alone()) else {
            return Err(failed);
        };
        // Nothing was written, and nothing can be overtaken.
        let Raw { client, .. } = &self.stream.raw;
        let how = self.stream.raw.how(Repeat::Never, Duration::ZERO);
        let names = &self.stream.names;
        client.inner.ask_at(leader, names, self.append, how).await
    }
}

impl Underway {
    fn begin(&self, shard: u32) -> Flight {
        let mut shards = self.shards();
        let of_shard = shards.entry(shard).or_default();
        of_shard.unanswered += 1;
        of_shard.begun += 1;
        Flight {
            underway: self.clone(),
            shard,
            is_first: of_shard.unanswered == 1,
        }
    }

    fn shards(&self) -> MutexGuard<'_, HashMap<u32, OfShard>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flight {
    /// Whether nothing else is, or was while it was, on its way.
    fn is_alone(&self) -> bool {
        let shards = self.underway.shards();
        let begun = shards.get(&self.shard).map(|of_shard| of_shard.begun);
        self.is_first && begun == Some(1)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut shards = self.underway.shards();
        if let Some(of_shard) = shards.get_mut(&self.shard) {
            of_shard.unanswered -= 1;
            if of_shard.unanswered == 0 {
                shards.remove(&self.shard);
            }
        }
    }
}

impl CallFailed {
    /// What it is in the Kafka protocol. Never a number after which a producer takes a batch for lost that may be in
    /// the log.
    #[must_use]
    pub fn raw_error(&self) -> RawError {
        match self {
            // Nothing that whoever asks does will help: an operator must give another certificate.
            Self::Connect(ConnectFailed::Certificate { .. }) => {
                RawError::ClusterAuthorizationFailed
            }
            Self::Connect(_) | Self::NotSent { .. } => RawError::NotLeader,
            Self::Refused(refused) => {
                let code = felix_wire::Code::from_name(&refused.code);
                RawError::of_code(code, refused.reason.as_deref())
            }
            Self::Unanswered { .. } => RawError::RequestTimedOut,
            Self::Unsupported { .. } => RawError::InvalidRequest,
            Self::Protocol { .. } => RawError::StorageError,
        }
    }

    /// How long the broker wants to be left alone, in milliseconds.
    #[must_use]
    pub fn throttled_ms(&self) -> Option<u64> {
        match self {
            Self::Refused(refused) => match refused.retry {
                Retry::RetryAfter(after) => u64::try_from(after.as_millis()).ok(),
                Retry::Retry | Retry::Redirect | Retry::OutcomeUnknown | Retry::Fatal => None,
            },
            Self::Connect(_)
            | Self::NotSent { .. }
            | Self::Unanswered { .. }
            | Self::Unsupported { .. }
            | Self::Protocol { .. } => None,
        }
    }
}
