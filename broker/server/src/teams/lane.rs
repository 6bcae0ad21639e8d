//! One shard of the groups' stream: its core, its log, and the task that tells them of time and of each other.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use felix_engine::membership::{LedAnswer, MembershipRefused};
use felix_engine::teams::{
    Change, Coordinator, NotCommitted, Replay, TeamAnswer, TeamEffect, TeamId, TeamOptions,
};
use felix_engine::{AppendRefused, Appended, Draft, Ticket};
use felix_model::batch::{BatchBuilder, BatchOptions};
use felix_model::{Offset, Records, TimeMs};
use felix_wire::error::{Code, Failure, Retry};
use felix_wire::extension::raw::RawError;
use felix_wire::extension::requests::Reply as WireReply;
use tokio::sync::{Notify, mpsc, oneshot};

use super::answers::{Parked, Reply, not_committed};
use crate::conn::calls::Caller;
use crate::shards::cell::{Cell, now};

/// Bytes of log read at a time when the groups are read.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Names of programs and hosts that are remembered before those of members that are gone are let go.
const ABOUT_MAX: usize = 20_000;

/// One shard's groups.
#[derive(Debug)]
pub(super) struct Lane {
    cell: Arc<Cell>,
    core: Mutex<Coordinator>,
    parked: Mutex<ParkedCalls>,
    /// What members say of themselves that nobody decides by: their program and their host.
    about: Mutex<HashMap<(TeamId, String), (String, String)>>,
    /// The next deadline may have changed, or the shard is closed.
    wake: Notify,
    /// Told by whoever finishes a write, to the shard's task. No more can be under way than calls are unanswered.
    written: mpsc::UnboundedSender<Written>,
}

#[derive(Debug, Default)]
struct ParkedCalls {
    next: u64,
    calls: HashMap<Ticket, (Parked, Caller)>,
    closed: bool,
}

/// What became of a write.
#[derive(Debug)]
struct Written {
    changes: Vec<Change>,
    outcome: Result<Appended, AppendRefused>,
    then: Then,
}

/// Who is to hear of a write.
#[derive(Debug)]
enum Then {
    Nobody,
    Answer(Reply, Caller),
    /// Members who are told of a generation.
    Members(Vec<(Ticket, TeamAnswer)>),
    /// One who beats: what it is told, and what if the log does not have it.
    Beat {
        told: Box<[WireReply; 2]>,
        caller: Caller,
    },
    /// Whether the log has it.
    Tell(oneshot::Sender<bool>),
}

impl Lane {
    /// Reads the groups of a shard, and begins to serve them.
    pub(super) async fn open(cell: Arc<Cell>, options: TeamOptions) -> Result<Arc<Self>, Failure> {
        let reading = Arc::clone(&cell);
        let read = tokio::task::spawn_blocking(move || read(&reading, options));
        let core = read
            .await
            .map_err(|_| Failure::new(Code::Internal, "reading the groups was interrupted"))??;
        let (written, finished) = mpsc::unbounded_channel();
        let lane = Arc::new(Self {
            cell,
            core: Mutex::new(core),
            parked: Mutex::default(),
            about: Mutex::default(),
            wake: Notify::new(),
            written,
        });
        tokio::spawn(run(Arc::clone(&lane), finished));
        Ok(lane)
    }

    pub(super) fn is_of(&self, cell: &Arc<Cell>) -> bool {
        Arc::ptr_eq(&self.cell, cell) && !self.parked().closed
    }

    /// Another reads the shard from here on. Whoever waits hears that the coordinator is gone.
    pub(super) fn close(&self) {
        let mut parked = self.parked();
        parked.closed = true;
        let calls = std::mem::take(&mut parked.calls);
        drop(parked);
        for (_, (parked, caller)) in calls {
            caller.answer(Ok(parked.answer(Err(MembershipRefused::NotCoordinator)).0));
        }
        self.wake.notify_one();
    }

    /// Looks at the groups.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Coordinator) -> T) -> T {
        look(&self.core())
    }

    /// Lets the core hear something that is answered at once.
    pub(super) fn hear<T>(
        self: &Arc<Self>,
        hear: impl FnOnce(TimeMs, &mut Coordinator, &mut Vec<TeamEffect>) -> T,
    ) -> T {
        let mut effects = Vec::new();
        let mut core = self.core();
        let heard = hear(now(), &mut core, &mut effects);
        // Under the lock, so that the log has the order of the decisions.
        let answers = self.write_all(effects);
        drop(core);
        self.answer_all(answers);
        self.wake.notify_one();
        heard
    }

    /// Lets the core hear a member that beats, and answers it once the log has what follows from it. `failed` is what it is
    /// told if the log does not.
    pub(super) fn beat(
        self: &Arc<Self>,
        caller: Caller,
        failed: WireReply,
        hear: impl FnOnce(TimeMs, &mut Coordinator, &mut Vec<TeamEffect>) -> WireReply,
    ) {
        let mut effects = Vec::new();
        let mut core = self.core();
        let reply = hear(now(), &mut core, &mut effects);
        let mut written = None;
        effects.retain_mut(|effect| match effect {
            TeamEffect::Write { changes, then } if written.is_none() && then.is_empty() => {
                written = Some(std::mem::take(changes));
                false
            }
            TeamEffect::Write { .. } | TeamEffect::Answer { .. } => true,
        });
        let answers = self.write_all(effects);
        match written {
            Some(changes) => {
                let told = Box::new([reply, failed]);
                self.append(changes, Then::Beat { told, caller });
            }
            None => caller.answer(Ok(reply)),
        }
        drop(core);
        self.answer_all(answers);
        self.wake.notify_one();
    }

    /// Lets the core hear something that is answered later, perhaps. `hear` is given the ticket for its answer.
    pub(super) fn park(
        self: &Arc<Self>,
        parked: Parked,
        caller: Caller,
        hear: impl FnOnce(TimeMs, &mut Coordinator, Ticket, &mut Vec<TeamEffect>),
    ) {
        let ticket = {
            let mut calls = self.parked();
            calls.next += 1;
            let ticket = Ticket(calls.next);
            calls.calls.insert(ticket, (parked, caller));
            ticket
        };
        self.hear(|now, core, effects| hear(now, core, ticket, effects));
    }

    /// Writes what `decide` says, and answers when it is durable. What is refused is answered at once.
    pub(super) fn write(
        self: &Arc<Self>,
        caller: Caller,
        decide: impl FnOnce(&Coordinator) -> (Vec<Change>, Reply),
    ) {
        let core = self.core();
        let (changes, reply) = decide(&core);
        if changes.is_empty() {
            drop(core);
            return caller.answer(Ok(reply.done()));
        }
        self.append(changes, Then::Answer(reply, caller));
    }

    /// Deletes a group that has no members, and no positions in streams of these numbers. The number of what was wrong, or 0
    /// when it is gone for good.
    pub(super) async fn delete(self: &Arc<Self>, team: &TeamId, foreign: &HashSet<u64>) -> i16 {
        let (tell, told) = oneshot::channel();
        {
            let core = self.core();
            let mut positions = core.positions(team).into_iter().flat_map(BTreeMap::keys);
            if positions.any(|partition| foreign.contains(&partition.number)) {
                return RawError::GroupAuthorizationFailed.number();
            }
            match core.delete(team) {
                Ok(changes) => self.append(changes, Then::Tell(tell)),
                Err(NotCommitted::Membership(_)) => return RawError::NonEmptyGroup.number(),
                Err(why) => return not_committed(&why).number(),
            }
        }
        match told.await {
            Ok(true) => 0,
            Ok(false) | Err(_) => RawError::CoordinatorNotAvailable.number(),
        }
    }

    pub(super) fn sweep(self: &Arc<Self>, exists: &dyn Fn(&str, u64) -> bool) {
        let core = self.core();
        let changes = core.sweep(now(), exists);
        if !changes.is_empty() {
            self.append(changes, Then::Nobody);
        }
    }

    /// What a member's program and host are called.
    pub(super) fn about(&self, team: &TeamId, member: &str) -> (String, String) {
        let about = self.about.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (team.clone(), member.to_owned());
        about.get(&key).cloned().unwrap_or_default()
    }

    fn remember(&self, team: TeamId, member: &str, (client, host): (String, String)) {
        let mut about = self.about.lock().unwrap_or_else(PoisonError::into_inner);
        if about.len() >= ABOUT_MAX {
            about.clear();
        }
        about.insert((team, member.to_owned()), (client, host));
    }

    /// Begins the writes, and hands back the answers.
    fn write_all(
        self: &Arc<Self>,
        effects: Vec<TeamEffect>,
    ) -> Vec<(Ticket, Result<LedAnswer, MembershipRefused>)> {
        let mut answers = Vec::new();
        for effect in effects {
            match effect {
                TeamEffect::Answer { ticket, answer } => answers.push((ticket, answer)),
                TeamEffect::Write { changes, then } => self.append(changes, Then::Members(then)),
            }
        }
        answers
    }

    fn answer_all(&self, answers: Vec<(Ticket, Result<LedAnswer, MembershipRefused>)>) {
        for (ticket, answer) in answers {
            let parked = self.parked().calls.remove(&ticket);
            if let Some((parked, caller)) = parked {
                let (reply, about) = parked.answer(answer);
                if let Some((team, member, about)) = about {
                    self.remember(team, &member, about);
                }
                caller.answer(Ok(reply));
            }
        }
    }

    /// Appends changes to the log. The core's lock is held, so that the log has the order of the decisions.
    fn append(self: &Arc<Self>, changes: Vec<Change>, then: Then) {
        let told = self.written.clone();
        let draft = match draft(&changes) {
            Ok(draft) => draft,
            Err(why) => {
                tracing::error!(%why, "changes of groups cannot be written");
                return self.told(then, false);
            }
        };
        self.cell.append_told(
            draft,
            Box::new(move |outcome| {
                // A task that is gone answers nobody; dropped callers hear that the outcome is unknown.
                let _ = told.send(Written {
                    changes,
                    outcome,
                    then,
                });
            }),
        );
    }

    /// The log has changes, or will never have them.
    fn finish(&self, written: Written) {
        let Written {
            changes,
            outcome,
            then,
        } = written;
        match outcome {
            Ok(_) => {
                let mut core = self.core();
                changes.into_iter().for_each(|change| core.apply(change));
                drop(core);
                self.told(then, true);
            }
            Err(refused) => {
                tracing::warn!(%refused, "changes of groups were not written");
                self.told(then, false);
            }
        }
    }

    /// Tells whoever waited for the log.
    fn told(&self, then: Then, written: bool) {
        match then {
            Then::Members(answers) if written => self.answer_all(answers),
            Then::Members(answers) => {
                let gone = |(ticket, _)| (ticket, Err(MembershipRefused::NotCoordinator));
                self.answer_all(answers.into_iter().map(gone).collect());
            }
            then @ (Then::Nobody | Then::Answer(..) | Then::Tell(_) | Then::Beat { .. }) => {
                then.hear(written);
            }
        }
    }

    fn core(&self) -> MutexGuard<'_, Coordinator> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn parked(&self) -> MutexGuard<'_, ParkedCalls> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Then {
    fn hear(self, written: bool) {
        match self {
            // Members are told by the lane, which knows where they are.
            Self::Nobody | Self::Members(_) => {}
            Self::Beat { told, caller } => {
                let [done, failed] = *told;
                caller.answer(Ok(if written { done } else { failed }));
            }
            Self::Answer(reply, caller) => caller.answer(Ok(if written {
                reply.done()
            } else {
                reply.failed()
            })),
            Self::Tell(sender) => {
                // Whoever stopped waiting does not need to know.
                let _ = sender.send(written);
            }
        }
    }
}

/// Tells the core of time and of what was written, until the shard is another's.
async fn run(lane: Arc<Lane>, mut finished: mpsc::UnboundedReceiver<Written>) {
    loop {
        let deadline = lane.core().next_deadline();
        let wait = deadline.map(|due| Duration::from_millis(due.0.saturating_sub(now().0)));
        let due = async {
            match wait {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            written = finished.recv() => match written {
                Some(written) => lane.finish(written),
                None => return,
            },
            () = lane.wake.notified() => {
                if lane.parked().closed {
                    break;
                }
            }
            () = due => lane.hear(|now, core, effects| core.tick(now, effects)),
        }
    }
    // What is in flight is answered yet.
    finished.close();
    while let Some(written) = finished.recv().await {
        lane.finish(written);
    }
}

fn draft(changes: &[Change]) -> Result<Draft, String> {
    let mut batch = BatchBuilder::new(BatchOptions::default());
    let time = i64::try_from(now().0).unwrap_or(i64::MAX);
    for change in changes {
        let value = change.value();
        batch
            .push(time, Some(&change.key()), value.as_deref(), &[])
            .map_err(|error| error.to_string())?;
    }
    let log = batch.finish().map_err(|error| error.to_string())?;
    Draft::from_log(log).map_err(|error| error.to_string())
}

/// Reads all groups of a shard. Blocking.
fn read(cell: &Cell, options: TeamOptions) -> Result<Coordinator, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        tracing::error!(%error, "the groups of a shard cannot be read");
        Failure::new(Code::Storage, error.to_string()).with_retry(Retry::Retry)
    };
    let mut replay = Replay::new(options);
    let Some(log) = cell.log() else {
        return Err(failed(&"the groups' stream has no log"));
    };
    let marks = cell.marks();
    let (mut from, end): (Offset, Offset) = (marks.start, marks.committed);
    while from < end {
        let page = log.reader().read(from, PAGE_BYTES, end);
        let page = page.map_err(|error| failed(&error))?;
        for batch in &page.batches {
            for record in Records::new(batch).map_err(|error| failed(&error))? {
                let record = record.map_err(|error| failed(&error))?;
                let key = record.key.as_deref().unwrap_or_default();
                match Change::read(key, record.value.as_deref()) {
                    Ok(change) => replay.take(change),
                    Err(error) => return Err(failed(&error)),
                }
            }
        }
        if page.next <= from {
            break;
        }
        from = page.next;
    }
    Ok(replay.done(now()))
}
