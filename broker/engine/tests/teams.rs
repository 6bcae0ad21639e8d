//! Groups of the Kafka protocol: one owner for every partition, fencing, and nothing lost through a restart.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};

use felix_engine::membership::{LedInput, LedOptions, Who};
use felix_engine::teams::{
    Assignor, Beat, Change, CommitAsk, Consumer, ConsumerOptions, Coordinator, Held, NotHeld,
    Partition, Position, Replay, TeamEffect, TeamId, TeamOptions, Topic, TopicName,
};
use felix_engine::{Ticket, membership::JoinLed};
use felix_model::TimeMs;
use proptest::prelude::*;

const CONSUMER: ConsumerOptions = ConsumerOptions {
    session_ms: 1_000,
    heartbeat_ms: 100,
    members_max: 8,
};

const OPTIONS: TeamOptions = TeamOptions {
    led: LedOptions {
        session_ms_min: 1,
        session_ms_max: 100_000,
        members_max: 8,
        initial_delay_ms: 0,
    },
    consumer: CONSUMER,
    retention_ms: 10_000,
    teams_max: 100,
    teams_of_tenant_max: 40,
};

fn topic(name: &TopicName) -> Option<Topic> {
    let width = match name.stream.as_str() {
        "a" => 5,
        "b" => 3,
        _ => return None,
    };
    Some(Topic {
        number: u64::from(width),
        width,
    })
}

fn name(stream: &str) -> TopicName {
    TopicName {
        namespace: "default".to_owned(),
        stream: stream.to_owned(),
    }
}

fn beat(member: &str, epoch: i64, held: Option<BTreeSet<Partition>>) -> Beat {
    let joins = epoch == 0;
    Beat {
        who: Who {
            member: member.into(),
            instance: None,
        },
        epoch,
        rack: None,
        rebalance_ms: joins.then_some(500),
        reads: joins.then(|| vec![name("a"), name("b")]),
        assignor: None,
        held,
        client: String::new(),
        host: String::new(),
    }
}

/// A member as it is on its own side of the wire.
#[derive(Clone, Debug, Default)]
struct Client {
    epoch: i64,
    held: BTreeSet<Partition>,
    told: bool,
}

impl Client {
    fn hear(&mut self, held: Held) {
        self.epoch = held.epoch;
        if let Some(assigned) = held.assigned {
            self.told = self.held != assigned;
            self.held = assigned;
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Beat { member: usize, is_lost: bool },
    Leave { member: usize },
    Subscribe { member: usize, both: bool },
    Wait { ms: u64 },
    Crash { member: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let member = 0..4_usize;
    let step = prop_oneof![
        8 => (member.clone(), prop::bool::weighted(0.2))
            .prop_map(|(member, is_lost)| Step::Beat { member, is_lost }),
        1 => member.clone().prop_map(|member| Step::Leave { member }),
        1 => (member.clone(), any::<bool>())
            .prop_map(|(member, both)| Step::Subscribe { member, both }),
        2 => (1..400_u64).prop_map(|ms| Step::Wait { ms }),
        1 => member.prop_map(|member| Step::Crash { member }),
    ];
    prop::collection::vec(step, 1..120)
}

/// No partition has two owners, neither in the group's books nor by what its living members hold.
fn check(group: &Consumer, clients: &BTreeMap<usize, Client>) {
    let mut owned = BTreeMap::new();
    for (member, partition) in group.owners() {
        let before = owned.insert(partition, member.clone());
        assert_eq!(before, None, "{partition:?} has two owners");
    }
    for (place, client) in clients {
        let id = format!("m{place}");
        let is_member = group.members().any(|it| it.who.member.as_str() == id);
        for partition in client.held.iter().filter(|_| is_member) {
            let owner = owned.get(partition).map(|owner| owner.as_str());
            assert_eq!(owner, Some(&*id), "{partition:?}");
        }
    }
}

proptest! {
    #[test]
    fn a_partition_has_one_owner_whatever_gets_lost(steps in steps(), range: bool) {
        let mut group = Consumer::new(CONSUMER, 0);
        let mut clients: BTreeMap<usize, Client> = BTreeMap::new();
        let mut now = TimeMs(1);
        for step in steps {
            match step {
                Step::Wait { ms } => {
                    now = now.plus(ms);
                    group.pass(now);
                }
                Step::Crash { member } => {
                    clients.remove(&member);
                }
                Step::Leave { member } => {
                    clients.remove(&member);
                    let _ = group.beat(now, beat(&format!("m{member}"), -1, None), &topic);
                }
                Step::Subscribe { member, both } => {
                    if let Some(client) = clients.get_mut(&member).filter(|it| it.epoch > 0) {
                        let mut ask = beat(&format!("m{member}"), client.epoch, None);
                        ask.reads = Some(match both {
                            true => vec![name("a"), name("b")],
                            false => vec![name("a"), name("nowhere")],
                        });
                        ask.assignor = range.then_some(Assignor::Range);
                        settle(group.beat(now, ask, &topic), client);
                    }
                }
                Step::Beat { member, is_lost } => {
                    let client = clients.entry(member).or_default();
                    let held = (client.epoch > 0).then(|| client.held.clone());
                    let ask = beat(&format!("m{member}"), client.epoch, held);
                    let answer = group.beat(now, ask, &topic);
                    if !is_lost {
                        settle(answer, client);
                    }
                }
            }
            check(&group, &clients);
        }
        // Left in peace, everybody comes to a share, and all partitions are somebody's.
        for _ in 0..12 {
            for member in 0..3_usize {
                let client = clients.entry(member).or_default();
                let held = (client.epoch > 0).then(|| client.held.clone());
                let ask = beat(&format!("m{member}"), client.epoch, held);
                settle(group.beat(now, ask, &topic), client);
                check(&group, &clients);
            }
            now = now.plus(300);
        }
        let read: BTreeSet<u64> = [5, 3].into_iter().filter(|it| group.reads(*it)).collect();
        let owned: BTreeSet<Partition> = group.owners().map(|(_, it)| it).collect();
        let all: u64 = read.iter().sum();
        prop_assert_eq!(owned.len() as u64, all);
    }
}

fn settle(answer: Result<Held, NotHeld>, client: &mut Client) {
    match answer {
        Ok(held) => client.hear(held),
        // It gives everything up and joins again.
        Err(_) => *client = Client::default(),
    }
}

fn team() -> TeamId {
    TeamId {
        tenant: "t".to_owned(),
        group: "g".to_owned(),
    }
}

fn position(offset: u64, at: u64) -> Position {
    Position {
        offset,
        generation: 3,
        metadata: "näher".into(),
        committed_at: TimeMs(at),
    }
}

const PARTITION: Partition = Partition {
    number: 5,
    shard: 2,
};

fn commit(who: &Who, generation: i64, offset: u64) -> CommitAsk {
    CommitAsk {
        who: who.clone(),
        generation,
        positions: vec![(PARTITION, position(offset, 1))],
    }
}

/// Runs what is written through its bytes into the log, and takes it over.
fn write(coordinator: &mut Coordinator, log: &mut Vec<Change>, changes: Vec<Change>) {
    for change in changes {
        let read = Change::read(&change.key(), change.value().as_deref()).unwrap();
        assert_eq!(read, change);
        log.push(change.clone());
        coordinator.apply(change);
    }
}

fn replayed(log: &[Change]) -> Coordinator {
    let mut replay = Replay::new(OPTIONS);
    log.iter().for_each(|change| replay.take(change.clone()));
    replay.done(TimeMs(1))
}

fn nobody() -> Who {
    Who {
        member: "".into(),
        instance: None,
    }
}

#[test]
fn a_committed_position_survives_a_restart_and_a_deleted_group_does_not() {
    let (mut coordinator, mut log) = (Coordinator::new(OPTIONS), Vec::new());
    let changes = coordinator
        .commit(&team(), &commit(&nobody(), -1, 7))
        .unwrap();
    // Not before the log has it.
    assert!(coordinator.positions(&team()).is_none());
    write(&mut coordinator, &mut log, changes);
    let again = replayed(&log);
    assert_eq!(again.positions(&team()).unwrap()[&PARTITION].offset, 7);
    let changes = coordinator.delete(&team()).unwrap();
    write(&mut coordinator, &mut log, changes);
    assert!(coordinator.view(&team()).is_none());
    assert!(replayed(&log).view(&team()).is_none());
    assert!(coordinator.delete(&team()).is_err());
}

fn join(coordinator: &mut Coordinator, log: &mut Vec<Change>, ticket: u64, fresh: &str) -> u32 {
    let join = JoinLed {
        who: nobody(),
        fresh: fresh.into(),
        id_required: false,
        session_ms: 1_000,
        rebalance_ms: 1_000,
        protocol_type: "consumer".into(),
        protocols: vec![felix_engine::membership::Protocol {
            name: "range".into(),
            metadata: bytes::Bytes::from_static(b"m"),
        }],
    };
    let ticket = Ticket(ticket);
    let mut effects = Vec::new();
    coordinator.led(
        TimeMs(1),
        &team(),
        LedInput::Join { ticket, join },
        &mut effects,
    );
    let mut generation = 0;
    for effect in effects {
        match effect {
            // Nobody hears of a generation before the log has it.
            TeamEffect::Write { changes, then } => {
                write(coordinator, log, changes);
                for (_, answer) in then {
                    if let Ok(felix_engine::membership::LedAnswer::Joined(joined)) = answer {
                        generation = joined.generation;
                    }
                }
            }
            TeamEffect::Answer { answer, .. } => panic!("it was answered at once: {answer:?}"),
        }
    }
    generation
}

#[test]
fn a_generation_is_never_given_out_twice_also_after_a_restart() {
    let (mut coordinator, mut log) = (Coordinator::new(OPTIONS), Vec::new());
    let first = join(&mut coordinator, &mut log, 1, "m-1");
    assert_eq!(first, 1);
    let member = Who {
        member: "m-1".into(),
        instance: None,
    };
    let stale = commit(&member, 0, 1);
    assert!(coordinator.commit(&team(), &stale).is_err());
    let mut again = replayed(&log);
    // Its members are gone with the restart, and what they commit is refused.
    assert!(again.commit(&team(), &commit(&member, 1, 1)).is_err());
    let second = join(&mut again, &mut log, 2, "m-2");
    assert!(second > first, "{second}");
}

#[test]
fn positions_of_a_group_without_members_are_forgotten_after_their_time() {
    let (mut coordinator, mut log) = (Coordinator::new(OPTIONS), Vec::new());
    let changes = coordinator
        .commit(&team(), &commit(&nobody(), -1, 7))
        .unwrap();
    write(&mut coordinator, &mut log, changes);
    assert!(coordinator.sweep(TimeMs(10_000), &|_, _| true).is_empty());
    // That of a stream that is gone, at once.
    assert_eq!(coordinator.sweep(TimeMs(1), &|_, _| false).len(), 1);
    let changes = coordinator.sweep(TimeMs(10_001), &|_, _| true);
    write(&mut coordinator, &mut log, changes);
    assert!(replayed(&log).view(&team()).is_none());
}

#[test]
fn a_group_that_had_members_until_a_restart_has_its_whole_time_from_there() {
    let (mut coordinator, mut log) = (Coordinator::new(OPTIONS), Vec::new());
    let changes = coordinator
        .commit(&team(), &commit(&nobody(), -1, 7))
        .unwrap();
    write(&mut coordinator, &mut log, changes);
    join(&mut coordinator, &mut log, 1, "m-1");
    // Its member went on for long, and had nothing to commit.
    let now = 1_000_000;
    assert!(coordinator.sweep(TimeMs(now), &|_, _| true).is_empty());
    let mut replay = Replay::new(OPTIONS);
    log.iter().for_each(|change| replay.take(change.clone()));
    let again = replay.done(TimeMs(now));
    assert!(again.sweep(TimeMs(now + 9_999), &|_, _| true).is_empty());
    assert!(!again.sweep(TimeMs(now + 10_000), &|_, _| true).is_empty());
}

#[test]
fn one_tenant_leaves_room_for_the_groups_of_others() {
    let (mut coordinator, mut log) = (Coordinator::new(OPTIONS), Vec::new());
    let of = |tenant: &str, number: usize| TeamId {
        tenant: tenant.to_owned(),
        group: format!("g{number}"),
    };
    let ask = commit(&nobody(), -1, 7);
    let mut made = 0;
    while let Ok(changes) = coordinator.commit(&of("t", made), &ask) {
        write(&mut coordinator, &mut log, changes);
        made += 1;
    }
    assert_eq!(made, OPTIONS.teams_of_tenant_max);
    let changes = coordinator.commit(&of("u", 0), &ask).unwrap();
    write(&mut coordinator, &mut log, changes);
    // What is deleted makes room, and what is there is used on.
    let changes = coordinator.delete(&of("t", 0)).unwrap();
    write(&mut coordinator, &mut log, changes);
    let mut again = replayed(&log);
    for group in [1, made] {
        let changes = again.commit(&of("t", group), &ask).unwrap();
        write(&mut again, &mut log, changes);
    }
    assert!(again.commit(&of("t", made + 1), &ask).is_err());
}

#[test]
fn an_instance_that_is_away_comes_back_to_its_share_and_no_other_takes_its_name() {
    let mut group = Consumer::new(CONSUMER, 0);
    let with = |member: &str, epoch| {
        let mut ask = beat(member, epoch, None);
        ask.who.instance = Some("i".into());
        ask
    };
    let first = group.beat(TimeMs(1), with("one", 0), &topic).unwrap();
    assert_eq!(first.assigned.unwrap().len(), 8);
    let taken = group.beat(TimeMs(2), with("two", 0), &topic);
    assert_eq!(taken, Err(NotHeld::Unreleased));
    group.beat(TimeMs(3), with("one", -2), &topic).unwrap();
    let before = group.epoch();
    let back = group.beat(TimeMs(4), with("two", 0), &topic).unwrap();
    assert_eq!(back.assigned.unwrap().len(), 8);
    assert_eq!(group.epoch(), before, "nobody else noticed");
    let fenced = group.beat(TimeMs(5), with("one", 1), &topic).unwrap_err();
    assert!(matches!(fenced, NotHeld::Membership(_)));
}
