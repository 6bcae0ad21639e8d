//! Who asks, and may he.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use felix_auth::{
    Action, Audience, KeySet, Object, Permissions, Principal, PublicKey, Resource, TokenRefused,
    claimed_tenant, verify,
};
use felix_model::TenantId;

use super::error::Refusal;
use crate::app::App;
use crate::clock::now;
use crate::request;

/// What a request presents. Nothing of it is believed yet, and it has no `Debug`, because it holds the token.
pub(crate) struct Ticket {
    token: Option<String>,
    from_loopback: bool,
}

impl<S: Send + Sync> FromRequestParts<S> for Ticket {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
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
        Ok(Self {
            token,
            from_loopback,
        })
    }
}

impl Ticket {
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

    /// What the caller may do.
    pub(crate) fn permissions(&self) -> &Permissions {
        &self.principal.permissions
    }
}

impl App {
    /// Verifies a token for calls about one tenant. A tenant that does not exist has no keys, so its callers are told
    /// what callers with a wrong key are told.
    pub(crate) fn caller_of(&self, ticket: &Ticket, tenant: &str) -> Result<Caller, Refusal> {
        self.counted(ticket.token.as_deref().map_or(Err(None), |token| {
            // A name that no tenant can have is a tenant without keys, like any other unknown one.
            let tenant = tenant.parse().map_err(|_| Some(TokenRefused::UnknownKey))?;
            self.verified(ticket, token, &tenant).map_err(Some)
        }))
    }

    /// Verifies a token for calls about the installation: any tenant's will do, if it carries the rights.
    pub(crate) fn caller(&self, ticket: &Ticket) -> Result<Caller, Refusal> {
        self.counted(ticket.token.as_deref().map_or(Err(None), |token| {
            let tenant = claimed_tenant(token).map_err(Some)?;
            self.verified(ticket, token, &tenant).map_err(Some)
        }))
    }

    fn verified(
        &self,
        ticket: &Ticket,
        token: &str,
        tenant: &TenantId,
    ) -> Result<Caller, TokenRefused> {
        let keys = self.keys_of(tenant);
        let principal = verify(token, tenant, Audience::ControlPlane, &keys, now())?;
        if principal.loopback_only && !ticket.from_loopback {
            return Err(TokenRefused::WrongAudience);
        }
        request::identify(&principal);
        Ok(Caller { principal })
    }

    fn keys_of(&self, tenant: &TenantId) -> KeySet {
        let catalogue = self.authority.catalogue();
        let Some(entry) = catalogue.tenant(tenant.as_ref()) else {
            return KeySet::default();
        };
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

    fn counted(&self, outcome: Result<Caller, Option<TokenRefused>>) -> Result<Caller, Refusal> {
        outcome.map_err(|refused| {
            let reason = refused.as_ref().map_or("token_missing", TokenRefused::code);
            self.stats.auth_rejected(reason);
            refused.map_or_else(
                || Refusal::unauthorized("this needs a bearer token for felix-controlplane"),
                Refusal::from,
            )
        })
    }
}
