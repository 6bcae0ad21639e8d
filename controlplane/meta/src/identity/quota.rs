//! How much somebody may use.

use felix_model::Namespace;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::shelf::Shelf;

/// Whom a quota is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "scope", content = "name", rename_all = "snake_case")]
pub enum QuotaScope {
    /// The whole tenant together.
    Tenant,
    /// All who work in one namespace, together.
    Namespace(Namespace),
    /// One principal, on all his connections together.
    Principal(String),
}

impl std::fmt::Display for QuotaScope {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tenant => out.write_str("tenant"),
            Self::Namespace(name) => write!(out, "namespace {name}"),
            Self::Principal(id) => write!(out, "principal {id}"),
        }
    }
}

/// What a quota allows. Every bound may be absent, which means that this quota does not bound it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QuotaLimits {
    /// Bytes of records published in a second, on one broker.
    #[serde(default)]
    pub publish_bytes_per_second: Option<u64>,
    /// Records published in a second, on one broker.
    #[serde(default)]
    pub publish_records_per_second: Option<u64>,
    /// Subscriptions and watches open at a time.
    #[serde(default)]
    pub subscriptions: Option<u64>,
    /// Connections open at a time. It means nothing for a namespace.
    #[serde(default)]
    pub connections: Option<u64>,
    /// Bytes that the caches may hold together. It means nothing for a principal.
    #[serde(default)]
    pub cache_bytes: Option<u64>,
    /// Bytes that one shard of a stream may keep; the smaller of this and the stream's own bound holds. It means
    /// nothing for a principal.
    #[serde(default)]
    pub stream_retention_bytes: Option<u64>,
}

impl QuotaLimits {
    /// The bounds of both: of each the smaller one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            publish_bytes_per_second: smaller(
                self.publish_bytes_per_second,
                other.publish_bytes_per_second,
            ),
            publish_records_per_second: smaller(
                self.publish_records_per_second,
                other.publish_records_per_second,
            ),
            subscriptions: smaller(self.subscriptions, other.subscriptions),
            connections: smaller(self.connections, other.connections),
            cache_bytes: smaller(self.cache_bytes, other.cache_bytes),
            stream_retention_bytes: smaller(
                self.stream_retention_bytes,
                other.stream_retention_bytes,
            ),
        }
    }

    /// Whether it bounds nothing.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }

    /// Each bound with its name.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, Option<u64>); 6] {
        [
            ("publish_bytes_per_second", self.publish_bytes_per_second),
            (
                "publish_records_per_second",
                self.publish_records_per_second,
            ),
            ("subscriptions", self.subscriptions),
            ("connections", self.connections),
            ("cache_bytes", self.cache_bytes),
            ("stream_retention_bytes", self.stream_retention_bytes),
        ]
    }
}

fn smaller(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

/// All quotas of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quotas {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant: Option<QuotaLimits>,
    #[serde(default, skip_serializing_if = "Shelf::is_empty")]
    namespaces: Shelf<QuotaLimits>,
    #[serde(default, skip_serializing_if = "Shelf::is_empty")]
    principals: Shelf<QuotaLimits>,
}

impl Quotas {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.tenant.is_some()) + self.namespaces.len() + self.principals.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The quota of a scope itself, without the wider ones.
    #[must_use]
    pub fn get(&self, scope: &QuotaScope) -> Option<QuotaLimits> {
        match scope {
            QuotaScope::Tenant => self.tenant,
            QuotaScope::Namespace(name) => self.namespaces.get(name.as_ref()).map(|held| **held),
            QuotaScope::Principal(id) => self.principals.get(id).map(|held| **held),
        }
    }

    /// Those of namespaces, by name.
    pub fn namespaces(&self) -> impl Iterator<Item = (&str, QuotaLimits)> {
        self.namespaces.iter().map(|(name, held)| (name, **held))
    }

    /// Those of principals, by id.
    pub fn principals(&self) -> impl Iterator<Item = (&str, QuotaLimits)> {
        self.principals.iter().map(|(id, held)| (id, **held))
    }

    /// What holds for somebody somewhere: of every bound the smallest of the tenant's, the namespace's and the
    /// principal's.
    ///
    /// Each of the three counts on its own: two principals of a tenant that allows 10 connections have 10 together.
    /// Whoever enforces a bound counts for each scope that has one and refuses when the first is reached; this is
    /// what he could use if nobody else used anything.
    #[must_use]
    pub fn effective(&self, namespace: Option<&str>, principal: Option<&str>) -> QuotaLimits {
        let of_namespace = namespace.and_then(|name| self.namespaces.get(name));
        let of_principal = principal.and_then(|id| self.principals.get(id));
        [of_namespace, of_principal]
            .into_iter()
            .flatten()
            .fold(self.tenant.unwrap_or_default(), |all, one| all.and(**one))
    }

    pub(crate) fn set(&mut self, scope: &QuotaScope, limits: QuotaLimits) {
        match scope {
            QuotaScope::Tenant => self.tenant = Some(limits),
            QuotaScope::Namespace(name) => self.namespaces.insert(name.to_string(), limits),
            QuotaScope::Principal(id) => self.principals.insert(id.clone(), limits),
        }
    }

    pub(crate) fn remove(&mut self, scope: &QuotaScope) {
        match scope {
            QuotaScope::Tenant => self.tenant = None,
            QuotaScope::Namespace(name) => {
                self.namespaces.remove(name.as_ref());
            }
            QuotaScope::Principal(id) => {
                self.principals.remove(id);
            }
        }
    }
}
