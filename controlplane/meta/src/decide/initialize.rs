//! How a tenant begins.

use super::{Conflict, Decision, Refused, room};
use crate::catalogue::Catalogue;
use crate::check;
use crate::command::Command;
use crate::event::Event;
use crate::limits::{ISSUERS_PER_TENANT_MAX, RULES_PER_TENANT_MAX};

impl Catalogue {
    /// Decides about [`Command::InitializeTenant`]; changes nothing for any other.
    pub(super) fn initialize_tenant(&self, command: &Command) -> Result<Decision, Refused> {
        let Command::InitializeTenant {
            tenant,
            key,
            policies,
            groupings,
            issuers,
        } = command
        else {
            return Ok(Decision::Unchanged);
        };
        check::display_name(&tenant.display_name)?;
        check::key_id(&key.kid)?;
        policies.iter().try_for_each(check::policy)?;
        groupings.iter().try_for_each(check::grouping)?;
        issuers.iter().try_for_each(check::issuer)?;
        check::unique(issuers.iter().map(|issuer| issuer.issuer.as_str()))?;
        for (what, count, limit) in [
            ("rules", policies.len(), RULES_PER_TENANT_MAX),
            ("role assignments", groupings.len(), RULES_PER_TENANT_MAX),
            ("identity providers", issuers.len(), ISSUERS_PER_TENANT_MAX),
        ] {
            room(what, count, limit + 1)?;
        }
        let held = self.tenant(tenant.tenant_id.as_ref());
        if held.is_some_and(|entry| entry.initialized) {
            let tenant = tenant.tenant_id.clone();
            return Err(Conflict::AlreadyInitialized { tenant }.into());
        }
        Ok(Decision::Change(Event::TenantInitialized {
            tenant: tenant.clone(),
            key: key.clone(),
            policies: policies.clone(),
            groupings: groupings.clone(),
            issuers: issuers.clone(),
        }))
    }
}
