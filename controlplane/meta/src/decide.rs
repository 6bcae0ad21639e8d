//! What a command would change, or why it may not.

use std::sync::Arc;

use felix_model::{CacheName, Incarnation, Namespace, StreamName, TenantId, TimeMs};

use crate::catalogue::{Catalogue, TenantEntry};
use crate::check::{self, Invalid};
use crate::command::Command;
use crate::event::Event;
use crate::limits::{BATCH_ITEMS_MAX, KEYS_PER_TENANT_MAX, RULES_PER_TENANT_MAX};
use crate::lookup::{Kind, Missing};
use crate::record::{
    CachePatch, CacheRecord, CacheSpec, Grouping, NamespaceRecord, NamespaceSpec, Policy,
    StreamPatch, StreamRecord, StreamSpec, TenantRecord, VerifyingKey,
};

mod identity;
mod initialize;
mod place;
mod service;
mod session;
mod template;

use place::Place;

/// What a command comes to.
#[expect(
    clippy::large_enum_variant,
    reason = "they are few at a time, and sessions are the most frequent of them"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// This is to happen.
    Change(Event),
    /// Everything is as asked already.
    Unchanged,
}

/// Why a command was refused. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The command can never be carried out, whatever the state.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// Something it is about does not exist.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// The state stands against it.
    #[error(transparent)]
    Conflict(#[from] Conflict),
}

/// What in the state stands against a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// Things of these names exist and are not as asked.
    #[error("{} exists with other settings", names.join(", "))]
    Different {
        /// Their names, each with its kind.
        names: Vec<String>,
    },
    /// A tenant of that name exists; tenants are never made twice, not even alike.
    #[error("tenant `{tenant}` exists")]
    TenantExists {
        /// Its name.
        tenant: TenantId,
    },
    /// The tenant has its first key already.
    #[error("tenant `{tenant}` was initialized before")]
    AlreadyInitialized {
        /// Its name.
        tenant: TenantId,
    },
    /// The tenant has no key yet.
    #[error("tenant `{tenant}` is not initialized")]
    NotInitialized {
        /// Its name.
        tenant: TenantId,
    },
    /// The key signs new tokens, so it cannot be retired.
    #[error("signing key `{kid}` is the current one; activate another first")]
    KeyIsCurrent {
        /// Its id.
        kid: String,
    },
    /// A key of that id exists.
    #[error("signing key `{kid}` exists")]
    KeyExists {
        /// Its id.
        kid: String,
    },
    /// The session was refreshed by somebody else: the refresh token was used before.
    #[error("session `{session_id}` is at generation {found}, not at {expected}")]
    SessionMovedOn {
        /// Its id.
        session_id: String,
        /// What the caller believed.
        expected: u64,
        /// What is.
        found: u64,
    },
    /// A session or key of that id exists.
    #[error("{kind} `{id}` exists")]
    IdTaken {
        /// What it is.
        kind: Kind,
        /// The id.
        id: String,
    },
    /// The service account is shut out.
    #[error("service account `{name}` is disabled")]
    AccountDisabled {
        /// Its name.
        name: String,
    },
    /// Rooms of the template exist under its prefix.
    #[error("template `{template}` has {rooms} rooms, so its prefix stays")]
    RoomsExist {
        /// Its name.
        template: String,
        /// How many.
        rooms: usize,
    },
    /// Names of two templates' rooms could be the same.
    #[error("prefix `{prefix}` meets the one of template `{template}`")]
    PrefixTaken {
        /// What was asked for.
        prefix: String,
        /// The other template.
        template: String,
    },
    /// There is no room for more of these in the tenant.
    #[error("there are {limit} {what}, which is the limit")]
    Full {
        /// What there are too many of.
        what: &'static str,
        /// How many are allowed.
        limit: usize,
    },
}

impl Catalogue {
    /// Says what a command would change. May refuse; changes nothing.
    ///
    /// The event fits this very state: apply it before anything else.
    ///
    /// # Errors
    /// [`Refused`], in this order: what is invalid in itself, what is missing, what conflicts.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what is not of names is of identity"
    )]
    pub fn decide(&self, command: &Command) -> Result<Decision, Refused> {
        match command {
            Command::CreateTenant(tenant) => self.create_tenant(tenant),
            Command::DeleteTenant(tenant) => {
                self.find_tenant(tenant.as_ref())?;
                Ok(Decision::Change(Event::TenantDeleted {
                    tenant_id: tenant.clone(),
                }))
            }
            Command::InitializeTenant { .. } => self.initialize_tenant(command),
            Command::CreateNamespace(tenant, spec) => self.create_namespace(tenant, spec),
            Command::DeleteNamespace(tenant_id, namespace) => {
                self.find_namespace(tenant_id.as_ref(), namespace.as_ref())?;
                let (tenant_id, namespace) = (tenant_id.clone(), namespace.clone());
                Ok(Decision::Change(Event::NamespaceDeleted {
                    tenant_id,
                    namespace,
                }))
            }
            Command::CreateResources {
                tenant_id,
                namespace,
                streams,
                caches,
            } => self.create_resources(tenant_id, namespace, streams, caches),
            Command::UpdateStream(tenant, namespace, stream, patch) => {
                self.update_stream(tenant, namespace, stream, patch)
            }
            Command::DeleteStream(tenant, namespace, stream) => {
                let held =
                    self.find_stream(tenant.as_ref(), namespace.as_ref(), stream.as_ref())?;
                Ok(Decision::Change(Event::StreamDeleted {
                    tenant_id: tenant.clone(),
                    namespace: namespace.clone(),
                    stream: stream.clone(),
                    incarnation: held.incarnation,
                }))
            }
            Command::UpdateCache(tenant, namespace, cache, patch) => {
                self.update_cache(tenant, namespace, cache, patch)
            }
            Command::DeleteCache(tenant, namespace, cache) => {
                let held = self.find_cache(tenant.as_ref(), namespace.as_ref(), cache.as_ref())?;
                Ok(Decision::Change(Event::CacheDeleted {
                    tenant_id: tenant.clone(),
                    namespace: namespace.clone(),
                    cache: cache.clone(),
                    incarnation: held.incarnation,
                }))
            }
            Command::StageKey(tenant, key) => self.stage_key(tenant, key),
            Command::ActivateKey(tenant, kid) => self.activate_key(tenant, kid),
            Command::RetireKey(tenant, kid) => self.retire_key(tenant, kid),
            Command::AddPolicy(tenant, policy) => self.add_policy(tenant, policy),
            Command::RemovePolicy(tenant, policy, now) => self.remove_policy(tenant, policy, *now),
            Command::AddGrouping(tenant, grouping) => self.add_grouping(tenant, grouping),
            Command::RemoveGrouping(tenant, grouping, now) => {
                self.remove_grouping(tenant, grouping, *now)
            }
            Command::ReplaceKeys(tenant, key) => self.replace_keys(tenant, key),
            Command::SetTemplate(template) => self.set_template(template),
            Command::RemoveTemplate {
                tenant_id,
                namespace,
                template,
            } => self.remove_template(tenant_id, namespace, template),
            Command::OpenRoom {
                tenant_id,
                namespace,
                template,
                scope,
            } => self.open_room(tenant_id, namespace, template, scope),
            other => self.decide_identity(other),
        }
    }

    fn create_tenant(&self, tenant: &TenantRecord) -> Result<Decision, Refused> {
        check::display_name(&tenant.display_name)?;
        if self.tenant(tenant.tenant_id.as_ref()).is_some() {
            let tenant = tenant.tenant_id.clone();
            return Err(Conflict::TenantExists { tenant }.into());
        }
        Ok(Decision::Change(Event::TenantCreated {
            tenant: tenant.clone(),
        }))
    }

    fn create_namespace(
        &self,
        tenant: &TenantId,
        spec: &NamespaceSpec,
    ) -> Result<Decision, Refused> {
        spec.display_name
            .as_deref()
            .map_or(Ok(()), check::display_name)?;
        let entry = self.find_tenant(tenant.as_ref())?;
        let display_name = named(spec.display_name.as_ref(), spec.namespace.as_ref());
        if let Some(held) = entry.namespaces.get(spec.namespace.as_ref()) {
            let alike = spec
                .display_name
                .as_ref()
                .is_none_or(|name| *name == held.display_name);
            return same_or_conflict(alike, Kind::Namespace, spec.namespace.as_ref());
        }
        Ok(Decision::Change(Event::NamespaceCreated {
            namespace: NamespaceRecord {
                tenant_id: tenant.clone(),
                namespace: spec.namespace.clone(),
                display_name,
            },
        }))
    }

    fn create_resources(
        &self,
        tenant: &TenantId,
        namespace: &Namespace,
        streams: &[StreamSpec],
        caches: &[CacheSpec],
    ) -> Result<Decision, Refused> {
        let items = (streams.len() + caches.len()) as u64;
        if items == 0 || items > BATCH_ITEMS_MAX as u64 {
            let (from, to) = (1, BATCH_ITEMS_MAX as u64);
            return Err(Invalid::OutOfRange {
                field: "items",
                found: items,
                from,
                to,
            }
            .into());
        }
        streams.iter().try_for_each(check::stream)?;
        caches.iter().try_for_each(check::cache)?;
        check::unique(streams.iter().map(|spec| spec.stream.as_ref()))?;
        check::unique(caches.iter().map(|spec| spec.cache.as_ref()))?;
        let space = self.find_namespace(tenant.as_ref(), namespace.as_ref())?;
        let incarnation = Incarnation(self.revision().next().0);
        let place = Place {
            tenant,
            namespace,
            incarnation,
        };
        let (new_streams, differing_streams) = place.new_streams(space, streams);
        let (new_caches, differing_caches) = place.new_caches(space, caches);
        let names: Vec<String> = differing_streams
            .into_iter()
            .chain(differing_caches)
            .collect();
        if !names.is_empty() {
            return Err(Conflict::Different { names }.into());
        }
        if new_streams.is_empty() && new_caches.is_empty() {
            return Ok(Decision::Unchanged);
        }
        let (streams, caches) = (new_streams, new_caches);
        Ok(Decision::Change(Event::ResourcesCreated {
            streams,
            caches,
        }))
    }

    fn update_stream(
        &self,
        tenant: &TenantId,
        namespace: &Namespace,
        stream: &StreamName,
        patch: &StreamPatch,
    ) -> Result<Decision, Refused> {
        check::patch(patch)?;
        let held = self.find_stream(tenant.as_ref(), namespace.as_ref(), stream.as_ref())?;
        let mut now = StreamRecord::clone(held);
        set(&mut now.retention, patch.retention);
        set(&mut now.consistency, patch.consistency);
        set(&mut now.delivery, patch.delivery);
        set(&mut now.durable, patch.durable);
        set(&mut now.sync, patch.sync);
        set(&mut now.overflow, patch.overflow);
        set(&mut now.cleanup, patch.cleanup);
        set(&mut now.timestamps, patch.timestamps);
        set(&mut now.max_record_bytes, patch.max_record_bytes);
        if now == **held {
            return Ok(Decision::Unchanged);
        }
        Ok(Decision::Change(Event::StreamUpdated {
            stream: Arc::new(now),
        }))
    }

    fn update_cache(
        &self,
        tenant: &TenantId,
        namespace: &Namespace,
        cache: &CacheName,
        patch: &CachePatch,
    ) -> Result<Decision, Refused> {
        patch
            .display_name
            .as_deref()
            .map_or(Ok(()), check::display_name)?;
        let held = self.find_cache(tenant.as_ref(), namespace.as_ref(), cache.as_ref())?;
        let mut now = CacheRecord::clone(held);
        set(&mut now.display_name, patch.display_name.clone());
        if now == **held {
            return Ok(Decision::Unchanged);
        }
        Ok(Decision::Change(Event::CacheUpdated {
            cache: Arc::new(now),
        }))
    }

    fn initialized(&self, tenant: &TenantId) -> Result<&TenantEntry, Refused> {
        let entry = self.find_tenant(tenant.as_ref())?;
        if !entry.initialized {
            return Err(Conflict::NotInitialized {
                tenant: tenant.clone(),
            }
            .into());
        }
        Ok(entry)
    }

    fn stage_key(&self, tenant: &TenantId, key: &VerifyingKey) -> Result<Decision, Refused> {
        check::key_id(&key.kid)?;
        let entry = self.initialized(tenant)?;
        if entry.keys.iter().any(|held| held.kid == key.kid) {
            return Err(Conflict::KeyExists {
                kid: key.kid.clone(),
            }
            .into());
        }
        room("verifying keys", entry.keys.len(), KEYS_PER_TENANT_MAX)?;
        let (tenant_id, key) = (tenant.clone(), key.clone());
        Ok(Decision::Change(Event::KeyStaged { tenant_id, key }))
    }

    fn activate_key(&self, tenant: &TenantId, kid: &str) -> Result<Decision, Refused> {
        let entry = self.initialized(tenant)?;
        has_key(entry, kid)?;
        if entry.current_key == kid {
            return Ok(Decision::Unchanged);
        }
        let (tenant_id, kid) = (tenant.clone(), kid.to_owned());
        Ok(Decision::Change(Event::KeyActivated { tenant_id, kid }))
    }

    fn retire_key(&self, tenant: &TenantId, kid: &str) -> Result<Decision, Refused> {
        let entry = self.initialized(tenant)?;
        has_key(entry, kid)?;
        let kid = kid.to_owned();
        if entry.current_key == kid {
            return Err(Conflict::KeyIsCurrent { kid }.into());
        }
        Ok(Decision::Change(Event::KeyRetired {
            tenant_id: tenant.clone(),
            kid,
        }))
    }

    fn add_policy(&self, tenant: &TenantId, policy: &Policy) -> Result<Decision, Refused> {
        check::policy(policy)?;
        let entry = self.find_tenant(tenant.as_ref())?;
        if entry.policies.contains(policy) {
            return Ok(Decision::Unchanged);
        }
        room("rules", entry.policies.len(), RULES_PER_TENANT_MAX)?;
        let (tenant_id, policy) = (tenant.clone(), policy.clone());
        Ok(Decision::Change(Event::PolicyAdded { tenant_id, policy }))
    }

    fn remove_policy(
        &self,
        tenant: &TenantId,
        policy: &Policy,
        now: TimeMs,
    ) -> Result<Decision, Refused> {
        let entry = self.find_tenant(tenant.as_ref())?;
        if !entry.policies.contains(policy) {
            return Err(Missing::new(Kind::Policy, &policy.subject).into());
        }
        Ok(Decision::Change(Event::PolicyRemoved {
            tenant_id: tenant.clone(),
            policy: policy.clone(),
            revocations: identity::of_holder(
                entry,
                tenant,
                &policy.subject,
                "a rule was removed",
                now,
            ),
        }))
    }

    fn add_grouping(&self, tenant: &TenantId, grouping: &Grouping) -> Result<Decision, Refused> {
        check::grouping(grouping)?;
        let entry = self.find_tenant(tenant.as_ref())?;
        if entry.groupings.contains(grouping) {
            return Ok(Decision::Unchanged);
        }
        room(
            "role assignments",
            entry.groupings.len(),
            RULES_PER_TENANT_MAX,
        )?;
        let (tenant_id, grouping) = (tenant.clone(), grouping.clone());
        Ok(Decision::Change(Event::GroupingAdded {
            tenant_id,
            grouping,
        }))
    }

    fn remove_grouping(
        &self,
        tenant: &TenantId,
        grouping: &Grouping,
        now: TimeMs,
    ) -> Result<Decision, Refused> {
        let entry = self.find_tenant(tenant.as_ref())?;
        if !entry.groupings.contains(grouping) {
            return Err(Missing::new(Kind::Grouping, &grouping.user).into());
        }
        Ok(Decision::Change(Event::GroupingRemoved {
            tenant_id: tenant.clone(),
            grouping: grouping.clone(),
            revocations: identity::of_grouping(entry, tenant, grouping, now),
        }))
    }

    fn replace_keys(&self, tenant: &TenantId, key: &VerifyingKey) -> Result<Decision, Refused> {
        check::key_id(&key.kid)?;
        let entry = self.initialized(tenant)?;
        if entry.keys.iter().any(|held| held.kid == key.kid) {
            let kid = key.kid.clone();
            return Err(Conflict::KeyExists { kid }.into());
        }
        let (tenant_id, key) = (tenant.clone(), key.clone());
        Ok(Decision::Change(Event::KeyReplaced { tenant_id, key }))
    }
}

fn same_or_conflict(alike: bool, kind: Kind, name: &str) -> Result<Decision, Refused> {
    if alike {
        return Ok(Decision::Unchanged);
    }
    Err(Conflict::Different {
        names: vec![format!("{kind} `{name}`")],
    }
    .into())
}

fn named(display_name: Option<&String>, name: &str) -> String {
    display_name.map_or_else(|| name.to_owned(), Clone::clone)
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

fn has_key(entry: &TenantEntry, kid: &str) -> Result<(), Missing> {
    if entry.keys.iter().any(|key| key.kid == kid) {
        return Ok(());
    }
    Err(Missing::new(Kind::Key, kid))
}

/// Refuses one more of something when there are as many as allowed.
fn room(what: &'static str, held: usize, limit: usize) -> Result<(), Refused> {
    if held < limit {
        return Ok(());
    }
    Err(Conflict::Full { what, limit }.into())
}
