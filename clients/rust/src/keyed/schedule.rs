//! Records that are appended at a given time.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use felix_wire::extension::requests::{
    Header, List, ScheduleAdd, ScheduleCancel, ScheduleList, Text,
};
use felix_wire::publish::Names;

use super::unsendable;
use crate::asks::{How, Repeat};
use crate::client::Client;
use crate::error::CallFailed;
use crate::record::Record;

/// What waits for its time on a stream. Needs a broker with the `requests` extension. Made by
/// [`Client::schedule`].
#[derive(Clone, Debug)]
pub struct Schedule {
    client: Client,
    names: Names,
}

/// A record that was scheduled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduledRecord {
    /// Its name: what [`Schedule::cancel`] takes.
    pub id: String,
    /// The shard it will be on.
    pub shard: u32,
    /// When it is due, Unix milliseconds on the broker's clock.
    pub due_ms: u64,
    /// It was scheduled before under the same name, as it stands.
    pub repeated: bool,
}

/// A record that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// Its name.
    pub id: String,
    /// The shard it will be on.
    pub shard: u32,
    /// When it is due, Unix milliseconds on the broker's clock.
    pub due_ms: u64,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its headers, in order.
    pub headers: Vec<(Bytes, Option<Bytes>)>,
    /// Its value.
    pub value: Option<Bytes>,
}

impl Client {
    /// What waits for its time on a stream.
    ///
    /// # Errors
    /// When no stream can have this name.
    pub fn schedule(&self, stream: &str) -> Result<Schedule, CallFailed> {
        Ok(Schedule {
            client: self.clone(),
            names: self.object(stream)?,
        })
    }
}

impl Schedule {
    /// Schedules a record under a name drawn at random, and repeats until it is answered.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn add(
        &self,
        due: SystemTime,
        record: impl Into<Record>,
    ) -> Result<ScheduledRecord, CallFailed> {
        let draw = || getrandom::u64().map_err(unsendable);
        let id = format!("{:016x}{:016x}", draw()?, draw()?);
        self.add_named(&id, due, record).await
    }

    /// Schedules a record under this name. Under a name that waits already nothing changes, and the answer is what
    /// waits.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn add_named(
        &self,
        id: &str,
        due: SystemTime,
        record: impl Into<Record>,
    ) -> Result<ScheduledRecord, CallFailed> {
        let record = record.into();
        let headers = record.headers.into_iter().map(|(key, value)| Header {
            key,
            value: Some(value),
        });
        let ask = ScheduleAdd {
            due_ms: unix_ms(due),
            key: record.key,
            headers: List::build(headers).map_err(unsendable)?,
            value: record.payload,
            id: Some(id.into()),
            shard: None,
        };
        let scheduled = self.ask(ask, Repeat::Always).await?;
        Ok(ScheduledRecord {
            id: scheduled.id.to_string(),
            shard: scheduled.shard,
            due_ms: scheduled.due_ms,
            repeated: scheduled.repeated,
        })
    }

    /// Takes a scheduled record back. `false` when no such record waits: it was appended, taken back, or never
    /// there.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn cancel(&self, id: &str) -> Result<bool, CallFailed> {
        let id = Text::from(id);
        let ask = ScheduleCancel { id, shard: None };
        Ok(self.ask(ask, Repeat::Always).await?.existed)
    }

    /// At most this many records that wait, the soonest of a shard first.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn list(&self, most: usize) -> Result<Vec<Waiting>, CallFailed> {
        let mut records = Vec::new();
        let mut cursor = None;
        while records.len() < most {
            let left = most - records.len();
            let ask = ScheduleList {
                limit: u32::try_from(left).unwrap_or(u32::MAX),
                shard: None,
                cursor: cursor.take(),
                want_values: true,
            };
            let listed = self.ask(ask, Repeat::Always).await?;
            records.extend(listed.records.iter().take(left).map(|record| Waiting {
                id: record.id.to_string(),
                shard: record.shard,
                due_ms: record.due_ms,
                key: record.key,
                headers: headers(&record.headers),
                value: record.value,
            }));
            cursor = listed.cursor;
            if cursor.is_none() {
                break;
            }
        }
        Ok(records)
    }

    async fn ask<A: felix_wire::extension::requests::Asks>(
        &self,
        ask: A,
        repeat: Repeat,
    ) -> Result<A::Reply, CallFailed> {
        let inner = &self.client.inner;
        inner.ask(&self.names, ask, How::new(repeat)).await
    }
}

pub(crate) fn headers(list: &List<Header>) -> Vec<(Bytes, Option<Bytes>)> {
    list.iter()
        .map(|header| (header.key, header.value))
        .collect()
}

fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
