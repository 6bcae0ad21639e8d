//! What a subscriber that stops reading does to the others: nothing, and then it catches up.
//!
//! Two phases of the same load, one publisher that waits for each ack and one reader: first alone, then beside a second
//! reader that has subscribed and does not read. Printed are the times of both phases; what is checked is that the
//! stopped reader gets every record when it goes on.

use std::time::{Duration, Instant};

use felix_client::{Client, Subscription};

use crate::{Home, NodeFailed};

const STREAM: &str = "stopped-reader";
const PAYLOAD_BYTES: usize = 1024;

/// A reading that gets nothing for this long is stuck.
const STUCK: Duration = Duration::from_secs(60);

/// Why the comparison ended early.
#[derive(Debug, thiserror::Error)]
pub enum ComparisonFailed {
    /// The node.
    #[error(transparent)]
    Node(#[from] NodeFailed),
    /// A client was refused or lost.
    #[error("{0}")]
    Client(String),
    /// A reader missed or repeated something.
    #[error("offset {found:?} came where {expected} was due")]
    Offset {
        /// The offset that was due.
        expected: u64,
        /// What came.
        found: Option<u64>,
    },
}

/// Times of one phase, sorted.
#[derive(Debug, Default)]
pub struct Times {
    /// From a publish to its ack.
    pub acks: Vec<Duration>,
    /// From a publish to the reader.
    pub deliveries: Vec<Duration>,
}

/// Both phases, and how the stopped reader came back.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Without a stopped reader.
    pub alone: Times,
    /// Beside one.
    pub beside: Times,
    /// Records the stopped reader had waiting for it.
    pub behind: u64,
    /// How long it took to read them.
    pub caught_up_in: Duration,
}

fn client(error: impl std::fmt::Display) -> ComparisonFailed {
    ComparisonFailed::Client(error.to_string())
}

/// Runs both phases, each for `phase`.
///
/// # Errors
/// [`ComparisonFailed`].
pub async fn run(home: &Home, phase: Duration) -> Result<Comparison, ComparisonFailed> {
    let node = home.start().await?;
    home.ok(&["stream", "create", STREAM]).await?;
    let publisher = node.client().await?;
    let reader = node.client().await?;
    let mut reading = reader.subscribe(STREAM).await.map_err(client)?;
    let mut comparison = Comparison::default();
    let mut next = 0;
    comparison.alone = load(&publisher, &mut reading, &mut next, phase).await?;
    let slow = node.client().await?;
    let mut stopped = slow.subscribe(STREAM).await.map_err(client)?;
    let from = next;
    comparison.beside = load(&publisher, &mut reading, &mut next, phase).await?;
    comparison.behind = next - from;
    let began = Instant::now();
    for expected in from..next {
        expect(&mut stopped, expected).await?;
    }
    comparison.caught_up_in = began.elapsed();
    node.stop().await?;
    Ok(comparison)
}

/// Publishes one record at a time, each read by the reader before the next.
async fn load(
    publisher: &Client,
    reading: &mut Subscription,
    next: &mut u64,
    phase: Duration,
) -> Result<Times, ComparisonFailed> {
    let publisher = publisher.publisher(STREAM).map_err(client)?;
    let payload = vec![7; PAYLOAD_BYTES];
    let mut times = Times::default();
    let end = Instant::now() + phase;
    while Instant::now() < end {
        let began = Instant::now();
        let (published, delivered) = tokio::join!(
            async { (publisher.publish(payload.clone()).await, began.elapsed()) },
            async { (expect(reading, *next).await, began.elapsed()) },
        );
        published.0.map_err(client)?;
        delivered.0?;
        times.acks.push(published.1);
        times.deliveries.push(delivered.1);
        *next += 1;
    }
    times.acks.sort_unstable();
    times.deliveries.sort_unstable();
    Ok(times)
}

async fn expect(reading: &mut Subscription, expected: u64) -> Result<(), ComparisonFailed> {
    let event = tokio::time::timeout(STUCK, reading.next())
        .await
        .map_err(|_| client(format!("nothing came where offset {expected} was due")))?
        .map_err(client)?;
    let found = event.and_then(|event| event.offset);
    if found == Some(expected) {
        Ok(())
    } else {
        Err(ComparisonFailed::Offset { expected, found })
    }
}

impl Comparison {
    /// For people: a table, and the tally that `tests/run` adds up.
    pub fn print(&self) {
        println!("                      records   ack p50   ack p99   delivery p50   delivery p99");
        for (name, times) in [
            ("alone", &self.alone),
            ("beside a stopped reader", &self.beside),
        ] {
            println!(
                "{name:<24}{:>5} {:>7} us {:>6} us {:>11} us {:>11} us",
                times.acks.len(),
                micros(&times.acks, 50),
                micros(&times.acks, 99),
                micros(&times.deliveries, 50),
                micros(&times.deliveries, 99),
            );
        }
        println!(
            "the stopped reader had {} records to read and did it in {:.1?}",
            self.behind, self.caught_up_in
        );
        println!("1 passed, 0 failed");
    }
}

fn micros(sorted: &[Duration], percent: usize) -> u128 {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(0, Duration::as_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_taken_from_sorted_times() {
        let times: Vec<Duration> = (1..=200).map(Duration::from_micros).collect();
        assert_eq!((micros(&times, 50), micros(&times, 99)), (101, 199));
        assert_eq!(micros(&[], 50), 0);
    }
}
