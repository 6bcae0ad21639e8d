//! Calls: over the `requests` extension where the broker grants it, else over the messages of the published
//! protocol. Repeated where that cannot do anything twice.

mod line;
mod published;

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use felix_wire::error::{Code, Failure};
use felix_wire::extension::requests::{Ask, Asks, Call, List, Reply, Settled};
use felix_wire::extension::{self as wire, Extension};
use felix_wire::publish::Names;
use tokio::time::{Instant, sleep, timeout_at};

pub(crate) use self::line::Line;
use self::line::Sent;
pub(crate) use self::published::UNKNOWN_VERSION;
use crate::address::Address;
use crate::backoff::{self, Backoff};
use crate::client::Inner;
use crate::error::{CallFailed, Refused, Retry};
use crate::groups::millis_u32;
use crate::limits::HOPS_MAX;
use crate::link::Link;
use crate::near::Near;
use crate::publish::TokenUsed;
use crate::session::{CALLS, NotAsked, is_about_token, open, ran_out};

/// When a call is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It changes nothing, or the same thing twice: whenever no answer came.
    Always,
    /// Only while it is certain that nothing was applied.
    Unapplied,
    /// Not at all, as what was sent behind it would overtake it; redirects are followed.
    Never,
    /// Like [`Always`](Self::Always), but a later refusal because of a condition may be due to an attempt that was
    /// applied and not answered, so the outcome is unknown then. Records that are finished by then were set aside.
    Conditional,
}

/// How a call is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    pub(crate) repeat: Repeat,
    /// How long the broker may take beyond the request's timeout, for calls that wait.
    pub(crate) patience: Duration,
    pub(crate) slot: usize,
}

impl How {
    pub(crate) const fn new(repeat: Repeat) -> Self {
        Self {
            repeat,
            patience: Duration::ZERO,
            slot: 0,
        }
    }
}

/// What became of one attempt.
enum Attempt {
    Answered(Reply),
    Elsewhere(Option<Address>, Refused),
    Failed(CallFailed),
}

impl Inner {
    /// Sends a call and takes its answer.
    ///
    /// # Errors
    /// [`CallFailed`]; a condition that did not hold is a refusal with its number.
    pub(crate) async fn ask<A: Asks>(
        self: &Arc<Self>,
        names: &Names,
        ask: A,
        how: How,
    ) -> Result<A::Reply, CallFailed> {
        let call = Call {
            names: names.clone(),
            ask: ask.into(),
        };
        self.ask_from::<A>(None, call, how).await
    }

    /// The same, first of all at a broker that another one named.
    pub(crate) async fn ask_at<A: Asks>(
        self: &Arc<Self>,
        leader: Address,
        names: &Names,
        ask: A,
        how: How,
    ) -> Result<A::Reply, CallFailed> {
        let call = Call {
            names: names.clone(),
            ask: ask.into(),
        };
        self.ask_from::<A>(Some(leader), call, how).await
    }

    async fn ask_from<A: Asks>(
        self: &Arc<Self>,
        at: Option<Address>,
        call: Call,
        how: How,
    ) -> Result<A::Reply, CallFailed> {
        let kind = call.ask.kind();
        let reply = self.carry(at, call, how).await?;
        A::reply(reply).ok_or_else(|| CallFailed::Protocol {
            what: format!("the reply to {kind:?} is to another kind of call"),
        })
    }

    async fn carry(
        self: &Arc<Self>,
        mut at: Option<Address>,
        mut call: Call,
        mut how: How,
    ) -> Result<Reply, CallFailed> {
        let config = &self.brokers.config;
        let started = Instant::now();
        let waits_until = started + how.patience;
        let deadline = waits_until + config.request_timeout;
        let mut backoff = Backoff::new(config.reconnect);
        let mut hops = usize::from(at.is_some());
        let mut unanswered = None;
        loop {
            let failed = match self.try_once(&call, how, at.take(), deadline).await {
                Attempt::Answered(reply) if unanswered.is_some() => return Ok(again(reply)),
                Attempt::Answered(reply) => return Ok(reply),
                Attempt::Elsewhere(Some(leader), _) if hops < HOPS_MAX => {
                    hops += 1;
                    at = Some(leader);
                    continue;
                }
                Attempt::Elsewhere(_, refused) => CallFailed::Refused(refused),
                Attempt::Failed(failed) => failed,
            };
            if how.repeat == Repeat::Conditional
                && let Some(unanswered) = unanswered.take_if(|_| is_condition(&failed))
            {
                return Err(unanswered);
            }
            let Some(at_least) = wait_before(&failed, how.repeat) else {
                return Err(failed);
            };
            hops = 0;
            let wait = backoff.next(started.elapsed(), at_least, backoff::random());
            let Some(wait) = wait.filter(|wait| Instant::now() + *wait < deadline) else {
                // What the first attempt may have done is not undone by a later one that did nothing.
                return Err(unanswered.unwrap_or(failed));
            };
            if matches!(failed, CallFailed::Unanswered { .. }) {
                unanswered = Some(failed);
            }
            sleep(wait).await;
            how.patience = waits_until.saturating_duration_since(Instant::now());
            // Waiting as long as the first time would outlast the deadline.
            let wait_ms = millis_u32(how.patience);
            if let Ask::GroupPoll(poll) = &mut call.ask {
                poll.wait_ms = poll.wait_ms.min(wait_ms);
            } else if let Ask::RawFetch(fetch) = &mut call.ask {
                fetch.max_wait_ms = fetch.max_wait_ms.min(wait_ms);
            }
        }
    }

    async fn try_once(
        self: &Arc<Self>,
        call: &Call,
        how: How,
        at: Option<Address>,
        deadline: Instant,
    ) -> Attempt {
        let changes = how.repeat != Repeat::Always;
        let via = match self.reach(how, at, deadline).await {
            Ok(via) => via,
            Err(failed) => return Attempt::Failed(failed),
        };
        if !via.carries(call.ask.kind().extension()) {
            return match self.ask_published(call, how).await {
                Ok(reply) => Attempt::Answered(reply),
                Err(failed) => Attempt::Failed(failed),
            };
        }
        let late = |_| NotAsked::Lost {
            sent: true,
            why: "no answer in time".to_owned(),
        };
        let answered = async {
            let line = self.line(&via).await?;
            timeout_at(deadline, line.call(call)).await.map_err(late)?
        };
        let replaceable = !self.brokers.config.token.is_fixed();
        attempt(answered.await, changes, replaceable)
    }

    /// A connection to `at`, or to the entry broker.
    async fn reach(
        self: &Arc<Self>,
        how: How,
        at: Option<Address>,
        deadline: Instant,
    ) -> Result<Via, CallFailed> {
        if let (None, Some(near)) = (&at, &self.brokers.config.near) {
            return Ok(Via::Near(Arc::clone(near)));
        }
        let reach = async {
            match at {
                Some(address) => match self.brokers.to(address, how.slot).await {
                    Err(failed) if failed.may_pass() => self.brokers.entry(how.slot).await,
                    reached => reached,
                },
                None => self.brokers.entry(how.slot).await,
            }
        };
        match timeout_at(deadline, reach).await {
            Ok(reached) => Ok(Via::Link(reached?)),
            Err(_) => {
                let why = "no broker answered in time".to_owned();
                Err(CallFailed::NotSent { why })
            }
        }
    }

    /// Puts a call behind those that were sent before it, and returns when it is on its way. It is neither sent again
    /// nor sent elsewhere.
    pub(crate) async fn dispatch<A: Asks>(
        self: &Arc<Self>,
        names: &Names,
        ask: A,
        how: How,
    ) -> Result<Dispatched<A>, CallFailed> {
        let call = Call {
            names: names.clone(),
            ask: ask.into(),
        };
        let deadline = Instant::now() + how.patience + self.brokers.config.request_timeout;
        let via = self.reach(how, None, deadline).await?;
        let extension = call.ask.kind().extension();
        if !via.carries(extension) {
            let feature = extension.name();
            return Err(CallFailed::Unsupported { feature });
        }
        let sent = async { self.line(&via).await?.send(&call).await };
        let sent = timeout_at(deadline, sent).await.unwrap_or_else(|_| {
            let why = "there was no room in time".to_owned();
            Err(NotAsked::Lost { sent: false, why })
        });
        Ok(Dispatched {
            sent: sent.map_err(|failed| not_answered(failed, true))?,
            deadline,
            ask: PhantomData,
        })
    }

    /// The stream for calls of a connection, opened if there is none. A refused token is replaced once.
    async fn line(&self, via: &Via) -> Result<Line, NotAsked> {
        let mut place = match via {
            Via::Near(_) => self.near.lock().await,
            Via::Link(link) => link.line.lock().await,
        };
        if let Some(line) = place.as_ref().filter(|line| !line.is_lost()) {
            return Ok(line.clone());
        }
        let config = &self.brokers.config;
        let unsent = |why: String| NotAsked::Lost { sent: false, why };
        let mut refused: Option<(Arc<str>, Failure)> = None;
        loop {
            let token = config.token.token().await;
            let token = token.map_err(|failed| unsent(failed.to_string()))?;
            if let Some((_, failure)) = refused.take_if(|(rejected, _)| *rejected == token) {
                return Err(NotAsked::Unwelcome(failure));
            }
            let key = TokenUsed {
                source: config.token.clone(),
                token: Arc::clone(&token),
            };
            let opened = tokio::time::timeout(
                config.request_timeout,
                via.open(config.tenant.as_str(), key),
            );
            match opened
                .await
                .unwrap_or_else(|_| Err(unsent("timed out".to_owned())))
            {
                Ok(line) => {
                    *place = Some(line.clone());
                    return Ok(line);
                }
                Err(NotAsked::Unwelcome(failure))
                    if refused.is_none()
                        && is_about_token(&failure)
                        && config.token.invalidate(&token) =>
                {
                    refused = Some((token, failure));
                }
                // Nothing was asked on a stream that did not open.
                Err(NotAsked::Lost { why, .. }) => return Err(unsent(why)),
                Err(failed) => return Err(failed),
            }
        }
    }
}

/// Where calls go.
enum Via {
    Near(Arc<dyn Near>),
    Link(Arc<Link>),
}

impl Via {
    fn carries(&self, extension: Extension) -> bool {
        match self {
            // It is of the same build.
            Self::Near(_) => true,
            Self::Link(link) => link.granted.extensions.contains(extension),
        }
    }

    async fn open(&self, tenant: &str, key: TokenUsed) -> Result<Line, NotAsked> {
        match self {
            Self::Near(near) => match near.open(tenant, &key.token).await {
                Ok(calls) => Ok(Line::near(calls, key)),
                Err(failure) => Err(NotAsked::Unwelcome(failure)),
            },
            Self::Link(link) => {
                let opened = open(&link.connection, CALLS.auth(tenant, &key.token)).await?;
                Ok(Line::start(opened, key))
            }
        }
    }
}

/// What a repeated call means where an earlier attempt may have been applied: records that cannot be set aside because
/// they are finished were set aside then.
fn again(reply: Reply) -> Reply {
    let Reply::GroupSetAside(settled) = reply else {
        return reply;
    };
    let finished = Code::InvalidRequest.number();
    let stale = settled.unsettled.iter();
    let stale = stale.filter(|unsettled| unsettled.code != finished);
    match List::build(stale) {
        Ok(unsettled) => Reply::GroupSetAside(Settled { unsettled }),
        // A part of a list that came is no longer than the list.
        Err(_) => Reply::GroupSetAside(settled),
    }
}

/// A call that is on its way. Dropped, it may be carried out all the same.
#[derive(Debug)]
pub(crate) struct Dispatched<A> {
    sent: Sent,
    deadline: Instant,
    ask: PhantomData<fn() -> A>,
}

impl<A: Asks> Dispatched<A> {
    /// Waits for the answer. With a refusal comes the broker that would take the call, if it was named: nothing was done.
    pub(crate) async fn answer(self) -> Result<A::Reply, (CallFailed, Option<Address>)> {
        let answered = timeout_at(self.deadline, self.sent.answer()).await;
        let answered = answered.unwrap_or_else(|_| {
            let why = "no answer in time".to_owned();
            Err(NotAsked::Lost { sent: true, why })
        });
        match attempt(answered, true, false) {
            Attempt::Answered(reply) => A::reply(reply).ok_or_else(|| {
                let what = "the reply is to another kind of call".to_owned();
                (CallFailed::Protocol { what }, None)
            }),
            Attempt::Elsewhere(leader, refused) => Err((refused.into(), leader)),
            Attempt::Failed(failed) => Err((failed, None)),
        }
    }
}

/// What came of a call that was sent. With a token that is `replaceable`, a refusal of one that ran out is no answer.
fn attempt(
    answered: Result<Result<Reply, wire::Refused>, NotAsked>,
    changes: bool,
    replaceable: bool,
) -> Attempt {
    match answered {
        Ok(Ok(reply)) => Attempt::Answered(reply),
        Ok(Err(refused)) if replaceable && ran_out(&refused.failure) => {
            // It is sent again on a stream with the next token.
            let why = refused.to_string();
            Attempt::Failed(CallFailed::NotSent { why })
        }
        Ok(Err(refused)) => {
            let owner = refused.owner.as_ref();
            let leader = owner.and_then(|owner| owner.addr.as_ref()?.parse().ok());
            let elsewhere = refused.failure.code() == Some(Code::NotLeader);
            let refused = Refused::from(refused);
            if elsewhere {
                Attempt::Elsewhere(leader, refused)
            } else {
                Attempt::Failed(refused.into())
            }
        }
        Err(failed) => Attempt::Failed(not_answered(failed, changes)),
    }
}

fn not_answered(failed: NotAsked, changes: bool) -> CallFailed {
    match failed {
        NotAsked::Unwelcome(failure) => Refused::from(failure).into(),
        NotAsked::Lost { sent: false, why } => CallFailed::NotSent { why },
        NotAsked::Lost { sent: true, why } => CallFailed::Unanswered { why, changes },
        NotAsked::Protocol { what } => CallFailed::Protocol { what },
    }
}

/// Whether a refusal is one of a condition that did not hold.
fn is_condition(failed: &CallFailed) -> bool {
    matches!(failed, CallFailed::Refused(refused)
        if matches!(refused.reason.as_deref(), Some("version_mismatch" | "offset_mismatch")))
}

/// How long to wait before a call is sent again; `None` if it is not. A name nobody knows is told at once, and so is a
/// claim or a membership that does not stand: that it might stand later is for its holder to find out.
fn wait_before(failed: &CallFailed, repeat: Repeat) -> Option<Duration> {
    if repeat == Repeat::Never {
        return None;
    }
    match failed {
        CallFailed::NotSent { .. } => Some(Duration::ZERO),
        CallFailed::Unanswered { .. } => (repeat != Repeat::Unapplied).then_some(Duration::ZERO),
        CallFailed::Refused(refused)
            if ![Code::NotFound, Code::StaleClaim]
                .map(Code::name)
                .contains(&&*refused.code) =>
        {
            match refused.retry {
                Retry::Retry | Retry::Redirect => Some(Duration::ZERO),
                Retry::RetryAfter(after) => Some(after),
                Retry::OutcomeUnknown => (repeat == Repeat::Always).then_some(Duration::ZERO),
                Retry::Fatal => None,
            }
        }
        CallFailed::Refused(_)
        | CallFailed::Connect(_)
        | CallFailed::Unsupported { .. }
        | CallFailed::Protocol { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: Code) -> CallFailed {
        Refused::from(Failure::new(code, "no")).into()
    }

    #[test]
    fn a_write_is_repeated_only_while_nothing_was_applied() {
        let lost = CallFailed::Unanswered {
            why: String::new(),
            changes: true,
        };
        assert_eq!(wait_before(&lost, Repeat::Unapplied), None);
        assert_eq!(
            wait_before(&lost, Repeat::Conditional),
            Some(Duration::ZERO)
        );
        assert_eq!(wait_before(&lost, Repeat::Always), Some(Duration::ZERO));
        let moving = refused(Code::ShardUnavailable);
        assert_eq!(
            wait_before(&moving, Repeat::Unapplied),
            Some(Duration::ZERO)
        );
        let unknown = refused(Code::LeadershipLost);
        assert_eq!(wait_before(&unknown, Repeat::Unapplied), None);
        assert_eq!(wait_before(&unknown, Repeat::Always), Some(Duration::ZERO));
    }

    #[test]
    fn an_unknown_name_and_a_missing_right_are_told_at_once() {
        assert_eq!(wait_before(&refused(Code::NotFound), Repeat::Always), None);
        assert_eq!(wait_before(&refused(Code::Forbidden), Repeat::Always), None);
        assert_eq!(
            wait_before(&refused(Code::StaleClaim), Repeat::Always),
            None
        );
    }
}
