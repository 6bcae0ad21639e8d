//! `POST /members/leave`: the beacon of a closing tab, which deletes a key so that others see at once that it is gone.

use std::net::SocketAddr;

use axum::body::Bytes;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};

use super::join::{Caller, namespace, presented, refused};
use crate::address::Seen;
use crate::app::App;
use crate::identity::Ask;
use crate::limits::{BEACON_WAIT, BEACONS_MAX, BEACONS_PER_ADDRESS};
use crate::metrics::Limited;
use crate::scope::is_plain;
use crate::session::fault::{Code, Fault};

/// Answers a beacon: 204, 400, 403, 429, or 502 when the brokers cannot do it.
pub(super) async fn leave(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let seen = Seen::read(&headers, peer.ip(), app.door.trusted_proxies);
    let page = match app.door.origins.check(&headers, &seen) {
        Ok(page) => page,
        Err(refused) => return answer(&Fault::new(Code::Forbidden, refused.to_string())),
    };
    let caller = Caller {
        ip: seen.ip,
        page,
        session: crate::sign_in::session_of(&headers),
    };
    match delete(&app, caller, &body).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(fault) => answer(&fault),
    }
}

async fn delete(app: &App, caller: Caller, body: &[u8]) -> Result<(), Fault> {
    let told: Map<String, Value> = serde_json::from_slice(body)
        .map_err(|error| Fault::bad_request(format!("the body is no JSON object: {error}")))?;
    let word = |key: &str| told.get(key).and_then(Value::as_str);
    let plain = |key: &str| {
        let word = word(key).filter(|word| is_plain(word));
        word.ok_or_else(|| {
            Fault::bad_request(format!("`{key}` must be 1 to 64 of A-Z a-z 0-9 _ -"))
        })
    };
    let asked = match told.get("namespace") {
        None | Some(Value::Null) => None,
        Some(Value::String(asked)) => Some(asked.clone()),
        Some(_) => return Err(Fault::bad_request("`namespace` must be a string")),
    };
    let namespace = namespace(app, asked)?;
    let (value, key) = (plain(&app.scope.field)?, plain("key")?);
    let alias = plain("cache")?;
    let place = app.scope.cache(alias);
    let cache = place
        .and_then(|place| app.scope.caches.get(place))
        .filter(|cache| cache.write);
    let cache = cache.ok_or_else(|| {
        Fault::bad_request(format!("no cache {alias:?} can be written to")).cache(alias)
    })?;
    let name = cache.resource.name_in(value);
    let tenant = &app.config.tenant;
    let permission = format!("cache.write:cache:{tenant}/{namespace}/{name}");
    let permission = permission
        .parse()
        .map_err(|error| Fault::bad_request(format!("{name:?} can be no name: {error}")))?;
    let ask = Ask::Exactly {
        required: vec![permission],
        optional: Vec::new(),
    };
    let place = app
        .beacons
        .take(caller.ip, BEACONS_MAX, BEACONS_PER_ADDRESS);
    let _place = place.ok_or_else(|| {
        let fault = Fault::new(Code::RateLimited, "too many beacons at a time");
        fault.retry_after(BEACON_WAIT)
    })?;
    let presented = presented(caller, word("token").map(str::to_owned))?;
    let granted = app
        .door
        .identity
        .admit(presented, ask)
        .await
        .map_err(refused)?;
    app.people
        .charge_alone(&granted.principal, app.uptime())
        .map_err(|over| {
            app.metrics.limited(Limited::PrincipalRate);
            let fault = Fault::new(Code::RateLimited, "too many writes");
            fault.retry_after(over.wait)
        })?;
    let failed = |failed: &dyn std::fmt::Display| {
        Fault::new(Code::CacheFailed, failed.to_string()).cache(alias)
    };
    let client = app.reach.connect(&namespace, granted.tokens.clone()).await;
    let reached = client.map_err(|error| failed(&error))?;
    let cache = reached
        .client
        .cache(&name)
        .map_err(|error| failed(&error))?;
    cache.delete(key).await.map_err(|error| failed(&error))?;
    Ok(())
}

fn answer(fault: &Fault) -> Response {
    let status = match fault.code {
        Code::BadRequest | Code::Unsupported => StatusCode::BAD_REQUEST,
        Code::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        Code::Forbidden | Code::SignedOut => StatusCode::FORBIDDEN,
        Code::Unavailable
        | Code::PublishFailed
        | Code::SubscribeFailed
        | Code::SubscriptionEnded
        | Code::CounterFailed
        | Code::CacheFailed
        | Code::WatchFailed
        | Code::StateFailed
        | Code::ReadFailed
        | Code::Trimmed
        | Code::PastEnd => StatusCode::BAD_GATEWAY,
    };
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (status, kind, fault.to_text()).into_response()
}
