//! What someone wants changed.

use felix_model::{CacheName, Namespace, StreamName, TenantId, TimeMs};

use crate::audit::AuditRecord;
use crate::identity::{
    IssuerRecord, PrincipalRecord, QuotaLimits, QuotaScope, RevokedKind, ServiceKey, SessionRecord,
};
use crate::record::{
    CachePatch, CacheSpec, Grouping, NamespaceSpec, Policy, StreamPatch, StreamSpec, TenantRecord,
    VerifyingKey,
};
use crate::template::TemplateRecord;

/// A wish, already permitted. [`crate::Catalogue::decide`] says what it would change.
#[expect(
    clippy::large_enum_variant,
    reason = "they are few at a time, and sessions are the most frequent of them"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Make a tenant without keys.
    CreateTenant(TenantRecord),
    /// Delete a tenant and everything it owns.
    DeleteTenant(TenantId),
    /// Give a tenant its first key and administrators, making it if need be.
    InitializeTenant {
        /// The tenant.
        tenant: TenantRecord,
        /// Its first key.
        key: VerifyingKey,
        /// Its first rules.
        policies: Vec<Policy>,
        /// Its first gifts of roles.
        groupings: Vec<Grouping>,
        /// The identity providers it trusts from the beginning.
        issuers: Vec<IssuerRecord>,
    },
    /// Make a namespace.
    CreateNamespace(TenantId, NamespaceSpec),
    /// Delete a namespace and everything in it.
    DeleteNamespace(TenantId, Namespace),
    /// Make streams and caches, all of them or none.
    CreateResources {
        /// Whose.
        tenant_id: TenantId,
        /// Where.
        namespace: Namespace,
        /// Streams to make.
        streams: Vec<StreamSpec>,
        /// Caches to make.
        caches: Vec<CacheSpec>,
    },
    /// Change a stream.
    UpdateStream(TenantId, Namespace, StreamName, StreamPatch),
    /// Delete a stream.
    DeleteStream(TenantId, Namespace, StreamName),
    /// Change a cache.
    UpdateCache(TenantId, Namespace, CacheName, CachePatch),
    /// Delete a cache.
    DeleteCache(TenantId, Namespace, CacheName),
    /// Set a template, in place of the one of the same name.
    SetTemplate(TemplateRecord),
    /// Remove a template. Its rooms stay.
    RemoveTemplate {
        /// Whose.
        tenant_id: TenantId,
        /// Where.
        namespace: Namespace,
        /// Its name.
        template: String,
    },
    /// Make what is missing of a room.
    OpenRoom {
        /// Whose.
        tenant_id: TenantId,
        /// Where.
        namespace: Namespace,
        /// By which template.
        template: String,
        /// Which room.
        scope: String,
    },
    /// Let a new key verify.
    StageKey(TenantId, VerifyingKey),
    /// Let a staged key sign.
    ActivateKey(TenantId, String),
    /// Let a key verify no more.
    RetireKey(TenantId, String),
    /// Add a rule.
    AddPolicy(TenantId, Policy),
    /// Remove a rule, at this moment: tokens that hold something by it are taken back.
    RemovePolicy(TenantId, Policy, TimeMs),
    /// Give a role.
    AddGrouping(TenantId, Grouping),
    /// Take a role away, at this moment: tokens that hold something by it are taken back.
    RemoveGrouping(TenantId, Grouping, TimeMs),
    /// Let a new key sign and verify, and no other, at once.
    ReplaceKeys(TenantId, VerifyingKey),
    /// Accept tokens of a provider, or on other terms.
    SetIssuer(TenantId, IssuerRecord),
    /// Accept tokens of a provider that no tenant knows yet. Refused when this tenant accepts it on other terms, or another
    /// tenant accepts it at all: that would touch people who are somebody's already.
    AddIssuer(TenantId, IssuerRecord),
    /// Accept tokens of a provider no more.
    RemoveIssuer {
        /// By whom.
        tenant_id: TenantId,
        /// The provider.
        issuer: String,
        /// Now.
        now_ms: TimeMs,
    },
    /// Remember who somebody is. Whoever is known stays as he is.
    RecordPrincipal(TenantId, PrincipalRecord),
    /// Make a service account without keys.
    CreateServiceAccount {
        /// Whose.
        tenant_id: TenantId,
        /// Its name.
        name: String,
        /// Its name for people.
        display_name: String,
    },
    /// Delete a service account and all that was given to it.
    DeleteServiceAccount {
        /// Whose.
        tenant_id: TenantId,
        /// Its name.
        name: String,
        /// Now.
        now_ms: TimeMs,
    },
    /// Shut a service account out, or let it in again.
    DisableServiceAccount {
        /// Whose.
        tenant_id: TenantId,
        /// Its name.
        name: String,
        /// Whether it is shut out.
        disabled: bool,
        /// Now.
        now_ms: TimeMs,
    },
    /// Let a service account sign in with one more key.
    AddServiceKey {
        /// Whose.
        tenant_id: TenantId,
        /// The account.
        name: String,
        /// The key, without its secret.
        key: ServiceKey,
    },
    /// Let a service account sign in with a key no more.
    RemoveServiceKey {
        /// Whose.
        tenant_id: TenantId,
        /// The account.
        name: String,
        /// The key.
        key_id: String,
        /// Now.
        now_ms: TimeMs,
    },
    /// Begin a session; `created_at_ms` of it is now.
    OpenSession {
        /// Of which tenant.
        tenant_id: TenantId,
        /// The session, whose id must be new.
        session: SessionRecord,
        /// Who he is; remembered when he is not known yet.
        principal: Option<PrincipalRecord>,
    },
    /// Go on with a session, when nobody else has done so meanwhile. It may go on as long again as it might before.
    RefreshSession {
        /// Of which tenant.
        tenant_id: TenantId,
        /// The session.
        session_id: String,
        /// How often the caller knows it to have been refreshed.
        expected_generation: u64,
        /// The new token's hash.
        secret_sha256: String,
        /// Past which moment it may not go on, however often it is refreshed.
        ends_at_ms: Option<TimeMs>,
        /// Now.
        now_ms: TimeMs,
    },
    /// End a session.
    EndSession {
        /// Of which tenant.
        tenant_id: TenantId,
        /// The session.
        session_id: String,
        /// Why, for people.
        reason: String,
        /// Now.
        now_ms: TimeMs,
    },
    /// Forget sessions that have expired.
    ExpireSessions {
        /// Of which tenant.
        tenant_id: TenantId,
        /// Now.
        now_ms: TimeMs,
    },
    /// Take something back outright.
    Revoke {
        /// In which tenant.
        tenant_id: TenantId,
        /// What.
        kind: RevokedKind,
        /// Which; for a tenant its own name.
        id: String,
        /// Tokens minted at or before it are good no more.
        not_before_ms: TimeMs,
        /// Why, for people.
        reason: String,
        /// Now.
        now_ms: TimeMs,
    },
    /// Set a quota, in place of the one for the same scope.
    SetQuota {
        /// Whose.
        tenant_id: TenantId,
        /// For whom.
        scope: QuotaScope,
        /// What it allows.
        limits: QuotaLimits,
    },
    /// Set the quota of a tenant itself, unless that would loosen it.
    TightenQuota {
        /// Whose.
        tenant_id: TenantId,
        /// What it allows.
        limits: QuotaLimits,
    },
    /// Remove a quota.
    RemoveQuota {
        /// Whose.
        tenant_id: TenantId,
        /// For whom it is.
        scope: QuotaScope,
    },
    /// Remember what happened without a change.
    Audited {
        /// Whom it concerns; the whole cluster when `None`.
        tenant_id: Option<TenantId>,
        /// What happened, at most [`crate::limits::AUDITED_RECORDS_MAX`].
        records: Vec<AuditRecord>,
    },
}

impl Command {
    /// Dates what the command takes back, no earlier than now. Whoever decides it calls this just before: a command may
    /// have waited, and tokens may have been minted meanwhile.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the rest takes nothing back"
    )]
    pub fn date(&mut self, now: TimeMs) {
        match self {
            Self::RemovePolicy(_, _, now_ms)
            | Self::RemoveGrouping(_, _, now_ms)
            | Self::RemoveIssuer { now_ms, .. }
            | Self::DeleteServiceAccount { now_ms, .. }
            | Self::DisableServiceAccount { now_ms, .. }
            | Self::RemoveServiceKey { now_ms, .. }
            | Self::EndSession { now_ms, .. } => *now_ms = now.max(*now_ms),
            Self::Revoke {
                not_before_ms,
                now_ms,
                ..
            } => {
                let outright = *not_before_ms == *now_ms;
                *now_ms = now.max(*now_ms);
                if outright {
                    *not_before_ms = *now_ms;
                }
            }
            _ => {}
        }
    }
}
