//! Connections that several clients share, each with streams under its own token.

use std::sync::{Arc, Mutex};

use felix_wire::extension::Extension;
use quinn::Connection;

use super::{Brokers, DialFailed, State, attempt};
use crate::address::Address;
use crate::builder::Config;
use crate::candidates::Candidate;
use crate::error::{Attempt, ConnectFailed};
use crate::keeper;
use crate::link::{Carrier, Link, Place};
use crate::publish::TokenUsed;
use crate::session::Opened;
use crate::token::TokenSource;
use crate::transport::Transport;

/// How a connection is come by.
#[derive(Debug)]
pub(super) enum Way {
    Dial(Box<Transport>),
    /// On the connections of another client, each stream with a token of one's own.
    Over(Arc<Brokers>),
}

/// A connection on which the token was accepted.
pub(super) struct Connected {
    pub(super) connection: Connection,
    /// Whose connection it is, if it is not our own.
    pub(super) carrier: Option<Arc<Link>>,
    pub(super) opened: Opened,
    pub(super) token: Arc<str>,
}

impl Brokers {
    /// The same brokers for somebody else, on the same connections.
    pub(crate) fn over(other: &Arc<Self>, token: TokenSource) -> Arc<Self> {
        let carrier = match &other.way {
            Way::Dial(_) => other,
            Way::Over(carrier) => carrier,
        };
        let candidates = carrier.lock().candidates.clone();
        Arc::new(Self {
            config: Config {
                token,
                ..carrier.config.clone()
            },
            way: Way::Over(Arc::clone(carrier)),
            state: Mutex::new(State {
                candidates,
                ..State::default()
            }),
        })
    }

    /// A stream of one's own on somebody else's connection.
    pub(super) async fn attach(
        &self,
        carrier: &Arc<Self>,
        candidate: &Candidate,
        slot: usize,
    ) -> Result<Connected, DialFailed> {
        let address = &candidate.address;
        let made = carrier.to_candidate(candidate.clone(), slot).await;
        let link = made.map_err(|failed| match failed {
            ConnectFailed::Certificate { broker, why } => DialFailed::Attempt(Attempt {
                broker,
                why: why.to_string(),
                certificate: Some(why),
            }),
            failed @ (ConnectFailed::Config(_)
            | ConnectFailed::NoBroker { .. }
            | ConnectFailed::Refused(_)
            | ConnectFailed::Token(_)
            | ConnectFailed::Closed) => attempt(address, failed.to_string()),
        })?;
        let (opened, token) = self.authenticate(address, &link.connection).await?;
        Ok(Connected {
            connection: link.connection.clone(),
            carrier: Some(link),
            opened,
            token,
        })
    }

    pub(super) fn link(&self, broker: Address, connected: Connected) -> Link {
        let Connected {
            connection,
            carrier,
            opened,
            token,
        } = connected;
        let keeper = opened
            .granted
            .extensions
            .contains(Extension::Reauth)
            .then(|| {
                let tenant = self.config.tenant.to_string();
                keeper::start(connection.clone(), tenant, self.config.token.clone())
            })
            .flatten();
        let key = TokenUsed {
            source: self.config.token.clone(),
            token,
        };
        let carrier = carrier.map(|link| Carrier { link, keeper });
        Link::new(
            Place {
                connection,
                broker,
                carrier,
            },
            opened,
            key,
            self.limits(),
        )
    }
}
