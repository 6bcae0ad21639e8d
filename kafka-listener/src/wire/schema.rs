//! The types of the fields of every request that is decoded by the library, as Kafka's message definitions have them.
//!
//! Produce and Fetch are read by hand, so they have none here.

use super::api::Api;
use super::guard::Kind::{Blob, Fixed, Items, List, Text};
use super::guard::{ALL, Field, between, field, from, to};

/// The fields of a request, tagged ones left out.
pub(super) const fn of(api: Api) -> &'static [Field] {
    match api {
        Api::Produce | Api::Fetch => &[],
        Api::ListOffsets => LIST_OFFSETS,
        Api::Metadata => METADATA,
        Api::OffsetCommit => OFFSET_COMMIT,
        Api::OffsetFetch => OFFSET_FETCH,
        Api::FindCoordinator => FIND_COORDINATOR,
        Api::JoinGroup => JOIN_GROUP,
        Api::Heartbeat => HEARTBEAT,
        Api::LeaveGroup => LEAVE_GROUP,
        Api::SyncGroup => SYNC_GROUP,
        Api::DescribeGroups => DESCRIBE_GROUPS,
        Api::ListGroups => LIST_GROUPS,
        Api::SaslHandshake => SASL_HANDSHAKE,
        Api::ApiVersions => API_VERSIONS,
        Api::CreateTopics => CREATE_TOPICS,
        Api::DeleteTopics => DELETE_TOPICS,
        Api::DeleteRecords => DELETE_RECORDS,
        Api::InitProducerId => INIT_PRODUCER_ID,
        Api::OffsetForLeaderEpoch => OFFSET_FOR_LEADER_EPOCH,
        Api::DescribeAcls => DESCRIBE_ACLS,
        Api::DescribeConfigs => DESCRIBE_CONFIGS,
        Api::DescribeLogDirs => DESCRIBE_LOG_DIRS,
        Api::SaslAuthenticate => SASL_AUTHENTICATE,
        Api::CreatePartitions => CREATE_PARTITIONS,
        Api::DeleteGroups => DELETE_GROUPS,
        Api::AlterConfigs => ALTER_CONFIGS,
        Api::IncrementalAlterConfigs => INCREMENTAL_ALTER_CONFIGS,
        Api::ListPartitionReassignments => LIST_PARTITION_REASSIGNMENTS,
        Api::OffsetDelete => OFFSET_DELETE,
        Api::DescribeCluster => DESCRIBE_CLUSTER,
        Api::ConsumerGroupHeartbeat => CONSUMER_GROUP_HEARTBEAT,
        Api::ConsumerGroupDescribe => CONSUMER_GROUP_DESCRIBE,
    }
}

const LIST_OFFSETS: &[Field] = &[
    field(ALL, Fixed(4)),     // replica_id
    field(from(2), Fixed(1)), // isolation_level
    field(
        ALL,
        List(&[
            field(ALL, Text), // name
            field(
                ALL,
                List(&[
                    field(ALL, Fixed(4)),     // partition_index
                    field(from(4), Fixed(4)), // current_leader_epoch
                    field(ALL, Fixed(8)),     // timestamp
                ]),
            ), // partitions
        ]),
    ), // topics
    field(from(10), Fixed(4)), // timeout_ms
];

const METADATA: &[Field] = &[
    field(
        ALL,
        List(&[
            field(from(10), Fixed(16)), // topic_id
            field(ALL, Text),           // name
        ]),
    ), // topics
    field(from(4), Fixed(1)),        // allow_auto_topic_creation
    field(between(8, 10), Fixed(1)), // include_cluster_authorized_operations
    field(from(8), Fixed(1)),        // include_topic_authorized_operations
];

const OFFSET_COMMIT: &[Field] = &[
    field(ALL, Text),       // group_id
    field(ALL, Fixed(4)),   // generation_id_or_member_epoch
    field(ALL, Text),       // member_id
    field(from(7), Text),   // group_instance_id
    field(to(4), Fixed(8)), // retention_time_ms
    field(
        ALL,
        List(&[
            field(ALL, Text), // name
            field(
                ALL,
                List(&[
                    field(ALL, Fixed(4)),     // partition_index
                    field(ALL, Fixed(8)),     // committed_offset
                    field(from(6), Fixed(4)), // committed_leader_epoch
                    field(ALL, Text),         // committed_metadata
                ]),
            ), // partitions
        ]),
    ), // topics
];

const OFFSET_FETCH: &[Field] = &[
    field(to(7), Text), // group_id
    field(
        to(7),
        List(&[
            field(to(7), Text),             // name
            field(to(7), Items(&Fixed(4))), // partition_indexes
        ]),
    ), // topics
    field(
        from(8),
        List(&[
            field(from(8), Text),     // group_id
            field(from(9), Text),     // member_id
            field(from(9), Fixed(4)), // member_epoch
            field(
                from(8),
                List(&[
                    field(from(8), Text),             // name
                    field(from(8), Items(&Fixed(4))), // partition_indexes
                ]),
            ), // topics
        ]),
    ), // groups
    field(from(7), Fixed(1)), // require_stable
];

const FIND_COORDINATOR: &[Field] = &[
    field(to(3), Text),           // key
    field(from(1), Fixed(1)),     // key_type
    field(from(4), Items(&Text)), // coordinator_keys
];

const JOIN_GROUP: &[Field] = &[
    field(ALL, Text),         // group_id
    field(ALL, Fixed(4)),     // session_timeout_ms
    field(from(1), Fixed(4)), // rebalance_timeout_ms
    field(ALL, Text),         // member_id
    field(from(5), Text),     // group_instance_id
    field(ALL, Text),         // protocol_type
    field(
        ALL,
        List(&[
            field(ALL, Text), // name
            field(ALL, Blob), // metadata
        ]),
    ), // protocols
    field(from(8), Text),     // reason
];

const HEARTBEAT: &[Field] = &[
    field(ALL, Text),     // group_id
    field(ALL, Fixed(4)), // generation_id
    field(ALL, Text),     // member_id
    field(from(3), Text), // group_instance_id
];

const LEAVE_GROUP: &[Field] = &[
    field(ALL, Text),   // group_id
    field(to(2), Text), // member_id
    field(
        from(3),
        List(&[
            field(from(3), Text), // member_id
            field(from(3), Text), // group_instance_id
            field(from(5), Text), // reason
        ]),
    ), // members
];

const SYNC_GROUP: &[Field] = &[
    field(ALL, Text),     // group_id
    field(ALL, Fixed(4)), // generation_id
    field(ALL, Text),     // member_id
    field(from(3), Text), // group_instance_id
    field(from(5), Text), // protocol_type
    field(from(5), Text), // protocol_name
    field(
        ALL,
        List(&[
            field(ALL, Text), // member_id
            field(ALL, Blob), // assignment
        ]),
    ), // assignments
];

const DESCRIBE_GROUPS: &[Field] = &[
    field(ALL, Items(&Text)), // groups
    field(from(3), Fixed(1)), // include_authorized_operations
];

const LIST_GROUPS: &[Field] = &[
    field(from(4), Items(&Text)), // states_filter
    field(from(5), Items(&Text)), // types_filter
];

const SASL_HANDSHAKE: &[Field] = &[
    field(ALL, Text), // mechanism
];

const API_VERSIONS: &[Field] = &[
    field(from(3), Text), // client_software_name
    field(from(3), Text), // client_software_version
];

const CREATE_TOPICS: &[Field] = &[
    field(
        ALL,
        List(&[
            field(ALL, Text),     // name
            field(ALL, Fixed(4)), // num_partitions
            field(ALL, Fixed(2)), // replication_factor
            field(
                ALL,
                List(&[
                    field(ALL, Fixed(4)),         // partition_index
                    field(ALL, Items(&Fixed(4))), // broker_ids
                ]),
            ), // assignments
            field(
                ALL,
                List(&[
                    field(ALL, Text), // name
                    field(ALL, Text), // value
                ]),
            ), // configs
        ]),
    ), // topics
    field(ALL, Fixed(4)), // timeout_ms
    field(ALL, Fixed(1)), // validate_only
];

const DELETE_TOPICS: &[Field] = &[
    field(
        from(6),
        List(&[
            field(from(6), Text),      // name
            field(from(6), Fixed(16)), // topic_id
        ]),
    ), // topics
    field(to(5), Items(&Text)), // topic_names
    field(ALL, Fixed(4)),       // timeout_ms
];

const DELETE_RECORDS: &[Field] = &[
    field(
        ALL,
        List(&[
            field(ALL, Text), // name
            field(
                ALL,
                List(&[
                    field(ALL, Fixed(4)), // partition_index
                    field(ALL, Fixed(8)), // offset
                ]),
            ), // partitions
        ]),
    ), // topics
    field(ALL, Fixed(4)), // timeout_ms
];

const INIT_PRODUCER_ID: &[Field] = &[
    field(ALL, Text),         // transactional_id
    field(ALL, Fixed(4)),     // transaction_timeout_ms
    field(from(3), Fixed(8)), // producer_id
    field(from(3), Fixed(2)), // producer_epoch
];

const OFFSET_FOR_LEADER_EPOCH: &[Field] = &[
    field(from(3), Fixed(4)), // replica_id
    field(
        ALL,
        List(&[
            field(ALL, Text), // topic
            field(
                ALL,
                List(&[
                    field(ALL, Fixed(4)), // partition
                    field(ALL, Fixed(4)), // current_leader_epoch
                    field(ALL, Fixed(4)), // leader_epoch
                ]),
            ), // partitions
        ]),
    ), // topics
];

const DESCRIBE_ACLS: &[Field] = &[
    field(ALL, Fixed(1)), // resource_type_filter
    field(ALL, Text),     // resource_name_filter
    field(ALL, Fixed(1)), // pattern_type_filter
    field(ALL, Text),     // principal_filter
    field(ALL, Text),     // host_filter
    field(ALL, Fixed(1)), // operation
    field(ALL, Fixed(1)), // permission_type
];

const DESCRIBE_CONFIGS: &[Field] = &[
    field(
        ALL,
        List(&[
            field(ALL, Fixed(1)),     // resource_type
            field(ALL, Text),         // resource_name
            field(ALL, Items(&Text)), // configuration_keys
        ]),
    ), // resources
    field(ALL, Fixed(1)),     // include_synonyms
    field(from(3), Fixed(1)), // include_documentation
];

const DESCRIBE_LOG_DIRS: &[Field] = &[
    field(
        ALL,
        List(&[
            field(ALL, Text),             // topic
            field(ALL, Items(&Fixed(4))), // partitions
        ]),
    ), // topics
];

const SASL_AUTHENTICATE: &[Field] = &[
    field(ALL, Blob), // auth_bytes
];

const CREATE_PARTITIONS: &[Field] = &[
    field(
        ALL,
        List(&[
            field(ALL, Text),     // name
            field(ALL, Fixed(4)), // count
            field(
                ALL,
                List(&[
                    field(ALL, Items(&Fixed(4))), // broker_ids
                ]),
            ), // assignments
        ]),
    ), // topics
    field(ALL, Fixed(4)), // timeout_ms
    field(ALL, Fixed(1)), // validate_only
];

const DELETE_GROUPS: &[Field] = &[
    field(ALL, Items(&Text)), // groups_names
];

const ALTER_CONFIGS: &[Field] = &[
    field(
        ALL,
        List(&[
            field(ALL, Fixed(1)), // resource_type
            field(ALL, Text),     // resource_name
            field(
                ALL,
                List(&[
                    field(ALL, Text), // name
                    field(ALL, Text), // value
                ]),
            ), // configs
        ]),
    ), // resources
    field(ALL, Fixed(1)), // validate_only
];

const INCREMENTAL_ALTER_CONFIGS: &[Field] = &[
    field(
        ALL,
        List(&[
            field(ALL, Fixed(1)), // resource_type
            field(ALL, Text),     // resource_name
            field(
                ALL,
                List(&[
                    field(ALL, Text),     // name
                    field(ALL, Fixed(1)), // config_operation
                    field(ALL, Text),     // value
                ]),
            ), // configs
        ]),
    ), // resources
    field(ALL, Fixed(1)), // validate_only
];

const LIST_PARTITION_REASSIGNMENTS: &[Field] = &[
    field(ALL, Fixed(4)), // timeout_ms
    field(
        ALL,
        List(&[
            field(ALL, Text),             // name
            field(ALL, Items(&Fixed(4))), // partition_indexes
        ]),
    ), // topics
];

const OFFSET_DELETE: &[Field] = &[
    field(ALL, Text), // group_id
    field(
        ALL,
        List(&[
            field(ALL, Text), // name
            field(
                ALL,
                List(&[
                    field(ALL, Fixed(4)), // partition_index
                ]),
            ), // partitions
        ]),
    ), // topics
];

const DESCRIBE_CLUSTER: &[Field] = &[
    field(ALL, Fixed(1)),     // include_cluster_authorized_operations
    field(from(1), Fixed(1)), // endpoint_type
    field(from(2), Fixed(1)), // include_fenced_brokers
];

const CONSUMER_GROUP_HEARTBEAT: &[Field] = &[
    field(ALL, Text),         // group_id
    field(ALL, Text),         // member_id
    field(ALL, Fixed(4)),     // member_epoch
    field(ALL, Text),         // instance_id
    field(ALL, Text),         // rack_id
    field(ALL, Fixed(4)),     // rebalance_timeout_ms
    field(ALL, Items(&Text)), // subscribed_topic_names
    field(from(1), Text),     // subscribed_topic_regex
    field(ALL, Text),         // server_assignor
    field(
        ALL,
        List(&[
            field(ALL, Fixed(16)),        // topic_id
            field(ALL, Items(&Fixed(4))), // partitions
        ]),
    ), // topic_partitions
];

const CONSUMER_GROUP_DESCRIBE: &[Field] = &[
    field(ALL, Items(&Text)), // group_ids
    field(ALL, Fixed(1)),     // include_authorized_operations
];
