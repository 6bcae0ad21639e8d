//! Records as they come.

use std::collections::BTreeMap;
use std::time::SystemTime;

use axum::extract::{Path, Query};
use axum::http::HeaderMap;
use axum::response::Response;
use felix_client::{Client, ReadFailed, Signal, Start};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::caller::Onlooker;
use super::limits::TAIL_SHARDS;
use super::live::{self, Teller, Told};
use super::place::{self, Place};
use super::refusal::Refusal;
use super::shown::{Extent, Row};
use super::streams::{self, Stream};

/// Where a browser says how far it came.
const LAST: &str = "last-event-id";

/// Which shards, and where they begin.
#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    shard: Option<String>,
    from: Option<String>,
}

/// One shard that is followed.
struct Follow {
    client: Client,
    stream: String,
    shard: u32,
    start: Start,
}

/// Follows shards of a stream. The place of every shard is the id of each event, so that a browser which comes back
/// with the last one misses nothing that is still in the log.
pub(super) async fn tail(
    who: Onlooker,
    Path((namespace, stream)): Path<(String, String)>,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let client = who.person.client(&who.app, &namespace).await?;
    let found = streams::look(&client, &namespace, &stream).await?;
    if !found.may_subscribe {
        let message = format!("your roles do not let you read stream {stream}");
        return Err(Refusal::forbidden("forbidden", message));
    }
    let last = headers
        .get(LAST)
        .and_then(|last| last.to_str().ok())
        .unwrap_or_default();
    let starts = starts(&found, &wanted, &live::read_places(last))?;
    let (tell, told) = live::channel();
    let work = tokio::spawn(async move {
        let mut follows = JoinSet::new();
        for (shard, start) in starts {
            if let Start::Offset(offset) = start {
                let _ = tell.send(Told::At(shard, offset)).await;
            }
            let stream = stream.clone();
            let client = client.clone();
            let follow = Follow {
                client,
                stream,
                shard,
                start,
            };
            follows.spawn(follow.run(tell.clone()));
        }
        drop(tell);
        while follows.join_next().await.is_some() {}
    });
    Ok(live::answer(who, "records", told, work))
}

/// Where each wanted shard begins. A stream with offsets that is followed from its end begins at the offset which is
/// next now, so that even a browser which saw nothing yet can come back to it.
fn starts(
    stream: &Stream,
    wanted: &Wanted,
    places: &BTreeMap<u32, u64>,
) -> Result<Vec<(u32, Start)>, Refusal> {
    let only = match wanted.shard.as_deref() {
        None | Some("" | "all") => None,
        Some(shard) => Some(shard.parse::<u32>().map_err(Refusal::invalid)?),
    };
    let from = wanted.from.as_deref().unwrap_or("latest");
    let place = place::parse(from, SystemTime::now())?;
    let starts: Vec<(u32, Start)> = stream
        .shards
        .iter()
        .filter(|shard| only.is_none_or(|only| shard.shard == only))
        .map(|shard| {
            let start = match (places.get(&shard.shard), place) {
                (Some(next), _) if stream.durable => Start::Offset(*next),
                (_, Place::Latest) if stream.durable => Start::Offset(shard.end),
                (_, Place::Latest) => Start::Latest,
                (_, Place::Earliest) => Start::Earliest,
                (_, Place::Offset(offset)) => Start::Offset(offset),
                (_, Place::Time(time)) => Start::Time(time),
            };
            (shard.shard, start)
        })
        .collect();
    match starts.len() {
        0 => Err(Refusal::invalid("the stream has no such shard")),
        1..=TAIL_SHARDS => Ok(starts),
        many => {
            let message = format!("{many} shards are too many to follow at once; choose one");
            Err(Refusal::invalid(message))
        }
    }
}

impl Follow {
    async fn run(mut self, tell: mpsc::Sender<Told<Row>>) {
        let mut teller = Teller::new(tell);
        if let Err(failed) = self.follow(&mut teller).await {
            teller.must(Told::End(failed.into())).await;
        }
    }

    async fn follow(&mut self, teller: &mut Teller<Row>) -> Result<(), ReadFailed> {
        let mut records = match self.begin().await {
            // Retention was quicker than the browser: it goes on with what there is, and is told.
            Err(ReadFailed::TooOld { requested, oldest }) => {
                teller.lost(oldest.saturating_sub(requested));
                self.start = Start::Earliest;
                self.begin().await?
            }
            begun => begun?,
        };
        loop {
            match records.next_signal().await? {
                Some(Signal::Batch(batch)) => {
                    teller.lost(batch.lost_before());
                    for event in batch.events() {
                        let place = event.offset.map(|at| (event.shard, at.saturating_add(1)));
                        teller.item(Row::of_event(&event, Extent::Preview), place);
                    }
                }
                Some(Signal::Lagged { lost, .. }) => teller.lost(lost),
                Some(Signal::Deleted) | None => {
                    let gone = Refusal::not_found(format!("stream {} was deleted", self.stream));
                    teller.must(Told::End(gone)).await;
                    return Ok(());
                }
                Some(Signal::Resumed { .. } | Signal::Moved { .. } | _) => {}
            }
        }
    }

    async fn begin(&self) -> Result<felix_client::Subscription, ReadFailed> {
        let subscribe = self.client.subscribe(&self.stream);
        subscribe.shard(self.shard).records().from(self.start).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_back_as_they_were_written_and_nonsense_is_left_out() {
        let places = live::read_places("0:58,3:0,x:1,7,9:-1");
        assert_eq!(places.into_iter().collect::<Vec<_>>(), [(0, 58), (3, 0)]);
    }
}
