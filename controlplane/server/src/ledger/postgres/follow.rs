//! The task that hears of what others append.

use std::convert::Infallible;
use std::sync::Arc;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::time::timeout;

use super::address::name;
use super::core::Core;
use super::{late, rows};
use crate::limits::{POSTGRES_CONNECT_TIME, POSTGRES_PAUSE, POSTGRES_POLL, POSTGRES_READ_TIME};

/// Follows for ever, through outages.
pub(super) async fn follow(core: Arc<Core>) {
    let (first, longest) = POSTGRES_PAUSE;
    let mut pause = first;
    loop {
        let Err(failed) = session(&core).await;
        if failed.was_followed {
            pause = first;
        }
        core.followed(Err(failed.why));
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
}

/// Why following ended.
struct Failed {
    why: String,
    was_followed: bool,
}

/// Follows over one connection, until it fails.
async fn session(core: &Core) -> Result<Infallible, Failed> {
    let mut was_followed = false;
    let mut listener = listen(core)
        .await
        .map_err(|why| Failed { why, was_followed })?;
    loop {
        let turn = turn(core, &mut listener).await;
        was_followed |= turn.is_ok();
        turn.map_err(|why| Failed { why, was_followed })?;
    }
}

/// Looks where the ledger ends, then waits for a word, or a while: a word may be lost with a connection that looks alive.
async fn turn(core: &Core, listener: &mut PgListener) -> Result<(), String> {
    let known = core.tip();
    let seen = timeout(
        POSTGRES_READ_TIME,
        rows::newest(&mut *listener, known.revision),
    )
    .await
    .map_err(|_| late(POSTGRES_READ_TIME))?
    .map_err(|error| error.to_string())?;
    core.see(&known, seen)?;
    core.followed(Ok(()));
    tokio::select! {
        word = listener.try_recv() => match word {
            Ok(Some(_)) => while listener.next_buffered().is_some() {},
            Ok(None) => return Err("the connection was lost".into()),
            Err(error) => return Err(error.to_string()),
        },
        () = tokio::time::sleep(POSTGRES_POLL) => {}
    }
    Ok(())
}

async fn listen(core: &Core) -> Result<PgListener, String> {
    let mut refused = Vec::new();
    for host in core.address().hosts() {
        match timeout(POSTGRES_CONNECT_TIME, listen_at(host)).await {
            Ok(Ok(listener)) => return Ok(listener),
            Ok(Err(error)) => refused.push(format!("{}: {error}", name(host))),
            Err(_) => refused.push(format!("{}: {}", name(host), late(POSTGRES_CONNECT_TIME))),
        }
    }
    Err(refused.join("; "))
}

async fn listen_at(host: &PgConnectOptions) -> Result<PgListener, String> {
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(POSTGRES_CONNECT_TIME)
        .connect_with(host.clone())
        .await
        .map_err(|error| error.to_string())?;
    let mut listener = PgListener::connect_with(&pool)
        .await
        .map_err(|error| error.to_string())?;
    // Which host to go on with is for us to say.
    listener.eager_reconnect(false);
    let standby: bool = sqlx::query_scalar("SELECT pg_is_in_recovery()")
        .fetch_one(&mut listener)
        .await
        .map_err(|error| error.to_string())?;
    if standby {
        return Err("it is a standby, which takes no writes".into());
    }
    listener
        .listen(rows::CHANNEL)
        .await
        .map_err(|error| error.to_string())?;
    Ok(listener)
}
