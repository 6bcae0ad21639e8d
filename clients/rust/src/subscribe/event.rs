//! What a subscription hands out.

use std::sync::Arc;

use bytes::Bytes;
use felix_model::{Headers, Offset, Records, internal_headers};
use felix_wire::event::EventBatch;
use felix_wire::extension::Deliver;

use crate::error::CallFailed;

/// One record of a stream, as it was published.
///
/// Payload, key and headers are slices of the frame they came in and keep its memory for as long as they live; copy
/// what is kept for long.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The shard.
    pub shard: u32,
    /// Its place in the shard. `None` on in-memory streams, unless whole records are subscribed to.
    pub offset: Option<u64>,
    /// What was published. Empty for a tombstone.
    pub payload: Bytes,
    /// Only with [`records`](crate::Subscribe::records).
    pub key: Option<Bytes>,
    /// Only with [`records`](crate::Subscribe::records).
    pub headers: Headers,
    /// Whether the record says that its key is deleted. Only with [`records`](crate::Subscribe::records).
    pub is_tombstone: bool,
    /// When it was appended or happened, Unix microseconds. Only with
    /// [`records`](crate::Subscribe::records) or [`timestamps`](crate::Subscribe::timestamps).
    pub timestamp_micros: Option<u64>,
    /// Who published it, where the broker says so. Only with [`publishers`](crate::Subscribe::publishers).
    pub publisher: Option<Arc<str>>,
}

/// Events of one shard, in order, as they came in one frame.
#[derive(Clone, Debug)]
pub struct Batch {
    shard: u32,
    body: Body,
    publisher: Option<Arc<str>>,
    /// First event to hand out: those before it were delivered earlier.
    skip: usize,
    first: Option<u64>,
    next: Option<u64>,
    pub(super) skipped_before: u64,
    pub(super) lost_before: u64,
}

#[derive(Clone, Debug)]
enum Body {
    Plain(EventBatch),
    Records(Vec<Event>),
}

/// What a subscription has to say.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Signal {
    /// Events.
    Batch(Batch),
    /// The connection was lost and reading goes on. From offset `at` nothing is missing; on an in-memory stream,
    /// which has no offsets, what was published meanwhile is.
    Resumed {
        /// The next event's offset.
        at: Option<u64>,
    },
    /// Another broker leads the shard now, or the same one wanted to see a fresh token. Nothing is missing.
    Moved {
        /// The next event's offset.
        at: Option<u64>,
        /// Where reading goes on, `host:port`.
        broker: String,
    },
    /// Reading was too slow. If `lost` is not 0, that many offsets were deleted before they could be read.
    Lagged {
        /// How many offsets are missing.
        lost: u64,
        /// The next event's offset.
        at: Option<u64>,
    },
    /// The stream was deleted. Nothing follows.
    Deleted,
}

impl Batch {
    pub(super) fn plain(shard: u32, batch: EventBatch) -> Self {
        let first = batch.base_offset;
        let next = first.map(|first| first.saturating_add(u64::from(batch.count)));
        let named = batch.publisher.as_deref().filter(|name| !name.is_empty());
        Self {
            shard,
            publisher: named.map(Arc::from),
            skip: 0,
            first,
            next,
            skipped_before: batch.skipped_before,
            lost_before: 0,
            body: Body::Plain(batch),
        }
    }

    /// Reads whole record batches. They are unpacked here, within the bounds that hold everywhere.
    pub(super) fn records(shard: u32, deliver: Deliver) -> Result<Self, CallFailed> {
        let Deliver {
            first,
            skipped_before,
            lost,
            mut batches,
        } = deliver;
        let malformed = |why: String| CallFailed::Protocol {
            what: format!("a delivery: {why}"),
        };
        let mut events = Vec::new();
        let mut next = first;
        while !batches.is_empty() {
            let records = Records::new(&batches).map_err(|why| malformed(why.to_string()))?;
            let header = *records.header();
            let batch = batches.split_to(header.total_bytes().min(batches.len()));
            next = next.max(header.next_offset().0);
            if header.is_control() {
                continue;
            }
            let internal = internal_headers(&batch).map_err(|why| malformed(why.to_string()))?;
            let publisher: Option<Arc<str>> = internal.publisher.map(Arc::from);
            for record in records {
                let record = record.map_err(|why| malformed(why.to_string()))?;
                if record.offset >= Offset(first) {
                    events.push(Event::of(shard, record, publisher.clone()));
                }
            }
        }
        Ok(Self {
            shard,
            body: Body::Records(events),
            publisher: None,
            skip: 0,
            first: Some(first),
            next: Some(next),
            skipped_before,
            lost_before: lost,
        })
    }

    /// Events of the protocol's oldest form, which names neither publishers nor times.
    pub(super) fn listed(
        shard: u32,
        base: Option<u64>,
        payloads: impl IntoIterator<Item = Bytes>,
    ) -> Self {
        let event = |(offset, payload)| Event {
            shard,
            offset,
            payload,
            key: None,
            headers: Headers::default(),
            is_tombstone: false,
            timestamp_micros: None,
            publisher: None,
        };
        let offsets = (0u64..).map(|index| base.map(|base| base.saturating_add(index)));
        let events: Vec<_> = offsets.zip(payloads).map(event).collect();
        Self {
            shard,
            publisher: None,
            skip: 0,
            first: base,
            next: base.map(|base| base.saturating_add(events.len() as u64)),
            skipped_before: 0,
            lost_before: 0,
            body: Body::Records(events),
        }
    }

    /// Leaves out what lies below `offset`: it was delivered before.
    pub(super) fn cut_below(&mut self, offset: u64) {
        match &mut self.body {
            Body::Plain(batch) => {
                let below = offset.saturating_sub(self.first.unwrap_or(offset));
                self.skip = usize::try_from(below)
                    .unwrap_or(usize::MAX)
                    .min(batch.count as usize);
            }
            Body::Records(events) => {
                events.retain(|event| event.offset.is_none_or(|found| found >= offset));
            }
        }
        self.first = self.first.map(|first| first.max(offset));
    }

    /// The shard.
    #[must_use]
    pub fn shard(&self) -> u32 {
        self.shard
    }

    /// How many events there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.body {
            Body::Plain(batch) => (batch.count as usize).saturating_sub(self.skip),
            Body::Records(events) => events.len(),
        }
    }

    /// Whether there is none: everything in the frame was internal, or delivered before.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Offset of the first event; `None` on in-memory streams, unless whole records are subscribed to.
    #[must_use]
    pub fn first_offset(&self) -> Option<u64> {
        self.first
    }

    /// The offset after the last event: where reading goes on (exclusive).
    #[must_use]
    pub fn next_offset(&self) -> Option<u64> {
        self.next
    }

    /// Events below the first one that this subscription will never see, because it was too slow or they were
    /// deleted. Offsets that hold no event are not counted.
    #[must_use]
    pub fn lost_before(&self) -> u64 {
        self.lost_before
    }

    /// Offsets before the first event that hold no event and never will: entries of the system's own.
    #[must_use]
    pub fn skipped_before(&self) -> u64 {
        self.skipped_before
    }

    /// The events, in order.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        let (plain, records) = match &self.body {
            Body::Plain(batch) => (Some(batch), [].iter()),
            Body::Records(events) => (None, events.iter()),
        };
        let plain = plain
            .into_iter()
            .flat_map(EventBatch::events)
            .skip(self.skip);
        let plain = plain.map(|event| Event {
            shard: self.shard,
            offset: event.offset,
            payload: event.payload,
            key: None,
            headers: Headers::default(),
            is_tombstone: false,
            timestamp_micros: event.timestamp_micros,
            publisher: self.publisher.clone(),
        });
        plain.chain(records.cloned())
    }

    /// The payloads alone, in order.
    pub fn payloads(&self) -> impl Iterator<Item = Bytes> + '_ {
        let (plain, records) = match &self.body {
            Body::Plain(batch) => (Some(batch), [].iter()),
            Body::Records(events) => (None, events.iter()),
        };
        let plain = plain
            .into_iter()
            .flat_map(EventBatch::events)
            .skip(self.skip);
        let records: std::slice::Iter<'_, Event> = records;
        plain
            .map(|event| event.payload)
            .chain(records.map(|event| event.payload.clone()))
    }
}

impl Event {
    fn of(shard: u32, record: felix_model::Record, publisher: Option<Arc<str>>) -> Self {
        let millis = u64::try_from(record.timestamp_ms).ok();
        Self {
            shard,
            offset: Some(record.offset.0),
            is_tombstone: record.value.is_none(),
            payload: record.value.unwrap_or_default(),
            key: record.key,
            headers: record.headers,
            timestamp_micros: millis.map(|millis| millis.saturating_mul(1_000)),
            publisher,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use felix_model::{BatchBuilder, BatchOptions, Generation, Payloads};
    use felix_wire::event::{EventHead, Stamps};
    use felix_wire::frame::{Accepts, Incoming, split};

    use super::*;

    fn plain(base_offset: Option<u64>, payloads: &[&str]) -> Batch {
        let list = Payloads::build(payloads.iter().map(|payload| payload.as_bytes())).unwrap();
        let head = EventHead {
            base_offset,
            publisher: Some("svc"),
            ..EventHead::default()
        };
        let mut bytes = head.encode(&list.bytes, Stamps::Absent);
        bytes.extend_from_slice(&list.bytes);
        let accepts = Accepts {
            payload_bytes_max: 1024,
            extensions: false,
        };
        let Some(Incoming::Published(frame)) = split(&mut bytes, accepts).unwrap() else {
            panic!("a whole frame");
        };
        Batch::plain(3, EventBatch::decode(frame.flags, frame.payload).unwrap())
    }

    fn records(base: u64, payloads: &[&str]) -> BytesMut {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        for payload in payloads {
            builder
                .push(
                    5,
                    Some(b"k"),
                    Some(payload.as_bytes()),
                    &[(b"h", Some(b"v"))],
                )
                .unwrap();
        }
        let mut batch = builder.finish().unwrap();
        felix_model::patch(&mut batch, Offset(base), Generation(0));
        batch
    }

    fn payloads(batch: &Batch) -> Vec<Bytes> {
        assert_eq!(batch.len(), batch.events().count());
        batch.payloads().collect()
    }

    #[test]
    fn a_plain_batch_numbers_its_events_and_names_who_published_them() {
        let batch = plain(Some(10), &["a", "b"]);
        assert_eq!(
            (batch.first_offset(), batch.next_offset()),
            (Some(10), Some(12))
        );
        let last = batch.events().last().unwrap();
        assert_eq!((last.offset, last.shard), (Some(11), 3));
        assert_eq!(last.publisher.as_deref(), Some("svc"));
        assert_eq!(payloads(&batch), ["a", "b"]);
        assert_eq!(plain(None, &["a"]).next_offset(), None);
    }

    #[test]
    fn what_was_delivered_before_is_left_out() {
        let mut batch = plain(Some(10), &["a", "b", "c"]);
        batch.cut_below(12);
        assert_eq!(payloads(&batch), ["c"]);
        assert_eq!(batch.first_offset(), Some(12));
        batch.cut_below(99);
        assert!(batch.is_empty());
    }

    #[test]
    fn whole_records_come_with_key_headers_and_time_and_begin_where_asked() {
        let mut batches = records(4, &["a", "b"]);
        batches.extend_from_slice(&records(6, &["c"]));
        let deliver = Deliver {
            first: 5,
            skipped_before: 1,
            lost: 2,
            batches: batches.freeze(),
        };
        let batch = Batch::records(0, deliver).unwrap();
        assert_eq!(payloads(&batch), ["b", "c"]);
        assert_eq!(
            (batch.first_offset(), batch.next_offset()),
            (Some(5), Some(7))
        );
        assert_eq!(batch.lost_before(), 2);
        let event = batch.events().next().unwrap();
        assert_eq!(event.key.as_deref(), Some(b"k".as_slice()));
        assert_eq!(event.headers.last(b"h"), Some(Some("v".into())));
        assert_eq!(
            (event.offset, event.timestamp_micros),
            (Some(5), Some(5_000))
        );
    }

    #[test]
    fn a_delivery_that_is_cut_off_is_an_error() {
        let batches = records(0, &["a"]).freeze();
        let cut = batches.slice(..batches.len() - 1);
        let deliver = Deliver {
            first: 0,
            skipped_before: 0,
            lost: 0,
            batches: cut,
        };
        assert_eq!(Batch::records(0, deliver).unwrap_err().code(), "protocol");
    }
}
