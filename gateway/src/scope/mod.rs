//! What a scope is: the streams, caches and counters that a browser sees under one value of the scope's field, what it may
//! do with them, and how much.

pub(crate) mod buckets;
mod file;

use std::time::Duration;

pub use file::ScopeRefused;

use self::buckets::Rates;

/// The scope file, checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scope {
    /// The key under which `join` carries the scope's value.
    pub(crate) field: String,
    pub(crate) streams: Vec<Stream>,
    pub(crate) caches: Vec<Cache>,
    pub(crate) counters: Vec<Counter>,
    /// Namespaces that a join may name; empty: only the configured one.
    pub(crate) namespaces: Vec<String>,
    /// Whether `throttle` is answered.
    pub(crate) allow_throttle: bool,
    pub(crate) limits: Limits,
}

/// What every resource of a scope has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resource {
    /// What browsers call it.
    pub(crate) alias: String,
    name: String,
    /// Whether a person without the right to it may join all the same.
    pub(crate) optional: bool,
    /// Writes of one session to it.
    pub(crate) rate: Rates,
}

/// A stream of the scope.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stream {
    pub(crate) resource: Resource,
    pub(crate) publish: bool,
    pub(crate) subscribe: bool,
    /// Whether payloads get their publisher in front.
    pub(crate) stamp_sender: bool,
    /// Bytes, decoded.
    pub(crate) payload_bytes_max: usize,
}

/// A cache of the scope.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cache {
    pub(crate) resource: Resource,
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) watch: bool,
    pub(crate) ttl: Option<Duration>,
    /// Bytes, decoded.
    pub(crate) payload_bytes_max: usize,
}

/// Counters of the scope.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Counter {
    pub(crate) resource: Resource,
}

/// How much a browser and a person may do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limits {
    /// Largest payload of any resource, bytes, decoded.
    pub(crate) payload_bytes_max: usize,
    /// 0: no limit.
    pub(crate) sessions_per_principal: usize,
    /// 0: no limit.
    pub(crate) sessions_per_ip: usize,
    /// How many entries of `X-Forwarded-For`, from the right, were written by proxies of one's own.
    pub(crate) trusted_proxies: usize,
    pub(crate) session: Rates,
    pub(crate) principal: Rates,
}

impl Resource {
    /// Its name at the broker for one value of the scope's field.
    pub(crate) fn name_in(&self, value: &str) -> String {
        self.name.replace("{scope}", value)
    }
}

impl Scope {
    /// Reads the text of a scope file.
    ///
    /// # Errors
    /// [`ScopeRefused`] names the key.
    pub(crate) fn parse(text: &str) -> Result<Self, ScopeRefused> {
        file::parse(text)
    }

    /// Largest message of a browser that is read: the largest payload in base64, and what stands around it.
    pub(crate) fn message_bytes_max(&self) -> usize {
        self.limits.payload_bytes_max.div_ceil(3) * 4 + 16 * 1024
    }

    pub(crate) fn stream(&self, alias: &str) -> Option<usize> {
        position(self.streams.iter().map(|one| &one.resource), alias)
    }

    pub(crate) fn cache(&self, alias: &str) -> Option<usize> {
        position(self.caches.iter().map(|one| &one.resource), alias)
    }

    pub(crate) fn counter(&self, alias: &str) -> Option<usize> {
        position(self.counters.iter().map(|one| &one.resource), alias)
    }
}

fn position<'a>(mut all: impl Iterator<Item = &'a Resource>, alias: &str) -> Option<usize> {
    all.position(|one| one.alias == alias)
}

/// Whether this may be a scope's value, an alias, or a key of a cache or counter.
pub(crate) fn is_plain(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=64).contains(&text.len()) && text.bytes().all(plain)
}
