//! The gateway's own tokens, for acting for people over shared connections.

use std::path::PathBuf;

use felix_controlplane_client::Exchanger;
use felix_meta::http::ExchangeSpec;
use felix_model::TimeMs;
use tokio::sync::Mutex;

use super::ask::Minted;
use super::now;
use super::refused::Failed;
use super::secret::Secret;

/// A token is used until this long before it runs out, so that it cannot run out on its way.
const SPARE_MS: u64 = 60_000;

/// The gateway as a principal. Its credential is read from its file each time it is used.
#[derive(Debug)]
pub(super) struct Actor {
    exchanger: Exchanger,
    credential: PathBuf,
    /// Held while one caller fetches for all.
    held: Mutex<Option<Minted>>,
}

impl Actor {
    pub(super) fn new(exchanger: Exchanger, credential: PathBuf) -> Self {
        Self {
            exchanger,
            credential,
            held: Mutex::new(None),
        }
    }

    /// A token for the control plane that proves that the gateway may act for others.
    pub(super) async fn token(&self) -> Result<Secret, Failed> {
        let mut held = self.held.lock().await;
        let at = now();
        let good = |minted: &&Minted| at.0.saturating_add(SPARE_MS) < minted.expires_at.0;
        if let Some(minted) = held.as_ref().filter(good) {
            return Ok(minted.token.clone());
        }
        let spec = ExchangeSpec {
            audience: Some("felix-controlplane".into()),
            requested: Some(vec!["token.delegate".into()]),
            ..ExchangeSpec::default()
        };
        let minted = self.exchange(&spec, at).await?;
        let token = minted.token.clone();
        *held = Some(minted);
        Ok(token)
    }

    /// The control plane refused this token; the next caller gets another.
    pub(super) async fn forget(&self, refused: &Secret) {
        let mut held = self.held.lock().await;
        if held
            .as_ref()
            .is_some_and(|minted| minted.token.reveal() == refused.reveal())
        {
            *held = None;
        }
    }

    /// A token for brokers that is good for opening connections, and for nothing else.
    pub(super) async fn connection_token(&self) -> Result<String, Failed> {
        let spec = ExchangeSpec {
            audience: Some("felix-broker".into()),
            requested: Some(Vec::new()),
            permissions: Some(Vec::new()),
            ..ExchangeSpec::default()
        };
        let minted = self.exchange(&spec, now()).await?;
        Ok(minted.token.reveal().to_owned())
    }

    async fn exchange(&self, spec: &ExchangeSpec, at: TimeMs) -> Result<Minted, Failed> {
        let undecided = |why: String| Failed::Undecided(why);
        let path = &self.credential;
        let credential = tokio::fs::read_to_string(path).await.map_err(|error| {
            undecided(format!(
                "the credential file {} cannot be read: {error}",
                path.display()
            ))
        })?;
        let credential = Secret::new(credential.trim());
        let answer = self.exchanger.exchange(credential.reveal(), spec).await;
        let answer = answer.map_err(|failed| {
            tracing::warn!(%failed, "the gateway itself cannot sign in");
            match Failed::from(failed) {
                // What is wrong with the gateway is no verdict on the person.
                Failed::Decided(refused) | Failed::NotAccepted(refused) => {
                    Failed::Undecided(refused.to_string())
                }
                failed @ (Failed::ActorRefused | Failed::Away { .. } | Failed::Undecided(_)) => {
                    failed
                }
            }
        })?;
        Minted::read(&answer.felix_token, at).map_err(|error| undecided(error.to_string()))
    }
}
