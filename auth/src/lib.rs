//! Who is asking, and may he?
//!
//! Here live the Felix token (an EdDSA JWT), the keys that sign it, the permission grammar, and the one matcher that
//! answers "may this principal do this to that". The control plane mints with this crate; broker, gateway and Kafka
//! listener verify with it, so there is one opinion about what a token means.
//!
//! What never lives here: files, the clock (time is an argument), sockets outside [`fetch`], and knowledge of which tenants exist. A
//! token of a tenant without keys is refused in the same words as a token with an unknown key.
//!
//! Begin with [`verify()`], which turns a token into a [`Principal`]; then read [`Permission`] for the grammar and
//! [`Permissions`] for how a check is answered without allocating.

mod action;
mod certificate;
mod digest;
mod explain;
pub mod fetch;
mod key;
mod matcher;
mod narrow;
mod object;
pub mod oidc;
mod permission;
mod principal;
mod resource;
mod revoked;
mod roles;
mod secret;
mod token;
mod verify;

pub use felix_model::RevokedKind;

pub use action::{Action, UnknownAction};
pub use certificate::{CertificateNames, PRINCIPAL_URI};
pub use explain::{Ended, Explanation, Lacks, NearMiss, Verdict, explain, explain_principal};
pub use key::{BadKey, Jwk, Jwks, KeySet, PublicKey, SigningKey};
pub use matcher::Permissions;
pub use narrow::{Ask, NarrowRefused, narrow};
pub use object::{BadObject, NamePattern, Object};
pub use permission::{BadPermission, Permission};
pub use principal::{ActorToken, Principal};
pub use resource::Resource;
pub use revoked::{Revocation, Revocations, RevokedBy};
pub use roles::{
    Grouping, Held, Policy, TENANT_ADMIN_ROLE, expand, granted, held_by, tenant_admin_policies,
};
pub use secret::{
    NoRandomness, NotACredential, RefreshToken, SERVICE_KEY_PREFIX, Secret, ServiceCredential,
    random_id,
};
pub use token::{
    Audience, Claims, ISSUER, LEEWAY_SECONDS, LIFETIME_SECONDS_MAX, MintFailed, TOKEN_BYTES_MAX,
    issuer_digest, mint,
};
pub use verify::{TokenRefused, claimed_key, claimed_tenant, verify};
