//! Appends and confirmed reads, from whichever member they begin at.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use felix_meta::Revision;
use openraft::error::{CheckIsLeaderError, ClientWriteError, RaftError};
use tokio::time::{Instant, sleep, timeout};

use super::codec;
use super::core::Core;
use super::message::{Ask, Refused, Said};
use super::network::{PeerFailed, nonsense};
use super::records::{Reach, check_fit};
use super::stats::Counts;
use super::transport::CallFailed;
use super::types::{Answer, LogId, Proposal, ProposalId};
use crate::ledger::{AppendRefused, ConfirmFailed};

/// How long to wait before asking again for a leader that was not there.
const AGAIN: Duration = Duration::from_millis(50);

/// How long one try may take. What was lost on the way is sent again, with the same proposal.
const TRY: Duration = Duration::from_millis(1500);

/// Room that is left on the disk when appends are refused: votes, and what others have committed, still fit.
pub(crate) const RESERVE_BYTES: u64 = 16 * 1024 * 1024;

/// What one try of an append came to.
enum Tried {
    Decided(Answer),
    /// Nothing was handed over.
    Not(String),
    /// It was handed over, and may be committed.
    Unsure(String),
    /// It is refused for good.
    Refused(AppendRefused),
}

impl Core {
    /// Adds records behind a revision: all of them or none. When it returns they are on the disks of a majority, and
    /// readable here.
    ///
    /// # Errors
    /// [`AppendRefused`].
    pub async fn append(&self, expected: Revision, records: &[Bytes]) -> Result<(), AppendRefused> {
        let found = Revision(self.reach().revision);
        if found > expected {
            return Err(AppendRefused::Raced { expected, found });
        }
        let proposal = Proposal {
            id: ProposalId((self.options.draw)(), (self.options.draw)()),
            expected: expected.0,
            records: records.to_vec(),
        };
        check_fit(&proposal).map_err(|error| AppendRefused::Unfit(error.to_string()))?;
        let deadline = Instant::now() + self.options.timing.answer;
        let (mut unsure, mut why) = (None, "no leader is known".to_owned());
        while Instant::now() < deadline {
            match self.try_append(&proposal, deadline).await {
                Tried::Decided(answer) => return self.settle(expected, answer, deadline).await,
                Tried::Not(detail) => why = detail,
                Tried::Unsure(detail) => unsure = Some(detail),
                Tried::Refused(refused) if unsure.is_none() => return Err(refused),
                Tried::Refused(refused) => unsure = Some(refused.to_string()),
            }
            sleep(AGAIN).await;
        }
        Counts::add(&self.counts.timed_out);
        Err(match unsure {
            Some(detail) => AppendRefused::Unconfirmed(detail),
            None => AppendRefused::Unreachable(why),
        })
    }

    /// Waits until what was decided is readable here.
    async fn settle(
        &self,
        expected: Revision,
        answer: Answer,
        deadline: Instant,
    ) -> Result<(), AppendRefused> {
        let wait = deadline.saturating_duration_since(Instant::now()).max(TRY);
        let there = |upto: u64| {
            timeout(
                wait,
                self.records.until(move |reach| reach.revision >= upto),
            )
        };
        match answer {
            Answer::Appended { revision } => match there(revision).await {
                Ok(_) => Ok(()),
                Err(_) => Err(AppendRefused::Unconfirmed(
                    "it is committed, and this member has not heard of it yet".into(),
                )),
            },
            Answer::Raced { found } => match there(found).await {
                Ok(Reach { revision, .. }) => Err(AppendRefused::Raced {
                    expected,
                    found: Revision(revision),
                }),
                Err(_) => Err(AppendRefused::Unreachable(
                    "others wrote, and this member has not heard what".into(),
                )),
            },
            Answer::Nothing => Err(AppendRefused::Failed(
                "an append became another entry".into(),
            )),
        }
    }

    async fn try_append(&self, proposal: &Proposal, deadline: Instant) -> Tried {
        let wait = deadline.saturating_duration_since(Instant::now()).min(TRY);
        let Some(leader) = self.leader() else {
            return Tried::Not("no leader is known".into());
        };
        if leader == self.options.member {
            return tried(self.propose_here(proposal.clone(), wait).await);
        }
        let Some(peer) = self.peer(leader) else {
            return Tried::Not(format!(
                "member {leader} leads, and its address is not known"
            ));
        };
        Counts::add(&self.counts.forwarded);
        let mut body = BytesMut::new();
        codec::put_proposal(&mut body, proposal);
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let asked = self
            .caller
            .ask(&peer, None, Ask::Propose { wait_ms }, &body, wait);
        match asked.await {
            Ok(Said::Decided(answer)) => Tried::Decided(answer),
            Ok(said) => Tried::Unsure(nonsense(leader, &said).to_string()),
            Err(PeerFailed::Refused(refused)) => tried(Err(refused)),
            Err(PeerFailed::Call(failed @ CallFailed::Unreachable { .. })) => {
                Tried::Not(failed.to_string())
            }
            Err(failed) => Tried::Unsure(failed.to_string()),
        }
    }

    /// Proposes as the leader, if this is it.
    pub(crate) async fn propose_here(
        &self,
        proposal: Proposal,
        wait: Duration,
    ) -> Result<Answer, Refused> {
        let leader = self.leader();
        if leader != Some(self.options.member) {
            return Err(Refused::NotLeader { leader });
        }
        check_fit(&proposal).map_err(|error| Refused::not("unfit", error))?;
        let bytes: usize = proposal.records.iter().map(Bytes::len).sum();
        if !self.has_room(bytes as u64) {
            return Err(Refused::not("full", "the disk is full"));
        }
        match timeout(wait, self.raft.client_write(proposal)).await {
            Ok(Ok(written)) => Ok(written.data),
            // It may have been in this member's log for a while, and be in others'.
            Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_)))) => {
                Err(Refused::unknown("leadership was lost"))
            }
            Ok(Err(error)) => Err(Refused::unknown(error)),
            Err(_) => Err(Refused::unknown("a majority did not answer in time")),
        }
    }

    /// Whether so many bytes may be written, without touching what is reserved for the protocol itself.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        // The raft log and the records both take them.
        let needed = bytes.saturating_mul(2).saturating_add(RESERVE_BYTES);
        match self.place.disk.space(&self.place.root) {
            Ok(space) => space.available >= needed,
            // The write itself will say what is wrong.
            Err(_) => true,
        }
    }

    /// A revision that is at least every one acknowledged to anybody before, and readable here.
    ///
    /// # Errors
    /// [`ConfirmFailed`] when no leader with a majority behind it says so in time.
    pub async fn confirm(&self) -> Result<Revision, ConfirmFailed> {
        let deadline = Instant::now() + self.options.timing.answer;
        let mut why = "no leader is known".to_owned();
        while Instant::now() < deadline {
            match self.try_read_index(deadline).await {
                Ok(index) => {
                    let wait = deadline.saturating_duration_since(Instant::now());
                    let there = self.records.until(|reach| reach.applied >= index);
                    match timeout(wait, there).await {
                        Ok(reach) => return Ok(Revision(reach.revision)),
                        Err(_) => why = "this member has not heard of everything yet".into(),
                    }
                }
                Err(detail) => why = detail,
            }
            sleep(AGAIN).await;
        }
        Err(ConfirmFailed(why))
    }

    async fn try_read_index(&self, deadline: Instant) -> Result<Option<LogId>, String> {
        let wait = deadline.saturating_duration_since(Instant::now()).min(TRY);
        let leader = self.leader().ok_or("no leader is known")?;
        if leader == self.options.member {
            return self
                .read_index_here()
                .await
                .map_err(|refused| refused.to_string());
        }
        let peer = self
            .peer(leader)
            .ok_or_else(|| format!("member {leader} leads, and its address is not known"))?;
        match self
            .caller
            .ask(&peer, None, Ask::ReadIndex, &[], wait)
            .await
        {
            Ok(Said::Index(index)) => Ok(index),
            Ok(said) => Err(nonsense(leader, &said).to_string()),
            Err(failed) => Err(failed.to_string()),
        }
    }

    /// Up to where must be applied to have everything acknowledged, after a majority said that this member leads.
    pub(crate) async fn read_index_here(&self) -> Result<Option<LogId>, Refused> {
        match timeout(TRY, self.raft.get_read_log_id()).await {
            Ok(Ok((index, _))) => Ok(index),
            Ok(Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(to)))) => {
                let leader = to.leader_id;
                Err(Refused::NotLeader { leader })
            }
            Ok(Err(error)) => Err(Refused::unknown(error)),
            Err(_) => Err(Refused::unknown("a majority did not answer in time")),
        }
    }
}

fn tried(outcome: Result<Answer, Refused>) -> Tried {
    match outcome {
        Ok(answer) => Tried::Decided(answer),
        Err(Refused::Not { code, detail }) => match code.as_str() {
            "full" => Tried::Refused(AppendRefused::Full),
            "unfit" => Tried::Refused(AppendRefused::Unfit(detail)),
            _ => Tried::Not(detail),
        },
        Err(refused @ Refused::Unknown { .. }) => Tried::Unsure(refused.to_string()),
        Err(
            refused @ (Refused::NotLeader { .. }
            | Refused::Cluster { .. }
            | Refused::Member { .. }
            | Refused::Storage { .. }),
        ) => Tried::Not(refused.to_string()),
    }
}
