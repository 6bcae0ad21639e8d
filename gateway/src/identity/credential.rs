//! What a session was let in with, for as long as it may be asked again.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use felix_model::TimeMs;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use super::now;
use super::refused::Refused;
use super::secret::Secret;
use crate::sign_in::Session;

/// Whose failures count together at the control plane ([`super::failures`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Payer([u8; 32]);

/// A token of the provider, and who pays if the control plane does not accept it.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) token: Secret,
    pub(super) payer: Payer,
}

/// A token that a page holds, or a sign-in that the gateway keeps.
#[derive(Clone, Debug)]
pub(super) enum Credential {
    Held(Shown),
    Session(Arc<Session>),
    /// A newer token of a page that came in by a sign-in here. What it may is in the token; it ends with the sign-in all
    /// the same, because whoever signs out means every socket of his browser.
    Renewed {
        shown: Shown,
        session: Arc<Session>,
    },
}

impl Payer {
    /// Everybody of whom it is not known who he is.
    pub(super) const UNKNOWN: Self = Self([0; 32]);

    /// The person of this name at the provider.
    pub(super) fn of(subject: &str) -> Self {
        Self(Sha256::digest(subject).into())
    }
}

impl Credential {
    /// A token of the provider, fresh where it can be renewed.
    pub(super) async fn shown(&self) -> Result<Shown, Refused> {
        match self {
            // What the page brought has run out; the sign-in here may still stand.
            Self::Renewed { shown, session } if expiry(&shown.token) <= now() => {
                of_session(session).await
            }
            Self::Held(shown) | Self::Renewed { shown, .. } => Ok(shown.clone()),
            Self::Session(session) => of_session(session).await,
        }
    }

    /// Asks the provider whether it still knows the person, when what it said last has run out.
    ///
    /// # Errors
    /// [`Refused::SignedOut`] when it does not; that it cannot be asked is no verdict.
    pub(super) async fn confirm(&self) -> Result<(), Refused> {
        match self {
            Self::Held(_) | Self::Renewed { .. } => Ok(()),
            Self::Session(session) => session.confirm().await,
        }
    }

    /// What stands in its place once the page has brought a newer token.
    pub(super) fn renewed_with(&self, shown: Shown) -> Self {
        match self {
            Self::Held(_) => Self::Held(shown),
            Self::Session(session) | Self::Renewed { session, .. } => Self::Renewed {
                shown,
                session: Arc::clone(session),
            },
        }
    }

    pub(super) fn digest(&self) -> [u8; 32] {
        match self {
            Self::Held(shown) | Self::Renewed { shown, .. } => shown.token.digest(),
            Self::Session(session) => session.digest(),
        }
    }

    /// When it runs out, as it says itself.
    pub(super) fn until(&self) -> TimeMs {
        match self {
            Self::Held(shown) | Self::Renewed { shown, .. } => expiry(&shown.token),
            Self::Session(session) => session.until(),
        }
    }

    /// Waits until the sign-in is over; a token of a page never is before it runs out, which is nobody's concern here.
    pub(super) async fn over(&self) {
        match self {
            Self::Held(_) => std::future::pending().await,
            Self::Session(session) | Self::Renewed { session, .. } => session.over().await,
        }
    }
}

async fn of_session(session: &Session) -> Result<Shown, Refused> {
    Ok(Shown {
        token: session.id_token().await?,
        payer: Payer::of(session.subject()),
    })
}

/// What a token says of its own end; 0 when it says nothing.
pub(crate) fn expiry(token: &Secret) -> TimeMs {
    #[derive(Deserialize)]
    struct Claims {
        exp: u64,
    }
    let claims = claims::<Claims>(token);
    TimeMs(claims.map_or(0, |claims| claims.exp.saturating_mul(1000)))
}

/// Whom a token names; it must have been verified.
pub(super) fn subject(token: &Secret) -> Option<String> {
    #[derive(Deserialize)]
    struct Claims {
        sub: String,
    }
    claims::<Claims>(token).map(|claims| claims.sub)
}

fn claims<T: DeserializeOwned>(token: &Secret) -> Option<T> {
    let body = token.reveal().split('.').nth(1)?;
    let body = URL_SAFE_NO_PAD.decode(body).ok()?;
    serde_json::from_slice(&body).ok()
}
