//! What is asked of the database.

use bytes::Bytes;
use felix_meta::Revision;
use sha2::{Digest, Sha256};
use sqlx::postgres::PgRow;
use sqlx::{Error, PgConnection, PgExecutor, Row};

use super::core::{Chain, Tip};
use crate::limits::POSTGRES_PAGE_RECORDS;

/// The channel on which every append is told.
pub(super) const CHANNEL: &str = "felix_ledger";

/// Records that go in together.
#[derive(Debug)]
pub(super) struct Batch {
    /// What they stand on.
    base: Tip,
    id: [u8; 16],
    revisions: Vec<i64>,
    records: Vec<Vec<u8>>,
    chains: Vec<Vec<u8>>,
    tip: Tip,
}

/// What became of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inserted {
    /// They are there.
    All,
    /// Others are in their place.
    Elsewhere,
    /// What they stand on is not there.
    Groundless,
}

/// What the database says about itself.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) version: i32,
    pub(super) cluster: String,
    /// The end of the ledger, if it has any records.
    pub(super) newest: Option<Tip>,
    /// The digest at the revision that was asked about.
    pub(super) known: Option<Chain>,
}

impl Batch {
    /// # Errors
    /// In words, when there is no randomness or the revisions are used up.
    pub(super) fn new(base: &Tip, records: &[Bytes]) -> Result<Self, String> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| error.to_string())?;
        let mut batch = Self {
            base: base.clone(),
            id,
            revisions: Vec::with_capacity(records.len()),
            records: records.iter().map(|record| record.to_vec()).collect(),
            chains: Vec::with_capacity(records.len()),
            tip: base.clone(),
        };
        for record in records {
            let revision = batch.tip.revision.next();
            let number = i64::try_from(revision.0).map_err(|error| error.to_string())?;
            let mut digest = Sha256::new();
            digest.update(batch.tip.chain);
            digest.update(record);
            let chain = digest.finalize().into();
            batch.revisions.push(number);
            batch.chains.push(Vec::from(chain));
            batch.tip = Tip { revision, chain };
        }
        Ok(batch)
    }

    /// The same records, of somebody else.
    #[cfg(test)]
    pub(super) fn renew(&mut self) {
        getrandom::fill(&mut self.id).unwrap();
    }

    pub(super) fn bytes(&self) -> usize {
        self.records.iter().map(Vec::len).sum()
    }

    /// The end of the ledger once they are there.
    pub(super) fn tip(&self) -> Tip {
        self.tip.clone()
    }
}

/// Makes sure that a new connection is to a server that takes writes, and keeps what it says it keeps.
///
/// # Errors
/// In words for an operator.
pub(super) async fn prepare(connection: &mut PgConnection) -> Result<(), String> {
    let standby: bool = sqlx::query_scalar("SELECT pg_is_in_recovery()")
        .fetch_one(&mut *connection)
        .await
        .map_err(|error| error.to_string())?;
    if standby {
        return Err("it is a standby, which takes no writes".into());
    }
    // What is weaker than `on` would answer what a crash or a fail-over can take back; what is stronger stays.
    sqlx::query(
        "SELECT set_config('synchronous_commit', 'on', false) \
         WHERE current_setting('synchronous_commit') <> 'remote_apply'",
    )
    .execute(connection)
    .await
    .map_err(|error| error.to_string())?;
    Ok(())
}

pub(super) async fn newest<'c>(
    connection: impl PgExecutor<'c>,
    known: Revision,
) -> Result<Seen, Error> {
    let row = sqlx::query(
        "SELECT ledger.version, ledger.cluster_id, newest.revision, newest.chain, known.chain \
         FROM felix_ledger AS ledger \
         LEFT JOIN LATERAL (SELECT revision, chain FROM felix_ledger_record ORDER BY revision DESC LIMIT 1) \
             AS newest ON true \
         LEFT JOIN felix_ledger_record AS known ON known.revision = $1",
    )
    .bind(signed(known))
    .fetch_one(connection)
    .await?;
    let newest = match row.try_get::<Option<i64>, _>(2)? {
        None => None,
        Some(_) => Some(Tip {
            revision: revision(&row, 2)?,
            chain: chain(&row, 3)?.ok_or(Error::RowNotFound)?,
        }),
    };
    Ok(Seen {
        version: row.try_get(0)?,
        cluster: row.try_get(1)?,
        newest,
        known: chain(&row, 4)?,
    })
}

/// Adds records where they belong, all or none, and tells who listens.
pub(super) async fn insert(
    connection: &mut PgConnection,
    batch: &Batch,
) -> Result<Inserted, Error> {
    let added = sqlx::query_scalar::<_, i64>(
        "WITH added AS ( \
             INSERT INTO felix_ledger_record (revision, record, chain, append_id) \
             SELECT new.revision, new.record, new.chain, $4 \
             FROM unnest($1::bigint[], $2::bytea[], $3::bytea[]) AS new (revision, record, chain) \
             WHERE $5 = 0 OR EXISTS \
                 (SELECT 1 FROM felix_ledger_record AS base WHERE base.revision = $5 AND base.chain = $6) \
             RETURNING revision) \
         SELECT count(*) FROM added, pg_notify('felix_ledger', '')",
    )
    .bind(&batch.revisions)
    .bind(&batch.records)
    .bind(&batch.chains)
    .bind(batch.id.as_slice())
    .bind(signed(batch.base.revision))
    .bind(batch.base.chain.as_slice())
    .fetch_one(&mut *connection)
    .await;
    match added {
        Ok(0) => Ok(Inserted::Groundless),
        Ok(_) => Ok(Inserted::All),
        Err(error) if is_duplicate(&error) => whose(connection, batch).await,
        Err(error) => Err(error),
    }
}

/// Whose records are in the place of some.
async fn whose(connection: &mut PgConnection, batch: &Batch) -> Result<Inserted, Error> {
    let id: Vec<u8> =
        sqlx::query_scalar("SELECT append_id FROM felix_ledger_record WHERE revision = $1")
            .bind(signed(batch.base.revision.next()))
            .fetch_one(&mut *connection)
            .await?;
    if id != batch.id {
        return Ok(Inserted::Elsewhere);
    }
    standbys_have_it(connection).await?;
    Ok(Inserted::All)
}

/// Waits until what can be seen is where commits are waited for. A commit whose connection was cut while it waited for a
/// standby can be seen although no standby has it, and a fail-over would lose it. Whatever is committed later is behind it
/// in the log of the database.
async fn standbys_have_it(connection: &mut PgConnection) -> Result<(), Error> {
    sqlx::query("UPDATE felix_ledger SET version = version")
        .execute(connection)
        .await?;
    Ok(())
}

fn is_duplicate(error: &Error) -> bool {
    error
        .as_database_error()
        .is_some_and(|error| error.is_unique_violation())
}

pub(super) async fn read_after(
    connection: &mut PgConnection,
    after: Revision,
    bytes_max: usize,
) -> Result<Vec<(u64, Bytes)>, Error> {
    let bytes_max = i64::try_from(bytes_max).unwrap_or(i64::MAX).max(1);
    // Sizes are summed before any record is fetched, so that the database sends no more than is wanted.
    let rows = sqlx::query(
        "SELECT page.revision, record.record FROM ( \
             SELECT revision, sum(size) OVER (ORDER BY revision) - size AS before FROM ( \
                 SELECT revision, octet_length(record)::bigint AS size FROM felix_ledger_record \
                 WHERE revision > $1 ORDER BY revision LIMIT $2) AS sizes) AS page \
         JOIN felix_ledger_record AS record ON record.revision = page.revision \
         WHERE page.before < $3 ORDER BY page.revision",
    )
    .bind(signed(after))
    .bind(POSTGRES_PAGE_RECORDS)
    .bind(bytes_max)
    .fetch_all(connection)
    .await?;
    rows.iter()
        .map(|row| {
            let record: Vec<u8> = row.try_get(1)?;
            Ok((revision(row, 0)?.0, Bytes::from(record)))
        })
        .collect()
}

pub(super) async fn keep_snapshot(
    connection: &mut PgConnection,
    at: Revision,
    state: &[u8],
) -> Result<(), Error> {
    sqlx::query(
        "INSERT INTO felix_ledger_snapshot AS kept (revision, state) VALUES ($1, $2) \
         ON CONFLICT (one) DO UPDATE SET revision = excluded.revision, state = excluded.state \
         WHERE kept.revision <= excluded.revision",
    )
    .bind(signed(at))
    .bind(state)
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn snapshot(
    connection: &mut PgConnection,
) -> Result<Option<(Revision, Vec<u8>)>, Error> {
    let row = sqlx::query("SELECT revision, state FROM felix_ledger_snapshot")
        .fetch_optional(connection)
        .await?;
    row.map(|row| Ok((revision(&row, 0)?, row.try_get(1)?)))
        .transpose()
}

/// Revisions are counted up one by one, so they never pass what a signed number holds.
fn signed(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

fn revision(row: &PgRow, column: usize) -> Result<Revision, Error> {
    let number: i64 = row.try_get(column)?;
    u64::try_from(number)
        .map(Revision)
        .map_err(|error| Error::Decode(error.into()))
}

fn chain(row: &PgRow, column: usize) -> Result<Option<Chain>, Error> {
    let bytes: Option<Vec<u8>> = row.try_get(column)?;
    let malformed = |_| Error::Decode("a digest has not 32 bytes".into());
    bytes
        .map(|bytes| Chain::try_from(bytes).map_err(malformed))
        .transpose()
}
