//! What a session begins at the brokers and goes on with: subscriptions, and how often.

use std::time::Duration;

use super::Session;
use crate::limits::SUBSCRIPTIONS_MAX;
use crate::metrics::Limited;
use crate::scope::buckets::Over;
use crate::scope::is_plain;
use crate::session::effect::{Effect, Subscribe, tell, unsupported};
use crate::session::fault::{Code, Fault};
use crate::session::features::Feature;
use crate::session::message::Wanted;

impl Session {
    pub(super) fn subscribe_many(&mut self, wanted: Vec<Wanted>, now: Duration) -> Vec<Effect> {
        if let Err(refusal) = self.needs(Feature::Resume, "subscribe with several streams", None) {
            return vec![refusal];
        }
        let begin = |wanted| {
            let begun = self.subscribe(wanted, now);
            begun.unwrap_or_else(|refusal| refusal)
        };
        wanted.into_iter().map(begin).collect()
    }

    /// Takes from what may be begun. `fault` is what it fails with, without words.
    pub(super) fn begin(&mut self, now: Duration, fault: Fault) -> Result<(), Effect> {
        self.begins.take_one(now).map_err(|wait| {
            let why = Limited::SessionRate;
            Effect::Limited(why, self.over(Over { why, wait }, fault))
        })
    }

    pub(super) fn subscribe(&mut self, wanted: Wanted, now: Duration) -> Result<Effect, Effect> {
        let about = |fault: Fault| {
            let fault = fault.stream(&wanted.stream);
            fault.subscription(wanted.slot.as_deref(), wanted.shard)
        };
        let marked = |fault: Fault| tell(about(fault));
        let stream = self.stream(&wanted.stream, "subscribe", |rights| &rights.subscribe);
        let stream = stream.map_err(marked)?;
        self.shard_named(wanted.shard).map_err(marked)?;
        let default = u32::try_from(stream).unwrap_or(u32::MAX);
        let sub = match &wanted.slot {
            None => default,
            Some(_) if !self.features.has(Feature::Slots) => {
                return Err(marked(unsupported("`slot`")));
            }
            Some(slot) if !is_plain(slot) => {
                let fault = Fault::bad_request("`slot` must be 1 to 64 of A-Z a-z 0-9 _ -");
                return Err(marked(fault));
            }
            Some(slot) => self.slot(stream, slot).map_err(marked)?,
        };
        let fault = about(Fault::new(Code::SubscribeFailed, ""));
        self.begin(now, fault)?;
        Ok(Effect::Subscribe(Subscribe {
            stream,
            slot: wanted.slot,
            shard: wanted.shard,
            from: wanted.from,
            sub,
        }))
    }

    /// The number of a slot's subscription, behind those of the streams.
    fn slot(&mut self, stream: usize, slot: &str) -> Result<u32, Fault> {
        let key = (stream, slot.to_owned());
        if let Some(sub) = self.slots.get(&key) {
            return Ok(*sub);
        }
        let taken = self.scope.streams.len() + self.slots.len();
        if taken >= SUBSCRIPTIONS_MAX.max(self.scope.streams.len()) {
            let message = format!("there may be {SUBSCRIPTIONS_MAX} subscriptions at a time");
            return Err(Fault::new(Code::SubscribeFailed, message));
        }
        let sub = u32::try_from(taken).unwrap_or(u32::MAX);
        self.slots.insert(key, sub);
        Ok(sub)
    }
}
