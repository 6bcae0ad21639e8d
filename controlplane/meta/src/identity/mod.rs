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

pub use issuer::{ClaimMappings, IssuerRecord, PrincipalRecord};
pub use quota::{QuotaLimits, QuotaScope, Quotas};
pub use revoked::{RevocationRecord, Revocations, RevokedKind};
pub use service::{ServiceAccountRecord, ServiceKey, service_principal};
pub use session::{SessionAsk, SessionRecord, Sessions};
