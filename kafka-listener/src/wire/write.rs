//! Writing primitives of the Kafka protocol, for the answers that are written by hand.

use bytes::{BufMut, BytesMut};

/// Writes fields in the plain or the compact form.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) out: BytesMut,
    flexible: bool,
}

impl Writer {
    pub(crate) fn new(flexible: bool, room: usize) -> Self {
        Self {
            out: BytesMut::with_capacity(room),
            flexible,
        }
    }

    pub(crate) fn i16(&mut self, value: i16) {
        self.out.put_i16(value);
    }

    pub(crate) fn i32(&mut self, value: i32) {
        self.out.put_i32(value);
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.out.put_i64(value);
    }

    pub(crate) fn uuid(&mut self, value: &[u8; 16]) {
        self.out.put_slice(value);
    }

    pub(crate) fn varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.out.put_u8((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.out.put_u8((value & 0x7f) as u8);
    }

    /// The count of an array that is not null.
    pub(crate) fn count(&mut self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX - 1);
        if self.flexible {
            self.varint(count + 1);
        } else {
            self.out.put_u32(count);
        }
    }

    /// An array that is null.
    pub(crate) fn null_count(&mut self) {
        if self.flexible {
            self.varint(0);
        } else {
            self.out.put_i32(-1);
        }
    }

    /// A text; longer ones than the format allows are cut.
    pub(crate) fn text(&mut self, text: &[u8]) {
        let text = text
            .get(..text.len().min(i16::MAX as usize))
            .unwrap_or(text);
        if self.flexible {
            self.varint(text.len() as u32 + 1);
        } else {
            self.out.put_u16(text.len() as u16);
        }
        self.out.put_slice(text);
    }

    pub(crate) fn null_text(&mut self) {
        if self.flexible {
            self.varint(0);
        } else {
            self.out.put_i16(-1);
        }
    }

    /// The length of bytes that follow.
    pub(crate) fn blob_length(&mut self, length: usize) {
        self.count(length);
    }

    /// The end of a structure without tagged fields.
    pub(crate) fn no_tags(&mut self) {
        if self.flexible {
            self.out.put_u8(0);
        }
    }
}
