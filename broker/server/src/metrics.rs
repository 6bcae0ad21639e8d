//! What a broker counts. The handles live here; the hot path holds clones and pays one atomic add.
//!
//! Labels are bounded: no stream, shard or node labels. Details are in listings.

use felix_controlplane_client::CredentialEvent;
use felix_process::Export;
use metrics::{Counter, Gauge, Histogram};

/// Every metric a broker exports: kind, name, help. `docs/OPERATING.md` is compared with it.
pub const CATALOGUE: &[(&str, &str, &str)] = &[
    (
        "counter",
        "felix_broker_connections_total",
        "Client connections that finished their handshake.",
    ),
    (
        "gauge",
        "felix_broker_connections",
        "Client connections open now.",
    ),
    (
        "counter",
        "felix_quic_connections_refused_total",
        "Connections refused before or in the handshake because a limit was reached.",
    ),
    (
        "counter",
        "felix_quic_handshake_failures_total",
        "Handshakes that failed.",
    ),
    (
        "counter",
        "felix_quic_auth_timeout_total",
        "Connections closed because no stream authenticated in time.",
    ),
    (
        "gauge",
        "felix_broker_path_mtu_bytes",
        "Smallest datagram size in use over the open connections, 0 without one. 1200 for long means that a path loses larger ones, or that ordinary loss is taken for that.",
    ),
    (
        "counter",
        "felix_broker_path_black_holes_total",
        "Times that a connection fell back to the smallest datagrams because larger ones were lost in a row.",
    ),
    (
        "counter",
        "felix_broker_auth_refused_total",
        "Streams whose token was refused.",
    ),
    (
        "counter",
        "felix_broker_token_renewals_total",
        "Tokens that took the place of one that ran out, on streams that stayed open.",
    ),
    (
        "counter",
        "felix_broker_tokens_expired_total",
        "Tokens that ran out while a connection that had used them was open.",
    ),
    (
        "counter",
        "felix_broker_tokens_revoked_total",
        "Tokens whose streams were ended because what they rest on was revoked.",
    ),
    (
        "counter",
        "felix_broker_published_messages_total",
        "Messages accepted into a log or a ring.",
    ),
    (
        "counter",
        "felix_broker_published_bytes_total",
        "Payload bytes accepted into a log or a ring.",
    ),
    (
        "counter",
        "felix_broker_publish_refused_total",
        "Publishes that were refused, for any reason.",
    ),
    (
        "counter",
        "felix_tenant_publish_throttled_total",
        "Publishes refused because a tenant was over its rate.",
    ),
    (
        "counter",
        "felix_broker_node_credential_renewals_total",
        "Renewals of this node's credential for the control plane.",
    ),
    (
        "counter",
        "felix_broker_node_credential_failures_total",
        "Renewals of this node's credential that failed or were refused. What is known of the catalogue is served on.",
    ),
    (
        "counter",
        "felix_quota_refused_total",
        "Writes, subscriptions, watches and connections refused because a quota of the catalogue was used up.",
    ),
    (
        "counter",
        "felix_tenant_publish_queue_full_total",
        "Publishes refused because a tenant's queue was full.",
    ),
    (
        "counter",
        "felix_broker_acked_publishes_dropped_total",
        "Publishes acknowledged on acceptance whose write failed later.",
    ),
    (
        "histogram",
        "felix_broker_publish_seconds",
        "From reading an acknowledged publish to handing its answer to the transport.",
    ),
    (
        "gauge",
        "felix_broker_publish_inflight_bytes",
        "Bytes accepted and not yet answered.",
    ),
    (
        "gauge",
        "felix_broker_publish_queued",
        "Publishes waiting for their tenant's turn.",
    ),
    (
        "gauge",
        "felix_broker_subscriptions",
        "Subscriptions open now.",
    ),
    (
        "counter",
        "felix_broker_delivered_messages_total",
        "Messages handed to subscribers.",
    ),
    (
        "counter",
        "felix_broker_delivered_bytes_total",
        "Frame bytes handed to subscribers.",
    ),
    (
        "counter",
        "felix_sub_queue_dropped_total",
        "Messages of in-memory streams that a slow subscriber lost.",
    ),
    ("gauge", "felix_broker_shards_open", "Shards open now."),
    (
        "gauge",
        "felix_broker_shards_corrupt",
        "Shards that refused to open because their log is damaged.",
    ),
    (
        "gauge",
        "felix_broker_shards_orphaned",
        "Shard directories of streams that the catalogue does not know.",
    ),
    (
        "gauge",
        "felix_cache_shards_open",
        "Shards of caches open now.",
    ),
    (
        "gauge",
        "felix_cache_keys",
        "Keys of the caches open now, expired ones included until they are deleted.",
    ),
    (
        "gauge",
        "felix_cache_counters",
        "Counters of the caches open now.",
    ),
    (
        "gauge",
        "felix_cache_value_bytes",
        "Memory taken by values of caches.",
    ),
    ("gauge", "felix_cache_watches", "Watches open now."),
    (
        "counter",
        "felix_cache_hits_total",
        "Gets that found a live entry.",
    ),
    (
        "counter",
        "felix_cache_misses_total",
        "Gets that found none.",
    ),
    (
        "counter",
        "felix_cache_value_reads_total",
        "Hits whose value had to be read from the log.",
    ),
    (
        "counter",
        "felix_cache_expired_total",
        "Entries deleted because they expired.",
    ),
    (
        "counter",
        "felix_cache_evicted_total",
        "Entries evicted from caches in memory.",
    ),
    (
        "counter",
        "felix_cache_compactions_total",
        "Compactions of logs of caches.",
    ),
    (
        "counter",
        "felix_cache_reclaimed_bytes_total",
        "Bytes that compaction took off the logs of caches.",
    ),
    (
        "counter",
        "felix_storage_write_failures_total",
        "Writes or syncs that failed.",
    ),
    (
        "counter",
        "felix_storage_full_total",
        "Writes refused because the disk is full or nearly full.",
    ),
    (
        "counter",
        "felix_compaction_runs_total",
        "Compactions of a log that came to their end or were told to stop.",
    ),
    (
        "counter",
        "felix_compaction_failures_total",
        "Compactions of a log that failed; what was done before stays done.",
    ),
    (
        "counter",
        "felix_compaction_bytes_in_total",
        "Bytes of segments that compaction replaced.",
    ),
    (
        "counter",
        "felix_compaction_bytes_out_total",
        "Bytes of the segments that took their place.",
    ),
    (
        "gauge",
        "felix_storage_free_bytes",
        "Free bytes on the filesystem of the data directory.",
    ),
    (
        "gauge",
        "felix_broker_catalogue_revision",
        "Revision of the catalogue this broker follows.",
    ),
    (
        "gauge",
        "felix_groups",
        "Consumer groups of the open shards; a group counts once for each shard.",
    ),
    (
        "gauge",
        "felix_group_lag_records",
        "Records not finished, summed over all consumer groups.",
    ),
    (
        "gauge",
        "felix_group_in_flight_records",
        "Records out on a claim, summed over all consumer groups.",
    ),
    (
        "gauge",
        "felix_group_owed_records",
        "Records waiting to be handed out again, summed over all consumer groups.",
    ),
    (
        "gauge",
        "felix_group_dead_letters",
        "Records set aside, summed over all consumer groups.",
    ),
    (
        "gauge",
        "felix_group_trimmed_records",
        "Records that were owed to a consumer group when retention removed them, since their shard was opened.",
    ),
    (
        "gauge",
        "felix_scheduled_records",
        "Records waiting for the time they are scheduled for.",
    ),
    (
        "gauge",
        "felix_ready_state",
        "1 while the broker takes new clients.",
    ),
];

/// The handles of one broker. Each broker has its own recorder, so that several can live in one process.
pub(crate) struct Metrics {
    export: Export,
    pub(crate) connections_total: Counter,
    pub(crate) connections: Gauge,
    pub(crate) connections_refused: Counter,
    pub(crate) handshake_failures: Counter,
    pub(crate) auth_timeouts: Counter,
    pub(crate) path_mtu: Gauge,
    pub(crate) path_black_holes: Counter,
    pub(crate) auth_refused: Counter,
    pub(crate) renewals: Counter,
    pub(crate) credential_renewals: Counter,
    pub(crate) credential_failures: Counter,
    pub(crate) quota_refused: Counter,
    pub(crate) standings_expired: Counter,
    pub(crate) standings_revoked: Counter,
    pub(crate) published_messages: Counter,
    pub(crate) published_bytes: Counter,
    pub(crate) publish_refused: Counter,
    pub(crate) throttled: Counter,
    pub(crate) queue_full: Counter,
    pub(crate) acked_dropped: Counter,
    pub(crate) publish_seconds: Histogram,
    pub(crate) inflight_bytes: Gauge,
    pub(crate) queued: Gauge,
    pub(crate) subscriptions: Gauge,
    pub(crate) delivered_messages: Counter,
    pub(crate) delivered_bytes: Counter,
    pub(crate) dropped: Counter,
    pub(crate) shards_open: Gauge,
    pub(crate) shards_corrupt: Gauge,
    pub(crate) shards_orphaned: Gauge,
    pub(crate) cache_shards_open: Gauge,
    pub(crate) cache_keys: Gauge,
    pub(crate) cache_counters: Gauge,
    pub(crate) cache_value_bytes: Gauge,
    pub(crate) cache_watches: Gauge,
    pub(crate) cache_hits: Counter,
    pub(crate) cache_misses: Counter,
    pub(crate) cache_reads: Counter,
    pub(crate) cache_expired: Counter,
    pub(crate) cache_evicted: Counter,
    pub(crate) cache_compactions: Counter,
    pub(crate) cache_reclaimed_bytes: Counter,
    pub(crate) write_failures: Counter,
    pub(crate) storage_full: Counter,
    pub(crate) compactions: Counter,
    pub(crate) compaction_failures: Counter,
    pub(crate) compaction_in: Counter,
    pub(crate) compaction_out: Counter,
    pub(crate) free_bytes: Gauge,
    pub(crate) catalogue_revision: Gauge,
    pub(crate) groups: Gauge,
    pub(crate) group_lag: Gauge,
    pub(crate) group_in_flight: Gauge,
    pub(crate) group_owed: Gauge,
    pub(crate) group_dead_letters: Gauge,
    pub(crate) group_trimmed: Gauge,
    pub(crate) scheduled: Gauge,
    pub(crate) ready: Gauge,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Counts what became of a renewal of the node's credential.
    pub(crate) fn credential(&self, event: CredentialEvent) {
        match event {
            CredentialEvent::Renewed => self.credential_renewals.increment(1),
            CredentialEvent::Failed => self.credential_failures.increment(1),
        }
    }

    pub(crate) fn new() -> Self {
        let export = Export::new(CATALOGUE);
        let counter = |name| export.counter(name);
        let gauge = |name| export.gauge(name);
        Self {
            connections_total: counter("felix_broker_connections_total"),
            connections: gauge("felix_broker_connections"),
            connections_refused: counter("felix_quic_connections_refused_total"),
            handshake_failures: counter("felix_quic_handshake_failures_total"),
            auth_timeouts: counter("felix_quic_auth_timeout_total"),
            path_mtu: gauge("felix_broker_path_mtu_bytes"),
            path_black_holes: counter("felix_broker_path_black_holes_total"),
            auth_refused: counter("felix_broker_auth_refused_total"),
            quota_refused: counter("felix_quota_refused_total"),
            credential_renewals: counter("felix_broker_node_credential_renewals_total"),
            credential_failures: counter("felix_broker_node_credential_failures_total"),
            renewals: counter("felix_broker_token_renewals_total"),
            standings_expired: counter("felix_broker_tokens_expired_total"),
            standings_revoked: counter("felix_broker_tokens_revoked_total"),
            published_messages: counter("felix_broker_published_messages_total"),
            published_bytes: counter("felix_broker_published_bytes_total"),
            publish_refused: counter("felix_broker_publish_refused_total"),
            throttled: counter("felix_tenant_publish_throttled_total"),
            queue_full: counter("felix_tenant_publish_queue_full_total"),
            acked_dropped: counter("felix_broker_acked_publishes_dropped_total"),
            publish_seconds: export.histogram("felix_broker_publish_seconds"),
            inflight_bytes: gauge("felix_broker_publish_inflight_bytes"),
            queued: gauge("felix_broker_publish_queued"),
            subscriptions: gauge("felix_broker_subscriptions"),
            delivered_messages: counter("felix_broker_delivered_messages_total"),
            delivered_bytes: counter("felix_broker_delivered_bytes_total"),
            dropped: counter("felix_sub_queue_dropped_total"),
            shards_open: gauge("felix_broker_shards_open"),
            shards_corrupt: gauge("felix_broker_shards_corrupt"),
            shards_orphaned: gauge("felix_broker_shards_orphaned"),
            cache_shards_open: gauge("felix_cache_shards_open"),
            cache_keys: gauge("felix_cache_keys"),
            cache_counters: gauge("felix_cache_counters"),
            cache_value_bytes: gauge("felix_cache_value_bytes"),
            cache_watches: gauge("felix_cache_watches"),
            cache_hits: counter("felix_cache_hits_total"),
            cache_misses: counter("felix_cache_misses_total"),
            cache_reads: counter("felix_cache_value_reads_total"),
            cache_expired: counter("felix_cache_expired_total"),
            cache_evicted: counter("felix_cache_evicted_total"),
            cache_compactions: counter("felix_cache_compactions_total"),
            cache_reclaimed_bytes: counter("felix_cache_reclaimed_bytes_total"),
            write_failures: counter("felix_storage_write_failures_total"),
            storage_full: counter("felix_storage_full_total"),
            compactions: counter("felix_compaction_runs_total"),
            compaction_failures: counter("felix_compaction_failures_total"),
            compaction_in: counter("felix_compaction_bytes_in_total"),
            compaction_out: counter("felix_compaction_bytes_out_total"),
            free_bytes: gauge("felix_storage_free_bytes"),
            catalogue_revision: gauge("felix_broker_catalogue_revision"),
            groups: gauge("felix_groups"),
            group_lag: gauge("felix_group_lag_records"),
            group_in_flight: gauge("felix_group_in_flight_records"),
            group_owed: gauge("felix_group_owed_records"),
            group_dead_letters: gauge("felix_group_dead_letters"),
            group_trimmed: gauge("felix_group_trimmed_records"),
            scheduled: gauge("felix_scheduled_records"),
            ready: gauge("felix_ready_state"),
            export,
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
    fn every_metric_of_the_catalogue_is_rendered_and_no_other() {
        let metrics = Metrics::new();
        metrics.publish_seconds.record(0.001);
        for gauge in [
            &metrics.connections,
            &metrics.path_mtu,
            &metrics.inflight_bytes,
            &metrics.queued,
            &metrics.subscriptions,
            &metrics.shards_open,
            &metrics.shards_corrupt,
            &metrics.shards_orphaned,
            &metrics.cache_shards_open,
            &metrics.cache_keys,
            &metrics.cache_counters,
            &metrics.cache_value_bytes,
            &metrics.cache_watches,
            &metrics.free_bytes,
            &metrics.catalogue_revision,
            &metrics.groups,
            &metrics.group_lag,
            &metrics.group_in_flight,
            &metrics.group_owed,
            &metrics.group_dead_letters,
            &metrics.group_trimmed,
            &metrics.scheduled,
            &metrics.ready,
        ] {
            gauge.set(0.0);
        }
        let text = metrics.render();
        let shown: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
            .collect();
        let mut listed: Vec<&str> = CATALOGUE.iter().map(|(_, name, _)| *name).collect();
        let mut shown_sorted = shown;
        shown_sorted.sort_unstable();
        listed.sort_unstable();
        assert_eq!(shown_sorted, listed);
    }
}
