//! A ledger that a few members keep together: openraft decides, our journal keeps.
//!
//! [`Core`] is one member. It is written against a disk ([`felix_journal::Disk`]) and a [`Transport`], so that the
//! simulator runs the same code as a process. [`RaftLedger`] is the blocking [`Ledger`](super::Ledger) over it, with a
//! runtime of its own: a member's log blocks while the disk does, and nothing else shall wait for that.
//!
//! Begin with `core.rs`, then `propose.rs` for the life of an append, `members.rs` for who belongs to it, and
//! `place.rs` for what lies on the disk.

mod adopt;
mod codec;
mod core;
mod facade;
mod log_failed;
mod log_store;
mod machine;
mod members;
mod message;
mod network;
pub mod peers;
mod place;
mod propose;
mod records;
mod room;
mod serve;
mod snapshot;
mod stats;
#[cfg(test)]
mod tests;
mod transport;
mod types;

pub use self::core::{Core, Layout, MemberFailed, MemberOptions, Timing};
pub use adopt::AdoptFailed;
pub use codec::Malformed;
pub use facade::{PeerOptions, RaftLedger, RaftRefused};
pub use log_failed::LogFailed;
pub use machine::InstallFailed;
pub use members::Listed;
pub use message::{Change, Refused};
pub use place::{Draw, Identity, PlaceRefused, RAFT, member_of};
pub use records::{Reach, RecordLog, RecordsFailed};
pub use snapshot::StageFailed;
pub use transport::{Alone, CallFailed, Calling, Peer, Transport};
pub use types::{Answer, Member, Proposal, ProposalId, StorageId, Types};
