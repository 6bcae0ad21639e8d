//! What is counted, and its form for Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::ledger::{Measure, Standing};

/// Counters of one control plane. Labels come from fixed sets only.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    in_flight: AtomicU64,
    auth_rejected: Mutex<BTreeMap<&'static str, u64>>,
    bootstrap: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    connections_refused: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    tokens_minted: AtomicU64,
    tokens_delegated: AtomicU64,
}

/// Counts one request as under way until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight<'a>(&'a AtomicU64);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Stats {
    pub(crate) fn begin(&self) -> InFlight<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(&self.in_flight)
    }

    pub(crate) fn answered(&self, listener: &'static str, status: u16) {
        add(&self.requests, (listener, status));
    }

    pub(crate) fn auth_rejected(&self, reason: &'static str) {
        add(&self.auth_rejected, reason);
    }

    pub(crate) fn bootstrap(&self, outcome: &'static str, reason: &'static str) {
        add(&self.bootstrap, (outcome, reason));
    }

    pub(crate) fn connection_refused(&self, listener: &'static str, reason: &'static str) {
        add(&self.connections_refused, (listener, reason));
    }

    pub(crate) fn token_minted(&self) {
        self.tokens_minted.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn token_delegated(&self) {
        self.tokens_delegated.fetch_add(1, Ordering::Relaxed);
    }

    /// Everything in Prometheus' text form.
    pub(crate) fn to_prometheus(&self, ready: bool, revision: u64, ledger: &Ledger) -> String {
        let in_flight = self.in_flight.load(Ordering::Relaxed);
        let minted = self.tokens_minted.load(Ordering::Relaxed);
        let mut out = Page(String::new());
        out.one(
            "gauge",
            "felix_ready_state",
            "1 while callers should be sent here.",
            ready.into(),
        );
        out.one(
            "gauge",
            "felix_controlplane_revision",
            "Events in the ledger.",
            revision,
        );
        out.one(
            "gauge",
            "felix_inflight_requests",
            "Requests being answered.",
            in_flight,
        );
        out.one(
            "counter",
            "felix_controlplane_tokens_minted_total",
            "Tokens signed.",
            minted,
        );
        out.one(
            "counter",
            "felix_delegated_tokens_issued_total",
            "Tokens signed with which somebody acts for somebody else.",
            self.tokens_delegated.load(Ordering::Relaxed),
        );
        let kind = out.many(
            "gauge",
            "felix_controlplane_ledger_ready",
            "1 while the ledger takes writes, by its kind.",
        );
        let of_kind = format!("kind=\"{}\"", ledger.standing.kind);
        out.line(kind, &of_kind, ledger.standing.ready.into());
        out.one(
            "gauge",
            "felix_controlplane_ledger_leads",
            "1 while this process decides which write comes first.",
            ledger.standing.leads.into(),
        );
        for measure in &ledger.measures {
            out.one(measure.kind, measure.name, measure.help, measure.value);
        }
        let requests = out.many(
            "counter",
            "felix_controlplane_requests_total",
            "Requests answered, by listener and status.",
        );
        for ((listener, status), count) in &*guard(&self.requests) {
            let labels = format!("listener=\"{listener}\",status=\"{status}\"");
            out.line(requests, &labels, *count);
        }
        let rejected = out.many(
            "counter",
            "felix_controlplane_auth_rejected_total",
            "Tokens refused, by reason.",
        );
        for (reason, count) in &*guard(&self.auth_rejected) {
            out.line(rejected, &format!("reason=\"{reason}\""), *count);
        }
        let bootstrap = out.many(
            "counter",
            "felix_bootstrap_attempts_total",
            "Calls of the bootstrap listener, by outcome and reason.",
        );
        for ((outcome, reason), count) in &*guard(&self.bootstrap) {
            let labels = format!("outcome=\"{outcome}\",reason=\"{reason}\"");
            out.line(bootstrap, &labels, *count);
        }
        let refused = out.many(
            "counter",
            "felix_controlplane_connections_refused_total",
            "Connections turned away or closed for taking too long, by listener and reason.",
        );
        for ((listener, reason), count) in &*guard(&self.connections_refused) {
            let labels = format!("listener=\"{listener}\",reason=\"{reason}\"");
            out.line(refused, &labels, *count);
        }
        out.0
    }
}

/// What the ledger says of itself.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) standing: Standing,
    pub(crate) measures: Vec<Measure>,
}

/// A text in Prometheus' form.
struct Page(String);

// Writing to a string cannot fail.
impl Page {
    /// A metric without labels.
    fn one(&mut self, kind: &str, name: &'static str, help: &str, value: u64) {
        self.many(kind, name, help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    /// The head of a metric whose lines follow.
    fn many(&mut self, kind: &str, name: &'static str, help: &str) -> &'static str {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        name
    }

    fn line(&mut self, name: &str, labels: &str, value: u64) {
        let _ = writeln!(self.0, "{name}{{{labels}}} {value}");
    }
}

fn guard<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add<K: Ord>(counts: &Mutex<BTreeMap<K, u64>>, key: K) {
    *guard(counts).entry(key).or_default() += 1;
}
