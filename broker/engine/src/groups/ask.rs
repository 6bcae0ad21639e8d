//! What can be asked of the groups of a shard, and what is answered.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use felix_model::{Offset, Record, TimeMs};

use super::limits;

/// Name of a consumer group: 1 to [`limits::NAME_BYTES_MAX`] bytes. Cloning shares it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(Arc<str>);

/// Id of a scheduled record: 1 to [`limits::NAME_BYTES_MAX`] bytes. Cloning shares it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleId(Arc<[u8]>);

/// Names one question until it is answered. Chosen by the shell, never interpreted here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Who takes records: a connection, and the member it speaks for if it says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Later connections have larger numbers.
    pub connection: u64,
    /// The consumer's name together with its principal, as the shell composes them.
    pub member: Option<Arc<[u8]>>,
}

/// Why a name is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a name has 1 to {limit} bytes, not {bytes}")]
pub struct BadGroupName {
    /// How long it is.
    pub bytes: usize,
    /// [`limits::NAME_BYTES_MAX`].
    pub limit: usize,
}

impl BadGroupName {
    fn check(bytes: usize) -> Result<(), Self> {
        let limit = limits::NAME_BYTES_MAX;
        if (1..=limit).contains(&bytes) {
            Ok(())
        } else {
            Err(Self { bytes, limit })
        }
    }
}

impl GroupName {
    /// A name, if it is one.
    ///
    /// # Errors
    /// [`BadGroupName`].
    pub fn new(name: &str) -> Result<Self, BadGroupName> {
        BadGroupName::check(name.len())?;
        Ok(Self(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ScheduleId {
    /// An id, if it is one.
    ///
    /// # Errors
    /// [`BadGroupName`].
    pub fn new(id: &[u8]) -> Result<Self, BadGroupName> {
        BadGroupName::check(id.len())?;
        Ok(Self(id.into()))
    }

    /// The id.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// One question.
#[derive(Clone, Debug)]
pub enum Ask {
    /// Records to work on. Answered by [`Answer::Records`].
    Poll(Poll),
    /// What became of records. Answered by [`Answer::Settled`], one result for each.
    Settle(Settle),
    /// Which records were set aside. Answered by [`Answer::Letters`].
    Letters {
        /// The group.
        group: GroupName,
        /// Only those above it.
        after: Option<Offset>,
        /// At most so many; at most [`limits::PAGE_MAX`] whatever it says, or [`limits::LETTERS_MAX`] without bytes.
        limit: u32,
        /// With the bytes that were kept.
        payloads: bool,
    },
    /// Makes records that were set aside owed again. Answered by [`Answer::Moved`].
    Redrive {
        /// The group.
        group: GroupName,
        /// Which.
        which: Which,
    },
    /// Drops records that were set aside. Answered by [`Answer::Moved`].
    Discard {
        /// The group.
        group: GroupName,
        /// Which.
        which: Which,
    },
    /// Moves a group and voids its claims. Answered by [`Answer::Position`].
    Seek {
        /// The group.
        group: GroupName,
        /// Where to.
        to: SeekTo,
        /// Only a group that has no position and handed out nothing.
        if_new: bool,
    },
    /// How a group is doing. Answered by [`Answer::Description`].
    Describe {
        /// The group.
        group: GroupName,
    },
    /// Forgets a group. Answered by [`Answer::Deleted`].
    Delete {
        /// The group.
        group: GroupName,
    },
    /// The groups of the shard. Answered by [`Answer::Listed`].
    List {
        /// Only those that come after this one.
        after: Option<GroupName>,
        /// At most so many; at most [`limits::PAGE_MAX`] whatever it says.
        limit: u32,
    },
    /// Appends a record later. Answered by [`Answer::Scheduled`].
    Schedule {
        /// Who schedules twice under one id has scheduled once.
        id: ScheduleId,
        /// When, Unix milliseconds. What is in the past is due at once.
        due: TimeMs,
        /// A record batch v2 with one record; the caller has verified it.
        batch: Bytes,
    },
    /// Takes a scheduled record back. Answered by [`Answer::Cancelled`].
    Cancel {
        /// Which.
        id: ScheduleId,
    },
    /// The records that wait for their time, soonest first. Answered by [`Answer::Schedules`].
    Schedules {
        /// Only those that come after this place: [`ScheduleView::due`] and [`ScheduleView::order`] of one listed.
        after: Option<(TimeMs, u64)>,
        /// At most so many; at most [`limits::PAGE_MAX`] whatever it says.
        limit: u32,
        /// With the records themselves.
        records: bool,
    },
}

/// Asks for records to work on.
#[derive(Clone, Debug)]
pub struct Poll {
    /// The group.
    pub group: GroupName,
    /// Who asks.
    pub holder: Holder,
    /// At most so many; at most [`limits::POLL_RECORDS_MAX`] whatever it says.
    pub max_records: u32,
    /// How long to wait for the first one; at most [`limits::WAIT_MS_MAX`] whatever it says.
    pub wait_ms: u64,
    /// How long the claims last; 0 for [`limits::VISIBILITY_MS`].
    pub visibility_ms: u64,
    /// Hands over, first, what this member holds on older connections.
    pub reclaim: bool,
    /// At most so many bytes of records, but for the first; at most [`limits::POLL_BYTES_MAX`] whatever it says, and
    /// 0 for that.
    pub bytes_max: usize,
    /// The largest record this holder can be given; larger ones are set aside.
    pub record_bytes_max: usize,
}

/// What became of some records.
#[derive(Clone, Debug)]
pub struct Settle {
    /// The group.
    pub group: GroupName,
    /// What to do with them.
    pub verb: Verb,
    /// Which.
    pub items: Vec<Item>,
    /// Who must hold the claims and name the attempts of each; `None`: anybody may.
    pub holder: Option<Holder>,
}

/// What to do with records that were handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// They are finished.
    Ack,
    /// They are given back and owed again after this many milliseconds.
    Nack {
        /// 0: at once. At most [`limits::DELAY_MS_MAX`] counts.
        delay_ms: u64,
    },
    /// Their claims last this much longer from now.
    Extend {
        /// More than 0. At most [`limits::VISIBILITY_MS_MAX`] is granted.
        ms: u64,
    },
    /// They are set aside.
    Bury {
        /// What the consumer says about it; cut to [`limits::REASON_BYTES_MAX`].
        reason: Option<Arc<str>>,
    },
}

/// One record that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// The record.
    pub offset: Offset,
    /// Which delivery of it; 0 for whichever stands.
    pub attempts: u32,
}

/// Which records that were set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// These.
    These(Vec<Offset>),
    /// Every one, at most [`limits::MOVED_MAX`] in one go, lowest first.
    All,
}

/// Where a group is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTo {
    /// To the oldest record that is still there.
    Earliest,
    /// Behind the newest.
    Latest,
    /// To this offset, which must not lie below the oldest nor above the committed mark.
    Offset(Offset),
}

/// One answer.
#[derive(Clone, Debug)]
pub enum Answer {
    /// To a poll; none when the wait was in vain.
    Records(Vec<Delivery>),
    /// To a settlement, in the order of its items. For `Extend`, the milliseconds granted; 0 otherwise.
    Settled(Vec<Result<u64, SettleRefused>>),
    /// A page of the records that were set aside, ascending.
    Letters {
        /// The page.
        letters: Vec<LetterView>,
        /// There are more above.
        more: bool,
    },
    /// To a redrive or discard.
    Moved {
        /// How many.
        count: u64,
        /// How many are left.
        left: u64,
        /// Those asked for that are not there.
        missing: Vec<Offset>,
    },
    /// To a seek.
    Position {
        /// Everything below is finished.
        offset: Offset,
        /// Whether the seek moved it.
        moved: bool,
    },
    /// To a description.
    Description(Description),
    /// To a deletion: whether there was something.
    Deleted {
        /// It existed.
        existed: bool,
    },
    /// A page of groups, by name.
    Listed {
        /// The page.
        groups: Vec<Description>,
        /// There are more.
        more: bool,
    },
    /// The schedule stands, durable.
    Scheduled {
        /// When it is due, which a repetition does not change.
        due: TimeMs,
        /// It was new. `false`: it stood already, or was appended a short time ago.
        created: bool,
    },
    /// To a cancellation: whether it was still to come.
    Cancelled {
        /// It was taken back.
        existed: bool,
    },
    /// A page of scheduled records.
    Schedules {
        /// The page.
        schedules: Vec<ScheduleView>,
        /// There are more.
        more: bool,
    },
    /// Nothing was done.
    Refused(GroupRefused),
}

/// One record handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The record.
    pub record: Record,
    /// How often it was handed out; 1 is the first time.
    pub attempts: u32,
    /// How many offsets directly below hold nothing; told with the first delivery.
    pub skipped_before: u64,
}

/// One record that was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterView {
    /// The record.
    pub offset: Offset,
    /// How often it had been handed out.
    pub attempts: u32,
    /// Why it was set aside.
    pub reason: Arc<str>,
    /// When.
    pub at: TimeMs,
    /// The record as it was kept, when it was asked for and kept.
    pub record: Option<Record>,
}

/// How a group is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Which.
    pub group: GroupName,
    /// Everything below is finished; `None` before the group wrote anything.
    pub committed: Option<Offset>,
    /// The first offset never handed out.
    pub next: Offset,
    /// The committed mark of the shard.
    pub tail: Offset,
    /// Records out on a claim.
    pub in_flight: u64,
    /// Records waiting to be handed out again, at once or later.
    pub owed: u64,
    /// Records set aside.
    pub dead_letters: u64,
    /// Offsets up to the tail that are not finished.
    pub lag: u64,
    /// Owed records that retention took away, since the shard was opened.
    pub trimmed: u64,
    /// Polls that wait.
    pub waiting: u64,
}

/// One scheduled record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleView {
    /// Which.
    pub id: ScheduleId,
    /// When it is due.
    pub due: TimeMs,
    /// Its place among those that are due at the same time.
    pub order: u64,
    /// Bytes of its batch.
    pub bytes: u64,
    /// The record, when it was asked for.
    pub record: Option<Record>,
}

/// Why one record was not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettleRefused {
    /// The caller's: nothing was written there yet.
    #[error("offset is at or past the tail, {tail}")]
    PastTail {
        /// The committed mark.
        tail: Offset,
    },
    /// Not handed out since the state was rebuilt or the group was moved. Polling again helps.
    #[error("the record was not handed out since the group was last moved or rebuilt")]
    NotHandedOut,
    /// The claim that was named does not stand.
    #[error("the claim does not stand any more")]
    Stale,
    /// The caller's: it was set aside or finished before.
    #[error("the record is finished already")]
    Finished,
    /// The caller's: a claim cannot be extended by nothing.
    #[error("a claim is extended by more than 0 ms")]
    ZeroExtension,
    /// Try again later: as much is finished out of order as a group may remember.
    #[error("{ranges} ranges are finished ahead of the position, the limit")]
    TooScattered {
        /// [`limits::AHEAD_RANGES_MAX`].
        ranges: usize,
    },
    /// As many dead letters as a group may have. Redrive or discard some.
    #[error("the group has {letters} dead letters, which is the limit")]
    TooManyLetters {
        /// [`limits::LETTERS_MAX`].
        letters: usize,
    },
}

/// Why a question was refused. Nothing was done, but for the last three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupRefused {
    /// The caller's: an offset outside of what is there.
    #[error("offset {offset} is outside of {oldest} to {tail}")]
    OutOfRange {
        /// What was asked for.
        offset: Offset,
        /// Oldest record held.
        oldest: Offset,
        /// The committed mark.
        tail: Offset,
    },
    /// As many groups as a shard may have.
    #[error("the shard has {limit} groups, which is the limit")]
    TooManyGroups {
        /// [`limits::GROUPS_MAX`].
        limit: usize,
    },
    /// As many waiting polls as a shard may have.
    #[error("{limit} polls wait, which is the limit")]
    TooManyPolls {
        /// [`limits::POLLS_MAX`].
        limit: usize,
    },
    /// As many scheduled records, or bytes of them, as a shard may have.
    #[error("{count} records of {bytes} bytes are scheduled, which is the limit")]
    TooManySchedules {
        /// How many there are.
        count: usize,
        /// Their bytes.
        bytes: u64,
    },
    /// The caller's: too far ahead.
    #[error("{ahead_ms} ms ahead is over the limit of {limit_ms}")]
    TooFarAhead {
        /// How far.
        ahead_ms: u64,
        /// [`limits::SCHEDULE_MS_MAX`].
        limit_ms: u64,
    },
    /// The caller's: more at once than is taken.
    #[error("{count} at once is over the limit of {limit}")]
    TooMany {
        /// How many.
        count: usize,
        /// How many are taken.
        limit: usize,
    },
    /// It is being appended at this moment, and can no longer be taken back.
    #[error("the scheduled record is being appended")]
    BeingAppended,
    /// A record of the stream, or of the lane, cannot be read.
    #[error("the log cannot be read at offset {offset}")]
    Unreadable {
        /// Where.
        offset: Offset,
    },
    /// Try again when there is space. Nothing was done.
    #[error("the disk is full")]
    StorageFull,
    /// The lane failed; whether it was done is not known.
    #[error("a write failed; whether it was done is not known")]
    OutcomeUnknown,
    /// The shard's groups are closed here.
    #[error("the groups of this shard are closed here")]
    Closed,
}

impl GroupRefused {
    /// The same for somebody of whose wish nothing was begun.
    pub(super) fn untouched(self) -> Self {
        if self == Self::OutcomeUnknown {
            Self::Closed
        } else {
            self
        }
    }
}
