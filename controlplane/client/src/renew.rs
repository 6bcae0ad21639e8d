//! The next token for a refresh token, which is good for one use.

use std::fmt;

use felix_model::TenantId;
use reqwest::Method;
use serde::{Deserialize, Serialize};

use crate::call::{BadEndpoint, CallFailed, Caller, Request};
use crate::token::TokenSource;
use crate::trust::Trust;

/// Renews tokens of one tenant.
#[derive(Clone, Debug)]
pub struct Renewal {
    caller: Caller,
    tenant: TenantId,
}

/// What a refresh token was good for. It never shows either in `Debug`.
#[derive(Deserialize)]
pub struct Renewed {
    /// The next token.
    pub felix_token: String,
    /// Seconds for which it is good.
    pub expires_in: u64,
    /// The next refresh token; the one that was spent is worth nothing any more.
    pub refresh_token: Option<String>,
}

impl fmt::Debug for Renewed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Renewed")
            .field("expires_in", &self.expires_in)
            .finish_non_exhaustive()
    }
}

#[derive(Serialize)]
struct Spent<'a> {
    refresh_token: &'a str,
}

impl Renewal {
    /// Prepares calls; nothing is sent yet.
    ///
    /// # Errors
    /// [`BadEndpoint`] when the address, or what is trusted or presented, cannot be used.
    pub fn new(url: &str, tenant: TenantId, trust: &Trust) -> Result<Self, BadEndpoint> {
        let caller = Caller::new(url, TokenSource::None, trust)?;
        Ok(Self { caller, tenant })
    }

    /// Spends a refresh token.
    ///
    /// # Errors
    /// [`CallFailed`]. Refused, it never works again; unanswered, it may have been spent.
    pub async fn renew(&self, refresh_token: &str) -> Result<Renewed, CallFailed> {
        let path = vec!["v1", "tenants", self.tenant.as_ref(), "token", "refresh"];
        let request = Request::new(Method::POST, path).body(&Spent { refresh_token });
        self.caller.call(request).await.map(|(_, renewed)| renewed)
    }
}
