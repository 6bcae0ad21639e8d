//! The endpoints.

use std::sync::{Arc, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::rejection::{FormRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Form, Query, Request, State as Shared};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, LOCATION, ORIGIN,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Url;
use serde::Deserialize;
use serde_json::{Value, json};

use super::desk::{NoTokens, SignedIn, refresh_token};
use super::people::Person;
use super::request::{Asked, Choice, Denied, Grantable, HOSTS, Request as Authorize, loopback};
use super::{CLIENT_ID, State, pages};

/// Bytes of a form at most.
const FORM_BYTES_MAX: usize = 32 * 1024;
/// Bytes of randomness in a code and in a refresh token.
const SECRET_BYTES: usize = 32;
/// Bytes of randomness in the name of a sign-in.
const SIGN_IN_BYTES: usize = 12;
/// Nothing but the style sheet is loaded; a form leads here and from here to this machine.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; form-action 'self' http://127.0.0.1:* http://localhost:*; \
     frame-ancestors 'none'; base-uri 'none'",
);

type Held = Arc<State>;

pub(super) fn router(state: Held) -> Router {
    Router::new()
        .route("/", get(welcome))
        .route("/.well-known/openid-configuration", get(discovery))
        .route("/jwks.json", get(jwks))
        .route("/authorize", get(authorize).post(decide))
        .route("/token", axum::routing::post(token))
        .route("/end-session", get(end_session))
        .route("/style.css", get(style))
        .fallback(|| async { (StatusCode::NOT_FOUND, "nothing is here") })
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .layer(from_fn_with_state(Arc::clone(&state), guard))
        .with_state(state)
}

/// Refuses requests that mean another host, and says on every answer how it may be used. A page of another site that
/// made its own name lead to this machine sends its own name as host.
async fn guard(Shared(state): Shared<Held>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let name = host.and_then(|host| host.strip_suffix(&format!(":{}", state.address.port())));
    if !name.is_some_and(|name| HOSTS.contains(&name)) {
        let text = "this is another machine's name; the development sign-in answers to its own address only";
        return (StatusCode::MISDIRECTED_REQUEST, text).into_response();
    }
    let origin = own_origin(headers);
    let preflight = request.method() == Method::OPTIONS && origin.is_some();
    let mut response = match preflight {
        true => StatusCode::NO_CONTENT.into_response(),
        false => next.run(request).await,
    };
    let answer = response.headers_mut();
    if let Some(origin) = origin {
        answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        answer.insert(
            ACCESS_CONTROL_ALLOW_METHODS,
            HeaderValue::from_static("GET, POST"),
        );
        answer.insert(
            ACCESS_CONTROL_ALLOW_HEADERS,
            HeaderValue::from_static("content-type"),
        );
    }
    answer.insert(VARY, HeaderValue::from_static("origin"));
    answer.insert(CONTENT_SECURITY_POLICY, POLICY);
    answer.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    answer.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    answer.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The origin of a page on this machine: only such pages may read what is answered.
fn own_origin(headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(ORIGIN)?;
    loopback(origin.to_str().ok()?).map(|_| origin.clone())
}

async fn welcome(Shared(state): Shared<Held>) -> Html<String> {
    let text = format!(
        "This is the development identity provider {}. Programs sign people in here as client {CLIENT_ID}; there is \
         nothing else to see.",
        state.issuer
    );
    Html(pages::says("Felix development sign-in", &text))
}

async fn style() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/css; charset=utf-8")], pages::STYLE)
}

async fn discovery(Shared(state): Shared<Held>) -> Json<Value> {
    let issuer = &state.issuer;
    Json(json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{issuer}/authorize"),
        "token_endpoint": format!("{issuer}/token"),
        "end_session_endpoint": format!("{issuer}/end-session"),
        "jwks_uri": format!("{issuer}/jwks.json"),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
        "token_endpoint_auth_methods_supported": ["none"],
        "code_challenge_methods_supported": ["S256"],
        "scopes_supported": ["openid", "profile", "email", "groups", "offline_access"],
        "claims_supported": ["sub", "name", "preferred_username", "email", "groups", "sid", "auth_time", "nonce"],
        "prompt_values_supported": ["none", "login", "select_account"],
        "authorization_response_iss_parameter_supported": true,
        "request_parameter_supported": false,
        "request_uri_parameter_supported": false,
    }))
}

async fn jwks(Shared(state): Shared<Held>) -> Json<Value> {
    Json(state.keys.jwks())
}

/// Shows the page, or signs in who is named when the program asks for no page.
async fn authorize(
    Shared(state): Shared<Held>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Response {
    let Ok(Query(asked)) = asked else {
        return refused("The request cannot be read; a parameter may come twice.");
    };
    let request = match asked.request() {
        Ok(request) => request,
        Err(unknown) => return refused(&unknown.to_string()),
    };
    let choice = asked
        .grantable(&request)
        .and_then(|grantable| Ok((grantable, asked.choice()?)));
    match choice {
        Ok((_, Choice::Open)) => Html(pages::choose(&asked)).into_response(),
        Ok((grantable, Choice::Made(person))) => grant(&state, &request, person, grantable),
        Err(denied) => to(&request.denied(&state.issuer, denied)),
    }
}

/// What was chosen on the page. The parameters come with it and are looked at as if for the first time.
async fn decide(
    Shared(state): Shared<Held>,
    asked: Result<Form<Asked>, FormRejection>,
) -> Response {
    let Ok(Form(asked)) = asked else {
        return refused("The form cannot be read.");
    };
    let request = match asked.request() {
        Ok(request) => request,
        Err(unknown) => return refused(&unknown.to_string()),
    };
    let chosen = asked
        .grantable(&request)
        .and_then(|grantable| Ok((grantable, asked.chosen()?)));
    match chosen {
        Ok((grantable, person)) => grant(&state, &request, person, grantable),
        Err(Denied::Nobody) => Html(pages::choose(&asked)).into_response(),
        Err(denied) => to(&request.denied(&state.issuer, denied)),
    }
}

fn grant(state: &State, request: &Authorize, person: Person, grantable: Grantable) -> Response {
    let (Some(code), Some(sign_in)) = (random(SECRET_BYTES), random(SIGN_IN_BYTES)) else {
        return out_of_order();
    };
    tracing::info!(who = person.name(), "the development provider signs in");
    let mut desk = state.desk.lock().unwrap_or_else(PoisonError::into_inner);
    desk.give_code(&code, &sign_in, person, grantable, now());
    drop(desk);
    to(&request.granted(&state.issuer, &code))
}

/// The form of the token endpoint.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenForm {
    grant_type: Option<String>,
    client_id: Option<String>,
    client_secret: Option<String>,
    code: Option<String>,
    redirect_uri: Option<String>,
    code_verifier: Option<String>,
    refresh_token: Option<String>,
}

async fn token(
    Shared(state): Shared<Held>,
    headers: HeaderMap,
    form: Result<Form<TokenForm>, FormRejection>,
) -> Response {
    let Ok(Form(form)) = form else {
        return no_tokens(
            "invalid_request",
            "the form cannot be read; a field may come twice",
        );
    };
    if form.client_secret.is_some() || headers.contains_key(AUTHORIZATION) {
        return no_tokens("invalid_client", "this client has no password");
    }
    if form.client_id.as_deref() != Some(CLIENT_ID) {
        return no_tokens(
            "invalid_client",
            "this provider knows one client, `felix-dev`",
        );
    }
    let Some(secret) = random(SECRET_BYTES) else {
        return out_of_order();
    };
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let given = match form.grant_type.as_deref() {
        Some("authorization_code") => {
            let (code, redirect) = (text(&form.code), text(&form.redirect_uri));
            let verifier = text(&form.code_verifier);
            let mut desk = state.desk.lock().unwrap_or_else(PoisonError::into_inner);
            desk.redeem(&code, &redirect, &verifier, &secret, now())
        }
        Some("refresh_token") => {
            let mut desk = state.desk.lock().unwrap_or_else(PoisonError::into_inner);
            desk.refresh(&text(&form.refresh_token), &secret, now())
        }
        _ => {
            return no_tokens(
                "unsupported_grant_type",
                "codes and refresh tokens are redeemed here",
            );
        }
    };
    match given {
        Ok(signed_in) => tokens(&state, &signed_in, &secret),
        Err(refused) => grant_refused(refused),
    }
}

fn tokens(state: &State, signed_in: &SignedIn, secret: &str) -> Response {
    let seconds = state.id_token_seconds;
    let id_token = state
        .keys
        .id_token(&state.issuer, CLIENT_ID, signed_in, now(), seconds);
    // Nothing is behind the access token: everything there is to know is in the ID token.
    let (Ok(id_token), Some(access_token)) = (id_token, random(SECRET_BYTES)) else {
        return out_of_order();
    };
    Json(json!({
        "token_type": "Bearer",
        "access_token": access_token,
        "expires_in": seconds,
        "id_token": id_token,
        "refresh_token": refresh_token(&signed_in.sign_in, secret),
        "scope": signed_in.scope,
    }))
    .into_response()
}

/// The query of the end of a session.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Ended {
    id_token_hint: Option<String>,
    post_logout_redirect_uri: Option<String>,
    state: Option<String>,
}

async fn end_session(
    Shared(state): Shared<Held>,
    asked: Result<Query<Ended>, QueryRejection>,
) -> Response {
    let Ok(Query(asked)) = asked else {
        return refused("The request cannot be read.");
    };
    let hint = asked.id_token_hint.as_deref();
    let hint = hint.and_then(|token| state.keys.hint(&state.issuer, CLIENT_ID, token));
    if let Some(hint) = &hint {
        let mut desk = state.desk.lock().unwrap_or_else(PoisonError::into_inner);
        desk.end(&hint.sid);
    }
    let Some(back) = asked.post_logout_redirect_uri.as_deref() else {
        return Html(pages::says(
            "You are signed out",
            "You may close this page.",
        ))
        .into_response();
    };
    let Some(mut back) = loopback(back) else {
        return refused("Browsers are sent back to addresses of this machine only.");
    };
    if let Some(state) = &asked.state {
        back.query_pairs_mut().append_pair("state", state);
    }
    to(&back)
}

fn grant_refused(refused: NoTokens) -> Response {
    no_tokens("invalid_grant", &refused.to_string())
}

fn no_tokens(error: &str, description: &str) -> Response {
    let status = match error {
        "invalid_client" => StatusCode::UNAUTHORIZED,
        _ => StatusCode::BAD_REQUEST,
    };
    let body = json!({ "error": error, "error_description": description });
    (status, Json(body)).into_response()
}

fn refused(text: &str) -> Response {
    let page = pages::says("This sign-in cannot go on", text);
    (StatusCode::BAD_REQUEST, Html(page)).into_response()
}

fn out_of_order() -> Response {
    (
        StatusCode::INTERNAL_SERVER_ERROR,
        "no randomness, or no signature",
    )
        .into_response()
}

/// 303, so that a form that was posted is not posted on.
fn to(url: &Url) -> Response {
    (StatusCode::SEE_OTHER, [(LOCATION, url.as_str().to_owned())]).into_response()
}

fn random(bytes: usize) -> Option<String> {
    let mut buffer = vec![0; bytes];
    getrandom::fill(&mut buffer).ok()?;
    Some(URL_SAFE_NO_PAD.encode(buffer))
}

/// Unix seconds.
fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
