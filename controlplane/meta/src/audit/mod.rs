//! What auditors are told of every entry, and the chains that show when something of it was changed or left out.
//!
//! Each entry has a row, which is made when it is decided and never again, and a place in the chain of the whole
//! cluster and of the tenant it is about. Every link is the hash of the row and of the link before, so whoever has
//! kept one link can tell whether what came before it is still what it was.

mod chain;
mod row;

pub use chain::{AuditItem, ChainBroken, ChainHead, Link, verify};

use felix_model::TimeMs;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::catalogue::Catalogue;
use crate::event::{Entry, Event};

/// Who did something, and from where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct By {
    /// The principal.
    pub principal: String,
    /// The tenant he is of.
    pub tenant: String,
    /// The address he came from, without a port.
    pub from: String,
    /// The session his token was minted for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The principal that acted for him.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// The id of the request, as its answer and the log have it.
    pub request: String,
}

/// Something to remember that changed nothing. Equal ones that come close together are counted, not repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditRecord {
    /// What happened: `login`, `refused` and so on.
    pub what: String,
    /// Who it was, as far as he proved it; empty when he proved nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub principal: String,
    /// The address he came from, without a port.
    pub from: String,
    /// The code of the refusal, or what more there is to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The id of the first request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request: String,
    /// How often.
    pub count: u64,
    /// When first.
    #[schema(value_type = u64)]
    pub first_ms: TimeMs,
    /// When last.
    #[schema(value_type = u64)]
    pub last_ms: TimeMs,
}

/// What auditors are told of an entry, beside who did it and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRow {
    /// What happened: the type of the event.
    pub what: String,
    /// To what.
    pub target: String,
    /// What it was before; null when there was nothing.
    #[serde(default)]
    pub before: Value,
    /// What it is now; null when it is gone.
    #[serde(default)]
    pub after: Value,
}

/// The row of an entry and its place in the chains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// What happened.
    pub row: AuditRow,
    /// Its place in the chain of the cluster.
    pub cluster: Link,
    /// Its place in the chain of the tenant it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Link>,
}

impl Catalogue {
    /// The entry that an event makes when it is applied to this very state, with its place in the audit chains.
    #[must_use]
    pub fn entry(&self, at_ms: TimeMs, event: Event, by: Option<By>) -> Entry {
        let mut entry = Entry::new(self.revision().next(), at_ms, event);
        entry.by = by;
        let row = row::of(self, &entry.event);
        let in_tenant = entry
            .event
            .tenant_id()
            .map(|tenant| self.chain_of(tenant.as_ref()));
        entry.audit = Some(Audit {
            cluster: self.chain.next(&entry, &row, None),
            tenant: in_tenant.map(|head| head.next(&entry, &row, entry.event.tenant_id())),
            row,
        });
        entry
    }

    /// The end of a tenant's audit chain; the beginning of a new one for a tenant that does not exist.
    #[must_use]
    pub fn chain_of(&self, tenant: &str) -> ChainHead {
        self.tenant(tenant)
            .map_or_else(ChainHead::default, |entry| entry.chain.clone())
    }

    /// The end of the audit chain of the whole cluster.
    #[must_use]
    pub const fn cluster_chain(&self) -> &ChainHead {
        &self.chain
    }
}
