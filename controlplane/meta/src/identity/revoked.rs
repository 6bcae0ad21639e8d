//! What was taken back before it ran out.

use std::collections::BTreeMap;
use std::sync::Arc;

use felix_model::TimeMs;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::limits::{REVOCATION_PRUNE_SLACK_MS, SESSION_TOKEN_LIFE_MS_MAX, TOKEN_LIFE_MS_MAX};
use crate::shelf::Shelf;

/// What a revocation is about, and what its id means.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum RevokedKind {
    /// Tokens of a principal: their `sub` or `act.sub` is the id.
    Principal,
    /// Tokens of a session: their `sid` is the id.
    Session,
    /// One token: its `jti` is the id.
    Token,
    /// Tokens that hold something by a role, or by rules of a group: the id is among their `roles`.
    Role,
    /// Tokens of people a provider vouched for. The id is the issuer as it is written in its record; tokens carry the
    /// start of its hash as `idp`.
    Issuer,
    /// Every token of the tenant, whatever the id.
    Tenant,
}

impl RevokedKind {
    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::Principal,
        Self::Session,
        Self::Token,
        Self::Role,
        Self::Issuer,
        Self::Tenant,
    ];

    /// Its name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Principal => "principal",
            Self::Session => "session",
            Self::Token => "token",
            Self::Role => "role",
            Self::Issuer => "issuer",
            Self::Tenant => "tenant",
        }
    }

    /// After how long every token it could be about has run out by itself.
    const fn life_ms(self) -> u64 {
        match self {
            Self::Session => SESSION_TOKEN_LIFE_MS_MAX,
            Self::Principal | Self::Token | Self::Role | Self::Issuer | Self::Tenant => {
                TOKEN_LIFE_MS_MAX
            }
        }
    }
}

/// Tokens minted at or before a moment are good no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RevocationRecord {
    /// What it is about.
    pub kind: RevokedKind,
    /// Which of that kind.
    pub id: String,
    /// Tokens whose `iat` is at or before it are refused.
    #[schema(value_type = u64)]
    pub not_before_ms: TimeMs,
    /// Why, for people.
    pub reason: String,
    /// When it was said.
    #[schema(value_type = u64)]
    pub at_ms: TimeMs,
}

/// All revocations of a tenant that may still concern a token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revocations {
    kinds: BTreeMap<RevokedKind, OfKind>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct OfKind {
    /// No record is older than this. It says when to prune, so it belongs to the state: two copies prune alike.
    #[serde(rename = "oldest_ms")]
    oldest: TimeMs,
    records: Shelf<RevocationRecord>,
}

impl Revocations {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kinds.values().map(|kind| kind.records.len()).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// The one about this, if any.
    #[must_use]
    pub fn get(&self, kind: RevokedKind, id: &str) -> Option<&Arc<RevocationRecord>> {
        self.kinds.get(&kind)?.records.get(id)
    }

    /// All of one kind, by id.
    pub fn of_kind(&self, kind: RevokedKind) -> impl Iterator<Item = &Arc<RevocationRecord>> {
        self.kinds
            .get(&kind)
            .into_iter()
            .flat_map(|kind| kind.records.iter().map(|(_, record)| record))
    }

    /// All of them, by kind and id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<RevocationRecord>> {
        self.kinds
            .values()
            .flat_map(|kind| kind.records.iter().map(|(_, record)| record))
    }

    /// Adds one. It never takes back less than the one of the same kind and id did, and one of the whole tenant stands
    /// for all that are no newer. Those that can concern no token any more go.
    pub(crate) fn add(&mut self, record: &RevocationRecord) {
        let mut record = record.clone();
        if let Some(held) = self.get(record.kind, &record.id)
            && held.not_before_ms > record.not_before_ms
        {
            record.not_before_ms = held.not_before_ms;
        }
        let (at, not_before) = (record.at_ms, record.not_before_ms);
        self.prune(at);
        if record.kind == RevokedKind::Tenant {
            self.keep_where(|held| held.not_before_ms > not_before);
        }
        let kind = self.kinds.entry(record.kind).or_insert_with(|| OfKind {
            oldest: at,
            records: Shelf::default(),
        });
        kind.oldest = kind.oldest.min(newest_moment(&record));
        kind.records.insert(record.id.clone(), record);
    }

    /// Forgets those whose tokens have run out. It looks through a kind only when its oldest is well past that, so
    /// that a busy tenant does not walk through all of them at every sign-out.
    fn prune(&mut self, now: TimeMs) {
        for (kind, held) in &mut self.kinds {
            let life = kind.life_ms();
            let due = held.oldest.0.saturating_add(life);
            if due.saturating_add(REVOCATION_PRUNE_SLACK_MS) > now.0 {
                continue;
            }
            held.records
                .retain(|_, record| newest_moment(record).0.saturating_add(life) > now.0);
            held.find_oldest();
        }
        self.kinds.retain(|_, held| !held.records.is_empty());
    }

    fn keep_where(&mut self, wanted: impl Fn(&RevocationRecord) -> bool) {
        for held in self.kinds.values_mut() {
            held.records.retain(|_, record| wanted(record));
            held.find_oldest();
        }
        self.kinds.retain(|_, held| !held.records.is_empty());
    }
}

impl OfKind {
    fn find_oldest(&mut self) {
        let oldest = self.records.iter().map(|(_, record)| newest_moment(record));
        self.oldest = oldest.min().unwrap_or_default();
    }
}

fn newest_moment(record: &RevocationRecord) -> TimeMs {
    record.at_ms.max(record.not_before_ms)
}
