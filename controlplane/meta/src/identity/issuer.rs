//! Identity providers, and the people they vouch for.

use felix_model::TimeMs;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An OIDC provider whose tokens a tenant accepts. The JSON is that of the published API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IssuerRecord {
    /// Its `iss`, exactly as its tokens say it.
    pub issuer: String,
    /// The `aud` values that are meant for this tenant; at least one.
    pub audiences: Vec<String>,
    /// Where its discovery document is, when not at the issuer's well-known path.
    #[serde(default)]
    pub discovery_url: Option<String>,
    /// Where its keys are; without discovery then.
    #[serde(default)]
    pub jwks_url: Option<String>,
    /// Which claims say who somebody is.
    #[serde(default)]
    pub claim_mappings: ClaimMappings,
}

/// Which claims of a provider's token mean what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimMappings {
    /// The claim that names the person; default `sub`.
    #[serde(default = "subject_claim")]
    pub subject_claim: String,
    /// The claim that lists his groups; default `groups`.
    #[serde(default = "groups_claim")]
    pub groups_claim: String,
}

impl Default for ClaimMappings {
    fn default() -> Self {
        Self {
            subject_claim: subject_claim(),
            groups_claim: groups_claim(),
        }
    }
}

/// Somebody a provider vouched for. Kept for display: everywhere else he is his id, which is a hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PrincipalRecord {
    /// Lower-case hex SHA-256 of `{issuer}|{subject}`.
    pub principal_id: String,
    /// Who vouched for him.
    pub issuer: String,
    /// Who he is there.
    pub subject: String,
    /// When he first came.
    #[schema(value_type = u64)]
    pub first_seen_ms: TimeMs,
}

fn subject_claim() -> String {
    "sub".into()
}

fn groups_claim() -> String {
    "groups".into()
}
