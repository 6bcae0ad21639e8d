//! People at the console: each with his own token, his own connections, and bounds of his own.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use felix_auth::Audience;
use felix_client::{Client, TokenSource};
use felix_controlplane_client::{Api, BadEndpoint, TokenSource as ApiToken};
use felix_model::TenantId;
use felix_process::Slots;
use sha2::{Digest as _, Sha256};
use tokio::sync::{OnceCell, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::claims::Claims;
use super::limits::{
    CALL_TIMEOUT, CALLS, CONNECT_TIMEOUT, IDLE, LIVES, PEOPLE, STRANGERS, STRANGERS_PER_ADDRESS,
};
use super::refusal::Refusal;
use crate::address::Seen;
use crate::app::App;
use crate::config::Config;
use crate::identity::{Ask, Granted, Presented, Refused, Secret, now};
use crate::sign_in::SessionId;

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
    /// Tokens that a broker is asked about, by where they come from.
    strangers: Arc<Slots<IpAddr>>,
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
            strangers: Arc::default(),
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
        seen: &Seen,
        credential: Credential,
    ) -> Result<Arc<Person>, Refusal> {
        match credential {
            Credential::Token(token) => self.of_token(app, seen, &token).await,
            Credential::Session(id) => {
                let session = app.door.sign_in.sessions().find(&id);
                let over = || Refusal::signed_out("nobody is signed in here");
                let session = session.ok_or_else(over)?;
                let key = key_of("session", &session.digest());
                if let Some(person) = self.known(&key) {
                    return Ok(person);
                }
                let person = of_session(app, &id, session.name().map(str::to_owned)).await?;
                Ok(self.keep(key, Arc::new(person)))
            }
        }
    }

    /// Somebody who brings a token of ours. Brokers and control plane verify it with every request, so this gateway has
    /// nothing of its own to give away; a place here is taken only once a broker has let the token in.
    async fn of_token(
        &self,
        app: &App,
        seen: &Seen,
        token: &Secret,
    ) -> Result<Arc<Person>, Refusal> {
        self.may_come(&Claims::read(token.reveal())?, seen)?;
        let key = key_of("token", &token.digest());
        if let Some(person) = self.known(&key) {
            return Ok(person);
        }
        let place = self
            .strangers
            .take(seen.ip, STRANGERS, STRANGERS_PER_ADDRESS);
        let _place = place.ok_or_else(|| Refusal::too_many("new tokens", STRANGERS_PER_ADDRESS))?;
        let person = Person::new(Via::Token, TokenSource::fixed(token.reveal()), None);
        person.client(app, &app.config.namespace).await?;
        Ok(self.keep(key, Arc::new(person)))
    }

    /// What can be seen of a token without its key. That it is good on this machine only is for this gateway to keep: a
    /// broker beside it takes the gateway for the one who asks.
    fn may_come(&self, claims: &Claims, seen: &Seen) -> Result<(), Refusal> {
        if claims.tenant != self.tenant.as_ref() {
            let message = format!("the token is not for tenant {}", self.tenant);
            return Err(Refusal::forbidden("forbidden", message));
        }
        if claims.audience != Audience::Broker.name() {
            let message = "the console takes a token for brokers (audience felix-broker)";
            return Err(Refusal::forbidden("forbidden", message));
        }
        if claims.loopback_only && !seen.is_from_here {
            let message = "this token is for development and is accepted from this host only";
            return Err(Refusal::signed_out(message));
        }
        if claims.expires_at_ms().is_some_and(|at| at <= now().0) {
            return Err(Refusal::signed_out("the token has run out"));
        }
        Ok(())
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

    /// Gives somebody a place, or the one he was given meanwhile. Where there is none left, whoever brings a token goes
    /// before whoever signed in, and never takes his.
    fn keep(&self, key: [u8; 32], person: Arc<Person>) -> Arc<Person> {
        let mut people = self.lock();
        if let Some(other) = people.get(&key).filter(|one| !one.over.is_cancelled()) {
            return Arc::clone(other);
        }
        people.retain(|_, person| {
            let idle =
                person.last_used().elapsed() > IDLE && person.lives.available_permits() == LIVES;
            !idle && !person.over.is_cancelled()
        });
        if people.len() >= PEOPLE {
            let oldest = |via| {
                let among = people.iter().filter(|(_, one)| one.via == via);
                let oldest = among.min_by_key(|(_, one)| one.last_used());
                oldest.map(|(key, _)| *key)
            };
            let goes = oldest(Via::Token).or_else(|| match person.via {
                Via::Session => oldest(Via::Session),
                Via::Token => None,
            });
            let Some(goes) = goes else { return person };
            people.remove(&goes);
        }
        people.insert(key, Arc::clone(&person));
        person
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

fn key_of(kind: &str, what: &[u8; 32]) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(kind);
    digest.update(what);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn console() -> Console {
        let tenant = "t".parse().unwrap();
        Console::new(&Config::default(), tenant, None).unwrap()
    }

    fn comes(console: &Console, via: Via, number: usize) -> [u8; 32] {
        let key = key_of("test", &Secret::new(format!("{via:?} {number}")).digest());
        let person = Person::new(via, TokenSource::fixed("t"), None);
        console.keep(key, Arc::new(person));
        key
    }

    #[test]
    fn whoever_brings_a_token_never_takes_the_place_of_whoever_signed_in() {
        let console = console();
        let signed_in: Vec<_> = (0..PEOPLE - 1)
            .map(|number| comes(&console, Via::Session, number))
            .collect();
        let mut last = [0; 32];
        for number in 0..2 * PEOPLE {
            last = comes(&console, Via::Token, number);
        }
        assert!(signed_in.iter().all(|key| console.known(key).is_some()));
        assert!(console.known(&last).is_some(), "the newest token is kept");
        // One more who signs in takes the place of the token, and then there is none for tokens.
        comes(&console, Via::Session, PEOPLE);
        assert!(console.known(&last).is_none());
        let stranger = comes(&console, Via::Token, 3 * PEOPLE);
        assert!(console.known(&stranger).is_none());
        assert_eq!(console.lock().len(), PEOPLE);
    }

    #[test]
    fn a_token_for_this_machine_is_good_from_nowhere_else() {
        let console = console();
        let claims = |more: &str| -> Claims {
            let text = format!(r#"{{"sub":"p","tid":"t","aud":"felix-broker"{more}}}"#);
            serde_json::from_str(&text).unwrap()
        };
        let seen = |is_from_here| Seen {
            ip: "127.0.0.1".parse().unwrap(),
            secure: false,
            host: None,
            is_from_here,
        };
        let dev = claims(r#","loopback":true"#);
        assert!(console.may_come(&dev, &seen(true)).is_ok());
        let refused = console.may_come(&dev, &seen(false)).unwrap_err();
        assert_eq!(refused.code(), "signed_out");
        assert!(console.may_come(&claims(""), &seen(false)).is_ok());
        assert!(
            console
                .may_come(&claims(r#","exp":1"#), &seen(true))
                .is_err()
        );
        for other in [
            r#"{"sub":"p","tid":"u","aud":"felix-broker"}"#,
            r#"{"sub":"p","tid":"t","aud":"felix-controlplane"}"#,
        ] {
            let claims = serde_json::from_str(other).unwrap();
            let refused = console.may_come(&claims, &seen(true)).unwrap_err();
            assert_eq!(refused.code(), "forbidden");
        }
    }
}
