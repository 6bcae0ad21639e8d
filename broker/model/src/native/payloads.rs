//! The list itself.
//!
//! ```text
//! count u32 | count times: length u32, bytes          (big-endian)
//! ```

use bytes::{BufMut, Bytes, BytesMut};

use crate::limits::{BATCH_RECORDS_MAX, FRAME_BYTES_MAX};

/// Bytes of the count, and of each length.
const FIELD_BYTES: usize = 4;

/// Why bytes are not a list of payloads. Whoever sent them is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadsRefused {
    /// The list does not even have its count.
    #[error("a list of payloads needs at least 4 bytes and has {have}")]
    Short {
        /// How many bytes are there.
        have: usize,
    },
    /// More payloads are claimed than the bytes can hold.
    #[error("{claimed} payloads claimed in {have} bytes")]
    Count {
        /// The count.
        claimed: u32,
        /// How many bytes follow it.
        have: usize,
    },
    /// More payloads than a batch may have records.
    #[error("{count} payloads are over the limit of {limit}")]
    TooMany {
        /// How many there are.
        count: u64,
        /// [`BATCH_RECORDS_MAX`].
        limit: u32,
    },
    /// A payload runs over the end.
    #[error("payload {index} of {length} bytes has only {have}")]
    Cut {
        /// Which payload, from 0.
        index: u32,
        /// Its length field.
        length: u32,
        /// How many bytes follow it.
        have: usize,
    },
    /// The list would not fit a frame.
    #[error("a list of {bytes} bytes is over the limit of {limit}")]
    TooLarge {
        /// How large it would be.
        bytes: usize,
        /// [`FRAME_BYTES_MAX`].
        limit: usize,
    },
}

/// A list of payloads as it stands in a frame. One from [`Payloads::parse`] or [`Payloads::build`] is
/// whole: `count` payloads fill `bytes` exactly. Cloning shares the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payloads {
    /// The whole list, its count included.
    pub bytes: Bytes,
    /// How many payloads there are.
    pub count: u32,
}

impl Payloads {
    /// Reads the list at the front of `bytes` without copying it. What follows the list is cut off.
    ///
    /// # Errors
    /// When the count or a length claims more than is there, or when there are more payloads than a batch
    /// may have records.
    pub fn parse(mut bytes: Bytes) -> Result<Self, PayloadsRefused> {
        let Some((count, mut rest)) = bytes.split_first_chunk() else {
            return Err(PayloadsRefused::Short { have: bytes.len() });
        };
        let count = u32::from_be_bytes(*count);
        if count as usize > rest.len() / FIELD_BYTES {
            return Err(PayloadsRefused::Count {
                claimed: count,
                have: rest.len(),
            });
        }
        if count > BATCH_RECORDS_MAX {
            let limit = BATCH_RECORDS_MAX;
            return Err(PayloadsRefused::TooMany {
                count: u64::from(count),
                limit,
            });
        }
        for index in 0..count {
            rest = skip(rest, index)?;
        }
        let whole = bytes.len() - rest.len();
        bytes.truncate(whole);
        Ok(Self { bytes, count })
    }

    /// Makes a list in one allocation.
    ///
    /// # Errors
    /// When there are more payloads than a batch may have records, or when they do not fit a frame.
    pub fn build<'a, I>(payloads: I) -> Result<Self, PayloadsRefused>
    where
        I: IntoIterator<Item = &'a [u8]>,
        I::IntoIter: Clone,
    {
        let payloads = payloads.into_iter();
        let (mut count, mut total) = (0_u64, FIELD_BYTES);
        for payload in payloads.clone() {
            count += 1;
            total = total
                .saturating_add(FIELD_BYTES)
                .saturating_add(payload.len());
            if count > u64::from(BATCH_RECORDS_MAX) {
                return Err(PayloadsRefused::TooMany {
                    count,
                    limit: BATCH_RECORDS_MAX,
                });
            }
            if total > FRAME_BYTES_MAX {
                return Err(PayloadsRefused::TooLarge {
                    bytes: total,
                    limit: FRAME_BYTES_MAX,
                });
            }
        }
        let mut list = ListWriter::with_capacity(total);
        for payload in payloads {
            list.push(payload);
        }
        Ok(list.finish())
    }

    /// Whether there is no payload.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The payloads in their order.
    #[must_use]
    pub fn iter(&self) -> PayloadsIter<'_> {
        PayloadsIter {
            rest: self.bytes.get(FIELD_BYTES..).unwrap_or_default(),
            left: self.count,
        }
    }

    /// The payloads in their order, each sharing the memory of the list.
    pub fn iter_shared(&self) -> impl Iterator<Item = Bytes> + '_ {
        self.iter().map(|payload| self.bytes.slice_ref(payload))
    }

    /// Bytes of the payloads alone.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.bytes
            .len()
            .saturating_sub(FIELD_BYTES * (self.count as usize + 1))
    }

    /// Bytes of the largest payload; 0 when there is none.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.iter().map(<[u8]>::len).max().unwrap_or(0)
    }

    /// The list without its first `payloads`; a copy, unless nothing is left out.
    #[must_use]
    pub fn skip(&self, payloads: u32) -> Self {
        if payloads == 0 {
            return self.clone();
        }
        let mut skipped = self.iter();
        for _ in skipped.by_ref().take(payloads as usize) {}
        let mut bytes = BytesMut::with_capacity(FIELD_BYTES + skipped.rest.len());
        bytes.put_u32(skipped.left);
        bytes.put_slice(skipped.rest);
        Self {
            bytes: bytes.freeze(),
            count: skipped.left,
        }
    }
}

impl<'a> IntoIterator for &'a Payloads {
    type Item = &'a [u8];
    type IntoIter = PayloadsIter<'a>;

    fn into_iter(self) -> PayloadsIter<'a> {
        self.iter()
    }
}

/// Steps over one payload and returns what follows it.
fn skip(rest: &[u8], index: u32) -> Result<&[u8], PayloadsRefused> {
    let cut = |length, have| PayloadsRefused::Cut {
        index,
        length,
        have,
    };
    let Some((length, rest)) = rest.split_first_chunk() else {
        return Err(cut(0, rest.len()));
    };
    let length = u32::from_be_bytes(*length);
    rest.get(length as usize..)
        .ok_or_else(|| cut(length, rest.len()))
}

/// Reads the payloads of a list one by one.
#[derive(Clone, Debug)]
pub struct PayloadsIter<'a> {
    rest: &'a [u8],
    left: u32,
}

impl<'a> Iterator for PayloadsIter<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        let (length, rest) = self.rest.split_first_chunk()?;
        let (payload, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        self.rest = rest;
        Some(payload)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for PayloadsIter<'_> {}

/// Writes a list into memory that was reserved for all of it.
pub(super) struct ListWriter {
    bytes: BytesMut,
    count: u32,
}

impl ListWriter {
    /// Reserves `bytes` for the whole list, its count included.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        let mut list = BytesMut::with_capacity(bytes);
        list.put_u32(0);
        Self {
            bytes: list,
            count: 0,
        }
    }

    /// What a payload adds to the list.
    pub(super) fn entry_bytes(payload: &[u8]) -> usize {
        FIELD_BYTES + payload.len()
    }

    /// What a list without payloads takes.
    pub(super) const EMPTY_BYTES: usize = FIELD_BYTES;

    pub(super) fn push(&mut self, payload: &[u8]) {
        self.bytes.put_u32(payload.len() as u32);
        self.bytes.put_slice(payload);
        self.count += 1;
    }

    pub(super) fn finish(mut self) -> Payloads {
        if let Some(field) = self.bytes.first_chunk_mut() {
            *field = self.count.to_be_bytes();
        }
        Payloads {
            bytes: self.bytes.freeze(),
            count: self.count,
        }
    }
}
