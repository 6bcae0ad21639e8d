//! Members of a group in which the broker shares out, through restarts of their coordinator.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;

use felix_engine::membership::{LedOptions, Who};
use felix_engine::teams::{
    Beat, Change, ConsumerOptions, Coordinator, Held, NotHeld, Partition, Replay, TeamEffect,
    TeamId, TeamOptions, Topic, TopicName,
};
use felix_model::TimeMs;

const OPTIONS: TeamOptions = TeamOptions {
    led: LedOptions {
        session_ms_min: 1,
        session_ms_max: 100_000,
        members_max: 8,
        initial_delay_ms: 0,
    },
    consumer: ConsumerOptions {
        session_ms: 1_000,
        heartbeat_ms: 100,
        members_max: 8,
    },
    retention_ms: 10_000,
    teams_max: 100,
    teams_of_tenant_max: 100,
};

fn topic(_: &TopicName) -> Option<Topic> {
    Some(Topic {
        number: 1,
        width: 4,
    })
}

fn team() -> TeamId {
    TeamId {
        tenant: "t".to_owned(),
        group: "g".to_owned(),
    }
}

/// A member as it is on its own side.
#[derive(Clone, Debug)]
struct Member {
    name: &'static str,
    epoch: i64,
    held: BTreeSet<Partition>,
    /// The name that it keeps.
    instance: Option<&'static str>,
}

impl Member {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            epoch: 0,
            held: BTreeSet::new(),
            instance: None,
        }
    }

    fn ask(&self) -> Beat {
        let joins = self.epoch == 0;
        Beat {
            who: Who {
                member: self.name.into(),
                instance: self.instance.map(Into::into),
            },
            epoch: self.epoch,
            rack: None,
            rebalance_ms: joins.then_some(500),
            reads: joins.then(|| {
                vec![TopicName {
                    namespace: "n".to_owned(),
                    stream: "s".to_owned(),
                }]
            }),
            assignor: None,
            held: (!joins).then(|| self.held.clone()),
            client: "c".to_owned(),
            host: "h".to_owned(),
        }
    }

    fn hear(&mut self, held: Held) {
        self.epoch = held.epoch;
        self.held = held.assigned.unwrap_or_else(|| self.held.clone());
    }

    fn shards(&self) -> Vec<u32> {
        self.held.iter().map(|it| it.shard).collect()
    }
}

/// A coordinator and its log.
struct Served {
    core: Coordinator,
    log: Vec<Change>,
}

impl Served {
    fn new(log: Vec<Change>, now: u64) -> Self {
        let mut replay = Replay::new(OPTIONS);
        for change in &log {
            let read = Change::read(&change.key(), change.value().as_deref()).unwrap();
            assert_eq!(&read, change);
            replay.take(read);
        }
        let core = replay.done(TimeMs(now));
        Self { core, log }
    }

    fn restart(self, now: u64) -> Self {
        Self::new(self.log, now)
    }

    /// What is to be written before the member hears the answer.
    fn ask(&mut self, now: u64, member: &Member) -> (Result<Held, NotHeld>, Vec<Change>) {
        let mut effects = Vec::new();
        let answer = self
            .core
            .beat(TimeMs(now), &team(), member.ask(), &topic, &mut effects);
        let changes = effects.into_iter().flat_map(|effect| match effect {
            TeamEffect::Write { changes, .. } => changes,
            TeamEffect::Answer { .. } => Vec::new(),
        });
        (answer, changes.collect())
    }

    fn write(&mut self, changes: Vec<Change>) {
        for change in changes {
            self.log.push(change.clone());
            self.core.apply(change);
        }
    }

    fn beat(&mut self, now: u64, member: &mut Member) {
        let (answer, changes) = self.ask(now, member);
        self.write(changes);
        member.hear(answer.unwrap());
    }

    fn settle(&mut self, now: u64, members: &mut [&mut Member]) {
        for _ in 0..4 {
            for member in &mut *members {
                self.beat(now, member);
            }
        }
    }
}

fn two_members() -> (Served, Member, Member) {
    let mut served = Served::new(Vec::new(), 0);
    let (mut a, mut b) = (Member::new("a"), Member::new("b"));
    served.settle(1, &mut [&mut a, &mut b]);
    assert_eq!((a.shards(), b.shards()), (vec![0, 1], vec![2, 3]));
    (served, a, b)
}

#[test]
fn members_go_on_after_a_restart_with_what_they_have() {
    let (served, mut a, mut b) = two_members();
    let epochs = (a.epoch, b.epoch);
    let mut served = served.restart(100_000);
    let log = served.log.len();
    served.settle(100_001, &mut [&mut a, &mut b]);
    assert_eq!((a.epoch, b.epoch), epochs);
    assert_eq!((a.shards(), b.shards()), (vec![0, 1], vec![2, 3]));
    assert_eq!(
        served.log.len(),
        log,
        "nothing changed, and nothing is written"
    );
}

#[test]
fn after_a_restart_nothing_is_given_to_another_before_it_was_given_back() {
    let (served, mut a, mut b) = two_members();
    let mut served = served.restart(5_000);
    let mut c = Member::new("c");
    served.beat(5_001, &mut c);
    assert_eq!(c.shards(), Vec::<u32>::new());
    // They are asked to give something back, and the coordinator is gone before they hear.
    for member in [&a, &b] {
        let (answer, changes) = served.ask(5_002, member);
        served.write(changes);
        answer.unwrap();
    }
    let mut served = served.restart(6_000);
    served.beat(6_001, &mut c);
    assert_eq!(c.shards(), Vec::<u32>::new());
    served.settle(6_002, &mut [&mut a, &mut b, &mut c]);
    let mut all: Vec<u32> = [&a, &b, &c].iter().flat_map(|it| it.shards()).collect();
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3]);
    assert!(!c.held.is_empty());
}

#[test]
fn a_member_that_is_silent_after_a_restart_loses_its_place_after_its_session() {
    let (served, mut a, _) = two_members();
    let mut served = served.restart(5_000);
    assert_eq!(served.core.next_deadline(), Some(TimeMs(6_000)));
    served.beat(5_999, &mut a);
    assert_eq!(a.shards(), [0, 1]);
    let mut effects = Vec::new();
    served.core.tick(TimeMs(6_000), &mut effects);
    assert_eq!(effects.len(), 1, "that it is gone is written: {effects:?}");
    served.settle(6_001, &mut [&mut a]);
    assert_eq!(a.shards(), [0, 1, 2, 3]);
}

#[test]
fn a_member_is_told_nothing_that_the_log_does_not_have() {
    let mut served = Served::new(Vec::new(), 0);
    let mut a = Member::new("a");
    let (_, lost) = served.ask(1, &a);
    assert!(!lost.is_empty());
    // The log did not take it. Whoever asks again hears nothing before it did.
    let (answer, changes) = served.ask(2, &a);
    let is_member = |change: &Change| matches!(change, Change::Member { .. });
    assert!(changes.iter().any(is_member), "{changes:?}");
    served.write(changes);
    a.hear(answer.unwrap());
    let (_, changes) = served.ask(3, &a);
    assert_eq!(changes, Vec::new());
    let mut served = served.restart(10);
    served.beat(11, &mut a);
    assert_eq!(a.shards(), [0, 1, 2, 3]);
}

#[test]
fn who_got_a_partition_by_a_later_record_has_it() {
    let mut served = Served::new(Vec::new(), 0);
    let (mut a, mut b) = (Member::new("a"), Member::new("b"));
    served.beat(1, &mut a);
    // That the first was taken out for its silence is in no record.
    let mut effects = Vec::new();
    served.core.tick(TimeMs(1_001), &mut effects);
    served.beat(1_002, &mut b);
    assert_eq!(b.shards(), [0, 1, 2, 3]);
    // By the log both are members, and only one of them holds anything: it is asked for the share of the other.
    let mut served = served.restart(1_003);
    let (answer, changes) = served.ask(1_004, &b);
    served.write(changes);
    assert_eq!(answer.unwrap().assigned.map(|left| left.len()), Some(2));
    // The other learns that it has nothing, and gets its share once that was given back.
    served.beat(1_005, &mut a);
    assert_eq!(a.shards(), Vec::<u32>::new());
    served.settle(1_006, &mut [&mut a, &mut b]);
    assert_eq!(a.held.len() + b.held.len(), 4);
    assert!(a.held.is_disjoint(&b.held));
}

#[test]
fn nothing_is_left_to_nobody_when_the_log_did_not_get_that_a_member_left() {
    let (mut served, mut a, mut b) = two_members();
    b.epoch = -1;
    let (_, lost) = served.ask(2, &b);
    assert!(!lost.is_empty());
    let mut c = Member::new("c");
    served.beat(3, &mut c);
    // By the log the one that left has a share still, until its session is over.
    let mut served = served.restart(10);
    served.settle(11, &mut [&mut a, &mut c]);
    let mut effects = Vec::new();
    served.core.tick(TimeMs(1_010), &mut effects);
    served.settle(1_010, &mut [&mut a, &mut c]);
    assert_eq!(a.held.len() + c.held.len(), 4);
    assert!(a.held.is_disjoint(&c.held));
}

#[test]
fn an_instance_is_the_one_that_came_last_also_when_a_later_record_names_another() {
    let mut served = Served::new(Vec::new(), 0);
    let mut a = Member::new("a");
    a.instance = Some("i");
    served.beat(1, &mut a);
    // It is gone, which the log does not get, and another process has its name.
    served.core.tick(TimeMs(1_001), &mut Vec::new());
    let mut b = Member::new("b");
    b.instance = Some("i");
    served.beat(1_002, &mut b);
    let mut served = served.restart(1_003);
    served.settle(1_004, &mut [&mut b]);
    let mut served = served.restart(1_005);
    served.settle(1_006, &mut [&mut b]);
    assert_eq!(b.shards(), [0, 1, 2, 3]);
    let (refused, _) = served.ask(1_007, &a);
    assert!(refused.is_err(), "{refused:?}");
}

#[test]
fn a_member_that_missed_several_epochs_goes_on_with_the_last_it_heard_of() {
    let mut served = Served::new(Vec::new(), 0);
    let mut a = Member::new("a");
    served.beat(1, &mut a);
    let first = a.epoch;
    for other in ["b", "c", "d"] {
        let (answer, changes) = served.ask(2, &Member::new(other));
        served.write(changes);
        answer.unwrap();
        // What it is told is lost, each time.
        let (answer, changes) = served.ask(3, &a);
        served.write(changes);
        answer.unwrap();
        a.held = a.held.iter().copied().take(a.held.len() / 2).collect();
    }
    assert_eq!(a.epoch, first);
    served.beat(4, &mut a);
    assert!(a.epoch > first);
}

#[test]
fn a_member_that_joins_again_under_another_name_gives_its_name_up() {
    let mut served = Served::new(Vec::new(), 0);
    let mut a = Member::new("a");
    a.instance = Some("i");
    served.beat(1, &mut a);
    a.epoch = 0;
    a.instance = Some("j");
    served.beat(2, &mut a);
    // Before and after a restart, the name is free for whoever comes.
    let mut served = served.restart(3);
    let mut b = Member::new("b");
    b.instance = Some("i");
    served.settle(4, &mut [&mut a, &mut b]);
    assert_eq!((a.shards(), b.shards()), (vec![0, 1], vec![2, 3]));
}

#[test]
fn a_member_that_takes_over_the_name_of_another_leaves_its_own_share_to_all() {
    let (mut served, mut a, mut b) = two_members();
    b.epoch = 0;
    b.instance = Some("i");
    served.settle(2, &mut [&mut a, &mut b]);
    // It is away, and the other comes again in its place.
    let (answer, changes) = served.ask(
        3,
        &Member {
            epoch: -2,
            ..b.clone()
        },
    );
    served.write(changes);
    answer.unwrap();
    a.epoch = 0;
    a.instance = Some("i");
    served.settle(4, &mut [&mut a]);
    assert_eq!(a.shards(), [0, 1, 2, 3]);
}

#[test]
fn with_a_group_go_members_of_which_the_log_does_not_know_that_they_left() {
    let mut served = Served::new(Vec::new(), 0);
    let mut a = Member::new("a");
    served.beat(1, &mut a);
    a.epoch = -1;
    let (answer, lost) = served.ask(2, &a);
    answer.unwrap();
    assert!(!lost.is_empty());
    let changes = served.core.delete(&team()).unwrap();
    served.write(changes);
    let served = served.restart(3);
    assert_eq!(served.core.teams("t").count(), 0);
}
