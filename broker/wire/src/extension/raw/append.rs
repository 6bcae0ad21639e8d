//! One record batch to the end of a shard, as it came.

use bytes::{Bytes, BytesMut};

use crate::extension::requests::field::layout;
use crate::extension::requests::{Ask, Call};
use crate::publish::{Names, PublishTooLong};

layout! {
    /// Appends one record batch. Only its base offset and its generation are written anew.
    ///
    /// A batch whose header has a producer id is deduplicated by its sequence as the Kafka protocol
    /// says; the reply to a repeated one has the offset of the first.
    RawAppend {
        /// The shard.
        shard: u32,
        /// The generation that the sender takes for the shard's; refused with
        /// `fenced_leader_epoch` or `unknown_leader_epoch` when it is another.
        generation: Option<u64> = 0x0001,
        /// The answer need not wait until the batch is as safe as the stream has it: it says that
        /// the batch was taken, and has no offset.
        early: bool = 0x0002,
        /// One record batch v2 without control or transaction bits, at base offset 0. Stands last,
        /// so that it can be sent from where it is.
        batch: Bytes,
    }
}

layout! {
    /// The batch is appended.
    RawAppended {
        /// Offset of its first record; absent when the answer did not wait for it.
        base_offset: Option<u64> = 0x0001,
        /// The time that its records were given, Unix milliseconds; -1 when they keep their own.
        append_time_ms: i64,
        /// The oldest offset of the shard.
        start: u64,
        /// For how many milliseconds nothing more should be sent: the sender is ahead of its rate by as much.
        throttle_ms: u64,
        /// It had been appended before.
        repeated: bool = 0x0002,
    }
}

impl RawAppend {
    /// Everything of the frame up to the batch, which the caller sends right behind it.
    ///
    /// # Errors
    /// When the frame is too long for a peer to take.
    pub fn head(&self, names: &Names, correlation: u64) -> Result<BytesMut, PublishTooLong> {
        let batch = self.batch.len();
        let call = Call {
            names: names.clone(),
            ask: Ask::RawAppend(Self {
                batch: Bytes::new(),
                ..self.clone()
            }),
        };
        let mut head = BytesMut::new();
        call.encode_into(correlation, &mut head)?;
        super::fetch::lengthen(&mut head, batch)?;
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use bytes::BufMut as _;

    use super::*;

    #[test]
    fn a_head_and_its_batch_are_the_frame() {
        let names = Names::new("t", "n", "s").unwrap();
        let append = RawAppend {
            shard: 3,
            generation: Some(7),
            early: true,
            batch: Bytes::from_static(b"batch"),
        };
        let mut apart = append.head(&names, 9).unwrap();
        apart.put_slice(&append.batch);
        let mut whole = BytesMut::new();
        let ask = append.into();
        Call { names, ask }.encode_into(9, &mut whole).unwrap();
        assert_eq!(apart, whole);
    }
}
