//! How a message gets to another member.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;

/// Where a call goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// The member's number.
    pub member: u64,
    /// Its peer address, `host:port`.
    pub address: String,
}

/// A call under way.
pub type Calling<'a> = Pin<Box<dyn Future<Output = Result<Bytes, CallFailed>> + Send + 'a>>;

/// Carries calls between members: HTTP in a process, a simulated network in tests. A message may be lost, come late, or
/// come twice; it does not change on the way, and it comes only from who has the cluster's secret.
pub trait Transport: Send + Sync + Debug + 'static {
    /// Sends a message and waits for its answer, no longer than `deadline`.
    fn call(&self, to: &Peer, message: Bytes, deadline: Duration) -> Calling<'_>;
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFailed {
    /// It was not sent.
    #[error("member {member} cannot be reached: {detail}")]
    Unreachable {
        /// Whom.
        member: u64,
        /// What happened.
        detail: String,
    },
    /// It may have arrived, and may have been done.
    #[error("member {member} did not answer: {detail}")]
    Lost {
        /// Who.
        member: u64,
        /// What happened.
        detail: String,
    },
}

/// A member that has no others: a voter that is alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Transport for Alone {
    fn call(&self, to: &Peer, _message: Bytes, _deadline: Duration) -> Calling<'_> {
        let member = to.member;
        Box::pin(async move {
            Err(CallFailed::Unreachable {
                member,
                detail: "this member has no peer listener and no way to others".into(),
            })
        })
    }
}
