//! A token of an identity provider, read and then believed.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use felix_model::TimeMs;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::algorithm::UpstreamAlgorithm;
use super::jwks::{Found, IssuerKeys};
use crate::digest::hex_digest;
use crate::token::TOKEN_BYTES_MAX;

/// How far the clock of an identity provider may differ from ours, in seconds.
pub const UPSTREAM_LEEWAY_SECONDS: u64 = 60;

/// Longest life of a provider's token, `exp - iat`, in seconds: a week. Providers give hours; a token of years is a
/// password.
pub const UPSTREAM_LIFE_SECONDS_MAX: u64 = 7 * 24 * 3600;

/// Groups of one person. More are refused rather than cut, because the ones cut might restrict.
pub const GROUPS_MAX: usize = 256;

/// Bytes of a subject and of a group's name.
const NAME_BYTES_MAX: usize = 256;

/// One issuer that a tenant trusts, borrowed from wherever it is kept.
#[derive(Clone, Copy, Debug)]
pub struct Trust<'a> {
    /// Its name, compared byte for byte.
    pub issuer: &'a str,
    /// Audiences of which a token must name one.
    pub audiences: &'a [String],
    /// Where its discovery document is; below the issuer when left out.
    pub discovery_url: Option<&'a str>,
    /// Where its keys are; the discovery document says so when left out.
    pub jwks_url: Option<&'a str>,
    /// The claim that names the person. One that begins with `/` is a path into nested claims (RFC 6901).
    pub subject_claim: &'a str,
    /// The claim that names his groups, likewise.
    pub groups_claim: &'a str,
}

/// Whom an issuer vouched for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vouched {
    /// The issuer.
    pub issuer: String,
    /// The person's name with the issuer.
    pub subject: String,
    /// The principal's id; see [`principal_id`].
    pub principal_id: String,
    /// Names of his groups with the issuer, sorted, without repeats.
    pub groups: Vec<String>,
    /// Whether the token says anything of groups. One that does not says nothing of those he has left either.
    pub groups_are_told: bool,
    /// When the issuer made the token, unix seconds.
    pub issued_at: u64,
    /// When the token runs out, unix seconds.
    pub expires_at: u64,
}

/// The id of the principal that an issuer vouches for: the SHA-256 of issuer, `|` and subject, in lowercase hexadecimal.
#[must_use]
pub fn principal_id(issuer: &str, subject: &str) -> String {
    hex_digest(format!("{issuer}|{subject}").as_bytes())
}

/// Why a provider's token was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamRefused {
    /// It is longer than any token may be.
    #[error("a token of {size} bytes is over the limit of {limit}")]
    TooLarge {
        /// Bytes received.
        size: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// It is not three parts of base64url with JSON objects in the first two.
    #[error("not a signed token")]
    Malformed,
    /// Its algorithm is never accepted, whoever signed.
    #[error("the token's algorithm is not accepted")]
    Algorithm,
    /// Its header holds something that must be understood and is not.
    #[error("the token has a critical header that is not understood")]
    CriticalHeader,
    /// It says that it is for something else than access or identity.
    #[error("the token is neither an access token nor an ID token")]
    WrongType,
    /// It is bound to a key of the bearer, which cannot be checked here.
    #[error("the token is bound to a key of its bearer and cannot be presented alone")]
    Bound,
    /// Its header names no key.
    #[error("the token's header names no key (`kid`)")]
    NoKey,
    /// A claim that every token has is missing or of the wrong form.
    #[error("the claim `{0}` is missing or of the wrong form")]
    Claim(&'static str),
    /// It has run out.
    #[error("the token ran out {late_by_seconds} s ago")]
    Expired {
        /// Seconds since `exp`.
        late_by_seconds: u64,
    },
    /// It is not good yet.
    #[error("the token is good only in {early_by_seconds} s")]
    NotYetValid {
        /// Seconds until `nbf` or `iat`.
        early_by_seconds: u64,
    },
    /// It lives longer than any may.
    #[error("a token of {life_seconds} s outlives the limit of {limit} s")]
    LifeTooLong {
        /// `exp - iat`.
        life_seconds: u64,
        /// Seconds allowed.
        limit: u64,
    },
    /// Another issuer is trusted than the one it names.
    #[error("the token's issuer is not the trusted one")]
    Issuer,
    /// It is meant for none of the audiences.
    #[error("the token is meant for another audience")]
    Audience,
    /// The issuer has no such key, also after looking again.
    #[error("the issuer has no key of this id")]
    UnknownKey,
    /// The issuer has several keys of this id.
    #[error("the issuer has several keys of this id")]
    AmbiguousKey,
    /// The key is used with another algorithm than the token.
    #[error("the token is not signed with the algorithm of its key")]
    KeyAlgorithm,
    /// The signature does not fit.
    #[error("the token's signature does not fit")]
    Signature,
    /// It names too many groups.
    #[error("the token names {found} groups; at most {limit} are taken")]
    TooManyGroups {
        /// Groups found.
        found: usize,
        /// Groups allowed.
        limit: usize,
    },
    /// A mapped claim is missing or of the wrong form.
    #[error(
        "the claim `{0}`, which names the subject or the groups, is missing or of the wrong form"
    )]
    MappedClaim(String),
    /// The subject is an address that the provider did not verify.
    #[error("the provider did not verify the e-mail address that names the subject")]
    EmailNotVerified,
}

impl UpstreamRefused {
    /// A name for logs and metrics; it never changes its meaning.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "upstream_too_large",
            Self::Malformed => "upstream_malformed",
            Self::Algorithm => "upstream_algorithm",
            Self::CriticalHeader => "upstream_critical_header",
            Self::WrongType => "upstream_wrong_type",
            Self::Bound => "upstream_bound",
            Self::NoKey => "upstream_no_key",
            Self::Claim(_) => "upstream_claim",
            Self::Expired { .. } => "upstream_expired",
            Self::NotYetValid { .. } => "upstream_not_yet_valid",
            Self::LifeTooLong { .. } => "upstream_life_too_long",
            Self::Issuer => "upstream_issuer",
            Self::Audience => "upstream_audience",
            Self::UnknownKey => "upstream_unknown_key",
            Self::AmbiguousKey => "upstream_ambiguous_key",
            Self::KeyAlgorithm => "upstream_key_algorithm",
            Self::Signature => "upstream_signature",
            Self::TooManyGroups { .. } => "upstream_too_many_groups",
            Self::MappedClaim(_) => "upstream_mapped_claim",
            Self::EmailNotVerified => "upstream_email_not_verified",
        }
    }
}

/// A token that was read and whose times are right. Nobody has vouched for it yet.
pub struct UpstreamToken {
    signed: String,
    signature: String,
    algorithm: UpstreamAlgorithm,
    kid: String,
    issuer: String,
    audiences: Vec<String>,
    expires_at: u64,
    claims: Map<String, Value>,
}

impl std::fmt::Debug for UpstreamToken {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("UpstreamToken")
            .field("issuer", &self.issuer)
            .field("kid", &self.kid)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

/// The parts of a header that decide anything. What it says about where keys are is not read.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
}

impl UpstreamToken {
    /// Reads a token as far as is possible without knowing whom the tenant trusts, at `now`. The answer is therefore
    /// the same for every tenant, whether it exists or not.
    ///
    /// # Errors
    /// [`UpstreamRefused`] with the first thing that is wrong, in this order: size, form, header, claims, time.
    pub fn read(text: &str, now: TimeMs) -> Result<Self, UpstreamRefused> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(UpstreamRefused::TooLarge {
                size: text.len(),
                limit: TOKEN_BYTES_MAX,
            });
        }
        let parts: Vec<&str> = text.splitn(4, '.').collect();
        let [head, body, signature] = parts[..] else {
            return Err(UpstreamRefused::Malformed);
        };
        let (algorithm, kid) = read_header(object(head)?)?;
        let claims = object(body)?;
        refuse_other_kinds(&claims)?;
        let token = Self {
            signed: format!("{head}.{body}"),
            signature: signature.to_owned(),
            algorithm,
            kid,
            issuer: text_claim(&claims, "iss")?,
            audiences: audiences(&claims)?,
            expires_at: seconds(&claims, "exp", f64::floor)?,
            claims,
        };
        text_claim(&token.claims, "sub")?;
        token.check_times(now.0 / 1000)?;
        Ok(token)
    }

    /// Who issued it, as it says itself. Good only for choosing whom to ask.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The id of the key it says it was signed with.
    #[must_use]
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// Holds the token against an issuer's keys. Exactly one signature is checked whatever comes of it, so that the time
    /// it takes does not tell a known issuer or key from an unknown one.
    ///
    /// # Errors
    /// [`UpstreamRefused`]; claims are looked at only after the signature fits.
    pub fn vouch(&self, trust: &Trust<'_>, keys: &IssuerKeys) -> Result<Vouched, UpstreamRefused> {
        self.check_signature(keys)?;
        if self.issuer != trust.issuer {
            return Err(UpstreamRefused::Issuer);
        }
        if !trust
            .audiences
            .iter()
            .any(|wanted| self.audiences.contains(wanted))
        {
            return Err(UpstreamRefused::Audience);
        }
        let subject = self.mapped_subject(trust.subject_claim)?;
        Ok(Vouched {
            issuer: self.issuer.clone(),
            principal_id: principal_id(&self.issuer, &subject),
            subject,
            groups: self.mapped_groups(trust.groups_claim)?,
            groups_are_told: self
                .mapped(trust.groups_claim)
                .is_some_and(|value| !value.is_null()),
            issued_at: seconds(&self.claims, "iat", f64::floor)?,
            expires_at: self.expires_at,
        })
    }

    /// Does the work of [`UpstreamToken::vouch`] for a token that nobody can vouch for.
    pub fn vouch_for_nothing(&self) {
        let _ = self.check_signature(&IssuerKeys::default());
    }

    fn check_signature(&self, keys: &IssuerKeys) -> Result<(), UpstreamRefused> {
        let refused = match keys.find(&self.kid) {
            Found::Key(key) if key.algorithm == self.algorithm => {
                let fits = jsonwebtoken::crypto::verify(
                    &self.signature,
                    self.signed.as_bytes(),
                    &key.key,
                    self.algorithm.of_the_library(),
                );
                return match fits {
                    Ok(true) => Ok(()),
                    Ok(false) | Err(_) => Err(UpstreamRefused::Signature),
                };
            }
            Found::Key(_) => UpstreamRefused::KeyAlgorithm,
            Found::Ambiguous => UpstreamRefused::AmbiguousKey,
            Found::Unknown => UpstreamRefused::UnknownKey,
        };
        if let Some(nobody) = super::jwks::nobodys_key(self.algorithm) {
            let _ = std::hint::black_box(jsonwebtoken::crypto::verify(
                &self.signature,
                self.signed.as_bytes(),
                &nobody,
                self.algorithm.of_the_library(),
            ));
        }
        Err(refused)
    }

    fn check_times(&self, now: u64) -> Result<(), UpstreamRefused> {
        if now >= self.expires_at.saturating_add(UPSTREAM_LEEWAY_SECONDS) {
            return Err(UpstreamRefused::Expired {
                late_by_seconds: now.saturating_sub(self.expires_at),
            });
        }
        let issued_at = seconds(&self.claims, "iat", f64::ceil)?;
        let not_before = match self.claims.get("nbf") {
            None => 0,
            Some(_) => seconds(&self.claims, "nbf", f64::ceil)?,
        };
        let good_from = issued_at.max(not_before);
        if good_from > now.saturating_add(UPSTREAM_LEEWAY_SECONDS) {
            return Err(UpstreamRefused::NotYetValid {
                early_by_seconds: good_from.saturating_sub(now),
            });
        }
        let life_seconds = self.expires_at.saturating_sub(issued_at);
        if life_seconds > UPSTREAM_LIFE_SECONDS_MAX {
            return Err(UpstreamRefused::LifeTooLong {
                life_seconds,
                limit: UPSTREAM_LIFE_SECONDS_MAX,
            });
        }
        Ok(())
    }

    fn mapped_subject(&self, claim: &str) -> Result<String, UpstreamRefused> {
        let bad = || UpstreamRefused::MappedClaim(claim.to_owned());
        let subject = self
            .mapped(claim)
            .and_then(Value::as_str)
            .filter(|subject| is_name(subject))
            .ok_or_else(bad)?;
        // Whoever may write any address into his profile must not become its owner.
        if claim.trim_start_matches('/') == "email"
            && self.claims.get("email_verified") != Some(&Value::Bool(true))
        {
            return Err(UpstreamRefused::EmailNotVerified);
        }
        Ok(subject.to_owned())
    }

    fn mapped_groups(&self, claim: &str) -> Result<Vec<String>, UpstreamRefused> {
        let bad = || UpstreamRefused::MappedClaim(claim.to_owned());
        let mut groups: Vec<String> = match self.mapped(claim) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(many)) if many.len() > GROUPS_MAX => {
                return Err(UpstreamRefused::TooManyGroups {
                    found: many.len(),
                    limit: GROUPS_MAX,
                });
            }
            Some(Value::Array(many)) => many
                .iter()
                .map(|one| one.as_str().map(str::to_owned).ok_or_else(bad))
                .collect::<Result<_, _>>()?,
            Some(Value::Bool(_) | Value::Number(_) | Value::Object(_)) => return Err(bad()),
        };
        if groups.iter().any(|group| !is_name(group)) {
            return Err(bad());
        }
        groups.sort();
        groups.dedup();
        Ok(groups)
    }

    fn mapped(&self, claim: &str) -> Option<&Value> {
        let Some(path) = claim.strip_prefix('/') else {
            return self.claims.get(claim);
        };
        let (first, rest) = path.split_once('/').unwrap_or((path, ""));
        let below = self.claims.get(first)?;
        if rest.is_empty() {
            return Some(below);
        }
        below.pointer(&format!("/{rest}"))
    }
}

fn read_header(header: Map<String, Value>) -> Result<(UpstreamAlgorithm, String), UpstreamRefused> {
    let is_critical = header.contains_key("crit");
    let header: Header =
        serde_json::from_value(Value::Object(header)).map_err(|_| UpstreamRefused::Malformed)?;
    let algorithm = UpstreamAlgorithm::named(&header.alg).ok_or(UpstreamRefused::Algorithm)?;
    if is_critical {
        return Err(UpstreamRefused::CriticalHeader);
    }
    if let Some(typ) = &header.typ {
        let short = typ.strip_prefix("application/").unwrap_or(typ);
        if !short.eq_ignore_ascii_case("JWT") && !short.eq_ignore_ascii_case("at+jwt") {
            return Err(UpstreamRefused::WrongType);
        }
    }
    Ok((algorithm, header.kid.ok_or(UpstreamRefused::NoKey)?))
}

/// Refuses tokens whose claims say that they are no access or ID token: logout and event tokens (`events`), refresh
/// tokens of providers that say so in a claim `typ`, and tokens bound to a key of the bearer (`cnf`).
fn refuse_other_kinds(claims: &Map<String, Value>) -> Result<(), UpstreamRefused> {
    if claims.contains_key("events") {
        return Err(UpstreamRefused::WrongType);
    }
    if let Some(typ) = claims.get("typ") {
        let accepted = ["Bearer", "ID", "JWT"];
        if !typ.as_str().is_some_and(|typ| accepted.contains(&typ)) {
            return Err(UpstreamRefused::WrongType);
        }
    }
    if claims.contains_key("cnf") {
        return Err(UpstreamRefused::Bound);
    }
    Ok(())
}

fn object(part: &str) -> Result<Map<String, Value>, UpstreamRefused> {
    let bytes = URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|_| UpstreamRefused::Malformed)?;
    serde_json::from_slice(&bytes).map_err(|_| UpstreamRefused::Malformed)
}

fn text_claim(claims: &Map<String, Value>, claim: &'static str) -> Result<String, UpstreamRefused> {
    claims
        .get(claim)
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
        .ok_or(UpstreamRefused::Claim(claim))
}

fn audiences(claims: &Map<String, Value>) -> Result<Vec<String>, UpstreamRefused> {
    let bad = UpstreamRefused::Claim("aud");
    match claims.get("aud") {
        Some(Value::String(one)) => Ok(vec![one.clone()]),
        Some(Value::Array(many)) => many
            .iter()
            .map(|one| one.as_str().map(str::to_owned))
            .collect::<Option<_>>()
            .ok_or(bad),
        None | Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => Err(bad),
    }
}

/// A time in whole seconds. Providers may write fractions, which are rounded the way that is stricter.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range was checked, and everything in it is exact"
)]
fn seconds(
    claims: &Map<String, Value>,
    claim: &'static str,
    round: fn(f64) -> f64,
) -> Result<u64, UpstreamRefused> {
    let value = claims.get(claim).ok_or(UpstreamRefused::Claim(claim))?;
    if let Some(whole) = value.as_u64() {
        return Ok(whole);
    }
    value
        .as_f64()
        .map(round)
        .filter(|number| (0.0..=9e15).contains(number))
        .map(|number| number as u64)
        .ok_or(UpstreamRefused::Claim(claim))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.chars().any(char::is_control)
}
