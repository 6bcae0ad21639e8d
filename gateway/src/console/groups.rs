//! Consumer groups: how far they are on every shard.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, Query};
use felix_client::{CallFailed, Client, GroupStanding};
use futures_util::stream::{self, StreamExt as _};
use serde::{Deserialize, Serialize};

use super::caller::Caller;
use super::limits::{GROUP_SHARDS, GROUP_STREAMS};
use super::refusal::Refusal;
use super::shown::Listing;
use super::streams::{Part, names};

/// Calls that a listing has under way.
const AT_ONCE: usize = 8;

/// How a group is doing on one shard.
#[derive(Debug, Serialize)]
pub(super) struct Standing {
    pub(super) shard: u32,
    pub(super) committed: Option<u64>,
    pub(super) tail: u64,
    lag: u64,
    in_flight: u64,
    owed: u64,
    dead_letters: u64,
}

/// One group.
#[derive(Debug, Serialize)]
pub(super) struct Group {
    stream: String,
    group: String,
    pub(super) shards: Vec<Standing>,
}

/// Which groups.
#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    /// Only those of one stream.
    stream: Option<String>,
    after: Option<String>,
}

impl Standing {
    fn of(shard: u32, found: &GroupStanding) -> Self {
        Self {
            shard,
            committed: found.committed,
            tail: found.tail,
            lag: found.lag,
            in_flight: found.in_flight,
            owed: found.owed,
            dead_letters: found.dead_letters,
        }
    }
}

/// The groups of a stream, or of the streams of a namespace, some streams at a time.
pub(super) async fn list(
    caller: Caller,
    Path(namespace): Path<String>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Listing<Group>>, Refusal> {
    let client = caller.client(&namespace).await?;
    if let Some(stream) = wanted.stream {
        return Ok(Json(Listing::whole(of_stream(&client, &stream).await?)));
    }
    let part = Part {
        after: wanted.after,
        limit: u32::try_from(GROUP_STREAMS).ok(),
    };
    let (names, next) = names(&client, &namespace, &part).await?;
    let looks = names.into_iter().map(|stream| {
        let client = client.clone();
        async move { of_stream(&client, &stream).await }
    });
    let mut looks = stream::iter(looks).buffered(AT_ONCE);
    let mut items = Vec::new();
    while let Some(found) = looks.next().await {
        match found {
            Ok(groups) => items.extend(groups),
            // A stream that one may publish to and not read shows no groups.
            Err(refusal) if matches!(refusal.code(), "forbidden" | "not_found") => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(Json(Listing { items, next }))
}

async fn of_stream(client: &Client, stream: &str) -> Result<Vec<Group>, Refusal> {
    let width = client.stream_shards(stream).await?;
    let mut groups: BTreeMap<String, Vec<Standing>> = BTreeMap::new();
    for shard in 0..width.shards.min(GROUP_SHARDS) {
        let found = match client.groups(stream, shard).await {
            // In-memory streams have no groups.
            Err(CallFailed::Refused(refused)) if refused.code == "invalid_request" => {
                return Ok(Vec::new());
            }
            found => found?,
        };
        for (group, standing) in found {
            groups
                .entry(group)
                .or_default()
                .push(Standing::of(shard, &standing));
        }
    }
    let group = |(group, shards)| Group {
        stream: stream.to_owned(),
        group,
        shards,
    };
    Ok(groups.into_iter().map(group).collect())
}

/// One group on every shard of its stream.
pub(super) async fn one(
    caller: Caller,
    Path((namespace, stream, group)): Path<(String, String, String)>,
) -> Result<Json<Group>, Refusal> {
    let client = caller.client(&namespace).await?;
    look(&client, &stream, &group).await.map(Json)
}

/// How a group is doing on every shard.
pub(super) async fn look(client: &Client, stream: &str, group: &str) -> Result<Group, Refusal> {
    let handle = client.group(stream, group)?;
    let shards = handle.shards().await?.min(GROUP_SHARDS);
    let mut standings = Vec::new();
    for shard in 0..shards {
        let found = handle.describe(shard).await?;
        standings.push(Standing::of(shard, &found));
    }
    Ok(Group {
        stream: stream.to_owned(),
        group: group.to_owned(),
        shards: standings,
    })
}
