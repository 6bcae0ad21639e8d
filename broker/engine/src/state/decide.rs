//! What is to be done about a commit, by the state at the tail.

use bytes::Bytes;
use felix_model::forms::{Change, Commit, IDEMPOTENCY_KEY_BYTES_MAX, commit_record};
use felix_model::native::payload_digest;
use felix_model::{BatchBuilder, BatchOptions, Offset, Payloads, TimeMs};

use super::{
    CHANGES_MAX, CommitOp, CommitRefused, Committed, ENTITY_BYTES_MAX, Flight, PRECONDITIONS_MAX,
    STATE_KEY_BYTES_MAX, StateAnswer, StateView, fold, index_key, stage,
};
use crate::batch::Draft;
use crate::effect::Effect;
use crate::input::{AckWhen, Append, Input, Ticket};
use crate::keyed::OnceVerdict;
use crate::refused::AppendRefused;
use crate::shard::Shard;

type Outcome = Result<Committed, CommitRefused>;

impl StateView {
    /// Judges a commit and appends it. What the shard has to say to the append comes as its
    /// [`Effect::Reply`] under `ticket`; a commit that is not appended is answered through `answers`,
    /// now or by a later [`StateView::follow`]. Call that afterwards, as after everything the shard
    /// handled.
    pub fn commit(
        &mut self,
        now: TimeMs,
        shard: &mut Shard,
        (ticket, op): (Ticket, CommitOp),
        effects: &mut Vec<Effect>,
        answers: &mut Vec<StateAnswer>,
    ) {
        if let Err(refused) = op.check(self.options.commit_bytes_max) {
            let outcome = Err(refused);
            return answers.push(StateAnswer { ticket, outcome });
        }
        if let Some((outcome, seen)) = self.judge(now, &op) {
            let answer = StateAnswer { ticket, outcome };
            match seen.filter(|seen| *seen >= shard.committed()) {
                Some(seen) => self.waiting.push((seen, answer)),
                None => answers.push(answer),
            }
            return;
        }
        let CommitOp {
            commit, expected, ..
        } = op;
        let batch = match draft(now, &commit) {
            Ok(batch) => batch,
            Err(refused) => {
                let outcome = Err(refused);
                return answers.push(StateAnswer { ticket, outcome });
            }
        };
        let offset = shard.end();
        let append = Append {
            ticket,
            batch,
            expected,
            producer: None,
            ack: AckWhen::Committed,
        };
        shard.handle(now, Input::Append(append), effects);
        if shard.end() > offset {
            if let Some(id) = &commit.idempotency {
                self.once
                    .remember(id, fold::remembered(&commit, offset, now));
            }
            stage(&mut self.overlay, offset, &commit);
            self.flights.push_back(Flight { offset, commit });
        }
    }

    /// The answer to a commit that is not to be appended, and the newest offset it was decided by.
    fn judge(&mut self, now: TimeMs, op: &CommitOp) -> Option<(Outcome, Option<Offset>)> {
        if let Some(id) = &op.commit.idempotency {
            match self.once.judge(now, id, digest(&op.commit)) {
                OnceVerdict::New => {}
                OnceVerdict::Again(known) => {
                    let again = Committed {
                        offset: known.offset,
                        repeated: true,
                    };
                    return Some((Ok(again), Some(known.offset)));
                }
                OnceVerdict::Reused { offset } => {
                    return Some((Err(CommitRefused::IdReused { offset }), Some(offset)));
                }
                OnceVerdict::Full { keys } => {
                    return Some((Err(CommitRefused::IdsFull { keys }), None));
                }
            }
        }
        // A condition that held may have held because of an earlier one in flight, too; the commit is
        // appended behind that and fails with it.
        for (index, condition) in op.preconditions.iter().enumerate() {
            let key = index_key(&op.commit.entity, &condition.key);
            let (current, seen) = match self.overlay.get(&key) {
                Some((seen, version)) => (*version, Some(*seen)),
                None => (self.index.get(&key).map(|entry| entry.offset), None),
            };
            if current != condition.version {
                let refused = CommitRefused::VersionMismatch { index, current };
                return Some((Err(refused), seen));
            }
        }
        None
    }
}

impl CommitOp {
    /// Judges what can be judged without looking at the state, for a stream that takes commits of so many
    /// bytes.
    ///
    /// # Errors
    /// The commit would be refused with this.
    pub fn check(&self, commit_bytes_max: u64) -> Result<(), CommitRefused> {
        let commit = &self.commit;
        check_entity(&commit.entity)?;
        for (count, limit) in [
            (commit.changes.len(), CHANGES_MAX),
            (self.preconditions.len(), PRECONDITIONS_MAX),
        ] {
            if count > limit {
                return Err(CommitRefused::TooMany { count, limit });
            }
        }
        let conditions = self.preconditions.iter().map(|condition| &condition.key);
        for key in commit.changes.iter().map(Change::key).chain(conditions) {
            check_key(key)?;
        }
        let (bytes, limit) = (size(commit), commit_bytes_max);
        if bytes > limit {
            return Err(CommitRefused::TooLarge { bytes, limit });
        }
        match &commit.idempotency {
            Some(id) if !(1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&id.len()) => {
                Err(CommitRefused::IdLength {
                    bytes: id.len(),
                    limit: IDEMPOTENCY_KEY_BYTES_MAX,
                })
            }
            Some(_) | None => Ok(()),
        }
    }
}

pub(super) fn check_entity(entity: &[u8]) -> Result<(), CommitRefused> {
    let (bytes, limit) = (entity.len(), ENTITY_BYTES_MAX);
    if bytes > limit {
        return Err(CommitRefused::EntityLength { bytes, limit });
    }
    Ok(())
}

fn check_key(key: &[u8]) -> Result<(), CommitRefused> {
    let (bytes, limit) = (key.len(), STATE_KEY_BYTES_MAX);
    if bytes > limit {
        return Err(CommitRefused::KeyLength { bytes, limit });
    }
    Ok(())
}

/// What a commit counts for against the limit of a record.
pub(super) fn size(commit: &Commit) -> u64 {
    let changes = commit.changes.iter().map(|change| match change {
        Change::Put { key, value } => key.len() + value.len(),
        Change::Delete { key } => key.len(),
    });
    (commit.entity.len() + commit.event.len() + changes.sum::<usize>()) as u64
}

/// What tells a commit from another one under the same idempotency key.
pub(super) fn digest(commit: &Commit) -> u64 {
    let changes = commit.changes.iter().flat_map(|change| match change {
        Change::Put { key, value } => [b"p".as_slice(), key, value],
        Change::Delete { key } => [b"d".as_slice(), key, b""],
    });
    payload_digest(
        [commit.entity.as_ref(), commit.event.as_ref()]
            .into_iter()
            .chain(changes),
    )
}

fn draft(now: TimeMs, commit: &Commit) -> Result<Draft, CommitRefused> {
    let mut batch = BatchBuilder::new(BatchOptions {
        internal: true,
        ..BatchOptions::default()
    });
    let time = i64::try_from(now.0).unwrap_or(i64::MAX);
    // Checked against limits that lie far below those of a batch.
    let too_large = |_| CommitRefused::Append(AppendRefused::Empty);
    commit_record(&mut batch, time, commit).map_err(too_large)?;
    let log = batch.finish().map_err(too_large)?;
    let draft = Draft::from_log(log).map_err(|_| CommitRefused::Append(AppendRefused::Empty))?;
    let draft = draft.with_key(Bytes::copy_from_slice(&commit.entity));
    Ok(match Payloads::build([commit.event.as_ref()]) {
        Ok(event) => draft.with_native(event),
        Err(_) => draft,
    })
}
