//! Who connections from this machine are without a login, in a process that embeds the listener for development.

use std::sync::{Arc, Mutex, PoisonError};

use felix_auth::{Audience, verify};
use felix_controlplane_client::Held;
use felix_model::TenantId;

use crate::listener::{StartRefused, now};
use crate::names::Names;
use crate::upstream::Upstream;
use crate::who::{Logins, Tokens, Who};

/// Who connections from this machine are without a login. For development: only a process that embeds the listener
/// can have it so.
#[derive(Debug)]
pub struct Anonymous {
    /// The tenant.
    pub tenant: String,
    /// Token for brokers. Whoever gave it holds another one in time.
    pub token: Held,
    /// Token for the control plane, likewise.
    pub controlplane_token: Held,
}

/// The one without a name, as he is now.
#[derive(Debug)]
pub(crate) struct Nameless {
    given: Anonymous,
    tenant: TenantId,
    now: Mutex<(Arc<str>, Arc<Who>)>,
}

impl Nameless {
    /// Finds out who he is.
    ///
    /// # Errors
    /// [`StartRefused::Anonymous`] when his token is not good.
    pub(crate) fn new(
        given: Anonymous,
        names: &Names,
        upstream: &Upstream,
    ) -> Result<Self, StartRefused> {
        let refused = |error: &dyn std::fmt::Display| StartRefused::Anonymous(error.to_string());
        let tenant = given.tenant.parse().map_err(|error| refused(&error))?;
        let who = who(&given, &tenant, names, upstream);
        let now = Mutex::new(who.map_err(|error| refused(&error))?);
        Ok(Self { given, tenant, now })
    }

    /// Who he is now: with another token he is another one, whose login stands longer. Until the keys are known here
    /// that verify it he stays who he was, and his connections end as his login does.
    pub(crate) fn who(&self, names: &Names, upstream: &Upstream) -> Arc<Who> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if *self.given.token.token() != *now.0 {
            match who(&self.given, &self.tenant, names, upstream) {
                Ok(other) => *now = other,
                Err(error) => {
                    tracing::warn!(%error, "the next token of connections without a login is not good yet");
                }
            }
        }
        Arc::clone(&now.1)
    }
}

fn who(
    given: &Anonymous,
    tenant: &TenantId,
    names: &Names,
    upstream: &Upstream,
) -> Result<(Arc<str>, Arc<Who>), felix_auth::TokenRefused> {
    let token = given.token.token();
    let keys = names.keys(tenant);
    let principal = verify(&token, tenant, Audience::Broker, &keys, now())?;
    let tokens = Tokens {
        broker: Arc::clone(&token),
        control: Some(given.controlplane_token.token()),
    };
    Ok((token, Logins::nameless(principal, tokens, upstream)))
}
