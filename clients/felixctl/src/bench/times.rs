//! Latencies: recorded in nanoseconds, shown in microseconds at the percentiles that matter.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longer than this is recorded as this: a minute of silence is an outage, not a latency.
const LONGEST: Duration = Duration::from_secs(60);
/// Significant digits kept: values are right to one part in a thousand.
const DIGITS: u8 = 3;

/// A growing set of latencies. Recording allocates nothing.
#[derive(Clone, Debug)]
pub struct Times {
    histogram: Histogram<u64>,
}

/// Percentiles in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// How many were measured.
    pub count: u64,
    /// Smallest.
    pub min_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90 of 100 are not above.
    pub p90_us: f64,
    /// 99 of 100 are not above.
    pub p99_us: f64,
    /// 999 of 1000 are not above.
    pub p999_us: f64,
    /// Largest.
    pub max_us: f64,
}

impl Default for Times {
    fn default() -> Self {
        Self::new()
    }
}

impl Times {
    /// An empty set.
    #[must_use]
    pub fn new() -> Self {
        let longest = u64::try_from(LONGEST.as_nanos()).unwrap_or(u64::MAX);
        #[expect(
            clippy::expect_used,
            reason = "the bounds are constants: 1 < longest, 3 <= 5 digits"
        )]
        let histogram = Histogram::new_with_bounds(1, longest, DIGITS).expect("good bounds");
        Self { histogram }
    }

    /// Adds one latency.
    pub fn record(&mut self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(nanos.max(1));
    }

    /// Adds all of another set.
    pub fn merge(&mut self, other: &Self) {
        // Both have the same bounds, so nothing can be out of them.
        let _ = self.histogram.add(&other.histogram);
    }

    /// The percentiles; all zero when nothing was measured.
    #[must_use]
    pub fn percentiles(&self) -> Percentiles {
        if self.histogram.is_empty() {
            return Percentiles::default();
        }
        let at = |quantile: f64| micros(self.histogram.value_at_quantile(quantile));
        Percentiles {
            count: self.histogram.len(),
            min_us: micros(self.histogram.min()),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: micros(self.histogram.max()),
        }
    }
}

/// Nanoseconds as microseconds with one decimal.
fn micros(nanos: u64) -> f64 {
    (nanos as f64 / 100.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_a_part_in_a_thousand() {
        let mut times = Times::new();
        for us in 1..=1_000 {
            times.record(Duration::from_micros(us));
        }
        let found = times.percentiles();
        assert_eq!(found.count, 1_000);
        assert!((found.p50_us - 500.0).abs() <= 1.0, "{found:?}");
        assert!((found.p99_us - 990.0).abs() <= 2.0, "{found:?}");
        assert!((found.max_us - 1_000.0).abs() <= 1.0, "{found:?}");
    }

    #[test]
    fn nothing_measured_is_zero_and_an_outage_is_a_minute() {
        let mut times = Times::new();
        assert_eq!(times.percentiles(), Percentiles::default());
        times.record(Duration::from_secs(3_600));
        assert!(times.percentiles().max_us >= 59_000_000.0);
    }

    #[test]
    fn merged_sets_count_together() {
        let (mut one, mut other) = (Times::new(), Times::new());
        one.record(Duration::from_micros(1));
        other.record(Duration::from_micros(9));
        one.merge(&other);
        assert_eq!(one.percentiles().count, 2);
    }
}
