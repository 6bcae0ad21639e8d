//! The way openraft reaches other members: its calls as our messages.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use felix_model::{ClusterId, batch};
use openraft::error::{
    Fatal, InstallSnapshotError, RPCError, RaftError, ReplicationClosed, StreamingError,
    Unreachable,
};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{AnyError, OptionalSend, Snapshot};
use sha2::{Digest, Sha256};
use tokio::task::JoinHandle;

use super::codec;
use super::machine::description_of;
use super::message::{self, Ask, Call, Refused, Said};
use super::records::RecordLog;
use super::snapshot::{CHUNK_BYTES, hex};
use super::transport::{CallFailed, Peer, Transport};
use super::types::{LogId, Member, StorageId, Types, Vote};

type Rpc<E = RaftError<u64>> = RPCError<u64, Member, E>;

/// Why a call came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PeerFailed {
    /// No answer.
    #[error(transparent)]
    Call(#[from] CallFailed),
    /// A refusal.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// An answer that does not answer the question.
    #[error("member {member} answered what was not asked: {detail}")]
    Nonsense {
        /// Who.
        member: u64,
        /// What it was.
        detail: String,
    },
}

/// Calls other members.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) cluster: ClusterId,
    pub(crate) member: u64,
    pub(crate) transport: Arc<dyn Transport>,
    /// Members that were found on another disk than the membership has, and on which.
    strangers: Arc<Mutex<BTreeMap<u64, StorageId>>>,
}

impl Caller {
    pub(crate) fn new(cluster: ClusterId, member: u64, transport: Arc<dyn Transport>) -> Self {
        Self {
            cluster,
            member,
            transport,
            strangers: Arc::default(),
        }
    }

    /// Asks a member something.
    pub(crate) async fn ask(
        &self,
        peer: &Peer,
        storage: Option<StorageId>,
        ask: Ask,
        body: &[u8],
        deadline: Duration,
    ) -> Result<Said, PeerFailed> {
        let head = Call {
            cluster: self.cluster.clone(),
            from: self.member,
            to: peer.member,
            storage,
            ask,
        };
        let answer = self
            .transport
            .call(peer, message::encode(&head, body), deadline)
            .await?;
        let nonsense = |error: codec::Malformed| PeerFailed::Nonsense {
            member: peer.member,
            detail: error.to_string(),
        };
        let (said, _): (Said, Bytes) = message::decode(answer).map_err(nonsense)?;
        let Said::Refused(refused) = said else {
            return Ok(said);
        };
        if let Refused::Storage { here } = &refused {
            self.strangers().insert(peer.member, *here);
        }
        Err(refused.into())
    }

    fn strangers(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, StorageId>> {
        self.strangers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The members found on other disks since this was asked last.
    pub(crate) fn take_strangers(&self) -> BTreeMap<u64, StorageId> {
        std::mem::take(&mut *self.strangers())
    }
}

pub(crate) fn nonsense(member: u64, said: &Said) -> PeerFailed {
    PeerFailed::Nonsense {
        member,
        detail: format!("{said:?}"),
    }
}

/// Makes openraft's connections.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) caller: Caller,
    pub(crate) records: Arc<RecordLog>,
    /// How long to leave a member alone that cannot be reached.
    pub(crate) backoff: Duration,
    /// How long entries may be on their way. Longer than that and the member would hear no heartbeat before it asks for
    /// votes.
    pub(crate) patience: Duration,
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Connection;

    async fn new_client(&mut self, target: u64, node: &Member) -> Connection {
        Connection {
            network: self.clone(),
            peer: Peer {
                member: target,
                address: node.address.clone(),
            },
            storage: node.storage,
            sending: None,
        }
    }
}

/// The way to one member, on the disk that the membership names.
#[derive(Debug)]
pub(crate) struct Connection {
    network: Network,
    peer: Peer,
    storage: StorageId,
    /// Entries on their way. openraft gives up after one heartbeat and asks for the same again; what takes longer, for
    /// its size or for a slow disk over there, would otherwise begin anew each time and never arrive.
    sending: Option<Sending>,
}

#[derive(Debug)]
struct Sending {
    vote: Vote,
    prev: Option<LogId>,
    last: LogId,
    answer: JoinHandle<Result<Said, PeerFailed>>,
}

impl Connection {
    async fn ask(&self, ask: Ask, body: &[u8], deadline: Duration) -> Result<Said, PeerFailed> {
        let storage = Some(self.storage);
        self.network
            .caller
            .ask(&self.peer, storage, ask, body, deadline)
            .await
    }

    /// Sends entries, or waits for the answer to the same ones if they are on their way already.
    async fn send(
        &mut self,
        vote: Vote,
        prev: Option<LogId>,
        last: LogId,
        ask: Ask,
        body: Bytes,
    ) -> Result<Said, PeerFailed> {
        let same = |sending: &Sending| {
            sending.vote == vote && sending.prev == prev && sending.last == last
        };
        if !self.sending.as_ref().is_some_and(same) {
            let (caller, peer) = (self.network.caller.clone(), self.peer.clone());
            let (storage, patience) = (Some(self.storage), self.network.patience);
            let answer =
                tokio::spawn(async move { caller.ask(&peer, storage, ask, &body, patience).await });
            self.sending = Some(Sending {
                vote,
                prev,
                last,
                answer,
            });
        }
        let member = self.peer.member;
        let gone = |detail: String| PeerFailed::Nonsense { member, detail };
        let Some(sending) = &mut self.sending else {
            return Err(gone("nothing is on its way".into()));
        };
        let said = (&mut sending.answer).await;
        self.sending = None;
        said.unwrap_or_else(|error| Err(gone(error.to_string())))
    }

    /// Sends the records that the member lacks, and waits until they are installed.
    async fn send_snapshot(
        &self,
        vote: Vote,
        snapshot: Snapshot<Types>,
        deadline: Duration,
    ) -> Result<Said, PeerFailed> {
        let own = |why: &dyn std::fmt::Display| PeerFailed::Nonsense {
            member: self.network.caller.member,
            detail: why.to_string(),
        };
        let id = snapshot.meta.snapshot_id.clone();
        let description = description_of(&snapshot.snapshot).map_err(|error| own(&error))?;
        let begin = Ask::SnapshotBegin {
            vote,
            id: id.clone(),
        };
        let begun = self.ask(begin, &[], deadline).await?;
        let Said::Have(mut after) = begun else {
            return Ok(begun);
        };
        let mut sum = Sha256::new();
        while after < description.revision {
            let batches = self
                .network
                .records
                .batches_after(after, description.revision, CHUNK_BYTES)
                .map_err(|error| own(&error))?;
            let mut body = BytesMut::new();
            for batch in &batches {
                body.extend_from_slice(batch);
            }
            sum.update(&body);
            let chunk = Ask::SnapshotChunk {
                id: id.clone(),
                after,
                sum: batch::checksum(&body),
            };
            let taken = self.ask(chunk, &body, deadline).await?;
            let Said::Have(revision) = taken else {
                return Err(nonsense(self.peer.member, &taken));
            };
            if revision <= after {
                return Err(nonsense(self.peer.member, &taken));
            }
            after = revision;
        }
        let end = Ask::SnapshotEnd {
            vote,
            meta: snapshot.meta,
            revision: after.max(description.revision),
            sum: hex(&sum.finalize()),
        };
        self.ask(end, &[], deadline).await
    }
}

fn unreachable<E: std::error::Error>(failed: &PeerFailed) -> Rpc<E> {
    tracing::debug!(error = %failed, "a call to a member failed");
    RPCError::Unreachable(Unreachable::new(failed))
}

impl RaftNetwork<Types> for Connection {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, Rpc> {
        let ask = Ask::Append {
            vote: rpc.vote,
            prev: rpc.prev_log_id,
            commit: rpc.leader_commit,
        };
        let mut body = BytesMut::new();
        for entry in &rpc.entries {
            let entry = codec::encode_entry(entry)
                .map_err(|error| RPCError::Unreachable(Unreachable::new(&error)))?;
            codec::put_list(&mut body, &[entry]);
        }
        let said = match rpc.entries.last().map(|entry| entry.log_id) {
            None => self.ask(ask, &body, option.hard_ttl()).await,
            Some(last) => {
                self.send(rpc.vote, rpc.prev_log_id, last, ask, body.freeze())
                    .await
            }
        };
        match said {
            Ok(Said::Appended) => Ok(AppendEntriesResponse::Success),
            Ok(Said::PartlyAppended(upto)) => Ok(AppendEntriesResponse::PartialSuccess(upto)),
            Ok(Said::Conflict) => Ok(AppendEntriesResponse::Conflict),
            Ok(Said::HigherVote(vote)) => Ok(AppendEntriesResponse::HigherVote(vote)),
            Ok(said) => Err(unreachable(&nonsense(self.peer.member, &said))),
            Err(failed) => Err(unreachable(&failed)),
        }
    }

    async fn install_snapshot(
        &mut self,
        _rpc: InstallSnapshotRequest<Types>,
        _option: RPCOption,
    ) -> Result<InstallSnapshotResponse<u64>, Rpc<RaftError<u64, InstallSnapshotError>>> {
        // Snapshots go by `full_snapshot`.
        let error = AnyError::error("snapshots are not sent in openraft's chunks");
        Err(RPCError::Unreachable(Unreachable::new(&error)))
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<u64>,
        option: RPCOption,
    ) -> Result<VoteResponse<u64>, Rpc> {
        match self.ask(Ask::Vote(rpc), &[], option.hard_ttl()).await {
            Ok(Said::Vote(response)) => Ok(response),
            Ok(said) => Err(unreachable(&nonsense(self.peer.member, &said))),
            Err(failed) => Err(unreachable(&failed)),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot<Types>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<Types, Fatal<u64>>> {
        let sent = self.send_snapshot(vote, snapshot, option.hard_ttl());
        let said = tokio::select! {
            biased;
            closed = cancel => return Err(StreamingError::Closed(closed)),
            said = sent => said,
        };
        match said {
            Ok(Said::Installed(vote) | Said::HigherVote(vote)) => Ok(SnapshotResponse::new(vote)),
            Ok(said) => {
                let failed = nonsense(self.peer.member, &said);
                Err(StreamingError::Unreachable(Unreachable::new(&failed)))
            }
            Err(failed) => Err(StreamingError::Unreachable(Unreachable::new(&failed))),
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(self.network.backoff))
    }
}
