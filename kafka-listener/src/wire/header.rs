//! The header of a request, read by hand before anything else is looked at.

use bytes::Bytes;

use super::api::{Api, flexible_request};
use super::read::{Malformed, Reader};

/// Smallest request: key, version, correlation.
pub(crate) const HEADER_BYTES_MIN: usize = 8;

/// What stands before the body of every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) key: i16,
    pub(crate) version: i16,
    pub(crate) correlation: i32,
    /// The name a client gives itself; empty when it gives none.
    pub(crate) client_id: Bytes,
}

impl Header {
    /// Reads the header; what is left of the frame is the body. A key or version that is not served has a header all
    /// the same, as far as its correlation, so that it can be answered.
    ///
    /// # Errors
    /// [`Malformed`] when the frame is too short for one.
    pub(crate) fn read(frame: Bytes) -> Result<(Self, Bytes), Malformed> {
        let mut reader = Reader::new(frame);
        let (key, version, correlation) = (reader.i16()?, reader.i16()?, reader.i32()?);
        let mut header = Self {
            key,
            version,
            correlation,
            client_id: Bytes::new(),
        };
        let Some(api) = Api::from_key(key).filter(|api| api.serves(version)) else {
            return Ok((header, Bytes::new()));
        };
        // The client id is in the plain form in every version of the header.
        let client_id = reader.nullable_text(false)?.unwrap_or_default();
        // Copied, because it outlives the frame and would keep all of it in memory.
        header.client_id = Bytes::copy_from_slice(&client_id);
        reader.skip_tags(flexible_request(api, version))?;
        Ok((header, reader.rest()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_two_bytes_is_refused() {
        assert!(Header::read(Bytes::from_static(&[0, 1])).is_err());
        assert!(Header::read(Bytes::new()).is_err());
    }

    #[test]
    fn a_flexible_header_skips_its_tags() {
        let frame = b"\0\x12\0\x03\0\0\0\x07\0\x01a\x01\x05\x02zzBODY";
        let (header, body) = Header::read(Bytes::from_static(frame)).unwrap();
        assert_eq!((header.key, header.version, header.correlation), (18, 3, 7));
        assert_eq!(header.client_id, "a");
        assert_eq!(body, "BODY");
    }

    #[test]
    fn an_unknown_key_has_a_correlation_to_answer_with() {
        let (header, _) = Header::read(Bytes::from_static(b"\x7f\xff\0\0\0\0\0\x09")).unwrap();
        assert_eq!(header.correlation, 9);
    }
}
