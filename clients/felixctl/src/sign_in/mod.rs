//! Signing in with an OIDC identity provider: the authorization code flow with PKCE through the
//! browser, or the device flow where there is none.
//!
//! What lives here ends with the provider's token in hand. It is shown to the control plane once
//! and forgotten; what is kept is what the control plane gave for it (see [`crate::credentials`]).
//! Whether the token is genuine is the control plane's to judge: here only that it is an answer to
//! this very request.

mod browser;
mod code;
mod device;
mod listener;
mod pkce;
mod provider;
mod tokens;

pub use browser::open as open_browser;
pub use code::{CodeFlow, RESPONSE_WAIT};
pub use device::{Device, DeviceFlow};
pub use listener::Redirect;
pub use provider::Provider;
pub use tokens::{Chosen, Claimed, Tokens};

use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Scopes asked for when nobody says otherwise.
pub const SCOPE: &str = "openid profile email";

/// How to sign in; a context remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SignIn {
    /// The identity provider, exactly as it calls itself.
    pub issuer: String,
    /// This program's name at the provider.
    pub client_id: String,
    /// File with its password there, for providers that give one to programs on desktops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret_file: Option<PathBuf>,
    /// Scopes to ask for, separated by spaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Whom the provider's access token shall be for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// Where the browser comes back to: a loopback address, with a port or without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect: Option<String>,
    /// Which of the provider's tokens is exchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<Upstream>,
}

/// Which of the provider's tokens is exchanged for a Felix token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Upstream {
    /// The ID token: its audience is this client
    IdToken,
    /// The access token, where it is a JWT for the audience that was asked for
    AccessToken,
}

impl SignIn {
    /// The scopes to ask for.
    #[must_use]
    pub fn scope(&self) -> &str {
        self.scope.as_deref().unwrap_or(SCOPE)
    }

    /// Which token is exchanged: an access token was asked for when an audience was named.
    #[must_use]
    pub fn upstream(&self) -> Upstream {
        self.exchange.unwrap_or(match self.audience {
            Some(_) => Upstream::AccessToken,
            None => Upstream::IdToken,
        })
    }
}
