//! Sessions: how they begin, go on and end.

use felix_model::{TenantId, TimeMs};

use super::identity::{fitting, new_principal, taken, taken_back};
use super::service::find_account;
use super::{Conflict, Decision, Refused};
use crate::catalogue::{Catalogue, TenantEntry};
use crate::check::{self, Invalid};
use crate::command::Command;
use crate::event::Event;
use crate::identity::{PrincipalRecord, RevokedKind, SessionRecord, service_principal};
use crate::limits::{
    SESSION_TOKEN_LIFE_MS_MAX, SESSIONS_ENDED_SHARE, SESSIONS_MAX, SESSIONS_PER_PRINCIPAL_MAX,
    SESSIONS_PER_TENANT_MAX, SESSIONS_PER_TENANT_SURE,
};
use crate::lookup::{Kind, Missing};

impl Catalogue {
    /// Decides about sessions. Every other command was decided before it came here.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every other command was decided before it came here"
    )]
    pub(super) fn decide_session(&self, command: &Command) -> Result<Decision, Refused> {
        match command {
            Command::OpenSession {
                tenant_id,
                session,
                principal,
            } => self.open_session(tenant_id, session, principal.as_ref()),
            Command::RefreshSession {
                tenant_id,
                session_id,
                expected_generation,
                secret_sha256,
                ends_at_ms,
                now_ms,
            } => {
                check::digest("secret_sha256", secret_sha256)?;
                let held = self.session_now(tenant_id, session_id, *now_ms)?;
                if held.generation != *expected_generation {
                    return Err(Conflict::SessionMovedOn {
                        session_id: session_id.clone(),
                        expected: *expected_generation,
                        found: held.generation,
                    }
                    .into());
                }
                // Every refresh token is good for as long as the first one was, as long as the session itself may last.
                let life = held.expires_at_ms.0.saturating_sub(held.refreshed_at_ms.0);
                let expires = TimeMs(now_ms.0.saturating_add(life));
                Ok(Decision::Change(Event::SessionRefreshed {
                    tenant_id: tenant_id.clone(),
                    session_id: session_id.clone(),
                    generation: held.generation.saturating_add(1),
                    secret_sha256: secret_sha256.clone(),
                    refreshed_at_ms: *now_ms,
                    expires_at_ms: ends_at_ms.map_or(expires, |ends| ends.min(expires)),
                }))
            }
            Command::EndSession {
                tenant_id,
                session_id,
                reason,
                now_ms,
            } => self.end_session(tenant_id, session_id, reason, *now_ms),
            Command::ExpireSessions { tenant_id, now_ms } => {
                let entry = self.find_tenant(tenant_id.as_ref())?;
                let mut sessions = entry.sessions.iter();
                if !sessions.any(|session| session.expires_at_ms <= *now_ms) {
                    return Ok(Decision::Unchanged);
                }
                Ok(Decision::Change(Event::SessionsExpired {
                    tenant_id: tenant_id.clone(),
                    before_ms: *now_ms,
                }))
            }
            _ => Ok(Decision::Unchanged),
        }
    }

    fn open_session(
        &self,
        tenant: &TenantId,
        session: &SessionRecord,
        principal: Option<&PrincipalRecord>,
    ) -> Result<Decision, Refused> {
        check::session(session)?;
        principal.map_or(Ok(()), check::principal_record)?;
        let entry = self.find_tenant(tenant.as_ref())?;
        vouched_for(entry, session)?;
        if entry.sessions.get(&session.session_id).is_some() {
            return Err(taken(Kind::Session, &session.session_id));
        }
        let now = session.created_at_ms;
        let mut ended = oldest_beyond_room(entry, &session.principal_id);
        if ended.is_empty() {
            let all = self.tenants().map(|(_, tenant)| tenant.sessions.len());
            ended = longest_ago(entry, too_many(entry.sessions.len(), all.sum()), now);
        }
        let revocations: Vec<_> = ended
            .iter()
            .filter(|id| may_have_tokens(entry, id, now))
            .map(|id| taken_back(RevokedKind::Session, id, "too many sessions", now))
            .collect();
        Ok(Decision::Change(Event::SessionOpened {
            tenant_id: tenant.clone(),
            session: session.clone(),
            principal: principal
                .filter(|principal| new_principal(entry, principal))
                .cloned(),
            revocations: match revocations.is_empty() {
                true => Vec::new(),
                false => fitting(entry, tenant, revocations, now),
            },
            ended,
        }))
    }

    fn end_session(
        &self,
        tenant: &TenantId,
        session_id: &str,
        reason: &str,
        now: TimeMs,
    ) -> Result<Decision, Refused> {
        check::reason(reason)?;
        let entry = self.find_tenant(tenant.as_ref())?;
        if entry.sessions.get(session_id).is_none() {
            return Err(Missing::new(Kind::Session, session_id).into());
        }
        let one = taken_back(RevokedKind::Session, session_id, reason, now);
        Ok(Decision::Change(Event::SessionEnded {
            tenant_id: tenant.clone(),
            session_id: session_id.to_owned(),
            reason: reason.to_owned(),
            revocations: fitting(entry, tenant, vec![one], now),
        }))
    }

    /// A session that can still be refreshed. One that cannot is not told from one that never was.
    fn session_now(
        &self,
        tenant: &TenantId,
        session_id: &str,
        now: TimeMs,
    ) -> Result<&SessionRecord, Refused> {
        let entry = self.find_tenant(tenant.as_ref())?;
        entry
            .sessions
            .get(session_id)
            .filter(|session| session.expires_at_ms > now)
            .map(AsRef::as_ref)
            .ok_or_else(|| Missing::new(Kind::Session, session_id).into())
    }
}

/// Refuses a session of whom nobody vouches for any more: his provider or account may have gone while he signed in.
fn vouched_for(entry: &TenantEntry, session: &SessionRecord) -> Result<(), Refused> {
    if let Some(issuer) = &session.issuer
        && !entry.issuers.contains_key(issuer)
    {
        return Err(Missing::new(Kind::Issuer, issuer).into());
    }
    let Some(name) = &session.service_account else {
        return Ok(());
    };
    let account = find_account(entry, name)?;
    if session.principal_id != service_principal(name) {
        let problem = "the session of a service account is that of its own principal";
        return Err(Invalid::Contradiction(problem).into());
    }
    if account.disabled {
        return Err(Conflict::AccountDisabled { name: name.clone() }.into());
    }
    Ok(())
}

/// How many sessions of a tenant must end so that it can have one more, when it has so many and all tenants have so many.
fn too_many(held: usize, all: usize) -> usize {
    let allowed = match all < SESSIONS_MAX {
        true => SESSIONS_PER_TENANT_MAX,
        false => SESSIONS_PER_TENANT_SURE,
    };
    match held < allowed {
        true => 0,
        false => (held / SESSIONS_ENDED_SHARE).max(1),
    }
}

/// So many sessions of a tenant that are good no more or were refreshed longest ago.
fn longest_ago(entry: &TenantEntry, count: usize, now: TimeMs) -> Vec<String> {
    if count == 0 {
        return Vec::new();
    }
    let mut held: Vec<(bool, TimeMs, &str)> = entry
        .sessions
        .iter()
        .map(|session| {
            let is_good = session.expires_at_ms > now;
            (is_good, session.refreshed_at_ms, &*session.session_id)
        })
        .collect();
    if count < held.len() {
        held.select_nth_unstable(count);
    }
    let mut ended: Vec<String> = held
        .into_iter()
        .take(count)
        .map(|(_, _, id)| id.to_owned())
        .collect();
    ended.sort_unstable();
    ended
}

/// Whether a token that was minted for a session can still be good.
fn may_have_tokens(entry: &TenantEntry, session_id: &str, now: TimeMs) -> bool {
    let session = entry.sessions.get(session_id);
    session.is_some_and(|session| {
        let over = session
            .refreshed_at_ms
            .0
            .saturating_add(SESSION_TOKEN_LIFE_MS_MAX);
        now.0 < over
    })
}

/// The sessions of a principal that must end so that he can have one more: those refreshed longest ago.
fn oldest_beyond_room(entry: &TenantEntry, principal: &str) -> Vec<String> {
    let mut held: Vec<(TimeMs, &str)> = entry
        .sessions
        .of(principal)
        .map(|session| (session.refreshed_at_ms, session.session_id.as_str()))
        .collect();
    held.sort_unstable();
    let too_many = (held.len() + 1).saturating_sub(SESSIONS_PER_PRINCIPAL_MAX);
    held.into_iter()
        .take(too_many)
        .map(|(_, id)| id.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_makes_room_in_itself_and_its_sure_share_depends_on_nobody() {
        assert_eq!(too_many(SESSIONS_PER_TENANT_MAX - 1, SESSIONS_MAX - 1), 0);
        let share = SESSIONS_PER_TENANT_MAX / SESSIONS_ENDED_SHARE;
        assert_eq!(too_many(SESSIONS_PER_TENANT_MAX, 0), share);
        // Others took all there is.
        assert_eq!(too_many(SESSIONS_PER_TENANT_SURE - 1, SESSIONS_MAX), 0);
        let sure = SESSIONS_PER_TENANT_SURE;
        assert_eq!(too_many(sure, SESSIONS_MAX), sure / SESSIONS_ENDED_SHARE);
        assert_eq!(too_many(0, 10 * SESSIONS_MAX), 0);
    }
}
