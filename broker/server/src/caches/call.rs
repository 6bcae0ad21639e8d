//! One call: many ops at once, over all shards of a cache, answered together.
//!
//! No task and no channel is made for it. Whoever settles the last op, most often a journal thread or the caller
//! himself, runs what the caller gave along.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use felix_engine::cache::{CacheAnswer, CacheOp, CacheRefused, Found, LIST_MAX};
use felix_engine::keyed::Key;
use felix_journal::{LogReader, ReadRefused};
use felix_model::{Offset, Records, Routing, ShardIndex};
use felix_wire::error::{Code, Failure, Retry};

use super::cell::{Asked, Cell};
use super::{CacheHandle, Caches, refused};

/// What came of one op. Values are there: what was not in memory was read.
pub(crate) type Outcome = Result<CacheAnswer, Failure>;

/// What a caller wants done with the outcomes, which are in the order of his ops. It must not block.
pub(crate) type Done = Box<dyn FnOnce(Vec<Outcome>) + Send>;

/// Where the outcome of one op, or of its part in one shard, goes.
#[derive(Debug)]
pub(crate) struct Place {
    gather: Arc<Gather>,
    index: usize,
}

/// The outcomes of a call as they come in.
pub(crate) struct Gather {
    state: Mutex<State>,
}

struct State {
    outcomes: Vec<Option<Outcome>>,
    left: usize,
    /// Lists that were asked of several shards.
    lists: Vec<Merge>,
    done: Option<Done>,
}

/// A list over all shards: which outcomes are its parts.
#[derive(Clone, Copy)]
struct Merge {
    /// Index of the first part; the others are the last ones of the outcomes.
    first: usize,
    rest: usize,
    parts: usize,
    limit: usize,
    value_bytes: u64,
}

impl std::fmt::Debug for Gather {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gather").finish_non_exhaustive()
    }
}

/// An op that the core answered.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) place: Place,
    /// Of a get.
    pub(crate) key: Option<Bytes>,
    pub(crate) outcome: Result<CacheAnswer, CacheRefused>,
}

impl Place {
    fn fill(self, outcome: Outcome) {
        let mut state = self
            .gather
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = state.outcomes.get_mut(self.index)
            && slot.is_none()
        {
            *slot = Some(outcome);
            state.left -= 1;
        }
        if state.left > 0 {
            return;
        }
        let Some(done) = state.done.take() else {
            return;
        };
        let outcomes = state.finish();
        drop(state);
        done(outcomes);
    }
}

impl State {
    fn finish(&mut self) -> Vec<Outcome> {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        for merge in self.lists.drain(..).rev() {
            let others = outcomes.split_off(merge.rest);
            debug_assert_eq!(others.len() + 1, merge.parts);
            if let Some(first) = outcomes.get_mut(merge.first) {
                let parts = std::iter::once(first.take()).chain(others);
                *first = Some(merged(parts.flatten(), merge));
            }
        }
        let lost = || Err(Failure::new(Code::Internal, "an answer was lost"));
        outcomes
            .into_iter()
            .map(|outcome| outcome.unwrap_or_else(lost))
            .collect()
    }
}

/// One page of what several shards listed.
fn merged(parts: impl Iterator<Item = Outcome>, merge: Merge) -> Outcome {
    let mut all: Vec<(Key, Found)> = Vec::new();
    let mut more = false;
    for part in parts {
        if let CacheAnswer::Page {
            rows, more: others, ..
        } = part?
        {
            all.extend(rows);
            more |= others;
        }
    }
    all.sort_unstable_by(|(one, _), (two, _)| one.cmp(two));
    let with_values = merge.value_bytes > 0;
    let mut bytes = 0;
    let fits = all.iter().take(merge.limit).take_while(|(_, found)| {
        bytes += u64::from(found.length);
        !with_values || bytes <= merge.value_bytes
    });
    let whole = fits.count().max(usize::from(merge.limit > 0)).min(all.len());
    more |= all.len() > whole;
    all.truncate(whole);
    Ok(CacheAnswer::Page {
        rows: all,
        more,
        with_values,
    })
}

/// Carries out ops on a cache, whose shards are opened if need be, and then runs `done` with the outcomes. Ops on one
/// shard become one batch, in order; nothing is promised about the order between shards.
///
/// Whether the caller may is not asked here; see [`super::check`].
pub(crate) async fn call(
    caches: &Arc<Caches>,
    handle: &Arc<CacheHandle>,
    ops: Vec<CacheOp>,
    done: Done,
) {
    let shards = handle.spec().shards;
    let mut plan = Plan::new(shards, ops);
    let gather = Arc::new(Gather {
        state: Mutex::new(State {
            left: plan.count.max(1),
            outcomes: (0..plan.count.max(1)).map(|_| None).collect(),
            lists: std::mem::take(&mut plan.lists),
            done: Some(done),
        }),
    });
    if plan.count == 0 {
        let mut state = gather.state.lock().unwrap_or_else(PoisonError::into_inner);
        let done = state.done.take();
        drop(state);
        return done.into_iter().for_each(|done| done(Vec::new()));
    }
    for (shard, ops) in plan.by_shard {
        let cell = match handle.open_cell(shard) {
            Some(cell) => Ok(cell),
            None => caches.open(handle, shard).await,
        };
        let asked = ops.into_iter().map(|(index, op)| Asked {
            op,
            place: Place {
                gather: Arc::clone(&gather),
                index,
            },
        });
        match cell {
            Ok(cell) => cell.ask(asked),
            Err(why) => asked.for_each(|asked| asked.place.fill(Err(why.failure()))),
        }
    }
}

/// Which op goes to which shard.
struct Plan {
    by_shard: Vec<(ShardIndex, Vec<(usize, CacheOp)>)>,
    /// Outcomes that will come.
    count: usize,
    lists: Vec<Merge>,
}

impl Plan {
    fn new(shards: u32, ops: Vec<CacheOp>) -> Self {
        let mut plan = Self {
            by_shard: Vec::new(),
            count: ops.len(),
            lists: Vec::new(),
        };
        for (index, op) in ops.into_iter().enumerate() {
            match shard_of(&op, shards) {
                Some(shard) => plan.put(shard, index, op),
                None => plan.list(shards, index, &op),
            }
        }
        plan
    }

    fn put(&mut self, shard: ShardIndex, index: usize, op: CacheOp) {
        match self.by_shard.iter_mut().find(|(held, _)| *held == shard) {
            Some((_, ops)) => ops.push((index, op)),
            None => self.by_shard.push((shard, vec![(index, op)])),
        }
    }

    fn list(&mut self, shards: u32, index: usize, op: &CacheOp) {
        let CacheOp::List {
            limit, value_bytes, ..
        } = op
        else {
            return;
        };
        self.lists.push(Merge {
            first: index,
            rest: self.count,
            parts: shards as usize,
            limit: (*limit).min(LIST_MAX) as usize,
            value_bytes: *value_bytes,
        });
        self.put(ShardIndex(0), index, op.clone());
        for shard in 1..shards {
            self.put(ShardIndex(shard), self.count, op.clone());
            self.count += 1;
        }
    }
}

/// The shard of an op; `None`: all of them.
fn shard_of(op: &CacheOp, shards: u32) -> Option<ShardIndex> {
    let key = match op {
        CacheOp::Get { key }
        | CacheOp::Put { key, .. }
        | CacheOp::Delete { key, .. }
        | CacheOp::Add { key, .. }
        | CacheOp::Sum { key } => key,
        CacheOp::List { .. } => return (shards <= 1).then_some(ShardIndex(0)),
    };
    Some(super::shard_of_key(key, shards))
}

/// The shard of a key.
pub(super) fn route(key: &[u8], shards: u32) -> ShardIndex {
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
            let value = read_value(log, found.version)?;
            Ok(CacheAnswer::Deleted(Some(Found { value, ..found })))
        }
        CacheAnswer::Page {
            rows,
            more,
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
        if let Some(value) = read_value(log, found.version)? {
            cell.learn(key, found.version, &value);
            found.value = Some(value);
            return Ok(Some(found));
        }
        let Some((entry, value)) = cell.current(key) else {
            return Ok(None);
        };
        found = Found {
            version: entry.offset,
            expires: entry.expires,
            length: entry.length,
            value,
        };
    }
    Err(
        Failure::new(Code::ShardUnavailable, "the entry changed while it was read")
            .with_reason("stale")
            .with_retry(Retry::Retry),
    )
}

/// The value that the put at `offset` set; `None` when compaction removed it. Blocking.
///
/// # Errors
/// `storage`, when the log cannot be read.
pub(super) fn read_value(
    log: Option<&LogReader>,
    offset: Offset,
) -> Result<Option<Bytes>, Failure> {
    let Some(log) = log else { return Ok(None) };
    let page = match log.read(offset, 1, log.end()) {
        Ok(page) => page,
        Err(ReadRefused::BelowStart { .. }) => return Ok(None),
        Err(error) => return Err(unreadable(offset, &error)),
    };
    let Some(batch) = page.batches.first() else {
        return Ok(None);
    };
    for record in Records::new(batch).map_err(|error| unreadable(offset, &error))? {
        let record = record.map_err(|error| unreadable(offset, &error))?;
        if record.offset >= offset {
            return Ok(record.value.filter(|_| record.offset == offset));
        }
    }
    Ok(None)
}

/// The log of a cache cannot be read.
pub(super) fn unreadable(offset: Offset, why: &dyn std::fmt::Display) -> Failure {
    let message = format!("the log cannot be read at offset {offset}: {why}");
    Failure::new(Code::Storage, message).with_retry(Retry::Retry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_over_many_shards_is_merged_into_one_page() {
        let list = CacheOp::List {
            prefix: Bytes::new(),
            after: None,
            limit: 3,
            value_bytes: 0,
        };
        let get = CacheOp::Get {
            key: Bytes::from_static(b"k"),
        };
        let plan = Plan::new(3, vec![get.clone(), list.clone(), get, list]);
        assert_eq!(plan.count, 8);
        let found = |version| Found {
            version: Offset(version),
            expires: None,
            length: 0,
            value: Some(Bytes::new()),
        };
        let page = |keys: &[&str], more| {
            let rows = keys
                .iter()
                .map(|key| (Key::from(key.as_bytes()), found(1)))
                .collect();
            let with_values = false;
            Some(Ok(CacheAnswer::Page {
                rows,
                more,
                with_values,
            }))
        };
        let value = || Some(Ok(CacheAnswer::Value(None)));
        let mut state = State {
            outcomes: vec![
                value(),
                page(&["b", "e"], false),
                value(),
                page(&["a"], true),
                page(&["a", "d"], false),
                page(&["c"], false),
                page(&[], false),
                page(&["b"], false),
            ],
            left: 0,
            lists: plan.lists,
            done: None,
        };
        let outcomes = state.finish();
        assert_eq!(outcomes.len(), 4);
        let keys = |outcome: &Outcome| match outcome.as_ref().unwrap() {
            CacheAnswer::Page { rows, more, .. } => {
                let keys = rows.iter().map(|(key, _)| String::from_utf8_lossy(key).into());
                (keys.collect::<Vec<String>>().join(""), *more)
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(keys(&outcomes[1]), ("abc".into(), true));
        assert_eq!(keys(&outcomes[3]), ("ab".into(), true));
    }
}
