//! Calls: from ops to the shards they go to, and from what comes of them to whoever asked.
//!
//! No task and no channel of its own is made for an op. Whoever settles it, most often a journal thread or the caller
//! himself, puts the outcome into its [`Place`].

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use felix_engine::cache::{CacheAnswer, CacheOp, Found, LIST_MAX};
use felix_engine::keyed::Key;
use felix_journal::{LogReader, ReadRefused};
use felix_model::{Offset, Record, Routing, ShardIndex};
use felix_wire::error::{Code, Failure, Retry};
use tokio::sync::oneshot;

use super::cell::{Answered, Asked, Cell};
use super::requests::Waiting;
use super::{CacheHandle, Caches, refused};
use crate::shards::cell::now;

/// What came of one op. Values are there: what was not in memory was read.
pub(crate) type Outcome = Result<CacheAnswer, Failure>;

/// What a caller wants done with the outcome of a list over many shards. It must not block.
pub(crate) type Done = Box<dyn FnOnce(Outcome) + Send>;

/// Where the outcome of one op goes.
#[derive(Debug)]
pub(crate) enum Place {
    /// To a task that waits for it.
    Task(oneshot::Sender<Outcome>),
    /// To a call of the `requests` extension.
    Call(Waiting),
    /// To the others of a list over many shards.
    Part(Arc<Gather>),
}

impl Place {
    fn fill(self, outcome: Outcome) {
        match self {
            // Whoever stopped waiting does not need to know.
            Self::Task(waiting) => drop(waiting.send(outcome)),
            Self::Call(waiting) => waiting.answer(outcome),
            Self::Part(gather) => gather.add(outcome),
        }
    }
}

/// The pages of one list as they come in from its shards.
pub(crate) struct Gather(Mutex<Parts>);

struct Parts {
    pages: Vec<Outcome>,
    left: u32,
    limit: usize,
    value_bytes: u64,
    done: Option<Done>,
}

impl std::fmt::Debug for Gather {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gather").finish_non_exhaustive()
    }
}

impl Gather {
    fn add(&self, outcome: Outcome) {
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parts.pages.push(outcome);
        parts.left = parts.left.saturating_sub(1);
        if parts.left > 0 {
            return;
        }
        let Some(done) = parts.done.take() else {
            return;
        };
        let page = parts.merge();
        drop(parts);
        done(page);
    }
}

impl Parts {
    /// One page of what several shards listed.
    fn merge(&mut self) -> Outcome {
        let mut all: Vec<(Key, Found)> = Vec::new();
        let mut more = false;
        // How far the shard came that came least far: behind it, rows of that shard may be missing.
        let mut upto: Option<Key> = None;
        for part in self.pages.drain(..) {
            if let CacheAnswer::Page {
                rows,
                more: others,
                upto: came,
                ..
            } = part?
            {
                all.extend(rows);
                more |= others;
                upto = match (upto, came) {
                    (Some(one), Some(two)) => Some(one.min(two)),
                    (one, two) => one.or(two),
                };
            }
        }
        if let Some(upto) = &upto {
            all.retain(|(key, _)| key <= upto);
        }
        all.sort_unstable_by(|(one, _), (two, _)| one.cmp(two));
        let with_values = self.value_bytes > 0;
        let mut bytes = 0;
        let fits = all.iter().take(self.limit).take_while(|(_, found)| {
            bytes += u64::from(found.length);
            !with_values || bytes <= self.value_bytes
        });
        let whole = fits.count().max(usize::from(self.limit > 0)).min(all.len());
        if all.len() > whole {
            all.truncate(whole);
            more = true;
            upto = all.last().map(|(key, _)| Key::clone(key));
        }
        Ok(CacheAnswer::Page {
            rows: all,
            more,
            upto,
            with_values,
        })
    }
}

/// Carries out one op and waits for its outcome. Whether the caller may is not asked here; see [`super::check`].
pub(crate) async fn one(caches: &Arc<Caches>, handle: &Arc<CacheHandle>, op: CacheOp) -> Outcome {
    let (sender, receiver) = oneshot::channel();
    let shard = shard_of(&op, handle.spec().shards);
    let place = Place::Task(sender);
    ask(caches, handle, vec![(shard, Asked { op, place })]).await;
    receiver.await.unwrap_or_else(|_| {
        Err(Failure::new(Code::Internal, "the outcome was lost").with_retry(Retry::OutcomeUnknown))
    })
}

/// Hands ops to their shards, which are opened if need be. Ops on one shard become one batch, in order; nothing is
/// promised about the order between shards. Returns when they are on their way, not when they are answered.
pub(crate) async fn ask(
    caches: &Arc<Caches>,
    handle: &Arc<CacheHandle>,
    asked: Vec<(ShardIndex, Asked)>,
) {
    let mut by_shard: Vec<(ShardIndex, Vec<Asked>)> = Vec::new();
    for (shard, asked) in asked {
        match by_shard.iter_mut().find(|(held, _)| *held == shard) {
            Some((_, others)) => others.push(asked),
            None => by_shard.push((shard, vec![asked])),
        }
    }
    for (shard, asked) in by_shard {
        let cell = match handle.open_cell(shard) {
            Some(cell) => Ok(cell),
            None => caches.open(handle, shard).await,
        };
        match cell {
            Ok(cell) => cell.ask(asked),
            Err(why) => {
                for Asked { place, .. } in asked {
                    place.fill(Err(why.failure()));
                }
            }
        }
    }
}

/// Which shards a list is of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Of {
    /// This one.
    One(ShardIndex),
    /// All of them, as one.
    All,
}

/// Lists shards of a cache, and then runs `done` with the page. One that is empty has nothing behind it: who asked goes
/// on behind the last row of a page, so an empty one is asked for again from where it ended.
pub(crate) async fn list(
    caches: &Arc<Caches>,
    handle: &Arc<CacheHandle>,
    (of, op): (Of, CacheOp),
    done: Done,
) {
    let (again, on) = (Arc::clone(caches), Arc::clone(handle));
    let asked = op.clone();
    let done: Done = Box::new(move |outcome| match go_on(&outcome, asked) {
        Some(op) => {
            let runtime = again.runtime.clone();
            drop(runtime.spawn(async move { boxed_list(&again, &on, (of, op), done).await }));
        }
        None => done(outcome),
    });
    list_once(caches, handle, (of, op), done).await;
}

fn boxed_list<'a>(
    caches: &'a Arc<Caches>,
    handle: &'a Arc<CacheHandle>,
    asked: (Of, CacheOp),
    done: Done,
) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
    Box::pin(list(caches, handle, asked, done))
}

/// The list behind a page without rows that does not end the list.
fn go_on(outcome: &Outcome, op: CacheOp) -> Option<CacheOp> {
    let Ok(CacheAnswer::Page {
        rows,
        more: true,
        upto: Some(upto),
        ..
    }) = outcome
    else {
        return None;
    };
    match op {
        CacheOp::List {
            prefix,
            limit,
            value_bytes,
            ..
        } if rows.is_empty() => Some(CacheOp::List {
            prefix,
            after: Some(Bytes::copy_from_slice(upto)),
            limit,
            value_bytes,
        }),
        CacheOp::List { .. }
        | CacheOp::Get { .. }
        | CacheOp::Put { .. }
        | CacheOp::Delete { .. }
        | CacheOp::Add { .. }
        | CacheOp::Sum { .. } => None,
    }
}

async fn list_once(
    caches: &Arc<Caches>,
    handle: &Arc<CacheHandle>,
    (of, op): (Of, CacheOp),
    done: Done,
) {
    let shards = match of {
        Of::One(shard) => shard.0..shard.0.saturating_add(1),
        Of::All => 0..handle.spec().shards,
    };
    let (limit, value_bytes) = match &op {
        CacheOp::List {
            limit, value_bytes, ..
        } => (*limit, *value_bytes),
        CacheOp::Get { .. }
        | CacheOp::Put { .. }
        | CacheOp::Delete { .. }
        | CacheOp::Add { .. }
        | CacheOp::Sum { .. } => (0, 0),
    };
    let gather = Arc::new(Gather(Mutex::new(Parts {
        pages: Vec::new(),
        left: u32::try_from(shards.len()).unwrap_or(u32::MAX),
        limit: limit.min(LIST_MAX) as usize,
        value_bytes,
        done: Some(done),
    })));
    let asked = shards.map(|shard| {
        let place = Place::Part(Arc::clone(&gather));
        let op = op.clone();
        (ShardIndex(shard), Asked { op, place })
    });
    ask(caches, handle, asked.collect()).await;
}

/// The shard of an op; of a list, the first one.
pub(super) fn shard_of(op: &CacheOp, shards: u32) -> ShardIndex {
    match op {
        CacheOp::Get { key }
        | CacheOp::Put { key, .. }
        | CacheOp::Delete { key, .. }
        | CacheOp::Add { key, .. }
        | CacheOp::Sum { key } => shard_of_key(key, shards),
        CacheOp::List { .. } => ShardIndex(0),
    }
}

/// The shard of a key.
pub(crate) fn shard_of_key(key: &[u8], shards: u32) -> ShardIndex {
    Routing::Modulo.shard(Some(key), shards)
}

/// Lets the answers of a turn go. Those that want values which are not in memory go when these were read.
pub(super) fn finish(cell: &Arc<Cell>, answered: Vec<Answered>) {
    let mut to_read = Vec::new();
    for Answered {
        place,
        key,
        outcome,
    } in answered
    {
        match outcome {
            Ok(answer) if wants_values(&answer) => to_read.push((place, key, answer)),
            Ok(answer) => place.fill(Ok(answer)),
            Err(why) => place.fill(Err(refused(&why))),
        }
    }
    if to_read.is_empty() {
        return;
    }
    let reading = Arc::clone(cell);
    cell.blocking(move || {
        let log = reading.log().map(|log| log.reader());
        for (place, key, answer) in to_read {
            place.fill(fill_values(&reading, log.as_ref(), key.as_deref(), answer));
        }
    });
}

fn wants_values(answer: &CacheAnswer) -> bool {
    match answer {
        CacheAnswer::Value(found) | CacheAnswer::Deleted(found) => {
            found.as_ref().is_some_and(|found| found.value.is_none())
        }
        CacheAnswer::Page {
            rows, with_values, ..
        } => *with_values && rows.iter().any(|(_, found)| found.value.is_none()),
        CacheAnswer::Put { .. } | CacheAnswer::Unmet { .. } | CacheAnswer::Sum { .. } => false,
    }
}

/// Reads the values that an answer wants. Blocking.
fn fill_values(
    cell: &Cell,
    log: Option<&LogReader>,
    key: Option<&[u8]>,
    answer: CacheAnswer,
) -> Outcome {
    match answer {
        CacheAnswer::Value(Some(found)) => {
            let key = key.unwrap_or_default();
            Ok(CacheAnswer::Value(read_current(cell, log, key, found)?))
        }
        CacheAnswer::Deleted(Some(found)) => {
            let value = read_value(log, key.unwrap_or_default(), found.version)?;
            Ok(CacheAnswer::Deleted(Some(Found { value, ..found })))
        }
        CacheAnswer::Page {
            rows,
            more,
            upto,
            with_values,
        } => {
            let mut read = Vec::with_capacity(rows.len());
            for (key, found) in rows {
                let found = if found.value.is_some() {
                    Some(found)
                } else {
                    read_current(cell, log, &key, found)?
                };
                read.extend(found.map(|found| (key, found)));
            }
            Ok(CacheAnswer::Page {
                rows: read,
                more,
                upto,
                with_values,
            })
        }
        other @ (CacheAnswer::Value(None)
        | CacheAnswer::Deleted(None)
        | CacheAnswer::Put { .. }
        | CacheAnswer::Unmet { .. }
        | CacheAnswer::Sum { .. }) => Ok(other),
    }
}

/// How often an entry may be overwritten and compacted away between finding and reading it.
const ATTEMPTS: usize = 16;

/// The entry with its value, or what the key has by now. Blocking.
pub(super) fn read_current(
    cell: &Cell,
    log: Option<&LogReader>,
    key: &[u8],
    mut found: Found,
) -> Result<Option<Found>, Failure> {
    for _ in 0..ATTEMPTS {
        if found.value.is_some() {
            return Ok(Some(found));
        }
        if let Some(value) = read_value(log, key, found.version)? {
            cell.learn(key, found.version, &value);
            found.value = Some(value);
            return Ok(Some(found));
        }
        let current = cell.current(key);
        let Some((entry, value)) = current.filter(|(entry, _)| entry.is_live(now())) else {
            return Ok(None);
        };
        found = Found {
            version: entry.offset,
            expires: entry.expires,
            length: entry.length,
            value,
        };
    }
    Err(Failure::new(
        Code::ShardUnavailable,
        "the entry changed while it was read",
    )
    .with_reason("stale")
    .with_retry(Retry::Retry))
}

/// The value that the put at `offset` set; `None` when compaction removed it. Blocking.
///
/// # Errors
/// `storage`, when the log cannot be read, or has another key's record there.
pub(super) fn read_value(
    log: Option<&LogReader>,
    key: &[u8],
    offset: Offset,
) -> Result<Option<Bytes>, Failure> {
    let Some(log) = log else { return Ok(None) };
    match log.record(offset) {
        Ok(Some(record)) => value_of(record, key),
        Ok(None) | Err(ReadRefused::BelowStart { .. }) => Ok(None),
        Err(error) => Err(unreadable(offset, &error)),
    }
}

/// The value of a record that is to be a key's. An offset is never given to another record, so that one of another key
/// means that index and log do not belong together.
pub(super) fn value_of(record: Record, key: &[u8]) -> Result<Option<Bytes>, Failure> {
    if record.key.as_deref() == Some(key) {
        return Ok(record.value);
    }
    Err(unreadable(record.offset, &"the record is of another key"))
}

/// The log of a cache cannot be read.
pub(super) fn unreadable(offset: Offset, why: &dyn std::fmt::Display) -> Failure {
    let message = format!("the log cannot be read at offset {offset}: {why}");
    Failure::new(Code::Storage, message).with_retry(Retry::Retry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(keys: &[&str], more: bool) -> Outcome {
        let found = Found {
            version: Offset(1),
            expires: None,
            length: 2,
            value: Some(Bytes::from_static(b"vv")),
        };
        let row = |key: &&str| (Key::from(key.as_bytes()), found.clone());
        Ok(CacheAnswer::Page {
            rows: keys.iter().map(row).collect(),
            more,
            upto: keys
                .last()
                .filter(|_| more)
                .map(|key| Key::from(key.as_bytes())),
            with_values: true,
        })
    }

    fn merged(limit: usize, value_bytes: u64, pages: Vec<Outcome>) -> (String, bool) {
        let mut parts = Parts {
            pages,
            left: 0,
            limit,
            value_bytes,
            done: None,
        };
        let Ok(CacheAnswer::Page { rows, more, .. }) = parts.merge() else {
            panic!("a page");
        };
        let keys = rows.iter().map(|(key, _)| String::from_utf8_lossy(key));
        (keys.collect::<Vec<_>>().concat(), more)
    }

    #[test]
    fn a_list_over_many_shards_is_merged_into_one_page() {
        let pages = || vec![page(&["b", "e"], false), page(&["a", "d"], false)];
        assert_eq!(merged(9, 0, pages()), ("abde".into(), false));
        assert_eq!(merged(3, 0, pages()), ("abd".into(), true));
        assert_eq!(merged(9, 5, pages()), ("ab".into(), true));
        assert_eq!(merged(9, 1, pages()), ("a".into(), true));
        assert_eq!(merged(9, 0, vec![page(&["a"], true)]), ("a".into(), true));
        assert_eq!(merged(9, 0, vec![]), (String::new(), false));
    }

    #[test]
    fn a_list_over_shards_that_came_unequally_far_skips_nothing() {
        // The first shard was cut behind `c`, so it may have a `d` as well.
        let pages = || vec![page(&["a", "c"], true), page(&["b", "e"], false)];
        assert_eq!(merged(9, 0, pages()), ("abc".into(), true));
        assert_eq!(merged(9, 4, pages()), ("ab".into(), true));
        let pages = vec![page(&["b", "x"], true), page(&["a", "c"], true)];
        assert_eq!(merged(9, 0, pages), ("abc".into(), true));
    }

    #[test]
    fn pages_of_skewed_shards_are_all_of_the_keys() {
        // Keys of one shard have large values, those of the others small ones; each cuts its page by itself.
        let held = |shard: usize| -> Vec<String> {
            let own = (0..60_usize).filter(|key| key % 3 == shard);
            own.map(|key| format!("{key:02}")).collect()
        };
        let bytes = [1_u64, 7, 40];
        let shard_page = |shard: usize, after: &str| {
            let mut left = 50;
            let keys = held(shard).into_iter().filter(|key| key.as_str() > after);
            let keys: Vec<String> = keys.collect();
            let fits = keys.iter().take_while(|_| {
                left -= bytes[shard] as i64;
                left >= 0
            });
            let fits: Vec<&str> = fits.map(String::as_str).collect();
            let more = fits.len() < keys.len();
            page(&fits, more)
        };
        let (mut seen, mut after) = (String::new(), String::new());
        loop {
            let pages = (0..3).map(|shard| shard_page(shard, &after)).collect();
            let (keys, more) = merged(7, 0, pages);
            seen += &keys;
            if !more {
                break;
            }
            after = keys[keys.len() - 2..].to_owned();
        }
        let all: String = (0..60).map(|key| format!("{key:02}")).collect();
        assert_eq!(seen, all);
    }

    #[test]
    fn a_page_without_rows_is_asked_for_again_from_where_it_ended() {
        let list = || CacheOp::List {
            prefix: Bytes::new(),
            after: Some(Bytes::from_static(b"a")),
            limit: 5,
            value_bytes: 0,
        };
        let Ok(CacheAnswer::Page { upto, .. }) = page(&["k"], true) else {
            panic!("a page");
        };
        let emptied = Ok(CacheAnswer::Page {
            rows: Vec::new(),
            more: true,
            upto,
            with_values: false,
        });
        let Some(CacheOp::List { after, .. }) = go_on(&emptied, list()) else {
            panic!("a list");
        };
        assert_eq!(after.as_deref(), Some(&b"k"[..]));
        assert_eq!(go_on(&page(&["k"], true), list()), None);
        assert_eq!(go_on(&page(&[], false), list()), None);
    }

    #[test]
    fn a_value_is_taken_only_from_a_record_of_its_key() {
        let record = |key: &'static [u8]| Record {
            offset: Offset(7),
            timestamp_ms: 0,
            key: Some(Bytes::from_static(key)),
            value: Some(Bytes::from_static(b"v")),
            headers: Default::default(),
            internal: Default::default(),
        };
        let value = value_of(record(b"k"), b"k").unwrap();
        assert_eq!(value.as_deref(), Some(&b"v"[..]));
        assert!(value_of(record(b"other"), b"k").is_err());
    }

    #[test]
    fn a_list_is_answered_once_and_by_its_last_shard() {
        let (sender, mut receiver) = oneshot::channel();
        let gather = Gather(Mutex::new(Parts {
            pages: Vec::new(),
            left: 2,
            limit: 9,
            value_bytes: 0,
            done: Some(Box::new(move |outcome| drop(sender.send(outcome)))),
        }));
        gather.add(page(&["a"], false));
        assert!(receiver.try_recv().is_err());
        gather.add(Err(Failure::new(Code::Storage, "unreadable")));
        assert!(receiver.try_recv().unwrap().is_err());
    }
}
