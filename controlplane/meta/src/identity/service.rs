//! Accounts of programs, with keys that we issue ourselves.

use std::fmt;
use std::sync::Arc;

use felix_model::TimeMs;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::shelf::Shelf;

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

/// All service accounts of a tenant, by name and by the ids of their keys. Serialises as its records by name.
///
/// A key is found by its id and not by walking the accounts, so that the time it takes tells nobody how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceAccounts {
    records: Shelf<ServiceAccountRecord>,
    of_key: Shelf<String>,
}

impl ServiceAccounts {
    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// An account by its name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<ServiceAccountRecord>> {
        self.records.get(name)
    }

    /// All accounts, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<ServiceAccountRecord>)> {
        self.records.iter()
    }

    /// The key of an id, and whose it is.
    #[must_use]
    pub fn find_key(&self, key_id: &str) -> Option<(&ServiceAccountRecord, &ServiceKey)> {
        let account = self.records.get(self.of_key.get(key_id)?)?;
        let key = account.keys.iter().find(|key| key.key_id == key_id)?;
        Some((account, key))
    }

    pub(crate) fn insert(&mut self, account: ServiceAccountRecord) {
        self.remove(&account.name);
        for key in &account.keys {
            self.of_key.insert(&*key.key_id, account.name.clone());
        }
        self.records.insert(account.name.clone(), account);
    }

    pub(crate) fn remove(&mut self, name: &str) {
        let Some(removed) = self.records.remove(name) else {
            return;
        };
        for key in &removed.keys {
            self.of_key.remove(&key.key_id);
        }
    }

    pub(crate) fn change(&mut self, name: &str, change: impl FnOnce(&mut ServiceAccountRecord)) {
        let Some(held) = self.records.get(name) else {
            return;
        };
        let mut account = ServiceAccountRecord::clone(held);
        change(&mut account);
        self.insert(account);
    }
}

impl Serialize for ServiceAccounts {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        self.records.serialize(out)
    }
}

impl<'de> Deserialize<'de> for ServiceAccounts {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let records = Shelf::<ServiceAccountRecord>::deserialize(input)?;
        let mut accounts = Self::default();
        for (_, account) in records.iter() {
            accounts.insert(ServiceAccountRecord::clone(account));
        }
        Ok(accounts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_by_its_id_as_long_as_its_account_has_it() {
        let key = |id: &str| ServiceKey {
            key_id: id.into(),
            secret_sha256: String::new(),
            created_at_ms: TimeMs(1),
            expires_at_ms: None,
        };
        let mut accounts = ServiceAccounts::default();
        accounts.insert(ServiceAccountRecord {
            name: "bot".into(),
            display_name: String::new(),
            disabled: false,
            keys: vec![key("k1")],
        });
        accounts.change("bot", |account| account.keys.push(key("k2")));
        accounts.change("nobody", |account| account.keys.clear());
        let owner = |accounts: &ServiceAccounts, id: &str| {
            let found = accounts.find_key(id);
            found.map(|(account, key)| (account.name.clone(), key.key_id.clone()))
        };
        for id in ["k1", "k2"] {
            assert_eq!(owner(&accounts, id), Some(("bot".into(), id.into())));
        }
        let json = serde_json::to_string(&accounts).unwrap();
        assert!(json.starts_with(r#"{"bot":{"name":"bot""#), "{json}");
        assert_eq!(
            serde_json::from_str::<ServiceAccounts>(&json).unwrap(),
            accounts
        );
        accounts.change("bot", |account| {
            account.keys.retain(|key| key.key_id != "k1")
        });
        assert_eq!(owner(&accounts, "k1"), None);
        accounts.remove("bot");
        assert_eq!(owner(&accounts, "k2"), None);
        assert_eq!(accounts, ServiceAccounts::default());
    }
}
