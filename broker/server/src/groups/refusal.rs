//! What the refusals of groups are called on the wire.

use felix_engine::groups::{GroupRefused, SettleRefused};
use felix_wire::error::{Code, Failure, Retry};

/// A question that was refused.
pub(crate) fn refused(why: GroupRefused) -> Failure {
    let message = why.to_string();
    let invalid = |message| Failure::new(Code::InvalidRequest, message);
    match why {
        GroupRefused::OutOfRange { .. } => invalid(message).with_reason("out_of_range"),
        GroupRefused::TooFarAhead { .. } => invalid(message).with_reason("too_far_ahead"),
        GroupRefused::TooMany { .. } => invalid(message).with_reason("too_many"),
        GroupRefused::BeingAppended => invalid(message).with_reason("being_appended"),
        GroupRefused::TooManyGroups { .. } => {
            Failure::new(Code::LimitExceeded, message).with_reason("groups")
        }
        GroupRefused::TooManySchedules { .. } => {
            Failure::new(Code::LimitExceeded, message).with_reason("schedules")
        }
        GroupRefused::TooManyPolls { .. } => Failure::new(Code::Overloaded, message)
            .with_reason("polls")
            .with_retry_after_ms(1_000),
        GroupRefused::Unreadable { .. } => Failure::new(Code::Storage, message)
            .with_reason("unreadable")
            .with_retry(Retry::Retry),
        GroupRefused::StorageFull => Failure::new(Code::Overloaded, message)
            .with_reason("storage_full")
            .with_retry_after_ms(5_000),
        GroupRefused::OutcomeUnknown => {
            Failure::new(Code::Storage, message).with_retry(Retry::OutcomeUnknown)
        }
        GroupRefused::Closed => Failure::new(Code::ShardUnavailable, message)
            .with_reason("not_ready")
            .with_retry_after_ms(250),
    }
}

/// A record that was not settled.
pub(crate) fn unsettled(why: SettleRefused) -> Failure {
    let message = why.to_string();
    match why {
        SettleRefused::PastTail { .. } => {
            Failure::new(Code::InvalidRequest, message).with_reason("past_tail")
        }
        SettleRefused::NotHandedOut => {
            Failure::new(Code::StaleClaim, message).with_retry(Retry::Retry)
        }
        SettleRefused::Stale => Failure::new(Code::StaleClaim, message).with_retry(Retry::Fatal),
        SettleRefused::Finished => {
            Failure::new(Code::InvalidRequest, message).with_reason("finished")
        }
        SettleRefused::ZeroExtension => {
            Failure::new(Code::InvalidRequest, message).with_reason("zero_extension")
        }
        SettleRefused::TooScattered { .. } => {
            Failure::new(Code::LimitExceeded, message).with_reason("scattered_acks")
        }
        SettleRefused::TooManyLetters { .. } => {
            Failure::new(Code::LimitExceeded, message).with_reason("dead_letters")
        }
    }
}
