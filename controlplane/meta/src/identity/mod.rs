//! Who may sign in, who has signed in, and what was taken back.
//!
//! Brokers get only what they need of this: revocations and quotas. Sessions, principals and service accounts stay
//! with the control plane; see [`crate::Catalogue::for_nodes`].

mod apply;
mod issuer;
mod quota;
mod revoked;
mod service;
mod session;

pub use felix_model::RevokedKind;
pub use issuer::{ClaimMappings, IssuerRecord, PrincipalRecord};
pub use quota::{QuotaLimits, QuotaScope, Quotas};
pub(crate) use revoked::kind_schema;
pub use revoked::{RevocationRecord, Revocations};
pub use service::{ServiceAccountRecord, ServiceAccounts, ServiceKey, service_principal};
pub use session::{SessionAsk, SessionRecord, Sessions};
