//! Groups that a member shares out, step by step.

use bytes::Bytes;
use felix_engine::Ticket;
use felix_engine::membership::{
    JoinLed, Joined, Led, LedAnswer, LedEffect, LedInput, LedOptions, LedState, MemberId,
    MembershipRefused, Protocol, SyncLed, Who,
};
use felix_model::TimeMs;

pub(crate) const OPTIONS: LedOptions = LedOptions {
    session_ms_min: 6_000,
    session_ms_max: 1_800_000,
    members_max: 4,
    initial_delay_ms: 0,
};

pub(crate) type Outcome = Result<LedAnswer, MembershipRefused>;

struct Group {
    core: Led,
    now: u64,
    tickets: u64,
}

impl Group {
    fn new(options: LedOptions) -> Self {
        Self {
            core: Led::new(options),
            now: 1,
            tickets: 0,
        }
    }

    fn give(&mut self, make: impl FnOnce(Ticket) -> LedInput) -> (Ticket, Vec<LedEffect>) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let mut effects = Vec::new();
        self.core
            .handle(TimeMs(self.now), make(ticket), &mut effects);
        (ticket, effects)
    }

    fn join(&mut self, join: JoinLed) -> (Ticket, Vec<LedEffect>) {
        self.give(|ticket| LedInput::Join { ticket, join })
    }

    fn sync(
        &mut self,
        who: Who,
        generation: u32,
        assignments: &[(&str, &'static str)],
    ) -> (Ticket, Vec<LedEffect>) {
        let assignments = assignments
            .iter()
            .map(|(member, what)| (MemberId::from(*member), Bytes::from_static(what.as_bytes())))
            .collect();
        let sync = SyncLed {
            who,
            generation,
            protocol_type: Some("consumer".into()),
            protocol: None,
            assignments,
        };
        self.give(|ticket| LedInput::Sync { ticket, sync })
    }

    fn beat(&mut self, who: Who, generation: u32) -> Outcome {
        let (ticket, effects) = self.give(|ticket| LedInput::Beat {
            ticket,
            who,
            generation,
        });
        at_once(ticket, &effects)
    }

    fn leave(&mut self, who: Who) -> Vec<LedEffect> {
        let members = vec![who];
        self.give(|ticket| LedInput::Leave { ticket, members }).1
    }

    fn tick(&mut self, now: u64) -> Vec<LedEffect> {
        self.now = now;
        self.give(|_| LedInput::Tick).1
    }

    /// `a` and `b` are stable in a generation, `a` leads.
    fn stable() -> (Self, u32) {
        let mut group = Self::new(OPTIONS);
        let (_, effects) = group.join(newcomer("a", &["range"]));
        assert_eq!(joined_in(&effects[0].outcome).leader, "a".into());
        group.join(newcomer("b", &["range"]));
        let (_, effects) = group.join(again("a", &["range"]));
        let generation = joined_in(&effects[0].outcome).generation;
        group.sync(id("b"), generation, &[]);
        group.sync(id("a"), generation, &[("a", "0"), ("b", "1")]);
        assert_eq!(group.core.state(), LedState::Stable);
        (group, generation)
    }
}

pub(crate) fn id(member: &str) -> Who {
    Who {
        member: member.into(),
        instance: None,
    }
}

fn instance(member: &str, instance: &str) -> Who {
    Who {
        member: member.into(),
        instance: Some(instance.into()),
    }
}

/// Somebody new, who is called `fresh` from then on.
fn newcomer(fresh: &str, protocols: &[&str]) -> JoinLed {
    JoinLed {
        fresh: fresh.into(),
        ..again("", protocols)
    }
}

pub(crate) fn again(member: &str, protocols: &[&str]) -> JoinLed {
    let protocols = protocols
        .iter()
        .map(|name| Protocol {
            name: (*name).into(),
            metadata: Bytes::copy_from_slice(name.as_bytes()),
        })
        .collect();
    JoinLed {
        who: id(member),
        fresh: "unused".into(),
        id_required: false,
        session_ms: 10_000,
        rebalance_ms: 30_000,
        protocol_type: "consumer".into(),
        protocols,
    }
}

fn outcome(ticket: Ticket, effects: &[LedEffect]) -> Option<&Outcome> {
    let found = effects.iter().find(|effect| effect.ticket == ticket);
    found.map(|effect| &effect.outcome)
}

fn at_once(ticket: Ticket, effects: &[LedEffect]) -> Outcome {
    match outcome(ticket, effects) {
        Some(outcome) => outcome.clone(),
        None => panic!("{ticket:?} is not answered at once"),
    }
}

fn joined_in(outcome: &Outcome) -> &Joined {
    match outcome {
        Ok(LedAnswer::Joined(joined)) => joined,
        other => panic!("{other:?} is no answer to a join"),
    }
}

fn synced_in(outcome: &Outcome) -> &Bytes {
    match outcome {
        Ok(LedAnswer::Synced { assignment, .. }) => assignment,
        other => panic!("{other:?} is no answer to a sync"),
    }
}

#[test]
fn everybody_joins_the_leader_assigns_and_everybody_gets_its_part() {
    let mut group = Group::new(OPTIONS);
    let (first, effects) = group.join(newcomer("a", &["range"]));
    assert_eq!(joined_in(&at_once(first, &effects)).generation, 1);
    let (second, effects) = group.join(newcomer("b", &["range"]));
    assert_eq!(effects, []);
    assert_eq!(
        group.beat(id("a"), 1),
        Err(MembershipRefused::RebalanceInProgress)
    );
    let (third, effects) = group.join(again("a", &["range"]));
    let leader = joined_in(outcome(third, &effects).unwrap());
    let follower = joined_in(outcome(second, &effects).unwrap());
    assert_eq!((leader.members.len(), follower.members.len()), (2, 0));
    assert_eq!((leader.generation, follower.generation), (2, 2));
    assert_eq!(leader.members[1].metadata, "range");

    let (waits, effects) = group.sync(id("b"), 2, &[]);
    assert_eq!(effects, []);
    let (leads, effects) = group.sync(id("a"), 2, &[("a", "0"), ("b", "1"), ("gone", "2")]);
    assert_eq!(synced_in(outcome(leads, &effects).unwrap()), "0");
    assert_eq!(synced_in(outcome(waits, &effects).unwrap()), "1");
    assert_eq!(group.beat(id("b"), 2), Ok(LedAnswer::Alive));
    assert_eq!(group.core.state(), LedState::Stable);
}

#[test]
fn the_first_round_waits_for_others_to_join() {
    let mut group = Group::new(LedOptions {
        initial_delay_ms: 500,
        ..OPTIONS
    });
    assert_eq!(group.join(newcomer("a", &["range"])).1, []);
    group.now = 400;
    assert_eq!(group.join(newcomer("b", &["range"])).1, []);
    assert_eq!(group.core.next_deadline(), Some(TimeMs(900)));
    let effects = group.tick(900);
    assert_eq!(effects.len(), 2);
    assert_eq!(group.core.generation(), 1);
}

#[test]
fn the_protocol_is_one_that_all_speak_and_most_like_best() {
    let mut group = Group::new(LedOptions {
        initial_delay_ms: 10,
        ..OPTIONS
    });
    group.join(newcomer("a", &["sticky", "range", "round"]));
    group.join(newcomer("b", &["round", "range"]));
    group.join(newcomer("c", &["round", "range"]));
    let (alien, effects) = group.join(newcomer("d", &["sticky"]));
    let inconsistent = Err(MembershipRefused::InconsistentProtocol);
    assert_eq!(at_once(alien, &effects), inconsistent);
    let other_kind = JoinLed {
        protocol_type: "connect".into(),
        ..newcomer("e", &["round"])
    };
    let (other_kind, effects) = group.join(other_kind);
    assert_eq!(at_once(other_kind, &effects), inconsistent);
    let effects = group.tick(11);
    assert_eq!(
        joined_in(&effects[0].outcome).protocol,
        Some("round".into())
    );
}

#[test]
fn a_member_that_does_not_join_again_is_left_behind_when_time_is_up() {
    let (mut group, generation) = Group::stable();
    let (joins, effects) = group.join(again("b", &["range", "new"]));
    assert_eq!(effects, []);
    assert_eq!(group.core.state(), LedState::Preparing);
    group.now = 9_000;
    assert_eq!(
        group.beat(id("a"), generation),
        Err(MembershipRefused::RebalanceInProgress)
    );
    // Its beats keep it in until the round ends; then it is out.
    group.tick(18_000);
    assert_eq!(
        group.beat(id("a"), generation),
        Err(MembershipRefused::RebalanceInProgress)
    );
    let effects = group.tick(30_001);
    assert_eq!(
        joined_in(outcome(joins, &effects).unwrap()).leader,
        "b".into()
    );
    assert_eq!(
        group.beat(id("a"), generation),
        Err(MembershipRefused::UnknownMember)
    );
}

#[test]
fn a_member_that_dies_in_any_state_is_taken_out() {
    // While joining: its session ends, and the round does not wait for its rebalance timeout.
    let (mut group, _) = Group::stable();
    let (joins, _) = group.join(again("b", &["range", "new"]));
    let effects = group.tick(10_001);
    assert_eq!(
        joined_in(outcome(joins, &effects).unwrap()).leader,
        "b".into()
    );
    // The new leader never syncs.
    assert_eq!(group.core.state(), LedState::Completing);
    group.tick(20_001);
    assert_eq!(group.core.state(), LedState::Empty);
    // At work.
    let (mut group, generation) = Group::stable();
    group.now = 6_000;
    assert_eq!(group.beat(id("a"), generation), Ok(LedAnswer::Alive));
    group.tick(10_001);
    assert_eq!(group.core.state(), LedState::Preparing);
    assert_eq!(group.core.len(), 1);
}

#[test]
fn a_leader_that_never_assigns_is_replaced() {
    let mut group = Group::new(LedOptions {
        initial_delay_ms: 10,
        ..OPTIONS
    });
    group.join(newcomer("a", &["range"]));
    group.join(newcomer("b", &["range"]));
    group.tick(11);
    let (waits, effects) = group.sync(id("b"), 1, &[]);
    assert_eq!(effects, []);
    // Its beats keep its session, and still it is out when the round ends.
    for now in [9_000, 18_000, 27_000] {
        group.now = now;
        assert_eq!(group.beat(id("a"), 1), Ok(LedAnswer::Alive));
    }
    let effects = group.tick(30_011);
    let again_please = Err(MembershipRefused::RebalanceInProgress);
    assert_eq!(outcome(waits, &effects), Some(&again_please));
    assert_eq!(
        group.beat(id("a"), 1),
        Err(MembershipRefused::UnknownMember)
    );
}

#[test]
fn a_member_that_missed_an_answer_gets_it_again_without_a_round() {
    let (mut group, generation) = Group::stable();
    let (joins, effects) = group.join(again("b", &["range"]));
    assert_eq!(joined_in(&at_once(joins, &effects)).generation, generation);
    let (syncs, effects) = group.sync(id("b"), generation, &[]);
    assert_eq!(synced_in(&at_once(syncs, &effects)), "1");
    // The leader joins again because it wants to share out anew.
    assert_eq!(group.join(again("a", &["range"])).1, []);
    assert_eq!(group.core.state(), LedState::Preparing);
}

#[test]
fn who_acts_on_what_is_no_more_is_told_so() {
    let (mut group, generation) = Group::stable();
    let illegal = MembershipRefused::IllegalGeneration {
        current: generation,
        named: generation - 1,
    };
    assert_eq!(group.beat(id("a"), generation - 1), Err(illegal.clone()));
    let (late, effects) = group.sync(id("a"), generation - 1, &[]);
    assert_eq!(at_once(late, &effects), Err(illegal.clone()));
    assert_eq!(
        group.core.may_commit(&id("a"), Some(generation - 1)),
        Err(illegal)
    );
    assert_eq!(
        group.beat(id("zed"), generation),
        Err(MembershipRefused::UnknownMember)
    );
}

#[test]
fn positions_may_be_stored_until_the_next_generation_begins() {
    let (mut group, generation) = Group::stable();
    group.join(again("b", &["range", "new"]));
    assert_eq!(group.core.may_commit(&id("a"), Some(generation)), Ok(()));
    group.join(again("a", &["range", "new"]));
    assert_eq!(group.core.state(), LedState::Completing);
    assert_eq!(
        group.core.may_commit(&id("a"), Some(generation + 1)),
        Err(MembershipRefused::RebalanceInProgress)
    );
    assert_eq!(
        group.core.may_commit(&id(""), None),
        Err(MembershipRefused::UnknownMember)
    );
    assert_eq!(Led::new(OPTIONS).may_commit(&id(""), None), Ok(()));
}

#[test]
fn a_new_member_is_promised_an_id_for_one_session() {
    let mut group = Group::new(OPTIONS);
    let join = JoinLed {
        id_required: true,
        ..newcomer("a-1", &["range"])
    };
    let (asks, effects) = group.join(join.clone());
    let promised = MembershipRefused::IdRequired { id: "a-1".into() };
    assert_eq!(at_once(asks, &effects), Err(promised));
    let (joins, effects) = group.join(again("a-1", &["range"]));
    assert_eq!(joined_in(&at_once(joins, &effects)).member, "a-1".into());

    group.join(JoinLed {
        fresh: "b-1".into(),
        ..join
    });
    group.tick(10_001);
    let (late, effects) = group.join(again("b-1", &["range"]));
    assert_eq!(
        at_once(late, &effects),
        Err(MembershipRefused::UnknownMember)
    );
}

#[test]
fn an_instance_comes_back_without_a_round_and_its_former_self_is_fenced() {
    let mut group = Group::new(OPTIONS);
    let join = |fresh: &str| JoinLed {
        who: instance("", "pod-1"),
        ..newcomer(fresh, &["range"])
    };
    group.join(join("a-1"));
    group.sync(instance("a-1", "pod-1"), 1, &[("a-1", "0")]);
    let (back, effects) = group.join(join("a-2"));
    let joined = at_once(back, &effects);
    let joined = joined_in(&joined);
    assert_eq!((joined.generation, joined.skip_assignment), (1, true));
    assert_eq!(
        (&joined.member, &joined.leader),
        (&"a-2".into(), &"a-2".into())
    );
    let fenced = Err(MembershipRefused::Fenced);
    assert_eq!(group.beat(instance("a-1", "pod-1"), 1), fenced);
    let (syncs, effects) = group.sync(instance("a-2", "pod-1"), 1, &[]);
    assert_eq!(synced_in(&at_once(syncs, &effects)), "0");
    // Something new in what it says about itself is a reason for a round.
    let (anew, effects) = group.join(JoinLed {
        who: instance("", "pod-1"),
        ..newcomer("a-3", &["other"])
    });
    assert_eq!(joined_in(&at_once(anew, &effects)).generation, 2);
}

#[test]
fn an_instance_that_is_away_keeps_its_place_until_its_session_ends() {
    let mut group = Group::new(OPTIONS);
    let join = JoinLed {
        who: instance("", "pod-1"),
        session_ms: 60_000,
        rebalance_ms: 5_000,
        ..newcomer("a", &["range"])
    };
    group.join(join);
    group.sync(instance("a", "pod-1"), 1, &[("a", "0")]);
    let other = JoinLed {
        rebalance_ms: 5_000,
        ..newcomer("b", &["range"])
    };
    let (joins, _) = group.join(other);
    let effects = group.tick(5_001);
    let joined = joined_in(outcome(joins, &effects).unwrap());
    assert_eq!(
        (joined.leader.clone(), joined.members.len()),
        ("b".into(), 2)
    );
    group.sync(id("b"), 2, &[("b", "1"), ("a", "0")]);
    assert_eq!(group.core.state(), LedState::Stable);
    assert_eq!(group.core.len(), 2);
}

#[test]
fn leaving_is_answered_one_by_one_and_starts_a_round() {
    let (mut group, _) = Group::stable();
    let effects = group.leave(id("zed"));
    let nobody = LedAnswer::Left(vec![(id("zed"), Err(MembershipRefused::UnknownMember))]);
    assert_eq!(effects[0].outcome, Ok(nobody));
    assert_eq!(group.core.state(), LedState::Stable);
    let effects = group.leave(id("a"));
    assert_eq!(
        effects[0].outcome,
        Ok(LedAnswer::Left(vec![(id("a"), Ok(()))]))
    );
    assert_eq!(group.core.state(), LedState::Preparing);
    group.leave(id("b"));
    assert_eq!(group.core.state(), LedState::Empty);
}

#[test]
fn an_operator_removes_an_instance_by_its_name() {
    let mut group = Group::new(OPTIONS);
    group.join(JoinLed {
        who: instance("", "pod-1"),
        ..newcomer("a", &["range"])
    });
    let effects = group.leave(instance("", "pod-1"));
    let left = LedAnswer::Left(vec![(instance("a", "pod-1"), Ok(()))]);
    assert_eq!(effects[0].outcome, Ok(left));
    assert!(group.core.is_empty());
}

#[test]
fn a_full_group_and_a_session_out_of_bounds_are_refused() {
    let mut group = Group::new(OPTIONS);
    for name in ["a", "b", "c", "d"] {
        group.join(newcomer(name, &["range"]));
    }
    let (fifth, effects) = group.join(newcomer("e", &["range"]));
    assert_eq!(
        at_once(fifth, &effects),
        Err(MembershipRefused::Full { limit: 4 })
    );
    let short = JoinLed {
        session_ms: 5_999,
        ..again("a", &["range"])
    };
    let (short, effects) = group.join(short);
    let invalid = MembershipRefused::InvalidSession {
        asked: 5_999,
        min: 6_000,
        max: 1_800_000,
    };
    assert_eq!(at_once(short, &effects), Err(invalid));
}

#[test]
fn a_group_that_moves_sends_everybody_away() {
    let (mut group, generation) = Group::stable();
    let (joins, _) = group.join(again("b", &["range", "new"]));
    let effects = group.give(|_| LedInput::Close).1;
    let away = Err(MembershipRefused::NotCoordinator);
    assert_eq!(outcome(joins, &effects), Some(&away));
    assert_eq!(group.beat(id("a"), generation), away);
    assert_eq!(group.core.next_deadline(), None);
}
