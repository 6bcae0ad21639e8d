//! What happened: the entries of the ledger.

use std::sync::Arc;

use felix_model::{CacheName, Incarnation, Namespace, StreamName, TenantId, TimeMs};
use serde::{Deserialize, Serialize};

use crate::catalogue::Revision;
use crate::record::{
    CacheRecord, Grouping, NamespaceRecord, Policy, StreamRecord, TenantRecord, VerifyingKey,
};

/// The newest form of an entry that this build reads and writes.
pub const ENTRY_VERSION: u16 = 1;

/// One change that was decided. It says what is, not what was asked, and carries no secret.
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
    },
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
    /// An entry of this build's form.
    #[must_use]
    pub const fn new(revision: Revision, at_ms: TimeMs, event: Event) -> Self {
        Self {
            version: ENTRY_VERSION,
            revision,
            at_ms,
            event,
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
