//! How a call's fields stand in a frame. One table per call says their order; this says the rest.

use std::fmt;
use std::marker::PhantomData;

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::cursor::{Cursor, Malformed, str};
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::publish::PublishTooLong;

/// The length that stands for no bytes at all, which is not the same as none long.
const ABSENT: u32 = u32::MAX;

/// Something that can be a field of a call or an item of a list.
pub(in crate::extension) trait Field: Sized {
    fn put(&self, into: &mut BytesMut, field: &'static str) -> Result<(), PublishTooLong>;
    fn read(cursor: &mut Cursor, field: &'static str) -> Result<Self, Malformed>;
}

/// Something that can be an item of a list.
#[expect(
    private_bounds,
    reason = "what can be an item is decided in this module"
)]
pub trait Item: Field {}

impl<T: Field> Item for T {}

/// A field whose presence is a bit of the frame's flags.
pub(in crate::extension) trait Flagged: Sized {
    fn is_set(&self) -> bool;
    fn put(&self, into: &mut BytesMut, field: &'static str) -> Result<(), PublishTooLong>;
    fn read(set: bool, cursor: &mut Cursor, field: &'static str) -> Result<Self, Malformed>;
}

macro_rules! number {
    ($type:ty, $put:ident, $read:ident) => {
        impl Field for $type {
            fn put(&self, into: &mut BytesMut, _field: &'static str) -> Result<(), PublishTooLong> {
                into.$put(*self);
                Ok(())
            }

            fn read(cursor: &mut Cursor, field: &'static str) -> Result<Self, Malformed> {
                cursor.$read(field)
            }
        }
    };
}

number!(u16, put_u16, u16);
number!(u32, put_u32, u32);
number!(u64, put_u64, u64);
number!(i64, put_i64, i64);

impl Field for i16 {
    fn put(&self, into: &mut BytesMut, _field: &'static str) -> Result<(), PublishTooLong> {
        into.put_i16(*self);
        Ok(())
    }

    fn read(cursor: &mut Cursor, field: &'static str) -> Result<Self, Malformed> {
        cursor.u16(field).map(u16::cast_signed)
    }
}

/// Bytes behind a four-byte length.
impl Field for Bytes {
    fn put(&self, into: &mut BytesMut, field: &'static str) -> Result<(), PublishTooLong> {
        into.put_u32(length(self.len(), field)?);
        into.put_slice(self);
        Ok(())
    }

    fn read(cursor: &mut Cursor, field: &'static str) -> Result<Self, Malformed> {
        let length = cursor.u32(field)?;
        cursor.bytes(length.try_into().unwrap_or(usize::MAX), field)
    }
}

/// Bytes behind a four-byte length, of which the largest says that there are none.
impl Field for Option<Bytes> {
    fn put(&self, into: &mut BytesMut, field: &'static str) -> Result<(), PublishTooLong> {
        match self {
            Some(bytes) => bytes.put(into, field),
            None => {
                into.put_u32(ABSENT);
                Ok(())
            }
        }
    }

    fn read(cursor: &mut Cursor, field: &'static str) -> Result<Self, Malformed> {
        let length = cursor.u32(field)?;
        if length == ABSENT {
            return Ok(None);
        }
        let length = length.try_into().unwrap_or(usize::MAX);
        cursor.bytes(length, field).map(Some)
    }
}

macro_rules! maybe {
    ($type:ty) => {
        /// A byte that says whether there is one, and it.
        impl Field for Option<$type> {
            fn put(&self, into: &mut BytesMut, field: &'static str) -> Result<(), PublishTooLong> {
                into.put_u8(self.is_some().into());
                self.as_ref().map_or(Ok(()), |value| value.put(into, field))
            }

            fn read(cursor: &mut Cursor, field: &'static str) -> Result<Self, Malformed> {
                match cursor.u8(field)? {
                    0 => Ok(None),
                    1 => <$type as Field>::read(cursor, field).map(Some),
                    other => Err(Malformed::Value {
                        field,
                        value: other.into(),
                    }),
                }
            }
        }
    };
}

maybe!(u64);
maybe!(Text);

impl Flagged for bool {
    fn is_set(&self) -> bool {
        *self
    }

    fn put(&self, _into: &mut BytesMut, _field: &'static str) -> Result<(), PublishTooLong> {
        Ok(())
    }

    fn read(set: bool, _cursor: &mut Cursor, _field: &'static str) -> Result<Self, Malformed> {
        Ok(set)
    }
}

impl<T: Field> Flagged for Option<T> {
    fn is_set(&self) -> bool {
        self.is_some()
    }

    fn put(&self, into: &mut BytesMut, field: &'static str) -> Result<(), PublishTooLong> {
        self.as_ref().map_or(Ok(()), |value| value.put(into, field))
    }

    fn read(set: bool, cursor: &mut Cursor, field: &'static str) -> Result<Self, Malformed> {
        set.then(|| T::read(cursor, field)).transpose()
    }
}

/// Text that shares the frame's memory. It stands behind a two-byte length.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(Bytes);

impl Text {
    /// The text. It was seen to be one when it was read or made.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The same as bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Field for Text {
    fn put(&self, into: &mut BytesMut, field: &'static str) -> Result<(), PublishTooLong> {
        crate::publish::put_short(into, &self.0, field)
    }

    fn read(cursor: &mut Cursor, field: &'static str) -> Result<Self, Malformed> {
        let bytes = cursor.short(field)?;
        str(&bytes, field)?;
        Ok(Self(bytes))
    }
}

/// A list as it stands in the frame: a four-byte count, then the items one behind the other. It was
/// walked once when it was read, so that its items can be taken off it without copying them into a
/// list of their own, which for short items would cost many times the bytes received.
pub struct List<T> {
    raw: Bytes,
    count: u32,
    items: PhantomData<fn() -> T>,
}

#[expect(
    private_bounds,
    reason = "what can be an item is decided in this module"
)]
impl<T: Field> List<T> {
    /// A list of these items.
    ///
    /// # Errors
    /// When an item is too long for its length, or the list for any frame.
    pub fn build(items: impl IntoIterator<Item = T>) -> Result<Self, PublishTooLong> {
        let mut raw = BytesMut::new();
        let mut count = 0;
        for item in items {
            item.put(&mut raw, "item")?;
            if raw.len() > PAYLOAD_BYTES_MAX {
                return Err(PublishTooLong::Frame {
                    length: raw.len(),
                    limit: PAYLOAD_BYTES_MAX,
                });
            }
            count += 1;
        }
        Ok(Self {
            raw: raw.freeze(),
            count,
            items: PhantomData,
        })
    }

    /// The items. They share the frame's memory.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<T> {
        let mut cursor = Cursor(self.raw.clone());
        std::iter::from_fn(move || {
            (!cursor.0.is_empty())
                .then(|| T::read(&mut cursor, "item").ok())
                .flatten()
        })
    }
}

impl<T> List<T> {
    /// How many items there are.
    pub fn len(&self) -> usize {
        self.count.try_into().unwrap_or(usize::MAX)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many bytes the items take in the frame.
    pub fn bytes_len(&self) -> usize {
        self.raw.len()
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self {
            raw: Bytes::new(),
            count: 0,
            items: PhantomData,
        }
    }
}

impl<T> Clone for List<T> {
    fn clone(&self) -> Self {
        Self {
            raw: self.raw.clone(),
            count: self.count,
            items: PhantomData,
        }
    }
}

impl<T> PartialEq for List<T> {
    fn eq(&self, other: &Self) -> bool {
        self.count == other.count && self.raw == other.raw
    }
}

impl<T> Eq for List<T> {}

impl<T: Item + fmt::Debug> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: Field> Field for List<T> {
    fn put(&self, into: &mut BytesMut, _field: &'static str) -> Result<(), PublishTooLong> {
        into.put_u32(self.count);
        into.put_slice(&self.raw);
        Ok(())
    }

    fn read(cursor: &mut Cursor, field: &'static str) -> Result<Self, Malformed> {
        let count = cursor.u32(field)?;
        let mut walk = cursor.clone();
        // An item takes a byte at least, so the walk ends with the frame whatever the count says.
        for _ in 0..count {
            T::read(&mut walk, field)?;
        }
        let raw = cursor.bytes(cursor.0.len() - walk.0.len(), field)?;
        Ok(Self {
            raw,
            count,
            items: PhantomData,
        })
    }
}

/// Declares a struct whose fields stand in a frame in their order. One with `= flag` is there when
/// the frame's flag is set; one that is a `bool` then is the flag and nothing else.
macro_rules! layout {
    (
        $(#[$meta:meta])*
        $name:ident {
            $( $(#[$field_meta:meta])* $field:ident : $type:ty $(= $flag:literal)? , )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $type, )*
        }

        impl $crate::extension::requests::Body for $name {
            const FLAGS: u16 = 0 $( $( | $flag )? )*;

            fn put(
                &self,
                into: &mut bytes::BytesMut,
            ) -> Result<u16, $crate::publish::PublishTooLong> {
                #[allow(unused_mut, clippy::allow_attributes, reason = "some have no flags")]
                let mut flags = 0;
                $( $crate::extension::requests::field::layout!(
                    @put self, into, flags, $field $(, $flag)?
                ); )*
                let _ = into;
                Ok(flags)
            }

            fn read(
                flags: u16,
                cursor: &mut $crate::cursor::Cursor,
            ) -> Result<Self, $crate::cursor::Malformed> {
                let _ = (flags, &cursor);
                $( let $field = $crate::extension::requests::field::layout!(
                    @read flags, cursor, $field $(, $flag)?
                ); )*
                Ok(Self { $( $field, )* })
            }
        }
    };
    (@put $self:ident, $into:ident, $flags:ident, $field:ident) => {
        $crate::extension::requests::field::Field::put(&$self.$field, $into, stringify!($field))?
    };
    (@put $self:ident, $into:ident, $flags:ident, $field:ident, $flag:literal) => {
        if $crate::extension::requests::field::Flagged::is_set(&$self.$field) {
            $flags |= $flag;
            $crate::extension::requests::field::Flagged::put(
                &$self.$field, $into, stringify!($field),
            )?;
        }
    };
    (@read $flags:ident, $cursor:ident, $field:ident) => {
        $crate::extension::requests::field::Field::read($cursor, stringify!($field))?
    };
    (@read $flags:ident, $cursor:ident, $field:ident, $flag:literal) => {
        $crate::extension::requests::field::Flagged::read(
            $flags & $flag != 0, $cursor, stringify!($field),
        )?
    };
}

/// Declares a struct that is an item of lists: its fields stand in their order, all of them.
macro_rules! item {
    (
        $(#[$meta:meta])*
        $name:ident {
            $( $(#[$field_meta:meta])* $field:ident : $type:ty , )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $type, )*
        }

        impl $crate::extension::requests::field::Field for $name {
            fn put(
                &self,
                into: &mut bytes::BytesMut,
                _field: &'static str,
            ) -> Result<(), $crate::publish::PublishTooLong> {
                $( $crate::extension::requests::field::Field::put(
                    &self.$field, into, stringify!($field),
                )?; )*
                Ok(())
            }

            fn read(
                cursor: &mut $crate::cursor::Cursor,
                _field: &'static str,
            ) -> Result<Self, $crate::cursor::Malformed> {
                $( let $field = $crate::extension::requests::field::Field::read(
                    cursor, stringify!($field),
                )?; )*
                Ok(Self { $( $field, )* })
            }
        }
    };
}

pub(in crate::extension) use {item, layout};

pub(in crate::extension) fn length(
    length: usize,
    field: &'static str,
) -> Result<u32, PublishTooLong> {
    u32::try_from(length)
        .ok()
        .filter(|&length| length != ABSENT)
        .ok_or(PublishTooLong::Field { field, length })
}
