//! What a Kafka listener counts. Labels are bounded: none.

use felix_controlplane_client::CredentialEvent;
use felix_process::Export;
use metrics::{Counter, Gauge, Histogram};

/// Every metric a Kafka listener exports: kind, name, help. `docs/OPERATING.md` is compared with it.
pub const CATALOGUE: &[(&str, &str, &str)] = &[
    (
        "counter",
        "felix_kafka_connections_total",
        "Client connections accepted.",
    ),
    (
        "gauge",
        "felix_kafka_connections",
        "Client connections open now.",
    ),
    (
        "counter",
        "felix_kafka_connections_refused_total",
        "Connections closed at once because a limit was reached.",
    ),
    (
        "counter",
        "felix_kafka_handshake_failures_total",
        "TLS handshakes that failed, and TLS greetings on a plain port.",
    ),
    (
        "counter",
        "felix_kafka_logins_refused_total",
        "Logins whose credentials were refused.",
    ),
    (
        "counter",
        "felix_kafka_sessions_expired_total",
        "Connections closed because their login ran out and was not renewed, or was revoked.",
    ),
    (
        "counter",
        "felix_kafka_node_credential_renewals_total",
        "Renewals of this listener's credential for the control plane.",
    ),
    (
        "counter",
        "felix_kafka_node_credential_failures_total",
        "Renewals of this listener's credential that failed or were refused. What is known of the catalogue is served on.",
    ),
    ("counter", "felix_kafka_requests_total", "Requests heard."),
    (
        "counter",
        "felix_kafka_requests_malformed_total",
        "Requests whose bytes are not what the protocol says; the connection is closed.",
    ),
    (
        "counter",
        "felix_kafka_requests_unserved_total",
        "Requests of a kind or version that is not served.",
    ),
    (
        "counter",
        "felix_kafka_answers_unencodable_total",
        "Answers that could not be written in the version asked for. A defect: each is logged.",
    ),
    (
        "counter",
        "felix_kafka_requests_throttled_total",
        "Requests answered with a time to wait because a quota is used up.",
    ),
    (
        "counter",
        "felix_kafka_produced_batches_total",
        "Record batches accepted from clients.",
    ),
    (
        "counter",
        "felix_kafka_produced_bytes_total",
        "Bytes of record batches accepted from clients.",
    ),
    (
        "counter",
        "felix_kafka_produce_refused_total",
        "Record batches that were refused, for any reason.",
    ),
    (
        "counter",
        "felix_kafka_fetched_bytes_total",
        "Bytes of record batches handed to clients.",
    ),
    (
        "gauge",
        "felix_kafka_fetch_sessions",
        "Fetch sessions remembered now.",
    ),
    (
        "histogram",
        "felix_kafka_request_seconds",
        "From hearing a request to its answer being ready, those that wait for records or members included.",
    ),
    (
        "gauge",
        "felix_kafka_inflight_bytes",
        "Bytes of requests read and not answered yet.",
    ),
    (
        "gauge",
        "felix_kafka_ready_state",
        "1 while the listener takes new clients.",
    ),
];

/// The handles of one listener. Each has its own recorder, so that several can live in one process.
pub(crate) struct Metrics {
    export: Export,
    pub(crate) connections_total: Counter,
    pub(crate) connections: Gauge,
    pub(crate) connections_refused: Counter,
    pub(crate) handshake_failures: Counter,
    pub(crate) logins_refused: Counter,
    pub(crate) sessions_expired: Counter,
    pub(crate) credential_renewals: Counter,
    pub(crate) credential_failures: Counter,
    pub(crate) requests: Counter,
    pub(crate) malformed: Counter,
    pub(crate) unserved: Counter,
    pub(crate) unencodable: Counter,
    pub(crate) throttled: Counter,
    pub(crate) produced_batches: Counter,
    pub(crate) produced_bytes: Counter,
    pub(crate) produce_refused: Counter,
    pub(crate) fetched_bytes: Counter,
    pub(crate) fetch_sessions: Gauge,
    pub(crate) request_seconds: Histogram,
    pub(crate) inflight_bytes: Gauge,
    pub(crate) ready: Gauge,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let export = Export::new(CATALOGUE);
        let counter = |name| export.counter(name);
        let gauge = |name| export.gauge(name);
        Self {
            connections_total: counter("felix_kafka_connections_total"),
            connections: gauge("felix_kafka_connections"),
            connections_refused: counter("felix_kafka_connections_refused_total"),
            handshake_failures: counter("felix_kafka_handshake_failures_total"),
            logins_refused: counter("felix_kafka_logins_refused_total"),
            sessions_expired: counter("felix_kafka_sessions_expired_total"),
            credential_renewals: counter("felix_kafka_node_credential_renewals_total"),
            credential_failures: counter("felix_kafka_node_credential_failures_total"),
            requests: counter("felix_kafka_requests_total"),
            malformed: counter("felix_kafka_requests_malformed_total"),
            unserved: counter("felix_kafka_requests_unserved_total"),
            unencodable: counter("felix_kafka_answers_unencodable_total"),
            throttled: counter("felix_kafka_requests_throttled_total"),
            produced_batches: counter("felix_kafka_produced_batches_total"),
            produced_bytes: counter("felix_kafka_produced_bytes_total"),
            produce_refused: counter("felix_kafka_produce_refused_total"),
            fetched_bytes: counter("felix_kafka_fetched_bytes_total"),
            fetch_sessions: gauge("felix_kafka_fetch_sessions"),
            request_seconds: export.histogram("felix_kafka_request_seconds"),
            inflight_bytes: gauge("felix_kafka_inflight_bytes"),
            ready: gauge("felix_kafka_ready_state"),
            export,
        }
    }

    /// Counts what became of a renewal of the listener's credential.
    pub(crate) fn credential(&self, event: CredentialEvent) {
        match event {
            CredentialEvent::Renewed => self.credential_renewals.increment(1),
            CredentialEvent::Failed => self.credential_failures.increment(1),
        }
    }

    /// The text of `/metrics`.
    pub(crate) fn render(&self) -> String {
        self.export.render()
    }

    /// Moves samples out of the histograms' buffers; called once a second so that memory stays bounded.
    pub(crate) fn upkeep(&self) {
        self.export.upkeep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_of_the_catalogue_is_exported_under_its_name() {
        let metrics = Metrics::new();
        metrics.requests.increment(1);
        let text = metrics.render();
        assert!(text.contains("felix_kafka_requests_total 1"), "{text}");
        for (kind, name, _) in CATALOGUE {
            assert!(*kind == "histogram" || text.contains(name), "{name}");
        }
    }
}
