//! What a member answers to the others.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::error::RaftError;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest};

use super::codec;
use super::core::Core;
use super::machine::{self, Meta};
use super::message::{self, Ask, Call, Here, Refused, Said};
use super::snapshot::Incoming;
use super::stats::Counts;
use super::types::{Entry, LogId, Types, Vote};

/// Entries in one call. openraft sends fewer.
const ENTRIES_MAX: usize = 4096;

/// Longest time a forwarded proposal may wait, whatever its sender says.
const WAIT_MAX: Duration = Duration::from_secs(10);

impl Core {
    /// Answers a message of another member. `caller` is who that is, where the transport knows.
    pub async fn answer(self: &Arc<Self>, caller: Option<u64>, message: Bytes) -> Bytes {
        let said = match message::decode::<Call>(message) {
            Ok((call, body)) => match self.check(caller, &call) {
                Ok(()) => self.do_as_asked(call.ask, body).await,
                Err(refused) => {
                    Counts::add(&self.counts.rejected);
                    tracing::debug!(from = call.from, %refused, "a member's call was refused");
                    Err(refused)
                }
            },
            Err(error) => {
                Counts::add(&self.counts.rejected);
                Err(Refused::not("malformed", error))
            }
        };
        message::encode(&said.unwrap_or_else(Said::Refused), &[])
    }

    /// Whether a call is meant for this member of this cluster, on this disk.
    fn check(&self, caller: Option<u64>, call: &Call) -> Result<(), Refused> {
        if call.cluster != self.options.cluster {
            let here = self.options.cluster.clone();
            return Err(Refused::Cluster { here });
        }
        if call.to != self.options.member {
            let here = self.options.member;
            return Err(Refused::Member { here });
        }
        if caller.is_some_and(|caller| caller != call.from) {
            return Err(Refused::not(
                "foreign",
                "the caller is not who he says he is",
            ));
        }
        if call.storage.is_none() && is_protocol(&call.ask) {
            return Err(Refused::not(
                "malformed",
                "the call does not say which disk it means",
            ));
        }
        if call
            .storage
            .is_some_and(|storage| storage != self.identity.storage)
        {
            let here = self.identity.storage;
            return Err(Refused::Storage { here });
        }
        if self.stopping.is_cancelled() {
            return Err(Refused::not("stopping", "this member is stopping"));
        }
        Ok(())
    }

    async fn do_as_asked(self: &Arc<Self>, ask: Ask, body: Bytes) -> Result<Said, Refused> {
        match ask {
            Ask::Append { vote, prev, commit } => self.take_entries(vote, prev, commit, body).await,
            Ask::Vote(request) => self.take_vote(request).await,
            Ask::SnapshotBegin { vote, id } => self.begin_snapshot(vote, &id),
            Ask::SnapshotChunk { id, after, sum } => self.take_chunk(&id, after, sum, &body),
            Ask::SnapshotEnd {
                vote,
                meta,
                revision,
                sum,
            } => self.end_snapshot(vote, meta, revision, sum).await,
            Ask::Propose { wait_ms } => {
                let mut body = body;
                let proposal = codec::get_proposal(&mut body)
                    .map_err(|error| Refused::not("malformed", error))?;
                let wait = Duration::from_millis(wait_ms).min(WAIT_MAX);
                Ok(Said::Decided(self.propose_here(proposal, wait).await?))
            }
            Ask::ReadIndex => Ok(Said::Index(self.read_index_here().await?)),
            Ask::Hello => Ok(Said::Here(self.here())),
            Ask::Change(change) => {
                self.change_here(change).await?;
                Ok(Said::Changed)
            }
        }
    }

    async fn take_entries(
        &self,
        vote: Vote,
        prev: Option<LogId>,
        commit: Option<LogId>,
        mut body: Bytes,
    ) -> Result<Said, Refused> {
        let malformed = |error| Refused::not("malformed", error);
        if !body.is_empty() && !self.has_room(body.len() as u64) {
            // Before the log finds out: a log that failed takes nothing any more.
            return Err(Refused::not("full", "the disk is full"));
        }
        let listed = codec::get_list(&mut body).map_err(malformed)?;
        if listed.len() > ENTRIES_MAX {
            return Err(Refused::not(
                "malformed",
                format!("{} entries", listed.len()),
            ));
        }
        let mut entries: Vec<Entry> = Vec::with_capacity(listed.len());
        let first = prev.map_or(0, |prev| prev.index + 1);
        for (next, entry) in (first..).zip(listed) {
            let entry = codec::decode_entry(entry).map_err(malformed)?;
            if entry.log_id.index != next {
                return Err(Refused::not(
                    "malformed",
                    "entries that do not follow each other",
                ));
            }
            entries.push(entry);
        }
        let request = AppendEntriesRequest::<Types> {
            vote,
            prev_log_id: prev,
            entries,
            leader_commit: commit,
        };
        match self.raft.append_entries(request).await {
            Ok(AppendEntriesResponse::Success) => Ok(Said::Appended),
            Ok(AppendEntriesResponse::PartialSuccess(upto)) => Ok(Said::PartlyAppended(upto)),
            Ok(AppendEntriesResponse::Conflict) => Ok(Said::Conflict),
            Ok(AppendEntriesResponse::HigherVote(vote)) => Ok(Said::HigherVote(vote)),
            Err(error) => Err(Refused::unknown(error)),
        }
    }

    async fn take_vote(&self, request: VoteRequest<u64>) -> Result<Said, Refused> {
        match self.raft.vote(request).await {
            Ok(response) => Ok(Said::Vote(response)),
            Err(RaftError::APIError(never)) => match never {},
            Err(error @ RaftError::Fatal(_)) => Err(Refused::unknown(error)),
        }
    }

    fn begin_snapshot(&self, vote: Vote, id: &str) -> Result<Said, Refused> {
        let known = self.metrics().vote;
        if known > vote {
            return Ok(Said::HigherVote(known));
        }
        let mut incoming = self
            .incoming
            .try_lock()
            .map_err(|_| Refused::not("busy", "a snapshot is being installed"))?;
        let have = self.records.reach().revision;
        let begun = Incoming::begin(&self.place, id, have);
        *incoming = Some(begun.map_err(|error| Refused::not("failed", error))?);
        Ok(Said::Have(have))
    }

    fn take_chunk(&self, id: &str, after: u64, sum: u32, chunk: &Bytes) -> Result<Said, Refused> {
        let mut incoming = self
            .incoming
            .try_lock()
            .map_err(|_| Refused::not("busy", "a snapshot is being installed"))?;
        if !self.has_room(chunk.len() as u64) {
            return Err(Refused::not("full", "the disk is full"));
        }
        let Some(transfer) = incoming.as_mut() else {
            return Err(Refused::not("failed", "no snapshot is coming in"));
        };
        transfer
            .take(id, after, sum, chunk)
            .map(Said::Have)
            .map_err(|error| Refused::not("failed", error))
    }

    async fn end_snapshot(
        self: &Arc<Self>,
        vote: Vote,
        meta: Meta,
        revision: u64,
        sum: String,
    ) -> Result<Said, Refused> {
        let mut incoming = Arc::clone(&self.incoming)
            .try_lock_owned()
            .map_err(|_| Refused::not("busy", "a snapshot is being installed"))?;
        let Some(transfer) = incoming.take() else {
            return Err(Refused::not("failed", "no snapshot is coming in"));
        };
        let staged = transfer
            .end(&meta.snapshot_id, revision, &sum)
            .map_err(|error| Refused::not("failed", error))?;
        let raft = self.raft.clone();
        // A task of its own: it goes on when the caller does not wait, and the lock is held as long as it does.
        let installing = tokio::spawn(async move {
            let _held = incoming;
            let snapshot = machine::received(meta, revision, staged);
            raft.install_full_snapshot(vote, snapshot).await
        });
        match installing.await {
            Ok(Ok(response)) => Ok(Said::Installed(response.vote)),
            Ok(Err(fatal)) => Err(Refused::unknown(fatal)),
            Err(error) => Err(Refused::unknown(error)),
        }
    }

    /// Who this is.
    pub(crate) fn here(&self) -> Here {
        Here {
            member: self.options.member,
            storage: self.identity.storage,
            blank: self.log.is_blank(),
            forms: self.options.forms.then(|| self.options.peers.clone()),
        }
    }
}

/// Calls that count on what a disk promised.
fn is_protocol(ask: &Ask) -> bool {
    match ask {
        Ask::Append { .. }
        | Ask::Vote(_)
        | Ask::SnapshotBegin { .. }
        | Ask::SnapshotChunk { .. }
        | Ask::SnapshotEnd { .. } => true,
        Ask::Propose { .. } | Ask::ReadIndex | Ask::Hello | Ask::Change(_) => false,
    }
}
