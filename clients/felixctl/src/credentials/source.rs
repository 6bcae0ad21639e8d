//! A token that is good now: the one that is kept, or a new one when that is due.

use std::path::PathBuf;

use felix_auth::Audience;
use tokio::sync::Mutex;

use super::{Credentials, Exchange, Issued, ServiceKey, Store, now_seconds};
use crate::exit::{Exit, Failure};
use crate::secret::Secret;

/// Whose tokens these are.
#[derive(Clone, Debug)]
pub enum Holder {
    /// A person who signed in; his session cannot be made anew without him.
    Person,
    /// A service account; its key makes a new session at any time.
    ServiceAccount(PathBuf),
}

/// Gives out the token of one audience.
#[derive(Debug)]
pub struct Source {
    holder: Holder,
    audience: Audience,
    exchange: Exchange,
    /// Where tokens are kept between commands; a container without a home has no such place.
    store: Option<Store>,
    /// The token given out last, for a process without a store and for one that runs long.
    last: Mutex<Option<Issued>>,
}

impl Source {
    /// A source of tokens for an audience. Nothing is read or asked yet.
    #[must_use]
    pub fn new(
        holder: Holder,
        audience: Audience,
        exchange: Exchange,
        store: Option<Store>,
    ) -> Self {
        Self {
            holder,
            audience,
            exchange,
            store,
            last: Mutex::new(None),
        }
    }

    /// A token that is good and not due.
    ///
    /// # Errors
    /// When nobody is signed in, the session has ended, or the control plane cannot be asked and
    /// nothing good is kept.
    pub async fn token(&self) -> Result<Secret, Failure> {
        let mut last = self.last.lock().await;
        let issued = self.fresh(last.as_ref(), None).await?;
        Ok(last.insert(issued).token.clone())
    }

    /// The same for a process that runs long and comes again: whoever asks a second time has been
    /// told that the token he got is due or refused, so he is not given that one again while
    /// another can be had.
    ///
    /// # Errors
    /// As [`Self::token`].
    pub async fn next_token(&self) -> Result<Secret, Failure> {
        let mut last = self.last.lock().await;
        let refused = last.as_ref().map(|issued| issued.token.clone());
        let issued = self.fresh(last.as_ref(), refused.as_ref()).await?;
        Ok(last.insert(issued).token.clone())
    }

    async fn fresh(
        &self,
        last: Option<&Issued>,
        refused: Option<&Secret>,
    ) -> Result<Issued, Failure> {
        let good = |issued: &Issued| {
            issued.is_fresh(now_seconds()) && refused.is_none_or(|refused| *refused != issued.token)
        };
        let Some(store) = &self.store else {
            return match last.filter(|issued| good(issued)) {
                Some(issued) => Ok(issued.clone()),
                None => self.renew(last).await,
            };
        };
        if let Some(issued) = self.kept(store)?.issued(self.audience)
            && good(issued)
        {
            return Ok(issued.clone());
        }
        // Somebody else may have renewed it while this command waited for its turn.
        let _locked = store.lock().await?;
        let mut kept = self.kept(store)?;
        let held = kept.issued(self.audience).cloned();
        if let Some(issued) = held.as_ref().filter(|issued| good(issued)) {
            return Ok(issued.clone());
        }
        match self.renew(held.as_ref()).await {
            Ok(issued) => {
                kept.keep(self.audience, issued.clone());
                store.save(&kept)?;
                Ok(issued)
            }
            Err(failure) => self.make_do(store, kept, held, failure),
        }
    }

    /// What is kept for this tenant; for a service account an empty file is as good as a full one.
    fn kept(&self, store: &Store) -> Result<Credentials, Failure> {
        let (url, tenant) = (&self.exchange.controlplane_url, &self.exchange.tenant);
        match (store.load()?, &self.holder) {
            (Some(kept), _) if kept.are_for(url, tenant) => Ok(kept),
            (_, Holder::ServiceAccount(_)) => Ok(Credentials::new(url, tenant)),
            (Some(kept), Holder::Person) => Err(Failure::new(
                Exit::Refused,
                format!(
                    "you are signed in to tenant {} at {}, and not to tenant {tenant} at {url}",
                    kept.tenant, kept.controlplane_url
                ),
            )
            .with_hint(SIGN_IN)),
            (None, Holder::Person) => {
                Err(Failure::new(Exit::Refused, "you are not signed in").with_hint(SIGN_IN))
            }
        }
    }

    async fn renew(&self, held: Option<&Issued>) -> Result<Issued, Failure> {
        let refresh_token = held.and_then(|issued| issued.refresh_token.as_ref());
        let refreshed = match refresh_token {
            Some(token) => Some(self.exchange.refresh(token, self.audience).await),
            None => None,
        };
        match (refreshed, &self.holder) {
            (Some(Err(failure)), Holder::ServiceAccount(_)) if failure.exit != Exit::Refused => {
                Err(failure)
            }
            (Some(Err(_)) | None, Holder::ServiceAccount(file)) => {
                let key = ServiceKey::read(file)?;
                self.exchange.exchange(&key.text, self.audience).await
            }
            (Some(refreshed), _) => refreshed,
            (None, Holder::Person) => Err(self.no_session(held)),
        }
    }

    fn no_session(&self, held: Option<&Issued>) -> Failure {
        if held.is_some() {
            return Failure::new(Exit::Refused, "your session has ended").with_hint(SIGN_IN);
        }
        Failure::new(
            Exit::Refused,
            format!(
                "you had no rights with {} when you signed in",
                match self.audience {
                    Audience::Broker => "brokers",
                    Audience::ControlPlane => "the control plane",
                }
            ),
        )
        .with_hint("`felixctl whoami` shows your rights; sign in again once they were given")
    }

    /// A renewal that failed: the held token is used while it is good. A refusal ends the session,
    /// and asking again would be taken for the replay of a stolen token.
    fn make_do(
        &self,
        store: &Store,
        mut kept: Credentials,
        held: Option<Issued>,
        failure: Failure,
    ) -> Result<Issued, Failure> {
        let Some(mut held) = held else {
            return Err(failure);
        };
        let ended = failure.exit == Exit::Refused && held.refresh_token.is_some();
        if ended {
            held.refresh_token = None;
            kept.keep(self.audience, held.clone());
            store.save(&kept)?;
        }
        if held.is_good(now_seconds()) {
            tracing::warn!(why = %failure.message, "the token could not be renewed");
            return Ok(held);
        }
        Err(match (&self.holder, ended) {
            (Holder::Person, true) => Failure {
                message: format!("your session has ended: {}", failure.message),
                ..failure
            }
            .with_hint(SIGN_IN),
            _ => failure,
        })
    }
}

const SIGN_IN: &str = "`felixctl login` signs you in";

#[cfg(test)]
mod tests;
