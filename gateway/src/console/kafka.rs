//! Groups of the Kafka protocol, to look at.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use felix_client::Client;
use felix_client::raw::{
    KafkaDescribe, KafkaList, KafkaListing, KafkaMember, KafkaOffsets, List, Text,
};
use serde::Serialize;

use super::caller::Caller;
use super::refusal::Refusal;
use super::shown::Listing;
use super::streams::{self, error};

/// Groups that are looked at, of as many as there are.
const GROUPS: usize = 100;
/// Positions of one group that are shown.
const POSITIONS: usize = 1_000;

/// One group.
#[derive(Debug, Serialize)]
pub(super) struct Group {
    group: String,
    kind: String,
    state: String,
    protocol: String,
    members: Vec<Member>,
    offsets: Vec<Position>,
}

#[derive(Debug, Serialize)]
struct Member {
    member: String,
    client: String,
    host: String,
}

#[derive(Debug, Serialize)]
struct Position {
    namespace: String,
    stream: String,
    shard: u32,
    offset: i64,
    end: Option<u64>,
}

/// Ends of shards by namespace and stream; each stream is looked at once.
type Ends = BTreeMap<(String, String), Vec<(u32, u64)>>;

/// The groups of the tenant that the caller may see.
pub(super) async fn list(caller: Caller) -> Result<Json<Listing<Group>>, Refusal> {
    let client = caller.client(&caller.app.config.namespace).await?;
    let none = || List::build(Vec::<Text>::new()).map_err(Refusal::invalid);
    let ask = KafkaList {
        states: none()?,
        types: none()?,
    };
    let listed = client.raw().group(ask, Duration::ZERO).await?;
    if let Some(why) = error(listed.error) {
        return Err(Refusal::unavailable("shard_unavailable", why.word()));
    }
    let mut ends = Ends::new();
    let mut items = Vec::new();
    for listing in listed.groups.iter().take(GROUPS) {
        items.push(group(&client, &listing, &mut ends).await?);
    }
    let next = (listed.groups.len() > GROUPS).then(|| GROUPS.to_string());
    Ok(Json(Listing { items, next }))
}

async fn group(client: &Client, listing: &KafkaListing, ends: &mut Ends) -> Result<Group, Refusal> {
    let name = &listing.group;
    let of = List::build([name.clone()]).map_err(Refusal::invalid)?;
    let described = client
        .raw()
        .group(KafkaDescribe { groups: of }, Duration::ZERO)
        .await?;
    let described = described.groups.iter().find(|group| group.error == 0);
    let members = described
        .as_ref()
        .map(|group| group.members.iter().map(Member::from).collect());
    Ok(Group {
        group: name.as_str().to_owned(),
        kind: listing.kind.as_str().to_owned(),
        state: listing.state.as_str().to_owned(),
        protocol: described.map_or_else(String::new, |group| group.protocol.as_str().to_owned()),
        members: members.unwrap_or_default(),
        offsets: positions(client, name, ends).await?,
    })
}

async fn positions(
    client: &Client,
    group: &Text,
    ends: &mut Ends,
) -> Result<Vec<Position>, Refusal> {
    let ask = KafkaOffsets {
        group: group.clone(),
        streams: None,
        member: None,
        epoch: -1,
        stable: false,
    };
    let committed = client.raw().group(ask, Duration::ZERO).await?;
    let mut positions = Vec::new();
    for stream in committed.streams.iter() {
        let (space, name) = (stream.namespace.as_str(), stream.stream.as_str());
        let key = (space.to_owned(), name.to_owned());
        if !ends.contains_key(&key) {
            // Positions may outlive a stream; then there is no end to compare with.
            let found = streams::look(client, space, name).await;
            let found = found.map_or_else(|_| Vec::new(), |stream| stream.shards);
            let found = found.iter().map(|shard| (shard.shard, shard.end)).collect();
            ends.insert(key.clone(), found);
        }
        for shard in stream.shards.iter().filter(|shard| shard.offset >= 0) {
            if positions.len() == POSITIONS {
                return Ok(positions);
            }
            let known = ends.get(&key).into_iter().flatten();
            positions.push(Position {
                namespace: space.to_owned(),
                stream: name.to_owned(),
                shard: shard.shard,
                offset: shard.offset,
                end: known
                    .clone()
                    .find(|(index, _)| *index == shard.shard)
                    .map(|(_, end)| *end),
            });
        }
    }
    Ok(positions)
}

impl From<KafkaMember> for Member {
    fn from(member: KafkaMember) -> Self {
        Self {
            member: member.member.as_str().to_owned(),
            client: member.client.as_str().to_owned(),
            host: member.host.as_str().to_owned(),
        }
    }
}
