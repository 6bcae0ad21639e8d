//! Groups that the broker shares out, step by step.

use felix_engine::Ticket;
use felix_engine::membership::{
    Assigned, AssignedAnswer, AssignedEffect, AssignedInput, AssignedOptions, Assignment, Beat,
    Join, MembershipRefused,
};
use felix_model::TimeMs;

pub(crate) const OPTIONS: AssignedOptions = AssignedOptions {
    session_ms_min: 1_000,
    session_ms_max: 60_000,
    members_max: 3,
    initial_delay_ms: 0,
    quiet_until: TimeMs::ZERO,
};

struct Group {
    core: Assigned,
    now: u64,
    tickets: u64,
}

type Outcome = Result<AssignedAnswer, MembershipRefused>;

impl Group {
    fn new(shards: u32) -> Self {
        Self::with(OPTIONS, shards)
    }

    fn with(options: AssignedOptions, shards: u32) -> Self {
        Self {
            core: Assigned::new(options, shards),
            now: 100,
            tickets: 0,
        }
    }

    fn give(
        &mut self,
        make: impl FnOnce(Ticket) -> AssignedInput,
    ) -> (Ticket, Vec<AssignedEffect>) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let mut effects = Vec::new();
        self.core
            .handle(TimeMs(self.now), make(ticket), &mut effects);
        (ticket, effects)
    }

    fn try_join(&mut self, name: &str, session: u64, owned: &[u32]) -> Outcome {
        let join = Join {
            member: name.into(),
            session,
            session_ms: 9_000,
            rebalance_ms: 30_000,
            owned: owned.to_vec(),
        };
        let (ticket, effects) = self.give(|ticket| AssignedInput::Join { ticket, join });
        at_once(ticket, effects)
    }

    fn join(&mut self, name: &str, owned: &[u32]) -> Assignment {
        assignment(self.try_join(name, 1, owned))
    }

    fn beat(&mut self, name: &str, generation: u64, owned: &[u32]) -> Outcome {
        let (ticket, effects) = self.park(name, generation, owned, 0);
        at_once(ticket, effects)
    }

    fn park(
        &mut self,
        name: &str,
        generation: u64,
        owned: &[u32],
        wait_ms: u64,
    ) -> (Ticket, Vec<AssignedEffect>) {
        let beat = Beat {
            member: name.into(),
            session: 1,
            generation,
            owned: owned.to_vec(),
            wait_ms,
        };
        self.give(|ticket| AssignedInput::Beat { ticket, beat })
    }

    fn leave(&mut self, name: &str) -> Outcome {
        let member = name.into();
        let (ticket, effects) = self.give(|ticket| AssignedInput::Leave {
            ticket,
            member,
            session: 1,
        });
        at_once(ticket, effects)
    }

    fn tick(&mut self, now: u64) -> Vec<AssignedEffect> {
        self.now = now;
        self.give(|_| AssignedInput::Tick).1
    }
}

fn outcome(ticket: Ticket, effects: Vec<AssignedEffect>) -> Option<Outcome> {
    let found = effects.into_iter().find(|effect| effect.ticket == ticket);
    found.map(|effect| effect.outcome)
}

fn at_once(ticket: Ticket, effects: Vec<AssignedEffect>) -> Outcome {
    match outcome(ticket, effects) {
        Some(outcome) => outcome,
        None => panic!("{ticket:?} is not answered at once"),
    }
}

fn assignment(outcome: Outcome) -> Assignment {
    match outcome {
        Ok(AssignedAnswer::Assignment(assignment)) => assignment,
        other => panic!("{other:?} is no assignment"),
    }
}

#[test]
fn a_shard_is_given_on_only_after_its_holder_said_that_it_gave_it_up() {
    let mut group = Group::new(4);
    let first = group.join("a", &[]);
    assert_eq!(first.shards, [0, 1, 2, 3]);
    let second = group.join("b", &[]);
    assert!(second.shards.is_empty());
    assert_eq!(second.pending, 2);
    // It has not even heard of it yet.
    let told = assignment(group.beat("a", first.generation, &[0, 1, 2, 3]));
    assert_eq!(told.shards, [0, 1]);
    assert!(
        assignment(group.beat("b", second.generation, &[]))
            .shards
            .is_empty()
    );
    // One of the two is given up, the other is worked on still.
    assignment(group.beat("a", told.generation, &[0, 1, 2]));
    assert_eq!(
        assignment(group.beat("b", second.generation, &[])).shards,
        [3]
    );
    assignment(group.beat("a", told.generation, &[0, 1]));
    let whole = assignment(group.beat("b", second.generation, &[3]));
    assert_eq!(whole.shards, [2, 3]);
    assert_eq!(whole.pending, 0);
}

#[test]
fn a_member_that_has_not_heard_of_a_loss_has_not_given_anything_up() {
    let mut group = Group::new(2);
    let first = group.join("a", &[]);
    group.join("b", &[]);
    // This beat was sent before `a` began to work on what it was given.
    let told = assignment(group.beat("a", first.generation.saturating_sub(1), &[]));
    assert_eq!(told.shards, [0]);
    assert_eq!(group.core.holder(1), Some(&"a".into()));
    assignment(group.beat("a", told.generation, &[0]));
    assert_eq!(group.core.holder(1), Some(&"b".into()));
}

#[test]
fn a_beat_waits_for_news_and_no_longer_than_a_third_of_the_session() {
    let mut group = Group::new(2);
    let first = group.join("a", &[]);
    let (waiting, effects) = group.park("a", first.generation, &[0, 1], 60_000);
    assert!(effects.is_empty());
    assert_eq!(group.core.next_deadline(), Some(TimeMs(3_100)));
    let effects = group.tick(3_100);
    assert_eq!(
        assignment(outcome(waiting, effects).unwrap()).shards,
        [0, 1]
    );

    let (waiting, _) = group.park("a", first.generation, &[0, 1], 3_000);
    let join = Join {
        member: "b".into(),
        session: 1,
        session_ms: 9_000,
        rebalance_ms: 30_000,
        owned: vec![],
    };
    let (_, effects) = group.give(|ticket| AssignedInput::Join { ticket, join });
    assert_eq!(assignment(outcome(waiting, effects).unwrap()).shards, [0]);
}

#[test]
fn what_a_silent_member_had_is_free_once_its_session_is_over() {
    let mut group = Group::new(4);
    group.join("a", &[]);
    group.tick(5_000);
    let b = group.join("b", &[]);
    assert_eq!(group.tick(9_099), []);
    assert_eq!(group.core.len(), 2);
    group.tick(9_100);
    assert_eq!(group.core.len(), 1);
    assert_eq!(
        assignment(group.beat("b", b.generation, &[])).shards,
        [0, 1, 2, 3]
    );
    assert_eq!(
        group.beat("a", 1, &[]),
        Err(MembershipRefused::UnknownMember)
    );
}

#[test]
fn a_shard_that_is_not_given_up_in_time_is_given_on() {
    let mut group = Group::new(2);
    group.join("a", &[]);
    let b = group.join("b", &[]);
    for now in (3_000..30_000).step_by(3_000) {
        group.now = now;
        assignment(group.beat("a", 99, &[0, 1]));
        assignment(group.beat("b", b.generation, &[]));
    }
    assert_eq!(group.core.holder(1), Some(&"a".into()));
    group.tick(30_100);
    assert_eq!(assignment(group.beat("a", 99, &[0, 1])).shards, [0]);
    assert_eq!(assignment(group.beat("b", b.generation, &[])).shards, [1]);
}

#[test]
fn a_process_under_the_same_name_takes_over_and_the_other_is_told() {
    let mut group = Group::new(2);
    group.join("a", &[]);
    let again = assignment(group.try_join("a", 2, &[]));
    assert_eq!((again.session, again.shards), (2, vec![0, 1]));
    assert_eq!(group.beat("a", 1, &[0, 1]), Err(MembershipRefused::Fenced));
    assert_eq!(group.leave("a"), Err(MembershipRefused::Fenced));
    assert_eq!(group.core.len(), 1);
}

#[test]
fn after_a_restart_nothing_is_given_out_that_an_unheard_member_may_work_on() {
    let quiet_until = TimeMs(10_000);
    let mut group = Group::with(
        AssignedOptions {
            quiet_until,
            ..OPTIONS
        },
        4,
    );
    let a = group.join("a", &[0, 1]);
    assert_eq!(a.shards, [0, 1]);
    let new = group.join("new", &[]);
    assert!(new.shards.is_empty());
    assert_eq!(group.core.holder(3), None);
    // The last holder is heard of, so nothing is in doubt any more.
    let b = group.join("b", &[2, 3]);
    let kept = usize::from(b.shards.contains(&2)) + usize::from(b.shards.contains(&3));
    assert_eq!(kept, b.shards.len());
    assert_eq!(group.core.holder(3), Some(&"b".into()));

    let mut group = Group::with(
        AssignedOptions {
            quiet_until,
            ..OPTIONS
        },
        4,
    );
    let a = group.join("a", &[0, 1]);
    group.now = 9_000;
    assert_eq!(
        assignment(group.beat("a", a.generation, &[0, 1])).shards,
        [0, 1]
    );
    group.tick(10_000);
    assert_eq!(
        assignment(group.beat("a", a.generation, &[0, 1])).shards,
        [0, 1, 2, 3]
    );
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut group = Group::new(2);
    let join = Join {
        member: "a".into(),
        session: 1,
        session_ms: 999,
        rebalance_ms: 1,
        owned: vec![7, u32::MAX],
    };
    let refused = group.give(|ticket| AssignedInput::Join { ticket, join }).1;
    let invalid = MembershipRefused::InvalidSession {
        asked: 999,
        min: 1_000,
        max: 60_000,
    };
    assert_eq!(refused[0].outcome, Err(invalid));
    assert!(group.core.is_empty());
    for name in ["a", "b", "c"] {
        group.join(name, &[9, 1]);
    }
    assert_eq!(
        group.try_join("d", 1, &[]),
        Err(MembershipRefused::Full { limit: 3 })
    );
    assert_eq!(group.leave("d"), Err(MembershipRefused::UnknownMember));
    assert_eq!(group.core.len(), 3);
}

#[test]
fn a_closed_group_sends_everybody_away() {
    let mut group = Group::new(2);
    let a = group.join("a", &[]);
    let (waiting, _) = group.park("a", a.generation, &[0, 1], 3_000);
    let effects = group.give(|_| AssignedInput::Close).1;
    let away = Err(MembershipRefused::NotCoordinator);
    assert_eq!(outcome(waiting, effects), Some(away.clone()));
    assert_eq!(group.try_join("a", 2, &[]), away);
    assert_eq!(group.core.next_deadline(), None);
}

#[test]
fn more_shards_are_shared_out_as_they_come() {
    let mut group = Group::new(1);
    let a = group.join("a", &[]);
    let b = group.join("b", &[]);
    group.give(|_| AssignedInput::Shards { count: 4 });
    assert_eq!(
        assignment(group.beat("a", a.generation, &[0])).shards.len(),
        2
    );
    assert_eq!(
        assignment(group.beat("b", b.generation, &[])).shards.len(),
        2
    );
}
