//! What a ledger in a database knows, shared by who writes, who reads and who follows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use felix_meta::Revision;
use felix_model::ClusterId;
use sha2::{Digest, Sha256};
use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use tokio::sync::watch;
use tokio::time::timeout;

use super::address::{Address, name};
use super::rows::{self, Seen};
use super::stats::Counts;
use super::{late, schema};
use crate::ledger::Measure;
use crate::limits::POSTGRES_CONNECT_TIME;

/// Digest over all records up to one: SHA-256 of the digest before and the record.
pub(super) type Chain = [u8; 32];

/// The end of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tip {
    pub(super) revision: Revision,
    pub(super) chain: Chain,
}

#[derive(Debug)]
pub(super) struct Core {
    address: Address,
    cluster: ClusterId,
    tip: Mutex<Tip>,
    /// Moves with the tip.
    moved: watch::Sender<Revision>,
    trouble: Mutex<Trouble>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Trouble {
    /// Why the database cannot be followed now.
    down: Option<String>,
    /// Why it never can be again by this process.
    lost: Option<String>,
}

impl Core {
    pub(super) fn new(address: Address, cluster: ClusterId) -> Self {
        let mut digest = Sha256::new();
        digest.update(b"felix ledger of ");
        digest.update(cluster.as_ref().as_bytes());
        let tip = Tip {
            revision: Revision(0),
            chain: digest.finalize().into(),
        };
        Self {
            address,
            cluster,
            tip: Mutex::new(tip),
            moved: watch::Sender::new(Revision(0)),
            trouble: Mutex::default(),
            counts: Counts::default(),
        }
    }

    pub(super) const fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    pub(super) const fn address(&self) -> &Address {
        &self.address
    }

    pub(super) fn tip(&self) -> Tip {
        self.tip
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn watch(&self) -> watch::Receiver<Revision> {
        self.moved.subscribe()
    }

    /// Goes on to a later end; an earlier one is old news.
    pub(super) fn advance(&self, to: Tip) -> Tip {
        let mut tip = self.tip.lock().unwrap_or_else(PoisonError::into_inner);
        if to.revision > tip.revision {
            self.moved.send_replace(to.revision);
            *tip = to;
        }
        tip.clone()
    }

    /// Takes what the database said when `known` was the end here.
    ///
    /// # Errors
    /// When it has not, or not any more, what was known: in words for an operator.
    pub(super) fn see(&self, known: &Tip, seen: Seen) -> Result<Tip, String> {
        if let Some(lost) = self.lost() {
            return Err(lost);
        }
        if seen.cluster != self.cluster.as_ref() {
            let (found, own) = (seen.cluster, &self.cluster);
            return Err(self.lose_with(format!(
                "the database has the ledger of cluster `{found}`, not of `{own}`"
            )));
        }
        let has_known = known.revision == Revision(0) || seen.known == Some(known.chain);
        if !has_known {
            return Err(self.lose(known.revision));
        }
        if seen.version > schema::VERSION {
            let (found, own) = (seen.version, schema::VERSION);
            return Err(format!(
                "a newer build changed the ledger's tables to version {found}, this one knows up to {own}"
            ));
        }
        match seen.newest {
            Some(newest) => Ok(self.advance(newest)),
            None => Ok(self.tip()),
        }
    }

    /// Gives up: a revision that was durable is not there. Going on would make two histories of one.
    pub(super) fn lose(&self, revision: Revision) -> String {
        self.lose_with(format!(
            "the database does not have record {revision} as it was known here: it was restored, or failed over to a \
             standby that lagged; when that is meant to be so, restart this process, and it goes on with what the \
             database has"
        ))
    }

    fn lose_with(&self, why: String) -> String {
        tracing::error!(%why, "the ledger is not written any more");
        self.trouble().lost.get_or_insert(why).clone()
    }

    pub(super) fn lost(&self) -> Option<String> {
        self.trouble().lost.clone()
    }

    /// Says that the database is followed, or why not.
    pub(super) fn followed(&self, outcome: Result<(), String>) {
        let down = outcome.err();
        let before = std::mem::replace(&mut self.trouble().down, down.clone());
        match (before, down) {
            (None, Some(why)) => tracing::warn!(%why, "the ledger's database is not followed"),
            (Some(_), None) => {
                self.count(|counts| &counts.reconnects);
                tracing::info!("the ledger's database is followed again");
            }
            (None, None) | (Some(_), Some(_)) => {}
        }
    }

    pub(super) fn why_not(&self) -> Option<String> {
        let trouble = self.trouble();
        trouble.lost.clone().or_else(|| trouble.down.clone())
    }

    fn trouble(&self) -> MutexGuard<'_, Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self, which: impl FnOnce(&Counts) -> &AtomicU64) {
        which(&self.counts).fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn measures(&self) -> Vec<Measure> {
        self.counts.measures()
    }

    /// A connection to the server that takes writes.
    ///
    /// # Errors
    /// In words for an operator, of every host.
    pub(super) async fn connect(&self) -> Result<PgConnection, String> {
        let mut refused = Vec::new();
        for host in self.address.hosts() {
            match timeout(POSTGRES_CONNECT_TIME, connect_to(host)).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) => refused.push(format!("{}: {error}", name(host))),
                Err(_) => refused.push(format!("{}: {}", name(host), late(POSTGRES_CONNECT_TIME))),
            }
        }
        Err(refused.join("; "))
    }
}

async fn connect_to(host: &PgConnectOptions) -> Result<PgConnection, String> {
    let mut connection = PgConnection::connect_with(host)
        .await
        .map_err(|error| error.to_string())?;
    rows::prepare(&mut connection).await?;
    Ok(connection)
}
