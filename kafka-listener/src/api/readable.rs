//! Whether bytes are a request, found out as a connection does: what the fuzz target and its corpus try.

use bytes::Bytes;
use kafka_protocol::messages as of;

use super::{Call, Head, Unreadable, decode};
use crate::wire::api::Api;
use crate::wire::header::{HEADER_BYTES_MIN, Header};

/// Whether a frame, without its length, is a request that this listener serves in a version that it serves. Nothing is
/// answered; whatever the bytes are, it comes to an end without taking more memory than a few times their length.
#[must_use]
pub fn readable(frame: &[u8]) -> bool {
    if frame.len() < HEADER_BYTES_MIN {
        return false;
    }
    let Ok((header, body)) = Header::read(Bytes::copy_from_slice(frame)) else {
        return false;
    };
    let Some(api) = Api::from_key(header.key) else {
        return false;
    };
    let call = Call {
        head: Head {
            api,
            version: header.version,
            correlation: header.correlation,
            client_id: header.client_id,
        },
        body,
    };
    if api == Api::ApiVersions {
        return super::api_versions::answer(&call).is_ok();
    }
    api.serves(header.version) && decodes(call).is_ok()
}

fn decodes(call: Call) -> Result<(), Unreadable> {
    match call.head.api {
        Api::Produce => super::produce::readable(call),
        Api::Fetch => super::fetch::readable(call),
        Api::ListOffsets => decode::<of::ListOffsetsRequest>(&call).map(drop),
        Api::Metadata => decode::<of::MetadataRequest>(&call).map(drop),
        Api::OffsetCommit => decode::<of::OffsetCommitRequest>(&call).map(drop),
        Api::OffsetFetch => decode::<of::OffsetFetchRequest>(&call).map(drop),
        Api::FindCoordinator => decode::<of::FindCoordinatorRequest>(&call).map(drop),
        Api::JoinGroup => decode::<of::JoinGroupRequest>(&call).map(drop),
        Api::Heartbeat => decode::<of::HeartbeatRequest>(&call).map(drop),
        Api::LeaveGroup => decode::<of::LeaveGroupRequest>(&call).map(drop),
        Api::SyncGroup => decode::<of::SyncGroupRequest>(&call).map(drop),
        Api::DescribeGroups => decode::<of::DescribeGroupsRequest>(&call).map(drop),
        Api::ListGroups => decode::<of::ListGroupsRequest>(&call).map(drop),
        Api::SaslHandshake => decode::<of::SaslHandshakeRequest>(&call).map(drop),
        Api::ApiVersions => decode::<of::ApiVersionsRequest>(&call).map(drop),
        Api::CreateTopics => decode::<of::CreateTopicsRequest>(&call).map(drop),
        Api::DeleteTopics => decode::<of::DeleteTopicsRequest>(&call).map(drop),
        Api::DeleteRecords => decode::<of::DeleteRecordsRequest>(&call).map(drop),
        Api::InitProducerId => decode::<of::InitProducerIdRequest>(&call).map(drop),
        Api::OffsetForLeaderEpoch => decode::<of::OffsetForLeaderEpochRequest>(&call).map(drop),
        Api::DescribeAcls => decode::<of::DescribeAclsRequest>(&call).map(drop),
        Api::DescribeConfigs => decode::<of::DescribeConfigsRequest>(&call).map(drop),
        Api::DescribeLogDirs => decode::<of::DescribeLogDirsRequest>(&call).map(drop),
        Api::SaslAuthenticate => decode::<of::SaslAuthenticateRequest>(&call).map(drop),
        Api::CreatePartitions => decode::<of::CreatePartitionsRequest>(&call).map(drop),
        Api::DeleteGroups => decode::<of::DeleteGroupsRequest>(&call).map(drop),
        Api::AlterConfigs => decode::<of::AlterConfigsRequest>(&call).map(drop),
        Api::IncrementalAlterConfigs => {
            decode::<of::IncrementalAlterConfigsRequest>(&call).map(drop)
        }
        Api::ListPartitionReassignments => {
            decode::<of::ListPartitionReassignmentsRequest>(&call).map(drop)
        }
        Api::OffsetDelete => decode::<of::OffsetDeleteRequest>(&call).map(drop),
        Api::DescribeCluster => decode::<of::DescribeClusterRequest>(&call).map(drop),
        Api::ConsumerGroupHeartbeat => decode::<of::ConsumerGroupHeartbeatRequest>(&call).map(drop),
        Api::ConsumerGroupDescribe => decode::<of::ConsumerGroupDescribeRequest>(&call).map(drop),
    }
}
