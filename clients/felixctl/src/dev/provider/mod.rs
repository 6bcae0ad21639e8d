//! An identity provider for one developer and this machine: people without passwords.
//!
//! It speaks what the real ones speak: OpenID Connect discovery, the authorization code flow with PKCE, refresh tokens
//! that are good once, `iss` in the answer (RFC 9207), and end of session. So the gateway, the pages and
//! `felixctl login` work against it as they will against a company's provider, and nothing in them is for development
//! only.
//!
//! What never lives here: a listener that others can reach. It binds a loopback address, answers only requests that
//! name one as their host, and sends browsers back only to loopback addresses. Whoever can run programs on this machine
//! can be anybody it knows; its page and its log say so.
//!
//! Begin with [`Provider::start`]; [`desk`] has what is decided, [`request`] what is asked.

mod desk;
mod http;
mod keys;
mod pages;
mod people;
mod request;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(super) use people::{ADMINS, PEOPLE};

/// The one program that it knows: pages, gateway and felixctl alike. It has no password, as none of them could keep one.
pub const CLIENT_ID: &str = "felix-dev";

/// Seconds an ID token is good for: short, so that renewal is seen to work while developing.
const ID_TOKEN_SECONDS: u64 = 900;

/// Why the provider cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ProviderFailed {
    /// It would be reachable from elsewhere.
    #[error(
        "the development provider signs anybody in, so it listens on loopback addresses only, not on {address}"
    )]
    NotLoopback {
        /// What was asked for.
        address: SocketAddr,
    },
    /// The system refused the address.
    #[error("the development provider cannot listen on {address}: {source}")]
    Listen {
        /// What was asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Its key could not be read or written.
    #[error("{file}: {source}", file = file.display())]
    KeyFile {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Its key could not be made or is damaged.
    #[error("the development provider has no key: {0}")]
    Key(#[from] rcgen::Error),
}

/// What the handlers share.
#[derive(Debug)]
struct State {
    issuer: String,
    address: SocketAddr,
    keys: keys::Keys,
    id_token_seconds: u64,
    desk: Mutex<desk::Desk>,
}

/// A running provider.
#[derive(Debug)]
pub struct Provider {
    state: Arc<State>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Provider {
    /// Listens, with the key of the directory, which is made at the first start and which only its owner may read.
    ///
    /// # Errors
    /// [`ProviderFailed`].
    pub async fn start(address: SocketAddr, directory: &Path) -> Result<Self, ProviderFailed> {
        Self::with_life(address, directory, ID_TOKEN_SECONDS).await
    }

    async fn with_life(
        address: SocketAddr,
        directory: &Path,
        id_token_seconds: u64,
    ) -> Result<Self, ProviderFailed> {
        if !address.ip().is_loopback() {
            return Err(ProviderFailed::NotLoopback { address });
        }
        let keys = keys::Keys::kept(directory)?;
        let failed = |source| ProviderFailed::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let state = Arc::new(State {
            issuer: format!("http://{address}"),
            address,
            keys,
            id_token_seconds,
            desk: Mutex::new(desk::Desk::default()),
        });
        let (stop, stopped) = oneshot::channel::<()>();
        let router = http::router(Arc::clone(&state));
        let serving = tokio::spawn(async move {
            let ended = async move {
                // A sender that is gone says the same as one that spoke.
                let _ = stopped.await;
            };
            let served = axum::serve(listener, router).with_graceful_shutdown(ended);
            if let Err(error) = served.await {
                tracing::warn!(%error, "the development provider ended");
            }
        });
        tracing::warn!(
            issuer = state.issuer,
            "the development provider signs anybody on this machine in, without a password"
        );
        Ok(Self {
            state,
            stop,
            serving,
        })
    }

    /// What it calls itself: `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.state.issuer
    }

    /// Stops listening and answers what was asked.
    pub async fn shutdown(self) {
        // Nobody to tell is as good as told.
        let _ = self.stop.send(());
        let mut serving = self.serving;
        // A browser that keeps its connection open would hold up the end.
        let ended = tokio::time::timeout(std::time::Duration::from_secs(1), &mut serving).await;
        if ended.is_err() {
            serving.abort();
        }
    }
}
