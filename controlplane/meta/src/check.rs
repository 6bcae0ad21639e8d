//! The rules that bodies must follow before the state is even looked at.

use std::collections::BTreeSet;

use felix_model::limits::{RECORD_BYTES_MAX, RECORD_BYTES_MIN};

use crate::limits::{DISPLAY_NAME_BYTES_MAX, REPLICATION_FACTOR_MAX, SHARDS_MAX, TEXT_BYTES_MAX};
use crate::record::{CacheSpec, Grouping, Policy, Retention, StreamPatch, StreamSpec};

mod identity;
mod template;

pub(crate) use identity::*;
pub(crate) use template::{room_scope, template};

/// Why a body cannot be meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// A number lies outside its range.
    #[error("`{field}` is {found}; it must be from {from} to {to}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// What it says.
        found: u64,
        /// Least allowed.
        from: u64,
        /// Most allowed.
        to: u64,
    },
    /// A bound of zero would keep nothing.
    #[error("`{field}` is 0, which would leave nothing; null means no bound of its own")]
    ZeroBound {
        /// The field.
        field: &'static str,
    },
    /// A text is empty where something must be named.
    #[error("`{field}` is empty")]
    Empty {
        /// The field.
        field: &'static str,
    },
    /// A text is too long.
    #[error("`{field}` has {found} bytes; at most {limit} are allowed")]
    TooLong {
        /// The field.
        field: &'static str,
        /// Its bytes.
        found: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// A text holds characters that could act on a terminal.
    #[error("`{field}` holds a control character")]
    ControlCharacter {
        /// The field.
        field: &'static str,
    },
    /// A batch names one thing twice.
    #[error("`{name}` is named twice in this batch")]
    NamedTwice {
        /// The name.
        name: String,
    },
    /// A hash is written in another way than all are. What it says is not repeated.
    #[error("`{field}` must be 64 lower-case hexadecimal digits")]
    NoDigest {
        /// The field.
        field: &'static str,
    },
    /// An id that we make has characters that none of ours has.
    #[error("`{field}` must be letters and digits")]
    NoId {
        /// The field.
        field: &'static str,
    },
    /// Something is named as nothing may be.
    #[error(transparent)]
    Name(felix_model::BadName),
    /// Two settings do not go together.
    #[error("{0}")]
    Contradiction(&'static str),
}

pub(crate) fn stream(spec: &StreamSpec) -> Result<(), Invalid> {
    range("shards", spec.shards.into(), 1, SHARDS_MAX.into())?;
    replication(spec.replication_factor)?;
    retention(&spec.retention)?;
    spec.region
        .as_deref()
        .map_or(Ok(()), |region| text("region", region, TEXT_BYTES_MAX))?;
    spec.max_record_bytes.map_or(Ok(()), record_bytes)
}

pub(crate) fn patch(patch: &StreamPatch) -> Result<(), Invalid> {
    patch.retention.as_ref().map_or(Ok(()), retention)?;
    patch.max_record_bytes.map_or(Ok(()), record_bytes)
}

/// Below it a cache in memory would evict what was just put.
const CACHE_MEMORY_BYTES_MIN: u64 = 64 * 1024;

/// No broker has as much memory; more is a slip of the keyboard.
const CACHE_MEMORY_BYTES_MAX: u64 = 1 << 40;

pub(crate) fn cache(spec: &CacheSpec) -> Result<(), Invalid> {
    range("shards", spec.shards.into(), 0, SHARDS_MAX.into())?;
    replication(spec.replication_factor)?;
    spec.max_record_bytes.map_or(Ok(()), record_bytes)?;
    spec.memory_bytes.map_or(Ok(()), |bytes| {
        range(
            "memory_bytes",
            bytes,
            CACHE_MEMORY_BYTES_MIN,
            CACHE_MEMORY_BYTES_MAX,
        )
    })?;
    spec.display_name.as_deref().map_or(Ok(()), display_name)
}

pub(crate) fn display_name(name: &str) -> Result<(), Invalid> {
    // An empty display name is allowed: clients of the field send one when they have nothing to say.
    if name.is_empty() {
        return Ok(());
    }
    text("display_name", name, DISPLAY_NAME_BYTES_MAX)
}

pub(crate) fn policy(policy: &Policy) -> Result<(), Invalid> {
    text("subject", &policy.subject, TEXT_BYTES_MAX)?;
    text("object", &policy.object, TEXT_BYTES_MAX)?;
    text("action", &policy.action, TEXT_BYTES_MAX)
}

pub(crate) fn grouping(grouping: &Grouping) -> Result<(), Invalid> {
    text("user", &grouping.user, TEXT_BYTES_MAX)?;
    text("role", &grouping.role, TEXT_BYTES_MAX)
}

pub(crate) fn key_id(kid: &str) -> Result<(), Invalid> {
    text("kid", kid, TEXT_BYTES_MAX)
}

fn text(field: &'static str, text: &str, limit: usize) -> Result<(), Invalid> {
    if text.is_empty() {
        return Err(Invalid::Empty { field });
    }
    if text.len() > limit {
        return Err(Invalid::TooLong {
            field,
            found: text.len(),
            limit,
        });
    }
    if text.chars().any(char::is_control) {
        return Err(Invalid::ControlCharacter { field });
    }
    Ok(())
}

fn replication(factor: u32) -> Result<(), Invalid> {
    range(
        "replication_factor",
        factor.into(),
        1,
        REPLICATION_FACTOR_MAX.into(),
    )
}

fn retention(retention: &Retention) -> Result<(), Invalid> {
    for (field, bound) in [
        ("max_age_seconds", retention.max_age_seconds),
        ("max_size_bytes", retention.max_size_bytes),
    ] {
        if bound == Some(0) {
            return Err(Invalid::ZeroBound { field });
        }
    }
    Ok(())
}

fn record_bytes(bytes: u32) -> Result<(), Invalid> {
    range(
        "max_record_bytes",
        bytes.into(),
        RECORD_BYTES_MIN as u64,
        RECORD_BYTES_MAX as u64,
    )
}

fn range(field: &'static str, found: u64, from: u64, to: u64) -> Result<(), Invalid> {
    if (from..=to).contains(&found) {
        return Ok(());
    }
    Err(Invalid::OutOfRange {
        field,
        found,
        from,
        to,
    })
}

pub(crate) fn unique<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), Invalid> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Invalid::NamedTwice {
                name: name.to_owned(),
            });
        }
    }
    Ok(())
}
