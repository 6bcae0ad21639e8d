//! The words that openraft and this ledger share.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Cursor;
use std::str::FromStr;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

openraft::declare_raft_types!(
    /// What openraft is told about our entries, members and snapshots.
    pub Types:
        D = Proposal,
        R = Answer,
        NodeId = u64,
        Node = Member,
        SnapshotData = Cursor<Vec<u8>>,
);

pub(crate) type LogId = openraft::LogId<u64>;
pub(crate) type Vote = openraft::Vote<u64>;
pub(crate) type Entry = openraft::Entry<Types>;
pub(crate) type Membership = openraft::Membership<u64, Member>;
pub(crate) type StoredMembership = openraft::StoredMembership<u64, Member>;
pub(crate) type StorageError = openraft::StorageError<u64>;

/// Names a disk. A member whose directory was emptied draws another one, and is another member then: what the old disk
/// promised, it has forgotten.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StorageId(pub u64);

impl fmt::Display for StorageId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}", self.0)
    }
}

impl fmt::Debug for StorageId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "StorageId({self})")
    }
}

impl FromStr for StorageId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.len() {
            16 => u64::from_str_radix(text, 16)
                .map(Self)
                .map_err(|_| format!("{text:?} is no storage id")),
            length => Err(format!("a storage id has 16 characters, not {length}")),
        }
    }
}

impl TryFrom<String> for StorageId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<StorageId> for String {
    fn from(id: StorageId) -> Self {
        id.to_string()
    }
}

/// A member as the membership has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Where its peer listener is reached, `host:port`; empty for a voter that is alone.
    pub address: String,
    /// The disk that counts. Calls to a member carry it, and another disk refuses them.
    pub storage: StorageId,
    /// Members that are to be taken in, with their addresses. It stands with whoever led when that was decided, and
    /// outlives him: the next leader goes on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub expects: BTreeMap<u64, String>,
}

/// An append on its way through the log: records to add behind a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// Drawn at random by the proposer. Sent again with the same id it is one append, however often it is committed.
    pub id: ProposalId,
    /// The revision it is decided on.
    pub expected: u64,
    /// What to add, at least one.
    #[serde(with = "as_bytes")]
    pub records: Vec<Bytes>,
}

/// Tells proposals apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProposalId(pub u64, pub u64);

impl fmt::Display for Proposal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.records.len();
        write!(out, "{count} records behind {}", self.expected)
    }
}

/// What became of a committed entry. It is the same on every member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The entry was no append.
    Nothing,
    /// The records are there, the last of them at this revision.
    Appended {
        /// Revision of the last record.
        revision: u64,
    },
    /// Others hold that place. Nothing was added, and never will be for this proposal.
    Raced {
        /// The newest revision when it was applied.
        found: u64,
    },
}

mod as_bytes {
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(records: &[Bytes], out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(records.iter().map(AsRef::<[u8]>::as_ref))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Bytes>, D::Error> {
        let records = Vec::<Vec<u8>>::deserialize(from)?;
        Ok(records.into_iter().map(Bytes::from).collect())
    }
}
