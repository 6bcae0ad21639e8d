//! What committed entries do, as openraft asks for it: proposals become records, memberships are kept.
//!
//! A snapshot is not a file: it is the record log up to a revision, which every member has a part of already. What openraft
//! carries about is only a description; the records themselves are sent by `snapshot.rs`.

use std::io::Cursor;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use openraft::storage::{RaftStateMachine, Snapshot, SnapshotMeta};
use openraft::{
    AnyError, EntryPayload, ErrorSubject, ErrorVerb, OptionalSend, RaftSnapshotBuilder,
    StorageIOError,
};
use serde::{Deserialize, Serialize};

use super::place::{Place, PlaceRefused};
use super::records::{Held, RecordLog, RecordsFailed};
use super::room::when_there_is_room;
use super::snapshot::{self, StageFailed, Staged};
use super::types::{Answer, Entry, LogId, Member, StorageError, StoredMembership, Types};

pub(crate) type Meta = SnapshotMeta<u64, Member>;

const INSTALLING: &str = "installing.json";

/// What openraft carries about for a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Description {
    /// Records in it, from the first.
    pub(crate) revision: u64,
    /// Where the missing ones were received; none where the snapshot was made.
    pub(crate) staged: Option<Staged>,
}

/// `installing.json`: a snapshot that is complete. Whoever finds it goes on installing it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Installing {
    meta: Meta,
    description: Description,
}

/// Why a snapshot was not installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallFailed {
    /// The records failed.
    #[error(transparent)]
    Records(#[from] RecordsFailed),
    /// A file beside them failed.
    #[error(transparent)]
    Place(#[from] PlaceRefused),
    /// What was received is not whole.
    #[error(transparent)]
    Staged(#[from] StageFailed),
    /// The description is not ours.
    #[error("a snapshot whose description cannot be read: {0}")]
    Description(String),
}

/// The state machine. Clones share the records.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    records: Arc<RecordLog>,
    /// The last snapshot that was made or installed.
    current: Arc<Mutex<Option<(Meta, Description)>>>,
}

impl Machine {
    /// Over records that are open, after finishing a snapshot whose installation was interrupted.
    pub(crate) fn open(records: Arc<RecordLog>) -> Result<Self, InstallFailed> {
        let mut held = records.held();
        let unfinished: Option<Installing> = held.place.read(INSTALLING)?;
        if let Some(Installing { meta, description }) = &unfinished {
            tracing::info!(
                revision = description.revision,
                "finishing an interrupted snapshot"
            );
            install(&mut held, meta, description)?;
        } else {
            snapshot::clear(&held.place)?;
        }
        drop(held);
        records.tell();
        Ok(Self {
            records,
            current: Arc::default(),
        })
    }

    pub(crate) fn records(&self) -> &Arc<RecordLog> {
        &self.records
    }

    fn remember(&self, meta: &Meta, revision: u64) -> Description {
        let staged = None;
        let description = Description { revision, staged };
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Some((meta.clone(), description.clone()));
        description
    }

    /// Applies one entry; nothing of it was done when it fails for want of room.
    fn apply_one(&self, entry: &Entry) -> Result<Answer, RecordsFailed> {
        let mut held = self.records.held();
        let answer = match &entry.payload {
            EntryPayload::Blank => Answer::Nothing,
            EntryPayload::Normal(proposal) => held.apply(entry.log_id, proposal)?,
            EntryPayload::Membership(membership) => {
                let before = (held.membership.clone(), held.applied);
                held.membership = StoredMembership::new(Some(entry.log_id), membership.clone());
                held.applied = Some(entry.log_id);
                if let Err(failed) = held.write_down() {
                    (held.membership, held.applied) = before;
                    return Err(failed);
                }
                Answer::Nothing
            }
        };
        held.applied = Some(entry.log_id);
        Ok(answer)
    }
}

/// Installs a snapshot that is complete; does nothing over again when it was interrupted.
fn install(held: &mut Held, meta: &Meta, description: &Description) -> Result<(), InstallFailed> {
    let place = held.place.clone();
    if let Some(staged) = &description.staged
        && held.reach().revision < description.revision
    {
        snapshot::take(&place, staged, held)?;
    }
    let found = held.reach().revision;
    if found < description.revision {
        let expected = description.revision;
        return Err(RecordsFailed::Missing { expected, found }.into());
    }
    // One that is older than what was applied takes nothing back.
    if meta.last_log_id >= held.applied {
        held.applied = meta.last_log_id;
        held.membership = meta.last_membership.clone();
    }
    held.write_down()?;
    place.remove(INSTALLING)?;
    snapshot::clear(&place)?;
    Ok(())
}

fn describe(meta: Meta, description: &Description) -> Snapshot<Types> {
    let text = serde_json::to_vec(description).unwrap_or_default();
    Snapshot {
        meta,
        snapshot: Box::new(Cursor::new(text)),
    }
}

/// Reads what a snapshot carries.
pub(crate) fn description_of(snapshot: &Cursor<Vec<u8>>) -> Result<Description, InstallFailed> {
    serde_json::from_slice(snapshot.get_ref())
        .map_err(|error| InstallFailed::Description(error.to_string()))
}

/// The description of a snapshot that was received, as openraft wants it.
pub(crate) fn received(meta: Meta, revision: u64, staged: Staged) -> Snapshot<Types> {
    let staged = Some(staged);
    describe(meta, &Description { revision, staged })
}

fn failed(
    subject: ErrorSubject<u64>,
    verb: ErrorVerb,
    why: &(impl std::error::Error + 'static),
) -> StorageError {
    tracing::error!(error = %why, "the record log failed");
    StorageIOError::new(subject, verb, AnyError::new(why)).into()
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), StorageError> {
        let held = self.records.held();
        Ok((held.applied, held.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Answer>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut answers = Vec::new();
        for entry in entries {
            let applied = when_there_is_room(|| self.apply_one(&entry)).await;
            let answer = applied
                .map_err(|why| failed(ErrorSubject::StateMachine, ErrorVerb::Write, &why))?;
            answers.push(answer);
        }
        self.records.tell();
        Ok(answers)
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &Meta,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError> {
        let installed = match description_of(&snapshot) {
            Err(why) => Err(why),
            Ok(description) => {
                when_there_is_room(|| {
                    let mut held = self.records.held();
                    let installing = Installing {
                        meta: meta.clone(),
                        description: description.clone(),
                    };
                    held.place.write(INSTALLING, &installing)?;
                    install(&mut held, meta, &description)?;
                    Ok(description.clone())
                })
                .await
            }
        };
        self.records.tell();
        match installed {
            Ok(Description { revision, .. }) => {
                self.remember(meta, revision);
                Ok(())
            }
            Err(why) => Err(failed(ErrorSubject::Snapshot(None), ErrorVerb::Write, &why)),
        }
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>, StorageError> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(current
            .clone()
            .map(|(meta, description)| describe(meta, &description)))
    }
}

impl RaftSnapshotBuilder<Types> for Machine {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>, StorageError> {
        let applied = when_there_is_room(|| self.records.held().write_down())
            .await
            .map_err(|why| failed(ErrorSubject::Snapshot(None), ErrorVerb::Write, &why))?;
        let at = applied.log_id.unwrap_or_default();
        let meta = Meta {
            last_log_id: applied.log_id,
            last_membership: applied.membership,
            snapshot_id: format!("{}-{}-{}", at.leader_id.term, at.index, applied.revision),
        };
        let description = self.remember(&meta, applied.revision);
        Ok(describe(meta, &description))
    }
}

/// Where a received snapshot lies.
pub(crate) fn staging_file(place: &Place) -> PathBuf {
    place.file(snapshot::INCOMING)
}
