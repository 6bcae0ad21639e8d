//! What a group could not process.

use axum::Json;
use axum::extract::{Path, Query};
use felix_client::DeadLetter;
use serde::{Deserialize, Serialize};

use super::caller::Caller;
use super::limits::{KEY_BYTES, LETTERS, PREVIEW_BYTES};
use super::refusal::Refusal;
use super::shown::{Extent, Header, Listing, Shown, cut, headers};

/// Letters that one call moves.
const MOVED: usize = 1_000;

/// One record that was set aside.
#[derive(Debug, Serialize)]
pub(super) struct Letter {
    shard: u32,
    offset: u64,
    attempts: u32,
    reason: String,
    set_aside_at_ms: i64,
    timestamp_ms: i64,
    key: Option<Shown>,
    value: Option<Shown>,
    headers: Vec<Header>,
}

/// Which letters.
#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    #[serde(default)]
    shard: u32,
    after: Option<u64>,
    limit: Option<usize>,
}

/// Which letters are moved. All of them at once are not: somebody may set others aside meanwhile.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Chosen {
    shard: u32,
    offsets: Vec<u64>,
}

/// What became of them.
#[derive(Debug, Serialize)]
pub(super) struct Moved {
    count: u64,
    missing: Vec<u64>,
}

type Names = Path<(String, String, String)>;

/// Letters of a shard, ascending.
pub(super) async fn list(
    caller: Caller,
    Path((namespace, stream, group)): Names,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Listing<Letter>>, Refusal> {
    let limit = wanted.limit.unwrap_or(LETTERS).clamp(1, LETTERS);
    let group = caller.client(&namespace).await?.group(&stream, &group)?;
    let mut found = group
        .dead_letters(wanted.shard, wanted.after, limit + 1)
        .await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found
        .last()
        .filter(|_| more)
        .map(|letter| letter.offset.to_string());
    let letter = |letter| Letter::of(wanted.shard, letter);
    Ok(Json(Listing {
        items: found.iter().map(letter).collect(),
        next,
    }))
}

/// Hands letters out again.
pub(super) async fn redrive(
    caller: Caller,
    Path((namespace, stream, group)): Names,
    Json(chosen): Json<Chosen>,
) -> Result<Json<Moved>, Refusal> {
    chosen.check()?;
    let group = caller.client(&namespace).await?.group(&stream, &group)?;
    let moved = group.redrive(chosen.shard, Some(&chosen.offsets)).await?;
    let (count, missing) = (moved.count, moved.missing);
    Ok(Json(Moved { count, missing }))
}

/// Drops letters for good.
pub(super) async fn discard(
    caller: Caller,
    Path((namespace, stream, group)): Names,
    Json(chosen): Json<Chosen>,
) -> Result<Json<Moved>, Refusal> {
    chosen.check()?;
    let group = caller.client(&namespace).await?.group(&stream, &group)?;
    let moved = group.discard(chosen.shard, Some(&chosen.offsets)).await?;
    let (count, missing) = (moved.count, moved.missing);
    Ok(Json(Moved { count, missing }))
}

impl Chosen {
    fn check(&self) -> Result<(), Refusal> {
        match self.offsets.len() {
            1..=MOVED => Ok(()),
            _ => Err(Refusal::invalid(format!("name 1 to {MOVED} offsets"))),
        }
    }
}

impl Letter {
    fn of(shard: u32, letter: &DeadLetter) -> Self {
        let pairs = letter.headers.iter();
        let pairs = pairs.map(|(name, value)| (name.as_ref(), value.as_deref()));
        Self {
            shard,
            offset: letter.offset,
            attempts: letter.attempts,
            reason: letter.reason.clone(),
            set_aside_at_ms: letter.set_aside_at_ms,
            timestamp_ms: letter.timestamp_ms,
            key: letter.key.as_deref().map(|key| cut(key, KEY_BYTES)),
            value: letter
                .value
                .as_deref()
                .map(|value| cut(value, PREVIEW_BYTES)),
            headers: headers(pairs, Extent::Preview),
        }
    }
}
