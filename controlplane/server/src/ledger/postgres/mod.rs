//! A ledger in a PostgreSQL database, written by any number of processes that keep nothing themselves.
//!
//! The revision is the primary key of the table of records, so that of two who append at one revision the database
//! refuses one. A record also carries a digest over everything up to it: an append names the digest that it stands on,
//! and a server that lost records at a fail-over is noticed instead of being written to.
//!
//! An append whose answer was lost is made again, with the same random id: either it succeeds now, or the records that
//! are in its place say by their id whose they are.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use felix_meta::Revision;
use felix_model::ClusterId;
use sqlx::postgres::PgConnection;
use sqlx::{Connection, Error};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Mutex, MutexGuard, watch};
use tokio::time::{Instant, timeout, timeout_at};

use super::{AppendRefused, ConfirmFailed, Ledger, Measure, ReadFailed, Standing};
use crate::limits::{
    POSTGRES_APPEND_BYTES_MAX, POSTGRES_PAUSE, POSTGRES_READ_TIME, POSTGRES_SETTLE_TIME,
    POSTGRES_START_TIME, POSTGRES_WRITE_TIME,
};

mod address;
mod core;
mod follow;
mod rows;
mod schema;
mod stats;
#[cfg(test)]
pub(crate) mod test_server;
#[cfg(test)]
mod tests;

use self::core::{Core, Tip};
pub use address::{Address, AddressRefused};
use rows::{Batch, Inserted};

/// Why the ledger could not be opened. Nothing was changed but, perhaps, the tables made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostgresRefused {
    /// No server answers.
    #[error("no PostgreSQL server takes connections for the ledger: {0}")]
    Unreachable(String),
    /// A server answered with an error.
    #[error("the ledger's tables cannot be used: {0}")]
    Server(String),
    /// The tables were made by a newer build.
    #[error(
        "the ledger's tables are of version {found}, this build knows up to {known}; upgrade it"
    )]
    Newer {
        /// Their version.
        found: i32,
        /// The newest one known here.
        known: i32,
    },
    /// The tables are another cluster's.
    #[error("the ledger's tables belong to cluster `{found}`, not to `{expected}`")]
    OtherCluster {
        /// Whose they are.
        found: String,
        /// Who asked.
        expected: ClusterId,
    },
    /// There is no thread for it.
    #[error("no thread for the ledger: {0}")]
    Thread(String),
}

/// Records in tables. Several in one process, or in many, write and read the same ones.
#[derive(Debug)]
pub struct PostgresLedger {
    core: Arc<Core>,
    /// Connections are made when they are needed, and dropped when anything about them is in doubt.
    writing: Mutex<Option<PgConnection>>,
    reading: Mutex<Option<PgConnection>>,
    /// Taken when it is dropped.
    runtime: Option<Runtime>,
}

impl Drop for PostgresLedger {
    fn drop(&mut self) {
        // It may be dropped by a task, which must not wait for others.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl PostgresLedger {
    /// Opens the ledger of a database, making its tables when they are missing or older. Waits up to 30 s for a server.
    /// Blocking.
    ///
    /// # Errors
    /// [`PostgresRefused`].
    pub fn open(address: Address, cluster: &ClusterId) -> Result<Self, PostgresRefused> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("felix-postgres")
            .enable_all()
            .build()
            .map_err(|error| PostgresRefused::Thread(error.to_string()))?;
        let core = Arc::new(Core::new(address, cluster.clone()));
        let reading = runtime.block_on(begin(&core))?;
        runtime.spawn(follow::follow(Arc::clone(&core)));
        Ok(Self {
            core,
            writing: Mutex::new(None),
            reading: Mutex::new(Some(reading)),
            runtime: Some(runtime),
        })
    }

    fn block_on<T>(&self, what: impl Future<Output = T>) -> Option<T> {
        self.runtime.as_ref().map(|runtime| runtime.block_on(what))
    }

    async fn append_all(&self, expected: Revision, records: &[Bytes]) -> Result<(), AppendRefused> {
        let mut writing = self.writing.lock().await;
        if let Some(lost) = self.core.lost() {
            return Err(AppendRefused::Failed(lost));
        }
        let mut tip = self.core.tip();
        if expected > tip.revision {
            let unreachable = |error: ConfirmFailed| AppendRefused::Unreachable(error.0);
            tip = self.newest().await.map_err(unreachable)?;
        }
        if expected != tip.revision {
            let found = tip.revision;
            return Err(AppendRefused::Raced { expected, found });
        }
        if records.is_empty() {
            return Ok(());
        }
        let batch = Batch::new(&tip, records).map_err(AppendRefused::Unfit)?;
        if batch.bytes() > POSTGRES_APPEND_BYTES_MAX {
            let (bytes, max) = (batch.bytes(), POSTGRES_APPEND_BYTES_MAX);
            let unfit = format!("{bytes} bytes in one append; {max} at most");
            return Err(AppendRefused::Unfit(unfit));
        }
        let inserted = match self.insert(&mut writing, &batch, true).await {
            Tried::Done(inserted) => inserted,
            Tried::Refused(refused) => return Err(refused),
            Tried::Unknown(why) => self.settle(&mut writing, &batch, why).await?,
        };
        match inserted {
            Inserted::All => {
                self.core.advance(batch.tip());
                Ok(())
            }
            Inserted::Elsewhere => {
                self.core.count(|counts| &counts.races);
                let unreachable = |error: ConfirmFailed| AppendRefused::Unreachable(error.0);
                let found = self.newest().await.map_err(unreachable)?.revision;
                Err(AppendRefused::Raced { expected, found })
            }
            Inserted::Groundless => {
                let lost = self.core.lose(expected);
                Err(AppendRefused::Failed(lost))
            }
        }
    }

    /// Tries once. `fresh` says that this is the first try: then an error of the server says that nothing was added.
    async fn insert(
        &self,
        writing: &mut MutexGuard<'_, Option<PgConnection>>,
        batch: &Batch,
        fresh: bool,
    ) -> Tried {
        let mut connection = match writing.take() {
            Some(connection) => connection,
            None => match self.core.connect().await {
                Ok(connection) => connection,
                Err(error) if fresh => return Tried::Refused(AppendRefused::Unreachable(error)),
                Err(error) => return Tried::Unknown(error),
            },
        };
        match timeout(POSTGRES_WRITE_TIME, rows::insert(&mut connection, batch)).await {
            Ok(Ok(inserted)) => {
                **writing = Some(connection);
                Tried::Done(inserted)
            }
            Ok(Err(error)) => match refusal(&error) {
                Some(refused) if fresh => Tried::Refused(refused),
                _ => Tried::Unknown(error.to_string()),
            },
            Err(_) => Tried::Unknown(late(POSTGRES_WRITE_TIME)),
        }
    }

    /// Finds out what became of an append that nobody answered, by making it again.
    async fn settle(
        &self,
        writing: &mut MutexGuard<'_, Option<PgConnection>>,
        batch: &Batch,
        mut why: String,
    ) -> Result<Inserted, AppendRefused> {
        tracing::warn!(%why, revision = batch.tip().revision.0, "the database did not answer an append; asking again");
        self.core.count(|counts| &counts.settled);
        let deadline = Instant::now() + POSTGRES_SETTLE_TIME;
        loop {
            let tried = timeout_at(deadline, self.insert(writing, batch, false)).await;
            match tried {
                Ok(Tried::Done(inserted)) => return Ok(inserted),
                Ok(Tried::Refused(refused)) => return Err(refused),
                Ok(Tried::Unknown(again)) => why = again,
                Err(_) => {}
            }
            if Instant::now() + POSTGRES_PAUSE.0 > deadline {
                self.core.count(|counts| &counts.unconfirmed);
                return Err(AppendRefused::Unconfirmed(why));
            }
            tokio::time::sleep(POSTGRES_PAUSE.0).await;
        }
    }

    /// Asks for the newest revision.
    async fn newest(&self) -> Result<Tip, ConfirmFailed> {
        let known = self.core.tip();
        let seen = self
            .read(async |connection| rows::newest(connection, known.revision).await)
            .await
            .map_err(ConfirmFailed)?;
        self.core.see(&known, seen).map_err(ConfirmFailed)
    }

    /// Asks something that changes nothing, once more when the connection turns out to be of no use.
    async fn read<T>(
        &self,
        ask: impl AsyncFn(&mut PgConnection) -> Result<T, Error>,
    ) -> Result<T, String> {
        let mut reading = self.reading.lock().await;
        let kept = reading.take();
        let was_kept = kept.is_some();
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.core.connect().await?,
        };
        let mut answered = timeout(POSTGRES_READ_TIME, ask(&mut connection)).await;
        if was_kept && matches!(answered, Ok(Err(_))) {
            connection = self.core.connect().await?;
            answered = timeout(POSTGRES_READ_TIME, ask(&mut connection)).await;
        }
        match answered {
            Ok(Ok(answer)) => {
                *reading = Some(connection);
                Ok(answer)
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(late(POSTGRES_READ_TIME)),
        }
    }
}

/// What became of a try.
enum Tried {
    Done(Inserted),
    /// Nothing was added, and nothing will be.
    Refused(AppendRefused),
    Unknown(String),
}

/// Connects, makes the tables, and learns where the ledger ends.
async fn begin(core: &Core) -> Result<PgConnection, PostgresRefused> {
    let deadline = Instant::now() + POSTGRES_START_TIME;
    let mut connection = loop {
        match core.connect().await {
            Ok(connection) => break connection,
            Err(error) if Instant::now() + POSTGRES_PAUSE.1 > deadline => {
                return Err(PostgresRefused::Unreachable(error));
            }
            Err(error) => {
                tracing::warn!(%error, "waiting for the ledger's database");
                tokio::time::sleep(POSTGRES_PAUSE.1).await;
            }
        }
    };
    schema::migrate(&mut connection, core.cluster()).await?;
    let known = core.tip();
    let seen = rows::newest(&mut connection, known.revision)
        .await
        .map_err(|error| PostgresRefused::Server(error.to_string()))?;
    core.see(&known, seen).map_err(PostgresRefused::Server)?;
    Ok(connection)
}

fn late(after: Duration) -> String {
    format!("no answer within {} s", after.as_secs())
}

/// What an error of the server means for an append that was tried once; `None` when it does not say that nothing was
/// added. Codes: appendix A of PostgreSQL's manual.
fn refusal(error: &Error) -> Option<AppendRefused> {
    let error = error.as_database_error()?;
    let code = error.code()?;
    let text = error.to_string();
    match &*code {
        "53100" => Some(AppendRefused::Full),
        // Read only: a standby, or a primary that became one. And cancelled: the time for one statement ran out.
        "25006" | "57014" => Some(AppendRefused::Unreachable(text)),
        code => match code.get(..2)? {
            "54" => Some(AppendRefused::Unfit(text)),
            "22" | "23" | "28" | "3D" | "40" | "42" | "53" | "55" => {
                Some(AppendRefused::Unreachable(text))
            }
            _ => None,
        },
    }
}

impl Ledger for PostgresLedger {
    fn revision(&self) -> Revision {
        self.core.tip().revision
    }

    fn watch(&self) -> watch::Receiver<Revision> {
        self.core.watch()
    }

    fn append(&self, expected: Revision, records: &[Bytes]) -> Result<(), AppendRefused> {
        let closed = || Err(AppendRefused::Unreachable("it is closed".into()));
        self.block_on(self.append_all(expected, records))
            .unwrap_or_else(closed)
    }

    fn read_after(&self, after: Revision, bytes_max: usize) -> Result<Vec<Bytes>, ReadFailed> {
        let read =
            self.read(async |connection| rows::read_after(connection, after, bytes_max).await);
        let page = self.block_on(read).unwrap_or_else(|| Ok(Vec::new()));
        let page = page.map_err(ReadFailed)?;
        let places = after.0 + 1..;
        for (place, (revision, _)) in places.zip(&page) {
            if *revision != place {
                return Err(ReadFailed(format!("record {place} is missing")));
            }
        }
        Ok(page.into_iter().map(|(_, record)| record).collect())
    }

    fn confirm(&self) -> Result<Revision, ConfirmFailed> {
        let closed = || Err(ConfirmFailed("it is closed".into()));
        let newest = self.block_on(self.newest()).unwrap_or_else(closed);
        newest.map(|tip| tip.revision)
    }

    fn keep_snapshot(&self, at: Revision, state: &[u8]) -> Result<(), ReadFailed> {
        let keep = self.read(async |connection| rows::keep_snapshot(connection, at, state).await);
        self.block_on(keep).unwrap_or(Ok(())).map_err(ReadFailed)
    }

    fn snapshot(&self) -> Result<Option<(Revision, Vec<u8>)>, ReadFailed> {
        let read = self.read(async |connection| rows::snapshot(connection).await);
        self.block_on(read).unwrap_or(Ok(None)).map_err(ReadFailed)
    }

    fn standing(&self) -> Standing {
        let why_not = self.core.why_not();
        Standing {
            leads: false,
            ..Standing::alone("postgres", why_not)
        }
    }

    fn measures(&self) -> Vec<Measure> {
        self.core.measures()
    }

    fn close(mut self: Box<Self>) {
        let connections = [self.writing.get_mut().take(), self.reading.get_mut().take()];
        let said_goodbye = async {
            for connection in connections.into_iter().flatten() {
                let _ = timeout(Duration::from_secs(1), connection.close()).await;
            }
        };
        let _ = self.block_on(said_goodbye);
    }
}
