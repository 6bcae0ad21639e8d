//! How much somebody may use, and how much he does.
//!
//! Bounds come from the catalogue (of a tenant, a namespace, a principal) and, for the rate of a tenant, from this
//! broker's own configuration. Each counts on its own, and a use is refused when the first is reached. Where nothing is
//! bounded a request pays one load of an atomic.

mod scope;
mod tenant;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use felix_meta::{Catalogue, QuotaScope};
use felix_model::TenantId;
use felix_wire::error::{Code, Failure};
use serde::Serialize;

pub(crate) use self::tenant::{OpenReader, Present, TenantUse, User};

use crate::config::PublishQuota;

/// What every tenant uses of this broker.
#[derive(Debug)]
pub(crate) struct Quotas {
    /// Rates by this broker's configuration.
    configured: PublishQuota,
    tenants: Mutex<HashMap<TenantId, Arc<TenantUse>>>,
    started: Instant,
}

/// Why a use was refused. Nothing was used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Exceeded {
    /// This broker's own rate for the tenant.
    #[error("the tenant is over its publish rate")]
    Configured {
        /// When it is worth trying again.
        wait_ms: u64,
    },
    /// A bound of the catalogue.
    #[error("the quota of the {scope} allows {bound} of {limit}")]
    Quota {
        scope: QuotaScope,
        /// The bound's name.
        bound: &'static str,
        limit: u64,
        /// When it is worth trying again.
        wait_ms: u64,
    },
}

impl Exceeded {
    /// Whether waiting this long at most makes up for it. Where nothing at all is allowed, no waiting does.
    fn is_over_within(&self, patience_ms: u64) -> bool {
        match self {
            Self::Configured { wait_ms } => *wait_ms <= patience_ms,
            Self::Quota { limit, wait_ms, .. } => *limit > 0 && *wait_ms <= patience_ms,
        }
    }

    fn wait_ms(&self) -> u64 {
        match self {
            Self::Configured { wait_ms } | Self::Quota { wait_ms, .. } => *wait_ms,
        }
    }
}

impl From<Exceeded> for Failure {
    fn from(exceeded: Exceeded) -> Self {
        let (reason, wait_ms) = match &exceeded {
            Exceeded::Configured { wait_ms } => ("tenant_quota", *wait_ms),
            Exceeded::Quota { wait_ms, .. } => ("quota_exceeded", *wait_ms),
        };
        Self::new(Code::Overloaded, exceeded.to_string())
            .with_reason(reason)
            .with_retry_after_ms(wait_ms)
    }
}

impl Quotas {
    pub(crate) fn new(configured: PublishQuota) -> Self {
        Self {
            configured,
            tenants: Mutex::default(),
            started: Instant::now(),
        }
    }

    /// What a tenant uses, under the quotas that the catalogue of now has for it.
    pub(crate) fn of(&self, tenant: &TenantId, catalogue: &Catalogue) -> Arc<TenantUse> {
        let mut tenants = self.lock();
        if let Some(known) = tenants.get(tenant) {
            return Arc::clone(known);
        }
        let rate = self.configured.tenants.get(tenant.as_str());
        let rates = rate.map_or(
            (
                self.configured.bytes_per_second,
                self.configured.messages_per_second,
            ),
            |rate| (rate.bytes_per_second, rate.messages_per_second),
        );
        let made = Arc::new(TenantUse::new(tenant.clone(), rates, self.started));
        if let Some(entry) = catalogue.tenant(tenant.as_str()) {
            made.set(&entry.quotas);
        }
        tenants.insert(tenant.clone(), Arc::clone(&made));
        made
    }

    /// Takes over the quotas of a changed catalogue.
    pub(crate) fn follow(&self, catalogue: &Catalogue) {
        self.lock().retain(|tenant, held| {
            match catalogue.tenant(tenant.as_str()) {
                Some(entry) => held.set(&entry.quotas),
                None if Arc::strong_count(held) == 1 => return false,
                None => {}
            }
            true
        });
    }

    /// Takes over what the caches of each namespace hold.
    pub(crate) fn measured(&self, held: &BTreeMap<(TenantId, String), u64>) {
        for (tenant, used) in self.lock().iter() {
            let of_tenant = held.iter().filter(|((owner, _), _)| owner == tenant);
            used.measured(of_tenant.map(|((_, namespace), bytes)| (namespace.clone(), *bytes)));
        }
    }

    /// Everything in use, by tenant.
    pub(crate) fn listing(&self) -> Vec<ListedTenant> {
        let mut listed: Vec<_> = self.lock().values().map(|used| used.listing()).collect();
        listed.sort_by(|a, b| a.tenant.cmp(&b.tenant));
        listed
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TenantId, Arc<TenantUse>>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One tenant in the operator's listing.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ListedTenant {
    pub(crate) tenant: String,
    /// Uses that were refused since the start.
    pub(crate) refused: u64,
    #[serde(flatten)]
    pub(crate) all: ListedScope,
    pub(crate) namespaces: Vec<ListedScope>,
    pub(crate) principals: Vec<ListedScope>,
    /// More principals are there than are listed.
    pub(crate) truncated: bool,
}

/// One scope in the operator's listing. What is not counted for a scope is absent.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ListedScope {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) connections: Option<u64>,
    pub(crate) subscriptions: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cache_bytes: Option<u64>,
    /// What bounds it.
    pub(crate) limits: felix_meta::QuotaLimits,
}
