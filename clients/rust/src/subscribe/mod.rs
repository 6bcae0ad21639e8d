//! Reading: subscriptions to one shard or all, that survive the loss of a connection.

mod attach;
mod event;
mod merged;
mod subscription;

pub use self::attach::{Start, Subscribe};
pub use self::event::{Batch, Event, Signal};
pub use self::merged::{MergedSubscription, ShardFailed, SubscribeAll};
pub use self::subscription::Subscription;
