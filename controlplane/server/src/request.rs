//! The request that is being answered: its id, where it came from, and who its caller turned out to be.
//!
//! It belongs to the task that answers, so that no handler can forget to say on whose behalf it changes something:
//! [`crate::Authority::submit`] looks here, and so does every refusal for its `request_id`.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{ConnectInfo, Request};
use axum::http::HeaderMap;
use felix_auth::Principal;
use felix_meta::By;
use felix_model::TenantId;

/// The header in which a caller may bring an id of his own, and in which every answer has it.
pub(crate) const HEADER: &str = "x-request-id";

/// The header of W3C trace contexts; the id of the trace is the second part.
const TRACEPARENT: &str = "traceparent";

/// Characters of an id that a caller brings. It is written into the ledger and the log.
const ID_CHARS_MAX: usize = 64;

tokio::task_local! {
    static CURRENT: Arc<Current>;
}

/// One request.
#[derive(Debug)]
pub(crate) struct Current {
    id: String,
    from: Option<IpAddr>,
    who: Mutex<Option<Who>>,
}

/// Who a request turned out to come from.
#[derive(Clone, Debug)]
struct Who {
    principal: String,
    tenant: String,
    session: Option<String>,
    actor: Option<String>,
}

impl Current {
    /// Reads what a request brings. An id that could not stand in a log is replaced.
    pub(crate) fn of(request: &Request) -> Arc<Self> {
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
        Arc::new(Self {
            id: brought(request.headers()).unwrap_or_else(fresh),
            from: peer.map(|ConnectInfo(peer)| peer.ip().to_canonical()),
            who: Mutex::new(None),
        })
    }

    /// Its id.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The address it came from, as it is written down; empty for a call from inside the process.
    pub(crate) fn from(&self) -> String {
        self.from.map(|ip| ip.to_string()).unwrap_or_default()
    }

    /// The address it came from; [`None`] for a call from inside the process.
    pub(crate) const fn ip(&self) -> Option<IpAddr> {
        self.from
    }

    /// The principal, once he is known.
    pub(crate) fn principal(&self) -> Option<String> {
        self.who().map(|who| who.principal)
    }

    fn who(&self) -> Option<Who> {
        self.who
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn by(&self) -> Option<By> {
        let who = self.who()?;
        Some(By {
            principal: who.principal,
            tenant: who.tenant,
            from: self.from(),
            session: who.session,
            actor: who.actor,
            request: self.id.clone(),
        })
    }
}

/// Answers a request as its own.
pub(crate) async fn scope<F: Future>(current: Arc<Current>, answer: F) -> F::Output {
    CURRENT.scope(current, answer).await
}

/// The request that this task answers; `None` when it answers none.
pub(crate) fn current() -> Option<Arc<Current>> {
    CURRENT.try_with(Arc::clone).ok()
}

/// The id of the request that this task answers.
pub(crate) fn id() -> Option<String> {
    current().map(|current| current.id.clone())
}

/// Whose change it is that this task makes; `None` for the control plane's own.
pub(crate) fn by() -> Option<By> {
    current()?.by()
}

/// Says whose token the request brought.
pub(crate) fn identify(principal: &Principal) {
    know(Who {
        principal: principal.subject.to_string(),
        tenant: principal.tenant.to_string(),
        session: principal.session.as_deref().map(str::to_owned),
        actor: principal.actor.as_deref().map(str::to_owned),
    });
}

/// Says who the caller is when he brought no token of ours: a person with a provider's token, a service account, or
/// who knows the bootstrap token.
pub(crate) fn identify_as(principal: &str, tenant: &TenantId, session: Option<&str>) {
    know(Who {
        principal: principal.to_owned(),
        tenant: tenant.to_string(),
        session: session.map(str::to_owned),
        actor: None,
    });
}

fn know(who: Who) {
    if let Some(current) = current() {
        *current.who.lock().unwrap_or_else(PoisonError::into_inner) = Some(who);
    }
}

/// The id that a caller brings: of the request, or of the trace it belongs to.
fn brought(headers: &HeaderMap) -> Option<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let trace = || {
        let id = text(TRACEPARENT)?.split('-').nth(1)?;
        (id.len() == 32).then_some(id)
    };
    let fits = |id: &&str| {
        (1..=ID_CHARS_MAX).contains(&id.len())
            && id
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    };
    text(HEADER)
        .filter(fits)
        .or_else(|| trace().filter(fits))
        .map(str::to_owned)
}

/// An id that nobody had before.
fn fresh() -> String {
    let mut bytes = [0; 8];
    match getrandom::fill(&mut bytes) {
        Ok(()) => format!("{:016x}", u64::from_be_bytes(bytes)),
        // It names a request in a log; without randomness it names none, and the request is answered all the same.
        Err(_) => "unnamed".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_could_not_stand_in_a_log_is_replaced() {
        let id = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            brought(&headers)
        };
        assert_eq!(id(HEADER, "abc-1"), Some("abc-1".into()));
        assert_eq!(id(HEADER, "a b"), None);
        assert_eq!(id(HEADER, ""), None);
        assert_eq!(id(HEADER, &"a".repeat(65)), None);
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let expected = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(id(TRACEPARENT, trace), Some(expected.into()));
        assert_eq!(id(TRACEPARENT, "00-4b-00-01"), None);
        assert_ne!(fresh(), fresh());
    }

    #[tokio::test]
    async fn a_change_is_that_of_the_request_whose_task_makes_it() {
        assert_eq!(by(), None);
        let request = Request::new(axum::body::Body::empty());
        let current = Current::of(&request);
        let made = scope(Arc::clone(&current), async {
            assert_eq!(by(), None, "nobody is known yet");
            identify_as("p:a", &"t".parse().unwrap(), None);
            by()
        });
        let made = made.await.unwrap();
        assert_eq!(
            (made.principal.as_str(), made.request.as_str()),
            ("p:a", current.id())
        );
        assert_eq!(current.principal().as_deref(), Some("p:a"));
    }
}
