//! What a record of the ledger holds, and how the state is read from records.

use std::sync::Arc;

use bytes::Bytes;
use felix_meta::{Catalogue, ENTRY_VERSION, Entry, EntryRefused, Revision, changes};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::StartFailed;
use crate::history::History;
use crate::ledger::{Ledger, ReadFailed};
use crate::limits::{REPLAY_BYTES, SNAPSHOT_ENTRIES};
use crate::vault::{Secret, Vault};

/// A record of the ledger.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Written {
    pub(super) entry: serde_json::Value,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) secrets: Vec<Secret>,
}

/// A snapshot in the ledger.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    version: u16,
    catalogue: Catalogue,
    secrets: Vec<Secret>,
    /// SHA-256 of the record that made the state, in hex. A snapshot that was left behind by another history, as when a
    /// backup was restored beside it, has another.
    record: String,
}

/// Reads what the ledger holds, from its snapshot on.
pub(super) fn replay(ledger: &dyn Ledger) -> Result<(Catalogue, Vault, History), StartFailed> {
    let (mut catalogue, mut vault) = read_snapshot(ledger);
    let mut history = History::after(&catalogue);
    let began_at = catalogue.revision();
    loop {
        let page = ledger.read_after(catalogue.revision(), REPLAY_BYTES)?;
        if page.is_empty() {
            break;
        }
        for record in page {
            let (entry, secrets) = read_next(&catalogue, &record)?;
            vault.apply(&entry.event, &secrets);
            let rows = changes(&catalogue, &entry.event);
            catalogue.apply_entry(&entry);
            history.remember(Arc::new(entry), rows, record.len());
        }
    }
    let replayed = catalogue.revision().0 - began_at.0;
    tracing::info!(
        revision = catalogue.revision().0,
        replayed,
        "read the ledger"
    );
    if replayed >= SNAPSHOT_ENTRIES {
        keep_snapshot(ledger, &catalogue, &vault);
    }
    Ok((catalogue, vault, history))
}

/// The snapshot, or nothing. The ledger holds every record from the first, so a snapshot that cannot be used costs only
/// time.
fn read_snapshot(ledger: &dyn Ledger) -> (Catalogue, Vault) {
    let found = match ledger.snapshot() {
        Ok(Some(found)) => found,
        Ok(None) => return Default::default(),
        Err(error) => {
            tracing::warn!(%error, "the ledger's snapshot cannot be read; reading all records");
            return Default::default();
        }
    };
    let state = serde_json::from_slice::<State>(&found.1);
    let usable = |state: &State| {
        state.version == ENTRY_VERSION
            && state.catalogue.revision() == found.0
            && found.0 <= ledger.revision()
            && digest_at(ledger, found.0).is_ok_and(|digest| digest == state.record)
    };
    match state.ok().filter(usable) {
        Some(state) => {
            let mut vault = Vault::default();
            vault.keep(&state.secrets);
            (state.catalogue, vault)
        }
        None => {
            tracing::warn!(
                at = found.0.0,
                "the ledger's snapshot does not fit; reading all records"
            );
            Default::default()
        }
    }
}

pub(super) fn keep_snapshot(ledger: &dyn Ledger, catalogue: &Catalogue, vault: &Vault) {
    let at = catalogue.revision();
    let kept = digest_at(ledger, at).and_then(|record| {
        let state = State {
            version: ENTRY_VERSION,
            catalogue: catalogue.clone(),
            secrets: vault.secrets(),
            record,
        };
        let state = serde_json::to_vec(&state).map_err(|error| ReadFailed(error.to_string()))?;
        ledger.keep_snapshot(at, &state)
    });
    if let Err(error) = kept {
        tracing::warn!(%error, "no snapshot of the ledger; the next start takes longer");
    }
}

/// Digest of the record at a revision.
fn digest_at(ledger: &dyn Ledger, at: Revision) -> Result<String, ReadFailed> {
    let missing = || ReadFailed(format!("there is no record {at}"));
    let before = at.0.checked_sub(1).ok_or_else(missing)?;
    let page = ledger.read_after(Revision(before), 1)?;
    let record = page.first().ok_or_else(missing)?;
    let digest = Sha256::digest(record);
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The record that follows a state.
pub(super) fn read_next(
    catalogue: &Catalogue,
    record: &Bytes,
) -> Result<(Entry, Vec<Secret>), StartFailed> {
    let expected = catalogue.revision().next();
    let (entry, secrets) = read(record).map_err(|why| StartFailed::Entry {
        revision: expected,
        why,
    })?;
    if entry.revision != expected {
        return Err(StartFailed::Order {
            expected,
            found: entry.revision,
        });
    }
    Ok((entry, secrets))
}

/// Whether a record is one that this build understands and that follows a state, which then includes it.
pub(crate) fn check_next(catalogue: &mut Catalogue, record: &Bytes) -> Result<(), StartFailed> {
    let (entry, _) = read_next(catalogue, record)?;
    catalogue.apply_entry(&entry);
    Ok(())
}

pub(super) fn read(record: &[u8]) -> Result<(Entry, Vec<Secret>), EntryRefused> {
    let written: Written = serde_json::from_slice(record)
        .map_err(|error| EntryRefused::Malformed(error.to_string()))?;
    Ok((Entry::from_json(&written.entry)?, written.secrets))
}
