//! Kills under a load of caches, counters, groups and commits: every answer goes into a history, and the histories are
//! held against the rules of `felix_sim::history` in the end.
//!
//! Each round starts the node on the directory of the round before, lets clients work, and kills the node at a random
//! moment. What was asked and not answered then may have happened, before the next start or never.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use felix_client::{
    CacheFailed, Claim, Client, Condition, PageLimits, PollOptions, ReconnectPolicy, Retry,
};
use felix_sim::history::linear::{self, Sequential, Timed};
use felix_sim::history::register::{Expect, Window, Written};
use felix_sim::history::{commit, counter, group, register};
use tokio::task::JoinSet;

use crate::kills::Random;
use crate::{Home, Node, NodeFailed};

const CACHE: &str = "config";
const COMMITS: &str = "kills-commits";
const WORK: &str = "kills-work";
const GROUP: &str = "workers";

/// Keys, counters and state keys that clients meet on.
const KEYS: u64 = 3;

/// Keys are others after so many rounds, so that no history grows too long to be checked.
const ROUNDS_A_KEY: u32 = 10;

/// The load runs between these before the kill, in milliseconds.
const LOAD_MS: std::ops::Range<u64> = 20..250;

/// How long a claim lasts.
const VISIBILITY: Duration = Duration::from_millis(300);

/// How often the broker hands a record out.
const ATTEMPTS_MAX: u32 = 5;

/// A group that is not through after so many polls without a record is stuck.
const IDLE_POLLS_MAX: u32 = 200;

/// Why a campaign ended early.
#[derive(Debug, thiserror::Error)]
pub enum ReadingsFailed {
    /// The node did not start by itself, or could not be asked.
    #[error(transparent)]
    Node(#[from] NodeFailed),
    /// The healthy node refused what it must do.
    #[error("{0}")]
    Refused(String),
    /// A rule was broken.
    #[error("{0}")]
    Broken(String),
}

/// What a campaign saw.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Kills.
    pub kills: u32,
    /// Calls on keys and counters, and how many were answered.
    pub calls: (usize, usize),
    /// Commits that were answered, and those in the log.
    pub commits: (u64, usize),
    /// Records that were handed out, and acknowledged.
    pub work: (u64, u64),
}

/// Calls on several keys, each with what is known of it. `None`: it did nothing.
#[derive(Debug)]
struct Histories<C>(BTreeMap<String, Vec<Option<Timed<C>>>>);

impl<C: Clone + Debug> Histories<C> {
    fn begin(&mut self, key: &str, began: u64, call: C) -> usize {
        let history = self.0.entry(key.to_owned()).or_default();
        history.push(Some(Timed {
            call,
            began,
            ended: u64::MAX,
            is_known: false,
        }));
        history.len() - 1
    }

    fn end(&mut self, key: &str, at: usize, ended: u64, answer: Option<C>) {
        let place = self.0.get_mut(key).and_then(|history| history.get_mut(at));
        if let Some(place) = place {
            *place = answer.zip(place.take()).map(|(call, timed)| Timed {
                call,
                ended,
                is_known: true,
                ..timed
            });
        }
    }

    /// Nothing that is under way will be answered.
    fn cut(&mut self, ended: u64) {
        for timed in self.0.values_mut().flatten().flatten() {
            timed.ended = timed.ended.min(ended);
        }
    }

    fn check<M: Sequential<Call = C>>(
        &self,
        model: &M,
        calls: &mut (usize, usize),
    ) -> Result<(), ReadingsFailed>
    where
        M::State: Default,
    {
        for (key, history) in &self.0 {
            let history: Vec<_> = history.iter().flatten().cloned().collect();
            calls.0 += history.len();
            calls.1 += history.iter().filter(|timed| timed.is_known).count();
            linear::check(model, M::State::default(), &history).map_err(|why| {
                let linear::NotLinear::Unexplained { call } = why else {
                    return ReadingsFailed::Broken(format!("{key}: {why}"));
                };
                let before = history.get(call.saturating_sub(6)..=call);
                ReadingsFailed::Broken(format!("{key}: {why}, the last of {before:?}"))
            })?;
        }
        Ok(())
    }
}

/// Everything clients were told.
#[derive(Debug)]
struct Book {
    instants: u64,
    numbers: u64,
    entries: Histories<register::Call>,
    counters: Histories<counter::Call>,
    commits: commit::Checker,
    /// Commits that nobody was told about.
    in_doubt: BTreeMap<u64, (u64, Vec<(u64, bool)>)>,
    group: group::Checker,
    /// Records whose acknowledgement is on its way.
    acking: Vec<u64>,
    summary: Summary,
}

type Shared = Arc<Mutex<Book>>;

fn lock(book: &Shared) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Book {
    fn instant(&mut self) -> u64 {
        self.instants += 1;
        self.instants
    }

    /// The node is gone: nothing that is under way will be answered.
    fn cut(&mut self) {
        let ended = self.instant();
        self.entries.cut(ended);
        self.counters.cut(ended);
        for offset in std::mem::take(&mut self.acking) {
            self.group.acked(offset, group::Settled::Unknown, now_ms());
        }
        self.group.restarted();
        self.summary.kills += 1;
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

/// Runs a campaign. `progress` is told the number of each round as it begins.
///
/// # Errors
/// The first rule that was broken, or what the node did not do.
pub async fn run(
    home: &Home,
    count: u32,
    mut random: Random,
    mut progress: impl FnMut(u32),
) -> Result<Summary, ReadingsFailed> {
    let book = Arc::new(Mutex::new(Book {
        instants: 0,
        numbers: 0,
        entries: Histories(BTreeMap::new()),
        counters: Histories(BTreeMap::new()),
        commits: commit::Checker::default(),
        in_doubt: BTreeMap::new(),
        group: group::Checker::new(ATTEMPTS_MAX),
        acking: Vec::new(),
        summary: Summary::default(),
    }));
    let mut node = home.start().await?;
    for stream in [COMMITS, WORK] {
        home.ok(&["stream", "create", stream]).await?;
    }
    for round in 0..count {
        progress(round);
        let client = connect(&node).await?;
        let mut load = JoinSet::new();
        for task in 0..3 {
            let seed = random.within(0..u64::MAX);
            let keys = round / ROUNDS_A_KEY;
            load.spawn(entries(
                client.clone(),
                Arc::clone(&book),
                Random::new(seed),
                keys,
            ));
            load.spawn(counters(
                client.clone(),
                Arc::clone(&book),
                Random::new(seed),
                keys,
            ));
            if task < 2 {
                load.spawn(commits(
                    client.clone(),
                    Arc::clone(&book),
                    Random::new(seed),
                ));
            }
        }
        load.spawn(publish(client.clone()));
        load.spawn(work(client.clone(), Arc::clone(&book), None));
        // The moment of the kill is what is drawn, so there is no event to wait for.
        tokio::time::sleep(Duration::from_millis(random.within(LOAD_MS))).await;
        node.kill().await?;
        load.shutdown().await;
        lock(&book).cut();
        node = home.start().await?;
    }
    finish(&node, &book).await?;
    node.stop().await?;
    let summary = lock(&book).summary;
    Ok(summary)
}

async fn connect(node: &Node) -> Result<Client, NodeFailed> {
    let client = node.builder().reconnect(ReconnectPolicy::never());
    Ok(client.connect().await?)
}

/// Nothing was done, by what the client says.
fn is_nothing(failed: &CacheFailed) -> bool {
    matches!(failed, CacheFailed::Call(call) if call.retry() != Retry::OutcomeUnknown)
}

const WHENEVER: Window = Window { from: 0, to: 0 };

/// Gets, puts, conditional puts and deletes, one after the other.
async fn entries(client: Client, book: Shared, mut random: Random, keys: u32) {
    let Ok(cache) = client.cache(CACHE) else {
        return;
    };
    let mut seen = None;
    loop {
        let key = format!("key-{keys}-{}", random.within(0..KEYS));
        let (value, began) = {
            let mut here = lock(&book);
            (here.number(), here.instant())
        };
        let expect = match random.within(0..4) {
            0 => Expect::Absent,
            1 => seen.map_or(Expect::Anything, Expect::Version),
            _ => Expect::Anything,
        };
        let put = |answer| register::Call::Put {
            value,
            ttl: None,
            expect,
            window: WHENEVER,
            answer,
        };
        let delete = |answer| register::Call::Delete {
            expect: Expect::Anything,
            window: WHENEVER,
            answer,
        };
        let get = |answer| register::Call::Get {
            window: WHENEVER,
            answer,
        };
        let bytes = value.to_be_bytes().to_vec();
        let version_of = |version| Written::Done {
            version,
            removed: None,
        };
        let begin = |call| lock(&book).entries.begin(&key, began, call);
        let (at, answer) = match random.within(0..8) {
            0..=2 => {
                let at = begin(get(None));
                let got = cache.get(&key).await;
                (
                    at,
                    got.map(|entry| {
                        let entry =
                            entry.and_then(|entry| Some((number(&entry.value)?, entry.version?)));
                        seen = entry.map(|(_, version)| version);
                        get(entry)
                    }),
                )
            }
            3 => {
                let at = begin(delete(Written::Unknown));
                let gone = cache.delete(&key).await;
                (
                    at,
                    gone.map(|entry| {
                        let removed =
                            entry.and_then(|entry| Some((number(&entry.value)?, entry.version?)));
                        delete(Written::Done {
                            version: None,
                            removed,
                        })
                    }),
                )
            }
            _ => {
                let at = begin(put(Written::Unknown));
                let condition = match expect {
                    Expect::Anything => None,
                    Expect::Absent => Some(Condition::Absent),
                    Expect::Version(version) => Some(Condition::Version(version)),
                };
                let done = match condition {
                    None => cache.put(&key, bytes).await,
                    Some(condition) => cache.put_if(&key, bytes, condition, None).await,
                };
                (
                    at,
                    match done {
                        Err(CacheFailed::VersionMismatch { current_version }) => {
                            Ok(put(Written::Unmet(current_version)))
                        }
                        done => done.map(|version| put(version_of(version))),
                    },
                )
            }
        };
        let mut here = lock(&book);
        let ended = here.instant();
        match answer {
            Ok(call) => here.entries.end(&key, at, ended, Some(call)),
            Err(failed) if is_nothing(&failed) => here.entries.end(&key, at, ended, None),
            // The node is gone; so is this round.
            Err(_) => return,
        }
    }
}

/// Adds, some under an idempotency key, and reads of the sum.
async fn counters(client: Client, book: Shared, mut random: Random, keys: u32) {
    let Ok(counter) = client.counter(CACHE) else {
        return;
    };
    loop {
        let key = format!("counter-{keys}-{}", random.within(0..KEYS));
        let (once, began) = {
            let mut here = lock(&book);
            (here.number(), here.instant())
        };
        let begin = |call| lock(&book).counters.begin(&key, began, call);
        let add = |once, answer| counter::Call::Add {
            delta: 3,
            once,
            answer,
        };
        let (at, answer) = match random.within(0..4) {
            0 => {
                let at = begin(counter::Call::Sum { answer: None });
                let sum = counter.get(&key).await;
                (at, sum.map(|answer| counter::Call::Sum { answer }))
            }
            1 => {
                let at = begin(add(Some(once), None));
                let added = counter.add_once(&key, 3, once.to_be_bytes().to_vec()).await;
                // It may have been sent before what the last try came to.
                let Ok(added) = added else { return };
                (at, Ok(add(Some(once), Some(added.value))))
            }
            _ => {
                let at = begin(add(None, None));
                let added = counter.add(&key, 3).await;
                (at, added.map(|sum| add(None, Some(sum))))
            }
        };
        let mut here = lock(&book);
        let ended = here.instant();
        match answer {
            Ok(call) => here.counters.end(&key, at, ended, Some(call)),
            Err(failed) if is_nothing(&failed) => here.counters.end(&key, at, ended, None),
            Err(_) => return,
        }
    }
}

/// First again what nobody was told about, then new commits and reads of the state.
async fn commits(client: Client, book: Shared, mut random: Random) {
    loop {
        let again = lock(&book).in_doubt.pop_first();
        let (number, entity, changes) = match again {
            Some((number, (entity, changes))) => (number, entity, changes),
            None => {
                let mut here = lock(&book);
                let number = here.number();
                let entity = random.within(0..2);
                let changes: BTreeMap<u64, bool> = (0..random.within(0..4))
                    .map(|_| (random.within(0..KEYS), random.within(0..4) > 0))
                    .collect();
                let of = |sets: bool| {
                    let those = changes.iter().filter(move |(_, set)| **set == sets);
                    those.map(|(key, _)| entity * KEYS + key).collect()
                };
                let what = commit::Changes {
                    sets: of(true),
                    removes: of(false),
                };
                here.commits.sent(number, what);
                (number, entity, changes.into_iter().collect())
            }
        };
        lock(&book)
            .in_doubt
            .insert(number, (entity, changes.clone()));
        let value = number.to_be_bytes().to_vec();
        let mut commit = client
            .commit(COMMITS, format!("entity-{entity}"), value.clone())
            .once(value.clone());
        for (key, sets) in changes {
            let key = format!("key-{key}");
            commit = if sets {
                commit.put(&key, value.clone())
            } else {
                commit.delete(&key)
            };
        }
        match commit.await {
            Ok(done) => {
                let mut here = lock(&book);
                here.in_doubt.remove(&number);
                here.commits.acked(number, done.offset);
                here.summary.commits.0 += 1;
            }
            // The node is gone. Without a condition there is nothing else to refuse, and the log says whether it was.
            Err(_) => return,
        }
        if read_state(&client, &book, random.within(0..2 * KEYS))
            .await
            .is_none()
        {
            return;
        }
    }
}

async fn read_state(client: &Client, book: &Shared, key: u64) -> Option<()> {
    let floor = lock(book).commits.floor();
    let entity = format!("entity-{}", key / KEYS);
    let state = client.state(COMMITS, entity).ok()?;
    let held = state.get(&format!("key-{}", key % KEYS)).await.ok()?;
    let seen = held.and_then(|held| Some((number(&held.value)?, held.version?)));
    lock(book).commits.state(key, seen, floor);
    Some(())
}

/// Something to work on.
async fn publish(client: Client) {
    loop {
        if client.publish(WORK, "work").await.is_err() {
            return;
        }
    }
}

/// One worker of a group: takes records, finishes most, gives some back and forgets some. Ends with the node, or after
/// so many polls in vain.
async fn work(client: Client, book: Shared, idle_max: Option<u32>) {
    let Ok(group) = client.group(WORK, GROUP) else {
        return;
    };
    let options = PollOptions {
        max_records: 16,
        wait: Duration::from_millis(50),
        visibility: VISIBILITY,
        ..PollOptions::default()
    };
    let mut idle = 0;
    while idle_max.is_none_or(|most| idle < most) {
        let asked = lock(&book).group.now();
        let asked_ms = now_ms();
        let Ok(records) = group.poll(0, &options).await else {
            return;
        };
        idle = if records.is_empty() { idle + 1 } else { 0 };
        let mut finished = Vec::new();
        for record in records {
            let mut here = lock(&book);
            here.group.appended(record.offset + 1);
            here.summary.work.0 += 1;
            here.group.delivered(group::Delivered {
                consumer: 0,
                offset: record.offset,
                attempts: record.attempts,
                asked,
                at_ms: now_ms(),
                until_ms: asked_ms + 300,
            });
            // Some are forgotten, until they come once more.
            if idle_max.is_some() || record.attempts > 1 || record.offset % 7 != 0 {
                finished.push(Claim {
                    offset: record.offset,
                    attempts: record.attempts,
                });
            }
        }
        if finished.is_empty() {
            continue;
        }
        lock(&book).acking = finished.iter().map(|claim| claim.offset).collect();
        let acked = group.ack(0, &finished, None).await;
        let mut here = lock(&book);
        match acked {
            Ok(left) => {
                here.acking.clear();
                for claim in finished {
                    let stands = left.iter().all(|left| left.claim.offset != claim.offset);
                    let outcome = if stands {
                        here.summary.work.1 += 1;
                        group::Settled::Done
                    } else {
                        group::Settled::Refused
                    };
                    here.group.acked(claim.offset, outcome, now_ms());
                }
            }
            // Whether they stand is not known.
            Err(_) => return,
        }
    }
}

/// Everything is finished, read once more, and held against the rules.
async fn finish(node: &Node, book: &Shared) -> Result<(), ReadingsFailed> {
    let refused = |error: &dyn std::fmt::Display| ReadingsFailed::Refused(error.to_string());
    let client = node.client().await?;
    work(client.clone(), Arc::clone(book), Some(IDLE_POLLS_MAX / 10)).await;
    let group = client.group(WORK, GROUP).map_err(|error| refused(&error))?;
    let standing = group.describe(0).await.map_err(|error| refused(&error))?;
    let letters = group
        .dead_letters(0, None, 1_000)
        .await
        .map_err(|error| refused(&error))?;
    for key in 0..2 * KEYS {
        read_state(&client, book, key)
            .await
            .ok_or_else(|| refused(&"the state cannot be read"))?;
    }
    let log = log(&client).await?;
    let mut here = lock(book);
    here.group.appended(standing.tail);
    let aside: Vec<_> = letters
        .iter()
        .map(|letter| group::Aside {
            offset: letter.offset,
            attempts: letter.attempts,
            at_ms: u64::try_from(letter.set_aside_at_ms).unwrap_or(0),
        })
        .collect();
    here.group.finished(0, &aside);
    if let Some(broken) = here.group.take().first() {
        return Err(ReadingsFailed::Broken(broken.to_string()));
    }
    here.summary.commits.1 = log.len();
    if let Some(broken) = here.commits.finish(&log).first() {
        return Err(ReadingsFailed::Broken(broken.to_string()));
    }
    let mut calls = (0, 0);
    here.entries.check(&register::Register, &mut calls)?;
    here.counters.check(&counter::Counter, &mut calls)?;
    here.summary.calls = calls;
    Ok(())
}

/// Every commit in the log, by offset.
async fn log(client: &Client) -> Result<Vec<(u64, u64)>, ReadingsFailed> {
    let mut log = Vec::new();
    let mut from = 0;
    loop {
        let page = client.stream_read(COMMITS, 0, from, PageLimits::default());
        let page = page
            .await
            .map_err(|error| ReadingsFailed::Refused(error.to_string()))?;
        let Some(last) = page.records.last() else {
            return Ok(log);
        };
        from = last.offset + 1;
        let commits = page.records.iter();
        log.extend(commits.filter_map(|record| Some((record.offset, number(&record.payload)?))));
    }
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes
        .first_chunk()
        .map(|number| u64::from_be_bytes(*number))
}

fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Summary {
    /// For people: one line a fact, ending with the tally that `tests/run` adds up.
    pub fn print(&self, seed: u64, took: Instant) {
        println!("seed {seed}, {:.0} s", took.elapsed().as_secs_f64());
        println!(
            "kills {}, calls on keys and counters {}, answered {}",
            self.kills, self.calls.0, self.calls.1
        );
        println!(
            "commits answered {}, in the log {}; records handed out {}, acknowledged {}",
            self.commits.0, self.commits.1, self.work.0, self.work.1
        );
        println!("no rule was broken");
        println!("{} passed, 0 failed", self.kills);
    }
}
