//! Sign-ins: who is behind a cookie. Kept in memory, found by the hash of what the cookie says, so that nobody who sees
//! this memory can make a cookie of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use felix_model::TimeMs;
use tokio::sync::watch;

use super::cookie;
use super::provider::{Provider, ProviderFailed, SignedIn};
use crate::identity::{Refused, Secret, now};

/// A sign-in that nothing was done with for this long is over.
pub(super) const IDLE: Duration = Duration::from_secs(12 * 3600);
/// And each is over after this long.
pub(super) const LIFE: Duration = Duration::from_secs(72 * 3600);
/// Sign-ins of all people. One more ends the one that was used least recently.
const SESSIONS_MAX: usize = 50_000;
/// Sign-ins of one person. One more ends his that was used least recently.
const SESSIONS_PER_PERSON_MAX: usize = 16;
/// An ID token that runs out sooner than this is renewed where it can be.
const SPARE_MS: u64 = 60_000;

/// What a browser's cookie says.
#[derive(Clone, Debug)]
pub(crate) struct SessionId(Secret);

impl SessionId {
    pub(super) const fn new(text: Secret) -> Self {
        Self(text)
    }
}

/// One sign-in. The provider's tokens stay in it.
#[derive(Debug)]
pub(crate) struct Session {
    digest: [u8; 32],
    subject: String,
    name: Option<String>,
    ends_at: TimeMs,
    provider: Arc<Provider>,
    state: Mutex<State>,
    /// Held while one caller renews for all.
    turn: tokio::sync::Mutex<()>,
    over: watch::Sender<bool>,
}

#[derive(Debug)]
struct State {
    id_token: Secret,
    until: TimeMs,
    refresh_token: Option<Secret>,
    used_at: TimeMs,
}

impl Session {
    /// A token of the provider that still stands, renewed when it soon will not.
    ///
    /// # Errors
    /// [`Refused`] when the person has to sign in again.
    pub(crate) async fn id_token(&self) -> Result<Secret, Refused> {
        if let Some(token) = self.good_token()? {
            return Ok(token);
        }
        let _turn = self.turn.lock().await;
        if let Some(token) = self.good_token()? {
            return Ok(token);
        }
        let (refresh, held, until) = {
            let state = self.state();
            (
                state.refresh_token.clone(),
                state.id_token.clone(),
                state.until,
            )
        };
        let over = || Refused::SignedOut("the sign-in ran out".into());
        let stands = now() < until;
        let Some(refresh) = refresh else {
            return stands.then_some(held).ok_or_else(over);
        };
        match self.provider.renew(&refresh, &self.subject).await {
            Ok(renewed) => {
                let mut state = self.state();
                if let Some(token) = renewed.refresh_token {
                    state.refresh_token = Some(token);
                }
                if let Some(token) = renewed.id_token {
                    state.until = crate::identity::expiry(&token);
                    state.id_token = token;
                }
                let good = now() < state.until;
                good.then(|| state.id_token.clone()).ok_or_else(over)
            }
            // The provider's word for a grant that is no good any more; nothing else it says is a verdict on the person.
            Err(ProviderFailed::Refused(word)) if word.starts_with("invalid_grant") => {
                tracing::info!("a sign-in is over: the provider does not renew it");
                self.end();
                Err(over())
            }
            Err(failed) => {
                tracing::warn!(%failed, "a sign-in is not renewed now");
                let message = "the sign-in cannot be renewed at the moment";
                let away = || Refused::Unavailable(message.into());
                stands.then_some(held).ok_or_else(away)
            }
        }
    }

    /// Renews the ID token if that is due, so that whoever was disabled at the provider is noticed.
    ///
    /// # Errors
    /// [`Refused::SignedOut`] when the sign-in is over. One that is only not renewed now stands.
    pub(crate) async fn confirm(&self) -> Result<(), Refused> {
        match self.id_token().await {
            Err(refused) if *self.over.borrow() => Err(refused),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// What tells this sign-in from every other; nothing can be made of it.
    pub(crate) const fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// When the ID token held now runs out.
    pub(crate) fn until(&self) -> TimeMs {
        self.state().until
    }

    /// Waits until it is over: signed out, ended for another, or at the end of its life.
    pub(crate) async fn over(&self) {
        let mut over = self.over.subscribe();
        let left = Duration::from_millis(self.ends_at.0.saturating_sub(now().0));
        tokio::select! {
            _ = over.wait_for(|over| *over) => {}
            () = tokio::time::sleep(left) => self.end(),
        }
    }

    pub(crate) fn subject(&self) -> &str {
        &self.subject
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(super) const fn ends_at(&self) -> TimeMs {
        self.ends_at
    }

    pub(super) fn end(&self) {
        self.over.send_replace(true);
    }

    /// The token held, if it is good for a while; `None` when it should be renewed.
    fn good_token(&self) -> Result<Option<Secret>, Refused> {
        if *self.over.borrow() {
            return Err(Refused::SignedOut("signed out".into()));
        }
        let at = now();
        let mut state = self.state();
        state.used_at = at;
        let good = at.0.saturating_add(SPARE_MS) < state.until.0;
        Ok(good.then(|| state.id_token.clone()))
    }

    /// Whether it is neither over nor forgotten, and lets somebody in: an ID token that has run out and that nothing
    /// renews does not. A sign-in by which a socket is open is in use.
    fn stands(self: &Arc<Self>, at: TimeMs) -> bool {
        let idle_ms = u64::try_from(IDLE.as_millis()).unwrap_or(u64::MAX);
        let mut state = self.state();
        if Arc::strong_count(self) > 1 {
            state.used_at = at;
        }
        let used_at = state.used_at;
        let renewable = at < state.until || state.refresh_token.is_some();
        renewable
            && !*self.over.borrow()
            && at < self.ends_at
            && at.0 < used_at.0.saturating_add(idle_ms)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Every sign-in of this gateway.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<BTreeMap<[u8; 32], Arc<Session>>>);

impl Sessions {
    /// Opens a sign-in under a new name.
    ///
    /// # Errors
    /// When the machine has no randomness to give.
    pub(super) fn open(
        &self,
        signed_in: SignedIn,
        provider: Arc<Provider>,
    ) -> Result<Secret, getrandom::Error> {
        let text = cookie::random()?;
        let at = now();
        let life_ms = u64::try_from(LIFE.as_millis()).unwrap_or(u64::MAX);
        let until = signed_in.until();
        let session = Session {
            digest: text.digest(),
            subject: signed_in.subject,
            name: signed_in.name,
            ends_at: TimeMs(at.0.saturating_add(life_ms)),
            provider,
            state: Mutex::new(State {
                until,
                id_token: signed_in.id_token,
                refresh_token: signed_in.refresh_token,
                used_at: at,
            }),
            turn: tokio::sync::Mutex::new(()),
            over: watch::Sender::new(false),
        };
        self.insert(session, at);
        Ok(text)
    }

    /// The sign-in behind a cookie, if it still stands.
    pub(crate) fn find(&self, id: &SessionId) -> Option<Arc<Session>> {
        let digest = id.0.digest();
        let mut sessions = self.lock();
        let found = sessions.get(&digest)?;
        if found.stands(now()) {
            return Some(Arc::clone(found));
        }
        if let Some(over) = sessions.remove(&digest) {
            over.end();
        }
        None
    }

    /// Ends a sign-in, and with it every socket that came in by it. What comes back is the ID token by which the provider
    /// knows it.
    pub(crate) fn end(&self, id: &SessionId) -> Option<Secret> {
        let session = self.lock().remove(&id.0.digest())?;
        session.end();
        let hint = session.state().id_token.clone();
        Some(hint)
    }

    fn insert(&self, session: Session, at: TimeMs) {
        let mut sessions = self.lock();
        let own = sessions
            .values()
            .filter(|one| one.subject == session.subject)
            .count();
        if own >= SESSIONS_PER_PERSON_MAX || sessions.len() >= SESSIONS_MAX {
            sessions.retain(|_, one| {
                let stands = one.stands(at);
                if !stands {
                    one.end();
                }
                stands
            });
        }
        let of_person = |one: &&Arc<Session>| one.subject == session.subject;
        let own = sessions.values().filter(of_person).count();
        let least = if own >= SESSIONS_PER_PERSON_MAX {
            least_used(sessions.values().filter(of_person))
        } else if sessions.len() >= SESSIONS_MAX {
            least_used(sessions.values())
        } else {
            None
        };
        if let Some(least) = least.and_then(|digest| sessions.remove(&digest)) {
            least.end();
        }
        sessions.insert(session.digest, Arc::new(session));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<[u8; 32], Arc<Session>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn least_used<'a>(sessions: impl Iterator<Item = &'a Arc<Session>>) -> Option<[u8; 32]> {
    let least = sessions.min_by_key(|one| one.state().used_at);
    least.map(|one| one.digest)
}
