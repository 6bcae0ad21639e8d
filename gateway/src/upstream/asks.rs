//! Questions of browsers: what changes nothing and is answered whenever its answer is there.

use std::pin::Pin;
use std::time::{Duration, UNIX_EPOCH};

use felix_client::PageLimits;

use super::calls::{Calls, fault, read_fault};
use crate::session::Ask;
use crate::session::answer::{Answer, Base64, RecordRead};
use crate::session::fault::{Code, Fault};

/// What a question is answered with, and whether it counted as a read.
pub(crate) type Asked = Pin<Box<dyn Future<Output = (bool, String)> + Send>>;

impl Calls {
    /// Asks what changes nothing.
    pub(crate) fn ask(&self, ask: Ask) -> Asked {
        match ask {
            Ask::CacheGet { cache, key, id } => self.cache_get(cache, key, id),
            Ask::StateGet {
                stream,
                key,
                entity,
                shard,
                id,
            } => self.state_get(stream, (key, entity), shard, id),
            Ask::Read {
                stream,
                from,
                end,
                most,
                shard,
                id,
            } => {
                let limits = PageLimits {
                    end,
                    records: most,
                    bytes: 0,
                };
                self.read(stream, shard, from, limits, id)
            }
            Ask::OffsetForTime {
                stream,
                at_us,
                shard,
                id,
            } => {
                let (client, name) = (self.client.clone(), self.stream_name(stream));
                Box::pin(async move {
                    let time = UNIX_EPOCH + Duration::from_micros(at_us);
                    let text = match client.offset_for_time(&name, shard, time).await {
                        Ok(offset) => Answer::Offset { id, offset }.to_text(),
                        Err(failed) => fault(Code::ReadFailed, &failed).id(Some(id)).to_text(),
                    };
                    (true, text)
                })
            }
        }
    }

    fn cache_get(&self, place: usize, key: String, id: u64) -> Asked {
        let (cache, versions) = (self.cache(place), self.versions);
        let failure = self.cache_fault(place, &"", Some(id));
        Box::pin(async move {
            let got = match cache {
                Ok(cache) => cache.get(&key).await,
                Err(failed) => Err(failed.into()),
            };
            let text = match got {
                Ok(entry) => {
                    let version = entry.as_ref().and_then(|entry| entry.version);
                    Answer::CacheValue {
                        id,
                        payload: entry.map(|entry| Base64(entry.value)),
                        version: versions.then_some(version),
                    }
                    .to_text()
                }
                Err(failed) => Fault {
                    message: failed.to_string(),
                    ..failure
                }
                .to_text(),
            };
            (false, text)
        })
    }

    fn state_get(
        &self,
        place: usize,
        (key, entity): (String, String),
        shard: Option<u32>,
        id: u64,
    ) -> Asked {
        let state = self.client.state(&self.stream_name(place), entity);
        let state = state.map(|state| match shard {
            Some(shard) => state.on_shard(shard),
            None => state,
        });
        Box::pin(async move {
            let got = match state {
                Ok(state) => state.read(&key).await,
                Err(failed) => Err(failed),
            };
            let text = match got {
                Ok(read) => Answer::StateValue {
                    id,
                    version: read.entry.as_ref().and_then(|entry| entry.version),
                    payload: read.entry.map(|entry| Base64(entry.value)),
                    as_of: read.as_of,
                    shard,
                }
                .to_text(),
                Err(failed) => fault(Code::StateFailed, &failed).id(Some(id)).to_text(),
            };
            (false, text)
        })
    }

    fn read(&self, place: usize, shard: u32, from: u64, limits: PageLimits, id: u64) -> Asked {
        let (client, name, past_end) =
            (self.client.clone(), self.stream_name(place), self.past_end);
        Box::pin(async move {
            let text = match client.stream_read(&name, shard, from, limits).await {
                Ok(page) => {
                    let records = page.records.into_iter().map(|record| RecordRead {
                        offset: record.offset,
                        payload: Base64(record.payload),
                    });
                    Answer::Records {
                        id,
                        records: records.collect(),
                        next_offset: page.next_offset,
                    }
                    .to_text()
                }
                Err(failed) => read_fault(&failed, Code::ReadFailed, past_end)
                    .id(Some(id))
                    .to_text(),
            };
            (true, text)
        })
    }
}
