//! Reading primitives of the Kafka protocol. Nothing here takes memory for a length before the bytes are there.

use bytes::Bytes;

use crate::limits::ELEMENTS_PER_REQUEST_MAX;

/// Why bytes are not what the protocol says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    /// A field runs past the end of the request.
    #[error("a field of {wanted} bytes stands where {left} are left")]
    Short {
        /// Bytes the field needs.
        wanted: usize,
        /// Bytes there are.
        left: usize,
    },
    /// A length or count is negative and not the one that stands for null.
    #[error("a length of {0} stands where none can")]
    Negative(i64),
    /// A count says more elements than the bytes left could hold, or than any request needs.
    #[error("{count} elements are announced where {most} fit")]
    Count {
        /// What is announced.
        count: u64,
        /// What the bytes left can hold at most.
        most: usize,
    },
    /// A varint is longer than five bytes.
    #[error("a varint does not end")]
    Varint,
    /// A field that may not be null is null.
    #[error("a field that may not be null is null")]
    Null,
    /// A text is not UTF-8.
    #[error("a text is not UTF-8")]
    Text,
}

/// Reads fields from the front of a request. Slices share the request's memory.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    bytes: Bytes,
    /// Elements of all arrays and tagged fields so far.
    elements: usize,
}

impl Reader {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self { bytes, elements: 0 }
    }

    fn left(&self) -> usize {
        self.bytes.len()
    }

    /// What has not been read.
    pub(crate) fn rest(self) -> Bytes {
        self.bytes
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<Bytes, Malformed> {
        let left = self.bytes.len();
        if count > left {
            return Err(Malformed::Short {
                wanted: count,
                left,
            });
        }
        Ok(self.bytes.split_to(count))
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let left = self.bytes.len();
        let head: [u8; N] = *self
            .bytes
            .first_chunk()
            .ok_or(Malformed::Short { wanted: N, left })?;
        bytes::Buf::advance(&mut self.bytes, N);
        Ok(head)
    }

    pub(crate) fn i8(&mut self) -> Result<i8, Malformed> {
        self.fixed().map(i8::from_be_bytes)
    }

    pub(crate) fn i16(&mut self) -> Result<i16, Malformed> {
        self.fixed().map(i16::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Malformed> {
        self.fixed().map(i32::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Malformed> {
        self.fixed().map(i64::from_be_bytes)
    }

    pub(crate) fn uuid(&mut self) -> Result<[u8; 16], Malformed> {
        self.fixed()
    }

    pub(crate) fn varint(&mut self) -> Result<u32, Malformed> {
        let mut value = 0_u32;
        for position in 0..5 {
            let [byte] = self.fixed()?;
            if position == 4 && byte > 0x0f {
                break;
            }
            value |= u32::from(byte & 0x7f) << (7 * position);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed::Varint)
    }

    /// A text or null; `flexible` chooses the compact form.
    pub(crate) fn nullable_text(&mut self, flexible: bool) -> Result<Option<Bytes>, Malformed> {
        let length = if flexible {
            i64::from(self.varint()?) - 1
        } else {
            i64::from(self.i16()?)
        };
        let Some(text) = self.sized(length)? else {
            return Ok(None);
        };
        match std::str::from_utf8(&text) {
            Ok(_) => Ok(Some(text)),
            Err(_) => Err(Malformed::Text),
        }
    }

    pub(crate) fn text(&mut self, flexible: bool) -> Result<Bytes, Malformed> {
        self.nullable_text(flexible)?.ok_or(Malformed::Null)
    }

    /// Bytes or null.
    pub(crate) fn nullable_blob(&mut self, flexible: bool) -> Result<Option<Bytes>, Malformed> {
        let length = if flexible {
            i64::from(self.varint()?) - 1
        } else {
            i64::from(self.i32()?)
        };
        self.sized(length)
    }

    fn sized(&mut self, length: i64) -> Result<Option<Bytes>, Malformed> {
        match usize::try_from(length) {
            Ok(length) => self.take(length).map(Some),
            Err(_) if length == -1 => Ok(None),
            Err(_) => Err(Malformed::Negative(length)),
        }
    }

    /// The count of an array whose elements take at least `least` bytes each; null counts as `None`. More elements
    /// than the bytes left could hold, or than any request needs in all, are refused here, before anything is made room
    /// for.
    pub(crate) fn nullable_count(
        &mut self,
        flexible: bool,
        least: usize,
    ) -> Result<Option<usize>, Malformed> {
        let count = if flexible {
            i64::from(self.varint()?) - 1
        } else {
            i64::from(self.i32()?)
        };
        match u64::try_from(count) {
            Ok(count) => self.elements(count, least).map(Some),
            Err(_) if count == -1 => Ok(None),
            Err(_) => Err(Malformed::Negative(count)),
        }
    }

    fn elements(&mut self, count: u64, least: usize) -> Result<usize, Malformed> {
        let fit = self.left() / least.max(1);
        let most = fit.min(ELEMENTS_PER_REQUEST_MAX.saturating_sub(self.elements));
        match usize::try_from(count) {
            Ok(count) if count <= most => {
                self.elements += count;
                Ok(count)
            }
            _ => Err(Malformed::Count { count, most }),
        }
    }

    pub(crate) fn count(&mut self, flexible: bool, least: usize) -> Result<usize, Malformed> {
        self.nullable_count(flexible, least)?.ok_or(Malformed::Null)
    }

    /// The tagged fields at the end of a structure; none of them means anything to the caller.
    pub(crate) fn skip_tags(&mut self, flexible: bool) -> Result<(), Malformed> {
        if !flexible {
            return Ok(());
        }
        let tags = self.varint()?;
        for _ in 0..self.elements(tags.into(), 2)? {
            self.varint()?;
            let size = self.varint()?;
            self.take(size as usize)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(bytes: &'static [u8]) -> Reader {
        Reader::new(Bytes::from_static(bytes))
    }

    #[test]
    fn a_count_beyond_the_bytes_is_refused_before_room_is_made() {
        assert_eq!(
            reader(&[0x7f, 0xff, 0xff, 0xff, 0, 0]).count(false, 1),
            Err(Malformed::Count {
                count: 0x7fff_ffff,
                most: 2
            })
        );
        assert_eq!(reader(&[0, 0, 0, 1, 0, 0]).count(false, 2), Ok(1));
        assert_eq!(
            reader(&[0xff, 0xff, 0xff, 0xff]).nullable_count(false, 1),
            Ok(None)
        );
        assert_eq!(
            reader(&[0xff, 0xff, 0xff, 0xfe]).nullable_count(false, 1),
            Err(Malformed::Negative(-2))
        );
    }

    #[test]
    fn the_elements_of_all_counts_are_counted_together() {
        let mut bytes = Vec::new();
        for count in [ELEMENTS_PER_REQUEST_MAX - 3, 2, 1, 1] {
            bytes.extend(u32::try_from(count).unwrap().to_be_bytes());
        }
        bytes.resize(16 + ELEMENTS_PER_REQUEST_MAX, 0);
        let mut reader = Reader::new(bytes.into());
        for count in [ELEMENTS_PER_REQUEST_MAX - 3, 2, 1] {
            assert_eq!(reader.count(false, 1), Ok(count));
        }
        assert_eq!(
            reader.count(false, 1),
            Err(Malformed::Count { count: 1, most: 0 })
        );
    }

    #[test]
    fn a_varint_is_five_bytes_at_most() {
        assert_eq!(
            reader(&[0xff, 0xff, 0xff, 0xff, 0x0f]).varint(),
            Ok(u32::MAX)
        );
        assert_eq!(
            reader(&[0xff, 0xff, 0xff, 0xff, 0x1f]).varint(),
            Err(Malformed::Varint)
        );
        assert_eq!(
            reader(&[0x80]).varint(),
            Err(Malformed::Short { wanted: 1, left: 0 })
        );
    }

    #[test]
    fn texts_are_checked_and_shared() {
        assert_eq!(
            reader(b"\0\x02ab").nullable_text(false),
            Ok(Some(Bytes::from_static(b"ab")))
        );
        assert_eq!(reader(b"\x03ab").text(true), Ok(Bytes::from_static(b"ab")));
        assert_eq!(reader(b"\x02\xff").text(true), Err(Malformed::Text));
        assert_eq!(reader(b"\0").text(true), Err(Malformed::Null));
    }
}
