//! The campaign of kills: a node is killed under load again and again, and must have kept what it acknowledged.
//!
//! Each round starts the node on the directory of the round before, reads what is there, publishes to one stream of
//! each sync mode from several tasks, with a live reader beside them, and kills the node at a random moment. Nothing is
//! repaired by hand between rounds. At the end everything is read once more from offset 0.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use felix_client::{Client, Publisher};
use tokio::task::JoinSet;

use crate::{History, Home, Lost, Node, NodeFailed};

/// The streams of the campaign: their names and sync modes.
const STREAMS: [(&str, &str); 3] = [
    ("kills-on-commit", "on_commit"),
    ("kills-periodic", "periodic"),
    ("kills-none", "none"),
];

/// Publishing tasks of each stream.
const PUBLISHERS: usize = 2;

/// Publishes of one task that wait for their answer.
const IN_FLIGHT: usize = 16;

/// The load runs between these before the kill.
const LOAD_MS: std::ops::Range<u64> = 5..250;

/// A reading that gets nothing for this long is stuck.
const STUCK: Duration = Duration::from_secs(30);

/// Why a campaign ended early.
#[derive(Debug, thiserror::Error)]
pub enum CampaignFailed {
    /// A promise was not kept.
    #[error("{stream}: {lost}")]
    Lost {
        /// The stream.
        stream: &'static str,
        /// What was promised.
        lost: Lost,
    },
    /// The node did not start, by itself, after a kill; or could not be asked.
    #[error(transparent)]
    Node(#[from] NodeFailed),
    /// A stream could not be created.
    #[error("stream create: {0}")]
    Create(String),
    /// The healthy node refused what it must do.
    #[error("{stream}: {what}")]
    Refused {
        /// The stream.
        stream: &'static str,
        /// What the client said.
        what: String,
    },
    /// A directory or process of the campaign's own.
    #[error(transparent)]
    System(#[from] std::io::Error),
}

/// What a campaign saw.
#[derive(Debug, Default)]
pub struct Summary {
    /// Kills after which everything was as promised.
    pub kills: u32,
    /// Acknowledgements that were compared with what is there.
    pub compared: u64,
    /// Records read back.
    pub read: u64,
    /// How long the node took to start after each kill.
    pub starts: Vec<Duration>,
}

/// Runs a campaign. `progress` is told the number of each round as it begins.
///
/// # Errors
/// The first promise that was not kept; `home` is left as it was then.
pub async fn run(
    home: &Home,
    count: u32,
    mut random: Random,
    mut progress: impl FnMut(u32, &Summary),
) -> Result<Summary, CampaignFailed> {
    let mut summary = Summary::default();
    let mut histories = STREAMS.map(|_| History::default());
    let first = home.start().await?;
    for (stream, sync) in STREAMS {
        create(home, stream, sync).await?;
    }
    let mut node = Some(first);
    for round in 0..count {
        progress(round, &summary);
        let running = match node.take() {
            Some(running) => running,
            None => restart(home, &mut summary).await?,
        };
        let client = running.client().await?;
        for ((stream, _), history) in STREAMS.iter().zip(&mut histories) {
            compare(&client, stream, history, round).await?;
        }
        let load = Load::start(&client, round)?;
        tokio::time::sleep(Duration::from_millis(random.within(LOAD_MS))).await;
        running.kill().await?;
        load.end(&mut histories).await?;
        summary.kills += 1;
    }
    let running = restart(home, &mut summary).await?;
    let client = running.client().await?;
    for ((stream, _), history) in STREAMS.iter().zip(&mut histories) {
        compare(&client, stream, history, count).await?;
        compare_again(&client, stream, history).await?;
        summary.compared += history.compared();
        summary.read += history.next();
    }
    running.stop().await?;
    Ok(summary)
}

async fn restart(home: &Home, summary: &mut Summary) -> Result<Node, NodeFailed> {
    let node = home.start().await?;
    summary.starts.push(node.started_in());
    Ok(node)
}

async fn create(home: &Home, stream: &str, sync: &str) -> Result<(), CampaignFailed> {
    let output = home
        .felixctl(&["stream", "create", stream, "--sync", sync])
        .await?;
    if output.status.success() {
        return Ok(());
    }
    Err(CampaignFailed::Create(
        String::from_utf8_lossy(&output.stderr).into_owned(),
    ))
}

fn refused(stream: &'static str, error: &dyn std::fmt::Display) -> CampaignFailed {
    CampaignFailed::Refused {
        stream,
        what: error.to_string(),
    }
}

/// Reads what is new since the last round, up to a marker that is published for the purpose.
async fn compare(
    client: &Client,
    stream: &'static str,
    history: &mut History,
    round: u32,
) -> Result<(), CampaignFailed> {
    let lost = |lost| CampaignFailed::Lost { stream, lost };
    let marker = format!("marker {round}");
    let publisher = client
        .publisher(stream)
        .map_err(|error| refused(stream, &error))?;
    let published = publisher
        .publish(marker.clone())
        .await
        .map_err(|error| refused(stream, &error))?;
    let end = published
        .offset
        .ok_or_else(|| refused(stream, &"an ack without an offset"))?;
    history.ends_at(end).map_err(lost)?;
    history.acknowledge(end, marker.as_bytes()).map_err(lost)?;
    let next = history.next();
    read(client, stream, next, end, |offset, payload| {
        history.see(offset, payload)
    })
    .await
}

/// Reads everything once more.
async fn compare_again(
    client: &Client,
    stream: &'static str,
    history: &History,
) -> Result<(), CampaignFailed> {
    let Some(last) = history.next().checked_sub(1) else {
        return Ok(());
    };
    read(client, stream, 0, last, |offset, payload| {
        history.see_again(offset, payload)
    })
    .await
}

/// Reads from one offset to another, both included.
async fn read(
    client: &Client,
    stream: &'static str,
    from: u64,
    to: u64,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), Lost>,
) -> Result<(), CampaignFailed> {
    let subscribe = client.subscribe(stream).from_offset(from);
    let mut subscription = subscribe.await.map_err(|error| refused(stream, &error))?;
    let mut next = from;
    while next <= to {
        let event = tokio::time::timeout(STUCK, subscription.next())
            .await
            .map_err(|_| refused(stream, &format!("nothing came after offset {next} of {to}")))?
            .map_err(|error| refused(stream, &error))?
            .ok_or_else(|| refused(stream, &"the subscription ended"))?;
        let offset = event
            .offset
            .ok_or_else(|| refused(stream, &"a record without an offset"))?;
        each(offset, &event.payload).map_err(|lost| CampaignFailed::Lost { stream, lost })?;
        next = offset + 1;
    }
    Ok(())
}

/// Offsets and payloads that clients were told, in the order they heard it.
type Told = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

/// The tasks that publish and read while the node lives.
struct Load {
    tasks: JoinSet<()>,
    told: [Told; STREAMS.len()],
}

impl Load {
    fn start(client: &Client, round: u32) -> Result<Self, CampaignFailed> {
        let mut load = Self {
            tasks: JoinSet::new(),
            told: STREAMS.map(|_| Told::default()),
        };
        for ((stream, _), told) in STREAMS.iter().zip(&load.told) {
            for task in 0..PUBLISHERS {
                let name = format!("{round}/{task}");
                let publisher = client
                    .publisher(stream)
                    .map_err(|error| refused(stream, &error))?;
                load.tasks.spawn(publish(publisher, name, Arc::clone(told)));
            }
            load.tasks
                .spawn(follow(client.clone(), stream, Arc::clone(told)));
        }
        Ok(load)
    }

    /// Waits until the tasks have noticed that the node is gone, and takes over what they were told before.
    async fn end(mut self, histories: &mut [History]) -> Result<(), CampaignFailed> {
        self.tasks.shutdown().await;
        for (((stream, _), told), history) in STREAMS.iter().zip(&self.told).zip(histories) {
            for (offset, payload) in told
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .drain(..)
            {
                let kept = history.acknowledge(offset, &payload);
                kept.map_err(|lost| CampaignFailed::Lost { stream, lost })?;
            }
        }
        Ok(())
    }
}

fn tell(told: &Told, offset: u64, payload: &[u8]) {
    told.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push((offset, payload.to_vec()));
}

/// Publishes numbered records, several in flight, until the node is gone.
async fn publish(publisher: Publisher, name: String, told: Told) {
    let mut in_flight = std::collections::VecDeque::new();
    for number in 0u64.. {
        // Sizes differ, so that a kill can fall anywhere in a page of the disk.
        let payload = format!(
            "{name}/{number} {}",
            "x".repeat(usize::try_from(number % 700).unwrap_or(0))
        );
        let Ok(receipt) = publisher.send(payload.clone()).await else {
            break;
        };
        in_flight.push_back((receipt, payload));
        if in_flight.len() < IN_FLIGHT {
            continue;
        }
        let Some((receipt, payload)) = in_flight.pop_front() else {
            break;
        };
        let Ok(published) = receipt.await else { break };
        if let Some(offset) = published.offset {
            tell(&told, offset, payload.as_bytes());
        }
    }
    // What is in flight when the node dies may have been answered already.
    for (receipt, payload) in in_flight {
        let Ok(published) = receipt.await else { return };
        if let Some(offset) = published.offset {
            tell(&told, offset, payload.as_bytes());
        }
    }
}

/// What a live reader was shown must be there afterwards as well.
async fn follow(client: Client, stream: &'static str, told: Told) {
    let Ok(mut subscription) = client.subscribe(stream).await else {
        return;
    };
    while let Ok(Some(event)) = subscription.next().await {
        if let Some(offset) = event.offset {
            tell(&told, offset, &event.payload);
        }
    }
}

/// A small generator with a seed, so that a campaign can be told apart from another.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator for a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number of the range.
    pub(crate) fn within(&mut self, range: std::ops::Range<u64>) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let span = range.end.saturating_sub(range.start).max(1);
        range.start + (mixed ^ (mixed >> 31)) % span
    }
}

impl Summary {
    /// For people: one line a fact, ending with the tally that `tests/run` adds up.
    pub fn print(&self, seed: u64, took: Instant) {
        let mut starts = self.starts.clone();
        starts.sort();
        let at = |share: usize| {
            starts.get((starts.len() * share / 100).min(starts.len().saturating_sub(1)))
        };
        println!("seed {seed}, {:.0} s", took.elapsed().as_secs_f64());
        println!(
            "kills {}, acknowledged and found {}, records read {}",
            self.kills, self.compared, self.read
        );
        println!("lost 0, offsets reused 0, starts by hand 0");
        if let (Some(median), Some(slowest)) = (at(50), starts.last()) {
            println!("start after a kill: median {median:.0?}, slowest {slowest:.0?}");
        }
        println!("{} passed, 0 failed", self.kills);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_again_and_they_stay_in_range() {
        let (mut one, mut two) = (Random::new(7), Random::new(7));
        for _ in 0..1000 {
            let number = one.within(LOAD_MS);
            assert_eq!(number, two.within(LOAD_MS));
            assert!(LOAD_MS.contains(&number));
        }
        assert_ne!(
            Random::new(8).within(0..u64::MAX),
            Random::new(9).within(0..u64::MAX)
        );
    }
}
