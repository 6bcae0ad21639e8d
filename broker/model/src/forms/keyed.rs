//! The records of caches and counters.

use bytes::{Bytes, BytesMut};

use super::{
    HEADER_DELTA, HEADER_EXPIRY, HEADER_IDEMPOTENCY, HEADER_SUM, HEADER_SUM_AFTER, idempotency_key,
    malformed, number,
};
use crate::TimeMs;
use crate::batch::{BatchBuilder, BatchOptions, BatchRefused, BuildRefused, Record};

/// What one record of a cache's log says. Key and value share the memory of the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keyed {
    /// The key has this value from here on.
    Put {
        /// Of the cache entry.
        key: Bytes,
        /// Its value; may be empty.
        value: Bytes,
        /// When it stops being there; `None`: never.
        expires: Option<TimeMs>,
    },
    /// The key has no value from here on.
    Delete {
        /// Of the cache entry.
        key: Bytes,
    },
    /// The counter is `delta` higher from here on.
    Add {
        /// Of the counter.
        key: Bytes,
        /// What is added.
        delta: i64,
        /// For an add that may be sent again.
        once: Option<AddOnce>,
    },
    /// The counter is `sum` from here on, whatever was added before.
    Checkpoint {
        /// Of the counter.
        key: Bytes,
        /// Its sum.
        sum: i64,
    },
}

/// What an add that may be sent again is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddOnce {
    /// The idempotency key, 1 to 128 bytes.
    pub id: Bytes,
    /// The sum with the delta in it.
    pub sum: i64,
}

impl Keyed {
    /// Reads a record of a cache's log. Headers of other forms are passed over.
    ///
    /// # Errors
    /// When the record has no key, a header does not hold what it must, or headers exclude each other.
    pub fn read(record: &Record) -> Result<Self, BatchRefused> {
        let key = record.key.clone().ok_or_else(|| malformed("key"))?;
        let mut found = Found::default();
        for (name, value) in &record.internal {
            found.take(&name, value)?;
        }
        found.form(key, record.value.clone())
    }

    /// The key, of whichever kind.
    #[must_use]
    pub fn key(&self) -> &Bytes {
        match self {
            Self::Put { key, .. }
            | Self::Delete { key }
            | Self::Add { key, .. }
            | Self::Checkpoint { key, .. } => key,
        }
    }

    /// Whether it is a counter's record and not a cache entry's.
    #[must_use]
    pub fn is_counter(&self) -> bool {
        matches!(self, Self::Add { .. } | Self::Checkpoint { .. })
    }
}

/// The headers of one record, as far as they concern caches.
#[derive(Default)]
struct Found {
    expires: Option<TimeMs>,
    delta: Option<i64>,
    sum: Option<i64>,
    id: Option<Bytes>,
    sum_after: Option<i64>,
}

impl Found {
    fn take(&mut self, name: &Bytes, value: Option<Bytes>) -> Result<(), BatchRefused> {
        match name.as_ref() {
            HEADER_EXPIRY => {
                let expires = u64::try_from(number("x", value.as_ref())?);
                self.expires = Some(TimeMs(expires.map_err(|_| malformed("x"))?));
            }
            HEADER_DELTA => self.delta = Some(number("+", value.as_ref())?),
            HEADER_SUM => self.sum = Some(number("=", value.as_ref())?),
            HEADER_IDEMPOTENCY => self.id = Some(idempotency_key(value)?),
            HEADER_SUM_AFTER => self.sum_after = Some(number("s", value.as_ref())?),
            _ => {}
        }
        Ok(())
    }

    fn form(self, key: Bytes, value: Option<Bytes>) -> Result<Keyed, BatchRefused> {
        let once = match (self.id, self.sum_after) {
            (Some(id), Some(sum)) => Some(AddOnce { id, sum }),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return Err(malformed("i")),
        };
        match (value, self.delta, self.sum, self.expires, once) {
            (Some(value), None, None, expires, None) => Ok(Keyed::Put {
                key,
                value,
                expires,
            }),
            (None, None, None, None, None) => Ok(Keyed::Delete { key }),
            (None, Some(delta), None, None, once) => Ok(Keyed::Add { key, delta, once }),
            (None, None, Some(sum), None, None) => Ok(Keyed::Checkpoint { key, sum }),
            (_, Some(_), _, _, _) => Err(malformed("+")),
            (_, None, Some(_), _, _) => Err(malformed("=")),
            (_, None, None, Some(_), _) => Err(malformed("x")),
            (_, None, None, None, Some(_)) => Err(malformed("i")),
        }
    }
}

/// Collects records of caches and counters for one batch. All get the same time.
///
/// A record that is refused leaves the batch as it was.
#[derive(Debug)]
pub struct KeyedBuilder {
    batch: BatchBuilder,
    timestamp_ms: i64,
}

impl KeyedBuilder {
    /// A batch without records, of records made at `time`.
    #[must_use]
    pub fn new(time: TimeMs) -> Self {
        Self {
            batch: BatchBuilder::new(BatchOptions {
                internal: true,
                ..BatchOptions::default()
            }),
            timestamp_ms: milliseconds(time),
        }
    }

    /// How many records are in it.
    #[must_use]
    pub fn records(&self) -> u32 {
        self.batch.records()
    }

    /// Bytes of the batch as it stands.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.batch.bytes()
    }

    /// Adds a cache put.
    ///
    /// # Errors
    /// When the batch would pass a limit.
    pub fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        expires: Option<TimeMs>,
    ) -> Result<(), BuildRefused> {
        let expiry = expires.map(|time| milliseconds(time).to_be_bytes());
        let header = expiry
            .as_ref()
            .map(|bytes| (HEADER_EXPIRY, Some(bytes.as_slice())));
        self.push(key, Some(value), header.as_slice())
    }

    /// Adds a cache delete.
    ///
    /// # Errors
    /// When the batch would pass a limit.
    pub fn delete(&mut self, key: &[u8]) -> Result<(), BuildRefused> {
        self.push(key, None, &[])
    }

    /// Adds an add to a counter.
    ///
    /// # Errors
    /// When the batch would pass a limit.
    pub fn add(
        &mut self,
        key: &[u8],
        delta: i64,
        once: Option<(&[u8], i64)>,
    ) -> Result<(), BuildRefused> {
        let delta = delta.to_be_bytes();
        let delta = (HEADER_DELTA, Some(delta.as_slice()));
        let Some((id, sum)) = once else {
            return self.push(key, None, &[delta]);
        };
        let sum = sum.to_be_bytes();
        let headers = [
            delta,
            (HEADER_IDEMPOTENCY, Some(id)),
            (HEADER_SUM_AFTER, Some(sum.as_slice())),
        ];
        self.push(key, None, &headers)
    }

    /// Adds the checkpoint of a counter.
    ///
    /// # Errors
    /// When the batch would pass a limit.
    pub fn checkpoint(&mut self, key: &[u8], sum: i64) -> Result<(), BuildRefused> {
        let sum = sum.to_be_bytes();
        self.push(key, None, &[(HEADER_SUM, Some(sum.as_slice()))])
    }

    /// The batch: base offset 0, leader epoch 0, checksum in place.
    ///
    /// # Errors
    /// When there is no record in it.
    pub fn finish(self) -> Result<BytesMut, BuildRefused> {
        self.batch.finish()
    }

    fn push(
        &mut self,
        key: &[u8],
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> Result<(), BuildRefused> {
        self.batch
            .push(self.timestamp_ms, Some(key), value, headers)
    }
}

fn milliseconds(time: TimeMs) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}
