//! The request, read by hand: batches are slices of what was received.

use bytes::Bytes;

use crate::topics::TopicId;
use crate::wire::api::{Api, flexible_request};
use crate::wire::read::{Malformed, Reader};

/// A produce request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) transactional: bool,
    pub(super) acks: i16,
    pub(super) timeout_ms: i32,
    pub(super) topics: Vec<Asked>,
}

/// How a topic is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TopicKey {
    Name(Bytes),
    Id(TopicId),
}

/// The partitions of one topic.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) key: TopicKey,
    pub(super) partitions: Vec<Partition>,
}

/// What is produced to one partition.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) index: i32,
    pub(super) records: Option<Bytes>,
}

impl Request {
    /// Reads a request of any announced version.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not what the protocol says.
    pub(super) fn read(version: i16, body: Bytes) -> Result<Self, Malformed> {
        let flexible = flexible_request(Api::Produce, version);
        let mut reader = Reader::new(body);
        let transactional = version >= 3 && reader.nullable_text(flexible)?.is_some();
        let (acks, timeout_ms) = (reader.i16()?, reader.i32()?);
        // The shortest topic has an empty name, no partition and no tags.
        let count = reader.count(flexible, 3)?;
        let mut topics = Vec::with_capacity(count);
        for _ in 0..count {
            let key = if version >= 13 {
                TopicKey::Id(reader.uuid()?)
            } else {
                TopicKey::Name(reader.text(flexible)?)
            };
            let count = reader.count(flexible, 5)?;
            let mut partitions = Vec::with_capacity(count);
            for _ in 0..count {
                let index = reader.i32()?;
                let records = reader.nullable_blob(flexible)?;
                reader.skip_tags(flexible)?;
                partitions.push(Partition { index, records });
            }
            reader.skip_tags(flexible)?;
            topics.push(Asked { key, partitions });
        }
        reader.skip_tags(flexible)?;
        Ok(Self {
            transactional,
            acks,
            timeout_ms,
            topics,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_form_is_read() {
        let body = b"\xff\xff\xff\xff\0\0\x75\x30\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\x05\0\0\0\x02ab"
            .to_vec();
        let request = Request::read(7, body.into()).unwrap();
        assert!(!request.transactional);
        assert_eq!((request.acks, request.timeout_ms), (-1, 30_000));
        assert_eq!(request.topics[0].key, TopicKey::Name("t".into()));
        let partition = &request.topics[0].partitions[0];
        assert_eq!(
            (partition.index, partition.records.as_deref()),
            (5, Some(&b"ab"[..]))
        );
    }

    #[test]
    fn every_cut_of_a_request_is_refused() {
        let body = b"\0\xff\xff\0\0\x75\x30\x02\x02t\x02\0\0\0\x05\x03ab\0\0\0";
        assert!(Request::read(9, Bytes::from_static(body)).is_ok());
        for length in 0..body.len() {
            assert!(
                Request::read(9, Bytes::from_static(&body[..length])).is_err(),
                "{length}"
            );
        }
    }

    #[test]
    fn a_count_beyond_the_bytes_is_refused() {
        let body = b"\xff\xff\xff\xff\0\0\x75\x30\x7f\xff\xff\xff\0\0";
        assert!(matches!(
            Request::read(3, Bytes::from_static(body)),
            Err(Malformed::Count { .. })
        ));
    }
}
