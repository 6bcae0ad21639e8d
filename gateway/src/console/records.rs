//! Records of a shard: pages that begin exactly where they were asked to, both ways.

use std::collections::VecDeque;
use std::time::SystemTime;

use axum::Json;
use axum::extract::{Path, Query};
use bytes::Bytes;
use felix_client::Client;
use felix_client::raw::{FetchShard, FetchStream, List, RawError, RawFetch};
use felix_model::{Record, Records, internal_headers};
use serde::{Deserialize, Serialize};

use super::caller::Caller;
use super::limits::{FETCH_BYTES, FETCHES, ROWS};
use super::place::{self, Place};
use super::refusal::Refusal;
use super::shown::{Extent, Row};
use super::streams::{self, Shard, error};

/// Rows of a page when no number was asked for.
const ROWS_DEFAULT: u64 = 50;

/// A page of records.
#[derive(Debug, Serialize)]
pub(super) struct Page {
    shard: u32,
    /// What was asked for, resolved: the first row is the first record at or after it.
    from: u64,
    start: u64,
    end: u64,
    records: Vec<Row>,
    /// Where the page after this one begins.
    next: Option<u64>,
    /// What the page before this one ends below.
    previous: Option<u64>,
}

/// Which page.
#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    #[serde(default)]
    shard: u32,
    from: Option<String>,
    /// An offset or `end`: the records just below it, instead of those from `from` on.
    before: Option<String>,
    count: Option<u64>,
}

/// Which shard.
#[derive(Debug, Deserialize)]
pub(super) struct OfShard {
    #[serde(default)]
    shard: u32,
}

/// A shard that is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Log<'a> {
    pub(super) client: &'a Client,
    pub(super) namespace: &'a str,
    pub(super) stream: &'a str,
    pub(super) shard: u32,
}

/// One step of reading.
pub(super) struct Step {
    /// In order, from the offset that was asked for.
    pub(super) records: Vec<(Record, Option<String>)>,
    /// Where the next step begins.
    pub(super) next: u64,
}

impl Log<'_> {
    /// Reads batches from an offset on, as many as fit one fetch, and drops what lies outside `from..until`. A step
    /// without records that does not advance is the end of what there is.
    pub(super) async fn step(&self, from: u64, until: u64) -> Result<Step, Refusal> {
        let shard = FetchShard {
            shard: self.shard,
            offset: from,
            max_bytes: FETCH_BYTES,
            generation: None,
            last_generation: None,
        };
        let stream = FetchStream {
            namespace: self.namespace.into(),
            stream: self.stream.into(),
            incarnation: 0,
            shards: List::build([shard]).map_err(Refusal::invalid)?,
        };
        let fetch = RawFetch {
            max_bytes: FETCH_BYTES,
            min_bytes: 0,
            max_wait_ms: 0,
            committed: false,
            streams: List::build([stream]).map_err(Refusal::invalid)?,
        };
        let fetched = self.client.raw().fetch(fetch).await?;
        let Some((found, batches)) = fetched.iter().next() else {
            return Err(Refusal::unavailable(
                "protocol",
                "a broker answered no shard",
            ));
        };
        match error(found.error) {
            None => unpack(batches.joined(), from, until),
            Some(RawError::OffsetOutOfRange) => {
                // Retention was quicker than the page.
                let message = format!("offset {from} is gone");
                Err(Refusal::unavailable("offset_too_old", message).with_number(Some(found.start)))
            }
            Some(RawError::TopicAuthorizationFailed) => {
                let message = format!("your roles do not let you read stream {}", self.stream);
                Err(Refusal::forbidden("forbidden", message))
            }
            Some(RawError::UnknownTopicOrPartition) => Err(Refusal::not_found(format!(
                "there is no stream {}",
                self.stream
            ))),
            Some(why) => Err(Refusal::unavailable("shard_unavailable", why.word())),
        }
    }

    /// At most `most` rows of `from..until`, and where the next one would be.
    async fn rows(
        &self,
        from: u64,
        until: u64,
        most: u64,
        extent: Extent,
    ) -> Result<(Vec<Row>, u64), Refusal> {
        let mut rows = Vec::new();
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut at = from;
        for _ in 0..FETCHES {
            if at >= until {
                break;
            }
            let step = self.step(at, until).await?;
            for (record, publisher) in step.records {
                if rows.len() == most {
                    return Ok((rows, record.offset.0));
                }
                rows.push(Row::of_record(self.shard, &record, publisher, extent));
            }
            if step.next <= at {
                break;
            }
            at = step.next;
        }
        Ok((rows, at.min(until)))
    }

    /// The last `most` rows of `from..until`, and how far was read; no more than they is held.
    async fn last_rows(
        &self,
        from: u64,
        until: u64,
        most: u64,
    ) -> Result<(VecDeque<Row>, u64), Refusal> {
        let mut rows = VecDeque::new();
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut at = from;
        for _ in 0..FETCHES {
            if at >= until {
                break;
            }
            let step = self.step(at, until).await?;
            let surplus = step.records.len().saturating_sub(most);
            for (record, publisher) in step.records.into_iter().skip(surplus) {
                if rows.len() == most {
                    rows.pop_front();
                }
                rows.push_back(Row::of_record(
                    self.shard,
                    &record,
                    publisher,
                    Extent::Preview,
                ));
            }
            if step.next <= at {
                // What is there ends here, and below the place that was asked for there is nothing more.
                at = until;
                break;
            }
            at = step.next;
        }
        Ok((rows, at.min(until)))
    }

    /// Finds the offset of a place.
    pub(super) async fn place(&self, text: &str, shard: &Shard) -> Result<u64, Refusal> {
        let from = match place::parse(text, SystemTime::now())? {
            Place::Earliest => shard.start,
            Place::Latest => shard.end,
            Place::Offset(offset) => offset,
            Place::Time(time) => {
                let found = self.client.offset_for_time(self.stream, self.shard, time);
                found.await?.unwrap_or(shard.end)
            }
        };
        if from < shard.start {
            let (requested, oldest) = (from, shard.start);
            return Err(felix_client::ReadFailed::TooOld { requested, oldest }.into());
        }
        if from > shard.end {
            let (requested, next) = (from, shard.end);
            return Err(felix_client::ReadFailed::InFuture { requested, next }.into());
        }
        Ok(from)
    }
}

fn unpack(mut batches: Bytes, from: u64, until: u64) -> Result<Step, Refusal> {
    let malformed = |why: String| Refusal::unavailable("protocol", format!("a batch: {why}"));
    let mut step = Step {
        records: Vec::new(),
        next: from,
    };
    while !batches.is_empty() && step.next < until {
        let records = Records::new(&batches).map_err(|why| malformed(why.to_string()))?;
        let header = *records.header();
        let batch = batches.split_to(header.total_bytes().min(batches.len()));
        step.next = step.next.max(header.next_offset().0);
        if header.is_control() {
            continue;
        }
        let internal = internal_headers(&batch).map_err(|why| malformed(why.to_string()))?;
        let publisher = internal.publisher.map(str::to_owned);
        for record in records {
            let record = record.map_err(|why| malformed(why.to_string()))?;
            if (from..until).contains(&record.offset.0) {
                step.records.push((record, publisher.clone()));
            }
        }
    }
    Ok(step)
}

/// A page of a shard: from a place on, or below one.
pub(super) async fn page(
    caller: Caller,
    Path((namespace, stream)): Path<(String, String)>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Page>, Refusal> {
    let client = caller.client(&namespace).await?;
    let log = Log {
        client: &client,
        namespace: &namespace,
        stream: &stream,
        shard: wanted.shard,
    };
    let shard = streams::shard(&client, &namespace, &stream, wanted.shard).await?;
    let count = wanted.count.unwrap_or(ROWS_DEFAULT).clamp(1, ROWS);
    let page = match wanted.before.as_deref() {
        None => {
            let from = wanted.from.as_deref().unwrap_or("earliest");
            let from = log.place(from, &shard).await?;
            onwards(&log, &shard, from, count).await?
        }
        Some("end") => below(&log, &shard, shard.end, count).await?,
        Some(text) => {
            let before: u64 = text.parse().map_err(Refusal::invalid)?;
            below(&log, &shard, before.min(shard.end), count).await?
        }
    };
    Ok(Json(page))
}

async fn onwards(log: &Log<'_>, shard: &Shard, from: u64, count: u64) -> Result<Page, Refusal> {
    let (records, next) = log.rows(from, shard.end, count, Extent::Preview).await?;
    Ok(Page {
        shard: log.shard,
        from,
        start: shard.start,
        end: shard.end,
        records,
        next: Some(next).filter(|next| *next < shard.end),
        previous: Some(from).filter(|from| *from > shard.start),
    })
}

/// The last records below an offset. How far back they begin is not known where records were compacted away, so the
/// window grows until it holds enough of them, and shrinks where it holds more bytes than one page may read.
async fn below(log: &Log<'_>, shard: &Shard, before: u64, count: u64) -> Result<Page, Refusal> {
    let mut window = Window::new(count);
    loop {
        let from = before.saturating_sub(window.span).max(shard.start);
        let (records, reached) = log.last_rows(from, before, count).await?;
        if reached < before && window.shrink() {
            continue;
        }
        let enough = records.len() as u64 >= count;
        if !enough && from > shard.start && window.grow() {
            continue;
        }
        let first = records.front().and_then(|row| row.offset);
        let from = if enough { first.unwrap_or(from) } else { from };
        return Ok(Page {
            shard: log.shard,
            from,
            start: shard.start,
            end: shard.end,
            records: records.into(),
            next: Some(before).filter(|before| *before < shard.end),
            previous: Some(from).filter(|from| *from > shard.start),
        });
    }
}

/// How many offsets below a place are looked at.
#[derive(Debug)]
struct Window {
    span: u64,
    most: u64,
    shrunk: bool,
}

impl Window {
    fn new(count: u64) -> Self {
        Self {
            span: count,
            most: count.saturating_mul(256),
            shrunk: false,
        }
    }

    fn grow(&mut self) -> bool {
        let may = !self.shrunk && self.span < self.most;
        if may {
            self.span = self.span.saturating_mul(4);
        }
        may
    }

    /// Where even one record is too much there is nothing smaller.
    fn shrink(&mut self) -> bool {
        let may = self.span > 1;
        self.span = (self.span / 4).max(1);
        self.shrunk = true;
        may
    }
}

/// One record with everything in it.
pub(super) async fn one(
    caller: Caller,
    Path((namespace, stream, offset)): Path<(String, String, u64)>,
    Query(of): Query<OfShard>,
) -> Result<Json<Row>, Refusal> {
    let client = caller.client(&namespace).await?;
    let log = Log {
        client: &client,
        namespace: &namespace,
        stream: &stream,
        shard: of.shard,
    };
    let until = offset.saturating_add(1);
    let (rows, _) = log.rows(offset, until, 1, Extent::Whole).await?;
    let row = rows.into_iter().next();
    row.map(Json)
        .ok_or_else(|| Refusal::not_found(format!("there is no record at offset {offset}")))
}

#[cfg(test)]
mod tests {
    use felix_model::{BatchBuilder, BatchOptions, Generation, Offset, patch};

    use super::*;

    fn batch(base: u64, count: u64) -> Vec<u8> {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        for _ in 0..count {
            builder.push(5, None, Some(b"x"), &[]).unwrap();
        }
        let mut bytes = builder.finish().unwrap();
        patch(&mut bytes, Offset(base), Generation(0));
        bytes.to_vec()
    }

    #[test]
    fn a_step_begins_exactly_where_it_was_asked_to_although_batches_come_whole() {
        let batches = [batch(40, 30), batch(70, 30)].concat();
        let step = unpack(batches.into(), 57, 80).unwrap();
        let offsets: Vec<u64> = step
            .records
            .iter()
            .map(|(record, _)| record.offset.0)
            .collect();
        assert_eq!(offsets, (57..80).collect::<Vec<_>>());
        assert_eq!(step.next, 100);
    }

    #[test]
    fn a_window_grows_until_it_holds_enough_and_once_it_held_too_much_it_only_shrinks() {
        let mut window = Window::new(50);
        let mut growths = 0;
        while window.grow() {
            growths += 1;
        }
        assert_eq!((growths, window.span), (4, 12_800));
        assert!(window.shrink() && !window.grow());
        while window.shrink() {}
        assert_eq!(window.span, 1);
    }

    #[test]
    fn a_batch_that_is_cut_off_is_refused_and_not_shown_in_part() {
        let mut bytes = batch(0, 3);
        bytes.truncate(bytes.len() - 1);
        assert!(unpack(bytes.into(), 0, 9).is_err());
    }
}
