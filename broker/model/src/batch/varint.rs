//! Zigzag varints as Kafka writes them, and a reader that cannot run over the end.

use bytes::BufMut;

use super::BadRecord;

/// Most bytes of a 64-bit varint.
pub(crate) const VARINT_BYTES_MAX: usize = 10;

/// How many bytes `value` takes. 32-bit numbers take the same bytes as their 64-bit selves.
pub(crate) fn varint_len(value: i64) -> usize {
    let bits = 64 - (zigzag(value) | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Appends `value`.
pub(crate) fn put_varint(out: &mut impl BufMut, value: i64) {
    let mut rest = zigzag(value);
    while rest >= 0x80 {
        out.put_u8((rest as u8) | 0x80);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}

/// A length as the record format takes it; nothing in a batch is as long as 2 GiB.
pub(crate) fn length(bytes: &[u8]) -> i64 {
    bytes.len() as i64
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(raw: u64) -> i64 {
    ((raw >> 1) as i64) ^ -((raw & 1) as i64)
}

/// Takes fields off the front of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn byte(&mut self) -> Result<u8, BadRecord> {
        let (first, rest) = self.rest.split_first().ok_or(BadRecord::Cut)?;
        self.rest = rest;
        Ok(*first)
    }

    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8], BadRecord> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(BadRecord::Cut)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn varlong(&mut self) -> Result<i64, BadRecord> {
        let mut raw = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if shift == 63 && part > 1 {
                return Err(BadRecord::Number);
            }
            raw |= part << shift;
            if byte < 0x80 {
                return Ok(unzigzag(raw));
            }
        }
        Err(BadRecord::Number)
    }

    pub(crate) fn varint(&mut self) -> Result<i32, BadRecord> {
        let mut raw = 0_u32;
        for shift in (0..32).step_by(7) {
            let byte = self.byte()?;
            let part = u32::from(byte & 0x7f);
            // The fifth byte has room for four bits.
            if shift == 28 && part > 0x0f {
                return Err(BadRecord::Number);
            }
            raw |= part << shift;
            if byte < 0x80 {
                return Ok(((raw >> 1) as i32) ^ -((raw & 1) as i32));
            }
        }
        Err(BadRecord::Number)
    }

    /// A byte string with its length before it, where -1 is null.
    pub(crate) fn nullable(&mut self) -> Result<Option<&'a [u8]>, BadRecord> {
        match self.varint()? {
            -1 => Ok(None),
            length => {
                let bytes = usize::try_from(length).map_err(|_| BadRecord::Negative { length })?;
                self.take(bytes).map(Some)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(value: i64) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, value);
        out
    }

    #[test]
    fn small_numbers_are_small_and_signs_alternate() {
        for (value, bytes) in [
            (0, vec![0]),
            (-1, vec![1]),
            (1, vec![2]),
            (63, vec![0x7e]),
            (-64, vec![0x7f]),
            (64, vec![0x80, 1]),
            (i64::from(i32::MAX), vec![0xfe, 0xff, 0xff, 0xff, 0x0f]),
            (i64::from(i32::MIN), vec![0xff, 0xff, 0xff, 0xff, 0x0f]),
            (
                i64::MAX,
                vec![0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
            ),
            (
                i64::MIN,
                vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
            ),
        ] {
            assert_eq!(encoded(value), bytes, "{value}");
            assert_eq!(varint_len(value), bytes.len(), "{value}");
        }
    }

    #[test]
    fn numbers_that_do_not_end_or_do_not_fit_are_refused() {
        let endless = [0xff; 16];
        assert_eq!(Cursor::new(&endless).varint(), Err(BadRecord::Number));
        assert_eq!(Cursor::new(&endless).varlong(), Err(BadRecord::Number));
        let wide = [0xff, 0xff, 0xff, 0xff, 0x1f];
        assert_eq!(Cursor::new(&wide).varint(), Err(BadRecord::Number));
        assert_eq!(Cursor::new(&[0x80]).varint(), Err(BadRecord::Cut));
        assert_eq!(Cursor::new(&[]).varlong(), Err(BadRecord::Cut));
    }

    #[test]
    fn a_length_is_held_against_what_is_there() {
        let mut claims = encoded(i64::from(i32::MAX));
        claims.push(7);
        assert_eq!(Cursor::new(&claims).nullable(), Err(BadRecord::Cut));
        assert_eq!(
            Cursor::new(&encoded(-2)).nullable(),
            Err(BadRecord::Negative { length: -2 })
        );
        assert_eq!(Cursor::new(&encoded(-1)).nullable(), Ok(None));
    }

    proptest! {
        #[test]
        fn every_number_comes_back(value: i64) {
            let bytes = encoded(value);
            prop_assert_eq!(bytes.len(), varint_len(value));
            prop_assert!(bytes.len() <= VARINT_BYTES_MAX);
            let mut cursor = Cursor::new(&bytes);
            prop_assert_eq!(cursor.varlong(), Ok(value));
            prop_assert_eq!(cursor.left(), 0);
        }

        #[test]
        fn every_small_number_comes_back(value: i32) {
            let bytes = encoded(i64::from(value));
            prop_assert_eq!(Cursor::new(&bytes).varint(), Ok(value));
        }
    }
}
