//! Commits and scheduled records.

use bytes::Bytes;

use super::{
    HEADER_IDEMPOTENCY, HEADER_NO_CHANGE, HEADER_SCHEDULE, PREFIX_DELETE, PREFIX_PUT,
    idempotency_key, malformed,
};
use crate::batch::{BatchBuilder, BatchRefused, BuildRefused, Record};

/// One change of an entity's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The state key has this value from here on.
    Put {
        /// Within the entity.
        key: Bytes,
        /// Its value; may be empty.
        value: Bytes,
    },
    /// The state key has no value from here on.
    Delete {
        /// Within the entity.
        key: Bytes,
    },
}

impl Change {
    /// The state key.
    #[must_use]
    pub fn key(&self) -> &Bytes {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// An event and the changes of state that go with it, in one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The entity's key.
    pub entity: Bytes,
    /// What happened.
    pub event: Bytes,
    /// What changed, in order; a later one of the same key counts.
    pub changes: Vec<Change>,
    /// What a retried commit is known by.
    pub idempotency: Option<Bytes>,
}

impl Commit {
    /// Reads a record of a stream's log; `None` when it is not a commit but a publish.
    ///
    /// # Errors
    /// When it is a commit and a header does not hold what it must.
    pub fn read(record: &Record) -> Result<Option<Self>, BatchRefused> {
        let mut changes = Vec::new();
        let mut idempotency = None;
        let mut changes_nothing = false;
        for (index, (name, value)) in record.internal.iter().enumerate() {
            // What follows in a scheduled record is its user's.
            if index == 0 && name == HEADER_SCHEDULE {
                return Ok(None);
            }
            match (name.first().copied(), name.as_ref()) {
                (Some(PREFIX_PUT), _) => changes.push(Change::Put {
                    key: name.slice(1..),
                    value: value.ok_or_else(|| malformed("p"))?,
                }),
                (Some(PREFIX_DELETE), _) if value.is_none() => changes.push(Change::Delete {
                    key: name.slice(1..),
                }),
                (Some(PREFIX_DELETE), _) => return Err(malformed("d")),
                (_, HEADER_IDEMPOTENCY) => idempotency = Some(idempotency_key(value)?),
                (_, HEADER_NO_CHANGE) => changes_nothing = true,
                _ => {}
            }
        }
        if changes.is_empty() && idempotency.is_none() && !changes_nothing {
            return Ok(None);
        }
        let (Some(entity), Some(event)) = (record.key.clone(), record.value.clone()) else {
            return Err(malformed("key"));
        };
        Ok(Some(Self {
            entity,
            event,
            changes,
            idempotency,
        }))
    }
}

/// Adds a commit to an internal batch.
///
/// # Errors
/// When the batch would pass a limit.
pub fn commit_record(
    batch: &mut BatchBuilder,
    timestamp_ms: i64,
    commit: &Commit,
) -> Result<(), BuildRefused> {
    let names: Vec<Vec<u8>> = commit
        .changes
        .iter()
        .map(|change| {
            let prefix = match change {
                Change::Put { .. } => PREFIX_PUT,
                Change::Delete { .. } => PREFIX_DELETE,
            };
            [&[prefix], change.key().as_ref()].concat()
        })
        .collect();
    let changes = names.iter().zip(&commit.changes).map(|(name, change)| {
        let value = match change {
            Change::Put { value, .. } => Some(value.as_ref()),
            Change::Delete { .. } => None,
        };
        (name.as_slice(), value)
    });
    let id = commit.idempotency.as_deref();
    let nothing = commit
        .changes
        .is_empty()
        .then_some((HEADER_NO_CHANGE, None));
    let headers: Vec<(&[u8], Option<&[u8]>)> = changes
        .chain(nothing)
        .chain(id.map(|id| (HEADER_IDEMPOTENCY, Some(id))))
        .collect();
    batch.push(
        timestamp_ms,
        Some(&commit.entity),
        Some(&commit.event),
        &headers,
    )
}

/// The schedule a record was published by, if it was.
///
/// # Errors
/// When the header is there and empty.
pub fn schedule_id(record: &Record) -> Result<Option<Bytes>, BatchRefused> {
    match record.internal.iter().next() {
        Some((name, value)) if name == HEADER_SCHEDULE => value
            .filter(|id| !id.is_empty())
            .map(Some)
            .ok_or_else(|| malformed("s")),
        Some(_) | None => Ok(None),
    }
}

/// The headers of a record that are a user's: all of one that was published, of a scheduled one those that follow its
/// schedule's id.
pub fn users_headers(record: &Record) -> impl Iterator<Item = (Bytes, Option<Bytes>)> + '_ {
    let mut internal = record.internal.iter();
    let is_scheduled = internal
        .next()
        .is_some_and(|(name, _)| name == HEADER_SCHEDULE);
    let after_schedule = is_scheduled.then_some(internal).into_iter().flatten();
    record.headers.iter().chain(after_schedule)
}

/// Adds a scheduled record to an internal batch: its schedule's id comes first, `headers` are the user's.
///
/// # Errors
/// When the batch would pass a limit.
pub fn schedule_record(
    batch: &mut BatchBuilder,
    timestamp_ms: i64,
    id: &[u8],
    record: (Option<&[u8]>, Option<&[u8]>),
    headers: &[(&[u8], Option<&[u8]>)],
) -> Result<(), BuildRefused> {
    let mut all = Vec::with_capacity(headers.len() + 1);
    all.push((HEADER_SCHEDULE, Some(id)));
    all.extend_from_slice(headers);
    let (key, value) = record;
    batch.push(timestamp_ms, key, value, &all)
}
