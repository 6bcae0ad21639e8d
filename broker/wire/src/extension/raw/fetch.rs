//! Record batches of many shards, as they stand in the log.

use std::collections::VecDeque;

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::cursor::{Cursor, Malformed};
use crate::extension::HEADER_BYTES;
use crate::extension::requests::Reply;
use crate::extension::requests::field::{Field, List, Text, item, layout, length};
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::publish::PublishTooLong;

item! {
    /// One shard of a fetch.
    FetchShard {
        /// The shard.
        shard: u32,
        /// The first offset wanted. The batch that holds it is sent whole.
        offset: u64,
        /// At most this many bytes of batches, but for the first batch of the reply.
        max_bytes: u32,
        /// The generation that the sender takes for the shard's.
        generation: Option<u64>,
        /// The generation of the last record it has, to see whether its log is a beginning of ours.
        last_generation: Option<u64>,
    }
}

item! {
    /// The shards of one stream that are fetched.
    FetchStream {
        /// The namespace.
        namespace: Text,
        /// The stream.
        stream: Text,
        /// The stream's incarnation; 0 for whichever there is.
        incarnation: u64,
        /// The shards, in the order in which they are served.
        shards: List<FetchShard>,
    }
}

layout! {
    /// Fetches whole batches. Waits until there are enough bytes, a shard has an error, or the time
    /// is over.
    RawFetch {
        /// At most this many bytes of batches, but for the first.
        max_bytes: u32,
        /// How many bytes to wait for.
        min_bytes: u32,
        /// How long to wait, in milliseconds.
        max_wait_ms: u32,
        /// Only what no open transaction may take back.
        committed: bool = 0x0001,
        /// What is fetched.
        streams: List<FetchStream>,
    }
}

item! {
    /// What became of one shard of a fetch.
    FetchedShard {
        /// 0, or what was wrong: there are no batches then.
        error: i16,
        /// The offset after the last record that may be read.
        high_watermark: u64,
        /// The same for who reads only what no open transaction may take back.
        stable: u64,
        /// The oldest offset.
        start: u64,
        /// The generation that the asker's log ends differently in, and where it ended here.
        diverging: Option<u64>,
        /// Where `diverging` ended; meaningless without it.
        diverging_end: u64,
        /// How many of the bytes of batches are this shard's.
        bytes: u32,
    }
}

layout! {
    /// What was fetched.
    RawFetched {
        /// One for every shard that was asked for, in the order of the call.
        shards: List<FetchedShard>,
        /// The batches of the first shard, then those of the second, and so on. Stands last, so that
        /// they can be sent from where they are.
        batches: Pieces,
    }
}

impl RawFetched {
    /// The shards with their batches, which stay where they are.
    pub fn iter(&self) -> impl Iterator<Item = (FetchedShard, Pieces)> + use<> {
        let mut rest = self.batches.clone();
        self.shards.iter().map(move |shard| {
            let bytes = usize::try_from(shard.bytes).unwrap_or(usize::MAX);
            (shard, rest.split_to(bytes))
        })
    }
}

/// Bytes that lie in one place or in several. On the wire they are one.
#[derive(Clone, Debug, Default)]
pub struct Pieces(VecDeque<Bytes>);

impl Pieces {
    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Bytes::is_empty)
    }

    /// The bytes in one place; not copied if they are already.
    #[must_use]
    pub fn joined(mut self) -> Bytes {
        if self.0.len() > 1 {
            return self.0.into_iter().flatten().collect();
        }
        self.0.pop_front().unwrap_or_default()
    }

    /// Takes the first `bytes`, or as many as there are.
    pub fn split_to(&mut self, mut bytes: usize) -> Self {
        let mut taken = VecDeque::new();
        while bytes > 0
            && let Some(piece) = self.0.front_mut()
        {
            if piece.len() > bytes {
                taken.push_back(piece.split_to(bytes));
                break;
            }
            bytes -= piece.len();
            taken.extend(self.0.pop_front());
        }
        Self(taken)
    }
}

impl From<Bytes> for Pieces {
    fn from(bytes: Bytes) -> Self {
        Self(VecDeque::from([bytes]))
    }
}

impl FromIterator<Bytes> for Pieces {
    fn from_iter<T: IntoIterator<Item = Bytes>>(pieces: T) -> Self {
        Self(pieces.into_iter().collect())
    }
}

impl IntoIterator for Pieces {
    type Item = Bytes;
    type IntoIter = std::collections::vec_deque::IntoIter<Bytes>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// The same bytes are the same, however they lie.
impl PartialEq for Pieces {
    fn eq(&self, other: &Self) -> bool {
        let bytes = |pieces: &Self| pieces.0.clone().into_iter().flatten();
        self.len() == other.len() && bytes(self).eq(bytes(other))
    }
}

impl Eq for Pieces {}

impl Field for Pieces {
    fn put(&self, into: &mut BytesMut, field: &'static str) -> Result<(), PublishTooLong> {
        into.put_u32(length(self.len(), field)?);
        for piece in &self.0 {
            into.put_slice(piece);
        }
        Ok(())
    }

    fn read(cursor: &mut Cursor, field: &'static str) -> Result<Self, Malformed> {
        Bytes::read(cursor, field).map(Self::from)
    }
}

/// A reply to a fetch about to be sent.
#[derive(Clone, Debug)]
pub struct FetchHead {
    /// One for every shard that was asked for.
    pub shards: List<FetchedShard>,
    /// How many bytes of batches the caller sends right behind the head.
    pub bytes: usize,
}

impl FetchHead {
    /// The reply in one, with these batches.
    #[must_use]
    pub fn with(self, batches: Vec<Bytes>) -> Reply {
        Reply::RawFetch(RawFetched {
            shards: self.shards,
            batches: batches.into_iter().collect(),
        })
    }

    /// Everything of the frame up to the batches.
    ///
    /// # Errors
    /// When the frame is too long for a peer to take.
    pub fn encode(self, correlation: u64) -> Result<BytesMut, PublishTooLong> {
        let reply = Reply::RawFetch(RawFetched {
            shards: self.shards,
            batches: Pieces::default(),
        });
        let mut head = BytesMut::new();
        reply.encode_into(correlation, &mut head)?;
        lengthen(&mut head, self.bytes)?;
        Ok(head)
    }
}

/// Puts the length of the bytes that follow into a frame whose last field holds none yet.
pub(super) fn lengthen(frame: &mut BytesMut, more: usize) -> Result<(), PublishTooLong> {
    let length = frame.len() - HEADER_BYTES + more;
    let limit = PAYLOAD_BYTES_MAX;
    let too_long = PublishTooLong::Frame { length, limit };
    let lengths = u32::try_from(length).ok().zip(u32::try_from(more).ok());
    let (whole, last) = lengths.filter(|_| length <= limit).ok_or(too_long)?;
    let end = frame.len();
    for (at, number) in [(HEADER_BYTES - 4, whole), (end - 4, last)] {
        if let Some(place) = frame.get_mut(at..at + 4) {
            place.copy_from_slice(&number.to_be_bytes());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(bytes: u32) -> FetchedShard {
        FetchedShard {
            error: 0,
            high_watermark: 9,
            stable: 9,
            start: 1,
            diverging: None,
            diverging_end: 0,
            bytes,
        }
    }

    #[test]
    fn a_head_and_its_batches_are_the_frame() {
        let shards = List::build([shard(2), shard(0), shard(3)]).unwrap();
        let batches: Pieces = ["a", "abb", "b"].map(Bytes::from).into_iter().collect();
        let mut apart = FetchHead {
            shards: shards.clone(),
            bytes: batches.len(),
        }
        .encode(9)
        .unwrap();
        batches
            .clone()
            .into_iter()
            .for_each(|piece| apart.extend_from_slice(&piece));
        let mut whole = BytesMut::new();
        let fetched = RawFetched { shards, batches };
        let parts: Vec<_> = fetched.iter().map(|(_, batches)| batches).collect();
        assert_eq!(
            parts,
            ["aa", "", "bbb"].map(|part| Pieces::from(Bytes::from(part)))
        );
        Reply::RawFetch(fetched).encode_into(9, &mut whole).unwrap();
        assert_eq!(apart, whole);
    }

    #[test]
    fn batches_that_no_frame_can_carry_are_refused_before_they_are_sent() {
        let shards = List::build([shard(0)]).unwrap();
        let bytes = PAYLOAD_BYTES_MAX;
        assert!(FetchHead { shards, bytes }.encode(1).is_err());
    }
}
