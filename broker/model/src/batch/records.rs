//! Records handed out one at a time.

use std::fmt;

use bytes::Bytes;

use super::record::{RecordRef, Walk};
use super::unpack::unpack;
use super::varint::Cursor;
use super::{BatchHeader, BatchRefused, Compression, HEADER_BYTES};
use crate::Offset;

/// A record. Key, value and headers share the memory of the batch, or of what it was unpacked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where it stands in the shard.
    pub offset: Offset,
    /// When it was made or appended, in milliseconds; -1 when its producer did not say.
    pub timestamp_ms: i64,
    /// What routed it, and what compaction goes by.
    pub key: Option<Bytes>,
    /// The payload; `None` is a tombstone.
    pub value: Option<Bytes>,
    /// The user's headers. Always empty in a batch marked [`super::ATTR_INTERNAL`].
    pub headers: Headers,
    /// The broker's own headers. Always empty in any other batch, so a user's header is never taken for
    /// one of them.
    pub internal: Headers,
}

/// The headers of a record, decoded as they are read: a record may claim hundreds of thousands, and
/// they cost nothing until someone looks.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers {
    /// Encoded, without the count; walked before, so that reading cannot fail.
    encoded: Bytes,
    count: u32,
}

impl Headers {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Keys and values in the order they were given; a key may occur more than once.
    #[must_use]
    pub fn iter(&self) -> HeadersIter<'_> {
        HeadersIter {
            headers: self,
            rest: Cursor::new(&self.encoded),
            left: self.count,
        }
    }

    /// The value of the last header with this key, as Kafka clients look it up. The outer `None` means
    /// that there is no such header, the inner one that its value is null.
    #[must_use]
    pub fn last(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.iter()
            .filter(|(found, _)| found == key)
            .map(|(_, value)| value)
            .last()
    }
}

impl Record {
    /// The same record in memory of its own: a record shares its batch's, which for one small record may be a lot to
    /// hold on to.
    #[must_use]
    pub fn detached(&self) -> Self {
        let copy = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
        let headers = |headers: &Headers| Headers {
            encoded: copy(&headers.encoded),
            count: headers.count,
        };
        Self {
            offset: self.offset,
            timestamp_ms: self.timestamp_ms,
            key: self.key.as_ref().map(copy),
            value: self.value.as_ref().map(copy),
            headers: headers(&self.headers),
            internal: headers(&self.internal),
        }
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for &'a Headers {
    type Item = (Bytes, Option<Bytes>);
    type IntoIter = HeadersIter<'a>;

    fn into_iter(self) -> HeadersIter<'a> {
        self.iter()
    }
}

/// Reads [`Headers`] one by one.
#[derive(Clone, Debug)]
pub struct HeadersIter<'a> {
    headers: &'a Headers,
    rest: Cursor<'a>,
    left: u32,
}

impl Iterator for HeadersIter<'_> {
    type Item = (Bytes, Option<Bytes>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let key = self.rest.nullable().ok()??;
        let value = self.rest.nullable().ok()?;
        let shared = |slice| self.headers.encoded.slice_ref(slice);
        Some((shared(key), value.map(shared)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for HeadersIter<'_> {}

/// Reads the records of a batch in order, unpacked when need be.
///
/// The checksum is not looked at, because whoever has the batch has usually verified it: on arrival, or
/// when it was read from disk. Whatever the bytes hold, reading them ends in records or in an error.
#[derive(Clone, Debug)]
pub struct Records {
    header: BatchHeader,
    body: Body,
}

impl Records {
    /// Prepares to read the batch at the front of `batch`. Uncompressed records are read in place;
    /// compressed ones are unpacked here, within the bounds of [`crate::limits`].
    ///
    /// # Errors
    /// When the header is not plausible, the batch is cut off, or the records cannot be unpacked.
    pub fn new(batch: &Bytes) -> Result<Self, BatchRefused> {
        let header = BatchHeader::parse(batch)?;
        Ok(Self {
            header,
            body: Body::new(&header, batch)?,
        })
    }

    /// The batch's header.
    #[must_use]
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }
}

impl Iterator for Records {
    type Item = Result<Record, BatchRefused>;

    fn next(&mut self) -> Option<Self::Item> {
        let Body { bytes, progress } = &mut self.body;
        let record = match progress.next(bytes)? {
            Ok(record) => record,
            Err(why) => return Some(Err(why)),
        };
        let shared = |slice| bytes.slice_ref(slice);
        let ours = Headers {
            encoded: shared(record.headers),
            count: record.header_count,
        };
        let (headers, internal) = if self.header.is_internal() {
            (Headers::default(), ours)
        } else {
            (ours, Headers::default())
        };
        Some(Ok(Record {
            offset: self.header.base().plus(u64::from(record.offset_delta)),
            timestamp_ms: record.timestamp_ms,
            key: record.key.map(shared),
            value: record.value.map(shared),
            headers,
            internal,
        }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // One more for the error that an iteration may end with.
        (0, Some(self.body.progress.walk.left() as usize + 1))
    }
}

/// The records of a batch without its header and compression.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    pub(crate) bytes: Bytes,
    pub(crate) progress: Progress,
}

impl Body {
    pub(crate) fn new(header: &BatchHeader, batch: &Bytes) -> Result<Self, BatchRefused> {
        let need = header.total_bytes();
        if batch.len() < need {
            return Err(BatchRefused::Short {
                have: batch.len(),
                need,
            });
        }
        let packed = batch.slice(HEADER_BYTES..need);
        let codec = header.compression()?;
        let bytes = if codec == Compression::None {
            packed
        } else {
            unpack(codec, &packed)?
        };
        Ok(Self {
            bytes,
            progress: Progress {
                walk: Walk::new(header),
                read: 0,
                ended: false,
            },
        })
    }
}

/// How far a [`Body`] was read. Apart from its bytes, so that a record can borrow those while this moves
/// on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    walk: Walk,
    read: usize,
    /// All was read, or something could not be.
    ended: bool,
}

impl Progress {
    /// The next record of `bytes`, or `None` when all were read. After an error there is none.
    pub(crate) fn next<'a>(
        &mut self,
        bytes: &'a [u8],
    ) -> Option<Result<RecordRef<'a>, BatchRefused>> {
        if self.ended {
            return None;
        }
        let mut rest = Cursor::new(bytes.get(self.read..).unwrap_or_default());
        if self.walk.left() == 0 {
            self.ended = true;
            return self.walk.finish(rest.left()).err().map(Err);
        }
        let record = self.walk.next(&mut rest);
        self.read = bytes.len() - rest.left();
        self.ended = record.is_err();
        Some(record)
    }
}
