//! Sessions: what a refresh token stands for.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use felix_model::TimeMs;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::shelf::Shelf;

/// One sign-in that goes on by refreshing.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Its id: letters and digits.
    pub session_id: String,
    /// Whose it is.
    pub principal_id: String,
    /// The provider that vouched for him.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// The service account that signed in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
    /// The groups the provider said he was in, as rules name them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Whom its tokens are for. It never changes.
    pub audience: String,
    /// How its tokens were narrowed. It never changes.
    #[serde(default)]
    pub ask: SessionAsk,
    /// Who may act for him.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_act: Option<String>,
    /// When he signed in.
    pub created_at_ms: TimeMs,
    /// When it was last refreshed.
    pub refreshed_at_ms: TimeMs,
    /// From when on it cannot be refreshed, unless it is refreshed before.
    pub expires_at_ms: TimeMs,
    /// How often it was refreshed. A refresh token names the generation it was made for, so one used twice shows.
    pub generation: u64,
    /// Lower-case hex SHA-256 of the refresh token's secret.
    pub secret_sha256: String,
    /// The address he signed in from.
    pub from: String,
}

impl fmt::Debug for SessionRecord {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SessionRecord")
            .field("session_id", &self.session_id)
            .field("principal_id", &self.principal_id)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

/// What an exchange asked for, in the words of its body.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionAsk {
    /// Only these actions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requested: Vec<String>,
    /// Only over these objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Only these `action:object` pairs. An empty list that was asked for is not the same as none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Vec<String>>,
}

/// All sessions of a tenant, by id and by principal. Serialises as its records by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sessions {
    records: Shelf<SessionRecord>,
    of_principal: Shelf<BTreeSet<String>>,
}

impl Sessions {
    /// How many there are, expired ones among them.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// A session by its id.
    #[must_use]
    pub fn get(&self, session_id: &str) -> Option<&Arc<SessionRecord>> {
        self.records.get(session_id)
    }

    /// All sessions, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<SessionRecord>> {
        self.records.iter().map(|(_, session)| session)
    }

    /// The sessions of a principal, by id.
    pub fn of(&self, principal: &str) -> impl Iterator<Item = &Arc<SessionRecord>> {
        self.of_principal
            .get(principal)
            .into_iter()
            .flat_map(|ids| ids.iter())
            .filter_map(|id| self.records.get(id))
    }

    pub(crate) fn open(&mut self, session: SessionRecord) {
        self.end(&session.session_id);
        let (principal, id) = (&session.principal_id, session.session_id.clone());
        if self.of_principal.contains(principal) {
            self.of_principal.change(principal, |ids| {
                ids.insert(id.clone());
            });
        } else {
            let only = BTreeSet::from([id.clone()]);
            self.of_principal.insert(principal.clone(), only);
        }
        self.records.insert(id, session);
    }

    pub(crate) fn change(&mut self, session_id: &str, change: impl FnOnce(&mut SessionRecord)) {
        self.records.change(session_id, change);
    }

    pub(crate) fn end(&mut self, session_id: &str) {
        let Some(ended) = self.records.remove(session_id) else {
            return;
        };
        let principal = &ended.principal_id;
        let mut left = 0;
        self.of_principal.change(principal, |ids| {
            ids.remove(session_id);
            left = ids.len();
        });
        if left == 0 {
            self.of_principal.remove(principal);
        }
    }

    pub(crate) fn end_where(&mut self, ends: impl Fn(&SessionRecord) -> bool) {
        for id in self.ids_where(ends) {
            self.end(&id);
        }
    }

    pub(crate) fn end_of(&mut self, principal: &str) {
        let ids: Vec<String> = self
            .of(principal)
            .map(|session| session.session_id.clone())
            .collect();
        ids.iter().for_each(|id| self.end(id));
    }

    fn ids_where(&self, ends: impl Fn(&SessionRecord) -> bool) -> Vec<String> {
        self.iter()
            .filter(|session| ends(session))
            .map(|session| session.session_id.clone())
            .collect()
    }
}

impl Serialize for Sessions {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        self.records.serialize(out)
    }
}

impl<'de> Deserialize<'de> for Sessions {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let records = Shelf::<SessionRecord>::deserialize(input)?;
        let mut sessions = Self::default();
        for (_, session) in records.iter() {
            sessions.open(SessionRecord::clone(session));
        }
        Ok(sessions)
    }
}
