//! People at the console: each with his own token, his own connections, and bounds of his own.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use felix_auth::Audience;
use felix_client::{Client, TokenSource};
use felix_controlplane_client::{Api, BadEndpoint, TokenSource as ApiToken};
use felix_model::TenantId;
use felix_process::Slots;
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::claims::Claims;
use super::limits::{
    CALL_TIMEOUT, CONNECT_TIMEOUT, IDLE, PEOPLE, STRANGERS, STRANGERS_PER_ADDRESS, TOKENS,
};
use super::places::Places;
use super::refusal::Refusal;
use crate::address::Seen;
use crate::app::App;
use crate::config::Config;
use crate::identity::{Ask, Ended, Granted, Presented, Refused, Secret, now};
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
    /// What people take of it while they ask.
    pub(super) places: Places,
    /// Tokens that a broker is asked about, by where they come from.
    strangers: Arc<Slots<IpAddr>>,
}

/// Somebody.
pub(super) struct Person {
    pub(super) via: Via,
    pub(super) name: Option<String>,
    /// Ends what is live when the sign-in does.
    pub(super) over: CancellationToken,
    principal: Arc<str>,
    tokens: TokenSource,
    client: OnceCell<Client>,
    used: Mutex<Instant>,
    /// What he was granted at brokers and at the control plane; his rights last as long as these are held.
    broker: Option<Granted>,
    controlplane: Option<Granted>,
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
            places: Places::default(),
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
                self.keep(key, Arc::new(person))
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
        let claims = Claims::read(token.reveal())?;
        self.may_come(&claims, seen)?;
        let key = key_of("token", &token.digest());
        if let Some(person) = self.known(&key) {
            return Ok(person);
        }
        let place = self
            .strangers
            .take(seen.ip, STRANGERS, STRANGERS_PER_ADDRESS);
        let _place = place.ok_or_else(|| Refusal::too_many("new tokens", STRANGERS_PER_ADDRESS))?;
        let principal = claims.principal.into();
        let person = Person::new(Via::Token, principal, TokenSource::fixed(token.reveal()));
        person.client(app, &app.config.namespace).await?;
        self.keep(key, Arc::new(person))
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
        // It counts over the certificate of whoever acts with it, and that is not whoever sent it here.
        if claims.actor().is_some() {
            let message = "this token was made for somebody who acts for its owner";
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
    /// before whoever signed in, and never takes his; nor do many tokens of one take the places of others.
    ///
    /// # Errors
    /// When there is none.
    fn keep(&self, key: [u8; 32], person: Arc<Person>) -> Result<Arc<Person>, Refusal> {
        let mut people = self.lock();
        if let Some(other) = people.get(&key).filter(|one| !one.over.is_cancelled()) {
            return Ok(Arc::clone(other));
        }
        people.retain(|_, person| {
            // Whoever looks on holds him as well.
            let idle = person.last_used().elapsed() > IDLE && Arc::strong_count(person) == 1;
            !idle && !person.over.is_cancelled()
        });
        let own = |one: &Person| one.via == Via::Token && one.principal == person.principal;
        let goes = if person.via == Via::Token
            && people.values().filter(|one| own(one)).count() >= TOKENS
        {
            oldest(&people, own)
        } else if people.len() >= PEOPLE {
            let goes = oldest(&people, |one| one.via == Via::Token);
            let goes = goes.or_else(|| match person.via {
                Via::Session => oldest(&people, |_| true),
                Via::Token => None,
            });
            let full = || Refusal::full("as many people as fit are here already");
            Some(goes.ok_or_else(full)?)
        } else {
            None
        };
        if let Some(goes) = goes {
            people.remove(&goes);
        }
        people.insert(key, Arc::clone(&person));
        Ok(person)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<[u8; 32], Arc<Person>>> {
        self.people.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who among some was not here for the longest.
fn oldest(
    people: &BTreeMap<[u8; 32], Arc<Person>>,
    among: impl Fn(&Person) -> bool,
) -> Option<[u8; 32]> {
    let among = people.iter().filter(|(_, one)| among(one));
    let oldest = among.min_by_key(|(_, one)| one.last_used());
    oldest.map(|(key, _)| *key)
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
    let principal = Arc::clone(&broker.principal);
    let mut person = Person::new(Via::Session, principal, broker.tokens.clone());
    let over = person.over.clone();
    person.name = name;
    person.broker = Some(broker);
    person.controlplane = api;
    person.watch = Some(tokio::spawn(async move {
        // An error means that the membership is gone, which is an end as well.
        let _ = ended.wait_for(Option::is_some).await;
        over.cancel();
    }));
    Ok(person)
}

/// The certificate that goes with somebody's tokens. A token that he brought is not the gateway's to vouch for.
fn certificate(via: Via, config: &Config) -> Option<(&Path, &Path)> {
    match via {
        Via::Session => config
            .client_cert
            .as_deref()
            .zip(config.client_key.as_deref()),
        Via::Token => None,
    }
}

fn key_of(kind: &str, what: &[u8; 32]) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(kind);
    digest.update(what);
    digest.finalize().into()
}

impl Person {
    fn new(via: Via, principal: Arc<str>, tokens: TokenSource) -> Self {
        Self {
            via,
            name: None,
            over: CancellationToken::new(),
            principal,
            tokens,
            client: OnceCell::new(),
            used: Mutex::new(Instant::now()),
            broker: None,
            controlplane: None,
            watch: None,
        }
    }

    /// Who he is, whatever he came in with.
    pub(super) fn principal(&self) -> Arc<str> {
        Arc::clone(&self.principal)
    }

    /// What his token says of him.
    pub(super) async fn claims(&self) -> Result<Claims, Refusal> {
        let token = self.tokens.token().await;
        let ended = || self.broker.as_ref().and_then(end_of);
        Claims::read(&token.map_err(|_| Refusal::no_token(ended()))?)
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
        if let Some((chain, key)) = certificate(self.via, config) {
            builder = builder.client_identity_files(chain, key);
        }
        Ok(builder.connect().await?)
    }

    /// The control plane, asked in his name; `None` when his token is not for it.
    pub(super) async fn api(&self, console: &Console) -> Result<Option<Api>, Refusal> {
        let Some(granted) = &self.controlplane else {
            return Ok(None);
        };
        match (granted.tokens.token().await, end_of(granted)) {
            (Ok(token), _) => Ok(Some(console.api.with_token(ApiToken::fixed(&token)))),
            // His roles gave him something there and do not any more.
            (Err(_), Some(Ended::Removed)) => Ok(None),
            (Err(_), ended) => Err(Refusal::no_token(ended)),
        }
    }

    fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn last_used(&self) -> Instant {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How what was granted ended, if it did.
fn end_of(granted: &Granted) -> Option<Ended> {
    *granted.ended().borrow()
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
        let name = format!("{via:?} {number}");
        kept(console, via, &name, &name).unwrap_or_default()
    }

    fn kept(
        console: &Console,
        via: Via,
        principal: &str,
        token: &str,
    ) -> Result<[u8; 32], Refusal> {
        let key = key_of("test", &Secret::new(token).digest());
        let person = Person::new(via, principal.into(), TokenSource::fixed("t"));
        console.keep(key, Arc::new(person)).map(|_| key)
    }

    #[test]
    fn many_tokens_of_one_person_take_nobodys_place_but_his_own() {
        let console = console();
        let ann = kept(&console, Via::Token, "ann", "ann's").unwrap();
        let first = kept(&console, Via::Token, "eve", "eve's").unwrap();
        for number in 0..2 * PEOPLE {
            kept(&console, Via::Token, "eve", &number.to_string()).unwrap();
        }
        assert!(console.known(&ann).is_some());
        assert!(console.known(&first).is_none());
        assert_eq!(console.lock().len(), TOKENS + 1);
    }

    #[tokio::test]
    async fn whose_token_cannot_be_renewed_now_is_not_signed_out() {
        let tokens = TokenSource::provider(|| async { Err::<String, _>("away") });
        let person = Person::new(Via::Session, "ann".into(), tokens);
        assert_eq!(person.claims().await.unwrap_err().code(), "unavailable");
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
        let stranger = kept(&console, Via::Token, "stranger", "stranger's");
        assert_eq!(stranger.unwrap_err().code(), "full");
        assert_eq!(console.lock().len(), PEOPLE);
    }

    #[test]
    fn the_gateways_certificate_goes_with_tokens_of_sign_ins_alone() {
        let config = Config {
            client_cert: Some("chain.pem".into()),
            client_key: Some("key.pem".into()),
            ..Config::default()
        };
        assert!(certificate(Via::Session, &config).is_some());
        assert_eq!(certificate(Via::Token, &config), None);
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
        let delegated = claims(r#","act":{"sub":"sa:gateway"}"#);
        let refused = console.may_come(&delegated, &seen(true)).unwrap_err();
        assert_eq!(refused.code(), "forbidden");
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
