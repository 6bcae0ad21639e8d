//! What a gateway counts, in two forms: JSON, as pages and scripts of the field read it, and Prometheus text. Labels
//! of the Prometheus form are bounded: none.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use felix_process::Export;
use hdrhistogram::Histogram as Times;
use metrics::{Counter, Gauge, Histogram};
use serde::Serialize;
use serde_json::{Value, json};

use crate::app::App;

/// Every metric a gateway exports: kind, name, help. `docs/OPERATING.md` is compared with it.
pub const CATALOGUE: &[(&str, &str, &str)] = &[
    (
        "counter",
        "felix_gateway_connections_total",
        "Connections of browsers accepted.",
    ),
    (
        "counter",
        "felix_gateway_connections_refused_total",
        "Connections closed at once because a limit was reached.",
    ),
    (
        "gauge",
        "felix_gateway_sessions",
        "Browsers that have joined a scope and are connected.",
    ),
    (
        "counter",
        "felix_gateway_joins_total",
        "Browsers that joined a scope.",
    ),
    (
        "counter",
        "felix_gateway_joins_refused_total",
        "Joins that were refused, for any reason.",
    ),
    (
        "counter",
        "felix_gateway_peers_dead_total",
        "Sessions ended because nothing was heard of the browser any more.",
    ),
    (
        "counter",
        "felix_gateway_messages_total",
        "Messages heard from browsers.",
    ),
    (
        "counter",
        "felix_gateway_messages_bad_total",
        "Messages of browsers that were not understood or not allowed.",
    ),
    (
        "counter",
        "felix_gateway_writes_total",
        "Publishes, counter adds and cache writes of browsers.",
    ),
    (
        "counter",
        "felix_gateway_writes_limited_total",
        "Writes of browsers refused by a limit of the scope file.",
    ),
    (
        "counter",
        "felix_gateway_events_total",
        "Events sent to browsers.",
    ),
    (
        "counter",
        "felix_gateway_event_bytes_total",
        "Bytes of events sent to browsers, as they stand on the socket.",
    ),
    (
        "gauge",
        "felix_gateway_feeds",
        "Subscriptions and cache watches at brokers that are shared by browsers.",
    ),
    (
        "counter",
        "felix_gateway_browsers_slow_total",
        "Times a browser was too slow for a shared subscription and went on with its own reading.",
    ),
    (
        "histogram",
        "felix_gateway_publish_seconds",
        "From sending a publish to the broker to its answer.",
    ),
    (
        "histogram",
        "felix_gateway_relay_seconds",
        "From an event's arrival from the broker to its write to a browser's socket.",
    ),
];

/// Why a limit refused something, as the JSON form names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Limited {
    MessageSize,
    SessionRate,
    AliasRate,
    PrincipalRate,
    PrincipalSessions,
    IpSessions,
}

impl Limited {
    const ALL: [Self; 6] = [
        Self::MessageSize,
        Self::SessionRate,
        Self::AliasRate,
        Self::PrincipalRate,
        Self::PrincipalSessions,
        Self::IpSessions,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::MessageSize => "message_size",
            Self::SessionRate => "session_rate",
            Self::AliasRate => "alias_rate",
            Self::PrincipalRate => "principal_rate",
            Self::PrincipalSessions => "principal_sessions",
            Self::IpSessions => "ip_sessions",
        }
    }
}

/// The counts and times of one gateway.
#[derive(Debug)]
pub(crate) struct Metrics {
    export: Export,
    pub(crate) connections: Counter,
    pub(crate) connections_refused: Counter,
    pub(crate) sessions: Gauge,
    pub(crate) joins: Counter,
    pub(crate) joins_refused: Counter,
    pub(crate) peers_dead: Counter,
    pub(crate) messages: Counter,
    pub(crate) messages_bad: Counter,
    pub(crate) writes: Counter,
    pub(crate) writes_limited: Counter,
    pub(crate) events: Counter,
    pub(crate) event_bytes: Counter,
    pub(crate) feeds: Gauge,
    pub(crate) browsers_slow: Counter,
    publish_seconds: Histogram,
    relay_seconds: Histogram,
    measured: Mutex<Measured>,
}

/// What only the JSON form has.
#[derive(Debug, Default)]
struct Measured {
    browser_rtt: Spread,
    publish_ack: BTreeMap<String, Spread>,
    event_relay: BTreeMap<String, Spread>,
    refused: BTreeMap<Limited, u64>,
}

/// Times in microseconds, to two figures, up to a minute. Made when the first one comes.
#[derive(Debug, Default)]
struct Spread(Option<Times<u32>>);

/// Longest time that is told apart, in microseconds.
const LONGEST_US: u64 = 60_000_000;

impl Spread {
    fn record(&mut self, took: Duration) {
        let micros = u64::try_from(took.as_micros())
            .unwrap_or(u64::MAX)
            .clamp(1, LONGEST_US);
        if self.0.is_none() {
            self.0 = Times::new_with_bounds(1, LONGEST_US, 2).ok();
        }
        if let Some(times) = &mut self.0 {
            times.saturating_record(micros);
        }
    }
}

impl Serialize for Spread {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let at = |quantile| {
            self.0
                .as_ref()
                .map_or(0, |times| times.value_at_quantile(quantile))
        };
        json!({
            "count": self.0.as_ref().map_or(0, Times::len),
            "p50_us": at(0.5),
            "p90_us": at(0.9),
            "p99_us": at(0.99),
            "max_us": self.0.as_ref().map_or(0, Times::max),
        })
        .serialize(serializer)
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let export = Export::new(CATALOGUE);
        let (counter, gauge) = (|name| export.counter(name), |name| export.gauge(name));
        Self {
            connections: counter("felix_gateway_connections_total"),
            connections_refused: counter("felix_gateway_connections_refused_total"),
            sessions: gauge("felix_gateway_sessions"),
            joins: counter("felix_gateway_joins_total"),
            joins_refused: counter("felix_gateway_joins_refused_total"),
            peers_dead: counter("felix_gateway_peers_dead_total"),
            messages: counter("felix_gateway_messages_total"),
            messages_bad: counter("felix_gateway_messages_bad_total"),
            writes: counter("felix_gateway_writes_total"),
            writes_limited: counter("felix_gateway_writes_limited_total"),
            events: counter("felix_gateway_events_total"),
            event_bytes: counter("felix_gateway_event_bytes_total"),
            feeds: gauge("felix_gateway_feeds"),
            browsers_slow: counter("felix_gateway_browsers_slow_total"),
            publish_seconds: export.histogram("felix_gateway_publish_seconds"),
            relay_seconds: export.histogram("felix_gateway_relay_seconds"),
            measured: Mutex::default(),
            export,
        }
    }

    /// A browser answered a ping.
    pub(crate) fn browser_rtt(&self, took: Duration) {
        self.measured().browser_rtt.record(took);
    }

    /// A broker answered a publish to this alias.
    pub(crate) fn publish_ack(&self, alias: &str, took: Duration) {
        self.publish_seconds.record(took.as_secs_f64());
        record_for(&mut self.measured().publish_ack, alias, took);
    }

    /// An event of this alias went out to a browser.
    pub(crate) fn event_relay(&self, alias: &str, took: Duration) {
        self.relay_seconds.record(took.as_secs_f64());
        record_for(&mut self.measured().event_relay, alias, took);
    }

    /// A limit refused something.
    pub(crate) fn limited(&self, why: Limited) {
        *self.measured().refused.entry(why).or_default() += 1;
    }

    /// Moves samples out of the histograms' buffers; called once a second so that memory stays bounded.
    pub(crate) fn upkeep(&self) {
        self.export.upkeep();
    }

    fn measured(&self) -> std::sync::MutexGuard<'_, Measured> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn json(&self) -> Value {
        let measured = self.measured();
        let mut all = serde_json::Map::new();
        all.insert("browser_rtt".into(), json!(measured.browser_rtt));
        for (alias, spread) in &measured.publish_ack {
            all.insert(format!("felix_publish_ack.{alias}"), json!(spread));
        }
        for (alias, spread) in &measured.event_relay {
            all.insert(format!("event_relay.{alias}"), json!(spread));
        }
        let refused: BTreeMap<_, _> = Limited::ALL
            .into_iter()
            .map(|why| (why.name(), measured.refused.get(&why).copied().unwrap_or(0)))
            .collect();
        all.insert("limits_refused".into(), json!(refused));
        Value::Object(all)
    }
}

/// Aliases come from the scope file, so there are not many.
fn record_for(spreads: &mut BTreeMap<String, Spread>, alias: &str, took: Duration) {
    match spreads.get_mut(alias) {
        Some(spread) => spread.record(took),
        None => spreads.entry(alias.to_owned()).or_default().record(took),
    }
}

pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/metrics", get(as_json))
        .route("/metrics/prometheus", get(as_text))
}

async fn as_json(State(app): State<App>) -> Response {
    Json(app.metrics.json()).into_response()
}

async fn as_text(State(app): State<App>) -> Response {
    let kind = [("content-type", "text/plain; version=0.0.4")];
    (kind, app.metrics.export.render()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_form_has_the_fields_of_the_field() {
        let metrics = Metrics::new();
        metrics.publish_ack("edits", Duration::from_micros(700));
        metrics.limited(Limited::AliasRate);
        let json = metrics.json();
        assert_eq!(json["felix_publish_ack.edits"]["count"], 1);
        assert_eq!(json["browser_rtt"]["p99_us"], 0);
        assert_eq!(json["limits_refused"]["alias_rate"], 1);
        assert_eq!(json["limits_refused"].as_object().unwrap().len(), 6);
    }

    #[test]
    fn every_metric_of_the_catalogue_is_exported_under_its_name() {
        let metrics = Metrics::new();
        metrics.publish_ack("x", Duration::from_millis(1));
        metrics.event_relay("x", Duration::from_millis(1));
        metrics.sessions.set(0.0);
        metrics.feeds.set(0.0);
        let text = metrics.export.render();
        for (_, name, _) in CATALOGUE {
            assert!(text.contains(name), "{name}");
        }
    }
}
