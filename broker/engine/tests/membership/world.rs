//! Members that crash, hang, leave and come back, a network that loses, delays and reorders, a
//! coordinator that forgets everything: no shard is ever worked on by two, and once things calm down
//! every shard is worked on by one.

use std::collections::{BTreeMap, BTreeSet};

use felix_engine::Ticket;
use felix_engine::membership::{
    Assigned, AssignedAnswer, AssignedInput, AssignedOptions, Assignment, Beat, Join,
    MembershipRefused,
};
use felix_model::TimeMs;
use proptest::prelude::*;

const SESSION_MS: u64 = 9_000;
const REBALANCE_MS: u64 = 20_000;
const OPTIONS: AssignedOptions = AssignedOptions {
    session_ms_min: 1_000,
    session_ms_max: SESSION_MS,
    members_max: 16,
    initial_delay_ms: 300,
    quiet_until: TimeMs::ZERO,
};

/// Small and seeded.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// A member as it should behave.
#[derive(Debug, Default)]
struct Member {
    alive: bool,
    /// Of its latest joining; 0 before.
    session: u64,
    joined: bool,
    generation: u64,
    working: BTreeSet<u32>,
    /// What it is to give up, and until when it must have.
    draining: BTreeMap<u32, u64>,
    /// When it sent what was answered last.
    answered: u64,
    asked: Option<(Ticket, u64)>,
}

impl Member {
    fn has_lease(&self, now: u64) -> bool {
        self.alive && now < self.answered + SESSION_MS
    }

    fn works_on(&self, now: u64) -> BTreeSet<u32> {
        if !self.has_lease(now) {
            return BTreeSet::new();
        }
        let draining = self.draining.iter().filter(|(_, by)| now < **by);
        let mut all: BTreeSet<u32> = draining.map(|(shard, _)| *shard).collect();
        all.extend(&self.working);
        all
    }

    fn stop(&mut self) {
        self.working.clear();
        self.draining.clear();
        self.joined = false;
    }

    fn follow(&mut self, now: u64, sent: u64, assignment: &Assignment) {
        if assignment.session != self.session || assignment.generation < self.generation {
            return;
        }
        let give_up_by = self.answered.max(if self.joined { 0 } else { sent }) + REBALANCE_MS;
        let worked_on = self.works_on(now);
        self.joined = true;
        self.generation = assignment.generation;
        self.working = assignment.shards.iter().copied().collect();
        let kept: BTreeMap<u32, u64> = worked_on
            .difference(&self.working)
            .map(|shard| (*shard, *self.draining.get(shard).unwrap_or(&give_up_by)))
            .collect();
        self.draining = kept;
        self.answered = self.answered.max(sent);
    }
}

type Outcome = Result<AssignedAnswer, MembershipRefused>;

struct World {
    dice: Dice,
    now: u64,
    shards: u32,
    core: Assigned,
    members: BTreeMap<String, Member>,
    requests: Vec<(String, Ticket, AssignedInput)>,
    answers: Vec<(Ticket, Outcome)>,
    owner: BTreeMap<Ticket, String>,
    tickets: u64,
    calm: bool,
}

impl World {
    fn new(seed: u64, shards: u32, members: u64) -> Self {
        let names = (0..members).map(|number| (format!("m{number}"), Member::default()));
        Self {
            dice: Dice(seed | 1),
            now: 1,
            shards,
            core: Assigned::new(OPTIONS, shards),
            members: names.collect(),
            requests: Vec::new(),
            answers: Vec::new(),
            owner: BTreeMap::new(),
            tickets: 0,
            calm: false,
        }
    }

    fn step(&mut self) {
        let name = format!("m{}", self.dice.below(self.members.len() as u64));
        match self.dice.below(20) {
            0..=5 => self.send(&name),
            6..=9 => self.carry_request(),
            10..=13 => self.carry_answer(),
            14 => self.drain_one(&name),
            15..=17 => self.pass(),
            _ if self.calm => self.pass(),
            18 => self.disturb(&name),
            _ => self.now += self.dice.below(4_000),
        }
        self.tick_if_due();
        self.check();
    }

    fn pass(&mut self) {
        let most = if self.calm { 40 } else { 200 };
        self.now += self.dice.below(most);
    }

    fn tick_if_due(&mut self) {
        if self
            .core
            .next_deadline()
            .is_some_and(|due| due.0 <= self.now)
        {
            self.give(AssignedInput::Tick);
        }
        for member in self.members.values_mut() {
            if member.alive && member.joined && !member.has_lease(self.now) {
                member.stop();
            }
            member.draining.retain(|_, by| self.now < *by);
        }
    }

    fn give(&mut self, input: AssignedInput) {
        let mut effects = Vec::new();
        self.core.handle(TimeMs(self.now), input, &mut effects);
        for effect in effects {
            self.answers.push((effect.ticket, effect.outcome));
        }
    }

    fn send(&mut self, name: &str) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let now = self.now;
        let Some(member) = self.members.get_mut(name) else {
            return;
        };
        // An answer may be lost: it asks again after a while.
        let waits = member.asked.is_some_and(|(_, sent)| now < sent + 3_500);
        if !member.alive || waits {
            return;
        }
        let owned = member.works_on(now).into_iter().collect();
        let input = if member.joined {
            let beat = Beat {
                member: name.into(),
                session: member.session,
                generation: member.generation,
                owned,
                wait_ms: self.dice.below(3) * 1_500,
            };
            AssignedInput::Beat { ticket, beat }
        } else {
            member.session = self.tickets;
            member.generation = 0;
            let join = Join {
                member: name.into(),
                session: member.session,
                session_ms: SESSION_MS,
                rebalance_ms: REBALANCE_MS,
                owned,
            };
            AssignedInput::Join { ticket, join }
        };
        member.asked = Some((ticket, now));
        self.owner.insert(ticket, name.to_owned());
        self.requests.push((name.to_owned(), ticket, input));
    }

    fn carry_request(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        let which = self.dice.below(self.requests.len() as u64) as usize;
        let (_, _, input) = self.requests.swap_remove(which);
        if self.calm || !self.dice.once_in(12) {
            self.give(input);
        }
    }

    fn carry_answer(&mut self) {
        if self.answers.is_empty() {
            return;
        }
        let which = self.dice.below(self.answers.len() as u64) as usize;
        let (ticket, outcome) = self.answers.swap_remove(which);
        if self.calm || !self.dice.once_in(12) {
            self.hear(ticket, outcome);
        }
    }

    fn hear(&mut self, ticket: Ticket, outcome: Outcome) {
        let now = self.now;
        let name = self.owner.get(&ticket).cloned().unwrap_or_default();
        let Some(member) = self.members.get_mut(&name) else {
            return;
        };
        // Of a process that has gone, or of a request that was given up.
        let Some((_, sent)) = member.asked.take_if(|(asked, _)| *asked == ticket) else {
            return;
        };
        match outcome {
            Ok(AssignedAnswer::Assignment(assignment)) => member.follow(now, sent, &assignment),
            Ok(AssignedAnswer::Left) => {}
            // It goes on with what it has until its lease is over, and joins anew.
            Err(MembershipRefused::UnknownMember) => member.joined = false,
            Err(_) => member.stop(),
        }
    }

    fn drain_one(&mut self, name: &str) {
        if let Some(member) = self.members.get_mut(name) {
            member.draining.pop_first();
        }
    }

    fn disturb(&mut self, name: &str) {
        match self.dice.below(8) {
            0 => {
                // The coordinator forgets everything. Its connections end with it, so nothing that
                // was on its way to it arrives; answers that left it may.
                self.requests.clear();
                let quiet_until = TimeMs(self.now + SESSION_MS);
                self.core = Assigned::new(
                    AssignedOptions {
                        quiet_until,
                        ..OPTIONS
                    },
                    self.shards,
                );
            }
            1..=3 => {
                let member = self.members.entry(name.to_owned()).or_default();
                let alive = !member.alive;
                *member = Member {
                    alive,
                    ..Member::default()
                };
            }
            4 => {
                self.tickets += 1;
                let Some(member) = self.members.get_mut(name) else {
                    return;
                };
                member.stop();
                member.asked = None;
                let input = AssignedInput::Leave {
                    ticket: Ticket(self.tickets),
                    member: name.into(),
                    session: std::mem::take(&mut member.session),
                };
                self.requests
                    .push((name.to_owned(), Ticket(self.tickets), input));
            }
            _ => {
                let member = self.members.entry(name.to_owned()).or_default();
                member.alive = true;
            }
        }
    }

    fn check(&self) {
        let mut seen: BTreeMap<u32, &str> = BTreeMap::new();
        for (name, member) in &self.members {
            for shard in member.works_on(self.now) {
                let other = seen.insert(shard, name);
                assert!(
                    other.is_none(),
                    "shard {shard} is worked on by {name} and {other:?} at {}",
                    self.now
                );
            }
        }
    }

    /// Lets everything arrive and nobody fail until all is well, or too much time has passed.
    fn calm_down(&mut self) {
        self.calm = true;
        if self.members.values().all(|member| !member.alive) {
            self.members
                .values_mut()
                .take(1)
                .for_each(|member| member.alive = true);
        }
        let until = self.now + 4 * (SESSION_MS + REBALANCE_MS);
        while self.now < until {
            self.step();
        }
        let alive = self.members.values().filter(|member| member.alive);
        let counts: Vec<usize> = alive.map(|member| member.working.len()).collect();
        let worked_on: usize = counts.iter().sum();
        assert_eq!(worked_on, self.shards as usize, "{counts:?}");
        let spread = counts
            .iter()
            .max()
            .zip(counts.iter().min())
            .map(|(most, least)| most - least);
        assert!(spread <= Some(1), "{counts:?}");
        let generation = self.core.generation();
        for _ in 0..500 {
            self.step();
        }
        assert_eq!(
            self.core.generation(),
            generation,
            "calm means that nothing changes"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn no_shard_is_ever_worked_on_by_two_and_in_the_end_each_is_by_one(
        seed in any::<u64>(), shards in 0_u32..20, members in 1_u64..7, steps in 0_usize..1_500
    ) {
        let mut world = World::new(seed, shards, members);
        for _ in 0..steps {
            world.step();
        }
        world.calm_down();
    }
}

#[test]
fn a_worker_that_joins_and_leaves_twenty_times_leaves_no_shard_behind() {
    let mut world = World::new(7, 2, 2);
    world
        .members
        .values_mut()
        .for_each(|member| member.alive = true);
    for _ in 0..20 {
        let member = world.members.get_mut("m1").expect("it is there");
        let alive = !member.alive;
        *member = Member {
            alive,
            ..Member::default()
        };
        for _ in 0..400 {
            world.calm = true;
            world.step();
        }
    }
    world.calm_down();
    assert!(
        world
            .members
            .values()
            .all(|member| member.working.len() == 1)
    );
}
