//! What the events of this part do to a tenant.

use std::collections::BTreeSet;
use std::sync::Arc;

use felix_model::TimeMs;

use super::{RevocationRecord, RevokedKind, ServiceAccountRecord, service_principal};
use crate::catalogue::TenantEntry;
use crate::event::Event;

impl TenantEntry {
    /// Makes a change of this part; does nothing for any other event.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the rest is made by the next function"
    )]
    pub(crate) fn apply_identity(&mut self, event: &Event) {
        match event {
            Event::IssuerSet { issuer, .. } => {
                self.issuers.insert(issuer.issuer.clone(), issuer.clone());
            }
            Event::IssuerRemoved {
                issuer,
                revocations,
                ..
            } => {
                self.issuers.remove(issuer);
                self.sessions
                    .end_where(|session| session.issuer.as_deref() == Some(issuer));
                self.add_revocations(revocations);
            }
            Event::PrincipalRecorded { principal, .. } => {
                let id = principal.principal_id.clone();
                self.principals.insert(id, principal.clone());
            }
            Event::SessionOpened { .. }
            | Event::SessionRefreshed { .. }
            | Event::SessionEnded { .. }
            | Event::SessionsExpired { .. } => self.apply_session(event),
            Event::Revoked {
                revocation,
                revocations,
                ..
            } => {
                self.end_revoked(revocation);
                self.revocations.add(revocation);
                self.add_revocations(revocations);
            }
            Event::QuotaSet { scope, limits, .. } => self.quotas.set(scope, *limits),
            Event::QuotaRemoved { scope, .. } => self.quotas.remove(scope),
            Event::Withheld { revocations, .. } => self.add_revocations(revocations),
            _ => self.apply_service(event),
        }
    }

    /// Adds what follows from a change.
    pub(crate) fn add_revocations(&mut self, revocations: &[RevocationRecord]) {
        revocations
            .iter()
            .for_each(|revocation| self.revocations.add(revocation));
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "only events of sessions come here"
    )]
    fn apply_session(&mut self, event: &Event) {
        match event {
            Event::SessionOpened {
                session,
                principal,
                ended,
                revocations,
                ..
            } => {
                ended.iter().for_each(|id| self.sessions.end(id));
                self.sessions.open(session.clone());
                if let Some(principal) = principal {
                    let id = principal.principal_id.clone();
                    self.principals.insert(id, principal.clone());
                }
                self.add_revocations(revocations);
            }
            Event::SessionRefreshed {
                session_id,
                generation,
                secret_sha256,
                refreshed_at_ms,
                expires_at_ms,
                ..
            } => self.sessions.change(session_id, |session| {
                session.generation = *generation;
                session.secret_sha256.clone_from(secret_sha256);
                session.refreshed_at_ms = *refreshed_at_ms;
                session.expires_at_ms = *expires_at_ms;
            }),
            Event::SessionEnded {
                session_id,
                revocations,
                ..
            } => {
                self.sessions.end(session_id);
                self.add_revocations(revocations);
            }
            Event::SessionsExpired { before_ms, .. } => self.expire(*before_ms),
            _ => {}
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every other event was made before it came here"
    )]
    fn apply_service(&mut self, event: &Event) {
        match event {
            Event::ServiceAccountCreated { account, .. } => {
                self.service_accounts.insert(account.clone());
            }
            Event::ServiceAccountDeleted {
                name, revocations, ..
            } => {
                self.service_accounts.remove(name);
                self.forget_rules_of(&service_principal(name));
                self.end_sessions_of_account(name);
                self.add_revocations(revocations);
            }
            Event::ServiceAccountDisabled {
                name,
                disabled,
                revocations,
                ..
            } => {
                self.change_account(name, |account| account.disabled = *disabled);
                if *disabled {
                    self.end_sessions_of_account(name);
                }
                self.add_revocations(revocations);
            }
            Event::ServiceKeyAdded { name, key, .. } => {
                self.change_account(name, |account| account.keys.push(key.clone()));
            }
            Event::ServiceKeyRemoved {
                name,
                key_id,
                revocations,
                ..
            } => {
                self.change_account(name, |account| {
                    account.keys.retain(|key| key.key_id != *key_id);
                });
                self.end_sessions_of_account(name);
                self.add_revocations(revocations);
            }
            _ => {}
        }
    }

    fn change_account(&mut self, name: &str, change: impl FnOnce(&mut ServiceAccountRecord)) {
        self.service_accounts.change(name, change);
    }

    fn end_sessions_of_account(&mut self, name: &str) {
        let of_account: Vec<String> = self
            .sessions
            .of(&service_principal(name))
            .map(|session| session.session_id.clone())
            .collect();
        of_account.iter().for_each(|id| self.sessions.end(id));
    }

    /// A name that is given to somebody else later must not bring what its first owner could do.
    fn forget_rules_of(&mut self, principal: &str) {
        if self.groupings.iter().any(|one| one.user == principal) {
            let kept: BTreeSet<_> = self
                .groupings
                .iter()
                .filter(|one| one.user != principal)
                .cloned()
                .collect();
            self.groupings = Arc::new(kept);
        }
        if self.policies.iter().any(|one| one.subject == principal) {
            let kept: BTreeSet<_> = self
                .policies
                .iter()
                .filter(|one| one.subject != principal)
                .cloned()
                .collect();
            self.policies = Arc::new(kept);
        }
    }

    /// Revoking somebody outright ends his sessions, so that he has to sign in again and is looked at anew.
    fn end_revoked(&mut self, revocation: &RevocationRecord) {
        match revocation.kind {
            RevokedKind::Principal => self.sessions.end_of(&revocation.id),
            RevokedKind::Session => self.sessions.end(&revocation.id),
            RevokedKind::Issuer => self
                .sessions
                .end_where(|session| session.issuer.as_deref() == Some(&revocation.id)),
            RevokedKind::Tenant => self.sessions.end_where(|_| true),
            RevokedKind::Token | RevokedKind::Role => {}
        }
    }

    fn expire(&mut self, before: TimeMs) {
        self.sessions
            .end_where(|session| session.expires_at_ms <= before);
    }
}
