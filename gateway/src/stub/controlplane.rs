//! A control plane that exchanges whatever it is shown, and counts.

use std::sync::{Arc, Mutex, MutexGuard};

use axum::extract::{Path, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::Served;
use crate::identity::now;

/// What it answers.
#[derive(Clone, Debug)]
pub(crate) struct Manners {
    /// Status and code of every exchange and refresh; OK for tokens.
    pub(crate) exchange: (u16, &'static str),
    pub(crate) refresh: (u16, &'static str),
    pub(crate) delegate: (u16, &'static str),
    /// What everybody holds, however little he asks for.
    pub(crate) holds: Vec<&'static str>,
    /// Seconds a token is good for.
    pub(crate) life_s: u64,
    /// Refreshes and exchanges wait until they are let go.
    pub(crate) slow: bool,
}

impl Default for Manners {
    fn default() -> Self {
        Self {
            exchange: (200, ""),
            refresh: (200, ""),
            delegate: (200, ""),
            holds: vec![
                "stream.subscribe:stream:t/ns/*",
                "stream.publish:stream:t/ns/*",
            ],
            life_s: 900,
            slow: false,
        }
    }
}

/// What it was asked: the verb, the credential, the body.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) verb: String,
    pub(crate) bearer: String,
    pub(crate) body: Value,
}

#[derive(Default)]
struct Book {
    manners: Option<Manners>,
    asked: Vec<Asked>,
    minted: u64,
    /// The next refresh token of each session, by its number.
    live: Vec<String>,
}

#[derive(Clone, Default)]
pub(crate) struct ControlPlane {
    book: Arc<Mutex<Book>>,
    pub(crate) go: Arc<Notify>,
    pub(crate) came: Arc<Notify>,
}

/// A control plane that runs.
pub(crate) struct Running {
    pub(crate) plane: ControlPlane,
    pub(crate) served: Served,
}

impl ControlPlane {
    pub(crate) async fn start(manners: Manners) -> Running {
        let plane = Self::default();
        plane.book().manners = Some(manners);
        let router = Router::new()
            .route("/v1/tenants/t/token/{verb}", post(answer))
            .with_state(plane.clone());
        Running {
            served: Served::start(router).await,
            plane,
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap()
    }

    pub(crate) fn behave(&self, change: impl FnOnce(&mut Manners)) {
        change(self.book().manners.as_mut().unwrap());
    }

    /// What was asked with this verb, in order.
    pub(crate) fn asked(&self, verb: &str) -> Vec<Asked> {
        let book = self.book();
        book.asked
            .iter()
            .filter(|one| one.verb == verb)
            .cloned()
            .collect()
    }

    /// Sessions that can still be continued.
    pub(crate) fn live(&self) -> usize {
        self.book().live.len()
    }

    fn mint(&self, subject: &str, perms: &[String], life_s: u64) -> String {
        let mut book = self.book();
        book.minted += 1;
        let at = now().0 / 1000;
        let body = json!({
            "sub": subject, "tid": "t", "iat": at, "exp": at + life_s, "perms": perms, "jti": book.minted,
        });
        format!(
            "felix.{}.signature",
            URL_SAFE_NO_PAD.encode(body.to_string())
        )
    }
}

/// The subject of a token, unverified; a text without one is its own.
fn subject(token: &str) -> String {
    let body = token.split('.').nth(1).unwrap_or_default();
    let body = URL_SAFE_NO_PAD.decode(body).unwrap_or_default();
    let claims: Value = serde_json::from_slice(&body).unwrap_or_default();
    claims["sub"].as_str().unwrap_or(token).to_owned()
}

async fn answer(
    State(plane): State<ControlPlane>,
    Path(verb): Path<String>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> (StatusCode, Json<Value>) {
    let bearer = headers
        .get(AUTHORIZATION)
        .map(|value| value.to_str().unwrap());
    let bearer = bearer
        .unwrap_or_default()
        .trim_start_matches("Bearer ")
        .to_owned();
    let manners = {
        let mut book = plane.book();
        book.asked.push(Asked {
            verb: verb.clone(),
            bearer: bearer.clone(),
            body: body.clone(),
        });
        book.manners.clone().unwrap()
    };
    plane.came.notify_one();
    if manners.slow && verb != "revoke" {
        plane.go.notified().await;
    }
    let (status, code) = match verb.as_str() {
        "exchange" => manners.exchange,
        "refresh" => manners.refresh,
        "delegate" => manners.delegate,
        _ => (204, ""),
    };
    if !(200..300).contains(&status) {
        let body = json!({"code": code, "message": "words"});
        return (StatusCode::from_u16(status).unwrap(), Json(body));
    }
    let perms: Vec<String> = match body["permissions"].as_array() {
        Some(pairs) => pairs
            .iter()
            .filter_map(|pair| granted(&manners, pair.as_str()?))
            .collect(),
        None => manners.holds.iter().map(|one| (*one).to_owned()).collect(),
    };
    match verb.as_str() {
        "exchange" => {
            let token = plane.mint(&subject(&bearer), &perms, manners.life_s);
            let number = plane.book().minted;
            let chain = format!("{number}|0|{}|{}", subject(&bearer), perms.join(" "));
            plane.book().live.push(chain.clone());
            (
                StatusCode::OK,
                Json(session(&token, &chain, manners.life_s)),
            )
        }
        "refresh" => {
            let spent = body["refresh_token"].as_str().unwrap().to_owned();
            let Some(next) = spend(&plane, &spent) else {
                return (
                    StatusCode::FORBIDDEN,
                    Json(json!({"code": "forbidden", "message": "words"})),
                );
            };
            let mut parts = next.split('|').skip(2);
            let (who, perms) = (parts.next().unwrap(), parts.next().unwrap());
            let perms: Vec<String> = perms.split(' ').map(str::to_owned).collect();
            let token = plane.mint(who, &perms, manners.life_s);
            (StatusCode::OK, Json(session(&token, &next, manners.life_s)))
        }
        "delegate" => {
            let who = format!(
                "{} through a gateway",
                subject(body["subject_token"].as_str().unwrap())
            );
            let token = plane.mint(&who, &perms, manners.life_s);
            let answer = json!({
                "access_token": token, "issued_token_type": "jwt", "token_type": "Bearer", "expires_in": 1,
            });
            (StatusCode::OK, Json(answer))
        }
        _ => {
            let ended = body["refresh_token"].as_str().unwrap();
            plane.book().live.retain(|one| one != ended);
            plane.came.notify_one();
            (StatusCode::NO_CONTENT, Json(Value::Null))
        }
    }
}

/// What is left of a pair, as the control plane narrows: the pair itself when a grant covers it.
fn granted(manners: &Manners, pair: &str) -> Option<String> {
    let covers = |held: &&&str| match held.strip_suffix('*') {
        Some(prefix) => pair.starts_with(prefix),
        None => pair == **held,
    };
    manners.holds.iter().find(covers).map(|_| pair.to_owned())
}

/// A refresh token is good once.
fn spend(plane: &ControlPlane, spent: &str) -> Option<String> {
    let mut book = plane.book();
    let place = book.live.iter().position(|one| one == spent)?;
    let mut parts = spent.split('|');
    let (id, number, who, perms) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let next = format!("{id}|{}|{who}|{perms}", number.parse::<u64>().ok()? + 1);
    book.live[place] = next.clone();
    Some(next)
}

fn session(token: &str, chain: &str, life_s: u64) -> Value {
    json!({
        "felix_token": token, "expires_in": life_s, "token_type": "Bearer",
        "refresh_token": chain, "refresh_expires_in": 1000,
    })
}
