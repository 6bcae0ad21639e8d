//! Error codes of the Kafka protocol that this listener answers with.

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        $($(#[$doc])* pub(crate) const $name: i16 = $number;)*

        /// The name of a code, for logs.
        pub(crate) const fn name(code: i16) -> &'static str {
            match code {
                $($number => stringify!($name),)*
                _ => "UNNAMED",
            }
        }
    };
}

codes! {
    NONE = 0,
    OFFSET_OUT_OF_RANGE = 1,
    CORRUPT_MESSAGE = 2,
    UNKNOWN_TOPIC_OR_PARTITION = 3,
    NOT_LEADER_OR_FOLLOWER = 6,
    REQUEST_TIMED_OUT = 7,
    MESSAGE_TOO_LARGE = 10,
    OFFSET_METADATA_TOO_LARGE = 12,
    COORDINATOR_NOT_AVAILABLE = 15,
    NOT_COORDINATOR = 16,
    INVALID_TOPIC_EXCEPTION = 17,
    INVALID_REQUIRED_ACKS = 21,
    INVALID_GROUP_ID = 24,
    TOPIC_AUTHORIZATION_FAILED = 29,
    GROUP_AUTHORIZATION_FAILED = 30,
    CLUSTER_AUTHORIZATION_FAILED = 31,
    UNSUPPORTED_SASL_MECHANISM = 33,
    ILLEGAL_SASL_STATE = 34,
    UNSUPPORTED_VERSION = 35,
    TOPIC_ALREADY_EXISTS = 36,
    INVALID_PARTITIONS = 37,
    INVALID_REPLICATION_FACTOR = 38,
    INVALID_REPLICA_ASSIGNMENT = 39,
    INVALID_CONFIG = 40,
    INVALID_REQUEST = 42,
    POLICY_VIOLATION = 44,
    INVALID_PRODUCER_EPOCH = 47,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53,
    KAFKA_STORAGE_ERROR = 56,
    SASL_AUTHENTICATION_FAILED = 58,
    GROUP_ID_NOT_FOUND = 69,
    FETCH_SESSION_ID_NOT_FOUND = 70,
    INVALID_FETCH_SESSION_EPOCH = 71,
    UNSUPPORTED_COMPRESSION_TYPE = 76,
    INVALID_RECORD = 87,
    THROTTLING_QUOTA_EXCEEDED = 89,
    UNKNOWN_TOPIC_ID = 100,
    INVALID_REGULAR_EXPRESSION = 128,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_protocol() {
        use kafka_protocol::error::ResponseError;
        for (ours, theirs) in [
            (
                UNKNOWN_TOPIC_OR_PARTITION,
                ResponseError::UnknownTopicOrPartition,
            ),
            (INVALID_RECORD, ResponseError::InvalidRecord),
            (UNKNOWN_TOPIC_ID, ResponseError::UnknownTopicId),
            (
                SASL_AUTHENTICATION_FAILED,
                ResponseError::SaslAuthenticationFailed,
            ),
            (KAFKA_STORAGE_ERROR, ResponseError::KafkaStorageError),
            (
                THROTTLING_QUOTA_EXCEEDED,
                ResponseError::ThrottlingQuotaExceeded,
            ),
        ] {
            assert_eq!(ours, theirs.code());
        }
    }
}
