//! People at the console: each with his own token, his own connections, and bounds of his own.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use felix_auth::Audience;
use felix_client::{Client, TokenSource};
use felix_controlplane_client::{Api, BadEndpoint, TokenSource as ApiToken};
use felix_model::TenantId;
use sha2::{Digest as _, Sha256};
use tokio::sync::{OnceCell, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::claims::Claims;
use super::limits::{CALL_TIMEOUT, CALLS, CONNECT_TIMEOUT, IDLE, LIVES, PEOPLE};
use super::refusal::Refusal;
use crate::app::App;
use crate::config::Config;
use crate::identity::{Ask, Granted, Presented, Refused, Secret};
use crate::sign_in::{Session, SessionId};

/// How somebody is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Via {
    /// By the cookie of a sign-in here.
    Session,
    /// By a token he sends with every request.
    Token,
}

/// What a request says of who asks.
#[derive(Debug)]
pub(super) enum Credential {
    Session(SessionId),
    Token(Secret),
}

/// Everybody who was here lately, and where brokers and control plane are.
#[derive(Debug)]
pub(crate) struct Console {
    tenant: TenantId,
    api: Api,
    people: Mutex<BTreeMap<[u8; 32], Arc<Person>>>,
}

/// Somebody.
pub(super) struct Person {
    pub(super) via: Via,
    pub(super) name: Option<String>,
    /// Ends what is live when the sign-in does.
    pub(super) over: CancellationToken,
    pub(super) calls: Arc<Semaphore>,
    pub(super) lives: Arc<Semaphore>,
    tokens: TokenSource,
    controlplane: Option<TokenSource>,
    client: OnceCell<Client>,
    used: Mutex<Instant>,
    /// Rights last as long as these are held.
    _granted: Vec<Granted>,
    watch: Option<JoinHandle<()>>,
}

impl Console {
    /// Prepares; nothing is asked yet.
    ///
    /// # Errors
    /// [`BadEndpoint`] when the control plane's address or roots cannot be used.
    pub(crate) fn new(
        config: &Config,
        tenant: TenantId,
        roots: Option<&[u8]>,
    ) -> Result<Self, BadEndpoint> {
        let url = &config.controlplane_url;
        let api = match roots {
            Some(roots) => Api::trusting(url, ApiToken::None, roots)?,
            None => Api::new(url, ApiToken::None)?,
        };
        Ok(Self {
            tenant,
            api,
            people: Mutex::default(),
        })
    }

    /// Calls to the control plane, without a token.
    pub(crate) const fn api(&self) -> &Api {
        &self.api
    }

    /// The tenant that this gateway serves.
    pub(super) const fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// Who this is; lets him in if he was not here lately.
    pub(super) async fn person(
        &self,
        app: &App,
        credential: Credential,
    ) -> Result<Arc<Person>, Refusal> {
        let session = match &credential {
            Credential::Token(_) => None,
            Credential::Session(id) => {
                let sessions = app.door.sign_in.sessions();
                let found = sessions.find(id);
                Some(found.ok_or_else(|| Refusal::signed_out("nobody is signed in here"))?)
            }
        };
        let key = key_of(&credential, session.as_deref());
        if let Some(person) = self.known(&key) {
            return Ok(person);
        }
        let person = match credential {
            Credential::Token(token) => self.of_token(&token)?,
            Credential::Session(id) => {
                let name = session.and_then(|session| session.name().map(str::to_owned));
                of_session(app, &id, name).await?
            }
        };
        let person = Arc::new(person);
        self.keep(key, Arc::clone(&person));
        Ok(person)
    }

    /// Somebody who brings a token of ours. It is not verified here: brokers and control plane do that with every
    /// request, and this gateway has nothing of its own to give away.
    fn of_token(&self, token: &Secret) -> Result<Person, Refusal> {
        let claims = Claims::read(token.reveal())?;
        if claims.tenant != self.tenant.as_ref() {
            let message = format!("the token is not for tenant {}", self.tenant);
            return Err(Refusal::forbidden("forbidden", message));
        }
        let source = TokenSource::fixed(token.reveal());
        let of_api = claims.audience == Audience::ControlPlane.name();
        let controlplane = of_api.then(|| source.clone());
        Ok(Person::new(Via::Token, source, controlplane))
    }

    fn known(&self, key: &[u8; 32]) -> Option<Arc<Person>> {
        let mut people = self.lock();
        let found = people.get(key)?;
        if found.over.is_cancelled() {
            people.remove(key);
            return None;
        }
        found.touch();
        Some(Arc::clone(found))
    }

    fn keep(&self, key: [u8; 32], person: Arc<Person>) {
        let mut people = self.lock();
        people.retain(|_, person| {
            let idle =
                person.last_used().elapsed() > IDLE && person.lives.available_permits() == LIVES;
            !idle && !person.over.is_cancelled()
        });
        if people.len() >= PEOPLE {
            let oldest = people.iter().min_by_key(|(_, person)| person.last_used());
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                people.remove(&oldest);
            }
        }
        people.insert(key, person);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<[u8; 32], Arc<Person>>> {
        self.people.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody who signed in here: a token for brokers, and one for the control plane if his roles give anything there.
async fn of_session(app: &App, id: &SessionId, name: Option<String>) -> Result<Person, Refusal> {
    let admit = |audience| {
        let presented = Presented::Session(id.clone());
        app.door
            .identity
            .admit(presented, Ask::Everything(audience))
    };
    let broker = admit(Audience::Broker).await?;
    let api = match admit(Audience::ControlPlane).await {
        Ok(granted) => Some(granted),
        Err(Refused::Forbidden(_)) => None,
        Err(refused) => return Err(refused.into()),
    };
    let mut ended = broker.ended();
    let controlplane = api.as_ref().map(|granted| granted.tokens.clone());
    let mut person = Person::new(Via::Session, broker.tokens.clone(), controlplane);
    let over = person.over.clone();
    person.name = name;
    person._granted = std::iter::once(broker).chain(api).collect();
    person.watch = Some(tokio::spawn(async move {
        // An error means that the membership is gone, which is an end as well.
        let _ = ended.wait_for(Option::is_some).await;
        over.cancel();
    }));
    Ok(person)
}

fn key_of(credential: &Credential, session: Option<&Session>) -> [u8; 32] {
    let mut digest = Sha256::new();
    match (credential, session) {
        (Credential::Token(token), _) => {
            digest.update(b"token");
            digest.update(token.digest());
        }
        (Credential::Session(_), session) => {
            digest.update(b"session");
            digest.update(session.map(Session::digest).unwrap_or_default());
        }
    }
    digest.finalize().into()
}

impl Person {
    fn new(via: Via, tokens: TokenSource, controlplane: Option<TokenSource>) -> Self {
        Self {
            via,
            name: None,
            over: CancellationToken::new(),
            calls: Arc::new(Semaphore::new(CALLS)),
            lives: Arc::new(Semaphore::new(LIVES)),
            tokens,
            controlplane,
            client: OnceCell::new(),
            used: Mutex::new(Instant::now()),
            _granted: Vec::new(),
            watch: None,
        }
    }

    /// What his token says of him.
    pub(super) async fn claims(&self) -> Result<Claims, Refusal> {
        let token = self.tokens.token().await;
        Claims::read(&token.map_err(Refusal::signed_out)?)
    }

    /// Brokers, asked in his name, in a namespace.
    pub(super) async fn client(&self, app: &App, namespace: &str) -> Result<Client, Refusal> {
        let client = self.client.get_or_try_init(|| self.connect(&app.config));
        let client = client.await?;
        client.in_namespace(namespace).map_err(Refusal::invalid)
    }

    async fn connect(&self, config: &Config) -> Result<Client, Refusal> {
        let mut builder = Client::builder()
            .brokers(config.brokers.iter().cloned())
            .tenant(&config.tenant)
            .namespace(&config.namespace)
            .server_name(&config.broker_name)
            .token_source(self.tokens.clone())
            .connect_timeout(CONNECT_TIMEOUT)
            .request_timeout(CALL_TIMEOUT);
        if let Some(roots) = &config.broker_ca {
            builder = builder.ca_file(roots);
        }
        if let (Some(chain), Some(key)) = (&config.client_cert, &config.client_key) {
            builder = builder.client_identity_files(chain, key);
        }
        Ok(builder.connect().await?)
    }

    /// The control plane, asked in his name; `None` when his token is not for it.
    pub(super) async fn api(&self, console: &Console) -> Result<Option<Api>, Refusal> {
        let Some(tokens) = &self.controlplane else {
            return Ok(None);
        };
        let token = tokens.token().await.map_err(Refusal::signed_out)?;
        Ok(Some(console.api.with_token(ApiToken::fixed(&token))))
    }

    fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn last_used(&self) -> Instant {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        self.over.cancel();
        if let Some(watch) = &self.watch {
            watch.abort();
        }
    }
}

impl fmt::Debug for Person {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Person")
            .field("via", &self.via)
            .finish_non_exhaustive()
    }
}
