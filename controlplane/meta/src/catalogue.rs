//! The state, and how events change it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use felix_model::{CacheName, Namespace, StreamName, TenantId};
use serde::{Deserialize, Serialize};

use crate::audit::ChainHead;
use crate::change::{Changed, changes};
use crate::event::{Entry, Event};
use crate::identity::{
    IssuerRecord, PrincipalRecord, QuotaLimits, QuotaScope, Quotas, Revocations, ServiceAccounts,
    Sessions,
};
use crate::lookup::{Kind, Missing};
use crate::record::{CacheRecord, Grouping, Policy, StreamRecord, VerifyingKey};
use crate::shelf::Shelf;
use crate::template::{TemplateEntry, Templates};

/// How many events made this state. The first event makes revision 1; the empty catalogue is revision 0.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Revision(pub u64);

impl Revision {
    /// The revision that the next event makes.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// Everything that exists, at one revision.
///
/// A clone shares everything below the tenants; a change copies only what is shared and on its path. It serialises
/// whole, which is what a snapshot is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalogue {
    pub(crate) revision: Revision,
    pub(crate) sequences: Sequences,
    pub(crate) tenants: BTreeMap<TenantId, Arc<TenantEntry>>,
    /// The end of the audit chain of the whole cluster.
    #[serde(default, skip_serializing_if = "ChainHead::is_empty")]
    pub(crate) chain: ChainHead,
}

/// How many changes each published feed has carried; the next change of a feed has its count as number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sequences {
    /// Changes to tenants.
    pub tenants: u64,
    /// Changes to namespaces.
    pub namespaces: u64,
    /// Changes to streams.
    pub streams: u64,
    /// Changes to caches.
    pub caches: u64,
}

impl Sequences {
    /// The count that belongs to a change, and room to raise it.
    pub fn of(&mut self, changed: &Changed) -> &mut u64 {
        match changed {
            Changed::Tenant(..) => &mut self.tenants,
            Changed::Namespace(..) => &mut self.namespaces,
            Changed::Stream(..) => &mut self.streams,
            Changed::Cache(..) => &mut self.caches,
        }
    }
}

/// One tenant and all it owns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantEntry {
    /// Its name for people.
    pub display_name: String,
    /// Whether it was initialised, which happens once.
    pub initialized: bool,
    /// The id of the key that signs new tokens; empty before the tenant is initialised.
    pub current_key: String,
    /// All keys that verify, oldest first.
    pub keys: Vec<VerifyingKey>,
    /// Its rules. Shared, so that a change elsewhere in the tenant does not copy them.
    pub policies: Arc<BTreeSet<Policy>>,
    /// Its gifts of roles. Shared likewise.
    pub groupings: Arc<BTreeSet<Grouping>>,
    /// Its namespaces.
    pub namespaces: BTreeMap<Namespace, Arc<NamespaceEntry>>,
    /// The identity providers it trusts, by their `iss`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub issuers: BTreeMap<String, IssuerRecord>,
    /// Who has signed in, by principal. Not known to nodes.
    #[serde(default, skip_serializing_if = "Shelf::is_empty")]
    pub principals: Shelf<PrincipalRecord>,
    /// Accounts of programs, by name. Not known to nodes.
    #[serde(default, skip_serializing_if = "ServiceAccounts::is_empty")]
    pub service_accounts: ServiceAccounts,
    /// Who is signed in. Not known to nodes.
    #[serde(default, skip_serializing_if = "Sessions::is_empty")]
    pub sessions: Sessions,
    /// What was taken back.
    #[serde(default, skip_serializing_if = "Revocations::is_empty")]
    pub revocations: Revocations,
    /// How much may be used.
    #[serde(default, skip_serializing_if = "Quotas::is_empty")]
    pub quotas: Quotas,
    /// The end of its audit chain. Not known to nodes.
    #[serde(default, skip_serializing_if = "ChainHead::is_empty")]
    pub(crate) chain: ChainHead,
}

/// One namespace and all that is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceEntry {
    /// Its name for people.
    pub display_name: String,
    /// Its streams.
    pub streams: BTreeMap<StreamName, Arc<StreamRecord>>,
    /// Its caches. A cache and a stream may have the same name.
    pub caches: BTreeMap<CacheName, Arc<CacheRecord>>,
    /// What rooms are opened by.
    #[serde(default, skip_serializing_if = "Templates::is_empty")]
    pub templates: Templates,
}

impl Catalogue {
    /// How many events made this state.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        self.revision
    }

    /// How many changes each published feed has carried.
    #[must_use]
    pub const fn sequences(&self) -> Sequences {
        self.sequences
    }

    /// All tenants, by name.
    pub fn tenants(&self) -> impl Iterator<Item = (&TenantId, &Arc<TenantEntry>)> {
        self.tenants.iter()
    }

    /// One tenant.
    #[must_use]
    pub fn tenant(&self, tenant: &str) -> Option<&Arc<TenantEntry>> {
        self.tenants.get(tenant)
    }

    /// One namespace.
    #[must_use]
    pub fn namespace(&self, tenant: &str, namespace: &str) -> Option<&Arc<NamespaceEntry>> {
        self.tenants.get(tenant)?.namespaces.get(namespace)
    }

    /// One stream. Costs three map look-ups and allocates nothing.
    #[must_use]
    pub fn stream(
        &self,
        tenant: &str,
        namespace: &str,
        stream: &str,
    ) -> Option<&Arc<StreamRecord>> {
        self.namespace(tenant, namespace)?.streams.get(stream)
    }

    /// One cache. Costs three map look-ups and allocates nothing.
    #[must_use]
    pub fn cache(&self, tenant: &str, namespace: &str, cache: &str) -> Option<&Arc<CacheRecord>> {
        self.namespace(tenant, namespace)?.caches.get(cache)
    }

    /// Every stream of every tenant.
    pub fn streams(&self) -> impl Iterator<Item = &Arc<StreamRecord>> {
        self.namespaces()
            .flat_map(|(_, _, space)| space.streams.values())
    }

    /// Every cache of every tenant.
    pub fn caches(&self) -> impl Iterator<Item = &Arc<CacheRecord>> {
        self.namespaces()
            .flat_map(|(_, _, space)| space.caches.values())
    }

    /// Every namespace of every tenant.
    pub fn namespaces(
        &self,
    ) -> impl Iterator<Item = (&TenantId, &Namespace, &Arc<NamespaceEntry>)> {
        self.tenants
            .iter()
            .flat_map(|(tenant, entry)| entry.namespaces.iter().map(move |(n, e)| (tenant, n, e)))
    }

    /// What holds for somebody somewhere in a tenant; see [`Quotas::effective`]. Nothing is bounded for a tenant that
    /// does not exist.
    #[must_use]
    pub fn effective(
        &self,
        tenant: &str,
        namespace: Option<&str>,
        principal: Option<&str>,
    ) -> QuotaLimits {
        self.tenant(tenant)
            .map_or_else(QuotaLimits::default, |entry| {
                entry.quotas.effective(namespace, principal)
            })
    }

    /// The catalogue as nodes get it: without sessions, principals, service accounts and audit chains.
    #[must_use]
    pub fn for_nodes(&self) -> Self {
        let tenants = self.tenants.iter().map(|(tenant, entry)| {
            let stripped = TenantEntry {
                principals: Shelf::default(),
                service_accounts: ServiceAccounts::default(),
                sessions: Sessions::default(),
                chain: ChainHead::default(),
                ..TenantEntry::clone(entry)
            };
            (tenant.clone(), Arc::new(stripped))
        });
        Self {
            revision: self.revision,
            sequences: self.sequences,
            tenants: tenants.collect(),
            chain: ChainHead::default(),
        }
    }

    pub(crate) fn find_tenant(&self, tenant: &str) -> Result<&Arc<TenantEntry>, Missing> {
        self.tenants
            .get(tenant)
            .ok_or_else(|| Missing::new(Kind::Tenant, tenant))
    }

    pub(crate) fn find_namespace(
        &self,
        tenant: &str,
        namespace: &str,
    ) -> Result<&Arc<NamespaceEntry>, Missing> {
        self.find_tenant(tenant)?
            .namespaces
            .get(namespace)
            .ok_or_else(|| Missing::new(Kind::Namespace, namespace))
    }

    /// Makes the change of an entry, and moves the audit chains on.
    pub fn apply_entry(&mut self, entry: &Entry) {
        self.apply(&entry.event);
        let Some(audit) = &entry.audit else { return };
        self.chain = audit.cluster.head();
        if let (Some(tenant), Some(link)) = (entry.event.tenant_id(), &audit.tenant) {
            self.change_tenant(tenant, |held| held.chain = link.head());
        }
    }

    /// Makes a change that was decided on this very state. Cannot refuse.
    ///
    /// What an event does is read from the event alone. Parents that an event names exist, because it was decided on
    /// this state; if they do not, the event has no effect beyond the new revision, so that two folds of one log agree
    /// even then.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what is not of names is of identity"
    )]
    pub fn apply(&mut self, event: &Event) {
        for change in changes(self, event) {
            *self.sequences.of(&change.changed) += 1;
        }
        self.revision = self.revision.next();
        match event {
            Event::TenantCreated { tenant } => {
                let entry = self.tenants.entry(tenant.tenant_id.clone()).or_default();
                Arc::make_mut(entry)
                    .display_name
                    .clone_from(&tenant.display_name);
            }
            Event::TenantDeleted { tenant_id } => {
                self.tenants.remove(tenant_id);
            }
            Event::TenantInitialized {
                tenant,
                key,
                policies,
                groupings,
                issuers,
            } => {
                let entry = self.tenants.entry(tenant.tenant_id.clone()).or_default();
                let entry = Arc::make_mut(entry);
                entry.display_name.clone_from(&tenant.display_name);
                entry.initialized = true;
                entry.current_key.clone_from(&key.kid);
                entry.keys = vec![key.clone()];
                entry.policies = Arc::new(policies.iter().cloned().collect());
                entry.groupings = Arc::new(groupings.iter().cloned().collect());
                let named = |issuer: &IssuerRecord| (issuer.issuer.clone(), issuer.clone());
                entry.issuers = issuers.iter().map(named).collect();
            }
            Event::NamespaceCreated { namespace } => {
                self.change_tenant(&namespace.tenant_id, |tenant| {
                    let entry = tenant
                        .namespaces
                        .entry(namespace.namespace.clone())
                        .or_default();
                    Arc::make_mut(entry)
                        .display_name
                        .clone_from(&namespace.display_name);
                });
            }
            Event::NamespaceDeleted {
                tenant_id,
                namespace,
            } => {
                self.change_tenant(tenant_id, |tenant| {
                    tenant.namespaces.remove(namespace);
                    tenant
                        .quotas
                        .remove(&QuotaScope::Namespace(namespace.clone()));
                });
            }
            Event::ResourcesCreated { streams, caches } => {
                streams.iter().for_each(|stream| self.put_stream(stream));
                caches.iter().for_each(|cache| self.put_cache(cache));
            }
            Event::TemplateSet { .. }
            | Event::TemplateRemoved { .. }
            | Event::RoomOpened { .. } => self.apply_template(event),
            Event::StreamUpdated { stream } => self.put_stream(stream),
            Event::CacheUpdated { cache } => self.put_cache(cache),
            Event::StreamDeleted {
                tenant_id,
                namespace,
                stream,
                ..
            } => {
                self.change_namespace(tenant_id, namespace, |space| {
                    space.streams.remove(stream);
                    space.forget_if_empty(stream.as_str());
                });
            }
            Event::CacheDeleted {
                tenant_id,
                namespace,
                cache,
                ..
            } => {
                self.change_namespace(tenant_id, namespace, |space| {
                    space.caches.remove(cache);
                    space.forget_if_empty(cache.as_str());
                });
            }
            Event::KeyStaged { tenant_id, key } => {
                self.change_tenant(tenant_id, |tenant| tenant.keys.push(key.clone()));
            }
            Event::KeyActivated { tenant_id, kid } => {
                self.change_tenant(tenant_id, |tenant| tenant.current_key.clone_from(kid));
            }
            Event::KeyReplaced { tenant_id, key } => {
                self.change_tenant(tenant_id, |tenant| {
                    tenant.current_key.clone_from(&key.kid);
                    tenant.keys = vec![key.clone()];
                });
            }
            Event::KeyRetired { tenant_id, kid } => {
                self.change_tenant(tenant_id, |tenant| {
                    tenant.keys.retain(|key| key.kid != *kid)
                });
            }
            Event::PolicyAdded { tenant_id, policy } => {
                self.change_policies(tenant_id, |all| all.insert(policy.clone()));
            }
            Event::PolicyRemoved {
                tenant_id,
                policy,
                revocations,
            } => {
                self.change_policies(tenant_id, |all| all.remove(policy));
                self.change_tenant(tenant_id, |tenant| tenant.add_revocations(revocations));
            }
            Event::GroupingAdded {
                tenant_id,
                grouping,
            } => {
                self.change_groupings(tenant_id, |all| all.insert(grouping.clone()));
            }
            Event::GroupingRemoved {
                tenant_id,
                grouping,
                revocations,
            } => {
                self.change_groupings(tenant_id, |all| all.remove(grouping));
                self.change_tenant(tenant_id, |tenant| tenant.add_revocations(revocations));
            }
            other => {
                if let Some(tenant) = other.tenant_id() {
                    self.change_tenant(tenant, |entry| entry.apply_identity(other));
                }
            }
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "only events of templates come here"
    )]
    fn apply_template(&mut self, event: &Event) {
        match event {
            Event::TemplateSet { template } => {
                self.change_namespace(&template.tenant_id, &template.namespace, |space| {
                    let held = space.templates.get(&template.template);
                    let rooms = held.map_or_else(BTreeSet::new, |held| held.rooms.clone());
                    let record = template.clone();
                    let entry = Arc::new(TemplateEntry { record, rooms });
                    space.templates.insert(template.template.clone(), entry);
                });
            }
            Event::TemplateRemoved {
                tenant_id,
                namespace,
                template,
            } => self.change_namespace(tenant_id, namespace, |space| {
                space.templates.remove(template);
            }),
            Event::RoomOpened {
                tenant_id,
                namespace,
                template,
                scope,
                streams,
                caches,
            } => {
                streams.iter().for_each(|stream| self.put_stream(stream));
                caches.iter().for_each(|cache| self.put_cache(cache));
                self.change_namespace(tenant_id, namespace, |space| {
                    if let Some(entry) = space.templates.get_mut(template) {
                        Arc::make_mut(entry).rooms.insert(scope.clone());
                    }
                });
            }
            _ => {}
        }
    }

    fn change_policies(
        &mut self,
        tenant: &TenantId,
        change: impl FnOnce(&mut BTreeSet<Policy>) -> bool,
    ) {
        self.change_tenant(tenant, |entry| {
            change(Arc::make_mut(&mut entry.policies));
        });
    }

    fn change_groupings(
        &mut self,
        tenant: &TenantId,
        change: impl FnOnce(&mut BTreeSet<Grouping>) -> bool,
    ) {
        self.change_tenant(tenant, |entry| {
            change(Arc::make_mut(&mut entry.groupings));
        });
    }

    fn put_stream(&mut self, stream: &Arc<StreamRecord>) {
        self.change_namespace(&stream.tenant_id, &stream.namespace, |space| {
            space
                .streams
                .insert(stream.stream.clone(), Arc::clone(stream));
        });
    }

    fn put_cache(&mut self, cache: &Arc<CacheRecord>) {
        self.change_namespace(&cache.tenant_id, &cache.namespace, |space| {
            space.caches.insert(cache.cache.clone(), Arc::clone(cache));
        });
    }

    fn change_tenant(&mut self, tenant: &TenantId, change: impl FnOnce(&mut TenantEntry)) {
        if let Some(entry) = self.tenants.get_mut(tenant) {
            change(Arc::make_mut(entry));
        }
    }

    fn change_namespace(
        &mut self,
        tenant: &TenantId,
        namespace: &Namespace,
        change: impl FnOnce(&mut NamespaceEntry),
    ) {
        self.change_tenant(tenant, |entry| {
            if let Some(space) = entry.namespaces.get_mut(namespace) {
                change(Arc::make_mut(space));
            }
        });
    }
}
