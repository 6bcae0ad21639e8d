//! The bootstrap listener: day zero and tokens without an identity provider.

use std::fmt;
use std::sync::Arc;

use felix_meta::http::{DevTokenSpec, InitializeAnswer, InitializeSpec, TokenAnswer};
use felix_model::TenantId;
use reqwest::Method;

use crate::call::{BadEndpoint, CallFailed, Caller, Request};
use crate::token::TokenSource;
use crate::trust::Trust;

const HEADER: &str = "X-Felix-Bootstrap-Token";

/// Calls to the bootstrap listener of a control plane.
#[derive(Clone)]
pub struct Bootstrap {
    caller: Caller,
    secret: Arc<str>,
}

impl Bootstrap {
    /// Prepares calls; nothing is sent yet.
    ///
    /// # Errors
    /// [`BadEndpoint`] when the address cannot be used.
    pub fn new(url: &str, secret: &str) -> Result<Self, BadEndpoint> {
        Ok(Self {
            caller: Caller::new(url, TokenSource::None, &Trust::default())?,
            secret: secret.into(),
        })
    }

    /// Gives a tenant its first key and administrators. Works once per tenant.
    ///
    /// # Errors
    /// [`CallFailed`]; code `already_initialized` when it was done before.
    pub async fn initialize(
        &self,
        tenant: &TenantId,
        spec: &InitializeSpec,
    ) -> Result<InitializeAnswer, CallFailed> {
        self.post(tenant, "initialize", spec).await
    }

    /// Asks for a token of a principal, with what his roles give him.
    ///
    /// # Errors
    /// [`CallFailed`]; code `not_enabled` unless the control plane hands out such tokens.
    pub async fn dev_token(
        &self,
        tenant: &TenantId,
        spec: &DevTokenSpec,
    ) -> Result<TokenAnswer, CallFailed> {
        self.post(tenant, "dev-token", spec).await
    }

    async fn post<T: serde::de::DeserializeOwned>(
        &self,
        tenant: &TenantId,
        verb: &str,
        body: &impl serde::Serialize,
    ) -> Result<T, CallFailed> {
        let path = vec!["internal", "bootstrap", "tenants", tenant.as_ref(), verb];
        let mut request = Request::new(Method::POST, path).body(body);
        request.header = Some((HEADER, Arc::clone(&self.secret)));
        self.caller.call(request).await.map(|(_, answer)| answer)
    }
}

impl fmt::Debug for Bootstrap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Bootstrap")
            .field("url", &self.caller.url())
            .finish_non_exhaustive()
    }
}
