//! The request, read by hand.

use bytes::Bytes;

use crate::topics::TopicId;
use crate::wire::api::{Api, flexible_request};
use crate::wire::read::{Malformed, Reader};

/// A fetch request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) max_wait_ms: i32,
    pub(super) min_bytes: i32,
    pub(super) max_bytes: i32,
    /// Only what no open transaction may take back.
    pub(super) committed: bool,
    pub(super) session_id: i32,
    pub(super) session_epoch: i32,
    pub(super) wanted: Vec<Wanted>,
    pub(super) forgotten: Vec<Place>,
}

/// How a topic is named.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TopicKey {
    Name(Bytes),
    Id(TopicId),
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) topic: TopicKey,
    pub(crate) partition: i32,
}

/// What is wanted of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) place: Place,
    pub(crate) current_leader_epoch: i32,
    pub(crate) offset: i64,
    pub(crate) last_fetched_epoch: i32,
    pub(crate) max_bytes: i32,
}

impl Request {
    /// Reads a request of any announced version. Texts are copied: they may outlive the request in a session.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not what the protocol says.
    pub(super) fn read(version: i16, body: Bytes) -> Result<Self, Malformed> {
        let flexible = flexible_request(Api::Fetch, version);
        let mut reader = Reader::new(body);
        if version <= 14 {
            // Replicas of Kafka say who they are; there are none here.
            reader.i32()?;
        }
        let (max_wait_ms, min_bytes, max_bytes) = (reader.i32()?, reader.i32()?, reader.i32()?);
        let committed = reader.i8()? == 1;
        let (session_id, session_epoch) = if version >= 7 {
            (reader.i32()?, reader.i32()?)
        } else {
            (0, -1)
        };
        let mut wanted = Vec::new();
        for _ in 0..reader.count(flexible, 3)? {
            read_topic(version, flexible, &mut reader, &mut wanted)?;
        }
        let forgotten = if version >= 7 {
            read_forgotten(version, flexible, &mut reader)?
        } else {
            Vec::new()
        };
        if version >= 11 {
            reader.nullable_text(flexible)?;
        }
        reader.skip_tags(flexible)?;
        Ok(Self {
            max_wait_ms,
            min_bytes,
            max_bytes,
            committed,
            session_id,
            session_epoch,
            wanted,
            forgotten,
        })
    }
}

fn read_key(version: i16, flexible: bool, reader: &mut Reader) -> Result<TopicKey, Malformed> {
    if version >= 13 {
        return reader.uuid().map(TopicKey::Id);
    }
    let name = reader.text(flexible)?;
    Ok(TopicKey::Name(Bytes::copy_from_slice(&name)))
}

fn read_topic(
    version: i16,
    flexible: bool,
    reader: &mut Reader,
    wanted: &mut Vec<Wanted>,
) -> Result<(), Malformed> {
    let topic = read_key(version, flexible, reader)?;
    let count = reader.count(flexible, 16)?;
    wanted.reserve(count);
    for _ in 0..count {
        let partition = reader.i32()?;
        let current_leader_epoch = if version >= 9 { reader.i32()? } else { -1 };
        let offset = reader.i64()?;
        let last_fetched_epoch = if version >= 12 { reader.i32()? } else { -1 };
        if version >= 5 {
            // Where the log of a replica of Kafka begins.
            reader.i64()?;
        }
        let max_bytes = reader.i32()?;
        reader.skip_tags(flexible)?;
        wanted.push(Wanted {
            place: Place {
                topic: topic.clone(),
                partition,
            },
            current_leader_epoch,
            offset,
            last_fetched_epoch,
            max_bytes,
        });
    }
    reader.skip_tags(flexible)
}

fn read_forgotten(
    version: i16,
    flexible: bool,
    reader: &mut Reader,
) -> Result<Vec<Place>, Malformed> {
    let mut forgotten = Vec::new();
    for _ in 0..reader.count(flexible, 3)? {
        let topic = read_key(version, flexible, reader)?;
        for _ in 0..reader.count(flexible, 4)? {
            forgotten.push(Place {
                topic: topic.clone(),
                partition: reader.i32()?,
            });
        }
        reader.skip_tags(flexible)?;
    }
    Ok(forgotten)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Version 12 with one partition and one that is forgotten.
    const BODY: &[u8] = b"\xff\xff\xff\xff\0\0\x01\xf4\0\0\0\x01\x03\x20\0\0\0\0\0\0\x07\0\0\0\x01\
        \x02\x02t\x02\0\0\0\x03\xff\xff\xff\xff\0\0\0\0\0\0\0\x09\xff\xff\xff\xff\0\0\0\0\0\0\0\0\0\x10\0\0\0\0\
        \x02\x02u\x02\0\0\0\x04\0\x01\0";

    #[test]
    fn partitions_and_what_is_forgotten_are_read() {
        let request = Request::read(12, Bytes::from_static(BODY)).unwrap();
        assert_eq!((request.max_wait_ms, request.min_bytes), (500, 1));
        assert_eq!((request.session_id, request.session_epoch), (7, 1));
        let wanted = &request.wanted[0];
        assert_eq!((wanted.place.partition, wanted.offset), (3, 9));
        assert_eq!(wanted.max_bytes, 0x10_0000);
        assert_eq!(request.forgotten[0].partition, 4);
    }

    #[test]
    fn every_cut_of_a_request_is_refused() {
        for length in 0..BODY.len() {
            assert!(
                Request::read(12, Bytes::from_static(&BODY[..length])).is_err(),
                "{length}"
            );
        }
    }
}
