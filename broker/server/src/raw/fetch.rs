//! Fetching whole batches of many shards: from memory at once, from the log on a thread that may block, and later when
//! there is not enough yet.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use felix_engine::Batch;
use felix_journal::ReadRefused;
use felix_model::forms::shown;
use felix_model::{BatchHeader, Incarnation, Offset, ShardIndex};
use felix_wire::error::{Code, Failure};
use felix_wire::extension::Refused;
use felix_wire::extension::raw::{
    EpochEnd, FetchHead, FetchShard, FetchedShard, RawError, RawFetch,
};
use felix_wire::extension::requests::List;
use felix_wire::publish::Names;
use tokio::time::Instant;

use super::lookup::{blocking, end_of};
use super::watch::Watch;
use super::{Shard, own_tenant, same_generation};
use crate::broker::Shared;
use crate::conn::calls::Caller;
use crate::conn::stream::StreamState;
use crate::events::log;
use crate::limits::{FETCH_BYTES_MAX, FETCH_SHARDS_MAX, FETCH_WAIT_MAX, FETCHED_UNREAD_BYTES};
use crate::shards::cell::{Cell, Marks};

/// Bytes of one batch that fit a frame beside the answers of a fetch.
const BATCH_BYTES_MAX: usize = felix_wire::limits::PAYLOAD_BYTES_MAX - 2 * 1024 * 1024;

/// One shard that is fetched, or why it is not.
#[derive(Debug)]
struct Target {
    ask: FetchShard,
    shard: Result<Shard, RawError>,
}

/// A fetch whose names were looked up.
#[derive(Debug)]
struct Fetch {
    shared: Arc<Shared>,
    targets: Vec<Target>,
    max_bytes: usize,
    min_bytes: usize,
}

/// What a look at every shard came to.
#[derive(Debug, Default)]
struct Collected {
    shards: Vec<FetchedShard>,
    batches: Vec<Bytes>,
    bytes: usize,
    has_error: bool,
    cells: Vec<Arc<Cell>>,
}

/// What a look at one shard came to.
#[derive(Debug)]
struct Found {
    marks: Marks,
    batches: Vec<Bytes>,
}

pub(super) async fn fetch(state: &mut StreamState, names: &Names, ask: RawFetch, caller: Caller) {
    let deadline =
        Instant::now() + Duration::from_millis(ask.max_wait_ms.into()).min(FETCH_WAIT_MAX);
    let fetch = match prepare(state, names, &ask).await {
        Ok(fetch) => fetch,
        Err(failure) => return caller.fail(failure),
    };
    // Most fetches of a busy stream are answered at once, and need no task.
    let found = match fetch.in_memory() {
        Some(found) if found.has_error || found.bytes >= fetch.min_bytes => {
            return answer(caller, found);
        }
        found => found,
    };
    let waits = deadline > Instant::now();
    if let Some(found) = found.filter(|_| !waits) {
        return answer(caller, found);
    }
    let gone = state.gone.clone();
    state.conn.tasks.spawn(async move {
        tokio::select! {
            biased;
            () = gone.cancelled() => {}
            () = later(fetch, caller, deadline) => {}
        }
    });
}

/// Looks the names up. What is wrong with one of them is its own answer.
async fn prepare(state: &mut StreamState, names: &Names, ask: &RawFetch) -> Result<Fetch, Failure> {
    own_tenant(state, names.tenant())?;
    let shards: usize = ask.streams.iter().map(|stream| stream.shards.len()).sum();
    if shards > FETCH_SHARDS_MAX {
        let message = format!("{shards} shards in one fetch, the limit is {FETCH_SHARDS_MAX}");
        return Err(Failure::new(Code::LimitExceeded, message));
    }
    let mut targets = Vec::with_capacity(shards);
    for stream in ask.streams.iter() {
        let routed = state
            .route_fetch(stream.namespace.as_str(), stream.stream.as_str())
            .await;
        let handle = routed.map_err(|failure| RawError::of(&Refused::from(failure)));
        let handle = handle.and_then(|handle| {
            let same = stream.incarnation == 0
                || handle.spec().incarnation == Incarnation(stream.incarnation);
            same.then_some(handle).ok_or(RawError::UnknownTopicId)
        });
        for ask in stream.shards.iter() {
            let index = ShardIndex(ask.shard);
            let shard = handle.clone().map(|handle| Shard { handle, index });
            targets.push(Target { ask, shard });
        }
    }
    Ok(Fetch {
        shared: Arc::clone(&state.conn.shared),
        targets,
        max_bytes: (ask.max_bytes as usize).min(FETCH_BYTES_MAX),
        min_bytes: ask.min_bytes as usize,
    })
}

/// Answers a fetch that has to wait for the log, for a shard to be opened, or for a commit.
async fn later(fetch: Fetch, caller: Caller, deadline: Instant) {
    let mut watch = None;
    loop {
        let has_room = caller.unsent() < FETCHED_UNREAD_BYTES;
        let found = fetch.everywhere(has_room).await;
        let over = Instant::now() >= deadline;
        if found.has_error || found.bytes >= fetch.min_bytes || over {
            return answer(caller, found);
        }
        match &watch {
            // What was committed since the first look is seen by the second, which comes at once.
            None => watch = Some(Watch::new(found.cells.iter())),
            Some(watch) => {
                watch.woken(deadline).await;
            }
        }
    }
}

impl Fetch {
    /// What the shards have in memory; `None` when one of them has to be opened, or read.
    fn in_memory(&self) -> Option<Collected> {
        let mut collected = Collected::default();
        for Target { ask, shard } in &self.targets {
            let Ok(shard) = shard else {
                collected.refuse(shard.as_ref().err().copied());
                continue;
            };
            let cell = shard.handle.open_cell(shard.index)?;
            if is_of_earlier(ask, &cell) {
                return None;
            }
            let room = self.room(&collected, ask);
            let looked = look(&cell, ask, room)?;
            collected.take(looked, ask);
        }
        Some(collected)
    }

    /// What the shards have.
    async fn everywhere(&self, has_room: bool) -> Collected {
        let mut collected = Collected::default();
        for Target { ask, shard } in &self.targets {
            let shard = match shard {
                Ok(shard) => shard,
                Err(error) => {
                    collected.refuse(Some(*error));
                    continue;
                }
            };
            let cell = match shard.cell(&self.shared).await {
                Ok(cell) => cell,
                Err(failure) => {
                    collected.refuse(Some(RawError::of(&failure.into())));
                    continue;
                }
            };
            let room = if has_room {
                self.room(&collected, ask)
            } else {
                Room::NONE
            };
            match parting(&cell, ask).await {
                Ok(None) => {
                    let looked = match look(&cell, ask, room) {
                        Some(looked) => looked,
                        None => read(&cell, ask, room).await,
                    };
                    collected.take(looked, ask);
                }
                Ok(Some(end)) => collected.part(cell.marks(), &end),
                Err(error) => collected.refuse(Some(error)),
            }
            collected.cells.push(cell);
        }
        collected
    }

    fn room(&self, collected: &Collected, ask: &FetchShard) -> Room {
        let left = self.max_bytes.saturating_sub(collected.bytes);
        Room {
            bytes: left.min(ask.max_bytes as usize),
            // The first that has anything sends a batch however long it is.
            one_at_least: collected.bytes == 0,
        }
    }
}

/// How much of a shard may go into the reply.
#[derive(Clone, Copy, Debug)]
struct Room {
    bytes: usize,
    one_at_least: bool,
}

impl Room {
    const NONE: Self = Self {
        bytes: 0,
        one_at_least: false,
    };

    fn is_none(self) -> bool {
        self.bytes == 0 && !self.one_at_least
    }

    /// As many of these as there is room for.
    fn cut(self, mut batches: Vec<Bytes>) -> Vec<Bytes> {
        let mut bytes = 0;
        let fit = batches.iter().take_while(|batch| {
            let first = bytes == 0 && self.one_at_least;
            bytes += batch.len();
            first || bytes <= self.bytes
        });
        let fit = fit.count();
        batches.truncate(fit);
        batches
    }
}

impl Collected {
    fn refuse(&mut self, error: Option<RawError>) {
        self.has_error = true;
        self.shards.push(FetchedShard {
            error: error.map_or(0, RawError::number),
            high_watermark: u64::MAX,
            stable: u64::MAX,
            start: u64::MAX,
            diverging: None,
            diverging_end: 0,
            bytes: 0,
        });
    }

    /// The asker's log is no beginning of ours, which is told at once.
    fn part(&mut self, marks: Marks, end: &EpochEnd) {
        self.has_error = true;
        self.shards.push(FetchedShard {
            error: 0,
            high_watermark: marks.committed.0,
            stable: marks.committed.0,
            start: marks.start.0,
            diverging: Some(end.generation.cast_unsigned()),
            diverging_end: end.end.cast_unsigned(),
            bytes: 0,
        });
    }

    fn take(&mut self, looked: Result<Found, RawError>, ask: &FetchShard) {
        let Found { marks, batches } = match looked {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(shard = ask.shard, ?error, "a shard is not fetched");
                return self.refuse(Some(error));
            }
        };
        let bytes: usize = batches.iter().map(Bytes::len).sum();
        self.bytes += bytes;
        self.batches.extend(batches);
        self.shards.push(FetchedShard {
            error: 0,
            high_watermark: marks.committed.0,
            stable: marks.committed.0,
            start: marks.start.0,
            diverging: None,
            diverging_end: 0,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        });
    }
}

/// Whether the asker's last record is of an earlier generation than the shard's, so that its log may end otherwise.
fn is_of_earlier(ask: &FetchShard, cell: &Cell) -> bool {
    let current = u64::from(cell.generation().0);
    ask.last_generation.is_some_and(|last| last < current)
}

/// Where the asker's log and ours part, if they do: its last record is of a generation that ended here before it.
async fn parting(cell: &Arc<Cell>, ask: &FetchShard) -> Result<Option<EpochEnd>, RawError> {
    let (Some(of), Some(log)) = (ask.last_generation, cell.log()) else {
        return Ok(None);
    };
    if !is_of_earlier(ask, cell) {
        return Ok(None);
    }
    let (marks, reader) = (cell.marks(), log.reader());
    let end = blocking(move || end_of(&reader, of, marks.start, marks.committed)).await?;
    let is_before = |number: i64, other: u64| u64::try_from(number).is_ok_and(|it| it < other);
    let parts = is_before(end.generation, of) || is_before(end.end, ask.offset);
    // What lies before the start is not known any more.
    Ok(Some(end).filter(|_| parts && Offset(ask.offset) > marks.start))
}

/// What is in memory of a shard; `None` when the log has to be read.
fn look(cell: &Arc<Cell>, ask: &FetchShard, room: Room) -> Option<Result<Found, RawError>> {
    if let Err(error) = same_generation(ask.generation, cell) {
        return Some(Err(error));
    }
    let from = Offset(ask.offset);
    let (marks, recent) = cell.recent(from, room.bytes as u64);
    if from < marks.start || from > marks.committed {
        return Some(Err(RawError::OffsetOutOfRange));
    }
    let nothing = Found {
        marks,
        batches: Vec::new(),
    };
    if from == marks.committed || room.is_none() {
        return Some(Ok(nothing));
    }
    Some(found(marks, &recent?, room))
}

fn found(marks: Marks, batches: &[Arc<Batch>], room: Room) -> Result<Found, RawError> {
    let raw = batches.iter().map(|batch| raw(batch));
    let raw: Vec<Bytes> = raw.collect::<Result<_, _>>()?;
    // No frame could carry it.
    if raw
        .first()
        .is_some_and(|first| first.len() > BATCH_BYTES_MAX)
    {
        return Err(RawError::MessageTooLarge);
    }
    Ok(Found {
        marks,
        batches: room.cut(raw),
    })
}

/// A batch as it stands in the log, without what the broker keeps beside the records.
fn raw(batch: &Batch) -> Result<Bytes, RawError> {
    let unreadable = |error: &dyn std::fmt::Display| {
        tracing::error!(offset = batch.base.0, %error, "a stored batch cannot be fetched");
        RawError::CorruptMessage
    };
    let log = log(batch).map_err(|error| unreadable(&error))?;
    let header = BatchHeader::parse(&log).map_err(|error| unreadable(&error))?;
    if !header.is_internal() {
        return Ok(log);
    }
    if let Some(shown) = batch.shown() {
        return Ok(shown.clone());
    }
    let shown = shown(&log).map_err(|error| unreadable(&error))?;
    Ok(batch.shown_or(|| shown).clone())
}

/// Reads a shard's log.
async fn read(cell: &Arc<Cell>, ask: &FetchShard, room: Room) -> Result<Found, RawError> {
    let Some(log) = cell.log() else {
        // What an in-memory stream does not hold any more is gone.
        return Err(RawError::OffsetOutOfRange);
    };
    let cell = Arc::clone(cell);
    let from = Offset(ask.offset);
    let reading = tokio::task::spawn_blocking(move || {
        let until = cell.marks().committed;
        let page = match log.reader().read(from, room.bytes, until) {
            Ok(page) => page,
            Err(ReadRefused::BelowStart { .. } | ReadRefused::PastEnd { .. }) => {
                return Err(RawError::OffsetOutOfRange);
            }
            Err(error @ (ReadRefused::Io(_) | ReadRefused::Damaged(_))) => {
                tracing::error!(%error, offset = from.0, "a fetch cannot be served from the log");
                return Err(RawError::StorageError);
            }
        };
        let batches = page.batches.into_iter();
        let batches = batches.map(|log| Batch::from_log(log).map(Arc::new));
        let batches: Vec<_> = batches
            .collect::<Result<_, _>>()
            .map_err(|_| RawError::CorruptMessage)?;
        found(cell.marks(), &batches, room)
    });
    reading.await.unwrap_or(Err(RawError::StorageError))
}

fn answer(caller: Caller, found: Collected) {
    let Collected {
        shards,
        batches,
        bytes,
        ..
    } = found;
    match List::build(shards) {
        Ok(shards) => caller.answer_fetch(FetchHead { shards, bytes }, batches),
        Err(error) => caller.fail(Failure::new(Code::LimitExceeded, error.to_string())),
    }
}
