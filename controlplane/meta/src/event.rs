//! What happened: the entries of the ledger.

use std::sync::Arc;

use felix_model::{CacheName, Incarnation, Namespace, StreamName, TenantId, TimeMs};
use serde::{Deserialize, Serialize};

use crate::audit::{Audit, AuditRecord, By};
use crate::catalogue::Revision;
use crate::identity::{
    IssuerRecord, PrincipalRecord, QuotaLimits, QuotaScope, RevocationRecord, ServiceAccountRecord,
    ServiceKey, SessionRecord,
};
use crate::record::{
    CacheRecord, Grouping, NamespaceRecord, Policy, StreamRecord, TenantRecord, VerifyingKey,
};
use crate::template::TemplateRecord;

/// The newest form of an entry that this build reads and writes.
///
/// Form 1 has no identity and no audit; form 2 has no templates and no rooms.
pub const ENTRY_VERSION: u16 = 3;

/// One change that was decided. It says what is, not what was asked, and carries no secret.
#[expect(
    clippy::large_enum_variant,
    reason = "they are few at a time, and sessions are the most frequent of them"
)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// A tenant came to be, without keys yet.
    TenantCreated {
        /// The tenant.
        tenant: TenantRecord,
    },
    /// A tenant and everything it owned is gone.
    TenantDeleted {
        /// The tenant.
        tenant_id: TenantId,
    },
    /// A tenant got its first key and its first administrators. It may have come to be with this.
    TenantInitialized {
        /// The tenant.
        tenant: TenantRecord,
        /// Its first key.
        key: VerifyingKey,
        /// Its first rules.
        policies: Vec<Policy>,
        /// Its first gifts of roles.
        groupings: Vec<Grouping>,
        /// The identity providers it trusts from the beginning. Entries of form 1 have none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        issuers: Vec<IssuerRecord>,
    },
    /// A namespace came to be.
    NamespaceCreated {
        /// The namespace.
        namespace: NamespaceRecord,
    },
    /// A namespace and everything in it is gone.
    NamespaceDeleted {
        /// Whose it was.
        tenant_id: TenantId,
        /// The namespace.
        namespace: Namespace,
    },
    /// Streams and caches came to be, all in one namespace.
    ResourcesCreated {
        /// The new streams.
        streams: Vec<Arc<StreamRecord>>,
        /// The new caches.
        caches: Vec<Arc<CacheRecord>>,
    },
    /// A stream's settings changed.
    StreamUpdated {
        /// The stream as it is now.
        stream: Arc<StreamRecord>,
    },
    /// A stream is gone, and its records with it.
    StreamDeleted {
        /// Whose it was.
        tenant_id: TenantId,
        /// Where it was.
        namespace: Namespace,
        /// The stream.
        stream: StreamName,
        /// Which of that name. Data of another incarnation is not meant.
        incarnation: Incarnation,
    },
    /// A cache's settings changed.
    CacheUpdated {
        /// The cache as it is now.
        cache: Arc<CacheRecord>,
    },
    /// A cache is gone, and its entries with it.
    CacheDeleted {
        /// Whose it was.
        tenant_id: TenantId,
        /// Where it was.
        namespace: Namespace,
        /// The cache.
        cache: CacheName,
        /// Which of that name.
        incarnation: Incarnation,
    },
    /// A template was set.
    TemplateSet {
        /// The template.
        template: TemplateRecord,
    },
    /// A template is gone; its rooms stay.
    TemplateRemoved {
        /// Whose it was.
        tenant_id: TenantId,
        /// Where it was.
        namespace: Namespace,
        /// Its name.
        template: String,
    },
    /// A room came to be, or what was missing of it.
    RoomOpened {
        /// Whose.
        tenant_id: TenantId,
        /// Where.
        namespace: Namespace,
        /// By which template.
        template: String,
        /// Which room.
        scope: String,
        /// The new streams.
        streams: Vec<Arc<StreamRecord>>,
        /// The new caches.
        caches: Vec<Arc<CacheRecord>>,
    },
    /// A key verifies from now on, and does not sign yet.
    KeyStaged {
        /// Whose key.
        tenant_id: TenantId,
        /// The key.
        key: VerifyingKey,
    },
    /// A key signs from now on.
    KeyActivated {
        /// Whose key.
        tenant_id: TenantId,
        /// Its id.
        kid: String,
    },
    /// A key verifies no more.
    KeyRetired {
        /// Whose key.
        tenant_id: TenantId,
        /// Its id.
        kid: String,
    },
    /// A rule was added.
    PolicyAdded {
        /// Whose rule.
        tenant_id: TenantId,
        /// The rule.
        policy: Policy,
    },
    /// A rule was removed.
    PolicyRemoved {
        /// Whose rule.
        tenant_id: TenantId,
        /// The rule.
        policy: Policy,
        /// What it takes back.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        revocations: Vec<RevocationRecord>,
    },
    /// A role was given.
    GroupingAdded {
        /// In which tenant.
        tenant_id: TenantId,
        /// To whom and which.
        grouping: Grouping,
    },
    /// A role was taken away.
    GroupingRemoved {
        /// In which tenant.
        tenant_id: TenantId,
        /// From whom and which.
        grouping: Grouping,
        /// What it takes back.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        revocations: Vec<RevocationRecord>,
    },
    /// One key took the place of all others, at once.
    KeyReplaced {
        /// Whose key.
        tenant_id: TenantId,
        /// The only key from now on.
        key: VerifyingKey,
    },
    /// A provider's tokens are accepted, or on other terms than before.
    IssuerSet {
        /// By whom.
        tenant_id: TenantId,
        /// The provider.
        issuer: IssuerRecord,
    },
    /// A provider's tokens are accepted no more, and the sessions it vouched for are ended.
    IssuerRemoved {
        /// By whom.
        tenant_id: TenantId,
        /// The provider.
        issuer: String,
        /// What it takes back.
        revocations: Vec<RevocationRecord>,
    },
    /// Somebody came for the first time.
    PrincipalRecorded {
        /// To whom.
        tenant_id: TenantId,
        /// Who.
        principal: PrincipalRecord,
    },
    /// A service account came to be.
    ServiceAccountCreated {
        /// Whose.
        tenant_id: TenantId,
        /// The account.
        account: ServiceAccountRecord,
    },
    /// A service account is gone, with its keys, its sessions, and every rule and role given to it by name.
    ServiceAccountDeleted {
        /// Whose.
        tenant_id: TenantId,
        /// The account.
        name: String,
        /// What it takes back.
        revocations: Vec<RevocationRecord>,
    },
    /// A service account was shut out, which ends its sessions, or let in again.
    ServiceAccountDisabled {
        /// Whose.
        tenant_id: TenantId,
        /// The account.
        name: String,
        /// Whether it is shut out now.
        disabled: bool,
        /// What it takes back.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        revocations: Vec<RevocationRecord>,
    },
    /// A service account may sign in with one more key.
    ServiceKeyAdded {
        /// Whose.
        tenant_id: TenantId,
        /// The account.
        name: String,
        /// The key, without its secret.
        key: ServiceKey,
    },
    /// A key of a service account is good no more, and the account's sessions are ended.
    ServiceKeyRemoved {
        /// Whose.
        tenant_id: TenantId,
        /// The account.
        name: String,
        /// The key.
        key_id: String,
        /// What it takes back.
        revocations: Vec<RevocationRecord>,
    },
    /// Somebody signed in.
    SessionOpened {
        /// To which tenant.
        tenant_id: TenantId,
        /// The session.
        session: SessionRecord,
        /// Who he is, when he came for the first time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        principal: Option<PrincipalRecord>,
        /// Sessions of the same principal that made room for it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ended: Vec<String>,
        /// What their end takes back.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        revocations: Vec<RevocationRecord>,
    },
    /// A session goes on with a new refresh token.
    SessionRefreshed {
        /// Of which tenant.
        tenant_id: TenantId,
        /// The session.
        session_id: String,
        /// How often it was refreshed now.
        generation: u64,
        /// The new token's hash.
        secret_sha256: String,
        /// When.
        refreshed_at_ms: TimeMs,
        /// From when on it cannot be refreshed now.
        expires_at_ms: TimeMs,
    },
    /// A session is over.
    SessionEnded {
        /// Of which tenant.
        tenant_id: TenantId,
        /// The session.
        session_id: String,
        /// Why, for people.
        reason: String,
        /// What it takes back.
        revocations: Vec<RevocationRecord>,
    },
    /// Sessions that cannot be refreshed any more were forgotten.
    SessionsExpired {
        /// Of which tenant.
        tenant_id: TenantId,
        /// Those that expired at or before it.
        before_ms: TimeMs,
    },
    /// Something was taken back outright: the sessions it is about are ended as well.
    Revoked {
        /// In which tenant.
        tenant_id: TenantId,
        /// What.
        revocation: RevocationRecord,
        /// How many sessions it ended.
        ended_sessions: u64,
        /// What follows.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        revocations: Vec<RevocationRecord>,
    },
    /// A quota was set.
    QuotaSet {
        /// Whose.
        tenant_id: TenantId,
        /// For whom.
        scope: QuotaScope,
        /// What it allows.
        limits: QuotaLimits,
    },
    /// A quota is gone.
    QuotaRemoved {
        /// Whose.
        tenant_id: TenantId,
        /// For whom it was.
        scope: QuotaScope,
    },
    /// Nothing changed, but it is to be remembered: sign-ins that were refused, and calls.
    Audited {
        /// Whom it concerns; the whole cluster when `None`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tenant_id: Option<TenantId>,
        /// What happened.
        records: Vec<AuditRecord>,
    },
    /// Something that is no business of whom it was sent to: all he needs of it is what it takes back.
    Withheld {
        /// Whom it concerns.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tenant_id: Option<TenantId>,
        /// What it takes back.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        revocations: Vec<RevocationRecord>,
    },
}

impl Event {
    /// The tenant it is about; `None` when it concerns the cluster alone.
    #[must_use]
    pub fn tenant_id(&self) -> Option<&TenantId> {
        match self {
            Self::TenantCreated { tenant } | Self::TenantInitialized { tenant, .. } => {
                Some(&tenant.tenant_id)
            }
            Self::NamespaceCreated { namespace } => Some(&namespace.tenant_id),
            Self::ResourcesCreated { streams, caches } => streams
                .first()
                .map(|stream| &stream.tenant_id)
                .or_else(|| caches.first().map(|cache| &cache.tenant_id)),
            Self::TemplateSet { template } => Some(&template.tenant_id),
            Self::StreamUpdated { stream } => Some(&stream.tenant_id),
            Self::CacheUpdated { cache } => Some(&cache.tenant_id),
            Self::Audited { tenant_id, .. } | Self::Withheld { tenant_id, .. } => {
                tenant_id.as_ref()
            }
            Self::TenantDeleted { tenant_id }
            | Self::NamespaceDeleted { tenant_id, .. }
            | Self::StreamDeleted { tenant_id, .. }
            | Self::CacheDeleted { tenant_id, .. }
            | Self::TemplateRemoved { tenant_id, .. }
            | Self::RoomOpened { tenant_id, .. }
            | Self::KeyStaged { tenant_id, .. }
            | Self::KeyActivated { tenant_id, .. }
            | Self::KeyRetired { tenant_id, .. }
            | Self::KeyReplaced { tenant_id, .. }
            | Self::PolicyAdded { tenant_id, .. }
            | Self::PolicyRemoved { tenant_id, .. }
            | Self::GroupingAdded { tenant_id, .. }
            | Self::GroupingRemoved { tenant_id, .. }
            | Self::IssuerSet { tenant_id, .. }
            | Self::IssuerRemoved { tenant_id, .. }
            | Self::PrincipalRecorded { tenant_id, .. }
            | Self::ServiceAccountCreated { tenant_id, .. }
            | Self::ServiceAccountDeleted { tenant_id, .. }
            | Self::ServiceAccountDisabled { tenant_id, .. }
            | Self::ServiceKeyAdded { tenant_id, .. }
            | Self::ServiceKeyRemoved { tenant_id, .. }
            | Self::SessionOpened { tenant_id, .. }
            | Self::SessionRefreshed { tenant_id, .. }
            | Self::SessionEnded { tenant_id, .. }
            | Self::SessionsExpired { tenant_id, .. }
            | Self::Revoked { tenant_id, .. }
            | Self::QuotaSet { tenant_id, .. }
            | Self::QuotaRemoved { tenant_id, .. } => Some(tenant_id),
        }
    }

    /// The event as nodes get it: nobody's session, no hash of a secret, no principal and no service account. What it
    /// takes back stays, so that a fold of these events is [`crate::Catalogue::for_nodes`] of the fold of the whole.
    #[must_use]
    pub fn for_nodes(&self) -> Self {
        match self {
            Self::SessionOpened { revocations, .. } => self.withheld(revocations),
            Self::PrincipalRecorded { .. }
            | Self::ServiceAccountCreated { .. }
            | Self::ServiceKeyAdded { .. }
            | Self::SessionRefreshed { .. }
            | Self::SessionsExpired { .. }
            | Self::Audited { .. } => self.withheld(&[]),
            Self::TenantCreated { .. }
            | Self::TenantDeleted { .. }
            | Self::TenantInitialized { .. }
            | Self::NamespaceCreated { .. }
            | Self::NamespaceDeleted { .. }
            | Self::ResourcesCreated { .. }
            | Self::StreamUpdated { .. }
            | Self::StreamDeleted { .. }
            | Self::CacheUpdated { .. }
            | Self::CacheDeleted { .. }
            | Self::TemplateSet { .. }
            | Self::TemplateRemoved { .. }
            | Self::RoomOpened { .. }
            | Self::KeyStaged { .. }
            | Self::KeyActivated { .. }
            | Self::KeyRetired { .. }
            | Self::PolicyAdded { .. }
            | Self::PolicyRemoved { .. }
            | Self::GroupingAdded { .. }
            | Self::GroupingRemoved { .. }
            | Self::KeyReplaced { .. }
            | Self::IssuerSet { .. }
            | Self::IssuerRemoved { .. }
            | Self::ServiceAccountDeleted { .. }
            | Self::ServiceAccountDisabled { .. }
            | Self::ServiceKeyRemoved { .. }
            | Self::SessionEnded { .. }
            | Self::Revoked { .. }
            | Self::QuotaSet { .. }
            | Self::QuotaRemoved { .. }
            | Self::Withheld { .. } => self.clone(),
        }
    }

    fn withheld(&self, revocations: &[RevocationRecord]) -> Self {
        Self::Withheld {
            tenant_id: self.tenant_id().cloned(),
            revocations: revocations.to_vec(),
        }
    }
}

/// One entry of the ledger, as the feed carries it and as the ledger keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The form of this entry; see [`ENTRY_VERSION`].
    pub version: u16,
    /// The revision this event makes.
    pub revision: Revision,
    /// When it was decided, by the control plane's clock. For people; nothing depends on it.
    pub at_ms: TimeMs,
    /// What happened.
    pub event: Event,
    /// Who did it, from where. Absent when the control plane did it by itself, and for brokers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
    /// What auditors are told, and its place in their chains. Absent for brokers and in form 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<Audit>,
}

/// Why bytes are no entry that this build can apply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryRefused {
    /// A newer build wrote it. Applying what is understood of it could lose what is not.
    #[error("the entry has form {found}; this build reads up to {newest}: upgrade it first")]
    TooNew {
        /// The form found.
        found: u16,
        /// The newest form this build reads.
        newest: u16,
    },
    /// It is not an entry at all.
    #[error("not an entry: {0}")]
    Malformed(String),
}

impl Entry {
    /// An entry of this build's form that is in no audit chain; see [`crate::Catalogue::entry`] for one that is.
    #[must_use]
    pub const fn new(revision: Revision, at_ms: TimeMs, event: Event) -> Self {
        Self {
            version: ENTRY_VERSION,
            revision,
            at_ms,
            event,
            by: None,
            audit: None,
        }
    }

    /// The entry as nodes get it; see [`Event::for_nodes`].
    #[must_use]
    pub fn for_nodes(&self) -> Self {
        Self {
            version: self.version,
            ..Self::new(self.revision, self.at_ms, self.event.for_nodes())
        }
    }

    /// Reads an entry, looking at its form first.
    ///
    /// # Errors
    /// [`EntryRefused`] when it is newer than this build or no entry.
    pub fn from_json(json: &serde_json::Value) -> Result<Self, EntryRefused> {
        let found = json.get("version").and_then(serde_json::Value::as_u64);
        if let Some(found) = found
            && found > u64::from(ENTRY_VERSION)
        {
            let found = u16::try_from(found).unwrap_or(u16::MAX);
            return Err(EntryRefused::TooNew {
                found,
                newest: ENTRY_VERSION,
            });
        }
        Self::deserialize(json).map_err(|error| EntryRefused::Malformed(error.to_string()))
    }
}
