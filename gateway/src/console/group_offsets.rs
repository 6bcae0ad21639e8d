//! Moving a group: first what would happen, then exactly what was shown.

use axum::Json;
use axum::extract::{Path, Query};
use felix_client::{Client, Start};
use serde::{Deserialize, Serialize};

use super::caller::Caller;
use super::groups::{self, Standing};
use super::limits::GROUP_SHARDS;
use super::records::Log;
use super::refusal::Refusal;
use super::streams::{self, Shard};

/// Where a group stands on a shard, and where it would stand or stands then.
#[derive(Debug, Serialize)]
pub(super) struct Move {
    shard: u32,
    current: Option<u64>,
    start: u64,
    end: u64,
    target: u64,
    moved: bool,
}

/// Moves, shard by shard.
#[derive(Debug, Serialize)]
pub(super) struct Moves {
    moves: Vec<Move>,
}

/// Where a group would go.
#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    to: String,
    shard: Option<u32>,
}

/// Where a group goes: the offsets that a plan showed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Agreed {
    offsets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    shard: u32,
    offset: u64,
}

type Names = Path<(String, String, String)>;

/// What a move would do. Changes nothing.
pub(super) async fn plan(
    caller: Caller,
    Path((namespace, stream, group)): Names,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Moves>, Refusal> {
    let client = caller.client(&namespace).await?;
    let found = Found::look(&client, &namespace, &stream, &group).await?;
    let mut moves = Vec::new();
    for (standing, shard) in found.pairs(wanted.shard)? {
        let log = Log {
            client: &client,
            namespace: &namespace,
            stream: &stream,
            shard: shard.shard,
        };
        let target = log.place(&wanted.to, shard).await?;
        moves.push(Move::of(standing, shard, target));
    }
    Ok(Json(Moves { moves }))
}

/// Moves a group to the offsets that were shown, and voids its claims.
pub(super) async fn seek(
    caller: Caller,
    Path((namespace, stream, group)): Names,
    Json(agreed): Json<Agreed>,
) -> Result<Json<Moves>, Refusal> {
    if agreed.offsets.is_empty() || agreed.offsets.len() > GROUP_SHARDS as usize {
        return Err(Refusal::invalid(format!("name 1 to {GROUP_SHARDS} shards")));
    }
    let client = caller.client(&namespace).await?;
    let found = Found::look(&client, &namespace, &stream, &group).await?;
    // Everything is looked at before anything is moved.
    let mut moves = Vec::new();
    for target in &agreed.offsets {
        let pairs = found.pairs(Some(target.shard))?;
        for (standing, shard) in pairs {
            if !(shard.start..=shard.end).contains(&target.offset) {
                let message = format!(
                    "offset {} lies outside {}..={} of shard {}; make a new plan",
                    target.offset, shard.start, shard.end, target.shard
                );
                return Err(Refusal::invalid(message));
            }
            moves.push(Move::of(standing, shard, target.offset));
        }
    }
    let handle = client.group(&stream, &group)?;
    for one in &mut moves {
        let position = handle.seek(one.shard, Start::Offset(one.target)).await?;
        one.target = position.offset;
        one.moved = position.moved;
    }
    Ok(Json(Moves { moves }))
}

/// A group and the shards it reads.
struct Found {
    standings: Vec<Standing>,
    shards: Vec<Shard>,
}

impl Found {
    async fn look(
        client: &Client,
        namespace: &str,
        stream: &str,
        group: &str,
    ) -> Result<Self, Refusal> {
        let shards = streams::look(client, namespace, stream).await?.shards;
        let standings = groups::look(client, stream, group).await?.shards;
        Ok(Self { standings, shards })
    }

    /// Standings with their shards: of one shard, or of all.
    fn pairs(&self, only: Option<u32>) -> Result<Vec<(&Standing, &Shard)>, Refusal> {
        let wanted = |shard: u32| only.is_none_or(|only| only == shard);
        let pairs = self
            .standings
            .iter()
            .filter(|standing| wanted(standing.shard));
        let pairs: Vec<_> = pairs
            .filter_map(|standing| {
                let shard = self
                    .shards
                    .iter()
                    .find(|shard| shard.shard == standing.shard)?;
                Some((standing, shard))
            })
            .collect();
        match (only, pairs.is_empty()) {
            (Some(shard), true) => Err(Refusal::invalid(format!("there is no shard {shard}"))),
            _ => Ok(pairs),
        }
    }
}

impl Move {
    fn of(standing: &Standing, shard: &Shard, target: u64) -> Self {
        Self {
            shard: shard.shard,
            current: standing.committed,
            start: shard.start,
            end: shard.end,
            target,
            moved: false,
        }
    }
}
