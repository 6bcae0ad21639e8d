//! The walk in front of the decoder.
//!
//! The library that decodes requests makes room for as many elements as a request says it has. So every count and
//! length of a request is first held against the bytes that are left, by walking the request along the types of its
//! fields. What is left behind the last field is ignored, as Kafka does: librdkafka sends three bytes too many in some
//! requests.

use super::api::{Api, flexible_request};
use super::read::Malformed;
use super::schema;
use crate::limits::ELEMENTS_PER_REQUEST_MAX;

/// A field: the versions that have it, both inclusive, and its type.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) versions: (i16, i16),
    pub(super) kind: Kind,
}

/// The type of a field, as far as its length goes. Everything that can be null somewhere may be null here: that a
/// field may not be is the decoder's to say.
#[derive(Debug)]
pub(super) enum Kind {
    /// This many bytes.
    Fixed(usize),
    Text,
    Blob,
    /// Structures.
    List(&'static [Field]),
    /// Elements that are no structures.
    Items(&'static Self),
}

pub(super) const fn field(versions: (i16, i16), kind: Kind) -> Field {
    Field { versions, kind }
}

/// Every version.
pub(super) const ALL: (i16, i16) = (0, i16::MAX);

pub(super) const fn from(version: i16) -> (i16, i16) {
    (version, i16::MAX)
}

pub(super) const fn to(version: i16) -> (i16, i16) {
    (0, version)
}

pub(super) const fn between(first: i16, last: i16) -> (i16, i16) {
    (first, last)
}

/// Holds the body of a request against its type.
///
/// # Errors
/// [`Malformed`] with the first thing that cannot be; decoding must not be tried then.
pub(crate) fn check(api: Api, version: i16, body: &[u8]) -> Result<(), Malformed> {
    let mut walk = Walk {
        rest: body,
        version,
        flexible: flexible_request(api, version),
        elements: 0,
    };
    walk.fields(schema::of(api))
}

struct Walk<'a> {
    rest: &'a [u8],
    version: i16,
    flexible: bool,
    elements: usize,
}

impl Walk<'_> {
    fn fields(&mut self, fields: &[Field]) -> Result<(), Malformed> {
        for field in fields {
            let (first, last) = field.versions;
            if (first..=last).contains(&self.version) {
                self.kind(&field.kind)?;
            }
        }
        self.tags()
    }

    fn kind(&mut self, kind: &Kind) -> Result<(), Malformed> {
        match kind {
            Kind::Fixed(size) => self.skip(*size),
            Kind::Text => {
                let length = if self.flexible {
                    i64::from(self.varint()?) - 1
                } else {
                    i64::from(i16::from_be_bytes(self.fixed()?))
                };
                self.sized(length)
            }
            Kind::Blob => {
                let length = self.length()?;
                self.sized(length)
            }
            Kind::List(fields) => {
                for _ in 0..self.count()? {
                    self.fields(fields)?;
                }
                Ok(())
            }
            Kind::Items(kind) => {
                for _ in 0..self.count()? {
                    self.kind(kind)?;
                }
                Ok(())
            }
        }
    }

    fn tags(&mut self) -> Result<(), Malformed> {
        if !self.flexible {
            return Ok(());
        }
        let tags = self.varint()?;
        self.elements(u64::from(tags))?;
        for _ in 0..tags {
            self.varint()?;
            let size = self.varint()?;
            self.skip(size as usize)?;
        }
        Ok(())
    }

    /// How many elements an array says it has; null has none.
    fn count(&mut self) -> Result<u64, Malformed> {
        match self.length()? {
            -1 => Ok(0),
            count => {
                let count = u64::try_from(count).map_err(|_| Malformed::Negative(count))?;
                self.elements(count)?;
                Ok(count)
            }
        }
    }

    /// Refuses more elements than bytes, as each takes at least one, and more than any request needs in all.
    fn elements(&mut self, count: u64) -> Result<(), Malformed> {
        let most = self
            .rest
            .len()
            .min(ELEMENTS_PER_REQUEST_MAX.saturating_sub(self.elements));
        match usize::try_from(count) {
            Ok(count) if count <= most => {
                self.elements += count;
                Ok(())
            }
            _ => Err(Malformed::Count { count, most }),
        }
    }

    fn length(&mut self) -> Result<i64, Malformed> {
        if self.flexible {
            Ok(i64::from(self.varint()?) - 1)
        } else {
            Ok(i64::from(i32::from_be_bytes(self.fixed()?)))
        }
    }

    fn sized(&mut self, length: i64) -> Result<(), Malformed> {
        match usize::try_from(length) {
            Ok(length) => self.skip(length),
            Err(_) if length == -1 => Ok(()),
            Err(_) => Err(Malformed::Negative(length)),
        }
    }

    fn skip(&mut self, count: usize) -> Result<(), Malformed> {
        let left = self.rest.len();
        self.rest = self.rest.get(count..).ok_or(Malformed::Short {
            wanted: count,
            left,
        })?;
        Ok(())
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let left = self.rest.len();
        let (head, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(Malformed::Short { wanted: N, left })?;
        self.rest = rest;
        Ok(*head)
    }

    fn varint(&mut self) -> Result<u32, Malformed> {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_announces_two_billion_elements_is_refused() {
        for api in Api::ALL {
            let (min, max) = api.versions();
            for version in min..=max {
                let body: &[u8] = if flexible_request(*api, version) {
                    &[0xff, 0xff, 0xff, 0xff, 0x07]
                } else {
                    &[0x7f, 0xff, 0xff, 0xff]
                };
                // Two are read by hand; the others have versions without a body, where all of it is left over.
                let no_body = matches!(
                    api,
                    Api::Produce | Api::Fetch | Api::ApiVersions | Api::ListGroups
                );
                // Whatever it is taken for, it cannot be whole.
                assert!(
                    check(*api, version, body).is_err() || no_body,
                    "{api:?} {version}"
                );
            }
        }
        let metadata = check(Api::Metadata, 1, &[0x7f, 0xff, 0xff, 0xff]);
        assert_eq!(
            metadata,
            Err(Malformed::Count {
                count: 0x7fff_ffff,
                most: 0
            })
        );
    }

    #[test]
    fn what_is_left_over_is_ignored() {
        assert_eq!(check(Api::Metadata, 0, &[0, 0, 0, 0, 9]), Ok(()));
        assert!(check(Api::Metadata, 0, &[0, 0, 0]).is_err());
    }

    #[test]
    fn one_request_has_so_many_elements_at_most() {
        let count = ELEMENTS_PER_REQUEST_MAX + 1;
        let mut body = u32::try_from(count).unwrap().to_be_bytes().to_vec();
        body.resize(4 + 2 * count, 0);
        assert!(matches!(
            check(Api::Metadata, 0, &body),
            Err(Malformed::Count { .. })
        ));
    }
}
