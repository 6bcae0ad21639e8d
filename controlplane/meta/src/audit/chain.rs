//! The hash chain.
//!
//! ```text
//!   hash(n) = lower-case hex of SHA-256( hash(n-1) as text, then the item without `prev` and `hash`, as JSON with
//!             sorted keys and without white space )
//!   hash(0) = 64 zeros
//! ```

use felix_model::{TenantId, TimeMs};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use super::{AuditRow, By};
use crate::catalogue::Revision;
use crate::event::Entry;

/// What stands before the first link.
const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The name of the chain of the whole cluster.
const CLUSTER: &str = "cluster";

/// A place in a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Its number, from 1.
    pub seq: u64,
    /// The hash of the link before.
    pub prev: String,
    /// Its own hash.
    pub hash: String,
}

impl Link {
    /// The chain's end when this is its last link.
    #[must_use]
    pub fn head(&self) -> ChainHead {
        ChainHead {
            seq: self.seq,
            hash: self.hash.clone(),
        }
    }
}

/// The end of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChainHead {
    /// How many links there are.
    pub seq: u64,
    /// The hash of the last.
    pub hash: String,
}

impl Default for ChainHead {
    fn default() -> Self {
        Self {
            seq: 0,
            hash: GENESIS.to_owned(),
        }
    }
}

impl ChainHead {
    /// Whether the chain has no link yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.seq == 0
    }

    /// The link that an entry makes behind this end, in a tenant's chain or in the cluster's.
    pub(super) fn next(&self, entry: &Entry, row: &AuditRow, tenant: Option<&TenantId>) -> Link {
        let link = Link {
            seq: self.seq.saturating_add(1),
            prev: self.hash.clone(),
            hash: String::new(),
        };
        let hash = AuditItem::new(entry, row, &link, tenant).expected_hash();
        Link { hash, ..link }
    }
}

/// One line of an audit, as the API answers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditItem {
    /// Which chain it is of: `cluster` or `tenant:{name}`.
    pub chain: String,
    /// Its number there, from 1.
    pub seq: u64,
    /// The revision of the catalogue it made.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// When, by the control plane's clock.
    #[schema(value_type = u64)]
    pub at_ms: TimeMs,
    /// The tenant it is about; null when it is about the cluster.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub tenant_id: Option<TenantId>,
    /// Who did it; null when the control plane did it by itself.
    #[serde(default)]
    pub by: Option<By>,
    /// What happened.
    pub what: String,
    /// To what.
    pub target: String,
    /// What it was before; null when there was nothing.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub before: Value,
    /// What it is now; null when it is gone.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub after: Value,
    /// The hash of the line before in this chain.
    pub prev: String,
    /// Its own hash.
    pub hash: String,
}

impl AuditItem {
    fn new(entry: &Entry, row: &AuditRow, link: &Link, tenant: Option<&TenantId>) -> Self {
        Self {
            chain: tenant.map_or_else(|| CLUSTER.to_owned(), |tenant| format!("tenant:{tenant}")),
            seq: link.seq,
            revision: entry.revision,
            at_ms: entry.at_ms,
            tenant_id: entry.event.tenant_id().cloned(),
            by: entry.by.clone(),
            what: row.what.clone(),
            target: row.target.clone(),
            before: row.before.clone(),
            after: row.after.clone(),
            prev: link.prev.clone(),
            hash: link.hash.clone(),
        }
    }

    /// The line of an entry in the cluster's chain; `None` when it is in none.
    #[must_use]
    pub fn of_cluster(entry: &Entry) -> Option<Self> {
        let audit = entry.audit.as_ref()?;
        Some(Self::new(entry, &audit.row, &audit.cluster, None))
    }

    /// The line of an entry in its tenant's chain; `None` when it is in none.
    #[must_use]
    pub fn of_tenant(entry: &Entry) -> Option<Self> {
        let audit = entry.audit.as_ref()?;
        let (link, tenant) = (audit.tenant.as_ref()?, entry.event.tenant_id()?);
        Some(Self::new(entry, &audit.row, link, Some(tenant)))
    }

    /// The hash that this line should have.
    #[must_use]
    pub fn expected_hash(&self) -> String {
        // A line is made of texts, numbers and JSON values, which always have a JSON form.
        let mut line = serde_json::to_value(self).unwrap_or_default();
        if let Some(fields) = line.as_object_mut() {
            fields.remove("prev");
            fields.remove("hash");
        }
        let mut hasher = Sha256::new();
        hasher.update(self.prev.as_bytes());
        hasher.update(canonical(&line).as_bytes());
        hex(&hasher.finalize())
    }
}

/// Where a chain does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainBroken {
    /// A line is not the one that was chained.
    #[error("line {seq} of {chain} was changed: its hash is {found}, it should be {expected}")]
    Changed {
        /// The chain.
        chain: String,
        /// Its number.
        seq: u64,
        /// The hash it carries.
        found: String,
        /// The hash its content has.
        expected: String,
    },
    /// A line does not follow the one before.
    #[error("line {seq} of {chain} does not follow line {before}")]
    Gap {
        /// The chain.
        chain: String,
        /// Its number.
        seq: u64,
        /// The number of the line before.
        before: u64,
    },
}

/// Checks that lines follow each other and a known end, and that each is what was chained; answers with the new end.
///
/// # Errors
/// [`ChainBroken`] at the first line that does not hold.
pub fn verify<'a>(
    after: &ChainHead,
    items: impl IntoIterator<Item = &'a AuditItem>,
) -> Result<ChainHead, ChainBroken> {
    let mut head = after.clone();
    for item in items {
        if item.seq != head.seq.saturating_add(1) || item.prev != head.hash {
            return Err(ChainBroken::Gap {
                chain: item.chain.clone(),
                seq: item.seq,
                before: head.seq,
            });
        }
        let expected = item.expected_hash();
        if expected != item.hash {
            return Err(ChainBroken::Changed {
                chain: item.chain.clone(),
                seq: item.seq,
                found: item.hash.clone(),
                expected,
            });
        }
        head = ChainHead {
            seq: item.seq,
            hash: expected,
        };
    }
    Ok(head)
}

/// JSON with sorted keys and without white space. `serde_json` keeps the order of keys when another crate asks it to,
/// so they are sorted here.
fn canonical(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value);
    out
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "everything else is written as it is"
)]
fn write(out: &mut String, value: &Value) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (n, item) in items.iter().enumerate() {
                if n > 0 {
                    out.push(',');
                }
                write(out, item);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_unstable_by(|a, b| a.0.cmp(b.0));
            out.push('{');
            for (n, (name, field)) in sorted.into_iter().enumerate() {
                if n > 0 {
                    out.push(',');
                }
                write(out, &Value::String(name.clone()));
                out.push(':');
                write(out, field);
            }
            out.push('}');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
