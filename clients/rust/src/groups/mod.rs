//! Consumer groups: records are handed out, worked on, and settled one by one.
//!
//! [`Group`] is the plain calls, shard by shard. [`Consumer`] is a worker: it joins the group, polls the shards it is
//! assigned, and settles in batches.

mod consumer;
mod delivery;
mod lane;
mod membership;
mod settle;

use std::time::Duration;

use bytes::Bytes;
use felix_wire::extension::requests::{
    self as wire, Asks, GroupAck, GroupDeadLetters, GroupDelete, GroupDescribe, GroupDiscard,
    GroupExtend, GroupList, GroupNack, GroupPoll, GroupRedrive, GroupSeek, GroupSetAside, List,
    Text,
};
use felix_wire::message;
use felix_wire::publish::Names;

pub use self::consumer::{Consumer, ConsumerOptions};
pub use self::delivery::{Delivery, Settled};
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

/// What a poll asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollOptions {
    /// At most this many records.
    pub max_records: u32,
    /// How long to wait for the first record.
    pub wait: Duration,
    /// How long the claims last; zero for the broker's default.
    pub visibility: Duration,
    /// Who polls. Claims of a named consumer are settled under its name.
    pub consumer: Option<String>,
    /// Hands over, first, the claims this consumer held on an older connection.
    pub reclaim: bool,
}

impl Default for PollOptions {
    fn default() -> Self {
        Self {
            max_records: 32,
            wait: Duration::ZERO,
            visibility: Duration::ZERO,
            consumer: None,
            reclaim: false,
        }
    }
}

/// A record that was handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupRecord {
    /// The shard.
    pub shard: u32,
    /// The record's offset in it.
    pub offset: u64,
    /// How often it was handed out; 1 is the first time.
    pub attempts: u32,
    /// How many offsets directly below hold no event.
    pub skipped_before: u64,
    /// When it was appended, Unix milliseconds; 0 from a broker that does not tell.
    pub timestamp_ms: i64,
    /// Its key; `None` also from a broker that speaks the published protocol only.
    pub key: Option<Bytes>,
    /// Its headers, in order.
    pub headers: Vec<(Bytes, Option<Bytes>)>,
    /// Its value; `None` for a deletion.
    pub value: Option<Bytes>,
}

/// One delivery of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The record.
    pub offset: u64,
    /// Which of its deliveries; 0 for whichever stands.
    pub attempts: u32,
}

/// A delivery that was not settled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unsettled {
    /// What was named.
    pub claim: Claim,
    /// The broker's code, for example `stale_claim`.
    pub code: String,
}

/// A record that was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The record's offset.
    pub offset: u64,
    /// How often it was handed out; 0 from a broker that does not tell.
    pub attempts: u32,
    /// Why it was set aside.
    pub reason: String,
    /// When it was set aside, Unix milliseconds.
    pub set_aside_at_ms: i64,
    /// When it was appended, Unix milliseconds.
    pub timestamp_ms: i64,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its headers, in order.
    pub headers: Vec<(Bytes, Option<Bytes>)>,
    /// Its value.
    pub value: Option<Bytes>,
}

/// What became of dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LettersMoved {
    /// How many were made owed again, or dropped.
    pub count: u64,
    /// Offsets that are no dead letters of the group.
    pub missing: Vec<u64>,
}

/// How a group is doing on one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupStanding {
    /// Everything below is finished; `None` before the group has a position.
    pub committed: Option<u64>,
    /// The shard's next offset (exclusive end).
    pub tail: u64,
    /// Records that were never handed out.
    pub lag: u64,
    /// Records out on a claim.
    pub in_flight: u64,
    /// Records waiting to be handed out again.
    pub owed: u64,
    /// Records set aside.
    pub dead_letters: u64,
}

/// Where a group stands after a seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Position {
    /// Everything below is finished.
    pub offset: u64,
    /// Whether the seek moved it.
    pub moved: bool,
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

    /// Sets records aside as ones that cannot be processed.
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
        Ok(unsettled(&self.ask(ask).await?.unsettled))
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
    /// [`CallFailed`].
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
        Ok(self.ask(ask).await?.into())
    }

    /// Drops records that were set aside; all of them without a choice.
    ///
    /// # Errors
    /// [`CallFailed`].
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
        Ok(self.ask(ask).await?.into())
    }

    /// Moves the group on a shard, and voids its claims.
    ///
    /// # Errors
    /// [`CallFailed`].
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
        let sought = self.ask(ask).await?;
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
    /// [`CallFailed`].
    pub async fn delete(&self, shard: u32) -> Result<bool, CallFailed> {
        let group = self.name.clone();
        Ok(self.ask(GroupDelete { shard, group }).await?.existed)
    }

    /// Begins to describe a worker of the group. The name stands for it across restarts: what it held comes back to
    /// it first.
    pub fn consumer(&self, name: &str) -> ConsumerOptions {
        ConsumerOptions::new(self.clone(), name)
    }

    /// Every call of a group may happen twice: settling what is settled changes nothing.
    async fn ask<A: Asks>(&self, ask: A) -> Result<A::Reply, CallFailed> {
        let inner = &self.client.inner;
        inner.ask(&self.names, ask, How::new(Repeat::Always)).await
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

fn millis_u32(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

impl From<wire::DeadLetter> for DeadLetter {
    fn from(letter: wire::DeadLetter) -> Self {
        Self {
            offset: letter.offset,
            attempts: letter.attempts,
            reason: letter.reason.to_string(),
            set_aside_at_ms: letter.set_aside_at_ms,
            timestamp_ms: letter.timestamp_ms,
            key: letter.key,
            headers: headers(&letter.headers),
            value: letter.value,
        }
    }
}

impl From<wire::LettersMoved> for LettersMoved {
    fn from(moved: wire::LettersMoved) -> Self {
        Self {
            count: moved.count,
            missing: moved.missing.iter().collect(),
        }
    }
}

impl From<wire::GroupStanding> for GroupStanding {
    fn from(standing: wire::GroupStanding) -> Self {
        Self {
            committed: standing.committed,
            tail: standing.tail,
            lag: standing.lag,
            in_flight: standing.in_flight,
            owed: standing.owed,
            dead_letters: standing.dead_letters,
        }
    }
}
