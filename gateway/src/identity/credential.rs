//! What a session was let in with, for as long as it may be asked again.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use felix_model::TimeMs;
use serde::Deserialize;

use super::now;
use super::refused::Refused;
use super::secret::Secret;
use crate::sign_in::Session;

/// A token that a page holds, or a sign-in that the gateway keeps.
#[derive(Clone, Debug)]
pub(super) enum Credential {
    Held(Secret),
    Session(Arc<Session>),
    /// A newer token of a page that came in by a sign-in here. What it may is in the token; it ends with the sign-in all
    /// the same, because whoever signs out means every socket of his browser.
    Renewed {
        token: Secret,
        session: Arc<Session>,
    },
}

impl Credential {
    /// A token of the provider, fresh where it can be renewed.
    pub(super) async fn token(&self) -> Result<Secret, Refused> {
        match self {
            // What the page brought has run out; the sign-in here may still stand.
            Self::Renewed { token, session } if expiry(token) <= now() => session.id_token().await,
            Self::Held(token) | Self::Renewed { token, .. } => Ok(token.clone()),
            Self::Session(session) => session.id_token().await,
        }
    }

    /// What stands in its place once the page has brought a newer token.
    pub(super) fn renewed_with(&self, token: Secret) -> Self {
        match self {
            Self::Held(_) => Self::Held(token),
            Self::Session(session) | Self::Renewed { session, .. } => Self::Renewed {
                token,
                session: Arc::clone(session),
            },
        }
    }

    pub(super) fn digest(&self) -> [u8; 32] {
        match self {
            Self::Held(token) | Self::Renewed { token, .. } => token.digest(),
            Self::Session(session) => session.digest(),
        }
    }

    /// When it runs out, as it says itself.
    pub(super) fn until(&self) -> TimeMs {
        match self {
            Self::Held(token) | Self::Renewed { token, .. } => expiry(token),
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

/// What a token says of its own end; 0 when it says nothing.
pub(crate) fn expiry(token: &Secret) -> TimeMs {
    #[derive(Deserialize)]
    struct Claims {
        exp: u64,
    }
    let body = token.reveal().split('.').nth(1).unwrap_or_default();
    let body = URL_SAFE_NO_PAD.decode(body).unwrap_or_default();
    let claims = serde_json::from_slice::<Claims>(&body);
    TimeMs(claims.map_or(0, |claims| claims.exp.saturating_mul(1000)))
}
