//! The Felix token: what it says, and how it is minted.

use std::fmt;
use std::str::FromStr;

use felix_model::{TenantId, TimeMs};
use jsonwebtoken::{Algorithm, Header};
use serde::Serialize;

use crate::digest::hex_digest;
use crate::key::SigningKey;
use crate::permission::Permission;
use crate::principal::ActorToken;
use crate::verify::TokenRefused;

/// The `iss` of every Felix token.
pub const ISSUER: &str = "felix-auth";

/// Largest token that is looked at. A longer one is refused before anything in it is decoded, so that size buys an
/// attacker no work.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// How far two clocks may differ, in seconds, before a token is early or late.
pub const LEEWAY_SECONDS: u64 = 5;

/// Longest life of a token, `exp - iat`, in seconds: 30 days for a developer's token and an hour to spare. A key that
/// leaks must not have signed something that outlives its retirement by years.
pub const LIFETIME_SECONDS_MAX: u64 = 30 * 24 * 3600 + 3600;

/// Who a token is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Brokers, and the adapters in front of them.
    Broker,
    /// The control plane's API.
    ControlPlane,
}

impl Audience {
    /// The `aud` of the token.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Broker => "felix-broker",
            Self::ControlPlane => "felix-controlplane",
        }
    }
}

impl fmt::Display for Audience {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FromStr for Audience {
    type Err = TokenRefused;

    fn from_str(text: &str) -> Result<Self, TokenRefused> {
        match text {
            "felix-broker" => Ok(Self::Broker),
            "felix-controlplane" => Ok(Self::ControlPlane),
            _ => Err(TokenRefused::WrongAudience),
        }
    }
}

/// The claims of a token to be minted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// Tenant the token acts in.
    pub tenant: TenantId,
    /// The principal's id.
    pub subject: String,
    /// Who the token is for.
    pub audience: Audience,
    /// When it was minted, unix ms. Clients find the second in `iat`; `iat_ms` is what revocations are held against.
    pub issued_at_ms: TimeMs,
    /// When it stops being good, unix seconds; exclusive.
    pub expires_at: u64,
    /// What it allows.
    pub permissions: Vec<Permission>,
    /// Who acts for the principal, if someone does.
    pub actor: Option<String>,
    /// What he acts with.
    pub actor_token: Option<ActorToken>,
    /// Who alone may act for the principal with this token; [`None`] lets nobody.
    pub may_act: Option<String>,
    /// The session the token belongs to, if it can be refreshed or ended.
    pub session: Option<String>,
    /// Tells this token from every other, so that it can be revoked by itself.
    pub token_id: Option<String>,
    /// Names of the roles that gave something, so that a change to one of them can revoke the token.
    pub roles: Vec<String>,
    /// Which identity provider vouched, in the short form of [`issuer_digest`].
    pub idp: Option<String>,
    /// Whether the token is good only on connections from this machine, as a developer's long-lived token is.
    pub loopback_only: bool,
}

impl Claims {
    /// The claims every token has; the optional ones are left out. `life` is in seconds, and counts from the second in
    /// which the token is minted.
    #[must_use]
    pub fn new(
        tenant: TenantId,
        subject: String,
        audience: Audience,
        (issued_at_ms, life): (TimeMs, u64),
        permissions: Vec<Permission>,
    ) -> Self {
        Self {
            tenant,
            subject,
            audience,
            issued_at_ms,
            expires_at: (issued_at_ms.0 / 1000).saturating_add(life),
            permissions,
            actor: None,
            actor_token: None,
            may_act: None,
            session: None,
            token_id: None,
            roles: Vec::new(),
            idp: None,
            loopback_only: false,
        }
    }
}

/// The short form of an issuer in the `idp` claim: the first 16 hexadecimal digits of its SHA-256. It says which
/// issuer vouched to whoever knows the issuers, and keeps a URL out of every token.
#[must_use]
pub fn issuer_digest(issuer: &str) -> String {
    let mut digest = hex_digest(issuer.as_bytes());
    digest.truncate(16);
    digest
}

/// Why a token could not be minted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MintFailed {
    /// It would outlive what verifiers accept.
    #[error("a token of {asked} s would outlive the limit of {limit} s")]
    LifeTooLong {
        /// Seconds asked for.
        asked: u64,
        /// Seconds allowed.
        limit: u64,
    },
    /// It would be larger than what verifiers accept.
    #[error("a token of {size} bytes is over the limit of {limit}; grant by prefix or wildcard")]
    TooLarge {
        /// Bytes it would take.
        size: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The key could not sign.
    #[error("the signing key could not be used")]
    Signing,
}

/// Signs the claims.
///
/// # Errors
/// [`MintFailed`] when the token would be refused by every verifier, so that this is found out where it can be helped.
pub fn mint(key: &SigningKey, claims: &Claims) -> Result<String, MintFailed> {
    let issued_at = claims.issued_at_ms.0 / 1000;
    let life = claims.expires_at.saturating_sub(issued_at);
    if life > LIFETIME_SECONDS_MAX {
        return Err(MintFailed::LifeTooLong {
            asked: life,
            limit: LIFETIME_SECONDS_MAX,
        });
    }
    let mut header = Header::new(Algorithm::EdDSA);
    header.kid = Some(key.kid().to_owned());
    // Whoever verifies the token sorts them, which costs least where they are sorted already.
    let mut permissions: Vec<&Permission> = claims.permissions.iter().collect();
    permissions.sort_unstable();
    let body = MintedClaims {
        iss: ISSUER,
        aud: claims.audience.name(),
        sub: &claims.subject,
        tid: claims.tenant.as_ref(),
        iat: issued_at,
        iat_ms: claims.issued_at_ms.0,
        exp: claims.expires_at,
        perms: &permissions,
        act: claims.actor.as_deref().map(|sub| MintedActor {
            sub,
            with: claims.actor_token.as_ref(),
        }),
        may_act: claims
            .may_act
            .as_deref()
            .map(|sub| MintedActor { sub, with: None }),
        sid: claims.session.as_deref(),
        jti: claims.token_id.as_deref(),
        roles: &claims.roles,
        idp: claims.idp.as_deref(),
        loopback: claims.loopback_only,
    };
    let token =
        jsonwebtoken::encode(&header, &body, &key.encoding).map_err(|_| MintFailed::Signing)?;
    if token.len() > TOKEN_BYTES_MAX {
        return Err(MintFailed::TooLarge {
            size: token.len(),
            limit: TOKEN_BYTES_MAX,
        });
    }
    Ok(token)
}

#[derive(Serialize)]
struct MintedClaims<'a> {
    iss: &'a str,
    aud: &'a str,
    sub: &'a str,
    tid: &'a str,
    iat: u64,
    iat_ms: u64,
    exp: u64,
    perms: &'a [&'a Permission],
    #[serde(skip_serializing_if = "Option::is_none")]
    act: Option<MintedActor<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    may_act: Option<MintedActor<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jti: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    roles: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    idp: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    loopback: bool,
}

#[derive(Serialize)]
struct MintedActor<'a> {
    sub: &'a str,
    #[serde(flatten)]
    with: Option<&'a ActorToken>,
}
