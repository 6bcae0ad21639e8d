//! Who asks, and may he.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use felix_auth::{
    Action, Audience, KeySet, Object, Permissions, Principal, PublicKey, Resource, RevokedBy,
    TokenRefused, claimed_tenant, verify,
};
use felix_meta::TenantEntry;
use felix_model::TenantId;

use super::error::Refusal;
use crate::app::App;
use crate::clock::now;
use crate::request;
use crate::revoked::concerning;

/// What a request presents. Nothing of it is believed yet, and it has no `Debug`, because it holds the token.
pub(crate) struct Ticket {
    token: Option<String>,
    from_loopback: bool,
}

impl<S: Send + Sync> FromRequestParts<S> for Ticket {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self::of(parts))
    }
}

impl Ticket {
    /// What the head of a request presents.
    pub(crate) fn of(parts: &Parts) -> Self {
        let token = parts
            .headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim().to_owned());
        let from_loopback = parts
            .extensions
            .get::<ConnectInfo<SocketAddr>>()
            .is_some_and(|ConnectInfo(peer)| peer.ip().to_canonical().is_loopback());
        Self {
            token,
            from_loopback,
        }
    }

    /// What was presented as bearer.
    pub(crate) fn bearer(&self) -> Option<&str> {
        self.token.as_deref()
    }

    fn presented(&self) -> Result<&str, Unknown> {
        self.bearer().ok_or(Unknown::Missing)
    }

    /// The same request with another token, as a body may bring one.
    pub(crate) fn with(&self, token: &str) -> Self {
        Self {
            token: Some(token.to_owned()),
            from_loopback: self.from_loopback,
        }
    }

    /// Whether the request came from this machine.
    pub(crate) fn is_from_here(&self) -> bool {
        self.from_loopback
    }
}

/// Somebody whose token was verified.
#[derive(Debug)]
pub(crate) struct Caller {
    principal: Principal,
}

impl Caller {
    /// Refuses unless the caller may do this to that.
    pub(crate) fn must(&self, action: Action, resource: &Resource<'_>) -> Result<(), Refusal> {
        if self.principal.allows(action, resource) {
            return Ok(());
        }
        Err(Refusal::forbidden(format!("this needs `{action}`")))
    }

    /// Whether the caller may do this to that.
    pub(crate) fn may(&self, action: Action, resource: &Resource<'_>) -> bool {
        self.principal.allows(action, resource)
    }

    /// Refuses unless the caller may do this to something of a kind, whichever it is.
    pub(crate) fn must_to_some(&self, action: Action, kind: &Object) -> Result<(), Refusal> {
        let mut grants = self.principal.permissions.grants().iter();
        if grants.any(|one| one.action == action && one.object.intersect(kind).is_some()) {
            return Ok(());
        }
        Err(Refusal::forbidden(format!("this needs `{action}`")))
    }

    /// Who the caller is.
    pub(crate) const fn principal(&self) -> &Principal {
        &self.principal
    }

    /// What the caller may do.
    pub(crate) fn permissions(&self) -> &Permissions {
        &self.principal.permissions
    }
}

/// How far a right reaches that somebody holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// One tenant.
    Tenant,
    /// Every tenant.
    Installation,
}

/// Why nobody is known by a token.
enum Unknown {
    Missing,
    Token(TokenRefused),
    Revoked(RevokedBy),
}

impl From<TokenRefused> for Unknown {
    fn from(refused: TokenRefused) -> Self {
        Self::Token(refused)
    }
}

impl App {
    /// Verifies a token for calls about one tenant. A tenant that does not exist has no keys, so its callers are told
    /// what callers with a wrong key are told.
    pub(crate) fn caller_of(&self, ticket: &Ticket, tenant: &str) -> Result<Caller, Refusal> {
        // A name that no tenant can have is a tenant without keys, like any other unknown one.
        let tenant = tenant.parse().map_err(|_| TokenRefused::UnknownKey);
        let outcome = ticket
            .presented()
            .and_then(|token| self.verified(ticket, token, &tenant?, Audience::ControlPlane));
        self.known(outcome)
    }

    /// Verifies a token for calls about the installation: any tenant's will do, if it carries the rights.
    pub(crate) fn caller(&self, ticket: &Ticket) -> Result<Caller, Refusal> {
        let outcome = ticket.presented().and_then(|token| {
            self.verified(
                ticket,
                token,
                &claimed_tenant(token)?,
                Audience::ControlPlane,
            )
        });
        self.known(outcome)
    }

    /// Whether a token is good by what is known here. `false` for one whose key is not known here, and may be elsewhere.
    ///
    /// # Errors
    /// What is said of a token that no newer state makes good.
    pub(crate) fn is_known_here(&self, ticket: &Ticket) -> Result<bool, Refusal> {
        let outcome = ticket.presented().and_then(|token| {
            let tenant = claimed_tenant(token)?;
            self.verified(ticket, token, &tenant, Audience::ControlPlane)
        });
        match outcome {
            Err(Unknown::Token(TokenRefused::UnknownKey)) => Ok(false),
            outcome => self.counted(outcome).map(|_| true),
        }
    }

    /// Verifies a token for calls about one tenant that may also come from who holds a right over the installation.
    /// Anybody else's token from another tenant is refused like one of a tenant that does not exist.
    pub(crate) fn reach_of(
        &self,
        ticket: &Ticket,
        tenant: &str,
        action: Action,
    ) -> Result<Reach, Refusal> {
        let claimed = ticket.bearer().and_then(|token| claimed_tenant(token).ok());
        if claimed.is_some_and(|claimed| claimed.as_ref() != tenant)
            && let Ok(caller) = self.caller(ticket)
            && caller.may(action, &Resource::Cluster)
        {
            return Ok(Reach::Installation);
        }
        let caller = self.caller_of(ticket, tenant)?;
        if caller.may(action, &Resource::Cluster) {
            return Ok(Reach::Installation);
        }
        caller.must(action, &Resource::Tenant(tenant))?;
        Ok(Reach::Tenant)
    }

    /// Whether the token is a good one of any tenant. Nothing is counted and nobody remembered.
    pub(crate) fn knows(&self, ticket: &Ticket) -> bool {
        let known = ticket.presented().and_then(|token| {
            let tenant = claimed_tenant(token)?;
            self.verified(ticket, token, &tenant, Audience::ControlPlane)
        });
        known.is_ok()
    }

    /// Verifies a token that a body brings, of somebody other than the caller.
    pub(crate) fn principal_of(
        &self,
        ticket: &Ticket,
        tenant: &TenantId,
        audience: Audience,
    ) -> Result<Principal, Refusal> {
        let presented = ticket.presented();
        let outcome = presented.and_then(|token| self.verified(ticket, token, tenant, audience));
        self.counted(outcome)
    }

    fn verified(
        &self,
        ticket: &Ticket,
        token: &str,
        tenant: &TenantId,
        audience: Audience,
    ) -> Result<Principal, Unknown> {
        let catalogue = self.authority.catalogue();
        let entry = catalogue.tenant(tenant.as_ref());
        let keys = entry.map_or_else(KeySet::default, |entry| keys_of(entry));
        let principal = verify(token, tenant, audience, &keys, now())?;
        if principal.loopback_only && !ticket.from_loopback {
            return Err(TokenRefused::WrongAudience.into());
        }
        let revoked = entry.and_then(|entry| concerning(entry, &principal).covers(&principal));
        match revoked {
            Some(by) => Err(Unknown::Revoked(by)),
            None => Ok(principal),
        }
    }

    fn known(&self, outcome: Result<Principal, Unknown>) -> Result<Caller, Refusal> {
        let principal = self.counted(outcome)?;
        request::identify(&principal);
        Ok(Caller { principal })
    }

    fn counted(&self, outcome: Result<Principal, Unknown>) -> Result<Principal, Refusal> {
        outcome.map_err(|unknown| {
            let (reason, refusal) = match unknown {
                Unknown::Missing => (
                    "token_missing",
                    Refusal::unauthorized("this needs a bearer token for felix-controlplane"),
                ),
                Unknown::Token(refused) => (refused.code(), refused.into()),
                Unknown::Revoked(by) => ("token_revoked", Refusal::revoked(by.to_string())),
            };
            self.stats.auth_rejected(reason);
            refusal
        })
    }
}

fn keys_of(entry: &TenantEntry) -> KeySet {
    let keys: Vec<PublicKey> = entry
        .keys
        .iter()
        .map(|key| PublicKey {
            kid: key.kid.clone(),
            x: key.x.clone(),
        })
        .collect();
    KeySet::new(&keys)
}
