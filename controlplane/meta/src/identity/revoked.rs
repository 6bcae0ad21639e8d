//! What was taken back before it ran out.

use std::collections::BTreeMap;
use std::sync::Arc;

use felix_model::{RevokedKind, TimeMs};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::limits::{REVOCATION_PRUNE_SLACK_MS, SESSION_TOKEN_LIFE_MS_MAX, TOKEN_LIFE_MS_MAX};
use crate::shelf::Shelf;

/// After how long every token that a revocation of a kind could be about has run out by itself.
const fn life_ms(kind: RevokedKind) -> u64 {
    match kind {
        RevokedKind::Session => SESSION_TOKEN_LIFE_MS_MAX,
        RevokedKind::Principal
        | RevokedKind::Token
        | RevokedKind::Role
        | RevokedKind::Issuer
        | RevokedKind::Tenant => TOKEN_LIFE_MS_MAX,
    }
}

/// The kinds as the API's description has them.
pub(crate) fn kind_schema() -> utoipa::openapi::schema::Object {
    utoipa::openapi::schema::ObjectBuilder::new()
        .schema_type(utoipa::openapi::schema::Type::String)
        .enum_values(Some(RevokedKind::ALL.map(RevokedKind::name)))
        .description(Some("What a revocation is about."))
        .build()
}

/// Tokens minted at or before a moment are good no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RevocationRecord {
    /// What it is about.
    #[schema(schema_with = kind_schema)]
    pub kind: RevokedKind,
    /// Which of that kind.
    pub id: String,
    /// Tokens minted at or before it are refused. It lies a second after the moment at which it was decided, so that it
    /// covers what was minted meanwhile on what was known before; tokens that follow it are dated after it.
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
#[serde(from = "StoredKind")]
struct OfKind {
    /// No record is older than this. It says when to prune, so it belongs to the state: two copies prune alike.
    #[serde(rename = "oldest_ms")]
    oldest: TimeMs,
    /// Until when the furthest of the records reaches.
    #[serde(skip_serializing)]
    latest: TimeMs,
    records: Shelf<RevocationRecord>,
}

#[derive(Deserialize)]
struct StoredKind {
    oldest_ms: TimeMs,
    records: Shelf<RevocationRecord>,
}

impl From<StoredKind> for OfKind {
    fn from(stored: StoredKind) -> Self {
        let mut kind = Self {
            oldest: stored.oldest_ms,
            latest: TimeMs::default(),
            records: stored.records,
        };
        kind.find_latest();
        kind
    }
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

    /// Until when the furthest of all reaches.
    #[must_use]
    pub fn latest(&self) -> TimeMs {
        let latest = self.kinds.values().map(|kind| kind.latest);
        latest.max().unwrap_or_default()
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
            latest: not_before,
            records: Shelf::default(),
        });
        kind.oldest = kind.oldest.min(newest_moment(&record));
        kind.latest = kind.latest.max(not_before);
        kind.records.insert(record.id.clone(), record);
    }

    /// Forgets those whose tokens have run out. It looks through a kind only when its oldest is well past that, so
    /// that a busy tenant does not walk through all of them at every sign-out.
    fn prune(&mut self, now: TimeMs) {
        for (kind, held) in &mut self.kinds {
            let life = life_ms(*kind);
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
        self.find_latest();
    }

    fn find_latest(&mut self) {
        let latest = self.records.iter().map(|(_, record)| record.not_before_ms);
        self.latest = latest.max().unwrap_or_default();
    }
}

fn newest_moment(record: &RevocationRecord) -> TimeMs {
    record.at_ms.max(record.not_before_ms)
}
