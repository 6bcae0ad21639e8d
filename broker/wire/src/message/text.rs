//! The rules for single fields: strict base64, `null` as absent, lists of a known size.
//!
//! Lists are read twice, once to count and once to fill, and neither reading buffers anything, so
//! that decoding a message needs no more memory than a small multiple of its bytes.

use std::fmt;
use std::marker::PhantomData;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::limits::NAMES_MAX;

/// JSON that is passed on as the text it arrived as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawJson(Box<str>);

impl RawJson {
    /// Takes a text over if it is one JSON value.
    ///
    /// # Errors
    /// When the text is not JSON.
    pub fn new(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<&RawValue>(text).map(|raw| Self(raw.get().into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(|raw| Self(raw.get().into()))
    }
}

/// Reads a field whose absence and whose `null` both mean its default.
// protocol: message.3
pub(super) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Whether a field is left out because it says nothing.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Reads a list into a vector of exactly its length.
pub(super) fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    fill(<&RawValue>::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// Reads a list that may be absent or `null`.
pub(super) fn optional_list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let raw = Option::<&RawValue>::deserialize(deserializer)?;
    raw.map_or_else(|| Ok(Vec::new()), fill)
        .map_err(D::Error::custom)
}

/// Reads a short list of names. A name costs far more memory than the four bytes it may arrive
/// in, so their number is bounded.
pub(super) fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let Some(raw) = Option::<&RawValue>::deserialize(deserializer)? else {
        return Ok(Vec::new());
    };
    let count = count(raw).map_err(D::Error::custom)?;
    if count > NAMES_MAX {
        return Err(D::Error::custom(format_args!(
            "{count} names are over {NAMES_MAX}"
        )));
    }
    fill(raw).map_err(D::Error::custom)
}

fn count(raw: &RawValue) -> Result<usize, serde_json::Error> {
    struct Counter;

    impl<'de> Visitor<'de> for Counter {
        type Value = usize;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<usize, A::Error> {
            let mut count = 0;
            while items.next_element::<IgnoredAny>()?.is_some() {
                count += 1;
            }
            Ok(count)
        }
    }

    serde_json::Deserializer::from_str(raw.get()).deserialize_seq(Counter)
}

fn fill<'de, T: Deserialize<'de>>(raw: &'de RawValue) -> Result<Vec<T>, serde_json::Error> {
    struct Filler<T>(usize, PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Filler<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::with_capacity(self.0);
            while let Some(item) = items.next_element()? {
                list.push(item);
            }
            Ok(list)
        }
    }

    let filler = Filler(count(raw)?, PhantomData);
    serde_json::Deserializer::from_str(raw.get()).deserialize_seq(filler)
}

/// Bytes as base64.
pub(super) mod bytes {
    use super::{Base64, STANDARD, Text};
    use ::bytes::Bytes;
    use base64::display::Base64Display;
    use serde::{Deserializer, Serializer, de::DeserializeSeed as _};

    pub(in crate::message) fn serialize<S: Serializer>(
        bytes: &Bytes,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(bytes, &STANDARD))
    }

    pub(in crate::message) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Bytes, D::Error> {
        let mut decoded = Vec::new();
        Base64(Text::new(&mut decoded)).deserialize(deserializer)?;
        Ok(decoded.into())
    }
}

/// Bytes as base64, or `null`.
pub(super) mod optional_bytes {
    use std::fmt;

    use ::bytes::Bytes;
    use serde::de::{Error, Visitor};
    use serde::{Deserializer, Serializer};

    pub(in crate::message) fn serialize<S: Serializer>(
        bytes: &Option<Bytes>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match bytes {
            Some(bytes) => super::bytes::serialize(bytes, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(in crate::message) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Bytes>, D::Error> {
        struct Maybe;

        impl<'de> Visitor<'de> for Maybe {
            type Value = Option<Bytes>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("base64 or null")
            }

            fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
                Ok(None)
            }

            fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
                Ok(None)
            }

            fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Self::Value, D::Error> {
                super::bytes::deserialize(inner).map(Some)
            }
        }

        deserializer.deserialize_option(Maybe)
    }
}

/// A list of payloads as a list of base64.
pub(super) mod payloads {
    use std::fmt;

    use ::bytes::Bytes;
    use base64::display::Base64Display;
    use felix_model::Payloads;
    use serde::de::{Error as _, SeqAccess, Visitor};
    use serde::{Deserialize as _, Deserializer, Serializer};
    use serde_json::value::RawValue;

    use super::{Base64, STANDARD, Text};

    pub(in crate::message) fn serialize<S: Serializer>(
        payloads: &Payloads,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        struct Encoded<'a>(&'a [u8]);

        impl serde::Serialize for Encoded<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(&Base64Display::new(self.0, &STANDARD))
            }
        }

        serializer.collect_seq(payloads.iter().map(Encoded))
    }

    /// Decodes straight into the layout that binary frames carry, in one buffer of a size known
    /// before: a payload costs its length prefix and three quarters of its text.
    pub(in crate::message) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Payloads, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        let count = super::count(raw).map_err(D::Error::custom)?;
        let count = u32::try_from(count).map_err(D::Error::custom)?;
        let room = 4 * (1 + count as usize) + raw.get().len() / 4 * 3;
        let mut list = Vec::with_capacity(room);
        list.extend_from_slice(&count.to_be_bytes());
        serde_json::Deserializer::from_str(raw.get())
            .deserialize_seq(Into(&mut list))
            .map_err(D::Error::custom)?;
        Payloads::parse(Bytes::from(list)).map_err(D::Error::custom)
    }

    struct Into<'a>(&'a mut Vec<u8>);

    impl<'de> Visitor<'de> for Into<'_> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of base64")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
            while items
                .next_element_seed(Base64(Text::prefixed(self.0)))?
                .is_some()
            {}
            Ok(())
        }
    }
}

/// Where decoded bytes go: behind what a buffer holds already, with or without a length before
/// them.
struct Text<'a> {
    into: &'a mut Vec<u8>,
    prefixed: bool,
}

impl<'a> Text<'a> {
    fn new(into: &'a mut Vec<u8>) -> Self {
        Self {
            into,
            prefixed: false,
        }
    }

    fn prefixed(into: &'a mut Vec<u8>) -> Self {
        Self {
            into,
            prefixed: true,
        }
    }
}

/// Decodes one base64 string: standard alphabet, padding required, no stray bits.
// protocol: message.4
struct Base64<'a>(Text<'a>);

impl<'de> DeserializeSeed<'de> for Base64<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Base64<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("base64")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        let Text { into, prefixed } = self.0;
        let padding = text
            .bytes()
            .rev()
            .take(2)
            .take_while(|&byte| byte == b'=')
            .count();
        let size = (text.len() / 4 * 3).saturating_sub(padding);
        if prefixed {
            let size = u32::try_from(size).map_err(E::custom)?;
            into.extend_from_slice(&size.to_be_bytes());
        }
        let start = into.len();
        into.reserve_exact(size);
        into.resize(start + size, 0);
        let room = into.get_mut(start..).unwrap_or_default();
        match STANDARD.decode_slice(text, room) {
            Ok(decoded) if decoded == size => Ok(()),
            Ok(_) | Err(_) => Err(E::custom("not base64 with padding")),
        }
    }
}
