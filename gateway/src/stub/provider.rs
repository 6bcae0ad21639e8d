//! An OpenID provider that signs whatever it is told to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Form, Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signer as _, SigningKey};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::Served;
use crate::identity::{Secret, now};

pub(crate) const CLIENT: &str = "page";

/// What the provider does otherwise than it should.
#[derive(Clone, Debug, Default)]
pub(crate) struct Manners {
    /// Claims that replace those of the ID token; null removes one.
    pub(crate) claims: Value,
    /// It answers nothing but this status.
    pub(crate) away: Option<StatusCode>,
    /// It hands out refresh tokens.
    pub(crate) refreshes: bool,
    /// It refuses refresh tokens.
    pub(crate) refuses_refresh: bool,
    /// It says `iss` beside codes (RFC 9207).
    pub(crate) names_itself: bool,
    /// It can be signed out of.
    pub(crate) signs_out: bool,
    /// Where it says that is, instead of where it should be.
    pub(crate) ends_at: Option<String>,
    /// Seconds an ID token is good for.
    pub(crate) life_s: Option<i64>,
}

#[derive(Default)]
struct Book {
    manners: Manners,
    /// Codes that were given out, with the challenge, nonce and redirect address they belong to.
    codes: BTreeMap<String, BTreeMap<String, String>>,
    redeemed: u64,
    refreshed: u64,
    seen: Vec<String>,
    issuer: String,
}

#[derive(Clone)]
pub(crate) struct Provider {
    key: Arc<SigningKey>,
    book: Arc<Mutex<Book>>,
}

/// A provider that runs.
pub(crate) struct Running {
    pub(crate) provider: Provider,
    pub(crate) served: Served,
}

impl Provider {
    pub(crate) async fn start(manners: Manners) -> Running {
        let provider = Self {
            key: Arc::new(SigningKey::from_bytes(&[7; 32])),
            book: Arc::default(),
        };
        provider.book().manners = manners;
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(discovery))
            .route("/jwks", get(jwks))
            .route("/token", post(token))
            .with_state(provider.clone());
        let served = Served::start(router).await;
        provider.book().issuer = served.url();
        Running { provider, served }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap()
    }

    pub(crate) fn behave(&self, change: impl FnOnce(&mut Manners)) {
        change(&mut self.book().manners);
    }

    pub(crate) fn redeemed(&self) -> u64 {
        self.book().redeemed
    }

    pub(crate) fn refreshed(&self) -> u64 {
        self.book().refreshed
    }

    /// Everything secret that it gave away or was shown.
    pub(crate) fn secrets(&self) -> Vec<String> {
        self.book().seen.clone()
    }

    /// A person agrees to what the query of an authorization request asks for: the code that the browser carries back.
    pub(crate) fn agree(&self, asked: &BTreeMap<String, String>) -> String {
        let mut book = self.book();
        let code = format!("code-{}-of-the-provider", book.codes.len());
        book.codes.insert(code.clone(), asked.clone());
        book.seen.push(code.clone());
        code
    }

    /// A signed token of a person.
    pub(crate) fn id_token(&self, subject: &str, claims: &Value) -> Secret {
        let issuer = self.book().issuer.clone();
        let life = self.book().manners.life_s.unwrap_or(600);
        Secret::new(self.sign(&issuer, subject, claims, life))
    }

    fn sign(&self, issuer: &str, subject: &str, claims: &Value, life_s: i64) -> String {
        let at = i64::try_from(now().0 / 1000).unwrap();
        let mut body = json!({
            "iss": issuer, "sub": subject, "aud": CLIENT, "iat": at, "exp": at + life_s,
            "preferred_username": subject,
        });
        for (key, value) in claims.as_object().into_iter().flatten() {
            if value.is_null() {
                body.as_object_mut().unwrap().remove(key);
            } else {
                body[key] = value.clone();
            }
        }
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let head = json!({"alg": "EdDSA", "kid": "1", "typ": "JWT"});
        let signed = format!("{}.{}", part(&head), part(&body));
        let signature = self.key.sign(signed.as_bytes()).to_bytes();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

async fn discovery(State(provider): State<Provider>) -> (StatusCode, Json<Value>) {
    let book = provider.book();
    let issuer = &book.issuer;
    let mut body = json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{issuer}/authorize"),
        "token_endpoint": format!("{issuer}/token"),
        "jwks_uri": format!("{issuer}/jwks"),
        "response_types_supported": ["code"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["EdDSA"],
        "authorization_response_iss_parameter_supported": book.manners.names_itself,
    });
    if book.manners.signs_out {
        let own = || format!("{issuer}/end");
        body["end_session_endpoint"] = json!(book.manners.ends_at.clone().unwrap_or_else(own));
    }
    (book.manners.away.unwrap_or(StatusCode::OK), Json(body))
}

async fn jwks(State(provider): State<Provider>) -> (StatusCode, Json<Value>) {
    let x = URL_SAFE_NO_PAD.encode(provider.key.verifying_key().to_bytes());
    let key =
        json!({"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": "1", "x": x});
    let away = provider.book().manners.away;
    (away.unwrap_or(StatusCode::OK), Json(json!({"keys": [key]})))
}

async fn token(
    State(provider): State<Provider>,
    Form(form): Form<BTreeMap<String, String>>,
) -> (StatusCode, Json<Value>) {
    let refused = |why: &str| (StatusCode::BAD_REQUEST, Json(json!({"error": why})));
    let field = |name: &str| form.get(name).cloned().unwrap_or_default();
    let mut book = provider.book();
    if let Some(away) = book.manners.away {
        return (away, Json(json!({})));
    }
    let mut claims = book.manners.claims.clone();
    match field("grant_type").as_str() {
        "authorization_code" => {
            let Some(asked) = book.codes.remove(&field("code")) else {
                return refused("invalid_grant");
            };
            let verifier = field("code_verifier");
            book.seen.push(verifier.clone());
            let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier));
            if asked.get("code_challenge") != Some(&challenge)
                || asked.get("code_challenge_method").map(String::as_str) != Some("S256")
                || asked.get("redirect_uri") != Some(&field("redirect_uri"))
            {
                return refused("invalid_grant");
            }
            book.redeemed += 1;
            if claims.get("nonce").is_none() {
                claims = claims.as_object().cloned().unwrap_or_default().into();
                claims["nonce"] = json!(asked["nonce"]);
            }
        }
        "refresh_token" if book.manners.refuses_refresh => return refused("invalid_grant"),
        "refresh_token" => book.refreshed += 1,
        _ => return refused("unsupported_grant_type"),
    }
    let life = book.manners.life_s.unwrap_or(600);
    let issuer = book.issuer.clone();
    let id_token = provider.sign(&issuer, "ann", &claims, life);
    let refresh = format!("refresh-{}-of-the-provider", book.refreshed);
    book.seen.push(id_token.clone());
    let mut body = json!({"access_token": "access-of-the-provider", "token_type": "Bearer", "id_token": id_token});
    if book.manners.refreshes {
        book.seen.push(refresh.clone());
        body["refresh_token"] = json!(refresh);
    }
    (StatusCode::OK, Json(body))
}
