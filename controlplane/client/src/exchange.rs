//! Tokens for many people over one client: what an adapter in front of browsers asks for.

use felix_meta::http::{
    DelegateAnswer, DelegateSpec, ExchangeSpec, Hidden, RefreshSpec, RevokeTokenSpec, TokenAnswer,
};
use felix_model::TenantId;
use reqwest::Method;

use crate::call::{BadEndpoint, CallFailed, Caller, Request};
use crate::token::TokenSource;
use crate::trust::Trust;

/// Asks for tokens of one tenant, each time with somebody else's credential. Clones share their connections.
#[derive(Clone, Debug)]
pub struct Exchanger {
    caller: Caller,
    tenant: TenantId,
}

impl Exchanger {
    /// Prepares calls; nothing is sent yet. `roots` are PEM certificates to trust, needed for `https` only.
    ///
    /// # Errors
    /// [`BadEndpoint`] when the address or the roots cannot be used.
    pub fn new(url: &str, tenant: TenantId, roots: Option<&[u8]>) -> Result<Self, BadEndpoint> {
        let caller = Caller::new(url, TokenSource::None, &Trust::roots(roots))?;
        Ok(Self { caller, tenant })
    }

    /// The tenant whose tokens these are.
    #[must_use]
    pub const fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// Exchanges a provider's token or a service account's key for a Felix token.
    ///
    /// # Errors
    /// [`CallFailed`]; the refusal does not say whether the tenant exists.
    pub async fn exchange(
        &self,
        credential: &str,
        spec: &ExchangeSpec,
    ) -> Result<TokenAnswer, CallFailed> {
        let request = Request::new(Method::POST, self.path("exchange")).body(spec);
        self.with(credential).call(request).await.map(second)
    }

    /// Spends a refresh token for the next token, which keeps its audience and how it was narrowed.
    ///
    /// # Errors
    /// [`CallFailed`]. Refused, it never works again; unanswered, it may have been spent.
    pub async fn renew(&self, refresh_token: &str) -> Result<TokenAnswer, CallFailed> {
        let spent = RefreshSpec {
            refresh_token: Hidden(refresh_token.to_owned()),
            audience: None,
        };
        let request = Request::new(Method::POST, self.path("refresh")).body(&spent);
        self.caller.call(request).await.map(second)
    }

    /// Ends the session that a refresh token continues. One that is not good ends nothing and is no error.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn end(&self, refresh_token: &str) -> Result<(), CallFailed> {
        let spent = RevokeTokenSpec {
            refresh_token: Hidden(refresh_token.to_owned()),
        };
        let request = Request::new(Method::POST, self.path("revoke")).body(&spent);
        self.caller.send_only(request).await
    }

    /// Asks for a token with which the holder of `actor_token` acts for somebody.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn delegate(
        &self,
        actor_token: &str,
        spec: &DelegateSpec,
    ) -> Result<DelegateAnswer, CallFailed> {
        let request = Request::new(Method::POST, self.path("delegate")).body(spec);
        self.with(actor_token).call(request).await.map(second)
    }

    fn with(&self, credential: &str) -> Caller {
        self.caller.with_token(TokenSource::fixed(credential))
    }

    fn path(&self, verb: &'static str) -> Vec<&str> {
        vec!["v1", "tenants", self.tenant.as_ref(), "token", verb]
    }
}

fn second<T>((_, answer): (reqwest::StatusCode, T)) -> T {
    answer
}
