//! Tokens of identity providers: what is believed of them, and why.
//!
//! A token is read first ([`UpstreamToken::read`]): everything that can be said of it without knowing whom the tenant
//! trusts. Then it is held against one trusted issuer ([`Verifier::verify`]): the key is looked up in that issuer's own
//! set and nowhere else, and the header only names a key, never chooses how it is used.
//!
//! What is accepted: a JWT whose `typ` is absent, `JWT` or `at+jwt`, so an ID token or an access token, meant for an
//! audience the tenant named for this issuer. Logout tokens, refresh tokens, proofs and tokens bound to a key of the
//! bearer (`cnf`) are refused.
//!
//! Documents are fetched through [`Fetch`]; the one that talks to the network is [`crate::fetch::HttpFetch`].

mod address;
mod algorithm;
mod jwks;
mod keyring;
mod token;
mod url;

pub use address::{AddressRules, is_allowed};
pub use algorithm::{Algorithms, BadAlgorithms, UpstreamAlgorithm};
pub use jwks::{BadDocument, IssuerKeys};
pub use keyring::{Fetch, FetchFailed, Fetched, KeysUnavailable, Verifier, VerifyFailed};
pub use token::{
    GROUPS_MAX, Trust, UPSTREAM_LEEWAY_SECONDS, UPSTREAM_LIFE_SECONDS_MAX, UpstreamRefused,
    UpstreamToken, Vouched, principal_id,
};
pub use url::{BadUrl, check_issuer, check_url};
