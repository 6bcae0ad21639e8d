//! What is wrong with a call, in the numbers of the Kafka protocol.

use crate::error::Code;
use crate::extension::Refused;

macro_rules! errors {
    ($( $(#[$meta:meta])* $number:literal $name:ident $word:literal, )*) => {
        /// What is wrong with a call of this extension. Its number is the one that the Kafka
        /// protocol has for it; a refusal of the whole call has its word as the reason.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i16)]
        pub enum RawError {
            $( $(#[$meta])* $name = $number, )*
        }

        impl RawError {
            /// Every one, in the order of their numbers.
            pub const ALL: &[Self] = &[$( Self::$name, )*];

            /// The word that stands as the reason of a refusal.
            pub const fn word(self) -> &'static str {
                match self {
                    $( Self::$name => $word, )*
                }
            }
        }
    };
}

errors! {
    /// The shard has no such offset.
    1 OffsetOutOfRange "offset_out_of_range",
    /// The batch is not what its checksum says, or not a batch.
    2 CorruptMessage "corrupt_message",
    /// There is no such stream or shard.
    3 UnknownTopicOrPartition "unknown_topic_or_partition",
    /// Nobody serves the shard just now.
    5 LeaderNotAvailable "leader_not_available",
    /// Another broker leads the shard.
    6 NotLeader "not_leader_or_follower",
    /// It took too long; the outcome is unknown.
    7 RequestTimedOut "request_timed_out",
    /// A batch or record is over the stream's limit.
    10 MessageTooLarge "message_too_large",
    /// What is to be kept beside a position is too long.
    12 OffsetMetadataTooLarge "offset_metadata_too_large",
    /// The groups of the shard are being read.
    14 CoordinatorLoadInProgress "coordinator_load_in_progress",
    /// Nobody serves the group just now.
    15 CoordinatorNotAvailable "coordinator_not_available",
    /// Another broker serves the group.
    16 NotCoordinator "not_coordinator",
    /// The group has moved on.
    22 IllegalGeneration "illegal_generation",
    /// The member has no protocol in common with the others.
    23 InconsistentGroupProtocol "inconsistent_group_protocol",
    /// No group can be called that.
    24 InvalidGroupId "invalid_group_id",
    /// The group has no such member.
    25 UnknownMemberId "unknown_member_id",
    /// A member may not be silent for so short or so long.
    26 InvalidSessionTimeout "invalid_session_timeout",
    /// The members are to join again.
    27 RebalanceInProgress "rebalance_in_progress",
    /// The caller lacks a right to the stream.
    29 TopicAuthorizationFailed "topic_authorization_failed",
    /// The caller lacks a right to the group.
    30 GroupAuthorizationFailed "group_authorization_failed",
    /// The caller lacks a right to the cluster.
    31 ClusterAuthorizationFailed "cluster_authorization_failed",
    /// A record's time is out of bounds.
    32 InvalidTimestamp "invalid_timestamp",
    /// The call makes no sense.
    42 InvalidRequest "invalid_request",
    /// The stream's settings forbid it.
    44 PolicyViolation "policy_violation",
    /// A batch before this one is missing.
    45 OutOfOrderSequence "out_of_order_sequence_number",
    /// A newer producer has taken the id over.
    47 InvalidProducerEpoch "invalid_producer_epoch",
    /// Transactions are not served.
    48 InvalidTxnState "invalid_txn_state",
    /// The disk failed; the outcome is unknown.
    56 StorageError "kafka_storage_error",
    /// The group has members.
    68 NonEmptyGroup "non_empty_group",
    /// There is no such group.
    69 GroupIdNotFound "group_id_not_found",
    /// The caller's generation is older than the shard's.
    74 FencedLeaderEpoch "fenced_leader_epoch",
    /// The caller's generation is newer than the shard's.
    75 UnknownLeaderEpoch "unknown_leader_epoch",
    /// The batch is compressed in a way that is not known.
    76 UnsupportedCompression "unsupported_compression_type",
    /// The member is to come back with the id it was given.
    79 MemberIdRequired "member_id_required",
    /// The group has as many members as it may.
    81 GroupMaxSizeReached "group_max_size_reached",
    /// Another member has taken the name over.
    82 FencedInstanceId "fenced_instance_id",
    /// A member reads the stream.
    86 GroupSubscribedToTopic "group_subscribed_to_topic",
    /// A record or batch breaks a rule.
    87 InvalidRecord "invalid_record",
    /// A quota is used up.
    89 ThrottlingQuotaExceeded "throttling_quota_exceeded",
    /// There is no stream of this incarnation.
    100 UnknownTopicId "unknown_topic_id",
    /// The member's epoch is not the one it has.
    110 FencedMemberEpoch "fenced_member_epoch",
    /// The name is in use by a member that has not left.
    111 UnreleasedInstanceId "unreleased_instance_id",
    /// Nobody shares out like that.
    112 UnsupportedAssignor "unsupported_assignor",
    /// The member's epoch is older than the one it has.
    113 StaleMemberEpoch "stale_member_epoch",
}

impl RawError {
    /// The number in the Kafka protocol.
    pub const fn number(self) -> i16 {
        self as i16
    }

    /// The error of a number; `None` for 0, which is none, and for one this library does not know.
    pub fn from_number(number: i16) -> Option<Self> {
        let at = Self::ALL.binary_search_by_key(&number, |error| error.number());
        at.ok().and_then(|at| Self::ALL.get(at).copied())
    }

    /// What a refusal of a whole call comes to. One that has no word of these is taken for what its
    /// code is nearest to. The number is never one after which a producer may send its batch as a
    /// new one although it could be in the log.
    pub fn of(refused: &Refused) -> Self {
        Self::of_code(refused.failure.code(), refused.failure.reason())
    }

    /// The same for a refusal that has this code and this reason.
    pub fn of_code(code: Option<Code>, reason: Option<&str>) -> Self {
        if let Some(error) = reason.and_then(Self::from_word) {
            return error;
        }
        match code {
            Some(Code::Unauthenticated | Code::Forbidden | Code::Revoked) => {
                Self::TopicAuthorizationFailed
            }
            Some(Code::NotFound) => Self::UnknownTopicOrPartition,
            Some(Code::InvalidRequest | Code::FeatureNotEnabled) => Self::InvalidRequest,
            Some(Code::ShardUnavailable | Code::Draining | Code::NotLeader) => Self::NotLeader,
            Some(Code::QuorumTimeout | Code::Unacknowledged) => Self::RequestTimedOut,
            Some(Code::Overloaded) => Self::ThrottlingQuotaExceeded,
            Some(Code::LimitExceeded) => Self::MessageTooLarge,
            Some(Code::StreamHasCommits) => Self::PolicyViolation,
            Some(
                Code::LeadershipLost
                | Code::Internal
                | Code::Storage
                | Code::StaleClaim
                | Code::StaleWidth,
            )
            | None => Self::StorageError,
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|error| error.word() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Failure;

    #[test]
    fn every_error_is_found_by_its_number_and_by_its_word() {
        for &error in RawError::ALL {
            assert_eq!(RawError::from_number(error.number()), Some(error));
            let refused = Failure::new(Code::Internal, "m").with_reason(error.word());
            assert_eq!(RawError::of(&refused.into()), error);
        }
        assert_eq!(RawError::from_number(0), None);
    }

    #[test]
    fn a_refusal_without_a_word_of_ours_goes_by_its_code() {
        for (code, error) in [
            (Code::NotLeader, RawError::NotLeader),
            (Code::NotFound, RawError::UnknownTopicOrPartition),
            (Code::Overloaded, RawError::ThrottlingQuotaExceeded),
            (Code::Internal, RawError::StorageError),
        ] {
            let refused = Failure::new(code, "m").with_reason("moving");
            assert_eq!(RawError::of(&refused.into()), error);
        }
    }
}
