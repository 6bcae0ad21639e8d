//! Entries and proposals as bytes: in the log, and between members.
//!
//! ```text
//!   entry      version u8 = 1 | kind u8 | term u64 | leader u64 | index u64 | body
//!     kind 0   nothing
//!     kind 1   a proposal
//!     kind 2   a membership, JSON
//!   proposal   id u64 u64 | expected u64 | count u32 | count times: length u32, bytes
//!   list       of anything: length u32, bytes, again and again
//! ```
//!
//! Numbers are big-endian.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use openraft::{CommittedLeaderId, EntryPayload};

use super::types::{Entry, LogId, Membership, Proposal, ProposalId};

const VERSION: u8 = 1;
const BLANK: u8 = 0;
const PROPOSAL: u8 = 1;
const MEMBERSHIP: u8 = 2;

/// Bytes before an entry's body.
const HEAD: usize = 2 + 3 * 8;

/// Why bytes are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// They end too early, or a length in them is too large.
    #[error("{what} ends after {bytes} bytes")]
    Short {
        /// What was read.
        what: &'static str,
        /// How many bytes there were.
        bytes: usize,
    },
    /// A newer build wrote them.
    #[error("{what} of kind {found}, which this build does not know")]
    Unknown {
        /// What was read.
        what: &'static str,
        /// What it says it is.
        found: u8,
    },
    /// The JSON in them is not what it should be.
    #[error("{what}: {why}")]
    Json {
        /// What was read.
        what: &'static str,
        /// What the reader says.
        why: String,
    },
}

/// Writes a log id: term, leader, index.
pub(crate) fn put_log_id(out: &mut impl BufMut, id: &LogId) {
    out.put_u64(id.leader_id.term);
    out.put_u64(id.leader_id.node_id);
    out.put_u64(id.index);
}

/// Reads a log id.
pub(crate) fn get_log_id(from: &mut impl Buf) -> Option<LogId> {
    let term = from.try_get_u64().ok()?;
    let leader = from.try_get_u64().ok()?;
    let index = from.try_get_u64().ok()?;
    Some(LogId::new(CommittedLeaderId::new(term, leader), index))
}

/// An entry as it is kept and sent.
pub(crate) fn encode_entry(entry: &Entry) -> Result<Bytes, Malformed> {
    let mut out = BytesMut::with_capacity(256);
    out.put_u8(VERSION);
    out.put_u8(match &entry.payload {
        EntryPayload::Blank => BLANK,
        EntryPayload::Normal(_) => PROPOSAL,
        EntryPayload::Membership(_) => MEMBERSHIP,
    });
    put_log_id(&mut out, &entry.log_id);
    match &entry.payload {
        EntryPayload::Blank => {}
        EntryPayload::Normal(proposal) => put_proposal(&mut out, proposal),
        EntryPayload::Membership(membership) => {
            let text = serde_json::to_vec(membership).map_err(|error| Malformed::Json {
                what: "a membership",
                why: error.to_string(),
            })?;
            out.put_slice(&text);
        }
    }
    Ok(out.freeze())
}

/// The entry that [`encode_entry`] wrote. Records share its bytes.
pub(crate) fn decode_entry(mut bytes: Bytes) -> Result<Entry, Malformed> {
    let length = bytes.len();
    let short = || Malformed::Short {
        what: "an entry",
        bytes: length,
    };
    if length < HEAD {
        return Err(short());
    }
    let version = bytes.get_u8();
    if version != VERSION {
        return Err(Malformed::Unknown {
            what: "an entry",
            found: version,
        });
    }
    let kind = bytes.get_u8();
    let log_id = get_log_id(&mut bytes).ok_or_else(short)?;
    let payload = match kind {
        BLANK => EntryPayload::Blank,
        PROPOSAL => EntryPayload::Normal(get_proposal(&mut bytes)?),
        MEMBERSHIP => {
            let membership: Membership =
                serde_json::from_slice(&bytes).map_err(|error| Malformed::Json {
                    what: "a membership",
                    why: error.to_string(),
                })?;
            EntryPayload::Membership(membership)
        }
        found => {
            return Err(Malformed::Unknown {
                what: "an entry's body",
                found,
            });
        }
    };
    Ok(Entry { log_id, payload })
}

/// Writes a proposal.
pub(crate) fn put_proposal(out: &mut BytesMut, proposal: &Proposal) {
    out.put_u64(proposal.id.0);
    out.put_u64(proposal.id.1);
    out.put_u64(proposal.expected);
    out.put_u32(u32::try_from(proposal.records.len()).unwrap_or(u32::MAX));
    put_list(out, &proposal.records);
}

/// Reads a proposal.
pub(crate) fn get_proposal(from: &mut Bytes) -> Result<Proposal, Malformed> {
    let length = from.len();
    let short = || Malformed::Short {
        what: "a proposal",
        bytes: length,
    };
    if length < 3 * 8 + 4 {
        return Err(short());
    }
    let id = ProposalId(from.get_u64(), from.get_u64());
    let expected = from.get_u64();
    let count = from.get_u32() as usize;
    let records = get_list(from)?;
    if records.len() != count {
        return Err(short());
    }
    Ok(Proposal {
        id,
        expected,
        records,
    })
}

/// Writes a list: each with its length before it.
pub(crate) fn put_list(out: &mut BytesMut, items: &[Bytes]) {
    out.reserve(items.iter().map(|item| item.len() + 4).sum());
    for item in items {
        out.put_u32(u32::try_from(item.len()).unwrap_or(u32::MAX));
        out.put_slice(item);
    }
}

/// Reads a list to the end of the bytes, without copying.
pub(crate) fn get_list(from: &mut Bytes) -> Result<Vec<Bytes>, Malformed> {
    let length = from.len();
    let mut items = Vec::new();
    while from.has_remaining() {
        let size = from.try_get_u32().unwrap_or(u32::MAX) as usize;
        if size > from.len() {
            return Err(Malformed::Short {
                what: "a list",
                bytes: length,
            });
        }
        items.push(from.split_to(size));
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::raft::types::{Member, StorageId};

    fn entries() -> Vec<Entry> {
        let id = |index| LogId::new(CommittedLeaderId::new(7, 2), index);
        let member = Member {
            address: "a:1".into(),
            storage: StorageId(5),
            expects: [(9, "b:2".to_owned())].into(),
        };
        let proposal = Proposal {
            id: ProposalId(1, 2),
            expected: 41,
            records: vec![Bytes::from_static(b"one"), Bytes::new()],
        };
        let membership = Membership::new(
            vec![[1].into()],
            std::collections::BTreeMap::from([(1, member)]),
        );
        vec![
            Entry {
                log_id: id(0),
                payload: EntryPayload::Blank,
            },
            Entry {
                log_id: id(1),
                payload: EntryPayload::Normal(proposal),
            },
            Entry {
                log_id: id(2),
                payload: EntryPayload::Membership(membership),
            },
        ]
    }

    #[test]
    fn every_kind_of_entry_reads_back_as_it_was() {
        for entry in entries() {
            let bytes = encode_entry(&entry).unwrap();
            assert_eq!(decode_entry(bytes), Ok(entry));
        }
    }

    #[test]
    fn an_entry_cut_anywhere_is_refused_and_never_another_one() {
        for entry in entries() {
            let bytes = encode_entry(&entry).unwrap();
            for end in 0..bytes.len() {
                assert!(
                    decode_entry(bytes.slice(..end)).is_err(),
                    "{entry:?} cut at {end}"
                );
            }
        }
    }

    #[test]
    fn lengths_that_promise_more_than_there_is_are_refused() {
        let mut claimed = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 1, 2]);
        assert!(get_list(&mut claimed).is_err());
        let mut torn = Bytes::from_static(&[0, 0]);
        assert!(get_list(&mut torn).is_err());
    }
}
