//! Tokens: how they are come by, continued, and used for others.

mod ask;
mod delegate;
mod exchange;
mod local;
mod mint;
mod refresh;

use std::future::Future;
use std::sync::Arc;

use axum::http::StatusCode;
use felix_meta::http::TokenAnswer;
use felix_meta::{Command, TenantEntry};

use crate::app::App;
use crate::audit::Note;
use crate::authority::WriteFailed;
use crate::http::error::Refusal;
use crate::request;
use crate::throttle::TurnedAway;

// The routes are named with their documentation, which is beside them.
pub(crate) use delegate::{__path_delegate, delegate};
pub(crate) use exchange::{__path_exchange, exchange};
pub(crate) use local::{dev_session, dev_token, initialize};
pub(crate) use refresh::{__path_refresh, __path_revoke, refresh, revoke};

/// The one answer to every credential that may be good for something else.
fn not_accepted() -> Refusal {
    Refusal::forbidden("the credential is not accepted for this tenant")
}

/// The address the request came from, as it is written down.
fn caller_place() -> String {
    request::current().map_or_else(String::new, |current| current.from())
}

/// The tenant, if it is initialised, as of everything that was acknowledged anywhere: what was just made at another
/// instance must work at this one. That is asked for every credential, whether what it names is known here or not, so
/// that the time an answer takes tells nobody whether a tenant, an account or a session exists.
async fn newest(app: &App, tenant: &str) -> Result<Option<Arc<TenantEntry>>, Refusal> {
    let confirmed = app.authority.confirmed().await.map_err(|failed| {
        tracing::warn!(%failed, "what others wrote cannot be known");
        Refusal::unavailable("the control plane's ledger cannot be reached now")
    })?;
    let initialized = |entry: &&Arc<TenantEntry>| entry.initialized;
    Ok(confirmed.tenant(tenant).filter(initialized).map(Arc::clone))
}

/// Carries out what a login needs. That somebody is gone who was there a moment ago is no news for the caller.
async fn submitted(app: &App, command: Command) -> Result<(), Refusal> {
    match app.authority.submit(command).await {
        Ok(_) => Ok(()),
        Err(WriteFailed::Refused(felix_meta::Refused::Missing(_))) => Err(not_accepted()),
        Err(failed) => Err(failed.into()),
    }
}

/// Waits, if this place has failed too often.
pub(super) async fn may_pass(app: &App) -> Result<(), Refusal> {
    let Some(from) = request::current().and_then(|current| current.ip()) else {
        return Ok(());
    };
    app.throttle.pass(from).await.map_err(|TurnedAway| {
        app.stats.auth_rejected("turned_away");
        Refusal::too_many_attempts()
    })
}

/// Counts a failure of this place.
pub(super) fn failed(app: &App) {
    if let Some(from) = request::current().and_then(|current| current.ip()) {
        app.throttle.failed(from);
    }
}

/// Does what makes somebody known, and remembers that it was done or failed.
async fn login(
    app: &App,
    tenant: &str,
    act: impl Future<Output = Result<TokenAnswer, Refusal>>,
) -> Result<TokenAnswer, Refusal> {
    may_pass(app).await?;
    let outcome = act.await;
    match &outcome {
        Ok(answer) => {
            let tenant = tenant.parse().ok();
            app.notebook.note(Note {
                tenant: tenant.as_ref(),
                what: "login",
                reason: match answer.refresh_token {
                    Some(_) => "session",
                    None => "token",
                },
            });
        }
        Err(refusal) if proves_nothing(refusal) => failed(app),
        Err(_) => {}
    }
    outcome
}

/// Whether a refused login did not show who somebody is. One that did, and may do nothing here, makes nobody else at his
/// address wait: behind a gateway everybody has the same.
fn proves_nothing(refusal: &Refusal) -> bool {
    match refusal.status {
        StatusCode::UNAUTHORIZED => true,
        StatusCode::FORBIDDEN => *refusal != ask::nothing_left(),
        _ => false,
    }
}
