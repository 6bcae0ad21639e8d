//! Where tokens are asked for: one exchange, refresh or delegation at the control plane.

use felix_auth::Audience;
use felix_controlplane_client::Exchanger;
use felix_meta::http::{DelegateSpec, GRANT_TYPE_EXCHANGE, Hidden, TOKEN_TYPE_JWT, TokenAnswer};
use felix_model::TimeMs;

use super::actor::Actor;
use super::ask::{Ask, Minted};
use super::credential::Shown;
use super::failures::Failures;
use super::now;
use super::refused::Failed;
use super::secret::Secret;

/// Asks the control plane.
#[derive(Debug)]
pub(super) struct Desk {
    exchanger: Exchanger,
    actor: Option<Actor>,
    failures: Failures,
}

/// A token and what continues its session, once.
#[derive(Clone, Debug)]
pub(super) struct Issued {
    pub(super) minted: Minted,
    pub(super) chain: Option<Secret>,
}

impl Desk {
    pub(super) fn new(exchanger: Exchanger, actor: Option<Actor>) -> Self {
        Self {
            exchanger,
            actor,
            failures: Failures::default(),
        }
    }

    pub(super) const fn actor(&self) -> Option<&Actor> {
        self.actor.as_ref()
    }

    /// Exchanges a provider's token. When the gateway is not taken for an actor, that is tried once more with a fresh
    /// token of its own.
    pub(super) async fn exchange(&self, shown: &Shown, ask: &Ask) -> Result<Issued, Failed> {
        let attempt = self.failures.attempt(shown, now())?;
        let outcome = match self.exchange_once(&shown.token, ask).await {
            Err(Failed::ActorRefused) => self.exchange_once(&shown.token, ask).await,
            outcome => outcome,
        };
        match &outcome {
            Err(Failed::NotAccepted(refused)) => attempt.refused(refused, now()),
            Ok(_)
            | Err(
                Failed::Decided(_)
                | Failed::ActorRefused
                | Failed::Away { .. }
                | Failed::Undecided(_),
            ) => attempt.passed(),
        }
        outcome
    }

    async fn exchange_once(&self, credential: &Secret, ask: &Ask) -> Result<Issued, Failed> {
        let actor = self.acting_for(ask).await?;
        let spec = ask.spec(actor.as_ref());
        let answer = self.exchanger.exchange(credential.reveal(), &spec).await;
        match answer.map_err(Failed::from) {
            Ok(answer) => self.issued(answer, actor.as_ref()).await,
            Err(failed) => {
                self.forget(&failed, actor.as_ref()).await;
                Err(failed)
            }
        }
    }

    /// Spends what continues a session.
    pub(super) async fn refresh(&self, chain: &Secret, ask: &Ask) -> Result<Issued, Failed> {
        // Before anything is spent.
        let actor = self.acting_for(ask).await?;
        let answer = self.exchanger.renew(chain.reveal()).await?;
        let issued = self.issued(answer, actor.as_ref()).await;
        issued.map_err(|failed| match failed {
            Failed::Away { why, .. } | Failed::Undecided(why) => Failed::Away { sent: true, why },
            failed @ (Failed::Decided(_) | Failed::NotAccepted(_) | Failed::ActorRefused) => failed,
        })
    }

    /// Ends a session. That it cannot be ended is no news for anybody: it runs out.
    pub(super) async fn end(&self, chain: &Secret) {
        if let Err(failed) = self.exchanger.end(chain.reveal()).await {
            tracing::debug!(%failed, "a session at the control plane is left to run out");
        }
    }

    /// The gateway's own token, where it acts for people: at brokers, over shared connections.
    async fn acting_for(&self, ask: &Ask) -> Result<Option<Secret>, Failed> {
        match (&self.actor, ask.audience()) {
            (Some(actor), Audience::Broker) => actor.token().await.map(Some),
            _ => Ok(None),
        }
    }

    async fn issued(&self, answer: TokenAnswer, actor: Option<&Secret>) -> Result<Issued, Failed> {
        let at = now();
        let own = read(&answer.felix_token, at)?;
        let minted = match actor {
            None => own,
            Some(actor) => self.delegated(&own, actor, at).await?,
        };
        Ok(Issued {
            minted,
            chain: answer.refresh_token.map(Secret::new),
        })
    }

    /// The token with which the gateway acts for somebody.
    async fn delegated(&self, own: &Minted, actor: &Secret, at: TimeMs) -> Result<Minted, Failed> {
        let spec = DelegateSpec {
            grant_type: GRANT_TYPE_EXCHANGE.to_owned(),
            subject_token: Hidden(own.token.reveal().to_owned()),
            subject_token_type: Some(TOKEN_TYPE_JWT.to_owned()),
            permissions: None,
        };
        match self.exchanger.delegate(actor.reveal(), &spec).await {
            Ok(answer) => read(&answer.access_token.0, at),
            // Here the gateway itself is the caller, so every refusal is about it.
            Err(failed) => {
                tracing::warn!(%failed, "the control plane gives no token to act with");
                let failed = match Failed::from(failed) {
                    Failed::Decided(_) | Failed::NotAccepted(_) => Failed::ActorRefused,
                    failed
                    @ (Failed::ActorRefused | Failed::Away { .. } | Failed::Undecided(_)) => failed,
                };
                self.forget(&failed, Some(actor)).await;
                Err(failed)
            }
        }
    }

    async fn forget(&self, failed: &Failed, token: Option<&Secret>) {
        if let (Failed::ActorRefused, Some(actor), Some(token)) = (failed, &self.actor, token) {
            actor.forget(token).await;
        }
    }
}

fn read(token: &str, at: TimeMs) -> Result<Minted, Failed> {
    Minted::read(token, at).map_err(|error| Failed::Undecided(error.to_string()))
}
