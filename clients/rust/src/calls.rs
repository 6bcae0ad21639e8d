//! Requests with one answer: sent on a stream of their own, redirected, and repeated where that is safe.

use std::sync::Arc;
use std::time::Duration;

use felix_wire::error::{Code, Failure};
use felix_wire::message::Message;
use felix_wire::negotiate::Features;
use tokio::time::{Instant, sleep, timeout_at};

use crate::address::Address;
use crate::backoff::{self, Backoff};
use crate::client::Inner;
use crate::error::{CallFailed, ConnectFailed, Refused, Retry};
use crate::groups::millis_u32;
use crate::limits::HOPS_MAX;
use crate::link::Link;
use crate::session::{NotAsked, Wants, ask, is_about_token};

/// What has to be known of a request to send it.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) request: Message,
    /// The feature the broker must have, with its name for the error.
    pub(crate) needs: Option<(Features, &'static str)>,
    /// Whether it changes something. If not, it is repeated until it is answered or time runs out.
    pub(crate) changes: bool,
    pub(crate) wants: Wants,
    /// Where to ask first, if not at the entry broker.
    pub(crate) at: Option<Address>,
    pub(crate) slot: usize,
    /// How long the broker may take beyond the request's timeout, for requests that wait.
    pub(crate) patience: Duration,
}

/// An answer and the connection it came on, which is where an event stream will arrive.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) link: Arc<Link>,
    pub(crate) answer: Message,
}

impl Call {
    /// A request that changes nothing.
    pub(crate) fn read(request: impl Into<Message>) -> Self {
        Self {
            request: request.into(),
            needs: None,
            changes: false,
            wants: Wants::default(),
            at: None,
            slot: 0,
            patience: Duration::ZERO,
        }
    }

    /// A request that must not be carried out twice.
    pub(crate) fn change(request: impl Into<Message>) -> Self {
        Self {
            changes: true,
            ..Self::read(request)
        }
    }

    pub(crate) fn needs(mut self, features: Features, name: &'static str) -> Self {
        self.needs = Some((features, name));
        self
    }
}

/// What became of one attempt.
enum Attempt {
    Answered(Answered),
    /// The leader's address, and its node id.
    Elsewhere {
        node_id: String,
        at: Option<Address>,
    },
    Failed(CallFailed),
}

impl Inner {
    /// Sends a request and takes its answer. Follows redirects; never repeats a change that may have been carried
    /// out.
    ///
    /// # Errors
    /// [`CallFailed`]. A refusal that is an `error` is one; any other answer is the caller's to read.
    pub(crate) async fn call(self: &Arc<Self>, mut call: Call) -> Result<Answered, CallFailed> {
        let started = Instant::now();
        let waits_until = started + call.patience;
        let deadline = waits_until + self.brokers.config.request_timeout;
        let mut backoff = Backoff::new(self.brokers.config.reconnect);
        let mut at = call.at.clone();
        let mut been = Vec::new();
        loop {
            let failed = match self.attempt(&call, at.take(), deadline).await {
                Attempt::Answered(answered) => return Ok(answered),
                Attempt::Elsewhere {
                    node_id,
                    at: Some(leader),
                } if been.len() < HOPS_MAX && !been.contains(&node_id) => {
                    been.push(node_id);
                    at = Some(leader);
                    continue;
                }
                Attempt::Elsewhere { node_id, .. } => {
                    let message = format!("node {node_id} leads the shard and cannot be reached");
                    CallFailed::Refused(Failure::new(Code::NotLeader, message).into())
                }
                Attempt::Failed(failed) => failed,
            };
            let Some(at_least) = repeatable(&failed, call.changes) else {
                return Err(failed);
            };
            been.clear();
            let wait = backoff.next(started.elapsed(), at_least, backoff::random());
            let Some(wait) = wait.filter(|wait| Instant::now() + *wait < deadline) else {
                return Err(failed);
            };
            sleep(wait).await;
            if let Message::GroupPoll(poll) = &mut call.request {
                // Waiting as long as the first time would outlast the deadline.
                let left = waits_until.saturating_duration_since(Instant::now());
                poll.wait_ms = poll.wait_ms.min(millis_u32(left).into());
            }
        }
    }

    async fn attempt(
        self: &Arc<Self>,
        call: &Call,
        at: Option<Address>,
        deadline: Instant,
    ) -> Attempt {
        let reach = async {
            match at {
                Some(address) => match self.brokers.to(address, call.slot).await {
                    // Nobody is there any more: the entry broker may know who took over.
                    Err(failed) if failed.may_pass() => self.brokers.entry(call.slot).await,
                    reached => reached,
                },
                None => self.brokers.entry(call.slot).await,
            }
        };
        let link = match timeout_at(deadline, reach).await {
            Ok(Ok(link)) => link,
            Ok(Err(failed)) => return Attempt::Failed(failed.into()),
            Err(_) => {
                let why = "no broker answered in time".to_owned();
                return Attempt::Failed(CallFailed::NotSent { why });
            }
        };
        if let Some((features, feature)) = call.needs
            && !link.granted.features.contains(features)
        {
            return Attempt::Failed(CallFailed::Unsupported { feature });
        }
        match timeout_at(deadline, self.ask_with_token(&link, call)).await {
            Ok(Ok(answer)) => read(link, answer),
            Ok(Err(failed)) => Attempt::Failed(failed),
            Err(_) => {
                let why = "no answer in time".to_owned();
                Attempt::Failed(CallFailed::Unanswered {
                    why,
                    changes: call.changes,
                })
            }
        }
    }

    /// Shows a token; a refused one is replaced once, by a different one.
    async fn ask_with_token(&self, link: &Link, call: &Call) -> Result<Message, CallFailed> {
        let config = &self.brokers.config;
        let mut refused: Option<(Arc<str>, Failure)> = None;
        loop {
            let token = config.token.token().await.map_err(ConnectFailed::from)?;
            if let Some((rejected, failure)) = refused.take_if(|(rejected, _)| *rejected == token) {
                drop(rejected);
                return Err(Refused::from(failure).into());
            }
            let auth = call.wants.auth(config.tenant.as_str(), &token);
            match ask(&link.connection, auth, call.request.clone()).await {
                Ok((_, answer)) => return Ok(answer),
                Err(NotAsked::Unwelcome(failure)) => {
                    let replaced = refused.is_none()
                        && is_about_token(&failure)
                        && config.token.invalidate(&token);
                    if !replaced {
                        return Err(Refused::from(failure).into());
                    }
                    refused = Some((token, failure));
                }
                Err(NotAsked::Lost { sent: false, why }) => {
                    return Err(CallFailed::NotSent { why });
                }
                Err(NotAsked::Lost { sent: true, why }) => {
                    return Err(CallFailed::Unanswered {
                        why,
                        changes: call.changes,
                    });
                }
                Err(NotAsked::Protocol { what }) => return Err(CallFailed::Protocol { what }),
            }
        }
    }
}

fn read(link: Arc<Link>, answer: Message) -> Attempt {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every other answer is the caller's"
    )]
    match answer {
        Message::NotLeader(leader) => Attempt::Elsewhere {
            at: leader.addr.and_then(|addr| addr.parse().ok()),
            node_id: leader.node_id,
        },
        Message::Error(failure) => Attempt::Failed(Refused::from(failure).into()),
        Message::Unsupported(_) => Attempt::Failed(CallFailed::Unsupported {
            feature: "this request",
        }),
        answer => Attempt::Answered(Answered { link, answer }),
    }
}

/// How long to wait before the same request is sent again; `None` if it is not. A name nobody knows is the
/// caller's to judge: repeating would only make a typing error slow.
fn repeatable(failed: &CallFailed, changes: bool) -> Option<Duration> {
    match failed {
        CallFailed::NotSent { .. } => Some(Duration::ZERO),
        CallFailed::Unanswered { .. } => (!changes).then_some(Duration::ZERO),
        CallFailed::Refused(refused) if !changes && refused.code != Code::NotFound.name() => {
            match refused.retry {
                // A read whose outcome is unknown may simply happen again.
                Retry::Retry | Retry::Redirect | Retry::OutcomeUnknown => Some(Duration::ZERO),
                Retry::RetryAfter(after) => Some(after),
                Retry::Fatal => None,
            }
        }
        CallFailed::Refused(_)
        | CallFailed::Connect(_)
        | CallFailed::Unsupported { .. }
        | CallFailed::Protocol { .. } => None,
    }
}

/// An answer of the wrong type, or to another request.
pub(crate) fn unexpected(answer: &Message) -> CallFailed {
    CallFailed::Protocol {
        what: format!("{} is not the answer to this request", answer.type_name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: Code) -> CallFailed {
        Refused::from(Failure::new(code, "no")).into()
    }

    #[test]
    fn reads_are_repeated_and_changes_only_when_nothing_was_sent() {
        let lost = CallFailed::Unanswered {
            why: String::new(),
            changes: true,
        };
        let unsent = CallFailed::NotSent { why: String::new() };
        assert_eq!(repeatable(&lost, true), None);
        assert_eq!(repeatable(&lost, false), Some(Duration::ZERO));
        assert_eq!(repeatable(&unsent, true), Some(Duration::ZERO));
        assert_eq!(
            repeatable(&refused(Code::ShardUnavailable), false),
            Some(Duration::ZERO)
        );
        assert_eq!(repeatable(&refused(Code::ShardUnavailable), true), None);
    }

    #[test]
    fn an_unknown_name_and_a_missing_right_are_told_at_once() {
        assert_eq!(repeatable(&refused(Code::NotFound), false), None);
        assert_eq!(repeatable(&refused(Code::Forbidden), false), None);
    }

    #[test]
    fn the_time_a_broker_asks_for_is_kept() {
        let failure = Failure::new(Code::Overloaded, "full").with_retry_after_ms(70);
        let failed = CallFailed::from(Refused::from(failure));
        assert_eq!(repeatable(&failed, false), Some(Duration::from_millis(70)));
    }
}
