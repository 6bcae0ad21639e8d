//! The Rust client: publishing to streams and reading them over QUIC, on which everything else of ours is built.
//!
//! What lives here: connections and how they are found again, authentication of every stream, publishing (plain,
//! conditional, idempotent), subscriptions that go on after a loss, the other readings of the log (caches, counters,
//! watches, consumer groups, commits, scheduled records), and the questions one can ask a broker. What never does: creating and deleting streams, tenants and rights (that is the control plane's HTTP interface),
//! configuration files and environment variables, and metrics.
//!
//! Begin with [`Client::builder`]; then [`Client::publish`] and [`Client::subscribe`]. Inside, read `publish/pipe.rs`
//! for the way out, `asks/mod.rs` for calls, `frames.rs` and `subscribe/subscription.rs` for the way in, and `brokers.rs` for what happens
//! when a connection is lost.
//!
//! ```no_run
#![doc = include_str!("../examples/quickstart.rs")]
//! ```

mod address;
mod asks;
mod backoff;
mod brokers;
mod builder;
mod calls;
mod candidates;
mod client;
mod error;
mod flight;
mod frames;
mod groups;
mod identity;
mod keeper;
mod keyed;
mod limits;
mod link;
mod near;
mod publish;
pub mod raw;
mod record;
mod requests;
mod router;
mod session;
mod subscribe;
mod tls;
mod token;
mod transport;

pub use felix_model::{Headers, Routing};
pub use felix_wire::message::{
    BrokerAddress, ShardOwner, ShardView, StreamRecord, SubscriptionCursor, SubscriptionFilter,
    SubscriptionView,
};

pub use self::backoff::ReconnectPolicy;
pub use self::builder::{BadConfig, Builder};
pub use self::client::Client;
pub use self::error::{
    Attempt, CacheFailed, CallFailed, CertificateRefused, CommitFailed, ConnectFailed, Error,
    PublishFailed, ReadFailed, Refused, Retry, SettleFailed,
};
pub use self::groups::{
    Claim, Consumer, ConsumerOptions, DeadLetter, Delivery, Group, GroupRecord, GroupStanding,
    LettersMoved, PollOptions, Position, Settled, Unsettled,
};
pub use self::keyed::{
    Added, Cache, CachePage, Change, Commit, Committed, Condition, Counter, Entry, KeyEntry,
    ListOptions, Schedule, ScheduledRecord, State, StateEntry, StateRead, Waiting, Watch,
    WatchFrom, WatchSignal, Watched,
};
pub use self::near::{Near, NearCall, Opening};
pub use self::publish::{Ack, IdempotentProducer, Published, Publisher, Receipt};
pub use self::record::Record;
pub use self::requests::{Page, PageLimits, Subscriptions, Width};
pub use self::subscribe::{
    Batch, Event, MergedSubscription, ShardFailed, Signal, Start, Subscribe, SubscribeAll,
    Subscription,
};
pub use self::token::{TokenFailed, TokenSource};
