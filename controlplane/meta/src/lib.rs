//! The catalogue: which tenants, namespaces, streams, caches, keys and rules exist.
//!
//! It is a fold over a log of events. [`Catalogue::decide`] says what a command would change and may refuse;
//! [`Catalogue::apply`] makes a change that was decided and cannot. The control plane and every broker run the same
//! `apply` over the same events, so there is one catalogue and no second opinion about it.
//!
//! What never lives here: private keys (they are kept beside the ledger, see the server's `vault`), permissions (those
//! are decided before a command gets here), sockets, files and clocks.
//!
//! Begin with [`Catalogue`], then [`Command`] and [`Event`]; [`record`] has the JSON of everything that is stored, and
//! [`http`] the bodies that only the API and its clients speak.

pub mod audit;
mod catalogue;
mod change;
mod check;
mod command;
mod decide;
mod event;
pub mod http;
pub mod identity;
pub mod limits;
mod lookup;
pub mod record;
mod shelf;
mod template;

pub use audit::{Audit, AuditRecord, AuditRow, By};
pub use catalogue::{Catalogue, NamespaceEntry, Revision, Sequences, TenantEntry};
pub use change::{Change, Changed, Op, changes};
pub use check::Invalid;
pub use command::Command;
pub use decide::{Conflict, Decision, Refused};
pub use event::{ENTRY_VERSION, Entry, EntryRefused, Event};
pub use identity::{
    ClaimMappings, IssuerRecord, PrincipalRecord, QuotaLimits, QuotaScope, Quotas,
    RevocationRecord, RevokedKind, ServiceAccountRecord, ServiceAccounts, ServiceKey, SessionAsk,
    SessionRecord, service_principal,
};
pub use lookup::{Kind, Missing};
pub use record::{
    CACHE_MEMORY_BYTES_DEFAULT, CachePatch, CacheRecord, CacheSpec, Cleanup, Consistency, Delivery,
    Grouping, NamespaceRecord, NamespaceSpec, Overflow, Policy, Retention, StreamKind, StreamPatch,
    StreamRecord, StreamSpec, SyncMode, TenantRecord, Timestamps, VerifyingKey,
};
pub use shelf::Shelf;
pub use template::{TemplateEntry, TemplateRecord, TemplateSpec, Templates};
