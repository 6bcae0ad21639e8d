//! What members say to each other.
//!
//! A message is a head in JSON and a body of bytes: `length of the head u32 | head | body`. Every call says who calls whom,
//! in which cluster; calls of the protocol itself also say on which disk the caller believes the other to be.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use felix_model::ClusterId;
use openraft::raft::{VoteRequest, VoteResponse};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::codec::Malformed;
use super::machine::Meta;
use super::types::{Answer, LogId, StorageId, Vote};

/// The head of a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) cluster: ClusterId,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// The disk that is meant; none for calls that any disk may answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) storage: Option<StorageId>,
    pub(crate) ask: Ask,
}

/// What is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ask {
    /// The protocol: entries follow in the body, as a list.
    Append {
        vote: Vote,
        prev: Option<LogId>,
        commit: Option<LogId>,
    },
    /// The protocol: a vote.
    Vote(VoteRequest<u64>),
    /// The protocol: a snapshot follows. Answered by [`Said::Have`].
    SnapshotBegin { vote: Vote, id: String },
    /// The protocol: batches of it, in the body.
    SnapshotChunk { id: String, after: u64, sum: u32 },
    /// The protocol: that was all.
    SnapshotEnd {
        vote: Vote,
        meta: Meta,
        revision: u64,
        sum: String,
    },
    /// A proposal, in the body, for the leader.
    Propose { wait_ms: u64 },
    /// Up to where must be applied to have everything acknowledged; for the leader.
    ReadIndex,
    /// Who is there?
    Hello,
    /// A change of members, for the leader.
    Change(Change),
}

/// A change of members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "change")]
pub enum Change {
    /// Take a member in: as a learner first, and as a voter once it holds what was committed.
    Add {
        /// Its number.
        member: u64,
        /// Its peer address, `host:port`.
        address: String,
    },
    /// Let a member go.
    Remove {
        /// Its number.
        member: u64,
    },
}

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Said {
    /// To an append: taken.
    Appended,
    /// To an append: taken up to here.
    PartlyAppended(Option<LogId>),
    /// To an append: the entry before does not match.
    Conflict,
    /// To an append or a snapshot: a higher vote is known here.
    HigherVote(Vote),
    /// To a vote.
    Vote(VoteResponse<u64>),
    /// To a snapshot: how many records are here already.
    Have(u64),
    /// To the end of a snapshot: the vote known here.
    Installed(Vote),
    /// To a proposal.
    Decided(Answer),
    /// To a read index.
    Index(Option<LogId>),
    /// To a hello.
    Here(Here),
    /// To a change.
    Changed,
    /// Not done.
    Refused(Refused),
}

/// Who answers a hello.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Here {
    pub(crate) member: u64,
    pub(crate) storage: StorageId,
    /// Nothing was ever promised or written on that disk.
    pub(crate) blank: bool,
    /// The members with which it would form a new cluster, if it is told to.
    pub(crate) forms: Option<BTreeMap<u64, String>>,
}

/// Why a call was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "why")]
pub enum Refused {
    /// It was for another cluster.
    #[error("this is cluster {here}")]
    Cluster {
        /// The cluster here.
        here: ClusterId,
    },
    /// It was for another member.
    #[error("this is member {here}")]
    Member {
        /// The member here.
        here: u64,
    },
    /// It was for another disk: this one is not, or no longer, the one that counts.
    #[error("this member's disk is {here}")]
    Storage {
        /// The disk here.
        here: StorageId,
    },
    /// Somebody else leads, or nobody. Nothing was done.
    #[error("this member does not lead")]
    NotLeader {
        /// Who leads, as far as known here.
        leader: Option<u64>,
    },
    /// It may have been done or be done later.
    #[error("the outcome is not known: {detail}")]
    Unknown {
        /// What happened.
        detail: String,
    },
    /// It cannot be done. Nothing was.
    #[error("{detail}")]
    Not {
        /// A code: `full`, `unfit`, `busy`, `last_voter`, `unknown_member`, `malformed`, `failed`.
        code: String,
        /// In words.
        detail: String,
    },
}

impl Refused {
    #[expect(
        clippy::needless_pass_by_value,
        reason = "errors are handed over as they come"
    )]
    pub(crate) fn not(code: &str, detail: impl ToString) -> Self {
        Self::Not {
            code: code.to_owned(),
            detail: detail.to_string(),
        }
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "errors are handed over as they come"
    )]
    pub(crate) fn unknown(detail: impl ToString) -> Self {
        Self::Unknown {
            detail: detail.to_string(),
        }
    }
}

/// Writes a message.
pub(crate) fn encode<T: Serialize>(head: &T, body: &[u8]) -> Bytes {
    let head = serde_json::to_vec(head).unwrap_or_default();
    let mut out = BytesMut::with_capacity(4 + head.len() + body.len());
    out.put_u32(u32::try_from(head.len()).unwrap_or(u32::MAX));
    out.put_slice(&head);
    out.put_slice(body);
    out.freeze()
}

/// Reads a message.
pub(crate) fn decode<T: DeserializeOwned>(mut bytes: Bytes) -> Result<(T, Bytes), Malformed> {
    let length = bytes.len();
    let short = || Malformed::Short {
        what: "a message",
        bytes: length,
    };
    let head = bytes.try_get_u32().map_err(|_| short())? as usize;
    if head > bytes.len() {
        return Err(short());
    }
    let head = bytes.split_to(head);
    let head = serde_json::from_slice(&head).map_err(|error| Malformed::Json {
        what: "a message",
        why: error.to_string(),
    })?;
    Ok((head, bytes))
}
