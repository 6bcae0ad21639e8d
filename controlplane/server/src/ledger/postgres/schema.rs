//! The tables, and how those of an older build become ours.

use felix_model::ClusterId;
use sqlx::{Connection, Error, PgConnection};

use super::PostgresRefused;

/// Each step by which the tables of one version become those of the next. Steps are only ever added.
const MIGRATIONS: &[&str] = &[include_str!("0001_ledger.sql")];

/// The version that all steps lead to.
pub(super) const VERSION: i32 = MIGRATIONS.len() as i32;

/// Of all who start at once, one makes the tables. An arbitrary number that is only ours.
const LOCK: i64 = 0x0066_656c_6978_0001;

/// Makes the tables, or brings them up to this build's version, and makes sure that they are this cluster's.
pub(super) async fn migrate(
    connection: &mut PgConnection,
    cluster: &ClusterId,
) -> Result<(), PostgresRefused> {
    let refused = |error: Error| PostgresRefused::Server(error.to_string());
    // Looked at without the lock first: usually there is nothing to do, and nothing to wait for.
    let (mut version, mut owner) = look(connection).await.map_err(refused)?;
    if version < VERSION {
        // Locked before the transaction begins, which then sees the tables that another has just made. Should anything
        // fail from here on, the connection is dropped, and the lock with it.
        lock(connection, "SELECT pg_advisory_lock($1)")
            .await
            .map_err(refused)?;
        let mut transaction = connection.begin().await.map_err(refused)?;
        (version, owner) = look(&mut transaction).await.map_err(refused)?;
        let done = usize::try_from(version).unwrap_or(MIGRATIONS.len());
        for step in MIGRATIONS.iter().skip(done) {
            sqlx::raw_sql(*step)
                .execute(&mut *transaction)
                .await
                .map_err(refused)?;
        }
        if version < VERSION {
            sqlx::query(
                "INSERT INTO felix_ledger (version, cluster_id) VALUES ($1, $2) \
                 ON CONFLICT (one) DO UPDATE SET version = excluded.version",
            )
            .bind(VERSION)
            .bind(cluster.as_ref())
            .execute(&mut *transaction)
            .await
            .map_err(refused)?;
            tracing::info!(from = version, to = VERSION, "made the ledger's tables");
        }
        transaction.commit().await.map_err(refused)?;
        lock(connection, "SELECT pg_advisory_unlock($1)")
            .await
            .map_err(refused)?;
        owner.get_or_insert_with(|| cluster.to_string());
        version = version.max(VERSION);
    }
    if version > VERSION {
        return Err(PostgresRefused::Newer {
            found: version,
            known: VERSION,
        });
    }
    match owner {
        Some(found) if found != cluster.as_ref() => Err(PostgresRefused::OtherCluster {
            found,
            expected: cluster.clone(),
        }),
        _ => Ok(()),
    }
}

async fn lock(connection: &mut PgConnection, statement: &'static str) -> Result<(), Error> {
    sqlx::query(statement)
        .bind(LOCK)
        .execute(connection)
        .await?;
    Ok(())
}

/// The version of the tables, 0 when there are none, and whose they are.
async fn look(connection: &mut PgConnection) -> Result<(i32, Option<String>), Error> {
    let there: bool = sqlx::query_scalar("SELECT to_regclass('felix_ledger') IS NOT NULL")
        .fetch_one(&mut *connection)
        .await?;
    if !there {
        return Ok((0, None));
    }
    let found: Option<(i32, String)> =
        sqlx::query_as("SELECT version, cluster_id FROM felix_ledger")
            .fetch_optional(connection)
            .await?;
    Ok(found.map_or((0, None), |(version, owner)| (version, Some(owner))))
}
