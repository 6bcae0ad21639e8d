//! Random use of two groups, with crashes, against what a consumer may rely on.

use std::collections::{BTreeMap, BTreeSet};

use super::world::{World, holder, name, poll, settle};
use felix_engine::groups::{Answer, Ask, Input, Ticket, Verb, Which};
use felix_model::Offset;
use proptest::prelude::*;

/// What a group's consumers know.
#[derive(Debug, Default)]
struct Known {
    /// Times each record was received.
    received: BTreeMap<u64, u32>,
    /// Attempts told with the latest delivery.
    attempts: BTreeMap<u64, u32>,
    /// Acks that were answered well.
    acked: BTreeSet<u64>,
    /// Acks that were sent; after a crash it is not known what became of those unanswered.
    sent: BTreeSet<u64>,
    first: Option<u64>,
}

#[derive(Clone, Debug)]
enum Step {
    Publish {
        hole: u64,
        records: usize,
    },
    Poll {
        group: usize,
        max: u32,
    },
    Ack {
        group: usize,
        pick: usize,
    },
    Nack {
        group: usize,
        pick: usize,
        delay: u64,
    },
    Bury {
        group: usize,
        pick: usize,
    },
    Redrive {
        group: usize,
    },
    Wait {
        ms: u64,
    },
    Report,
    Commit,
    Settle,
    Checkpoint,
    Compact,
    Trim {
        pick: usize,
    },
    Crash {
        beyond: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let group = 0..2_usize;
    let step = prop_oneof![
        3 => (0..3_u64, 1..6_usize).prop_map(|(hole, records)| Step::Publish { hole: hole / 2, records }),
        6 => (group.clone(), 1..6_u32).prop_map(|(group, max)| Step::Poll { group, max }),
        6 => (group.clone(), any::<usize>()).prop_map(|(group, pick)| Step::Ack { group, pick }),
        3 => (group.clone(), any::<usize>(), 0..3_u64)
            .prop_map(|(group, pick, delay)| Step::Nack { group, pick, delay: delay * 500 }),
        1 => (group.clone(), any::<usize>()).prop_map(|(group, pick)| Step::Bury { group, pick }),
        1 => group.prop_map(|group| Step::Redrive { group }),
        2 => (1..40_000_u64).prop_map(|ms| Step::Wait { ms }),
        4 => Just(Step::Report),
        4 => Just(Step::Commit),
        3 => Just(Step::Settle),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Compact),
        1 => (0..4_usize).prop_map(|pick| Step::Trim { pick }),
        2 => (0..4_usize).prop_map(|beyond| Step::Crash { beyond }),
    ];
    proptest::collection::vec(step, 1..120)
}

const GROUPS: [&str; 2] = ["a", "b"];

struct Run {
    world: World,
    known: [Known; 2],
    polls: BTreeMap<Ticket, usize>,
    acks: BTreeMap<Ticket, (usize, u64)>,
    published: u64,
}

impl Run {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Publish { hole, records } => {
                let payloads: Vec<Vec<u8>> = (0..records)
                    .map(|_| {
                        self.published += 1;
                        self.published.to_string().into_bytes()
                    })
                    .collect();
                let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
                self.world.publish(hole, &payloads);
            }
            Step::Poll { group, max } => {
                let ask = Ask::Poll(poll(GROUPS[group], holder(1, None), max));
                let ticket = self.world.ask(ask);
                self.polls.insert(ticket, group);
            }
            Step::Ack { group, pick } => {
                if let Some(offset) = self.pick(group, pick) {
                    self.known[group].sent.insert(offset);
                    let ask = settle(GROUPS[group], Verb::Ack, &[(offset, 0)]);
                    let ticket = self.world.ask(ask);
                    self.acks.insert(ticket, (group, offset));
                }
            }
            Step::Nack { group, pick, delay } => {
                if let Some(offset) = self.pick(group, pick) {
                    let verb = Verb::Nack { delay_ms: delay };
                    self.world.ask(settle(GROUPS[group], verb, &[(offset, 0)]));
                }
            }
            Step::Bury { group, pick } => {
                if let Some(offset) = self.pick(group, pick) {
                    let verb = Verb::Bury { reason: None };
                    self.world.ask(settle(GROUPS[group], verb, &[(offset, 0)]));
                }
            }
            Step::Redrive { group } => self.redrive(group),
            Step::Wait { ms } => self.world.at(self.world.now + ms),
            Step::Report => drop(self.world.report()),
            Step::Commit => drop(self.world.commit_one()),
            Step::Settle => self.world.settle(),
            Step::Checkpoint => self.world.turn(Input::Checkpoint),
            Step::Compact => self.world.compact(),
            Step::Trim { pick } => {
                if let Some(&start) = self.world.stream.keys().nth(pick) {
                    self.world.trim(start);
                }
            }
            Step::Crash { beyond } => {
                self.hear();
                self.world.crash(beyond);
                self.polls.clear();
                self.acks.clear();
            }
        }
        self.hear();
    }

    /// A redriven record has its attempts again, also when somebody acknowledged it after it was set aside.
    fn redrive(&mut self, group: usize) {
        self.world.settle();
        self.hear();
        for offset in self.letters(group) {
            self.known[group].received.remove(&offset);
            self.known[group].attempts.remove(&offset);
            self.known[group].acked.remove(&offset);
        }
        let group = name(GROUPS[group]);
        self.world.asked(Ask::Redrive {
            group,
            which: Which::All,
        });
    }

    fn letters(&mut self, group: usize) -> Vec<u64> {
        let answer = self.world.asked(Ask::Letters {
            group: name(GROUPS[group]),
            after: None,
            limit: 1_000,
            payloads: true,
        });
        let Answer::Letters { letters, more } = answer else {
            panic!("{answer:?}");
        };
        assert!(!more);
        for letter in &letters {
            match &letter.record {
                Some(record) => assert_eq!(record.offset, letter.offset),
                None => assert!(letter.offset.0 < self.world.start, "its bytes are kept"),
            }
        }
        letters.iter().map(|letter| letter.offset.0).collect()
    }

    fn pick(&self, group: usize, pick: usize) -> Option<u64> {
        let received = &self.known[group].received;
        let place = pick.checked_rem(received.len())?;
        received.keys().nth(place).copied()
    }

    fn hear(&mut self) {
        for (ticket, answer) in std::mem::take(&mut self.world.answers) {
            match answer {
                Answer::Records(deliveries) => {
                    let group = self.polls.remove(&ticket).expect("a poll was open");
                    for delivery in deliveries {
                        self.received(group, delivery.record.offset, delivery.attempts);
                    }
                }
                Answer::Settled(results) => {
                    if let Some((group, offset)) = self.acks.remove(&ticket)
                        && results[0].is_ok()
                    {
                        self.known[group].acked.insert(offset);
                    }
                }
                Answer::Letters { .. }
                | Answer::Moved { .. }
                | Answer::Position { .. }
                | Answer::Description(_)
                | Answer::Deleted { .. }
                | Answer::Listed { .. }
                | Answer::Scheduled { .. }
                | Answer::Cancelled { .. }
                | Answer::Schedules { .. }
                | Answer::Refused(_) => {}
            }
        }
    }

    fn received(&mut self, group: usize, offset: Offset, attempts: u32) {
        let limit = self.world.options.attempts_max;
        let known = &mut self.known[group];
        assert!(
            !known.acked.contains(&offset.0),
            "{offset} was acknowledged and is handed out again"
        );
        let before = known.attempts.insert(offset.0, attempts).unwrap_or(0);
        assert!(
            attempts > before,
            "{offset}: attempt {attempts} after {before}"
        );
        assert!(attempts <= limit, "{offset}: attempt {attempts}");
        if attempts == 1 && known.first.is_none_or(|first| offset.0 > first) {
            known.first = Some(offset.0);
        }
        *known.received.entry(offset.0).or_default() += 1;
    }

    /// Everything that was not acknowledged comes, or is a dead letter, in a last round without crashes.
    fn drain(&mut self, group: usize) {
        self.world.settle();
        self.hear();
        let mut seen = BTreeSet::new();
        for _ in 0..10_000 {
            let ticket = self
                .world
                .ask(Ask::Poll(poll(GROUPS[group], holder(2, None), 50)));
            self.world.settle();
            if self.world.answers.iter().all(|(of, _)| *of != ticket) {
                self.world.at(self.world.now + 5_000);
            }
            let Some(Answer::Records(records)) = self.world.taken(ticket) else {
                panic!("a poll that does not wait is answered");
            };
            if records.is_empty() {
                let idle = self.is_idle(group);
                if idle {
                    break;
                }
                self.world.at(self.world.now + 3_600_000);
                continue;
            }
            let offsets: Vec<(u64, u32)> = records
                .iter()
                .map(|delivery| (delivery.record.offset.0, delivery.attempts))
                .collect();
            for (offset, attempts) in &offsets {
                self.received(group, Offset(*offset), *attempts);
                seen.insert(*offset);
            }
            let ask = settle(GROUPS[group], Verb::Ack, &offsets);
            let Answer::Settled(results) = self.world.asked(ask) else {
                panic!("settled");
            };
            assert!(results.iter().all(Result::is_ok), "{results:?}");
            self.known[group].acked.extend(seen.iter().copied());
        }
        let letters: BTreeSet<u64> = self.letters(group).into_iter().collect();
        let known = &self.known[group];
        for record in self.world.records() {
            let offset = record.offset.0;
            let is_done = known.acked.contains(&offset)
                || known.sent.contains(&offset)
                || letters.contains(&offset);
            assert!(is_done, "{offset} was skipped");
        }
    }

    fn is_idle(&mut self, group: usize) -> bool {
        let answer = self.world.asked(Ask::Describe {
            group: name(GROUPS[group]),
        });
        let Answer::Description(description) = answer else {
            panic!("{answer:?}");
        };
        description.in_flight == 0 && description.owed == 0
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn what_was_acked_never_comes_again_and_what_was_not_always_does(steps in steps()) {
        let mut run = Run {
            world: World::usual(),
            known: Default::default(),
            polls: BTreeMap::new(),
            acks: BTreeMap::new(),
            published: 0,
        };
        for step in &steps {
            run.step(step);
        }
        for group in 0..GROUPS.len() {
            run.drain(group);
        }
    }

    #[test]
    fn first_deliveries_come_in_the_order_of_offsets(
        batches in proptest::collection::vec((0..3_u64, 1..5_usize), 1..12),
        max in 1..7_u32,
        crash_every in 1..6_usize,
    ) {
        let mut world = World::usual();
        for (hole, records) in batches {
            world.publish(hole, &vec![b"x".as_slice(); records]);
        }
        let mut first = Vec::new();
        for round in 0..600 {
            let Answer::Records(records) = world.asked(Ask::Poll(poll("g", holder(1, None), max)))
            else {
                panic!("records");
            };
            first.extend(
                records
                    .iter()
                    .filter(|delivery| delivery.attempts == 1)
                    .map(|delivery| (delivery.record.offset.0, delivery.skipped_before)),
            );
            let offsets: Vec<(u64, u32)> =
                records.iter().map(|delivery| (delivery.record.offset.0, 0)).collect();
            if round % crash_every == 0 {
                world.crash(0);
            } else {
                world.asked(settle("g", Verb::Ack, &offsets));
            }
        }
        let expected: Vec<u64> = world.records().map(|record| record.offset.0).collect();
        let offsets: Vec<u64> = first.iter().map(|(offset, _)| *offset).collect();
        prop_assert_eq!(&offsets, &expected);
        let mut next = 0;
        for (offset, skipped) in first {
            prop_assert_eq!(offset - next, skipped);
            next = offset + 1;
        }
    }
}
