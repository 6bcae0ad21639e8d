//! From the settings in force to a token that is good now.

use std::sync::Arc;
use std::time::Duration;

use felix_auth::Audience;

use super::App;
use crate::api::Api;
use crate::credentials::{Exchange, Holder, ServiceKey, Source, Store};
use crate::exit::Failure;
use crate::secret::Secret;
use crate::settings::{Credential, Settings, read_token, trimmed};

/// Where the tokens of one audience come from.
#[derive(Clone, Debug)]
pub(crate) enum Tokens {
    /// One that somebody gave.
    Given(Secret),
    /// A file that somebody else renews.
    File(std::path::PathBuf),
    /// Ours, renewed when it is due.
    Renewed(Arc<Source>),
}

impl Tokens {
    /// A token that is good now.
    ///
    /// # Errors
    /// When there is none and none can be had.
    pub(crate) async fn token(&self) -> Result<Secret, Failure> {
        match self {
            Self::Given(token) => trimmed(token.reveal()),
            Self::File(file) => read_token(file),
            Self::Renewed(source) => source.token().await,
        }
    }
}

impl App {
    /// Where the tokens of an audience come from.
    ///
    /// # Errors
    /// When nothing says so.
    pub(crate) fn tokens(
        &self,
        settings: &Settings,
        audience: Audience,
    ) -> Result<Tokens, Failure> {
        let (holder, store) = match settings.credential(audience)? {
            Credential::Token(token) => return Ok(Tokens::Given(token.clone())),
            Credential::TokenFile(file) => return Ok(Tokens::File(file.to_owned())),
            Credential::SignIn(_) => (Holder::Person, Some(self.store(settings)?)),
            Credential::ServiceAccount(file) => {
                let key = ServiceKey::read(file)?;
                let tenant = settings.tenant()?;
                if key.tenant != tenant {
                    return Err(Failure::usage(format!(
                        "the service account's key is for tenant {}, not {tenant}",
                        key.tenant
                    )));
                }
                let name = format!("key-{}.{}", key.tenant, key.key_id);
                // A container without a home exchanges its key for each command.
                let store = self.config_file().ok();
                let store = store.map(|file| Store::beside(&file, &name));
                (Holder::ServiceAccount(file.to_owned()), store)
            }
        };
        let exchange = self.exchange(settings)?;
        let source = Source::new(holder, audience, exchange, store);
        Ok(Tokens::Renewed(Arc::new(source)))
    }

    /// The token routes of the control plane.
    ///
    /// # Errors
    /// When the settings do not say where it is, or which tenant is meant.
    pub(super) fn exchange(&self, settings: &Settings) -> Result<Exchange, Failure> {
        Ok(Exchange {
            controlplane_url: settings.controlplane_url()?.to_owned(),
            tls: settings.controlplane_tls()?,
            tenant: settings.tenant()?.to_owned(),
            timeout: self.timeout(),
        })
    }

    /// Where the tokens of the context's sign-in are kept.
    ///
    /// # Errors
    /// When no context is in force, or the person has no home directory.
    pub(super) fn store(&self, settings: &Settings) -> Result<Store, Failure> {
        let name = settings.context.as_deref().ok_or_else(|| {
            Failure::usage("no context is selected").with_hint("`felixctl context ls` lists them")
        })?;
        Ok(Store::beside(&self.config_file()?, name))
    }

    /// The control plane, with a token for it.
    ///
    /// # Errors
    /// When the settings do not say where it is, or no token can be had.
    pub async fn controlplane(&self, settings: &Settings) -> Result<Api, Failure> {
        self.controlplane_within(settings, self.timeout()).await
    }

    /// The control plane for requests that may take this long.
    pub(super) async fn controlplane_within(
        &self,
        settings: &Settings,
        timeout: Duration,
    ) -> Result<Api, Failure> {
        let tokens = self.tokens(settings, Audience::ControlPlane)?;
        let url = settings.controlplane_url()?;
        let tls = settings.controlplane_tls()?;
        let token = tokens.token().await?;
        let api = Api::new(url, Some(token), &tls, timeout, "the control plane")?;
        Ok(match tokens {
            Tokens::Renewed(source) => api.renewed_by(source),
            Tokens::Given(_) | Tokens::File(_) => api,
        })
    }
}
