//! Who may sign in, and what is taken back when something ends.

use felix_model::{TenantId, TimeMs};

use super::{Conflict, Decision, Refused, room, same_or_conflict};
use crate::catalogue::{Catalogue, TenantEntry};
use crate::check::{self, Invalid};
use crate::command::Command;
use crate::event::Event;
use crate::identity::{
    IssuerRecord, PrincipalRecord, QuotaLimits, QuotaScope, RevocationRecord, RevokedKind,
};
use crate::limits::{
    AUDITED_RECORDS_MAX, ISSUERS_PER_TENANT_MAX, PRINCIPALS_PER_TENANT_MAX, QUOTAS_PER_TENANT_MAX,
    REVOCATION_AHEAD_MS_MAX, REVOCATION_REACH_MS, REVOCATION_REACH_MS_MAX,
    REVOCATIONS_PER_TENANT_MAX,
};
use crate::lookup::{Kind, Missing};
use crate::record::Grouping;

impl Catalogue {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the rest is decided by the next function"
    )]
    pub(super) fn decide_identity(&self, command: &Command) -> Result<Decision, Refused> {
        match command {
            Command::SetIssuer(tenant, issuer) => self.set_issuer(tenant, issuer),
            Command::AddIssuer(tenant, issuer) => self.add_issuer(tenant, issuer),
            Command::RemoveIssuer {
                tenant_id,
                issuer,
                now_ms,
            } => self.remove_issuer(tenant_id, issuer, *now_ms),
            Command::RecordPrincipal(tenant, principal) => self.record_principal(tenant, principal),
            Command::Revoke {
                tenant_id,
                kind,
                id,
                not_before_ms,
                reason,
                now_ms,
            } => {
                let revocation = RevocationRecord {
                    kind: *kind,
                    id: id.clone(),
                    not_before_ms: *not_before_ms,
                    reason: reason.clone(),
                    at_ms: *now_ms,
                };
                self.revoke(tenant_id, revocation)
            }
            Command::SetQuota {
                tenant_id,
                scope,
                limits,
            } => self.set_quota(tenant_id, scope, limits),
            Command::TightenQuota { tenant_id, limits } => self.tighten_quota(tenant_id, limits),
            Command::RemoveQuota { tenant_id, scope } => self.remove_quota(tenant_id, scope),
            Command::Audited { tenant_id, records } => {
                let few = records.len() <= AUDITED_RECORDS_MAX;
                if !few || records.is_empty() {
                    return Err(Invalid::OutOfRange {
                        field: "records",
                        found: records.len() as u64,
                        from: 1,
                        to: AUDITED_RECORDS_MAX as u64,
                    }
                    .into());
                }
                if let Some(tenant) = tenant_id {
                    self.find_tenant(tenant.as_ref())?;
                }
                let (tenant_id, records) = (tenant_id.clone(), records.clone());
                Ok(Decision::Change(Event::Audited { tenant_id, records }))
            }
            other => self.decide_service(other),
        }
    }

    fn set_issuer(&self, tenant: &TenantId, issuer: &IssuerRecord) -> Result<Decision, Refused> {
        check::issuer(issuer)?;
        let entry = self.find_tenant(tenant.as_ref())?;
        let held = entry.issuers.get(&issuer.issuer);
        if held == Some(issuer) {
            return Ok(Decision::Unchanged);
        }
        if held.is_none() {
            room(
                "identity providers",
                entry.issuers.len(),
                ISSUERS_PER_TENANT_MAX,
            )?;
        }
        let (tenant_id, issuer) = (tenant.clone(), issuer.clone());
        Ok(Decision::Change(Event::IssuerSet { tenant_id, issuer }))
    }

    fn add_issuer(&self, tenant: &TenantId, issuer: &IssuerRecord) -> Result<Decision, Refused> {
        let own = self
            .find_tenant(tenant.as_ref())?
            .issuers
            .get(&issuer.issuer);
        if let Some(held) = own {
            return same_or_conflict(held == issuer, Kind::Issuer, &issuer.issuer);
        }
        let is_known = |entry: &TenantEntry| entry.issuers.contains_key(&issuer.issuer);
        if self.tenants().any(|(_, entry)| is_known(entry)) {
            return same_or_conflict(false, Kind::Issuer, &issuer.issuer);
        }
        self.set_issuer(tenant, issuer)
    }

    fn remove_issuer(
        &self,
        tenant: &TenantId,
        issuer: &str,
        now: TimeMs,
    ) -> Result<Decision, Refused> {
        let entry = self.find_tenant(tenant.as_ref())?;
        if !entry.issuers.contains_key(issuer) {
            return Err(Missing::new(Kind::Issuer, issuer).into());
        }
        let one = taken_back(RevokedKind::Issuer, issuer, "the issuer was removed", now);
        Ok(Decision::Change(Event::IssuerRemoved {
            tenant_id: tenant.clone(),
            issuer: issuer.to_owned(),
            revocations: fitting(entry, tenant, vec![one], now),
        }))
    }

    fn record_principal(
        &self,
        tenant: &TenantId,
        principal: &PrincipalRecord,
    ) -> Result<Decision, Refused> {
        check::principal_record(principal)?;
        let entry = self.find_tenant(tenant.as_ref())?;
        match new_principal(entry, principal) {
            false => Ok(Decision::Unchanged),
            true => Ok(Decision::Change(Event::PrincipalRecorded {
                tenant_id: tenant.clone(),
                principal: principal.clone(),
            })),
        }
    }

    fn revoke(
        &self,
        tenant: &TenantId,
        mut revocation: RevocationRecord,
    ) -> Result<Decision, Refused> {
        check::revocation(&revocation)?;
        let latest = revocation.at_ms.0.saturating_add(REVOCATION_AHEAD_MS_MAX);
        if revocation.not_before_ms.0 > latest {
            return Err(Invalid::OutOfRange {
                field: "not_before_ms",
                found: revocation.not_before_ms.0,
                from: 0,
                to: latest,
            }
            .into());
        }
        let entry = self.find_tenant(tenant.as_ref())?;
        if revocation.kind == RevokedKind::Tenant && revocation.id != tenant.as_ref() {
            let problem = "a revocation of a whole tenant names that tenant";
            return Err(Invalid::Contradiction(problem).into());
        }
        // One of an earlier moment is meant to leave alone what was minted since.
        if revocation.not_before_ms >= revocation.at_ms {
            let reach = reach(entry, revocation.at_ms);
            revocation.not_before_ms = revocation.not_before_ms.max(reach);
        }
        Ok(Decision::Change(Event::Revoked {
            tenant_id: tenant.clone(),
            ended_sessions: ends_sessions(entry, &revocation) as u64,
            revocations: overflow(entry, tenant, 1, revocation.at_ms)
                .into_iter()
                .collect(),
            revocation,
        }))
    }

    fn set_quota(
        &self,
        tenant: &TenantId,
        scope: &QuotaScope,
        limits: &QuotaLimits,
    ) -> Result<Decision, Refused> {
        check::quota(scope, limits)?;
        let entry = self.find_tenant(tenant.as_ref())?;
        if let QuotaScope::Namespace(namespace) = scope {
            self.find_namespace(tenant.as_ref(), namespace.as_ref())?;
        }
        match entry.quotas.get(scope) {
            Some(held) if held == *limits => return Ok(Decision::Unchanged),
            Some(_) => {}
            None => room("quotas", entry.quotas.len(), QUOTAS_PER_TENANT_MAX)?,
        }
        Ok(Decision::Change(Event::QuotaSet {
            tenant_id: tenant.clone(),
            scope: scope.clone(),
            limits: *limits,
        }))
    }

    fn tighten_quota(&self, tenant: &TenantId, limits: &QuotaLimits) -> Result<Decision, Refused> {
        let scope = QuotaScope::Tenant;
        let entry = self.find_tenant(tenant.as_ref())?;
        let held = entry.quotas.get(&scope).unwrap_or_default();
        if limits.and(held) != *limits {
            return same_or_conflict(false, Kind::Quota, &scope.to_string());
        }
        self.set_quota(tenant, &scope, limits)
    }

    fn remove_quota(&self, tenant: &TenantId, scope: &QuotaScope) -> Result<Decision, Refused> {
        let entry = self.find_tenant(tenant.as_ref())?;
        if entry.quotas.get(scope).is_none() {
            return Err(Missing::new(Kind::Quota, &scope.to_string()).into());
        }
        let (tenant_id, scope) = (tenant.clone(), scope.clone());
        Ok(Decision::Change(Event::QuotaRemoved { tenant_id, scope }))
    }
}

/// Whether a principal is to be remembered: he is not known, and there is room.
pub(super) fn new_principal(entry: &TenantEntry, principal: &PrincipalRecord) -> bool {
    !entry.principals.contains(&principal.principal_id)
        && entry.principals.len() < PRINCIPALS_PER_TENANT_MAX
}

/// A revocation that follows from a change made now; [`fitting`] gives it its reach.
pub(super) fn taken_back(
    kind: RevokedKind,
    id: &str,
    reason: &str,
    now: TimeMs,
) -> RevocationRecord {
    RevocationRecord {
        kind,
        id: id.to_owned(),
        not_before_ms: now,
        reason: reason.to_owned(),
        at_ms: now,
    }
}

/// Until when a revocation reaches that is decided now: past what is minted meanwhile on what was known before, and past
/// every one before it, because tokens that follow those are dated after them and may be ahead of the clock.
fn reach(entry: &TenantEntry, now: TimeMs) -> TimeMs {
    let soon = now.0.saturating_add(REVOCATION_REACH_MS);
    let last = now.0.saturating_add(REVOCATION_REACH_MS_MAX);
    let past = entry.revocations.latest().0.saturating_add(1);
    TimeMs(soon.max(past.min(last)))
}

/// The revocations, each with its reach, and one of the whole tenant when there is no room for them.
pub(super) fn fitting(
    entry: &TenantEntry,
    tenant: &TenantId,
    mut revocations: Vec<RevocationRecord>,
    now: TimeMs,
) -> Vec<RevocationRecord> {
    revocations.extend(overflow(entry, tenant, revocations.len(), now));
    let reach = reach(entry, now);
    for revocation in &mut revocations {
        revocation.not_before_ms = reach;
    }
    revocations
}

fn overflow(
    entry: &TenantEntry,
    tenant: &TenantId,
    more: usize,
    now: TimeMs,
) -> Option<RevocationRecord> {
    let full = entry.revocations.len().saturating_add(more) > REVOCATIONS_PER_TENANT_MAX;
    let reason = "too many revocations to keep each";
    full.then(|| RevocationRecord {
        not_before_ms: reach(entry, now),
        ..taken_back(RevokedKind::Tenant, tenant.as_ref(), reason, now)
    })
}

/// What a holder of rules loses with one of them. A name without a mark may be a principal or a role.
pub(super) fn of_holder(
    entry: &TenantEntry,
    tenant: &TenantId,
    holder: &str,
    reason: &str,
    now: TimeMs,
) -> Vec<RevocationRecord> {
    let role = taken_back(RevokedKind::Role, holder, reason, now);
    let revocations = match is_no_principal(holder) {
        true => vec![role],
        false => vec![
            taken_back(RevokedKind::Principal, holder, reason, now),
            role,
        ],
    };
    fitting(entry, tenant, revocations, now)
}

/// What is taken back with a gift of a role: tokens of the principal that had it, and of everybody who holds the role
/// when a group or a role had it, because who is in those is not known here.
pub(super) fn of_grouping(
    entry: &TenantEntry,
    tenant: &TenantId,
    grouping: &Grouping,
    now: TimeMs,
) -> Vec<RevocationRecord> {
    let reason = "a role was taken away";
    let role = || taken_back(RevokedKind::Role, &grouping.role, reason, now);
    let given_on = entry.groupings.iter().any(|one| one.role == grouping.user);
    let revocations = match (is_no_principal(&grouping.user), given_on) {
        (true, _) => vec![role()],
        (false, false) => vec![taken_back(
            RevokedKind::Principal,
            &grouping.user,
            reason,
            now,
        )],
        (false, true) => vec![
            taken_back(RevokedKind::Principal, &grouping.user, reason, now),
            role(),
        ],
    };
    fitting(entry, tenant, revocations, now)
}

fn is_no_principal(name: &str) -> bool {
    name.starts_with("role:") || name.starts_with("group:")
}

fn ends_sessions(entry: &TenantEntry, revocation: &RevocationRecord) -> usize {
    match revocation.kind {
        RevokedKind::Principal => entry.sessions.of(&revocation.id).count(),
        RevokedKind::Session => usize::from(entry.sessions.get(&revocation.id).is_some()),
        RevokedKind::Issuer => entry
            .sessions
            .iter()
            .filter(|session| session.issuer.as_deref() == Some(&revocation.id))
            .count(),
        RevokedKind::Tenant => entry.sessions.len(),
        RevokedKind::Token | RevokedKind::Role => 0,
    }
}

/// Refuses an id that exists.
pub(super) fn taken(kind: Kind, id: &str) -> Refused {
    let id = id.to_owned();
    Conflict::IdTaken { kind, id }.into()
}
