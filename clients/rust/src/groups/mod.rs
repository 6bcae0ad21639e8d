//! Consumer groups: records are handed out, worked on, and settled one by one.
//!
//! [`Group`] is the plain calls, shard by shard. [`Consumer`] is a worker: it joins the group, polls the shards it is
//! assigned, and settles in batches.

mod consumer;
mod delivery;
mod lane;
mod membership;
mod settle;
mod types;

use std::time::Duration;

use felix_wire::extension::requests::{
    self as wire, Asks, GroupAck, GroupDeadLetters, GroupDelete, GroupDescribe, GroupDiscard,
    GroupExtend, GroupList, GroupNack, GroupPoll, GroupRedrive, GroupSeek, GroupSetAside, List,
    Text,
};
use felix_wire::message;
use felix_wire::publish::Names;

pub use self::consumer::{Consumer, ConsumerOptions};
pub use self::delivery::{Delivery, Settled};
pub use self::types::{
    Claim, DeadLetter, GroupRecord, GroupStanding, LettersMoved, PollOptions, Position, Unsettled,
};
use crate::asks::{How, Repeat};
use crate::client::Client;
use crate::error::CallFailed;
use crate::keyed::{headers, unsendable};
use crate::subscribe::Start;

/// A group of a stream of the client's namespace. Cheap to make and to clone.
#[derive(Clone, Debug)]
pub struct Group {
    client: Client,
    names: Names,
    stream: String,
    name: Text,
}

impl Client {
    /// A group of a stream. It comes into being with its first poll, at the oldest record, or with a
    /// [`create`](Group::create).
    ///
    /// # Errors
    /// When no stream can have this name.
    pub fn group(&self, stream: &str, group: &str) -> Result<Group, CallFailed> {
        Ok(Group {
            client: self.clone(),
            names: self.object(stream)?,
            stream: stream.to_owned(),
            name: group.into(),
        })
    }

    /// The groups of one shard of a stream, by name. Needs a broker with the `requests` extension.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn groups(
        &self,
        stream: &str,
        shard: u32,
    ) -> Result<Vec<(String, GroupStanding)>, CallFailed> {
        let names = self.object(stream)?;
        let mut groups: Vec<(String, GroupStanding)> = Vec::new();
        loop {
            let last = groups.last();
            let ask = GroupList {
                shard,
                limit: 0,
                after: last.map(|(name, _)| Text::from(name.as_str())),
            };
            let listed = self
                .inner
                .ask(&names, ask, How::new(Repeat::Always))
                .await?;
            let before = groups.len();
            let found = listed.groups.iter();
            groups.extend(found.map(|found| (found.group.to_string(), found.standing.into())));
            if !listed.more || groups.len() == before {
                return Ok(groups);
            }
        }
    }
}

impl Group {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// How many shards its stream has.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn shards(&self) -> Result<u32, CallFailed> {
        Ok(self.client.stream_shards(&self.stream).await?.shards)
    }

    /// Takes records of a shard to work on; none after the wait is normal. A poll whose answer was lost is
    /// repeated: what it had claimed comes again when its claims lapse.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn poll(
        &self,
        shard: u32,
        options: &PollOptions,
    ) -> Result<Vec<GroupRecord>, CallFailed> {
        let ask = GroupPoll {
            shard,
            group: self.name.clone(),
            max_records: options.max_records,
            max_bytes: 0,
            wait_ms: millis_u32(options.wait),
            visibility_ms: millis_u32(options.visibility),
            consumer: options.consumer.as_deref().map(Text::from),
            reclaim: options.reclaim,
        };
        let how = How {
            patience: options.wait,
            ..How::new(Repeat::Always)
        };
        let polled = self.client.inner.ask(&self.names, ask, how).await?;
        Ok(polled
            .records
            .iter()
            .map(|record| GroupRecord {
                shard,
                offset: record.offset,
                attempts: record.attempts,
                skipped_before: record.skipped_before,
                timestamp_ms: record.timestamp_ms,
                key: record.key,
                headers: headers(&record.headers),
                value: record.value,
            })
            .collect())
    }

    /// Finishes records, durably. Answers those whose claims no longer stand.
    ///
    /// # Errors
    /// [`CallFailed`]; some may have been finished.
    pub async fn ack(
        &self,
        shard: u32,
        claims: &[Claim],
        consumer: Option<&str>,
    ) -> Result<Vec<Unsettled>, CallFailed> {
        let ask = GroupAck {
            shard,
            group: self.name.clone(),
            claims: claim_list(claims)?,
            consumer: consumer.map(Text::from),
        };
        Ok(unsettled(&self.ask(ask).await?.unsettled))
    }

    /// Gives records back, to be handed out again after a delay.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub async fn nack(
        &self,
        shard: u32,
        claims: &[Claim],
        delay: Duration,
        consumer: Option<&str>,
    ) -> Result<Vec<Unsettled>, CallFailed> {
        let ask = GroupNack {
            shard,
            group: self.name.clone(),
            delay_ms: millis(delay),
            claims: claim_list(claims)?,
            consumer: consumer.map(Text::from),
        };
        Ok(unsettled(&self.ask(ask).await?.unsettled))
    }

    /// Prolongs claims to this long from now. Answers what was granted, and the claims that no longer stand.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub async fn extend(
        &self,
        shard: u32,
        claims: &[Claim],
        visibility: Duration,
        consumer: Option<&str>,
    ) -> Result<(Duration, Vec<Unsettled>), CallFailed> {
        let ask = GroupExtend {
            shard,
            group: self.name.clone(),
            extend_ms: millis(visibility),
            claims: claim_list(claims)?,
            consumer: consumer.map(Text::from),
        };
        let extended = self.ask(ask).await?;
        let granted = Duration::from_millis(extended.visible_ms);
        Ok((granted, unsettled(&extended.unsettled)))
    }

    /// Sets records aside as ones that cannot be processed. When an answer was lost and the request repeated, a record
    /// that is finished by then counts as set aside.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub async fn set_aside(
        &self,
        shard: u32,
        claims: &[Claim],
        reason: &str,
        consumer: Option<&str>,
    ) -> Result<Vec<Unsettled>, CallFailed> {
        let ask = GroupSetAside {
            shard,
            group: self.name.clone(),
            reason: reason.into(),
            claims: claim_list(claims)?,
            consumer: consumer.map(Text::from),
        };
        let settled = self.ask_with(ask, Repeat::Conditional).await?;
        Ok(unsettled(&settled.unsettled))
    }

    /// At most this many records of a shard that were set aside, ascending, after this offset. Keys, headers and
    /// values come where the broker has the `requests` extension.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn dead_letters(
        &self,
        shard: u32,
        after: Option<u64>,
        most: usize,
    ) -> Result<Vec<DeadLetter>, CallFailed> {
        let mut letters: Vec<DeadLetter> = Vec::new();
        while letters.len() < most {
            let ask = GroupDeadLetters {
                shard,
                group: self.name.clone(),
                limit: u32::try_from(most - letters.len()).unwrap_or(u32::MAX),
                after: letters.last().map(|letter| letter.offset).or(after),
                want_values: true,
            };
            let page = self.ask(ask).await?;
            let before = letters.len();
            let found = page.letters.iter().take(most - before);
            letters.extend(found.map(DeadLetter::from));
            if !page.more || letters.len() == before {
                break;
            }
        }
        Ok(letters)
    }

    /// Makes records that were set aside owed again; all of them without a choice.
    ///
    /// # Errors
    /// [`CallFailed`]; [`Unanswered`](CallFailed::Unanswered) without a choice when they may have been moved: asking
    /// again would also move what was set aside since.
    pub async fn redrive(
        &self,
        shard: u32,
        offsets: Option<&[u64]>,
    ) -> Result<LettersMoved, CallFailed> {
        let ask = GroupRedrive {
            shard,
            group: self.name.clone(),
            offsets: offset_list(offsets)?,
        };
        Ok(self.ask_with(ask, repeat_move(offsets)).await?.into())
    }

    /// Drops records that were set aside; all of them without a choice.
    ///
    /// # Errors
    /// As [`redrive`](Self::redrive).
    pub async fn discard(
        &self,
        shard: u32,
        offsets: Option<&[u64]>,
    ) -> Result<LettersMoved, CallFailed> {
        let ask = GroupDiscard {
            shard,
            group: self.name.clone(),
            offsets: offset_list(offsets)?,
        };
        Ok(self.ask_with(ask, repeat_move(offsets)).await?.into())
    }

    /// Moves the group on a shard, and voids its claims.
    ///
    /// # Errors
    /// [`CallFailed`]; [`Unanswered`](CallFailed::Unanswered) when it may have been moved: asking again would undo
    /// what was finished since.
    pub async fn seek(&self, shard: u32, to: Start) -> Result<Position, CallFailed> {
        self.position(shard, to, false).await
    }

    /// Creates the group on a shard where it shall begin; a group that has begun stays where it is.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn create(&self, shard: u32, at: Start) -> Result<Position, CallFailed> {
        self.position(shard, at, true).await
    }

    async fn position(&self, shard: u32, to: Start, if_new: bool) -> Result<Position, CallFailed> {
        let ask = GroupSeek {
            shard,
            group: self.name.clone(),
            start: self.start(shard, to).await?,
            if_new,
        };
        let repeat = if if_new {
            Repeat::Always
        } else {
            Repeat::Unapplied
        };
        let sought = self.ask_with(ask, repeat).await?;
        let (offset, moved) = (sought.offset, sought.moved);
        Ok(Position { offset, moved })
    }

    async fn start(&self, shard: u32, to: Start) -> Result<message::Start, CallFailed> {
        Ok(match to {
            Start::Latest => message::Start::Latest,
            Start::Earliest => message::Start::Earliest,
            Start::Offset(offset) => message::Start::Offset(offset),
            Start::Time(time) => {
                let found = self.client.offset_for_time(&self.stream, shard, time);
                // When nothing is that recent, everything that comes is.
                found
                    .await?
                    .map_or(message::Start::Latest, message::Start::Offset)
            }
        })
    }

    /// How the group is doing on a shard.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn describe(&self, shard: u32) -> Result<GroupStanding, CallFailed> {
        let group = self.name.clone();
        let described = self.ask(GroupDescribe { shard, group }).await?;
        Ok(described.standing.into())
    }

    /// Forgets the group on a shard: its position, claims and dead letters. `false` when there was none.
    ///
    /// # Errors
    /// [`CallFailed`]; [`Unanswered`](CallFailed::Unanswered) when it may be gone: asking again could take one that
    /// was made since.
    pub async fn delete(&self, shard: u32) -> Result<bool, CallFailed> {
        let group = self.name.clone();
        let ask = GroupDelete { shard, group };
        Ok(self.ask_with(ask, Repeat::Unapplied).await?.existed)
    }

    /// Begins to describe a worker of the group. The name stands for it across restarts: what it held comes back to
    /// it first.
    pub fn consumer(&self, name: &str) -> ConsumerOptions {
        ConsumerOptions::new(self.clone(), name)
    }

    /// For calls that may happen twice: settling what is settled changes nothing.
    async fn ask<A: Asks>(&self, ask: A) -> Result<A::Reply, CallFailed> {
        self.ask_with(ask, Repeat::Always).await
    }

    async fn ask_with<A: Asks>(&self, ask: A, repeat: Repeat) -> Result<A::Reply, CallFailed> {
        let inner = &self.client.inner;
        inner.ask(&self.names, ask, How::new(repeat)).await
    }
}

/// Named dead letters are moved once; all of them are others the next time.
fn repeat_move(offsets: Option<&[u64]>) -> Repeat {
    match offsets {
        Some(_) => Repeat::Always,
        None => Repeat::Unapplied,
    }
}

fn claim_list(claims: &[Claim]) -> Result<List<wire::Claim>, CallFailed> {
    let claims = claims.iter().map(|claim| wire::Claim {
        offset: claim.offset,
        attempts: claim.attempts,
    });
    List::build(claims).map_err(unsendable)
}

fn offset_list(offsets: Option<&[u64]>) -> Result<Option<List<u64>>, CallFailed> {
    let list = offsets.map(|offsets| List::build(offsets.iter().copied()));
    list.transpose().map_err(unsendable)
}

fn unsettled(list: &List<wire::Unsettled>) -> Vec<Unsettled> {
    list.iter()
        .map(|unsettled| Unsettled {
            claim: Claim {
                offset: unsettled.offset,
                attempts: unsettled.attempts,
            },
            code: felix_wire::NamedCode::from_number(unsettled.code)
                .name()
                .to_owned(),
        })
        .collect()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn millis_u32(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}
