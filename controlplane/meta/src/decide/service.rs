//! Service accounts.

use std::sync::Arc;

use felix_model::{TenantId, TimeMs};

use super::identity::{fitting, taken, taken_back};
use super::{Decision, Refused, room, same_or_conflict};
use crate::catalogue::{Catalogue, TenantEntry};
use crate::check;
use crate::command::Command;
use crate::event::Event;
use crate::identity::{
    RevocationRecord, RevokedKind, ServiceAccountRecord, ServiceKey, service_principal,
};
use crate::limits::{KEYS_PER_SERVICE_ACCOUNT_MAX, SERVICE_ACCOUNTS_PER_TENANT_MAX};
use crate::lookup::{Kind, Missing};

impl Catalogue {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the rest is decided by the next function"
    )]
    pub(super) fn decide_service(&self, command: &Command) -> Result<Decision, Refused> {
        match command {
            Command::CreateServiceAccount {
                tenant_id,
                name,
                display_name,
            } => self.create_account(tenant_id, name, display_name),
            Command::DeleteServiceAccount {
                tenant_id,
                name,
                now_ms,
            } => {
                let entry = self.find_tenant(tenant_id.as_ref())?;
                find_account(entry, name)?;
                Ok(Decision::Change(Event::ServiceAccountDeleted {
                    tenant_id: tenant_id.clone(),
                    name: name.clone(),
                    revocations: of_account(
                        entry,
                        tenant_id,
                        name,
                        "the account was deleted",
                        *now_ms,
                    ),
                }))
            }
            Command::DisableServiceAccount {
                tenant_id,
                name,
                disabled,
                now_ms,
            } => self.disable_account(tenant_id, name, *disabled, *now_ms),
            Command::AddServiceKey {
                tenant_id,
                name,
                key,
            } => self.add_service_key(tenant_id, name, key),
            Command::RemoveServiceKey {
                tenant_id,
                name,
                key_id,
                now_ms,
            } => self.remove_service_key(tenant_id, name, key_id, *now_ms),
            other => self.decide_session(other),
        }
    }

    fn create_account(
        &self,
        tenant: &TenantId,
        name: &str,
        display_name: &str,
    ) -> Result<Decision, Refused> {
        check::account_name(name)?;
        check::display_name(display_name)?;
        let entry = self.find_tenant(tenant.as_ref())?;
        if let Some(held) = entry.service_accounts.get(name) {
            let alike = held.display_name == display_name;
            return same_or_conflict(alike, Kind::ServiceAccount, name);
        }
        room(
            "service accounts",
            entry.service_accounts.len(),
            SERVICE_ACCOUNTS_PER_TENANT_MAX,
        )?;
        Ok(Decision::Change(Event::ServiceAccountCreated {
            tenant_id: tenant.clone(),
            account: ServiceAccountRecord {
                name: name.to_owned(),
                display_name: display_name.to_owned(),
                disabled: false,
                keys: Vec::new(),
            },
        }))
    }

    fn disable_account(
        &self,
        tenant: &TenantId,
        name: &str,
        disabled: bool,
        now: TimeMs,
    ) -> Result<Decision, Refused> {
        let entry = self.find_tenant(tenant.as_ref())?;
        if find_account(entry, name)?.disabled == disabled {
            return Ok(Decision::Unchanged);
        }
        let revocations = match disabled {
            true => of_account(entry, tenant, name, "the account was disabled", now),
            false => Vec::new(),
        };
        Ok(Decision::Change(Event::ServiceAccountDisabled {
            tenant_id: tenant.clone(),
            name: name.to_owned(),
            disabled,
            revocations,
        }))
    }

    fn add_service_key(
        &self,
        tenant: &TenantId,
        name: &str,
        key: &ServiceKey,
    ) -> Result<Decision, Refused> {
        check::service_key(key)?;
        let entry = self.find_tenant(tenant.as_ref())?;
        let account = find_account(entry, name)?;
        if entry.service_accounts.find_key(&key.key_id).is_some() {
            return Err(taken(Kind::ServiceKey, &key.key_id));
        }
        room(
            "keys in this service account",
            account.keys.len(),
            KEYS_PER_SERVICE_ACCOUNT_MAX,
        )?;
        Ok(Decision::Change(Event::ServiceKeyAdded {
            tenant_id: tenant.clone(),
            name: name.to_owned(),
            key: key.clone(),
        }))
    }

    fn remove_service_key(
        &self,
        tenant: &TenantId,
        name: &str,
        key_id: &str,
        now: TimeMs,
    ) -> Result<Decision, Refused> {
        let entry = self.find_tenant(tenant.as_ref())?;
        let account = find_account(entry, name)?;
        if !account.keys.iter().any(|key| key.key_id == key_id) {
            return Err(Missing::new(Kind::ServiceKey, key_id).into());
        }
        Ok(Decision::Change(Event::ServiceKeyRemoved {
            tenant_id: tenant.clone(),
            name: name.to_owned(),
            key_id: key_id.to_owned(),
            revocations: of_account(entry, tenant, name, "a key was removed", now),
        }))
    }
}

pub(super) fn find_account<'a>(
    entry: &'a TenantEntry,
    name: &str,
) -> Result<&'a Arc<ServiceAccountRecord>, Missing> {
    entry
        .service_accounts
        .get(name)
        .ok_or_else(|| Missing::new(Kind::ServiceAccount, name))
}

fn of_account(
    entry: &TenantEntry,
    tenant: &TenantId,
    name: &str,
    reason: &str,
    now: TimeMs,
) -> Vec<RevocationRecord> {
    let principal = service_principal(name);
    let one = taken_back(RevokedKind::Principal, &principal, reason, now);
    fitting(entry, tenant, vec![one], now)
}
