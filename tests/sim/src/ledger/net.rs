//! The network between the members.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use felix_controlplane::ledger::raft::{CallFailed, Calling, Core, Peer, Transport};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Twin;
use crate::random::Random;

/// The network. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Net {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    random: Random,
    twin: Twin,
    /// Who is there: the life's number, and the member.
    members: BTreeMap<u64, (u64, Arc<Core>)>,
    /// Ways that lead nowhere, from and to.
    cut: BTreeSet<(u64, u64)>,
    weather: Weather,
    counts: NetCounts,
}

/// How messages fare.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// Messages lost, in a hundred.
    pub(crate) lost: u64,
    /// Messages that come twice, in a hundred.
    pub(crate) doubled: u64,
    /// Shortest and longest way in ms.
    pub(crate) way: (u64, u64),
}

impl Weather {
    /// As in one room.
    pub(crate) const CALM: Self = Self {
        lost: 0,
        doubled: 0,
        way: (1, 3),
    };
}

/// What the network did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NetCounts {
    pub(crate) calls: u64,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
}

impl std::fmt::Debug for Net {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Net").finish_non_exhaustive()
    }
}

/// How one message fares.
struct Fate {
    way: Duration,
    is_lost: bool,
    again_after: Option<Duration>,
}

impl Net {
    pub(crate) fn new(seed: u64, twin: Twin) -> Self {
        Self {
            inner: Arc::new(Mutex::new(Inner {
                random: Random::new(seed),
                twin,
                members: BTreeMap::new(),
                cut: BTreeSet::new(),
                weather: Weather::CALM,
                counts: NetCounts::default(),
            })),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The wire of one life of a member.
    pub(crate) fn wire(&self, member: u64, life: u64) -> Arc<dyn Transport> {
        Arc::new(Wire {
            net: self.clone(),
            member,
            life,
        })
    }

    pub(crate) fn join(&self, member: u64, life: u64, core: Arc<Core>) {
        self.inner().members.insert(member, (life, core));
    }

    pub(crate) fn leave(&self, member: u64) {
        self.inner().members.remove(&member);
    }

    pub(crate) fn set_weather(&self, weather: Weather) {
        self.inner().weather = weather;
    }

    pub(crate) fn cut(&self, from: u64, to: u64) {
        self.inner().cut.insert((from, to));
    }

    pub(crate) fn heal(&self) {
        self.inner().cut.clear();
    }

    pub(crate) fn counts(&self) -> NetCounts {
        self.inner().counts
    }

    fn draw(&self) -> Fate {
        let mut inner = self.inner();
        let weather = inner.weather;
        let way = Duration::from_millis(inner.random.between(weather.way.0, weather.way.1));
        let is_lost = inner.random.percent(weather.lost);
        let again = inner.random.percent(weather.doubled);
        let late = inner.random.between(1, 400);
        inner.counts.lost += u64::from(is_lost);
        inner.counts.doubled += u64::from(again);
        Fate {
            way,
            is_lost,
            again_after: again.then(|| Duration::from_millis(late)),
        }
    }

    fn is_cut(&self, from: u64, to: u64) -> bool {
        self.inner().cut.contains(&(from, to))
    }

    fn is_here(&self, member: u64, life: u64) -> bool {
        self.inner()
            .members
            .get(&member)
            .is_some_and(|(now, _)| *now == life)
    }

    fn member(&self, member: u64) -> Option<(u64, Arc<Core>)> {
        self.inner().members.get(&member).cloned()
    }

    /// Hands a message over, and gives its answer back, if the one who answers lives as long.
    fn deliver(&self, from: u64, to: u64, message: Bytes) -> Option<oneshot::Receiver<Bytes>> {
        let (life, core) = self.member(to)?;
        let message = match self.inner().twin {
            Twin::WipedVotes => for_whoever_is_there(message, &core),
            Twin::Sound | Twin::AckBeforeFlush | Twin::ConfirmFromLocal | Twin::ForgetVotes => {
                message
            }
        };
        let (say, said) = oneshot::channel();
        let net = self.clone();
        tokio::spawn(async move {
            let answer = core.answer(Some(from), message).await;
            if net.is_here(to, life) {
                // Who does not wait any more does not want to know.
                let _ = say.send(answer);
            }
        });
        Some(said)
    }
}

/// Writes the disk that is there over the one that was meant.
fn for_whoever_is_there(message: Bytes, core: &Core) -> Bytes {
    const FIELD: &[u8] = b"\"storage\":\"";
    let head = message.get(..512.min(message.len())).unwrap_or_default();
    let ask = head.windows(6).position(|some| some == b"\"ask\":");
    let found = head.windows(FIELD.len()).position(|some| some == FIELD);
    let (Some(at), Some(ask)) = (found, ask) else {
        return message;
    };
    if at > ask {
        return message;
    }
    let mut message = BytesMut::from(&message[..]);
    let at = at + FIELD.len();
    if let Some(id) = message.get_mut(at..at + 16) {
        id.copy_from_slice(core.storage().to_string().as_bytes());
    }
    message.freeze()
}

/// The way of one life of a member to the others.
#[derive(Debug)]
struct Wire {
    net: Net,
    member: u64,
    life: u64,
}

impl Transport for Wire {
    fn call(&self, to: &Peer, message: Bytes, deadline: Duration) -> Calling<'_> {
        let to = to.member;
        Box::pin(async move {
            let until = Instant::now() + deadline;
            let lost = |detail: &str| CallFailed::Lost {
                member: to,
                detail: detail.to_owned(),
            };
            self.net.inner().counts.calls += 1;
            let there = self.net.draw();
            sleep(there.way.min(deadline)).await;
            let is_gone = !self.net.is_here(self.member, self.life);
            if is_gone
                || there.is_lost
                || self.net.is_cut(self.member, to)
                || Instant::now() >= until
            {
                sleep_until(until).await;
                return Err(lost("nothing came back"));
            }
            if let Some(late) = there.again_after {
                let (net, from, message) = (self.net.clone(), self.member, message.clone());
                tokio::spawn(async move {
                    sleep(late).await;
                    if !net.is_cut(from, to) {
                        drop(net.deliver(from, to, message));
                    }
                });
            }
            let Some(said) = self.net.deliver(self.member, to, message) else {
                return Err(CallFailed::Unreachable {
                    member: to,
                    detail: "nobody listens there".into(),
                });
            };
            let left = until.saturating_duration_since(Instant::now());
            let answer = match timeout(left, said).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => {
                    sleep_until(until).await;
                    return Err(lost("it went away"));
                }
                Err(_) => return Err(lost("it took too long")),
            };
            let back = self.net.draw();
            let left = until.saturating_duration_since(Instant::now());
            sleep(back.way.min(left)).await;
            let is_gone = !self.net.is_here(self.member, self.life);
            if is_gone || back.is_lost || self.net.is_cut(to, self.member) || back.way > left {
                sleep_until(until).await;
                return Err(lost("the answer did not come"));
            }
            Ok(answer)
        })
    }
}
