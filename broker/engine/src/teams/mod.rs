//! Groups of the Kafka protocol: who is in them, and the positions they commit.
//!
//! One [`Coordinator`] has the groups of one shard of the stream `_groups`. It decides about a call with a time and answers
//! it, parks it, or says what is to be written; what was written is applied when the log has it. [`Replay`] makes a
//! coordinator from the log when the shard is opened. So nothing is answered that a restart would forget.
//!
//! Members of a group in which the broker shares out are written before they are told anything, with their epochs and what
//! they hold: they go on after a restart, and nothing of theirs is given to another. Members of a group that shares out itself
//! are not: they join again, in a generation newer than any that was given out. Who knows the time and the log is the shell's
//! business, here are neither.

mod assign;
mod change;
mod consumer;
mod coordinator;
mod kept;
mod offsets;
mod replay;
mod team;

pub use self::assign::{Assignor, Partition, Wish, share_out};
pub use self::change::{BadChange, Change, Kept};
pub use self::consumer::{
    Beat, Consumer, ConsumerMemberView, ConsumerOptions, ConsumerState, Held, KeptMember, NotHeld,
    Topic, TopicName,
};
pub use self::coordinator::Coordinator;
pub use self::offsets::{CommitAsk, METADATA_BYTES_MAX, NotCommitted, Position};
pub use self::replay::Replay;
pub use self::team::{Kind, TeamAnswer, TeamEffect, TeamId, TeamOptions, TeamState, TeamView};
