//! Members as a Kafka client has them, with crashes and lost answers: no shard is ever assigned to
//! two in one generation, every round ends, and in the end everybody works.

use std::collections::BTreeMap;

use bytes::Bytes;
use felix_engine::Ticket;
use felix_engine::membership::{
    Led, LedAnswer, LedInput, LedOptions, LedState, MemberId, MembershipRefused, SyncLed, Who,
};
use felix_model::TimeMs;
use proptest::prelude::*;

use crate::led::{OPTIONS, Outcome, again, id};

const SHARDS: u8 = 7;

#[derive(Debug, Default)]
struct Client {
    alive: bool,
    member: Option<MemberId>,
    generation: u32,
    phase: Phase,
    /// Whose assignment the client is to compute, when it leads.
    led: Vec<MemberId>,
    works_on: Vec<u8>,
    asked: Option<(Ticket, u64)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Out,
    Joined,
    Working,
}

struct World {
    core: Led,
    now: u64,
    clients: Vec<Client>,
    tickets: BTreeMap<Ticket, usize>,
    next: u64,
}

impl World {
    fn new(clients: usize) -> Self {
        Self {
            core: Led::new(LedOptions {
                members_max: 16,
                initial_delay_ms: 200,
                ..OPTIONS
            }),
            now: 1,
            clients: (0..clients).map(|_| Client::default()).collect(),
            tickets: BTreeMap::new(),
            next: 0,
        }
    }

    /// `lost`: the answers of this turn do not arrive.
    fn give(&mut self, input: LedInput, lost: bool) {
        let mut effects = Vec::new();
        self.core.handle(TimeMs(self.now), input, &mut effects);
        for effect in effects {
            if let Some(client) = self.tickets.remove(&effect.ticket)
                && !lost
            {
                self.hear(client, effect.ticket, effect.outcome);
            }
        }
    }

    fn act(&mut self, number: usize, lost: bool) {
        self.next += 1;
        let ticket = Ticket(self.next);
        let now = self.now;
        let Some(client) = self.clients.get_mut(number) else {
            return;
        };
        // A join may wait for as long as the others take; a lost answer is asked for again.
        if !client.alive || client.asked.is_some_and(|(_, sent)| now < sent + 31_000) {
            return;
        }
        client.asked = Some((ticket, now));
        self.tickets.insert(ticket, number);
        let who = client
            .member
            .as_ref()
            .map_or_else(|| id(""), |member| id(member.as_str()));
        let input = match client.phase {
            Phase::Out => {
                let mut join = again("", &["range"]);
                join.who = who;
                join.fresh = format!("c{number}-{}", self.next).into();
                join.id_required = true;
                LedInput::Join { ticket, join }
            }
            Phase::Joined => LedInput::Sync {
                ticket,
                sync: sync(client, who),
            },
            Phase::Working => LedInput::Beat {
                ticket,
                who,
                generation: client.generation,
            },
        };
        self.give(input, lost);
    }

    fn hear(&mut self, number: usize, ticket: Ticket, outcome: Outcome) {
        let Some(client) = self.clients.get_mut(number) else {
            return;
        };
        if client
            .asked
            .take_if(|(asked, _)| *asked == ticket)
            .is_none()
        {
            return;
        }
        match outcome {
            Ok(LedAnswer::Joined(joined)) => {
                client.generation = joined.generation;
                client.member = Some(joined.member);
                client.led = joined
                    .members
                    .into_iter()
                    .map(|other| other.who.member)
                    .collect();
                client.phase = Phase::Joined;
                client.works_on.clear();
            }
            Ok(LedAnswer::Synced { assignment, .. }) => {
                client.works_on = assignment.to_vec();
                client.phase = Phase::Working;
            }
            Ok(LedAnswer::Alive | LedAnswer::Left(_)) => {}
            Err(MembershipRefused::IdRequired { id }) => client.member = Some(id),
            Err(MembershipRefused::RebalanceInProgress) => client.phase = Phase::Out,
            Err(_) => {
                client.phase = Phase::Out;
                client.member = None;
                client.works_on.clear();
            }
        }
    }

    fn crash(&mut self, number: usize) {
        if let Some(client) = self.clients.get_mut(number) {
            *client = Client::default();
        }
    }

    fn pass(&mut self, ms: u64) {
        let until = self.now + ms;
        while let Some(due) = self.core.next_deadline().filter(|due| due.0 <= until) {
            assert!(due.0 > self.now || self.core.state() != LedState::Empty);
            self.now = self.now.max(due.0);
            self.give(LedInput::Tick, false);
            let next = self.core.next_deadline();
            assert!(
                next.is_none_or(|next| next.0 > self.now),
                "a tick settles what is due"
            );
        }
        self.now = until;
    }

    fn check(&self) {
        let mut seen: BTreeMap<(u32, u8), usize> = BTreeMap::new();
        for (number, client) in self.clients.iter().enumerate() {
            for shard in &client.works_on {
                let other = seen.insert((client.generation, *shard), number);
                assert_eq!(
                    other, None,
                    "shard {shard} in generation {}",
                    client.generation
                );
            }
        }
    }
}

/// The leader deals the shards out in turn.
fn sync(client: &Client, who: Who) -> SyncLed {
    let count = client.led.len();
    let assignments = client.led.iter().enumerate().map(|(index, member)| {
        let shards = (0..SHARDS).filter(|shard| usize::from(*shard) % count == index);
        (member.clone(), Bytes::from_iter(shards))
    });
    SyncLed {
        who,
        generation: client.generation,
        protocol_type: None,
        protocol: None,
        assignments: assignments.collect(),
    }
}

fn step() -> impl Strategy<Value = (u8, usize, u64)> {
    (0_u8..12, 0_usize..5, 0_u64..3_000)
}

proptest! {
    #[test]
    fn every_round_ends_and_nobody_shares_a_shard(
        steps in proptest::collection::vec(step(), 0..400)
    ) {
        let mut world = World::new(5);
        for (what, number, ms) in steps {
            match what {
                0..=5 => world.act(number, false),
                6 => world.act(number, true),
                7..=9 => world.pass(ms),
                10 => world.crash(number),
                _ => world.clients[number].alive = true,
            }
            world.check();
        }
        world.clients[0].alive = true;
        for _ in 0..400 {
            world.pass(500);
            (0..5).for_each(|number| world.act(number, false));
            world.check();
        }
        let alive: Vec<_> = world.clients.iter().filter(|client| client.alive).collect();
        prop_assert_eq!(world.core.state(), LedState::Stable);
        prop_assert_eq!(world.core.len(), alive.len());
        let generation = world.core.generation();
        prop_assert!(alive.iter().all(|client| client.generation == generation));
        let worked_on: usize = alive.iter().map(|client| client.works_on.len()).sum();
        prop_assert_eq!(worked_on, usize::from(SHARDS));
    }
}
