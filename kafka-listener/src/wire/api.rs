//! Which requests are served, in which versions.
//!
//! Some ranges are wider than what works, on purpose: clients derive abilities from them. A smallest version of
//! Produce above 0 makes librdkafka send everything uncompressed, and so does a hidden FindCoordinator or a largest
//! version of Fetch below 10. Telemetry is hidden because clients would send it.

use crate::conn::Weight;

macro_rules! apis {
    ($($(#[$doc:meta])* $name:ident = $key:literal, $min:literal..=$max:literal, flexible $flexible:literal;)*) => {
        /// A request that is served.
        #[expect(clippy::enum_variant_names, reason = "the protocol has the name ApiVersions")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Api {
            $($(#[$doc])* $name,)*
        }

        impl Api {
            /// All of them, in order of key.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The api with this key, if it is served.
            pub(crate) const fn from_key(key: i16) -> Option<Self> {
                match key {
                    $($key => Some(Self::$name),)*
                    _ => None,
                }
            }

            pub(crate) const fn key(self) -> i16 {
                match self { $(Self::$name => $key,)* }
            }

            /// Smallest and largest version announced, both inclusive.
            pub(crate) const fn versions(self) -> (i16, i16) {
                match self { $(Self::$name => ($min, $max),)* }
            }

            /// For logs and metrics.
            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// First version in the compact form.
            pub(crate) const fn flexible_from(self) -> i16 {
                match self { $(Self::$name => $flexible,)* }
            }
        }
    };
}

// A request that has no compact version says 99.
apis! {
    Produce = 0, 0..=13, flexible 9;
    Fetch = 1, 4..=17, flexible 12;
    ListOffsets = 2, 1..=10, flexible 6;
    Metadata = 3, 0..=13, flexible 9;
    OffsetCommit = 8, 2..=9, flexible 8;
    OffsetFetch = 9, 1..=9, flexible 6;
    FindCoordinator = 10, 0..=6, flexible 3;
    JoinGroup = 11, 0..=9, flexible 6;
    Heartbeat = 12, 0..=4, flexible 4;
    LeaveGroup = 13, 0..=5, flexible 4;
    SyncGroup = 14, 0..=5, flexible 4;
    DescribeGroups = 15, 0..=6, flexible 5;
    ListGroups = 16, 0..=5, flexible 3;
    SaslHandshake = 17, 0..=1, flexible 99;
    ApiVersions = 18, 0..=4, flexible 3;
    CreateTopics = 19, 2..=7, flexible 5;
    DeleteTopics = 20, 1..=6, flexible 4;
    DeleteRecords = 21, 0..=2, flexible 2;
    InitProducerId = 22, 0..=5, flexible 2;
    OffsetForLeaderEpoch = 23, 2..=4, flexible 4;
    DescribeAcls = 29, 1..=3, flexible 2;
    DescribeConfigs = 32, 1..=4, flexible 4;
    AlterConfigs = 33, 0..=2, flexible 2;
    DescribeLogDirs = 35, 1..=4, flexible 2;
    SaslAuthenticate = 36, 0..=2, flexible 2;
    CreatePartitions = 37, 0..=3, flexible 2;
    DeleteGroups = 42, 0..=2, flexible 2;
    IncrementalAlterConfigs = 44, 0..=1, flexible 1;
    ListPartitionReassignments = 46, 0..=0, flexible 0;
    OffsetDelete = 47, 0..=0, flexible 99;
    DescribeCluster = 60, 0..=2, flexible 0;
    ConsumerGroupHeartbeat = 68, 0..=1, flexible 0;
    ConsumerGroupDescribe = 69, 0..=1, flexible 0;
}

impl Api {
    /// Whether a version lies in the announced range.
    pub(crate) const fn serves(self, version: i16) -> bool {
        let (min, max) = self.versions();
        version >= min && version <= max
    }
}

impl Api {
    /// How much its answers may be. What members of groups wait for each other with is light, also where an answer is
    /// long: two of them may share a connection.
    pub(crate) const fn weight(self) -> Weight {
        match self {
            Self::Fetch
            | Self::Metadata
            | Self::OffsetFetch
            | Self::DescribeGroups
            | Self::ListGroups
            | Self::DescribeAcls
            | Self::DescribeConfigs
            | Self::DescribeLogDirs
            | Self::ConsumerGroupDescribe => Weight::Heavy,
            Self::Produce
            | Self::ListOffsets
            | Self::OffsetCommit
            | Self::FindCoordinator
            | Self::JoinGroup
            | Self::Heartbeat
            | Self::LeaveGroup
            | Self::SyncGroup
            | Self::SaslHandshake
            | Self::ApiVersions
            | Self::CreateTopics
            | Self::DeleteTopics
            | Self::DeleteRecords
            | Self::InitProducerId
            | Self::OffsetForLeaderEpoch
            | Self::AlterConfigs
            | Self::SaslAuthenticate
            | Self::CreatePartitions
            | Self::DeleteGroups
            | Self::IncrementalAlterConfigs
            | Self::ListPartitionReassignments
            | Self::OffsetDelete
            | Self::DescribeCluster
            | Self::ConsumerGroupHeartbeat => Weight::Light,
        }
    }
}

/// Whether a request, its header included, is in the compact form.
pub(crate) const fn flexible_request(api: Api, version: i16) -> bool {
    version >= api.flexible_from()
}

/// Whether the header of an answer ends in tagged fields. Answers to ApiVersions never do, so that a client that
/// guessed the version wrong can read them.
pub(crate) const fn flexible_answer_header(api: Api, version: i16) -> bool {
    !matches!(api, Api::ApiVersions) && flexible_request(api, version)
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::ApiKey;

    use super::*;

    #[test]
    fn keys_and_compact_forms_are_those_of_the_protocol() {
        for api in Api::ALL {
            let theirs = ApiKey::try_from(api.key()).unwrap();
            assert_eq!(format!("{theirs:?}"), api.name());
            let (min, max) = api.versions();
            for version in min..=max {
                let header = theirs.request_header_version(version);
                // Versions that the library cannot decode are refused before they get there.
                if theirs.valid_versions().min <= version {
                    assert_eq!(
                        header == 2,
                        flexible_request(*api, version),
                        "{api:?} {version}"
                    );
                    assert_eq!(
                        theirs.response_header_version(version) == 1,
                        flexible_answer_header(*api, version),
                        "{api:?} {version}"
                    );
                }
            }
            assert!(theirs.valid_versions().max >= max, "{api:?}");
        }
    }

    #[test]
    fn what_clients_derive_abilities_from_is_announced() {
        assert_eq!(Api::Produce.versions().0, 0);
        assert!(Api::Produce.versions().1 >= 7 && Api::Fetch.versions().1 >= 12);
        assert_eq!(Api::JoinGroup.versions().0, 0);
        assert!(Api::JoinGroup.versions().1 >= 5);
        assert_eq!(Api::SaslHandshake.versions().0, 0);
        assert_eq!(Api::from_key(10), Some(Api::FindCoordinator));
        // Telemetry and share groups change what clients do when they are there.
        assert!(
            [71, 72, 76, 78, 88]
                .iter()
                .all(|key| Api::from_key(*key).is_none())
        );
    }
}
