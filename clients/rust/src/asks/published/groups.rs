//! Groups in the published messages: one record a request.

use felix_wire::extension::requests::{
    Claim, Claimed, DeadLetter, DeadLetters, GroupDeleted, GroupDescribed, GroupExtend,
    GroupExtended, GroupPoll, GroupPolled, GroupSought, GroupStanding, Item, LettersMoved, List,
    Reply, Settled, Text, Unsettled,
};
use felix_wire::message::{self, Message};
use felix_wire::negotiate::Features;

use super::{Asked, Asking};
use crate::calls::unexpected;
use crate::error::CallFailed;

impl Asking<'_> {
    pub(super) async fn poll(&self, ask: &GroupPoll) -> Asked {
        let poll = super::about_stream!(
            self,
            GroupPoll {
                shard: ask.shard,
                group: ask.group.to_string(),
                max_records: ask.max_records,
                wait_ms: ask.wait_ms.into(),
                request_id: self.request_id,
                consumer: ask.consumer.as_ref().map(ToString::to_string),
                reclaim: ask.reclaim,
                visibility_ms: ask.visibility_ms.into(),
            }
        );
        let needs = Features::CONSUMER_GROUP;
        let answer = self.send(poll, needs, "consumer_group").await?;
        let records = super::answer!(self, answer, GroupRecords)?.records;
        let records = records.into_iter().map(|record| Claimed {
            offset: record.offset,
            attempts: record.attempts,
            skipped_before: record.skipped_before.unwrap_or_default(),
            timestamp_ms: record
                .timestamp_micros
                .and_then(|micros| i64::try_from(micros / 1000).ok())
                .unwrap_or_default(),
            key: None,
            headers: List::default(),
            value: Some(record.payload),
        });
        let records = list(records)?;
        Ok(Reply::GroupPoll(GroupPolled { records }))
    }

    /// Settles one claim after the other; what does not stand is listed.
    pub(super) async fn settle<F>(
        &self,
        claims: &List<Claim>,
        settle: impl Fn(Self, Claim) -> F,
    ) -> Result<Settled, CallFailed>
    where
        F: Future<Output = Result<(), CallFailed>>,
    {
        let mut unsettled = Vec::new();
        for claim in claims.iter() {
            let Claim { offset, attempts } = claim;
            if let Some(code) = refusal_of_one(settle(self.next(), claim).await)? {
                unsettled.push(Unsettled {
                    offset,
                    attempts,
                    code,
                });
            }
        }
        let unsettled = list(unsettled)?;
        Ok(Settled { unsettled })
    }

    pub(super) async fn ack(
        self,
        shard: u32,
        group: String,
        claim: Claim,
    ) -> Result<(), CallFailed> {
        let (offset, request_id) = (claim.offset, self.request_id);
        let ack = super::about_stream!(
            self,
            GroupAck {
                shard,
                group,
                offset,
                request_id
            }
        );
        let needs = Features::CONSUMER_GROUP;
        let answer = self.send(ack, needs, "consumer_group").await?;
        super::answer!(self, answer, CacheOk).map(drop)
    }

    pub(super) async fn nack(
        self,
        shard: u32,
        group: String,
        delay_ms: u64,
        claim: Claim,
    ) -> Result<(), CallFailed> {
        let Claim { offset, attempts } = claim;
        let nack = super::about_stream!(
            self,
            GroupNack {
                shard,
                group,
                offset,
                attempts,
                delay_ms: Some(delay_ms).filter(|&delay| delay != 0),
                request_id: self.request_id,
            }
        );
        let needs = Features::CONSUMER_GROUP;
        let answer = self.send(nack, needs, "consumer_group").await?;
        super::answer!(self, answer, CacheOk).map(drop)
    }

    pub(super) async fn dead_letter(
        self,
        shard: u32,
        group: String,
        claim: Claim,
    ) -> Result<(), CallFailed> {
        let (offset, request_id) = (claim.offset, self.request_id);
        let set_aside = super::about_stream!(
            self,
            GroupDeadLetter {
                shard,
                group,
                offset,
                request_id
            }
        );
        let needs = Features::GROUP_CLAIM_CONTROL;
        let answer = self.send(set_aside, needs, "group_claim_control").await?;
        super::answer!(self, answer, CacheOk).map(drop)
    }

    pub(super) async fn extend(&self, ask: &GroupExtend) -> Asked {
        let (mut unsettled, mut visible_ms) = (Vec::new(), ask.extend_ms);
        for Claim { offset, attempts } in ask.claims.iter() {
            let asking = self.next();
            let extend = super::about_stream!(
                asking,
                GroupExtend {
                    shard: ask.shard,
                    group: ask.group.to_string(),
                    offset,
                    attempts,
                    extend_ms: ask.extend_ms,
                    request_id: asking.request_id,
                }
            );
            let needs = Features::GROUP_CLAIM_CONTROL;
            let answer = asking.send(extend, needs, "group_claim_control").await;
            let extended = answer.and_then(|answer| super::answer!(asking, answer, GroupExtended));
            let extended = extended.map(|extended| visible_ms = extended.visible_ms);
            if let Some(code) = refusal_of_one(extended)? {
                unsettled.push(Unsettled {
                    offset,
                    attempts,
                    code,
                });
            }
        }
        let unsettled = list(unsettled)?;
        Ok(Reply::GroupExtend(GroupExtended {
            visible_ms,
            unsettled,
        }))
    }

    pub(super) async fn letters(&self, shard: u32, group: String) -> Result<Vec<u64>, CallFailed> {
        let request_id = self.request_id;
        let ask = super::about_stream!(
            self,
            GroupDeadLetters {
                shard,
                group,
                request_id
            }
        );
        let needs = Features::GROUP_DEAD_LETTERS;
        let answer = self.send(ask, needs, "group_dead_letters").await?;
        Ok(super::answer!(self, answer, GroupDeadLetterList)?.offsets)
    }

    /// A page of dead letters of which only the offsets are known.
    pub(super) fn page(offsets: Vec<u64>, after: Option<u64>, limit: u32) -> Asked {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let limit = if limit == 0 { usize::MAX } else { limit };
        let mut offsets = offsets
            .into_iter()
            .filter(|offset| after.is_none_or(|after| *offset > after));
        let letters = offsets.by_ref().take(limit).map(|offset| DeadLetter {
            offset,
            attempts: 0,
            reason: Text::default(),
            set_aside_at_ms: 0,
            timestamp_ms: 0,
            key: None,
            headers: List::default(),
            value: None,
        });
        let letters = list(letters)?;
        let more = offsets.next().is_some();
        Ok(Reply::GroupDeadLetters(DeadLetters { letters, more }))
    }

    pub(super) async fn chosen(
        &self,
        shard: u32,
        group: &str,
        offsets: Option<&List<u64>>,
    ) -> Result<Vec<u64>, CallFailed> {
        match offsets {
            Some(offsets) => Ok(offsets.iter().collect()),
            None => self.next().letters(shard, group.to_owned()).await,
        }
    }

    pub(super) async fn move_letters<F>(
        &self,
        offsets: Vec<u64>,
        one: impl Fn(Self, u64) -> F,
    ) -> Result<LettersMoved, CallFailed>
    where
        F: Future<Output = Result<(), CallFailed>>,
    {
        let (mut count, mut missing) = (0, Vec::new());
        for offset in offsets {
            match refusal_of_one(one(self.next(), offset).await)? {
                None => count += 1,
                Some(_) => missing.push(offset),
            }
        }
        let missing = list(missing)?;
        Ok(LettersMoved { count, missing })
    }

    pub(super) async fn redrive(
        self,
        shard: u32,
        group: String,
        offset: u64,
    ) -> Result<(), CallFailed> {
        let request_id = self.request_id;
        let redrive = super::about_stream!(
            self,
            GroupRedrive {
                shard,
                group,
                offset,
                request_id
            }
        );
        let needs = Features::GROUP_DEAD_LETTERS;
        let answer = self.send(redrive, needs, "group_dead_letters").await?;
        super::answer!(self, answer, CacheOk).map(drop)
    }

    pub(super) async fn discard(
        self,
        shard: u32,
        group: String,
        offset: u64,
    ) -> Result<(), CallFailed> {
        let request_id = self.request_id;
        let discard = super::about_stream!(
            self,
            GroupDiscard {
                shard,
                group,
                offset,
                request_id
            }
        );
        let needs = Features::GROUP_DEAD_LETTERS;
        let answer = self.send(discard, needs, "group_dead_letters").await?;
        super::answer!(self, answer, CacheOk).map(drop)
    }

    pub(super) async fn seek(
        &self,
        shard: u32,
        group: String,
        start: message::Start,
        if_new: bool,
    ) -> Asked {
        let request_id = self.request_id;
        let seek = super::about_stream!(
            self,
            GroupSeek {
                shard,
                group,
                start,
                if_new,
                request_id
            }
        );
        let answer = self
            .send(seek, Features::GROUP_ADMIN, "group_admin")
            .await?;
        let position = super::answer!(self, answer, GroupPosition)?;
        let (offset, moved) = (position.offset, position.moved);
        Ok(Reply::GroupSeek(GroupSought { offset, moved }))
    }

    pub(super) async fn describe(&self, shard: u32, group: String) -> Asked {
        let request_id = self.request_id;
        let describe = super::about_stream!(
            self,
            GroupDescribe {
                shard,
                group,
                request_id
            }
        );
        let needs = Features::GROUP_ADMIN;
        let answer = self.send(describe, needs, "group_admin").await?;
        let info = super::answer!(self, answer, GroupDescription)?;
        let behind = info.tail.saturating_sub(info.committed.unwrap_or_default());
        let standing = GroupStanding {
            committed: info.committed,
            tail: info.tail,
            lag: behind
                .saturating_sub(info.in_flight)
                .saturating_sub(info.owed),
            in_flight: info.in_flight,
            owed: info.owed,
            dead_letters: info.dead_letters,
        };
        Ok(Reply::GroupDescribe(GroupDescribed { standing }))
    }

    pub(super) async fn delete(&self, shard: u32, group: String) -> Asked {
        let request_id = self.request_id;
        let delete = super::about_stream!(
            self,
            GroupDelete {
                shard,
                group,
                request_id
            }
        );
        let needs = Features::GROUP_ADMIN;
        let answer = self.send(delete, needs, "group_admin").await?;
        let existed = super::answer!(self, answer, GroupDeleted)?.existed;
        Ok(Reply::GroupDelete(GroupDeleted { existed }))
    }
}

/// The code of a refusal that concerns one item of a batch; anything else fails the batch.
fn refusal_of_one(outcome: Result<(), CallFailed>) -> Result<Option<u16>, CallFailed> {
    match outcome {
        Ok(()) => Ok(None),
        Err(CallFailed::Refused(refused))
            if matches!(refused.code.as_str(), "stale_claim" | "invalid_request") =>
        {
            Ok(Some(
                felix_wire::Code::from_name(&refused.code).map_or(0, felix_wire::Code::number),
            ))
        }
        Err(failed) => Err(failed),
    }
}

fn list<T: Item>(items: impl IntoIterator<Item = T>) -> Result<List<T>, CallFailed> {
    List::build(items).map_err(|error| CallFailed::Protocol {
        what: error.to_string(),
    })
}
