//! Names of things. A name that exists is valid: it was checked when it was made, and everything that
//! takes one relies on it, down to the directory on disk that bears it.
//!
//! Names of tenants, namespaces, streams and caches are 1 to 128 ASCII letters, digits, `-`, `_` and
//! `.`, and begin with a letter or digit. So `.` and `..` are no names, nothing in a name separates
//! paths, no two names look alike, and a name that begins with `_` is free for internal use.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::limits::{NAME_BYTES_MAX, NODE_ID_BYTES_MAX};

/// Why a string is not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// There is nothing in it.
    #[error("a name must not be empty")]
    Empty,
    /// It has more bytes than a name of its kind may have.
    #[error("a name of {bytes} bytes is over the limit of {limit}")]
    TooLong {
        /// What was given.
        bytes: usize,
        /// What is allowed.
        limit: usize,
    },
    /// It begins with a character that is only allowed later.
    #[error("a name begins with a letter or digit, not with byte 0x{byte:02x}")]
    Start {
        /// The first byte.
        byte: u8,
    },
    /// It holds a byte that no name may hold.
    #[error("byte 0x{byte:02x} at position {at} is not allowed in a name")]
    Byte {
        /// Which byte.
        byte: u8,
        /// Where it stands, from 0.
        at: usize,
    },
}

/// Which characters a kind of name is made of.
#[derive(Clone, Copy)]
enum Alphabet {
    /// Letters of both cases.
    Name,
    /// As host names: small letters only, so that two spellings never mean one machine.
    Host,
}

impl Alphabet {
    fn is_letter_or_digit(self, byte: u8) -> bool {
        match self {
            Self::Name => byte.is_ascii_alphanumeric(),
            Self::Host => byte.is_ascii_lowercase() || byte.is_ascii_digit(),
        }
    }

    fn check(self, text: &str, limit: usize) -> Result<(), BadName> {
        let first = *text.as_bytes().first().ok_or(BadName::Empty)?;
        if text.len() > limit {
            return Err(BadName::TooLong {
                bytes: text.len(),
                limit,
            });
        }
        if let Some((at, byte)) = text.bytes().enumerate().find(|(_, byte)| {
            !self.is_letter_or_digit(*byte) && !matches!(*byte, b'-' | b'_' | b'.')
        }) {
            return Err(BadName::Byte { byte, at });
        }
        if !self.is_letter_or_digit(first) {
            return Err(BadName::Start { byte: first });
        }
        Ok(())
    }
}

/// Declares a kind of name: a shared string that was checked once.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $alphabet:expr, $limit:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks a string and makes it a name.
            ///
            /// # Errors
            /// Says which rule the string breaks, and where.
            pub fn new(text: &str) -> Result<Self, BadName> {
                Self::check(text)?;
                Ok(Self(Arc::from(text)))
            }

            /// Checks a string without keeping it, for a look-up that may miss.
            ///
            /// # Errors
            /// As [`Self::new`].
            pub fn check(text: &str) -> Result<(), BadName> {
                $alphabet.check(text, $limit)
            }

            /// The name as it is written.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = BadName;

            fn from_str(text: &str) -> Result<Self, BadName> {
                Self::new(text)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = BadName;

            fn try_from(text: &str) -> Result<Self, BadName> {
                Self::new(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        // Maps keyed by names are asked with borrowed text straight from a frame.
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                &*self.0 == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                &*self.0 == *other
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = Cow::<'de, str>::deserialize(deserializer)?;
                Self::new(&text).map_err(de::Error::custom)
            }
        }
    };
}

name! {
    /// Who owns a set of namespaces. Nothing is shared between tenants.
    TenantId, Alphabet::Name, NAME_BYTES_MAX
}

name! {
    /// A group of streams and caches within a tenant.
    Namespace, Alphabet::Name, NAME_BYTES_MAX
}

name! {
    /// A stream within its namespace.
    StreamName, Alphabet::Name, NAME_BYTES_MAX
}

name! {
    /// A cache within its namespace.
    CacheName, Alphabet::Name, NAME_BYTES_MAX
}

name! {
    /// A cluster. Data directories and peers of another cluster are refused by it.
    ClusterId, Alphabet::Name, NAME_BYTES_MAX
}

name! {
    /// A broker within its cluster. A host name is a valid node id, hence the length and the small
    /// letters.
    NodeId, Alphabet::Host, NODE_ID_BYTES_MAX
}

/// The full name of a stream; written `tenant/namespace/stream`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StreamId {
    /// Whose it is.
    pub tenant: TenantId,
    /// Where it stands.
    pub namespace: Namespace,
    /// What it is called there.
    pub stream: StreamName,
}

impl StreamId {
    /// Checks the three parts of a full name.
    ///
    /// # Errors
    /// The first part that is not a name.
    pub fn new(tenant: &str, namespace: &str, stream: &str) -> Result<Self, BadName> {
        Ok(Self {
            tenant: TenantId::new(tenant)?,
            namespace: Namespace::new(namespace)?,
            stream: StreamName::new(stream)?,
        })
    }

    /// The broker's own stream of what groups of the Kafka protocol commit. Its parts are no names, so that nobody can
    /// create it, ask for it, or be given a right to it.
    #[must_use]
    pub fn kafka_groups() -> Self {
        Self {
            tenant: TenantId(Arc::from("_felix")),
            namespace: Namespace(Arc::from("_system")),
            stream: StreamName(Arc::from("_groups")),
        }
    }

    /// The stream that a directory of a disk belongs to: as [`Self::new`], and the broker's own besides.
    ///
    /// # Errors
    /// The first part that is not a name.
    pub fn on_disk(tenant: &str, namespace: &str, stream: &str) -> Result<Self, BadName> {
        let own = Self::kafka_groups();
        if own.tenant == *tenant && own.namespace == *namespace && own.stream == *stream {
            return Ok(own);
        }
        Self::new(tenant, namespace, stream)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.tenant, self.namespace, self.stream)
    }
}

/// The full name of a cache; written `tenant/namespace/cache`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CacheId {
    /// Whose it is.
    pub tenant: TenantId,
    /// Where it stands.
    pub namespace: Namespace,
    /// What it is called there.
    pub cache: CacheName,
}

impl CacheId {
    /// Checks the three parts of a full name.
    ///
    /// # Errors
    /// The first part that is not a name.
    pub fn new(tenant: &str, namespace: &str, cache: &str) -> Result<Self, BadName> {
        Ok(Self {
            tenant: TenantId::new(tenant)?,
            namespace: Namespace::new(namespace)?,
            cache: CacheName::new(cache)?,
        })
    }
}

impl fmt::Display for CacheId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.tenant, self.namespace, self.cache)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_is_a_name_and_what_is_not() {
        let long = "a".repeat(128);
        for good in [
            "a",
            "0",
            "orders",
            "Orders-2.eu_west",
            "a..b",
            "a-",
            long.as_str(),
        ] {
            assert_eq!(StreamName::new(good).unwrap().as_str(), good);
        }
        let too_long = "a".repeat(129);
        for (bad, why) in [
            ("", BadName::Empty),
            (".", BadName::Start { byte: b'.' }),
            ("..", BadName::Start { byte: b'.' }),
            ("_groups", BadName::Start { byte: b'_' }),
            ("-rf", BadName::Start { byte: b'-' }),
            ("a/b", BadName::Byte { byte: b'/', at: 1 }),
            ("../etc", BadName::Byte { byte: b'/', at: 2 }),
            ("a\0", BadName::Byte { byte: 0, at: 1 }),
            ("a b", BadName::Byte { byte: b' ', at: 1 }),
            ("a*", BadName::Byte { byte: b'*', at: 1 }),
            ("a:b", BadName::Byte { byte: b':', at: 1 }),
            ("ordérs", BadName::Byte { byte: 0xc3, at: 3 }),
            (
                too_long.as_str(),
                BadName::TooLong {
                    bytes: 129,
                    limit: 128,
                },
            ),
        ] {
            assert_eq!(StreamName::new(bad), Err(why), "{bad:?}");
        }
    }

    #[test]
    fn node_ids_are_spelt_like_host_names() {
        let long = "a".repeat(253);
        for good in [
            "n1",
            "broker-0.felix.svc.cluster.local",
            "a_b",
            long.as_str(),
        ] {
            assert!(NodeId::new(good).is_ok(), "{good}");
        }
        assert_eq!(NodeId::new("N1"), Err(BadName::Byte { byte: b'N', at: 0 }));
        assert_eq!(
            NodeId::new(&"a".repeat(254)),
            Err(BadName::TooLong {
                bytes: 254,
                limit: 253
            })
        );
    }

    #[test]
    fn a_map_keyed_by_names_is_asked_with_plain_text() {
        let names = BTreeMap::from([(StreamName::new("orders").unwrap(), 7)]);
        assert_eq!(names.get("orders"), Some(&7));
        assert_eq!(names.get("ordrs"), None);
    }

    #[test]
    fn json_holds_plain_strings_and_refuses_bad_ones() {
        let id = StreamId::new("acme", "default", "orders").unwrap();
        assert_eq!(id.to_string(), "acme/default/orders");
        let text = serde_json::to_string(&id).unwrap();
        assert_eq!(
            text,
            r#"{"tenant":"acme","namespace":"default","stream":"orders"}"#
        );
        assert_eq!(serde_json::from_str::<StreamId>(&text).unwrap(), id);
        assert!(serde_json::from_str::<TenantId>(r#""..""#).is_err());
    }
}
