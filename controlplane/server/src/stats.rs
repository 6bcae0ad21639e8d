//! What is counted, and its form for Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Counters of one control plane. Labels come from fixed sets only.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    in_flight: AtomicU64,
    auth_rejected: Mutex<BTreeMap<&'static str, u64>>,
    bootstrap: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    tokens_minted: AtomicU64,
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

    pub(crate) fn token_minted(&self) {
        self.tokens_minted.fetch_add(1, Ordering::Relaxed);
    }

    /// Everything in Prometheus' text form.
    pub(crate) fn to_prometheus(&self, ready: bool, revision: u64) -> String {
        let mut out = String::new();
        head(
            &mut out,
            "felix_ready_state",
            "gauge",
            "1 while callers should be sent here.",
        );
        line(&mut out, "felix_ready_state", "", u64::from(ready));
        head(
            &mut out,
            "felix_controlplane_revision",
            "gauge",
            "Events in the ledger.",
        );
        line(&mut out, "felix_controlplane_revision", "", revision);
        head(
            &mut out,
            "felix_inflight_requests",
            "gauge",
            "Requests being answered.",
        );
        let in_flight = self.in_flight.load(Ordering::Relaxed);
        line(&mut out, "felix_inflight_requests", "", in_flight);
        let minted = self.tokens_minted.load(Ordering::Relaxed);
        head(
            &mut out,
            "felix_controlplane_tokens_minted_total",
            "counter",
            "Tokens signed.",
        );
        line(
            &mut out,
            "felix_controlplane_tokens_minted_total",
            "",
            minted,
        );
        let name = "felix_controlplane_requests_total";
        head(
            &mut out,
            name,
            "counter",
            "Requests answered, by listener and status.",
        );
        for ((listener, status), count) in &*guard(&self.requests) {
            let labels = format!("{{listener=\"{listener}\",status=\"{status}\"}}");
            line(&mut out, name, &labels, *count);
        }
        let name = "felix_controlplane_auth_rejected_total";
        head(&mut out, name, "counter", "Tokens refused, by reason.");
        for (reason, count) in &*guard(&self.auth_rejected) {
            line(&mut out, name, &format!("{{reason=\"{reason}\"}}"), *count);
        }
        let name = "felix_bootstrap_attempts_total";
        head(
            &mut out,
            name,
            "counter",
            "Calls of the bootstrap listener.",
        );
        for ((outcome, reason), count) in &*guard(&self.bootstrap) {
            let labels = format!("{{outcome=\"{outcome}\",reason=\"{reason}\"}}");
            line(&mut out, name, &labels, *count);
        }
        out
    }
}

fn guard<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add<K: Ord>(counts: &Mutex<BTreeMap<K, u64>>, key: K) {
    *guard(counts).entry(key).or_default() += 1;
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(out: &mut String, name: &str, labels: &str, value: u64) {
    let _ = writeln!(out, "{name}{labels} {value}");
}
