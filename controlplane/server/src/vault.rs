//! Private keys. They are kept in the ledger's records beside the events, and in memory here, and nowhere else: no
//! event, no catalogue and no answer holds one.

use std::collections::BTreeMap;
use std::sync::Arc;

use felix_auth::SigningKey;
use felix_meta::{Catalogue, Event};
use felix_model::TenantId;
use serde::{Deserialize, Serialize};

/// A private key as it is written down.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Secret {
    tenant_id: TenantId,
    kid: String,
    secret: String,
}

impl Secret {
    pub(crate) fn new(tenant_id: &TenantId, key: &SigningKey) -> Self {
        Self {
            tenant_id: tenant_id.clone(),
            kid: key.kid().to_owned(),
            secret: key.to_secret(),
        }
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Secret")
            .field("kid", &self.kid)
            .finish_non_exhaustive()
    }
}

/// All private keys of all tenants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vault {
    keys: BTreeMap<(TenantId, String), Arc<SigningKey>>,
}

impl Vault {
    /// Takes the keys that came with an event, and forgets those that the event ends.
    pub(crate) fn apply(&mut self, event: &Event, secrets: &[Secret]) {
        if let Event::TenantDeleted { tenant_id } = event {
            self.keys.retain(|(tenant, _), _| tenant != tenant_id);
        }
        if let Event::KeyRetired { tenant_id, kid } = event {
            self.keys.remove(&(tenant_id.clone(), kid.clone()));
        }
        if let Event::KeyReplaced { tenant_id, .. } = event {
            self.keys.retain(|(tenant, _), _| tenant != tenant_id);
        }
        self.keep(secrets);
    }

    /// Takes keys as they were written down.
    pub(crate) fn keep(&mut self, secrets: &[Secret]) {
        for secret in secrets {
            match SigningKey::from_secret(&secret.secret) {
                Ok(key) => {
                    let place = (secret.tenant_id.clone(), secret.kid.clone());
                    self.keys.insert(place, Arc::new(key));
                }
                Err(error) => {
                    tracing::error!(kid = %secret.kid, %error, "a signing key cannot be read");
                }
            }
        }
    }

    /// The key that signs new tokens of a tenant.
    pub(crate) fn current(
        &self,
        catalogue: &Catalogue,
        tenant: &TenantId,
    ) -> Option<Arc<SigningKey>> {
        let entry = catalogue.tenant(tenant.as_ref())?;
        self.keys
            .get(&(tenant.clone(), entry.current_key.clone()))
            .map(Arc::clone)
    }

    /// All keys as they are written down.
    pub(crate) fn secrets(&self) -> Vec<Secret> {
        self.keys
            .iter()
            .map(|((tenant, _), key)| Secret::new(tenant, key))
            .collect()
    }
}
