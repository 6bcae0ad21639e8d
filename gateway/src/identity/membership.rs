//! One session's right to be there: its token, the next one, and its end.
//!
//! Everything about it hangs on one object that dies with the session, so a refresh that was under way cannot outlive
//! it, and no session has two of them. Tokens are renewed by the session's token source, which asks one at a time: when
//! two thirds of a token's life have passed, and at once when a broker refuses one. Whoever was removed is noticed that
//! way: brokers end what a removed person opened, the next token is asked for, and there is none.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use felix_auth::Permissions;
use felix_client::TokenSource;
use felix_model::TimeMs;
use tokio::sync::watch;

use super::ask::{Ask, Minted};
use super::closer::Closer;
use super::credential::{Credential, Shown};
use super::desk::{Desk, Issued};
use super::now;
use super::refused::{Ended, Failed, Refused};
use super::reuse::Reuse;
use super::secret::Secret;

/// Pause before the next attempt when a token that is due could not be had.
const AGAIN: Duration = Duration::from_secs(1);

/// What every session of a gateway uses.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) desk: Arc<Desk>,
    pub(super) reuse: Arc<Reuse>,
    pub(super) closer: Closer,
}

#[derive(Debug)]
pub(super) struct Membership {
    shared: Shared,
    ask: Ask,
    state: Mutex<State>,
    /// Held while a next token is asked for, so that an old one never comes after a new one.
    turn: tokio::sync::Mutex<()>,
    ended: watch::Sender<Option<Ended>>,
}

#[derive(Debug)]
struct State {
    credential: Credential,
    minted: Minted,
    /// The token has not been given out yet.
    unspent: bool,
    chain: Option<Secret>,
    /// What continued the session before its page brought a newer sign-in, and when the last token of that runs out.
    earlier: Option<(TimeMs, Secret)>,
}

impl Membership {
    /// Begins with a first token.
    pub(super) fn new(
        shared: Shared,
        ask: Ask,
        credential: Credential,
        first: Issued,
    ) -> Arc<Self> {
        let membership = Self {
            shared,
            ask,
            state: Mutex::new(State {
                credential,
                minted: first.minted,
                unspent: true,
                chain: first.chain,
                earlier: None,
            }),
            turn: tokio::sync::Mutex::new(()),
            ended: watch::Sender::new(None),
        };
        membership.remember(&membership.state());
        Arc::new(membership)
    }

    /// A source of this membership's tokens. It does not keep the membership alive.
    pub(super) fn tokens(self: &Arc<Self>) -> TokenSource {
        let weak = Arc::downgrade(self);
        TokenSource::provider(move || {
            let weak = Weak::clone(&weak);
            async move {
                let over = || Refused::SignedOut("the session is over".into());
                let membership = weak.upgrade().ok_or_else(over)?;
                membership.next().await
            }
        })
    }

    pub(super) fn principal(&self) -> Arc<str> {
        Arc::clone(&self.state().minted.principal)
    }

    pub(super) fn rights(&self) -> Arc<Permissions> {
        Arc::clone(&self.state().minted.rights)
    }

    pub(super) fn expires_at(&self) -> TimeMs {
        self.state().minted.expires_at
    }

    pub(super) fn ended(&self) -> watch::Receiver<Option<Ended>> {
        self.ended.subscribe()
    }

    /// Ends it for good; the first reason stays.
    pub(super) fn end(&self, why: Ended) {
        let first = self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            ended.get_or_insert(why);
            first
        });
        if first {
            let (key, chain, earlier) = {
                let mut state = self.state();
                let (chain, earlier) = (state.chain.take(), state.earlier.take());
                (self.key(&state), chain, earlier)
            };
            self.shared.reuse.forget(&key);
            self.leave(chain, TimeMs(0));
            self.leave(earlier.map(|(_, chain)| chain), TimeMs(0));
        }
    }

    /// Goes on with a newer sign-in of the same person.
    pub(super) async fn renew_with(&self, shown: Shown) -> Result<TimeMs, Refused> {
        let _turn = self.turn.lock().await;
        self.check_open()?;
        let issued = self.shared.desk.exchange(&shown, &self.ask).await;
        let issued = issued.map_err(Failed::refused)?;
        let expires_at = issued.minted.expires_at;
        let old = self.put(issued, |state, issued| {
            self.shared.reuse.forget(&self.key(state));
            state.credential = state.credential.renewed_with(shown);
            let (minted, chain) = replace(state, issued, true);
            let before = chain.map(|chain| (minted.expires_at, chain));
            before.and_then(|before| state.earlier.replace(before))
        })?;
        if let Some((at, chain)) = old {
            self.leave(Some(chain), at);
        }
        Ok(expires_at)
    }

    /// The token held now, which a newer sign-in replaces.
    pub(super) fn token(&self) -> Secret {
        self.state().minted.token.clone()
    }

    /// The next token, for the token source.
    async fn next(&self) -> Result<String, Refused> {
        let _turn = self.turn.lock().await;
        self.check_open()?;
        if let Some(token) = self.take_unspent() {
            return Ok(token);
        }
        let outcome = self.renewed().await.and_then(|issued| {
            let token = issued.minted.token.reveal().to_owned();
            self.put(issued, |state, issued| {
                let (_, spent) = replace(state, issued, false);
                debug_assert!(
                    spent.is_none(),
                    "what continues a session was taken to renew it"
                );
            })?;
            Ok(token)
        });
        match &outcome {
            Err(Refused::SignedOut(_)) => self.end(Ended::SignedOut),
            Err(Refused::Forbidden(_)) => self.end(Ended::Removed),
            Err(Refused::Unavailable(_)) | Ok(_) => {}
        }
        outcome
    }

    /// Takes over what was issued, unless it is of somebody else or the session ended meanwhile: then that is ended as
    /// well. All of it under one lock, so that whoever ends the session takes back either nothing of it or everything.
    fn put<T>(
        &self,
        issued: Issued,
        put: impl FnOnce(&mut State, Issued) -> T,
    ) -> Result<T, Refused> {
        let fits = self.fits(&issued.minted);
        let mut state = self.state();
        match fits.and_then(|()| self.check_open()) {
            Ok(()) => {
                let done = put(&mut state, issued);
                self.remember(&state);
                Ok(done)
            }
            Err(refused) => {
                self.leave(issued.chain, TimeMs(0));
                Err(refused)
            }
        }
    }

    /// By what continues the session, or else by what was presented: a change of roles ends sessions of people who may
    /// still come in.
    async fn renewed(&self) -> Result<Issued, Refused> {
        let credential = self.state().credential.clone();
        credential.confirm().await?;
        let chain = self.state().chain.take();
        if let Some(chain) = chain {
            match self.shared.desk.refresh(&chain, &self.ask).await {
                Ok(issued) => return Ok(issued),
                Err(failed @ (Failed::Away { sent: false, .. } | Failed::Undecided(_))) => {
                    self.keep_chain(chain);
                    return Err(failed.refused());
                }
                Err(
                    Failed::Decided(_)
                    | Failed::NotAccepted(_)
                    | Failed::ActorRefused
                    | Failed::Away { sent: true, .. },
                ) => {}
            }
        }
        let shown = credential.shown().await?;
        let issued = self.shared.desk.exchange(&shown, &self.ask).await;
        issued.map_err(Failed::refused)
    }

    /// Whether a new token is of the same person and still enough for the session.
    fn fits(&self, minted: &Minted) -> Result<(), Refused> {
        if minted.principal != self.state().minted.principal {
            let message = "this is the sign-in of another person";
            return Err(Refused::Forbidden(message.into()));
        }
        match self.ask.lacking(&minted.rights) {
            None => Ok(()),
            Some(lacking) => Err(Refused::Forbidden(format!(
                "{lacking} is no longer allowed"
            ))),
        }
    }

    fn take_unspent(&self) -> Option<String> {
        let mut state = self.state();
        let good = std::mem::take(&mut state.unspent) && now() < state.minted.expires_at;
        good.then(|| state.minted.token.reveal().to_owned())
    }

    fn check_open(&self) -> Result<(), Refused> {
        match *self.ended.borrow() {
            None => Ok(()),
            Some(Ended::Removed) => Err(Refused::Forbidden(Ended::Removed.to_string())),
            Some(ended) => Err(Refused::SignedOut(ended.to_string())),
        }
    }

    /// Puts back what was not spent.
    fn keep_chain(&self, chain: Secret) {
        let mut state = self.state();
        match self.check_open() {
            Ok(()) => state.chain = Some(chain),
            Err(_) => self.leave(Some(chain), TimeMs(0)),
        }
    }

    fn leave(&self, chain: Option<Secret>, at: TimeMs) {
        if let Some(chain) = chain {
            self.shared.closer.end_at(at, chain);
        }
    }

    fn remember(&self, state: &State) {
        let until = state.credential.until();
        let key = self.key(state);
        self.shared.reuse.remember(key, &state.minted, until, now());
    }

    fn key(&self, state: &State) -> [u8; 32] {
        self.ask.key(&state.credential.digest())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts a new token into the place of what is held; gives what was held.
fn replace(state: &mut State, issued: Issued, unspent: bool) -> (Minted, Option<Secret>) {
    state.unspent = unspent;
    (
        std::mem::replace(&mut state.minted, issued.minted),
        std::mem::replace(&mut state.chain, issued.chain),
    )
}

impl Drop for Membership {
    fn drop(&mut self) {
        let (last, earlier) = {
            let mut state = self.state();
            let at = state.minted.expires_at;
            let last = state.chain.take().map(|chain| (at, chain));
            (last, state.earlier.take())
        };
        for (at, chain) in last.into_iter().chain(earlier) {
            self.leave(Some(chain), at);
        }
    }
}

/// Sees to it that the next token is there before it is needed, and ends the membership with the sign-in it rests on or
/// when no token is left. One per session.
pub(super) async fn keep(membership: Weak<Membership>, tokens: TokenSource) {
    let mut tried: Option<TimeMs> = None;
    loop {
        let Some(held) = membership.upgrade() else {
            return;
        };
        let (minted_at, due_at, expires_at, credential) = {
            let state = held.state();
            let minted = &state.minted;
            (
                minted.minted_at,
                minted.due_at(),
                minted.expires_at,
                state.credential.clone(),
            )
        };
        drop(held);
        let at = now();
        if expires_at <= at {
            return end(&membership, Ended::Expired);
        }
        let wait = Duration::from_millis(due_at.0.saturating_sub(at.0));
        let wait = if tried == Some(minted_at) {
            AGAIN
        } else {
            wait
        };
        let left = Duration::from_millis(expires_at.0 - at.0);
        tokio::select! {
            () = credential.over() => return end(&membership, Ended::SignedOut),
            () = tokio::time::sleep(wait.min(left)) => {}
        }
        // The answer is looked at through the membership. In a place of its own, which an idle session does not have.
        let _ = Box::pin(tokens.token()).await;
        tried = Some(minted_at);
    }
}

fn end(membership: &Weak<Membership>, why: Ended) {
    if let Some(membership) = membership.upgrade() {
        membership.end(why);
    }
}
