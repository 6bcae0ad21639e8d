//! Reading fields off a payload without copying or trusting it.

use bytes::{Buf as _, Bytes};
use felix_model::PayloadsRefused;

/// A payload that is not laid out as its flags say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It ends inside a field.
    #[error("the payload ends inside {field}, {missing} bytes early")]
    Truncated {
        /// The field.
        field: &'static str,
        /// How many bytes are missing, at least.
        missing: usize,
    },
    /// A field that is text is not UTF-8.
    #[error("{field} is not UTF-8")]
    NotText {
        /// The field.
        field: &'static str,
    },
    /// A field has a value that stands for nothing.
    #[error("{field} cannot be {value}")]
    Value {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// Something stands behind the last field.
    #[error("{bytes} bytes stand behind the last field")]
    Behind {
        /// How many bytes.
        bytes: usize,
    },
    /// A count is larger than what follows can hold.
    #[error("{count} events cannot stand in the {bytes} bytes that follow")]
    Count {
        /// The count.
        count: u32,
        /// How much follows.
        bytes: usize,
    },
    /// The payload list is none, or longer than a batch may be.
    #[error(transparent)]
    Payloads(#[from] PayloadsRefused),
}

/// A position in a payload. Slices it hands out share the payload's memory.
#[derive(Clone, Debug)]
pub(crate) struct Cursor(pub(crate) Bytes);

impl Cursor {
    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, Malformed> {
        self.needs(1, field)?;
        Ok(self.0.get_u8())
    }

    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, Malformed> {
        self.needs(2, field)?;
        Ok(self.0.get_u16())
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, Malformed> {
        self.needs(4, field)?;
        Ok(self.0.get_u32())
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, Malformed> {
        self.needs(8, field)?;
        Ok(self.0.get_u64())
    }

    pub(crate) fn i64(&mut self, field: &'static str) -> Result<i64, Malformed> {
        self.needs(8, field)?;
        Ok(self.0.get_i64())
    }

    pub(crate) fn bytes(&mut self, len: usize, field: &'static str) -> Result<Bytes, Malformed> {
        self.needs(len, field)?;
        Ok(self.0.split_to(len))
    }

    /// Bytes behind a two-byte length.
    pub(crate) fn short(&mut self, field: &'static str) -> Result<Bytes, Malformed> {
        let len = self.u16(field)?;
        self.bytes(len.into(), field)
    }

    /// Text behind a two-byte length, copied.
    pub(crate) fn string(&mut self, field: &'static str) -> Result<String, Malformed> {
        let bytes = self.short(field)?;
        str(&bytes, field).map(Into::into)
    }

    fn needs(&self, len: usize, field: &'static str) -> Result<(), Malformed> {
        match len.checked_sub(self.0.len()) {
            None | Some(0) => Ok(()),
            Some(missing) => Err(Malformed::Truncated { field, missing }),
        }
    }
}

/// Steps over text behind a two-byte length, and says how long it is.
pub(crate) fn skip_text(rest: &mut &[u8], field: &'static str) -> Result<usize, Malformed> {
    let short = |missing| Malformed::Truncated { field, missing };
    let Some((length, behind)) = rest.split_first_chunk() else {
        return Err(short(2 - rest.len()));
    };
    let length = usize::from(u16::from_be_bytes(*length));
    let Some((text, behind)) = behind.split_at_checked(length) else {
        return Err(short(length - behind.len()));
    };
    str(text, field)?;
    *rest = behind;
    Ok(length)
}

pub(crate) fn str<'a>(bytes: &'a [u8], field: &'static str) -> Result<&'a str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed::NotText { field })
}
