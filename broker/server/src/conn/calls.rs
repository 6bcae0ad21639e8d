//! Calls of the `requests` extension: gathered for one turn, handed over object by object, answered in any order.
//!
//! A call costs no task. Whoever carries it out keeps its [`Caller`] and answers from wherever it is done.

use std::sync::Arc;

use bytes::Bytes;
use felix_wire::error::{Code, Failure};
use felix_wire::extension::Refused;
use felix_wire::extension::raw::FetchHead;
use felix_wire::extension::requests::{Ask, Call, Reply};
use felix_wire::publish::Names;
use tokio::sync::oneshot;

use super::answers::Answers;
use super::stream::StreamState;
use crate::{caches, commits, members};

/// Where the answer to one call goes. A caller that is dropped tells the client that the outcome is unknown.
#[derive(Debug)]
pub(crate) struct Caller {
    answers: Arc<Answers>,
    to: To,
    answered: bool,
}

#[derive(Debug)]
enum To {
    /// Into the frame with this number.
    Stream(u64),
    /// To somebody in this process.
    Near(Option<oneshot::Sender<Outcome>>),
}

/// What became of a call.
pub(crate) type Outcome = Result<Reply, Refused>;

impl Caller {
    pub(crate) fn new(answers: &Arc<Answers>, correlation: u64) -> Self {
        answers.call_begins();
        Self {
            answers: Arc::clone(answers),
            to: To::Stream(correlation),
            answered: false,
        }
    }

    /// One in this process.
    pub(crate) fn near(answers: &Arc<Answers>, answer: oneshot::Sender<Outcome>) -> Self {
        answers.call_begins();
        Self {
            answers: Arc::clone(answers),
            to: To::Near(Some(answer)),
            answered: false,
        }
    }

    /// Answers the call.
    pub(crate) fn answer(mut self, outcome: Outcome) {
        self.send(outcome);
    }

    /// Answers the call with a failure.
    pub(crate) fn fail(self, failure: Failure) {
        self.answer(Err(failure.into()));
    }

    /// Answers a fetch: the batches leave from where they are.
    pub(crate) fn answer_fetch(mut self, head: FetchHead, batches: Vec<Bytes>) {
        let To::Stream(correlation) = self.to else {
            return self.answer(Ok(head.with(batches)));
        };
        match head.encode(correlation) {
            Ok(head) => {
                self.answered = true;
                self.answers.call_ends_with(head.freeze(), batches);
            }
            Err(error) => self.fail(Failure::new(Code::LimitExceeded, error.to_string())),
        }
    }

    /// Bytes of replies that wait for the client to read.
    pub(crate) fn unsent(&self) -> usize {
        self.answers.unsent()
    }

    fn send(&mut self, outcome: Outcome) {
        self.answered = true;
        let correlation = match &mut self.to {
            To::Stream(correlation) => *correlation,
            To::Near(answer) => {
                if let Some(answer) = answer.take() {
                    // Whoever does not wait any more needs no answer.
                    let _ = answer.send(outcome);
                }
                return self.answers.call_ends_near();
            }
        };
        self.answers.call_ends(|replies| {
            let refused = match outcome {
                Ok(reply) => match reply.encode_into(correlation, replies) {
                    Ok(()) => return,
                    // Pages are cut well below a frame, so this is one value that no frame can carry.
                    Err(error) => Failure::new(Code::LimitExceeded, error.to_string()).into(),
                },
                Err(refused) => refused,
            };
            replies.extend_from_slice(&refused.encode(correlation));
        });
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if !self.answered {
            let unknown = || Failure::new(Code::Unacknowledged, "the broker stopped waiting");
            let failure = self.answers.ending().unwrap_or_else(unknown);
            self.send(Err(failure.into()));
        }
    }
}

/// Calls on one object, in the order in which they came.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Tenant, namespace, and the stream or cache.
    pub(crate) names: Names,
    /// What is asked, and by whom.
    pub(crate) asks: Vec<(Ask, Caller)>,
}

/// Which part of the broker carries a call out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Caches,
    Commits,
    Groups,
    Members,
    Raw,
    Teams,
}

impl Family {
    fn of(ask: &Ask) -> Self {
        match ask {
            Ask::CacheGet(_)
            | Ask::CacheGetMany(_)
            | Ask::CachePut(_)
            | Ask::CacheDelete(_)
            | Ask::CacheList(_)
            | Ask::CounterAdd(_)
            | Ask::CounterGet(_) => Self::Caches,
            Ask::StateGet(_) | Ask::StateList(_) | Ask::Commit(_) => Self::Commits,
            Ask::GroupPoll(_)
            | Ask::GroupAck(_)
            | Ask::GroupNack(_)
            | Ask::GroupExtend(_)
            | Ask::GroupSetAside(_)
            | Ask::GroupDeadLetters(_)
            | Ask::GroupRedrive(_)
            | Ask::GroupDiscard(_)
            | Ask::GroupSeek(_)
            | Ask::GroupDescribe(_)
            | Ask::GroupDelete(_)
            | Ask::GroupList(_)
            | Ask::ScheduleAdd(_)
            | Ask::ScheduleCancel(_)
            | Ask::ScheduleList(_) => Self::Groups,
            Ask::MemberJoin(_) | Ask::MemberHeartbeat(_) | Ask::MemberLeave(_) => Self::Members,
            Ask::RawAppend(_)
            | Ask::RawFetch(_)
            | Ask::RawOffsets(_)
            | Ask::RawEpochEnd(_)
            | Ask::RawDeleteRecords(_)
            | Ask::RawProducerId(_)
            | Ask::RawDescribe(_) => Self::Raw,
            Ask::KafkaJoin(_)
            | Ask::KafkaSync(_)
            | Ask::KafkaHeartbeat(_)
            | Ask::KafkaLeave(_)
            | Ask::KafkaCommit(_)
            | Ask::KafkaOffsets(_)
            | Ask::KafkaForget(_)
            | Ask::KafkaDescribe(_)
            | Ask::KafkaList(_)
            | Ask::KafkaDelete(_)
            | Ask::ConsumerHeartbeat(_)
            | Ask::ConsumerDescribe(_) => Self::Teams,
        }
    }
}

/// The calls that a stream has read in one turn.
#[derive(Debug, Default)]
pub(crate) struct Gathered(Vec<(Family, Turn)>);

impl Gathered {
    /// Adds a call behind those that came before it.
    pub(crate) fn push(&mut self, call: Call, caller: Caller) {
        let Call { names, ask } = call;
        let family = Family::of(&ask);
        // A stream talks to few objects at a time, most often to the one of the call before.
        let same = self
            .0
            .iter_mut()
            .rev()
            .find(|(other, turn)| *other == family && turn.names.raw() == names.raw());
        match same {
            Some((_, turn)) => turn.asks.push((ask, caller)),
            None => {
                let asks = vec![(ask, caller)];
                self.0.push((family, Turn { names, asks }));
            }
        }
    }

    /// Whether there is nothing to hand over.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Hands over what was gathered. Returns when it is on its way, not when it is answered.
pub(crate) async fn hand_over(state: &mut StreamState, gathered: Gathered) {
    for (family, turn) in gathered.0 {
        match family {
            Family::Caches => caches::requests::turn(state, turn).await,
            Family::Groups => crate::groups::calls(state, turn).await,
            Family::Commits => commits::requests::turn(state, turn).await,
            Family::Members => members::requests::turn(state, turn).await,
            Family::Raw => crate::raw::turn(state, turn).await,
            Family::Teams => crate::teams::calls(state, turn).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use felix_wire::error::Retry;
    use felix_wire::extension::requests::{CacheGet, CounterGet, CounterValue, GroupDescribe};
    use felix_wire::extension::{Answer, Extension, Extensions};
    use felix_wire::flags::Flags;
    use felix_wire::frame::{Accepts, Incoming, split};
    use felix_wire::negotiate::{Features, Peer};

    use super::*;

    fn answers() -> Arc<Answers> {
        Answers::new(&Peer {
            flags: Flags::ALL,
            features: Features::ALL,
            extensions: Extension::ALL.into_iter().collect(),
            publish_window: None,
        })
    }

    /// What was answered, by correlation.
    fn taken(answers: &Answers) -> Vec<(u64, Answer)> {
        let mut out = Vec::new();
        answers.take(&mut out).unwrap();
        let mut buffer = BytesMut::new();
        for piece in out {
            buffer.extend_from_slice(&piece);
        }
        let accepts = Accepts {
            payload_bytes_max: usize::MAX,
            extensions: true,
        };
        let granted: Extensions = Extension::ALL.into_iter().collect();
        let mut read = Vec::new();
        while let Some(frame) = split(&mut buffer, accepts).unwrap() {
            let Incoming::Extension(frame) = frame else {
                panic!("{frame:?}")
            };
            read.push((frame.correlation, frame.answer(granted).unwrap()));
        }
        read
    }

    fn call(object: &str, ask: impl Into<Ask>) -> Call {
        let names = Names::new("t", "n", object).unwrap();
        let ask = ask.into();
        Call { names, ask }
    }

    fn key(key: &str) -> CacheGet {
        CacheGet { key: key.into() }
    }

    #[test]
    fn calls_on_one_object_stay_together_in_their_order() {
        let answers = answers();
        let mut gathered = Gathered::default();
        let describe = GroupDescribe {
            shard: 0,
            group: "g".into(),
        };
        let calls = [
            call("a", key("1")),
            call("b", key("2")),
            call("a", describe),
            call("a", key("3")),
            call("a", CounterGet { key: "4".into() }),
        ];
        for (correlation, call) in calls.into_iter().enumerate() {
            gathered.push(call, Caller::new(&answers, correlation as u64));
        }
        let turns: Vec<_> = gathered
            .0
            .iter()
            .map(|(family, turn)| {
                let asks = turn.asks.iter().map(|(_, caller)| match caller.to {
                    To::Stream(correlation) => correlation,
                    To::Near(_) => u64::MAX,
                });
                (*family, turn.names.stream(), asks.collect::<Vec<_>>())
            })
            .collect();
        assert_eq!(
            turns,
            [
                (Family::Caches, "a", vec![0, 3, 4]),
                (Family::Caches, "b", vec![1]),
                (Family::Groups, "a", vec![2]),
            ]
        );
    }

    #[test]
    fn calls_are_answered_under_their_correlation_in_any_order() {
        let answers = answers();
        let (first, second) = (Caller::new(&answers, 1), Caller::new(&answers, 2));
        let reply = Reply::CounterGet(CounterValue {
            value: Some(3),
            repeated: false,
        });
        second.answer(Ok(reply.clone()));
        first.fail(Failure::new(Code::NotFound, "no such cache"));
        let taken = taken(&answers);
        assert_eq!(taken[0], (2, Answer::Reply(reply)));
        assert!(matches!(&taken[1], (1, Answer::Refused(refused))
            if refused.failure.code() == Some(Code::NotFound)));
    }

    #[test]
    fn a_call_that_is_dropped_has_an_unknown_outcome() {
        let answers = answers();
        drop(Caller::new(&answers, 9));
        assert!(
            matches!(&taken(&answers)[..], [(9, Answer::Refused(refused))]
            if refused.failure.retry() == Retry::OutcomeUnknown)
        );
        assert!(answers.is_idle());
    }
}
