//! Metrics in the text form that Prometheus reads.

use metrics::{Counter, Gauge, Histogram, Key, Level, Metadata, Recorder, SharedString, Unit};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

const METADATA: Metadata<'static> = Metadata::new("felix", Level::INFO, None);

/// Bucket bounds of latencies, in seconds.
const LATENCY_BUCKETS: &[f64] = &[
    0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0,
];

/// A process's metrics. Each has its own recorder, so that several processes can live in one.
pub struct Export {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
}

impl std::fmt::Debug for Export {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Export").finish_non_exhaustive()
    }
}

impl Export {
    /// Describes every metric of a catalogue of kind (`counter`, `gauge`, `histogram`), name and help.
    #[must_use]
    pub fn new(catalogue: &[(&str, &'static str, &'static str)]) -> Self {
        // The only error is an empty bucket list.
        let builder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), LATENCY_BUCKETS)
            .unwrap_or_else(|_| PrometheusBuilder::new());
        let recorder = builder.build_recorder();
        for (kind, name, help) in catalogue {
            let (name, help) = ((*name).into(), SharedString::const_str(help));
            match *kind {
                "counter" => recorder.describe_counter(name, None, help),
                "gauge" => recorder.describe_gauge(name, None, help),
                _ => recorder.describe_histogram(name, Some(Unit::Seconds), help),
            }
        }
        Self {
            handle: recorder.handle(),
            recorder,
        }
    }

    /// The counter of this name, at zero. A counter that was never touched would not be shown; alerts need the zero.
    pub fn counter(&self, name: &'static str) -> Counter {
        let key = Key::from_static_name(name);
        let counter = self.recorder.register_counter(&key, &METADATA);
        counter.increment(0);
        counter
    }

    /// The gauge of this name.
    pub fn gauge(&self, name: &'static str) -> Gauge {
        let key = Key::from_static_name(name);
        self.recorder.register_gauge(&key, &METADATA)
    }

    /// The histogram of this name.
    pub fn histogram(&self, name: &'static str) -> Histogram {
        let key = Key::from_static_name(name);
        self.recorder.register_histogram(&key, &METADATA)
    }

    /// All of them as text.
    #[must_use]
    pub fn render(&self) -> String {
        self.handle.render()
    }

    /// Moves samples out of the histograms' buffers; called once a second so that memory stays bounded.
    pub fn upkeep(&self) {
        self.handle.run_upkeep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_shown_before_it_counted_anything() {
        let export = Export::new(&[("counter", "felix_x_total", "Things.")]);
        let counter = export.counter("felix_x_total");
        assert!(export.render().contains("felix_x_total 0"));
        counter.increment(2);
        assert!(export.render().contains("felix_x_total 2"));
    }
}
