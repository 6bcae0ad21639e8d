//! The console: what its page asks of brokers and the control plane, with the token of whoever looks at it.
//!
//! Nothing is decided here. A request is bounded, asked on in the caller's own name, and its answer is put into JSON;
//! `docs/console.md` lists the shapes. Whatever changes something passes [`caller::guard`] first.

mod brokers;
mod cache_watch;
mod caches;
mod caller;
mod claims;
mod entries;
mod files;
mod group_offsets;
mod groups;
mod kafka;
mod letters;
mod limits;
mod live;
mod me;
mod people;
mod place;
mod places;
mod publish;
mod records;
mod refusal;
mod search;
mod shown;
mod streams;
mod tail;

use axum::extract::DefaultBodyLimit;
use axum::routing::{any, get, post};
use axum::{Router, middleware};

use crate::app::App;

pub(crate) use people::Console;
use refusal::Refusal;

/// The routes of this room.
pub(crate) fn routes(app: &App) -> Router<App> {
    Router::new()
        .nest("/console/api", api(app))
        .route("/console", get(files::moved))
        .route("/console/", get(files::serve))
        .route("/console/{*path}", get(files::serve))
}

fn api(app: &App) -> Router<App> {
    Router::new()
        .route("/me", get(me::me))
        .route("/explain", get(me::explain))
        .route("/brokers", get(brokers::list))
        .route("/kafka/groups", get(kafka::list))
        .merge(of_streams())
        .merge(of_caches())
        .merge(of_groups())
        // A route and no fallback: the page answers for every other path below `/console`.
        .route(
            "/{*rest}",
            any(|| async { Refusal::not_found("the console's API has no such path") }),
        )
        .layer(DefaultBodyLimit::max(limits::BODY_BYTES))
        .layer(middleware::from_fn_with_state(app.clone(), caller::guard))
        .layer(middleware::from_fn(refusal::finish))
}

fn of_streams() -> Router<App> {
    Router::new()
        .route("/ns/{ns}/streams", get(streams::list))
        .route("/ns/{ns}/streams/{stream}", get(streams::one))
        .route(
            "/ns/{ns}/streams/{stream}/records",
            get(records::page).post(publish::publish),
        )
        .route(
            "/ns/{ns}/streams/{stream}/records/{offset}",
            get(records::one),
        )
        .route("/ns/{ns}/streams/{stream}/search", get(search::search))
        .route("/ns/{ns}/streams/{stream}/tail", get(tail::tail))
}

fn of_caches() -> Router<App> {
    Router::new()
        .route("/ns/{ns}/caches", get(caches::list))
        .route("/ns/{ns}/caches/{cache}", get(caches::one))
        .route("/ns/{ns}/caches/{cache}/keys", get(entries::keys))
        .route(
            "/ns/{ns}/caches/{cache}/entry",
            get(entries::get).put(entries::put).delete(entries::delete),
        )
        .route("/ns/{ns}/caches/{cache}/history", get(cache_watch::history))
        .route("/ns/{ns}/caches/{cache}/watch", get(cache_watch::watch))
        .route(
            "/ns/{ns}/caches/{cache}/counter",
            get(entries::counter).post(entries::add),
        )
}

fn of_groups() -> Router<App> {
    let group = "/ns/{ns}/groups/{stream}/{group}";
    let below = |rest: &str| format!("{group}{rest}");
    Router::new()
        .route("/ns/{ns}/groups", get(groups::list))
        .route(group, get(groups::one))
        .route(&below("/plan"), get(group_offsets::plan))
        .route(&below("/seek"), post(group_offsets::seek))
        .route(&below("/letters"), get(letters::list))
        .route(&below("/letters/redrive"), post(letters::redrive))
        .route(&below("/letters/discard"), post(letters::discard))
}
