//! Bodies about tokens, service accounts and sessions.

use std::fmt;

use felix_model::TimeMs;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::identity::{IssuerRecord, SessionAsk};

/// A text that is a secret: it is sent, and shows itself nowhere else.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Hidden(pub String);

impl fmt::Debug for Hidden {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(hidden)")
    }
}

/// The `token_type` of JWTs in token exchanges (RFC 8693).
pub const TOKEN_TYPE_JWT: &str = "urn:ietf:params:oauth:token-type:jwt";

/// The `grant_type` of a delegation (RFC 8693).
pub const GRANT_TYPE_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

/// The body that exchanges a provider's token or a service account's key for a Felix token. Every field may be left
/// out, and so may the body.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExchangeSpec {
    /// Keep only these actions. An empty list keeps none, which is for `permissions` beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested: Option<Vec<String>>,
    /// Narrow every grant to these objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Vec<String>>,
    /// Narrow to these `action:object` pairs; only with an empty `requested` and without `resources`. An empty list
    /// asks for a token that is good only for opening a connection, on which others' tokens then act.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Vec<String>>,
    /// `felix-broker`, the default, or `felix-controlplane`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// The Felix token of who may act with the minted one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor_token: Option<Hidden>,
    /// Its type: [`TOKEN_TYPE_JWT`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor_token_type: Option<String>,
}

/// The body that continues a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RefreshSpec {
    /// The refresh token. It is spent by this.
    pub refresh_token: Hidden,
    /// The audience of the session, if it is said at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
}

/// The body that ends a session by its refresh token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeTokenSpec {
    /// The refresh token.
    pub refresh_token: Hidden,
}

/// The body that mints a token with which the caller acts for somebody else (RFC 8693).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DelegateSpec {
    /// [`GRANT_TYPE_EXCHANGE`].
    pub grant_type: String,
    /// The token of who is acted for; its audience is `felix-broker`.
    pub subject_token: Hidden,
    /// Its type: [`TOKEN_TYPE_JWT`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_token_type: Option<String>,
    /// Narrow to these `action:object` pairs; all of the subject's when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Vec<String>>,
}

/// A token with which somebody acts for somebody else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DelegateAnswer {
    /// The token.
    pub access_token: Hidden,
    /// [`TOKEN_TYPE_JWT`].
    pub issued_token_type: String,
    /// Always `Bearer`.
    pub token_type: String,
    /// Seconds it is good for.
    pub expires_in: u64,
}

/// The identity providers of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Issuers {
    /// All of them, by issuer.
    pub items: Vec<IssuerRecord>,
}

/// The body that makes a service account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceAccountSpec {
    /// Its name in the tenant.
    pub name: String,
    /// Its name for people; the name itself when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
}

/// A change to a service account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceAccountPatch {
    /// Whether it is shut out.
    pub disabled: bool,
}

/// A service account, without anything secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceAccountItem {
    /// Its name in the tenant.
    pub name: String,
    /// The name under which it is given rights.
    pub principal_id: String,
    /// Its name for people.
    pub display_name: String,
    /// Whether it is shut out.
    pub disabled: bool,
    /// Its keys, oldest first.
    pub keys: Vec<ServiceKeyItem>,
}

/// A key of a service account, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceKeyItem {
    /// Its id.
    pub key_id: String,
    /// When it was made, unix ms.
    #[schema(value_type = u64)]
    pub created_at_ms: TimeMs,
    /// From when on it is good no more; never when null.
    #[schema(value_type = Option<u64>)]
    pub expires_at_ms: Option<TimeMs>,
}

/// The keys of a service account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceKeys {
    /// All of them, oldest first.
    pub items: Vec<ServiceKeyItem>,
}

/// The body that makes a key for a service account; it may be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceKeySpec {
    /// From when on it is good no more, unix ms; never when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub expires_at_ms: Option<TimeMs>,
}

/// A new key of a service account. Its text is shown here and never again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceKeyAnswer {
    /// Its id.
    pub key_id: String,
    /// What the account signs in with, as the bearer of an exchange.
    pub key: Hidden,
    /// From when on it is good no more; never when null.
    #[schema(value_type = Option<u64>)]
    pub expires_at_ms: Option<TimeMs>,
}

/// A session, without anything secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionItem {
    /// Its id, as tokens carry it in `sid`.
    pub session_id: String,
    /// Whose it is.
    pub principal_id: String,
    /// The provider that vouched for him.
    pub issuer: Option<String>,
    /// Who he is there.
    pub subject: Option<String>,
    /// The service account that signed in.
    pub service_account: Option<String>,
    /// The groups the provider said he was in, as rules name them.
    pub groups: Vec<String>,
    /// Whom its tokens are for.
    pub audience: String,
    /// How its tokens were narrowed.
    #[schema(value_type = Object)]
    pub ask: SessionAsk,
    /// Who may act for him.
    pub may_act: Option<String>,
    /// When he signed in, unix ms.
    #[schema(value_type = u64)]
    pub created_at_ms: TimeMs,
    /// When it was last continued, unix ms.
    #[schema(value_type = u64)]
    pub refreshed_at_ms: TimeMs,
    /// From when on it cannot be continued, unix ms.
    #[schema(value_type = u64)]
    pub expires_at_ms: TimeMs,
    /// The address he signed in from.
    pub from: String,
}
