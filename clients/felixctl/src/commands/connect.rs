//! From the settings in force to a connected client, and from its errors to an exit status.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use felix_auth::Audience;
use felix_client::{CacheFailed, Client, CommitFailed, Error, PublishFailed, ReadFailed, Retry};
use tokio::time::Instant;

use super::App;
use super::credential::Tokens;
use crate::api::CERTIFICATE_HINT;
use crate::exit::{Exit, Failure};
use crate::settings::{Settings, read_token, trimmed};

/// First pause between two attempts of `--wait`; each is twice the one before.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest pause between two attempts. A broker remembers for a second that a name is unknown.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Connects to the brokers of these settings.
///
/// # Errors
/// When the settings are incomplete, or no broker accepts the token.
pub(crate) async fn connect(app: &App, settings: &Settings) -> Result<Client, Failure> {
    builder(app, settings)
        .await?
        .connect()
        .await
        .map_err(|error| failure(&error.into()))
}

/// A client's builder with everything the settings say.
///
/// # Errors
/// When the settings are incomplete, or there is no token.
pub(crate) async fn builder(
    app: &App,
    settings: &Settings,
) -> Result<felix_client::Builder, Failure> {
    let mut builder = Client::builder()
        .brokers(settings.brokers()?.iter().cloned())
        .tenant(settings.tenant()?)
        .namespace(settings.namespace())
        .server_name(settings.server_name())
        .connect_timeout(app.timeout())
        .request_timeout(app.timeout());
    if let Some(file) = settings.ca_file() {
        builder = builder.ca_file(file);
    }
    if let Some(identity) = settings.client_identity()? {
        builder = builder.client_identity_files(identity.cert_file, identity.key_file);
    }
    Ok(match app.tokens(settings, Audience::Broker)? {
        // A file is read again whenever a token is due: whoever renews it need not restart us.
        Tokens::File(file) => {
            read_token(&file)?;
            builder.token_provider(move || {
                let read = read_token(&file).map(|token| token.reveal().to_owned());
                async move { read.map_err(|failure| failure.message) }
            })
        }
        Tokens::Renewed(source) => {
            // The first one is had now, so that the reason why there is none is told in full.
            let first = Mutex::new(Some(source.token().await?));
            builder.token_provider(move || {
                let first = first.lock().ok().and_then(|mut first| first.take());
                let source = Arc::clone(&source);
                async move {
                    let token = match first {
                        Some(token) => Ok(token),
                        None => source.next_token().await,
                    };
                    let token = token.map_err(|failure| failure.message)?;
                    Ok::<_, String>(token.reveal().to_owned())
                }
            })
        }
        Tokens::Given(token) => builder.token(trimmed(token.reveal())?.reveal()),
    })
}

/// The exit status and the sentence for an error of the client.
pub(crate) fn failure(error: &Error) -> Failure {
    let exit = exit_of(error);
    let text = error.to_string();
    // The client puts the code before its sentence; here it stands behind it.
    let said = text
        .strip_prefix(error.code())
        .and_then(|rest| rest.strip_prefix(": "));
    let failure = Failure::new(exit, said.unwrap_or(&text)).with_code(error.code());
    let failure = match standing_in_the_way(error) {
        Some((name, number)) => failure.with_number(name, number),
        None => failure,
    };
    match (error.code(), exit) {
        ("invalid_request", _) if failure.message.contains("not_durable") => {
            failure.with_hint("`felixctl sub --from earliest` shows what is still in memory")
        }
        ("unreachable", _) => failure.with_hint(
            "is it running? `felixctl dev` starts one; `felixctl context show` says where this command looks",
        ),
        ("certificate_required" | "certificate_refused", _) => failure.with_hint(CERTIFICATE_HINT),
        ("unauthenticated" | "revoked", _) => {
            failure.with_hint(
                "`felixctl whoami` shows what the token says, `felixctl login` signs you in again",
            )
        }
        ("forbidden", _) => failure
            .with_hint("`felixctl auth explain ACTION OBJECT` says which permission is missing"),
        (_, Exit::OutcomeUnknown) => {
            failure.with_hint("the write may have been made; look before trying again")
        }
        _ => failure,
    }
}

/// What a condition found instead, by the name it has in JSON.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "no other error, nor one of a newer client, is about a condition"
)]
fn standing_in_the_way(error: &Error) -> Option<(&'static str, Option<u64>)> {
    match error {
        Error::Cache(CacheFailed::VersionMismatch { current_version }) => {
            Some(("current_version", *current_version))
        }
        Error::Commit(CommitFailed::VersionMismatch {
            current_version, ..
        }) => Some(("current_version", *current_version)),
        Error::Commit(CommitFailed::OffsetMismatch { next }) => Some(("next_offset", Some(*next))),
        Error::Publish(PublishFailed::OffsetMismatch { next, .. }) => {
            Some(("next_offset", Some(*next)))
        }
        _ => None,
    }
}

fn exit_of(error: &Error) -> Exit {
    if error.retry() == Retry::OutcomeUnknown {
        return Exit::OutcomeUnknown;
    }
    match error.code() {
        "invalid_config" | "no_token" | "malformed" => Exit::Usage,
        "not_found" | "too_old" | "in_future" => Exit::NotFound,
        "unauthenticated"
        | "forbidden"
        | "revoked"
        | "certificate_required"
        | "certificate_refused"
        | "limit_exceeded"
        | "too_large"
        | "invalid_request" => Exit::Refused,
        "offset_mismatch" | "version_mismatch" | "stale_claim" => Exit::Conflict,
        "unreachable" => Exit::Unavailable,
        _ if error.retry().is_safe() => Exit::Unavailable,
        _ => Exit::Failed,
    }
}

impl From<PublishFailed> for Failure {
    fn from(error: PublishFailed) -> Self {
        failure(&error.into())
    }
}

impl From<ReadFailed> for Failure {
    fn from(error: ReadFailed) -> Self {
        failure(&error.into())
    }
}

/// An offset that does not exist is another matter than a stream that does not.
pub(super) fn is_unknown_name(failure: &Failure) -> bool {
    failure.exit == Exit::NotFound && failure.code.as_deref() == Some("not_found")
}

/// Tries again while the answer is that the name does not exist, for as long as `--wait` said.
///
/// # Errors
/// The last answer.
pub(crate) async fn waiting<T, F: Future<Output = Result<T, Failure>>>(
    wait: Option<Duration>,
    what: &str,
    mut attempt: impl FnMut() -> F,
) -> Result<T, Failure> {
    let deadline = Instant::now() + wait.unwrap_or_default();
    let mut pause = PAUSE;
    loop {
        let failure = match attempt().await {
            Err(failure) if is_unknown_name(&failure) => failure,
            answer => return answer,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(match wait {
                Some(_) => Failure {
                    exit: Exit::Unavailable,
                    ..failure
                }
                .with_hint(format!("{what} did not appear in time")),
                None => failure.with_hint("--wait waits until it exists"),
            });
        }
        if pause == PAUSE {
            eprintln!("waiting for {what} to exist");
        }
        tokio::time::sleep(pause.min(left)).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
