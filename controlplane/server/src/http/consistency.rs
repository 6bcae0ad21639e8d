//! Reads of the newest state, for who asks: `?consistency=linearizable` on any GET.
//!
//! Without it a read answers with what is known here, which is a moment behind what another process has written. Asking
//! what is newest is work for every member, so it is done for who has a token only, also on paths that need none.

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::caller::Ticket;
use super::error::Refusal;
use super::tokens::{failed, may_pass};
use crate::app::App;

/// The name of the parameter, and what it may be.
pub(super) const PARAMETER: &str = "consistency";
pub(super) const VALUES: [&str; 2] = ["local", "linearizable"];

pub(super) async fn confirm(State(app): State<App>, request: Request, next: Next) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    match confirm_if_asked(&app, parts.uri.query(), &Ticket::of(&parts)).await {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(refusal) => refusal.into_response(),
    }
}

async fn confirm_if_asked(app: &App, query: Option<&str>, ticket: &Ticket) -> Result<(), Refusal> {
    match asked(query.unwrap_or_default()) {
        None | Some("local") => Ok(()),
        Some("linearizable") => confirm_for(app, ticket).await,
        Some(_) => Err(Refusal::invalid(
            "`consistency` must be `local` or `linearizable`",
        )),
    }
}

/// Catches up for who is known. Whose key is not known here may be newer than what is: he is let through as a login
/// is, a few times a second, and looked at again afterwards.
async fn confirm_for(app: &App, ticket: &Ticket) -> Result<(), Refusal> {
    if app.is_known_here(ticket)? {
        return app.catch_up().await;
    }
    may_pass(app).await?;
    app.catch_up().await?;
    app.caller(ticket).map(drop).inspect_err(|_| failed(app))
}

/// What the last parameter of that name says.
fn asked(query: &str) -> Option<&str> {
    let mut pairs = query.rsplit('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(name, _)| *name == PARAMETER)?;
    Some(value)
}

impl App {
    /// Waits until everything that was acknowledged to anybody before is known here.
    pub(super) async fn catch_up(&self) -> Result<(), Refusal> {
        let confirmed = self.authority.confirmed().await;
        confirmed
            .map(|_| ())
            .map_err(|failed| Refusal::not_ready(failed.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_is_found_among_others_and_the_last_one_counts() {
        assert_eq!(asked(""), None);
        assert_eq!(asked("limit=3&inconsistency=x"), None);
        assert_eq!(asked("limit=3&consistency=local"), Some("local"));
        let twice = "consistency=local&consistency=linearizable&a";
        assert_eq!(asked(twice), Some("linearizable"));
    }
}
