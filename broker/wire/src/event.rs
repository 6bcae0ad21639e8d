//! Event batches in binary.
//!
//! ```text
//! [0x0002: subscription_id u64]     only the legacy form
//! [0x0020: base_offset u64]
//! [0x0800: skipped_before u64]
//! [0x2000: publisher_len u8, publisher]
//! count u32, count x ([0x4000: timestamp_micros u64] len u32, payload)
//! ```

use bytes::{BufMut as _, Bytes, BytesMut};
use felix_model::Payloads;

use crate::cursor::{self, Cursor, Malformed};
use crate::flags::Flags;
use crate::frame;

/// What stands before the payload list of an event batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventHead<'a> {
    /// Present in the legacy form only, which names the subscription in every batch.
    pub subscription_id: Option<u64>,
    /// Offset of the first event; absent for in-memory streams.
    pub base_offset: Option<u64>,
    /// How many offsets directly below the base hold no event. Needs a base offset; 0 is left out.
    pub skipped_before: u64,
    /// Who published every event of the batch.
    pub publisher: Option<&'a str>,
}

impl EventHead<'_> {
    /// Everything of the frame up to the payload list, which the caller sends right behind it. So
    /// a batch is encoded once, whatever the number of subscribers. `list` is either a
    /// [`Payloads`] list or one made by [`stamped`], and the last argument says which.
    ///
    /// A publisher of more than 255 bytes cannot be named and is left empty, as one not known.
    pub fn encode(&self, list: &Bytes, stamps: Stamps) -> BytesMut {
        let has_skipped = self.base_offset.is_some() && self.skipped_before != 0;
        let form = if self.subscription_id.is_some() {
            Flags::EVENT
        } else {
            Flags::EVENT_SHARED
        };
        let flags = form
            .with_if(Flags::EVENT_OFFSETS, self.base_offset.is_some())
            .with_if(Flags::EVENT_SKIPPED, has_skipped)
            .with_if(Flags::EVENT_PUBLISHER, self.publisher.is_some())
            .with_if(Flags::EVENT_TIMESTAMPS, stamps == Stamps::Present);
        let publisher = self.publisher.map(|name| match u8::try_from(name.len()) {
            Ok(length) => (length, name),
            Err(_) => (0, ""),
        });
        let fields = self.subscription_id.map_or(0, |_| 8)
            + self.base_offset.map_or(0, |_| 8)
            + if has_skipped { 8 } else { 0 }
            + publisher.map_or(0, |(_, name)| 1 + name.len());
        let length = frame::length_field(fields + list.len());
        let mut head = BytesMut::with_capacity(frame::HEADER_BYTES + fields);
        head.put_slice(&frame::Header { flags, length }.encode());
        if let Some(subscription_id) = self.subscription_id {
            head.put_u64(subscription_id);
        }
        if let Some(base_offset) = self.base_offset {
            head.put_u64(base_offset);
        }
        if has_skipped {
            head.put_u64(self.skipped_before);
        }
        if let Some((length, name)) = publisher {
            head.put_u8(length);
            head.put_slice(name.as_bytes());
        }
        head
    }
}

/// Whether the events of a list have the times they were appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamps {
    /// The list is a [`Payloads`] list.
    Absent,
    /// The list was made by [`stamped`].
    Present,
}

/// Copies a payload list into one where every payload has the time it was appended, in Unix
/// microseconds. Times that are missing repeat the last one.
pub fn stamped(payloads: &Payloads, micros: impl IntoIterator<Item = u64>) -> Bytes {
    let mut micros = micros.into_iter();
    let mut last = 0;
    let mut list = BytesMut::with_capacity(payloads.bytes.len() + 8 * payloads.count as usize);
    list.put_u32(payloads.count);
    for payload in payloads.iter() {
        last = micros.next().unwrap_or(last);
        list.put_u64(last);
        list.put_u32(frame::length_field(payload.len()));
        list.put_slice(payload);
    }
    list.freeze()
}

/// An event batch as it was received. Everything in it shares the frame's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventBatch {
    /// Present in the legacy form only.
    pub subscription_id: Option<u64>,
    /// Offset of the first event; absent for in-memory streams.
    pub base_offset: Option<u64>,
    /// How many offsets directly below the base hold no event.
    pub skipped_before: u64,
    /// Who published every event of the batch; empty when that is not known.
    pub publisher: Option<Box<str>>,
    /// Number of events.
    pub count: u32,
    list: Bytes,
    stamps: Stamps,
}

impl EventBatch {
    /// Reads an event batch. The flags are those of its frame.
    ///
    /// # Errors
    /// When the payload is not laid out as the flags say. Bytes behind the last event are ignored.
    pub fn decode(flags: Flags, payload: Bytes) -> Result<Self, Malformed> {
        let mut cursor = Cursor(payload);
        let mut optional = |present: bool, field| present.then(|| cursor.u64(field)).transpose();
        let legacy = !flags.contains(Flags::EVENT_SHARED);
        let subscription_id = optional(legacy, "subscription_id")?;
        let base_offset = optional(flags.contains(Flags::EVENT_OFFSETS), "base_offset")?;
        let skipped_before =
            optional(flags.contains(Flags::EVENT_SKIPPED), "skipped_before")?.unwrap_or(0);
        let publisher = if flags.contains(Flags::EVENT_PUBLISHER) {
            let length = cursor.u8("publisher")?;
            let name = cursor.bytes(length.into(), "publisher")?;
            Some(cursor::str(&name, "publisher")?.into())
        } else {
            None
        };
        let stamps = if flags.contains(Flags::EVENT_TIMESTAMPS) {
            Stamps::Present
        } else {
            Stamps::Absent
        };
        let count = cursor.u32("count")?;
        let list = cursor.0.clone();
        let least = if stamps == Stamps::Present { 12 } else { 4 };
        // protocol: frame.3
        if count as usize > list.len() / least {
            return Err(Malformed::Count {
                count,
                bytes: list.len(),
            });
        }
        let batch = Self {
            subscription_id,
            base_offset,
            skipped_before,
            publisher,
            count,
            list,
            stamps,
        };
        let mut walk = Cursor(batch.list.clone());
        for _ in 0..count {
            batch.next_event(&mut walk)?;
        }
        Ok(batch)
    }

    /// The events, in order of their offsets.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        let mut walk = Cursor(self.list.clone());
        (0..u64::from(self.count)).map_while(move |index| {
            let (timestamp_micros, payload) = self.next_event(&mut walk).ok()?;
            // protocol: subscribe.10
            let offset = self.base_offset.map(|base| base.saturating_add(index));
            Some(Event {
                offset,
                timestamp_micros,
                payload,
            })
        })
    }

    fn next_event(&self, walk: &mut Cursor) -> Result<(Option<u64>, Bytes), Malformed> {
        let timestamp = match self.stamps {
            Stamps::Present => Some(walk.u64("timestamp_micros")?),
            Stamps::Absent => None,
        };
        let length = walk.u32("payload")?;
        Ok((timestamp, walk.bytes(length as usize, "payload")?))
    }
}

/// One event of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its offset; absent for in-memory streams.
    pub offset: Option<u64>,
    /// When it was appended, Unix microseconds, if the batch says.
    pub timestamp_micros: Option<u64>,
    /// The payload.
    pub payload: Bytes,
}
