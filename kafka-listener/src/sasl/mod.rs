//! Logging in: which mechanism, then its messages, then a principal; and again before the login runs out.

mod oauthbearer;
mod plain;
mod verdict;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::{
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};

use crate::api::{Answer, Call, Head, Unreadable, decode, encode, text};
use crate::conn::Work;
use crate::limits::{LOGIN_LIFE_MAX, REFUSED_LOGIN_PAUSE, SASL_BYTES_MAX};
use crate::listener::{Shared, now};
use crate::who::Who;
use crate::wire::codes::{
    ILLEGAL_SASL_STATE, NONE, SASL_AUTHENTICATION_FAILED, UNSUPPORTED_SASL_MECHANISM,
    UNSUPPORTED_VERSION,
};

/// How a client proves who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mechanism {
    /// Tenant and token.
    Plain,
    /// A bearer token.
    OAuthBearer,
}

const MECHANISMS: [(&str, Mechanism); 2] = [
    ("PLAIN", Mechanism::Plain),
    ("OAUTHBEARER", Mechanism::OAuthBearer),
];

/// How far a login has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Exchange {
    /// No mechanism is chosen.
    #[default]
    Idle,
    /// The mechanism is chosen, its message is awaited.
    Chosen(Mechanism),
    /// The token was refused, and the client is to say that it heard; this is why.
    Refused(String),
}

/// What became of a login's message.
#[derive(Debug)]
pub(crate) struct Judged {
    /// How far the login has come.
    pub(crate) exchange: Exchange,
    /// Who it is, when it is done.
    pub(crate) who: Option<Arc<Who>>,
}

/// What a client says of itself: a credential, and the tenant when it says that, too.
#[derive(PartialEq, Eq)]
pub(crate) struct Credential {
    pub(crate) tenant: Option<String>,
    pub(crate) secret: String,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credential")
            .field("tenant", &self.tenant)
            .finish_non_exhaustive()
    }
}

/// Why a login is refused, for the client to read. It never says whether a tenant exists.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct LoginRefused(pub(crate) String);

/// Answers the choice of a mechanism.
///
/// # Errors
/// [`Unreadable`] when the request's bytes are not what the protocol says.
pub(crate) fn handshake(call: &Call, before: &Exchange) -> Result<(Answer, Exchange), Unreadable> {
    let request: SaslHandshakeRequest = decode(call)?;
    let known = MECHANISMS
        .iter()
        .find(|(name, _)| *name == request.mechanism.as_str());
    let (error, exchange) = match known {
        // In version 0 bare tokens without a header would follow; nobody sends it any more.
        _ if call.head.version < 1 => (UNSUPPORTED_VERSION, Exchange::Idle),
        _ if *before != Exchange::Idle => (ILLEGAL_SASL_STATE, Exchange::Idle),
        Some((_, mechanism)) => (NONE, Exchange::Chosen(*mechanism)),
        None => (UNSUPPORTED_SASL_MECHANISM, Exchange::Idle),
    };
    let names = MECHANISMS.iter().map(|(name, _)| text(name)).collect();
    let body = SaslHandshakeResponse::default()
        .with_error_code(error)
        .with_mechanisms(names);
    let mut answer = encode(&call.head, &body).map_err(Unreadable::Undecodable)?;
    answer.close = error != NONE;
    Ok((answer, exchange))
}

/// Judges a message of a login. `before` is who the connection speaks for already, if anybody.
///
/// # Errors
/// [`Unreadable`] when the request's bytes are not what the protocol says.
pub(crate) fn authenticate(
    shared: &Arc<Shared>,
    peer: SocketAddr,
    call: Call,
    exchange: Exchange,
    before: Option<Arc<Who>>,
) -> Result<Work<Answer>, Unreadable> {
    let request: SaslAuthenticateRequest = decode(&call)?;
    let shared = Arc::clone(shared);
    let step = Step {
        head: call.head,
        peer,
        before,
    };
    Ok(Box::pin(async move {
        step.judge(&shared, exchange, &request.auth_bytes).await
    }))
}

struct Step {
    head: Head,
    peer: SocketAddr,
    before: Option<Arc<Who>>,
}

impl Step {
    async fn judge(&self, shared: &Shared, exchange: Exchange, bytes: &Bytes) -> Answer {
        let mechanism = match exchange {
            Exchange::Chosen(mechanism) => mechanism,
            Exchange::Refused(why) => return self.refused(shared, &why).await,
            Exchange::Idle => {
                let body = SaslAuthenticateResponse::default()
                    .with_error_code(ILLEGAL_SASL_STATE)
                    .with_error_message(Some(text("choose a mechanism with SaslHandshake first")));
                return self.ended(&body);
            }
        };
        let credential = if bytes.len() > SASL_BYTES_MAX {
            Err(LoginRefused(format!("{} bytes are too many", bytes.len())))
        } else {
            match mechanism {
                Mechanism::Plain => plain::read(bytes),
                Mechanism::OAuthBearer => oauthbearer::read(bytes),
            }
        };
        let judged = match credential {
            Ok(credential) => verdict::judge(shared, self.peer, credential).await,
            Err(refused) => Err(refused),
        };
        match judged.and_then(|who| self.same_as_before(who)) {
            Ok(who) => self.welcome(who),
            Err(refused) if mechanism == Mechanism::OAuthBearer => {
                // The client is told in the mechanism's own words first, and says that it heard.
                let body = SaslAuthenticateResponse::default()
                    .with_error_message(None)
                    .with_auth_bytes(oauthbearer::refusal(&refused));
                let judged = Judged {
                    exchange: Exchange::Refused(refused.0),
                    who: None,
                };
                self.answer(&body, judged, false)
            }
            Err(refused) => self.refused(shared, &refused.0).await,
        }
    }

    /// A login that is renewed must be of the same principal; a connection without a login may become anybody's.
    fn same_as_before(&self, who: Arc<Who>) -> Result<Arc<Who>, LoginRefused> {
        let other = self.before.as_ref().filter(|before| {
            !before.nameless
                && (before.principal.tenant != who.principal.tenant
                    || before.principal.subject != who.principal.subject)
        });
        match other {
            None => Ok(who),
            Some(_) => Err(LoginRefused(
                "a login is renewed by the principal it is of".to_owned(),
            )),
        }
    }

    fn welcome(&self, who: Arc<Who>) -> Answer {
        let life = who.principal.expires_at_ms.0.saturating_sub(now().0);
        // 0 would mean for ever.
        let longest = LOGIN_LIFE_MAX.as_millis().try_into().unwrap_or(i64::MAX);
        let life = i64::try_from(life).unwrap_or(longest).clamp(1, longest);
        let mut body = SaslAuthenticateResponse::default().with_error_message(None);
        if self.head.version >= 1 {
            body.session_lifetime_ms = life;
        }
        let judged = Judged {
            exchange: Exchange::Idle,
            who: Some(who),
        };
        self.answer(&body, judged, false)
    }

    async fn refused(&self, shared: &Shared, why: &str) -> Answer {
        shared.metrics.logins_refused.increment(1);
        tracing::info!(peer = %self.peer, why, "a login was refused");
        tokio::time::sleep(REFUSED_LOGIN_PAUSE).await;
        let body = SaslAuthenticateResponse::default()
            .with_error_code(SASL_AUTHENTICATION_FAILED)
            .with_error_message(Some(text(why)));
        self.ended(&body)
    }

    fn ended(&self, body: &SaslAuthenticateResponse) -> Answer {
        let judged = Judged {
            exchange: Exchange::Idle,
            who: None,
        };
        self.answer(body, judged, true)
    }

    fn answer(&self, body: &SaslAuthenticateResponse, judged: Judged, close: bool) -> Answer {
        let mut answer = encode(&self.head, body).unwrap_or_default();
        answer.close |= close;
        answer.login = Some(judged);
        answer
    }
}
