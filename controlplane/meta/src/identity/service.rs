//! Accounts of programs, with keys that we issue ourselves.

use std::fmt;

use felix_model::TimeMs;
use serde::{Deserialize, Serialize};

/// A program that signs in with a key of ours instead of a provider's token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceAccountRecord {
    /// Its name in the tenant.
    pub name: String,
    /// Its name for people.
    pub display_name: String,
    /// Whether it is shut out. Its keys stay and work again when it is let in.
    pub disabled: bool,
    /// What it may sign in with, oldest first.
    pub keys: Vec<ServiceKey>,
}

impl ServiceAccountRecord {
    /// The name under which it is given rights.
    #[must_use]
    pub fn principal_id(&self) -> String {
        service_principal(&self.name)
    }
}

/// The principal of a service account, as rules and tokens name it.
#[must_use]
pub fn service_principal(account: &str) -> String {
    format!("sa:{account}")
}

/// A key of a service account. The secret itself is known only to whom it was given.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceKey {
    /// Its id, unique in the tenant.
    pub key_id: String,
    /// Lower-case hex SHA-256 of the secret. The secret is 32 random bytes, so its hash cannot be searched for.
    pub secret_sha256: String,
    /// When it was made.
    pub created_at_ms: TimeMs,
    /// From when on it is good no more; never when `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at_ms: Option<TimeMs>,
}

impl fmt::Debug for ServiceKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ServiceKey")
            .field("key_id", &self.key_id)
            .field("created_at_ms", &self.created_at_ms)
            .field("expires_at_ms", &self.expires_at_ms)
            .finish_non_exhaustive()
    }
}
