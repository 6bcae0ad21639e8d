//! Who a connection speaks for, and the connections to brokers and control plane that speak for him.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use felix_auth::{Action, Audience, Principal, Resource, verify};
use felix_client::raw::{Raw, RawStream};
use felix_client::{CallFailed, ConnectFailed};
use felix_controlplane_client::{Api as ControlPlane, TokenSource};
use felix_meta::StreamRecord;
use felix_model::{TenantId, TimeMs};
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;

use crate::limits::{LOGINS_SHARED_MAX, STREAMS_KEPT_MAX};
use crate::names::{Names, Standing};
use crate::topics::{Topic, TopicId};
use crate::upstream::Upstream;

/// Somebody who logged in. Connections with the same token share one.
pub(crate) struct Who {
    pub(crate) principal: Principal,
    /// Nobody logged in: this is who connections are before.
    pub(crate) nameless: bool,
    token: Arc<str>,
    /// His token for the control plane, if his credential gave one.
    control: Option<ControlPlane>,
    raw: OnceCell<Raw>,
    /// What the login rested on when it was found to stand.
    judged: Mutex<Option<Standing>>,
    /// Streams that were used, by the id of their topic.
    streams: Mutex<HashMap<TopicId, Arc<RawStream>>>,
}

impl fmt::Debug for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Who")
            .field("tenant", &self.principal.tenant)
            .field("subject", &self.principal.subject)
            .finish_non_exhaustive()
    }
}

/// What a credential came to: the tokens that speak for its principal.
pub(crate) struct Tokens {
    /// For brokers.
    pub(crate) broker: Arc<str>,
    /// For the control plane, if there is one.
    pub(crate) control: Option<Arc<str>>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tokens(..)")
    }
}

impl Who {
    fn new(principal: Principal, tokens: Tokens, upstream: &Upstream) -> Self {
        let control = tokens
            .control
            .and_then(|token| upstream.control(TokenSource::Fixed(token)));
        Self {
            principal,
            nameless: false,
            token: tokens.broker,
            control,
            raw: OnceCell::new(),
            judged: Mutex::default(),
            streams: Mutex::default(),
        }
    }

    pub(crate) fn tenant(&self) -> &TenantId {
        &self.principal.tenant
    }

    /// Calls to the brokers in his name. The connection is made when first needed.
    ///
    /// # Errors
    /// When no broker answers; the next call tries again.
    pub(crate) async fn raw(&self, upstream: &Upstream) -> Result<Raw, CallFailed> {
        let connected = self.raw.get_or_try_init(|| async {
            let client = upstream.connect(self.tenant(), &self.token).await?;
            Ok::<_, ConnectFailed>(client.raw())
        });
        Ok(connected.await?.clone())
    }

    /// Calls about the stream of a topic.
    ///
    /// # Errors
    /// When no broker answers.
    pub(crate) async fn stream(
        &self,
        upstream: &Upstream,
        topic: &Topic,
    ) -> Result<Arc<RawStream>, CallFailed> {
        if let Some(stream) = lock(&self.streams).get(&topic.id) {
            return Ok(Arc::clone(stream));
        }
        let (namespace, stream) = (&topic.stream.namespace, &topic.stream.stream);
        let raw = self.raw(upstream).await?;
        let stream = Arc::new(raw.stream(namespace.as_str(), stream.as_str())?);
        let mut streams = lock(&self.streams);
        if streams.len() >= STREAMS_KEPT_MAX {
            streams.clear();
        }
        streams.insert(topic.id, Arc::clone(&stream));
        Ok(stream)
    }

    /// Calls to the control plane in his name; `None` when his credential is good for brokers only.
    pub(crate) fn control(&self) -> Option<&ControlPlane> {
        self.control.as_ref()
    }

    /// Whether he may do this to a stream.
    pub(crate) fn may(&self, action: Action, stream: &StreamRecord) -> bool {
        self.principal.allows(
            action,
            &Resource::Stream {
                tenant: stream.tenant_id.as_str(),
                namespace: stream.namespace.as_str(),
                stream: stream.stream.as_str(),
            },
        )
    }

    /// Whether he may know that a stream exists.
    pub(crate) fn may_see(&self, stream: &StreamRecord) -> bool {
        [
            Action::StreamSubscribe,
            Action::StreamPublish,
            Action::StreamManage,
        ]
        .into_iter()
        .any(|action| self.may(action, stream))
    }

    /// Whether his login has run out.
    pub(crate) fn is_expired(&self, now: TimeMs) -> bool {
        self.principal.is_expired(now)
    }

    /// Whether what his login rests on is still there. Judged again only when keys or revocations of the tenant
    /// changed since it was judged last.
    pub(crate) fn stands(&self, names: &Names, now: TimeMs) -> bool {
        let Some(standing) = names.standing(self.tenant()) else {
            return false;
        };
        let mut judged = lock(&self.judged);
        if judged.as_ref().is_some_and(|judged| judged.is(&standing)) {
            return true;
        }
        let verified = verify(
            &self.token,
            self.tenant(),
            Audience::Broker,
            &standing.keys,
            now,
        );
        let stands = verified.is_ok() && standing.revocations.covers(&self.principal).is_none();
        if stands {
            *judged = Some(standing);
        }
        stands
    }
}

/// Those who are logged in, by a digest of their token.
#[derive(Debug, Default)]
pub(crate) struct Logins {
    known: Mutex<HashMap<[u8; 32], Weak<Who>>>,
    /// Credentials that were exchanged, by their digest.
    credentials: Mutex<HashMap<[u8; 32], Weak<Who>>>,
}

impl Logins {
    /// Whom a credential was exchanged for, while a connection speaks for him and more than half of the token's life
    /// is left.
    pub(crate) fn of_credential(
        &self,
        tenant: &TenantId,
        secret: &str,
        now: TimeMs,
    ) -> Option<Arc<Who>> {
        let digest = digest_of([tenant.as_str(), secret, ""]);
        let who = lock(&self.credentials)
            .get(&digest)
            .and_then(Weak::upgrade)?;
        let (from, to) = (who.principal.issued_at_ms.0, who.principal.expires_at_ms.0);
        (now.0 < from + to.saturating_sub(from) / 2).then_some(who)
    }

    /// Remembers whom a credential was exchanged for.
    pub(crate) fn remember_credential(&self, tenant: &TenantId, secret: &str, who: &Arc<Who>) {
        let digest = digest_of([tenant.as_str(), secret, ""]);
        let mut known = lock(&self.credentials);
        if known.len() >= LOGINS_SHARED_MAX {
            known.retain(|_, who| who.strong_count() > 0);
        }
        if known.len() < LOGINS_SHARED_MAX {
            known.insert(digest, Arc::downgrade(who));
        }
    }

    /// Who connections are without a login. Nobody who logs in with the same token is the same.
    pub(crate) fn nameless(principal: Principal, tokens: Tokens, upstream: &Upstream) -> Arc<Who> {
        let mut who = Who::new(principal, tokens, upstream);
        who.nameless = true;
        Arc::new(who)
    }

    /// The one this token speaks for. Whoever calls has verified it.
    pub(crate) fn share(
        &self,
        principal: Principal,
        tokens: Tokens,
        upstream: &Upstream,
    ) -> Arc<Who> {
        let digest = digest(principal.tenant.as_str(), &tokens);
        let mut known = lock(&self.known);
        if let Some(who) = known.get(&digest).and_then(Weak::upgrade) {
            return who;
        }
        let who = Arc::new(Who::new(principal, tokens, upstream));
        if known.len() >= LOGINS_SHARED_MAX {
            known.retain(|_, who| who.strong_count() > 0);
        }
        if known.len() < LOGINS_SHARED_MAX {
            known.insert(digest, Arc::downgrade(&who));
        }
        who
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn digest(tenant: &str, tokens: &Tokens) -> [u8; 32] {
    let control = tokens.control.as_deref().unwrap_or_default();
    digest_of([tenant, &tokens.broker, control])
}

/// What a secret is remembered by, so that its text is not kept.
fn digest_of(parts: [&str; 3]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}
