//! The Felix token as it is verified, wherever one is presented.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signature, Verifier};
use felix_model::{TenantId, TimeMs};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::key::KeySet;
use crate::matcher::Permissions;
use crate::principal::{ActorToken, Principal};
use crate::token::{Audience, ISSUER, LEEWAY_SECONDS, LIFETIME_SECONDS_MAX, TOKEN_BYTES_MAX};

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
    /// The header says the token is of a kind that is no access token, such as a logout token.
    #[error("the header's `typ` is not that of an access token")]
    WrongType,
    /// The header says it must be understood in full, and holds something that is not understood.
    #[error("the token has a critical header that is not understood")]
    CriticalHeader,
    /// No key of the tenant has the id, or the header names none.
    #[error("no key of the tenant verifies this token")]
    UnknownKey,
    /// The signature does not fit. Said in the words of [`Self::UnknownKey`]: who guesses learns of no tenant or key.
    #[error("no key of the tenant verifies this token")]
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
            Self::WrongType => "token_wrong_type",
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
/// [`TOKEN_BYTES_MAX`] and one signature check. Claims nobody here knows are ignored, and so is what the header says
/// about where keys are (`jku`, `jwk`, `x5u`).
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
    let parts = Parts::split(token)?;
    let key = keys
        .get(&parts.read_kid()?)
        .ok_or(TokenRefused::UnknownKey)?;
    let signature = decoded(parts.signature)?;
    let signature = Signature::from_slice(&signature).map_err(|_| TokenRefused::BadSignature)?;
    key.verify(parts.signed.as_bytes(), &signature)
        .map_err(|_| TokenRefused::BadSignature)?;
    let body = decoded(parts.body)?;
    let claims = ReadClaims::read(&body)?;
    claims.check_times(now.0 / 1000)?;
    if claims.issuer != ISSUER {
        return Err(TokenRefused::WrongIssuer);
    }
    if !claims.audience.names(audience.name()) {
        return Err(TokenRefused::WrongAudience);
    }
    if claims.tenant != tenant.as_ref() {
        return Err(TokenRefused::WrongTenant);
    }
    Ok(claims.into_principal(tenant))
}

/// The tenant a token says it acts in, unverified. It is good only for choosing whose keys to pass to [`verify`].
///
/// # Errors
/// [`TokenRefused`] when the text is too long or no token.
pub fn claimed_tenant(token: &str) -> Result<TenantId, TokenRefused> {
    #[derive(Deserialize)]
    struct Claim {
        tid: Option<String>,
    }
    within_size(token)?;
    let body = token.split('.').nth(1).ok_or(TokenRefused::Malformed)?;
    let body = decoded(body)?;
    let claim: Claim = object(&body)?;
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
/// [`TokenRefused`] when the text is too long, no token of ours, or names no key.
pub fn claimed_key(token: &str) -> Result<String, TokenRefused> {
    Parts::split(token)?.read_kid()
}

fn within_size(token: &str) -> Result<(), TokenRefused> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(TokenRefused::TooLarge {
            size: token.len(),
            limit: TOKEN_BYTES_MAX,
        });
    }
    Ok(())
}

fn decoded(part: &str) -> Result<Vec<u8>, TokenRefused> {
    URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|_| TokenRefused::Malformed)
}

/// Reads a JSON object. An array is none, although the reader would take its items for the fields in their order.
fn object<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, TokenRefused> {
    if bytes.first() != Some(&b'{') {
        return Err(TokenRefused::Malformed);
    }
    serde_json::from_slice(bytes).map_err(|_| TokenRefused::Malformed)
}

/// The three parts of a token, as they were sent.
struct Parts<'a> {
    head: &'a str,
    body: &'a str,
    signature: &'a str,
    /// Head and body with the dot between: what is signed.
    signed: &'a str,
}

impl<'a> Parts<'a> {
    fn split(token: &'a str) -> Result<Self, TokenRefused> {
        within_size(token)?;
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenRefused::Malformed)?;
        let (head, body) = signed.split_once('.').ok_or(TokenRefused::Malformed)?;
        if body.contains('.') {
            return Err(TokenRefused::Malformed);
        }
        Ok(Self {
            head,
            body,
            signature,
            signed,
        })
    }

    /// Reads which key the token names, and refuses headers that no token of ours has.
    fn read_kid(&self) -> Result<String, TokenRefused> {
        let head = decoded(self.head)?;
        let header: ReadHeader<'_> = object(&head)?;
        if header.alg.0 != "EdDSA" {
            return Err(TokenRefused::WrongAlgorithm);
        }
        if header.crit.is_some() {
            return Err(TokenRefused::CriticalHeader);
        }
        if header.typ.is_some_and(|typ| !is_access_type(&typ.0)) {
            return Err(TokenRefused::WrongType);
        }
        let kid = header.kid.ok_or(TokenRefused::UnknownKey)?;
        Ok(kid.0.into_owned())
    }
}

/// Whether a `typ` is that of a plain JWT or of an access token of RFC 9068. Others, such as a logout token, say that
/// they are for something else.
fn is_access_type(typ: &str) -> bool {
    let short = typ.strip_prefix("application/").unwrap_or(typ);
    short.eq_ignore_ascii_case("JWT") || short.eq_ignore_ascii_case("at+jwt")
}

/// The parts of a header that decide anything.
#[derive(Deserialize)]
struct ReadHeader<'a> {
    #[serde(borrow)]
    alg: Text<'a>,
    #[serde(borrow)]
    kid: Option<Text<'a>>,
    #[serde(borrow)]
    typ: Option<Text<'a>>,
    #[serde(default, deserialize_with = "present")]
    crit: Option<IgnoredAny>,
}

/// Reads a field that is there as [`Some`], whatever it holds: `null` is not the same as absent.
fn present<'de, D, T>(input: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(input).map(Some)
}

/// The claims as they were sent, each still unread, so that a claim of the wrong type is refused by its name.
#[derive(Deserialize)]
struct RawClaims<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    iss: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    aud: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    sub: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    tid: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    iat: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    iat_ms: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    nbf: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    exp: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    perms: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    act: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    may_act: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    sid: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    jti: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    roles: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    idp: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    loopback: Option<&'a RawValue>,
}

/// A text that is copied only if it is written with escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// One name, or several.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany<'a> {
    One(#[serde(borrow)] Cow<'a, str>),
    Many(#[serde(borrow)] Vec<Text<'a>>),
}

impl OneOrMany<'_> {
    fn names(&self, wanted: &str) -> bool {
        match self {
            Self::One(one) => one == wanted,
            Self::Many(many) => many.iter().any(|one| one.0 == wanted),
        }
    }
}

#[derive(Deserialize)]
struct ReadActor {
    sub: Box<str>,
    #[serde(flatten)]
    with: ActorToken,
}

#[derive(Deserialize)]
struct ReadMayAct {
    sub: Box<str>,
}

struct ReadClaims<'a> {
    issuer: Cow<'a, str>,
    audience: OneOrMany<'a>,
    subject: Cow<'a, str>,
    tenant: Cow<'a, str>,
    issued_at: u64,
    issued_at_ms: Option<u64>,
    not_before: Option<u64>,
    expires_at: u64,
    permissions: Vec<Text<'a>>,
    actor: Option<ReadActor>,
    may_act: Option<Box<str>>,
    session: Option<Cow<'a, str>>,
    token_id: Option<Cow<'a, str>>,
    roles: Vec<Box<str>>,
    idp: Option<Cow<'a, str>>,
    loopback_only: bool,
}

impl<'a> ReadClaims<'a> {
    fn read(body: &'a [u8]) -> Result<Self, TokenRefused> {
        let raw: RawClaims<'a> = object(body)?;
        Ok(Self {
            issuer: text("iss", raw.iss)?,
            audience: needed("aud", raw.aud)?,
            subject: text("sub", raw.sub)?,
            tenant: text("tid", raw.tid)?,
            issued_at: needed("iat", raw.iat)?,
            issued_at_ms: optional("iat_ms", raw.iat_ms)?,
            not_before: optional("nbf", raw.nbf)?,
            expires_at: needed("exp", raw.exp)?,
            permissions: needed("perms", raw.perms)?,
            actor: optional("act", raw.act)?,
            may_act: optional("may_act", raw.may_act)?.map(|actor: ReadMayAct| actor.sub),
            session: optional_text("sid", raw.sid)?,
            token_id: optional_text("jti", raw.jti)?,
            roles: optional("roles", raw.roles)?.unwrap_or_default(),
            idp: optional_text("idp", raw.idp)?,
            loopback_only: optional("loopback", raw.loopback)?.unwrap_or(false),
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

    /// When it was minted, as revocations are held against it: never later than within the second it says, and at the
    /// start of that when it says no more.
    fn minted_at(&self) -> TimeMs {
        let second = self.issued_at.saturating_mul(1000);
        let last = second.saturating_add(999);
        TimeMs(self.issued_at_ms.map_or(second, |at| at.min(last)))
    }

    fn into_principal(self, tenant: &TenantId) -> Principal {
        let issued_at_ms = self.minted_at();
        let permissions = self.permissions.iter().map(|text| &*text.0);
        let (actor, actor_token) = match self.actor {
            Some(ReadActor { sub, with }) => (Some(Arc::from(sub)), Some(Arc::new(with))),
            None => (None, None),
        };
        Principal {
            tenant: tenant.clone(),
            subject: self.subject.into(),
            actor,
            actor_token,
            may_act: self.may_act.map(Arc::from),
            session: self.session.map(Arc::from),
            token_id: self.token_id.map(Arc::from),
            roles: self.roles.into(),
            idp: self.idp.map(Arc::from),
            issued_at_ms,
            expires_at_ms: TimeMs(self.expires_at.saturating_mul(1000)),
            loopback_only: self.loopback_only,
            permissions: Arc::new(Permissions::compile_claim(tenant.as_ref(), permissions)),
        }
    }
}

fn needed<'a, T: Deserialize<'a>>(
    claim: &'static str,
    value: Option<&'a RawValue>,
) -> Result<T, TokenRefused> {
    value
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
        .ok_or(TokenRefused::MissingClaim { claim })
}

fn optional<'a, T: Deserialize<'a>>(
    claim: &'static str,
    value: Option<&'a RawValue>,
) -> Result<Option<T>, TokenRefused> {
    value.map(|raw| needed(claim, Some(raw))).transpose()
}

fn text<'a>(
    claim: &'static str,
    value: Option<&'a RawValue>,
) -> Result<Cow<'a, str>, TokenRefused> {
    let Text(text) = needed(claim, value)?;
    if text.is_empty() {
        return Err(TokenRefused::MissingClaim { claim });
    }
    Ok(text)
}

fn optional_text<'a>(
    claim: &'static str,
    value: Option<&'a RawValue>,
) -> Result<Option<Cow<'a, str>>, TokenRefused> {
    value.map(|raw| text(claim, Some(raw))).transpose()
}
