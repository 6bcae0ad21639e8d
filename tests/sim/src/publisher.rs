//! Those who publish: plain, idempotent with repeated sendings, conditional.

use std::collections::VecDeque;

use felix_engine::{AckWhen, AppendRefused, Appended, Draft, Produced, payload_digest};
use felix_model::{InternalHeaders, NativeProducer, Offset, Payloads, ProducerId, TimeMs};

use crate::check::Check;
use crate::oracle::{Oracle, Sequence, Uid};
use crate::random::Random;

/// What an idempotent publisher leaves unanswered.
const WINDOW: usize = 8;

#[derive(Debug)]
pub(crate) struct Publisher {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Plain,
    Idempotent(Idempotent),
    /// Waits for an answer before it asks again.
    Conditional {
        is_waiting: bool,
    },
}

#[derive(Debug)]
struct Idempotent {
    producer: u64,
    next: u64,
    /// Sent and not known to be in the log, in order, and lately known ones that are sent again on a whim.
    window: VecDeque<Unanswered>,
}

#[derive(Clone, Copy, Debug)]
struct Unanswered {
    number: u64,
    uid: Uid,
    /// How many sendings wait for an answer.
    waiting: u32,
}

/// One append on its way to the broker.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) uid: Uid,
    pub(crate) draft: Draft,
    pub(crate) expected: Option<Offset>,
    pub(crate) produced: Option<Produced>,
    pub(crate) ack: AckWhen,
}

impl Publisher {
    pub(crate) fn new(random: &mut Random, producer: u64) -> Self {
        let kind = match random.below(5) {
            0 | 1 => Kind::Plain,
            2 | 3 => Kind::Idempotent(Idempotent::new(producer)),
            _ => Kind::Conditional { is_waiting: false },
        };
        Self { kind }
    }

    pub(crate) fn is_idempotent(&self) -> bool {
        matches!(self.kind, Kind::Idempotent(_))
    }

    /// What it sends next, if anything. `tail` is what it may know of the log's end.
    pub(crate) fn send(
        &mut self,
        random: &mut Random,
        oracle: &mut Oracle,
        now: TimeMs,
        tail: Offset,
    ) -> Option<Sending> {
        match &mut self.kind {
            Kind::Plain => {
                let ack = match random.below(20) {
                    0 => AckWhen::Never,
                    1 | 2 => AckWhen::Accepted,
                    _ => AckWhen::Committed,
                };
                let uid = compose(random, oracle, None, None);
                draft(random, oracle, uid, now).map(|draft| Sending {
                    uid,
                    draft,
                    expected: None,
                    produced: None,
                    ack,
                })
            }
            Kind::Idempotent(producer) => producer.send(random, oracle, now),
            Kind::Conditional { is_waiting } => {
                if std::mem::replace(is_waiting, true) {
                    return None;
                }
                let guess = if random.percent(75) {
                    tail.0
                } else {
                    random.below(tail.0 + 2)
                };
                let expected = Some(Offset(guess));
                let uid = compose(random, oracle, None, expected);
                draft(random, oracle, uid, now).map(|draft| Sending {
                    uid,
                    draft,
                    expected,
                    produced: None,
                    ack: AckWhen::Committed,
                })
            }
        }
    }

    /// An answer. `fresh` is an id for a new producer.
    pub(crate) fn answered(
        &mut self,
        random: &mut Random,
        uid: Uid,
        outcome: Result<Appended, AppendRefused>,
        fresh: u64,
    ) {
        match &mut self.kind {
            Kind::Plain => {}
            Kind::Idempotent(producer) => producer.answered(random, uid, outcome, fresh),
            Kind::Conditional { is_waiting } => *is_waiting = false,
        }
    }

    /// The connection is gone, and with it every answer.
    pub(crate) fn disconnected(&mut self) {
        match &mut self.kind {
            Kind::Plain => {}
            Kind::Idempotent(producer) => {
                producer
                    .window
                    .iter_mut()
                    .for_each(|unanswered| unanswered.waiting = 0);
            }
            Kind::Conditional { is_waiting } => *is_waiting = false,
        }
    }

    /// Whether it still has to hear of something.
    pub(crate) fn is_unsettled(&self) -> bool {
        match &self.kind {
            Kind::Plain => false,
            Kind::Idempotent(producer) => !producer.window.is_empty(),
            Kind::Conditional { is_waiting } => *is_waiting,
        }
    }

    /// Sends again what was not answered, and nothing new.
    pub(crate) fn resend(
        &mut self,
        random: &mut Random,
        oracle: &mut Oracle,
        now: TimeMs,
    ) -> Option<Sending> {
        match &mut self.kind {
            Kind::Idempotent(producer) => producer.resend(random, oracle, now),
            Kind::Plain | Kind::Conditional { .. } => None,
        }
    }
}

impl Idempotent {
    fn new(producer: u64) -> Self {
        Self {
            producer,
            next: 0,
            window: VecDeque::new(),
        }
    }

    fn send(&mut self, random: &mut Random, oracle: &mut Oracle, now: TimeMs) -> Option<Sending> {
        let has_lost = self.window.iter().any(|unanswered| unanswered.waiting == 0);
        if self.window.len() >= WINDOW || (has_lost && random.percent(80)) || random.percent(10) {
            return self.resend(random, oracle, now);
        }
        let number = self.next;
        self.next += 1;
        let sequence = Sequence {
            producer: self.producer,
            number,
        };
        let uid = compose(random, oracle, Some(sequence), None);
        self.window.push_back(Unanswered {
            number,
            uid,
            waiting: 0,
        });
        self.sending(random, oracle, now, self.window.len() - 1)
    }

    /// The oldest without an answer; now and then any, answered or not.
    fn resend(&mut self, random: &mut Random, oracle: &mut Oracle, now: TimeMs) -> Option<Sending> {
        let oldest = self
            .window
            .iter()
            .position(|unanswered| unanswered.waiting == 0);
        let index = match oldest {
            Some(oldest) if random.percent(90) => oldest,
            _ => random.index(self.window.len()),
        };
        self.sending(random, oracle, now, index)
    }

    fn sending(
        &mut self,
        random: &mut Random,
        oracle: &Oracle,
        now: TimeMs,
        index: usize,
    ) -> Option<Sending> {
        let unanswered = self.window.get_mut(index)?;
        unanswered.waiting += 1;
        let (uid, number) = (unanswered.uid, unanswered.number);
        let producer = ProducerId(self.producer);
        let payloads = oracle.payloads(uid)?;
        let produced = Produced {
            producer,
            sequence: number,
            digest: payload_digest(payloads),
        };
        let internal = InternalHeaders {
            publisher: None,
            sequence: Some(NativeProducer {
                producer,
                sequence: number,
            }),
        };
        Some(Sending {
            uid,
            draft: draft_with(random, payloads, now, &internal)?,
            expected: None,
            produced: Some(produced),
            ack: AckWhen::Committed,
        })
    }

    fn answered(
        &mut self,
        random: &mut Random,
        uid: Uid,
        outcome: Result<Appended, AppendRefused>,
        fresh: u64,
    ) {
        let Some(index) = self
            .window
            .iter()
            .position(|unanswered| unanswered.uid == uid)
        else {
            return;
        };
        if let Some(unanswered) = self.window.get_mut(index) {
            unanswered.waiting = unanswered.waiting.saturating_sub(1);
        }
        match outcome {
            // The answer is lost on its way, now and then.
            Ok(_) if random.percent(20) => {}
            Ok(_)
            | Err(AppendRefused::SequenceExpired { .. } | AppendRefused::SequenceReused { .. }) => {
                self.window.remove(index);
            }
            Err(AppendRefused::SequenceGap { expected }) => {
                let is_known = self
                    .window
                    .iter()
                    .any(|unanswered| unanswered.number == expected);
                if !is_known {
                    *self = Self::new(fresh);
                }
            }
            // Retention, or a loss that was allowed, took what came before.
            Err(AppendRefused::UnknownProducer) => {
                let is_first = self.window.front().is_some_and(|first| first.number == 0);
                if !is_first {
                    *self = Self::new(fresh);
                }
            }
            Err(_) => {}
        }
    }
}

/// Makes the payloads of a batch: the first one says which batch it is.
fn compose(
    random: &mut Random,
    oracle: &mut Oracle,
    sequence: Option<Sequence>,
    expected: Option<Offset>,
) -> Uid {
    let count = if random.percent(70) {
        1
    } else {
        random.between(2, 12)
    };
    let uid = oracle.next_uid();
    let mut payloads: Vec<Vec<u8>> = Vec::new();
    for index in 0..count {
        let mut payload = if index == 0 {
            uid.0.to_be_bytes().to_vec()
        } else {
            Vec::new()
        };
        let extra = match random.below(20) {
            0 => random.below(6_000),
            1..=4 => random.below(700),
            5..=7 => 0,
            _ => random.below(60),
        };
        let fill = random.next().to_le_bytes();
        let extra = usize::try_from(extra).unwrap_or(0);
        payload.extend(fill.iter().cycle().take(extra));
        payloads.push(payload);
    }
    match Payloads::build(payloads.iter().map(Vec::as_slice)) {
        Ok(list) => oracle.made(list, sequence, expected),
        Err(refused) => {
            oracle
                .findings
                .report(Check::Bytes, format!("a list cannot be built: {refused}"));
            uid
        }
    }
}

fn draft(random: &mut Random, oracle: &Oracle, uid: Uid, now: TimeMs) -> Option<Draft> {
    draft_with(
        random,
        oracle.payloads(uid)?,
        now,
        &InternalHeaders::default(),
    )
}

/// As the server makes them, with and without the list that spares readers at the tail a conversion.
fn draft_with(
    random: &mut Random,
    payloads: &Payloads,
    now: TimeMs,
    internal: &InternalHeaders<'_>,
) -> Option<Draft> {
    let key = random.percent(30).then_some(b"key".as_slice());
    let time = i64::try_from(now.0).ok()?;
    let log = felix_model::records_from_payloads(payloads, key, time, internal).ok()?;
    let draft = Draft::from_log(log).ok()?;
    Some(if random.percent(80) {
        draft.with_native(payloads.clone())
    } else {
        draft
    })
}
