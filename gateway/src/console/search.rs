//! Looking for a text in a window of a shard, piece by piece: the page shows how far it came and can stop.

use std::time::Instant;

use axum::Json;
use axum::extract::{Path, Query};
use felix_model::Record;
use serde::{Deserialize, Serialize};

use super::caller::Caller;
use super::limits::{MATCHES, NEEDLE_BYTES, SEARCH_RECORDS, SEARCH_TIME};
use super::records::Log;
use super::refusal::Refusal;
use super::shown::{Extent, Row};
use super::streams;

/// What one call found.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    matches: Vec<Row>,
    scanned: u64,
    /// Where the next call goes on; null when everything was looked at.
    next: Option<u64>,
    end: u64,
}

/// What is looked for, and where.
#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    #[serde(default)]
    shard: u32,
    from: Option<String>,
    q: String,
    /// Of `key`, `value` and `headers`, with commas between.
    #[serde(rename = "in", default)]
    places: String,
    most: Option<u64>,
}

/// A text in lower case, and the parts of a record that may hold it.
#[derive(Debug)]
struct Needle {
    text: String,
    key: bool,
    value: bool,
    headers: bool,
}

/// Looks at the next records of a window.
pub(super) async fn search(
    caller: Caller,
    Path((namespace, stream)): Path<(String, String)>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Found>, Refusal> {
    let needle = Needle::new(&wanted)?;
    let client = caller.client(&namespace).await?;
    let shard = streams::shard(&client, &namespace, &stream, wanted.shard).await?;
    let log = Log {
        client: &client,
        namespace: &namespace,
        stream: &stream,
        shard: wanted.shard,
    };
    let from = log
        .place(wanted.from.as_deref().unwrap_or("earliest"), &shard)
        .await?;
    let most = wanted
        .most
        .unwrap_or(SEARCH_RECORDS)
        .clamp(1, SEARCH_RECORDS);
    let until = from.saturating_add(most).min(shard.end);
    let begun = Instant::now();
    let mut found = Found {
        matches: Vec::new(),
        scanned: 0,
        next: None,
        end: shard.end,
    };
    let mut at = from;
    while at < until && begun.elapsed() < SEARCH_TIME && found.matches.len() < MATCHES {
        let step = log.step(at, until).await?;
        let mut full_at = None;
        for (record, publisher) in step.records {
            if found.matches.len() == MATCHES {
                full_at = Some(record.offset.0);
                break;
            }
            if needle.is_in(&record) {
                let row = Row::of_record(log.shard, &record, publisher, Extent::Preview);
                found.matches.push(row);
            }
        }
        let next = full_at.unwrap_or(step.next);
        // A log that gives nothing more below its end ends in offsets without records.
        at = if next > at { next.min(until) } else { until };
    }
    found.scanned = at - from;
    found.next = Some(at).filter(|at| *at < shard.end);
    Ok(Json(found))
}

impl Needle {
    fn new(wanted: &Wanted) -> Result<Self, Refusal> {
        if wanted.q.is_empty() || wanted.q.len() > NEEDLE_BYTES {
            let message = format!("q must have 1 to {NEEDLE_BYTES} bytes");
            return Err(Refusal::invalid(message));
        }
        let everywhere = wanted.places.is_empty();
        let place = |name: &str| everywhere || wanted.places.split(',').any(|one| one == name);
        Ok(Self {
            text: wanted.q.to_lowercase(),
            key: place("key"),
            value: place("value"),
            headers: place("headers"),
        })
    }

    fn is_in(&self, record: &Record) -> bool {
        let in_headers = || {
            let mut headers = record.headers.iter();
            headers.any(|(name, value)| {
                self.within(&name) || value.is_some_and(|value| self.within(&value))
            })
        };
        self.key && record.key.as_deref().is_some_and(|key| self.within(key))
            || self.value
                && record
                    .value
                    .as_deref()
                    .is_some_and(|value| self.within(value))
            || self.headers && in_headers()
    }

    fn within(&self, bytes: &[u8]) -> bool {
        String::from_utf8_lossy(bytes)
            .to_lowercase()
            .contains(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needle(q: &str, places: &str) -> Result<Needle, Refusal> {
        Needle::new(&Wanted {
            shard: 0,
            from: None,
            q: q.into(),
            places: places.into(),
            most: None,
        })
    }

    #[test]
    fn case_does_not_matter_and_places_do() {
        let record = Record {
            offset: felix_model::Offset(1),
            timestamp_ms: 0,
            key: Some("cust-7".into()),
            value: Some("Kraków".into()),
            headers: felix_client::Headers::default(),
            internal: felix_client::Headers::default(),
        };
        assert!(needle("KRAKÓW", "").unwrap().is_in(&record));
        assert!(needle("cust", "key").unwrap().is_in(&record));
        assert!(!needle("cust", "value,headers").unwrap().is_in(&record));
        assert!(needle("", "").is_err() && needle(&"x".repeat(513), "").is_err());
    }
}
