//! Who somebody is and what he may do here: a sign-in at a provider becomes a token of the platform that is good for
//! one scope, and stays so while the session lasts.
//!
//! The gateway holds no right of its own over data. What it holds of people's tokens is in memory and dies with it.

mod actor;
mod ask;
mod closer;
mod credential;
mod desk;
mod failures;
mod judge;
mod membership;
mod refused;
mod reuse;
mod secret;
mod slots;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use felix_auth::{Permission, Permissions};
use felix_client::TokenSource;
use felix_controlplane_client::{BadEndpoint, Exchanger};
use felix_model::{TenantId, TimeMs};
use rustls::pki_types::CertificateDer;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) use ask::Ask;
pub(crate) use credential::expiry;
pub(crate) use refused::{Ended, Refused};
pub(crate) use secret::Secret;
pub(crate) use slots::{Attached, Place, Slots};

use actor::Actor;
use closer::Closer;
use credential::Credential;
use desk::{Desk, Issued};
use judge::Judge;
use membership::{Membership, Shared};
use refused::Failed;

use crate::sign_in::{SessionId, Sessions};

/// What a join, a beacon or a request of the console carries.
#[derive(Clone, Debug)]
pub(crate) enum Presented {
    /// A token of the provider.
    IdToken(Secret),
    /// The cookie of a sign-in at the gateway. Whoever takes it from a request has checked the request's origin.
    Session(SessionId),
}

/// What identity needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) tenant: TenantId,
    pub(crate) controlplane_url: String,
    /// PEM.
    pub(crate) controlplane_roots: Option<Vec<u8>>,
    pub(crate) issuer: String,
    pub(crate) client_id: String,
    /// Trusted for the provider beside the machine's own.
    pub(crate) provider_roots: Vec<CertificateDer<'static>>,
    /// The gateway's own token of the provider, where connections to brokers are shared.
    pub(crate) credential: Option<PathBuf>,
}

/// Lets people in.
#[derive(Debug)]
pub(crate) struct Identity {
    judge: Judge,
    sessions: Arc<Sessions>,
    shared: Shared,
}

/// Somebody who was let in. What it holds ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Granted {
    /// Who it is; the same for the whole session.
    pub(crate) principal: Arc<str>,
    /// Always a live token. Renewed at two thirds of its life, one fetch at a time.
    pub(crate) tokens: TokenSource,
    membership: Arc<Membership>,
    keeper: JoinHandle<()>,
}

impl Identity {
    /// Prepares; nothing is asked yet.
    ///
    /// # Errors
    /// [`BadEndpoint`] when the control plane's address cannot be used.
    pub(crate) fn new(settings: Settings, sessions: Arc<Sessions>) -> Result<Self, BadEndpoint> {
        let roots = settings.controlplane_roots.as_deref();
        let exchanger = Exchanger::new(&settings.controlplane_url, settings.tenant, roots)?;
        let actor = settings
            .credential
            .map(|credential| Actor::new(exchanger.clone(), credential));
        let desk = Arc::new(Desk::new(exchanger, actor));
        Ok(Self {
            judge: Judge::new(
                &settings.issuer,
                &settings.client_id,
                settings.provider_roots,
            ),
            sessions,
            shared: Shared {
                closer: Closer::start(Arc::clone(&desk)),
                desk,
                reuse: Arc::default(),
            },
        })
    }

    /// Lets somebody in with a token that is good for exactly what is asked.
    ///
    /// # Errors
    /// [`Refused`].
    pub(crate) async fn admit(&self, presented: Presented, ask: Ask) -> Result<Granted, Refused> {
        let credential = self.credential(presented).await?;
        let shown = credential.shown().await?;
        let key = ask.key(&credential.digest());
        let issued = match self.shared.desk.exchange(&shown, &ask).await {
            Ok(issued) => issued,
            Err(failed) => self.issued_before(failed, &key)?,
        };
        if let Some(lacking) = ask.lacking(&issued.minted.rights) {
            let refused = Refused::Forbidden(format!("{lacking} is not allowed"));
            if let Some(chain) = issued.chain {
                self.shared.closer.end_at(TimeMs(0), chain);
            }
            return Err(refused);
        }
        Ok(Granted::begin(Membership::new(
            self.shared.clone(),
            ask,
            credential,
            issued,
        )))
    }

    /// Tokens for opening shared connections: good for that and for nothing else. `None` where none are shared.
    pub(crate) fn connection_tokens(&self) -> Option<TokenSource> {
        self.shared.desk.actor()?;
        let desk = Arc::clone(&self.shared.desk);
        Some(TokenSource::provider(move || {
            let desk = Arc::clone(&desk);
            async move {
                match desk.actor() {
                    Some(actor) => actor.connection_token().await.map_err(Failed::refused),
                    None => Err(Refused::Unavailable("no connections are shared".into())),
                }
            }
        }))
    }

    async fn credential(&self, presented: Presented) -> Result<Credential, Refused> {
        match presented {
            Presented::IdToken(token) => {
                let shown = self.judge.look(token, now()).await?;
                Ok(Credential::Held(shown))
            }
            Presented::Session(id) => {
                let over = || Refused::SignedOut("there is no such sign-in".into());
                self.sessions
                    .find(&id)
                    .map(Credential::Session)
                    .ok_or_else(over)
            }
        }
    }

    /// Goes on with an earlier token of the same sign-in for the same ask, while the control plane is away.
    fn issued_before(&self, failed: Failed, key: &[u8; 32]) -> Result<Issued, Refused> {
        let minted = match &failed {
            Failed::Away { why, .. } => {
                tracing::warn!(%why, "the control plane is away");
                self.shared.reuse.find(key, now())
            }
            Failed::Decided(_) | Failed::NotAccepted(_) => {
                self.shared.reuse.forget(key);
                None
            }
            Failed::ActorRefused | Failed::Undecided(_) => None,
        };
        match minted {
            Some(minted) => Ok(Issued {
                minted,
                chain: None,
            }),
            None => Err(failed.refused()),
        }
    }
}

impl Granted {
    fn begin(membership: Arc<Membership>) -> Self {
        let tokens = membership.tokens();
        let weak = Arc::downgrade(&membership);
        Self {
            principal: membership.principal(),
            keeper: tokio::spawn(membership::keep(weak, tokens.clone())),
            tokens,
            membership,
        }
    }

    /// Whether what was granted covers this.
    pub(crate) fn allows(&self, wanted: &Permission) -> bool {
        ask::allows(&self.membership.rights(), wanted)
    }

    /// Everything that was granted.
    pub(crate) fn rights(&self) -> Arc<Permissions> {
        self.membership.rights()
    }

    /// When the token held now runs out, unless it is renewed before.
    pub(crate) fn expires_at(&self) -> TimeMs {
        self.membership.expires_at()
    }

    /// Tells why the session must end, once it must.
    pub(crate) fn ended(&self) -> watch::Receiver<Option<Ended>> {
        self.membership.ended()
    }

    /// Goes on with a newer sign-in of the same person, and says until when.
    ///
    /// # Errors
    /// [`Refused`]; the session goes on as it was.
    pub(crate) async fn renew_with(
        &self,
        identity: &Identity,
        token: Secret,
    ) -> Result<TimeMs, Refused> {
        let shown = identity.judge.look(token, now()).await?;
        let old = self.membership.token();
        let expires_at = self.membership.renew_with(shown).await?;
        self.tokens.invalidate(old.reveal());
        Ok(expires_at)
    }

    /// Ends the session because the person says so: its tokens are taken back.
    pub(crate) fn sign_out(&self) {
        self.membership.end(Ended::SignedOut);
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// The wall clock, which tokens go by.
pub(crate) fn now() -> TimeMs {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    TimeMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
