//! Ends at the control plane what sessions leave behind, so that nobody's list of sessions fills with closed tabs.
//!
//! A session is ended when its last token has run out, and not before: until then a page that is loaded again while the
//! control plane is away goes on with that token. Whoever signs out is not waited for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use felix_model::TimeMs;
use tokio::sync::mpsc;

use super::desk::Desk;
use super::now;
use super::secret::Secret;

/// Sessions that wait for their end; more are left to run out by themselves.
const WAITING_MAX: usize = 16_384;
/// Sessions that are handed over at once.
const QUEUE: usize = 1_024;

#[derive(Clone, Debug)]
pub(super) struct Closer(mpsc::Sender<Leftover>);

#[derive(Debug)]
struct Leftover {
    chain: Secret,
    at: TimeMs,
}

impl Closer {
    /// Starts the task that ends sessions; it ends with the last handle.
    pub(super) fn start(desk: Arc<Desk>) -> Self {
        let (sender, leftovers) = mpsc::channel(QUEUE);
        tokio::spawn(run(desk, leftovers));
        Self(sender)
    }

    /// Ends the session of this refresh token at this time, or soon after.
    pub(super) fn end_at(&self, at: TimeMs, chain: Secret) {
        if self.0.try_send(Leftover { chain, at }).is_err() {
            tracing::debug!("a session at the control plane is left to run out");
        }
    }
}

async fn run(desk: Arc<Desk>, mut leftovers: mpsc::Receiver<Leftover>) {
    let mut waiting: BTreeMap<(TimeMs, u64), Secret> = BTreeMap::new();
    let mut number = 0;
    loop {
        let first = waiting.first_key_value().map(|((at, _), _)| *at);
        let wait = first.map_or(Duration::MAX, |at| {
            Duration::from_millis(at.0.saturating_sub(now().0))
        });
        tokio::select! {
            leftover = leftovers.recv() => {
                let Some(Leftover { chain, at }) = leftover else { return };
                if waiting.len() < WAITING_MAX {
                    number += 1;
                    waiting.insert((at, number), chain);
                }
            }
            () = tokio::time::sleep(wait), if first.is_some() => {
                if let Some((_, chain)) = waiting.pop_first() {
                    desk.end(&chain).await;
                }
            }
        }
    }
}
