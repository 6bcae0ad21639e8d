//! The Felix token: minted in one place, verified in four.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use felix_model::{TenantId, TimeMs};
use jsonwebtoken::{Algorithm, Header, Validation};
use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::key::{KeySet, SigningKey};
use crate::matcher::Permissions;
use crate::permission::Permission;
use crate::resource::Resource;

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

/// The claims of a token to be minted. Times are unix seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// Tenant the token acts in.
    pub tenant: TenantId,
    /// The principal's id.
    pub subject: String,
    /// Who the token is for.
    pub audience: Audience,
    /// When it was minted.
    pub issued_at: u64,
    /// When it stops being good; exclusive.
    pub expires_at: u64,
    /// What it allows.
    pub permissions: Vec<Permission>,
    /// Who acts for the principal, if someone does.
    pub actor: Option<String>,
    /// Whether the token is good only on connections from this machine, as a developer's long-lived token is.
    pub loopback_only: bool,
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
    let life = claims.expires_at.saturating_sub(claims.issued_at);
    if life > LIFETIME_SECONDS_MAX {
        return Err(MintFailed::LifeTooLong {
            asked: life,
            limit: LIFETIME_SECONDS_MAX,
        });
    }
    let mut header = Header::new(Algorithm::EdDSA);
    header.kid = Some(key.kid().to_owned());
    let body = MintedClaims {
        iss: ISSUER,
        aud: claims.audience.name(),
        sub: &claims.subject,
        tid: claims.tenant.as_ref(),
        iat: claims.issued_at,
        exp: claims.expires_at,
        perms: &claims.permissions,
        act: claims.actor.as_deref().map(|sub| MintedActor { sub }),
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
    exp: u64,
    perms: &'a [Permission],
    #[serde(skip_serializing_if = "Option::is_none")]
    act: Option<MintedActor<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    loopback: bool,
}

#[derive(Serialize)]
struct MintedActor<'a> {
    sub: &'a str,
}

/// Who is asking: what is kept of a verified token. The token's text is not in it.
#[derive(Clone, Debug)]
pub struct Principal {
    /// Tenant the principal acts in.
    pub tenant: TenantId,
    /// The principal's id.
    pub subject: Arc<str>,
    /// Who acts for him, if someone does.
    pub actor: Option<Arc<str>>,
    /// When the token was minted, unix ms.
    pub issued_at_ms: TimeMs,
    /// When the token stops being good, unix ms; exclusive.
    pub expires_at_ms: TimeMs,
    /// Whether the token may be used only on connections from this machine. Whoever owns the connection checks it.
    pub loopback_only: bool,
    /// What he may do.
    pub permissions: Arc<Permissions>,
}

impl Principal {
    /// Whether the principal may do this to that. Allocates nothing; does not look at the time.
    #[must_use]
    pub fn allows(&self, action: Action, resource: &Resource<'_>) -> bool {
        self.permissions.allows(action, resource)
    }

    /// Whether the token behind this principal has run out at `now`, without leeway.
    #[must_use]
    pub fn is_expired(&self, now: TimeMs) -> bool {
        now.0 >= self.expires_at_ms.0
    }
}

/// Why a token was refused. The words are the same whether or not a tenant exists.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefused {
    /// The text is longer than any token may be.
    #[error("a token of {size} bytes is over the limit of {limit}")]
    TooLarge {
        /// Bytes received.
        size: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The text is not three parts of base64url with JSON in the first two.
    #[error("not a token")]
    Malformed,
    /// The header asks for another algorithm than the key's own.
    #[error("the token is not signed with the algorithm of its key")]
    WrongAlgorithm,
    /// The header says it must be understood in full, and holds something that is not understood.
    #[error("the token has a critical header that is not understood")]
    CriticalHeader,
    /// No key of the tenant has the id, or the header names none.
    #[error("no key of the tenant verifies this token")]
    UnknownKey,
    /// The signature does not fit.
    #[error("the token's signature does not fit")]
    BadSignature,
    /// A claim that every token has is missing or of the wrong type.
    #[error("the claim `{claim}` is missing or of the wrong type")]
    MissingClaim {
        /// Name of the claim.
        claim: &'static str,
    },
    /// The token has run out.
    #[error("the token ran out {late_by_seconds} s ago")]
    Expired {
        /// Seconds since `exp`.
        late_by_seconds: u64,
    },
    /// The token is not good yet.
    #[error("the token is good only in {early_by_seconds} s")]
    NotYetValid {
        /// Seconds until `nbf` or `iat`.
        early_by_seconds: u64,
    },
    /// The token lives longer than any may.
    #[error("a token of {life_seconds} s outlives the limit of {limit} s")]
    LifeTooLong {
        /// `exp - iat`.
        life_seconds: u64,
        /// Seconds allowed.
        limit: u64,
    },
    /// Somebody else issued it.
    #[error("the token was issued by somebody else")]
    WrongIssuer,
    /// It is meant for somebody else.
    #[error("the token is meant for another audience")]
    WrongAudience,
    /// It acts in another tenant than the one it was presented for.
    #[error("the token is not for this tenant")]
    WrongTenant,
}

impl TokenRefused {
    /// A name for logs and metrics; it never changes its meaning.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "token_too_large",
            Self::Malformed => "token_malformed",
            Self::WrongAlgorithm => "token_wrong_algorithm",
            Self::CriticalHeader => "token_critical_header",
            Self::UnknownKey => "token_unknown_key",
            Self::BadSignature => "token_bad_signature",
            Self::MissingClaim { .. } => "token_missing_claim",
            Self::Expired { .. } => "token_expired",
            Self::NotYetValid { .. } => "token_not_yet_valid",
            Self::LifeTooLong { .. } => "token_life_too_long",
            Self::WrongIssuer => "token_wrong_issuer",
            Self::WrongAudience => "token_wrong_audience",
            Self::WrongTenant => "token_wrong_tenant",
        }
    }

    /// Whether a fresh token of the same principal would help, so that a client should fetch one and try again.
    #[must_use]
    pub const fn is_cured_by_a_fresh_token(&self) -> bool {
        matches!(
            self,
            Self::Expired { .. } | Self::UnknownKey | Self::NotYetValid { .. }
        )
    }
}

/// Decides whether a token speaks for a principal of `tenant`, to `audience`, at `now` (unix ms).
///
/// `keys` are the keys of that tenant; pass the empty set for a tenant nobody knows. The work done is bounded by
/// [`TOKEN_BYTES_MAX`] and one signature check.
///
/// # Errors
/// [`TokenRefused`] with the first thing that was wrong, in this order: size, form, key, signature, claims, time,
/// audience. Claims are looked at only after the signature fits.
pub fn verify(
    token: &str,
    tenant: &TenantId,
    audience: Audience,
    keys: &KeySet,
    now: TimeMs,
) -> Result<Principal, TokenRefused> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(TokenRefused::TooLarge {
            size: token.len(),
            limit: TOKEN_BYTES_MAX,
        });
    }
    let kid = read_header(token)?;
    let key = keys.get(&kid).ok_or(TokenRefused::UnknownKey)?;
    // The library checks form, algorithm and signature. Claims are ours to check: the time is an argument here.
    let mut validation = Validation::new(Algorithm::EdDSA);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;
    let body: serde_json::Value = jsonwebtoken::decode(token, key, &validation)
        .map_err(|error| signature_refusal(&error))?
        .claims;
    let claims = ReadClaims::read(&body)?;
    claims.check_times(now.0 / 1000)?;
    if claims.issuer != ISSUER {
        return Err(TokenRefused::WrongIssuer);
    }
    if !claims.audiences.contains(&audience.name()) {
        return Err(TokenRefused::WrongAudience);
    }
    if claims.tenant != tenant.as_ref() {
        return Err(TokenRefused::WrongTenant);
    }
    Ok(Principal {
        tenant: tenant.clone(),
        subject: claims.subject.into(),
        actor: claims.actor.map(Arc::from),
        issued_at_ms: TimeMs(claims.issued_at.saturating_mul(1000)),
        expires_at_ms: TimeMs(claims.expires_at.saturating_mul(1000)),
        loopback_only: claims.loopback_only,
        permissions: Arc::new(Permissions::compile_claim(
            tenant.as_ref(),
            claims.permissions,
        )),
    })
}

/// The tenant a token says it acts in, unverified. It is good only for choosing whose keys to pass to [`verify`].
///
/// # Errors
/// [`TokenRefused`] when the text is too long or no token.
pub fn claimed_tenant(token: &str) -> Result<TenantId, TokenRefused> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(TokenRefused::TooLarge {
            size: token.len(),
            limit: TOKEN_BYTES_MAX,
        });
    }
    #[derive(Deserialize)]
    struct Claim {
        tid: Option<String>,
    }
    let body = token.split('.').nth(1).ok_or(TokenRefused::Malformed)?;
    let bytes = URL_SAFE_NO_PAD
        .decode(body)
        .map_err(|_| TokenRefused::Malformed)?;
    let claim: Claim = serde_json::from_slice(&bytes).map_err(|_| TokenRefused::Malformed)?;
    // A name that no tenant can have gets the words of one that no key verifies.
    claim
        .tid
        .and_then(|tid| tid.parse().ok())
        .ok_or(TokenRefused::UnknownKey)
}

/// The id of the key a token says it is signed with, unverified. Of a token that [`verify`] accepted it is the key that
/// signed it.
///
/// # Errors
/// [`TokenRefused`] when the text is too long, no token, or names no key.
pub fn claimed_key(token: &str) -> Result<String, TokenRefused> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(TokenRefused::TooLarge {
            size: token.len(),
            limit: TOKEN_BYTES_MAX,
        });
    }
    read_header(token)
}

/// The parts of a header that decide anything. What it says about where keys are (`jku`, `jwk`, `x5u`) is not read.
#[derive(Deserialize)]
struct ReadHeader {
    alg: String,
    kid: Option<String>,
    crit: Option<serde::de::IgnoredAny>,
}

/// Reads which key the token names, and refuses headers that no token of ours has.
fn read_header(token: &str) -> Result<String, TokenRefused> {
    let head = token.split('.').next().unwrap_or_default();
    let bytes = URL_SAFE_NO_PAD
        .decode(head)
        .map_err(|_| TokenRefused::Malformed)?;
    let header: ReadHeader = serde_json::from_slice(&bytes).map_err(|_| TokenRefused::Malformed)?;
    if header.alg != "EdDSA" {
        return Err(TokenRefused::WrongAlgorithm);
    }
    if header.crit.is_some() {
        return Err(TokenRefused::CriticalHeader);
    }
    header.kid.ok_or(TokenRefused::UnknownKey)
}

fn signature_refusal(error: &jsonwebtoken::errors::Error) -> TokenRefused {
    use jsonwebtoken::errors::ErrorKind;
    if matches!(error.kind(), ErrorKind::InvalidSignature) {
        return TokenRefused::BadSignature;
    }
    if matches!(error.kind(), ErrorKind::InvalidAlgorithm) {
        return TokenRefused::WrongAlgorithm;
    }
    TokenRefused::Malformed
}

struct ReadClaims<'a> {
    issuer: &'a str,
    audiences: Vec<&'a str>,
    subject: &'a str,
    tenant: &'a str,
    issued_at: u64,
    not_before: Option<u64>,
    expires_at: u64,
    permissions: Vec<&'a str>,
    actor: Option<&'a str>,
    loopback_only: bool,
}

impl<'a> ReadClaims<'a> {
    fn read(body: &'a serde_json::Value) -> Result<Self, TokenRefused> {
        let text = |claim| {
            body.get(claim)
                .and_then(serde_json::Value::as_str)
                .filter(|text| !text.is_empty())
                .ok_or(TokenRefused::MissingClaim { claim })
        };
        let seconds = |claim| {
            body.get(claim)
                .and_then(serde_json::Value::as_u64)
                .ok_or(TokenRefused::MissingClaim { claim })
        };
        let texts = |claim| {
            body.get(claim)
                .and_then(serde_json::Value::as_array)
                .and_then(|items| items.iter().map(serde_json::Value::as_str).collect())
                .ok_or(TokenRefused::MissingClaim { claim })
        };
        let audiences: Vec<&str> = text("aud").map(|one| vec![one]).or_else(|_| texts("aud"))?;
        Ok(Self {
            issuer: text("iss")?,
            audiences,
            subject: text("sub")?,
            tenant: text("tid")?,
            issued_at: seconds("iat")?,
            not_before: body.get("nbf").map(|_| seconds("nbf")).transpose()?,
            expires_at: seconds("exp")?,
            permissions: texts("perms")?,
            actor: body
                .get("act")
                .map(|act| {
                    act.get("sub")
                        .and_then(serde_json::Value::as_str)
                        .ok_or(TokenRefused::MissingClaim { claim: "act" })
                })
                .transpose()?,
            loopback_only: match body.get("loopback") {
                None => false,
                Some(value) => value
                    .as_bool()
                    .ok_or(TokenRefused::MissingClaim { claim: "loopback" })?,
            },
        })
    }

    fn check_times(&self, now: u64) -> Result<(), TokenRefused> {
        if now >= self.expires_at.saturating_add(LEEWAY_SECONDS) {
            return Err(TokenRefused::Expired {
                late_by_seconds: now.saturating_sub(self.expires_at),
            });
        }
        let good_from = self.not_before.unwrap_or(0).max(self.issued_at);
        if good_from > now.saturating_add(LEEWAY_SECONDS) {
            return Err(TokenRefused::NotYetValid {
                early_by_seconds: good_from.saturating_sub(now),
            });
        }
        let life_seconds = self.expires_at.saturating_sub(self.issued_at);
        if life_seconds > LIFETIME_SECONDS_MAX {
            return Err(TokenRefused::LifeTooLong {
                life_seconds,
                limit: LIFETIME_SECONDS_MAX,
            });
        }
        Ok(())
    }
}
