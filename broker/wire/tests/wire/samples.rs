//! One of every call and of every reply, made from a handful of parts.

use bytes::Bytes;
use felix_wire::extension::requests::{
    Ask, CacheDelete, CacheDeleted, CacheGet, CacheGetMany, CacheGot, CacheGotMany, CacheList,
    CacheListed, CachePut, CacheStored, Change, Claim, Claimed, Commit, Committed, Condition,
    CounterAdd, CounterGet, CounterValue, DeadLetter, DeadLetters, Entry, GroupAck,
    GroupDeadLetters, GroupDelete, GroupDeleted, GroupDescribe, GroupDescribed, GroupDiscard,
    GroupExtend, GroupExtended, GroupList, GroupListed, GroupListing, GroupNack, GroupPoll,
    GroupPolled, GroupRedrive, GroupSeek, GroupSetAside, GroupSought, GroupStanding, Header,
    LettersMoved, List, Listed, MemberAssigned, MemberHeartbeat, MemberJoin, MemberLeave,
    MemberLeft, Precondition, Reply, ScheduleAdd, ScheduleCancel, ScheduleCancelled, ScheduleList,
    ScheduleListed, Scheduled, Settled, Slot, StateEntry, StateGet, StateGot, StateList,
    StateListed, Text, Unsettled, Versioned, Waiting,
};
use felix_wire::message::Start;

/// What samples are made from.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) wide: u64,
    pub(crate) narrow: u32,
    pub(crate) signed: i64,
    /// Whether fields that need not be there are.
    pub(crate) there: bool,
    /// Whether flags are set.
    pub(crate) set: bool,
    pub(crate) text: String,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    /// How long lists are.
    pub(crate) count: usize,
}

impl Parts {
    pub(crate) fn least() -> Self {
        Self {
            wide: 0,
            narrow: 0,
            signed: 0,
            there: false,
            set: false,
            text: "k".to_owned(),
            key: Vec::new(),
            value: Vec::new(),
            count: 0,
        }
    }

    pub(crate) fn most() -> Self {
        Self {
            wide: 0x0102_0304,
            narrow: 3,
            signed: -2,
            there: true,
            set: true,
            text: "käse".to_owned(),
            key: b"key".to_vec(),
            value: b"value".to_vec(),
            count: 2,
        }
    }

    pub(crate) fn text(&self) -> Text {
        self.text.as_str().into()
    }

    pub(crate) fn key(&self) -> Bytes {
        self.key.clone().into()
    }

    pub(crate) fn value(&self) -> Bytes {
        self.value.clone().into()
    }

    pub(crate) fn maybe<T>(&self, value: T) -> Option<T> {
        self.there.then_some(value)
    }

    pub(crate) fn number(&self) -> Option<u64> {
        self.maybe(self.wide)
    }

    fn entry(&self) -> Entry {
        Entry {
            version: self.wide,
            expires_at_ms: self.wide,
            value: self.value(),
        }
    }

    fn headers(&self) -> List<Header> {
        let (key, value) = (self.key(), self.maybe(self.value()));
        self.list(Header { key, value })
    }

    fn standing(&self) -> GroupStanding {
        GroupStanding {
            committed: self.number(),
            tail: self.wide,
            lag: self.wide,
            in_flight: 1,
            owed: 2,
            dead_letters: 3,
        }
    }

    fn claims(&self) -> List<Claim> {
        self.list(Claim {
            offset: self.wide,
            attempts: self.narrow,
        })
    }

    fn unsettled(&self) -> List<Unsettled> {
        self.list(Unsettled {
            offset: self.wide,
            attempts: self.narrow,
            code: 15,
        })
    }

    fn start(&self) -> Start {
        match self.narrow % 3 {
            0 => Start::Latest,
            1 => Start::Earliest,
            _ => Start::Offset(self.wide),
        }
    }

    pub(crate) fn shards(&self) -> List<u32> {
        self.list(self.narrow)
    }
}

/// What lists are made of.
pub(crate) trait Repeats<T> {
    fn list(&self, item: T) -> List<T>;
}

macro_rules! repeats {
    ($($item:ty),* $(,)?) => {
        $(impl $crate::samples::Repeats<$item> for $crate::samples::Parts {
            fn list(&self, item: $item) -> List<$item> {
                List::build(std::iter::repeat_n(item, self.count)).unwrap()
            }
        })*
    };
}

pub(crate) use repeats;

repeats!(
    Header,
    Claim,
    Unsettled,
    u32,
    u64,
    Text,
    Slot,
    Listed,
    StateEntry,
    Change,
    Precondition,
    Claimed,
    DeadLetter,
    GroupListing,
    Waiting
);

/// One of every call, in the order of their numbers.
pub(crate) fn asks(p: &Parts) -> Vec<Ask> {
    let mut asks = keyed_asks(p);
    asks.extend(group_asks(p));
    asks.extend(other_asks(p));
    asks
}

fn keyed_asks(p: &Parts) -> Vec<Ask> {
    let condition = if p.set {
        Condition::Version(p.wide)
    } else {
        Condition::Absent
    };
    let change = Change {
        key: p.text(),
        value: p.maybe(p.value()),
    };
    let precondition = Precondition {
        key: p.text(),
        version: p.number(),
    };
    vec![
        CacheGet { key: p.text() }.into(),
        CacheGetMany {
            keys: p.list(p.text()),
        }
        .into(),
        CachePut {
            key: p.text(),
            value: p.value(),
            ttl_ms: p.number(),
            condition: p.maybe(condition),
        }
        .into(),
        CacheDelete {
            key: p.text(),
            version: p.number(),
            want_value: p.set,
        }
        .into(),
        CacheList {
            prefix: p.text(),
            limit: p.narrow,
            after: p.maybe(p.text()),
            want_values: p.set,
            shard: p.maybe(p.narrow),
        }
        .into(),
        CounterAdd {
            key: p.text(),
            delta: p.signed,
            once: p.maybe(p.key()),
        }
        .into(),
        CounterGet { key: p.text() }.into(),
        StateGet {
            entity: p.key(),
            key: p.text(),
            shard: p.maybe(p.narrow),
        }
        .into(),
        StateList {
            entity: p.key(),
            prefix: p.text(),
            limit: p.narrow,
            after: p.maybe(p.text()),
            shard: p.maybe(p.narrow),
        }
        .into(),
        Commit {
            entity: p.key(),
            event: p.value(),
            changes: p.list(change),
            expected_offset: p.number(),
            preconditions: p.maybe(p.list(precondition)),
            once: p.maybe(p.key()),
            shard: p.maybe(p.narrow),
        }
        .into(),
    ]
}

fn group_asks(p: &Parts) -> Vec<Ask> {
    let (shard, group) = (p.narrow, p.text());
    let consumer = p.maybe(p.text());
    vec![
        GroupPoll {
            shard,
            group: group.clone(),
            max_records: p.narrow,
            max_bytes: p.narrow,
            wait_ms: p.narrow,
            visibility_ms: p.narrow,
            consumer: consumer.clone(),
            reclaim: p.set,
        }
        .into(),
        GroupAck {
            shard,
            group: group.clone(),
            claims: p.claims(),
            consumer: consumer.clone(),
        }
        .into(),
        GroupNack {
            shard,
            group: group.clone(),
            delay_ms: p.wide,
            claims: p.claims(),
            consumer: consumer.clone(),
        }
        .into(),
        GroupExtend {
            shard,
            group: group.clone(),
            extend_ms: p.wide,
            claims: p.claims(),
            consumer: consumer.clone(),
        }
        .into(),
        GroupSetAside {
            shard,
            group: group.clone(),
            reason: p.text(),
            claims: p.claims(),
            consumer,
        }
        .into(),
        GroupDeadLetters {
            shard,
            group: group.clone(),
            limit: p.narrow,
            after: p.number(),
            want_values: p.set,
        }
        .into(),
        GroupRedrive {
            shard,
            group: group.clone(),
            offsets: p.maybe(p.list(p.wide)),
        }
        .into(),
        GroupDiscard {
            shard,
            group: group.clone(),
            offsets: p.maybe(p.list(p.wide)),
        }
        .into(),
        GroupSeek {
            shard,
            group: group.clone(),
            start: p.start(),
            if_new: p.set,
        }
        .into(),
        GroupDescribe {
            shard,
            group: group.clone(),
        }
        .into(),
        GroupDelete { shard, group }.into(),
        GroupList {
            shard,
            limit: p.narrow,
            after: p.maybe(p.text()),
        }
        .into(),
    ]
}

fn other_asks(p: &Parts) -> Vec<Ask> {
    vec![
        MemberJoin {
            group: p.text(),
            member: p.text(),
            session_ms: p.narrow,
            held: p.shards(),
        }
        .into(),
        MemberHeartbeat {
            group: p.text(),
            member: p.text(),
            generation: p.wide,
            held: p.shards(),
        }
        .into(),
        MemberLeave {
            group: p.text(),
            member: p.text(),
        }
        .into(),
        ScheduleAdd {
            due_ms: p.wide,
            key: p.maybe(p.key()),
            headers: p.headers(),
            value: p.value(),
            id: p.maybe(p.text()),
            shard: p.maybe(p.narrow),
        }
        .into(),
        ScheduleCancel {
            id: p.text(),
            shard: p.maybe(p.narrow),
        }
        .into(),
        ScheduleList {
            limit: p.narrow,
            shard: p.maybe(p.narrow),
            cursor: p.maybe(p.key()),
            want_values: p.set,
        }
        .into(),
    ]
}

/// One of every reply, in the order of the numbers of their calls.
pub(crate) fn replies(p: &Parts) -> Vec<Reply> {
    let mut replies = keyed_replies(p);
    replies.extend(group_replies(p));
    replies.extend(other_replies(p));
    replies
}

fn keyed_replies(p: &Parts) -> Vec<Reply> {
    let counter = CounterValue {
        value: p.maybe(p.signed),
        repeated: p.set,
    };
    let listed = Listed {
        key: p.text(),
        entry: p.entry(),
    };
    let versioned = Versioned {
        version: p.wide,
        value: p.value(),
    };
    let entry = StateEntry {
        key: p.text(),
        version: p.wide,
        value: p.value(),
    };
    vec![
        Reply::CacheGet(CacheGot {
            entry: p.maybe(p.entry()),
        }),
        Reply::CacheGetMany(CacheGotMany {
            slots: p.list(Slot {
                entry: p.maybe(p.entry()),
            }),
        }),
        Reply::CachePut(CacheStored { version: p.wide }),
        Reply::CacheDelete(CacheDeleted {
            removed: p.maybe(p.entry()),
        }),
        Reply::CacheList(CacheListed {
            entries: p.list(listed),
            more: p.set,
        }),
        Reply::CounterAdd(counter.clone()),
        Reply::CounterGet(counter),
        Reply::StateGet(StateGot {
            as_of: p.number(),
            value: p.maybe(versioned),
        }),
        Reply::StateList(StateListed {
            entries: p.list(entry),
            more: p.set,
            as_of: p.number(),
        }),
        Reply::Commit(Committed {
            offset: p.wide,
            repeated: p.set,
        }),
    ]
}

fn group_replies(p: &Parts) -> Vec<Reply> {
    let claimed = Claimed {
        offset: p.wide,
        attempts: p.narrow,
        skipped_before: p.wide,
        timestamp_ms: p.signed,
        key: p.maybe(p.key()),
        headers: p.headers(),
        value: p.maybe(p.value()),
    };
    let letter = DeadLetter {
        offset: p.wide,
        attempts: p.narrow,
        reason: p.text(),
        set_aside_at_ms: p.signed,
        timestamp_ms: p.signed,
        key: p.maybe(p.key()),
        headers: p.headers(),
        value: p.maybe(p.value()),
    };
    let settled = Settled {
        unsettled: p.unsettled(),
    };
    let moved = LettersMoved {
        count: p.wide,
        missing: p.list(p.wide),
    };
    let listing = GroupListing {
        group: p.text(),
        standing: p.standing(),
    };
    vec![
        Reply::GroupPoll(GroupPolled {
            records: p.list(claimed),
        }),
        Reply::GroupAck(settled.clone()),
        Reply::GroupNack(settled.clone()),
        Reply::GroupExtend(GroupExtended {
            visible_ms: p.wide,
            unsettled: p.unsettled(),
        }),
        Reply::GroupSetAside(settled),
        Reply::GroupDeadLetters(DeadLetters {
            letters: p.list(letter),
            more: p.set,
        }),
        Reply::GroupRedrive(moved.clone()),
        Reply::GroupDiscard(moved),
        Reply::GroupSeek(GroupSought {
            offset: p.wide,
            moved: p.set,
        }),
        Reply::GroupDescribe(GroupDescribed {
            standing: p.standing(),
        }),
        Reply::GroupDelete(GroupDeleted { existed: p.set }),
        Reply::GroupList(GroupListed {
            groups: p.list(listing),
            more: p.set,
        }),
    ]
}

fn other_replies(p: &Parts) -> Vec<Reply> {
    let assigned = MemberAssigned {
        generation: p.wide,
        shards: p.narrow,
        heartbeat_ms: p.narrow,
        assigned: p.shards(),
    };
    let waiting = Waiting {
        id: p.text(),
        shard: p.narrow,
        due_ms: p.wide,
        key: p.maybe(p.key()),
        headers: p.headers(),
        value: p.maybe(p.value()),
    };
    vec![
        Reply::MemberJoin(assigned.clone()),
        Reply::MemberHeartbeat(assigned),
        Reply::MemberLeave(MemberLeft { existed: p.set }),
        Reply::ScheduleAdd(Scheduled {
            id: p.text(),
            shard: p.narrow,
            due_ms: p.wide,
            repeated: p.set,
        }),
        Reply::ScheduleCancel(ScheduleCancelled { existed: p.set }),
        Reply::ScheduleList(ScheduleListed {
            records: p.list(waiting),
            cursor: p.maybe(p.key()),
        }),
    ]
}
