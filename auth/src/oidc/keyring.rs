//! The documents of identity providers as they are kept and looked at again.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::algorithm::Algorithms;
use super::jwks::{BadDocument, Discovery, IssuerKeys};
use super::token::{Trust, UpstreamRefused, UpstreamToken, Vouched};
use super::url::BadUrl;

/// How long a document is used before it is looked at again.
const FRESH: Duration = Duration::from_secs(300);

/// Shortest time between two fetches of one URL, whatever came of the first. A forged token with a made-up key id costs
/// at most one fetch in this time.
const BETWEEN_FETCHES: Duration = Duration::from_secs(30);

/// How long a document is used while its provider cannot be reached.
const STALE_MAX: Duration = Duration::from_secs(3600);

/// URLs whose documents are kept. Only URLs of registered issuers get here.
const URLS_MAX: usize = 256;

/// What a fetch comes to, some time.
pub type Fetched<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, FetchFailed>> + Send + 'a>>;

/// Gets documents. The implementation bounds size and time, and decides which addresses it connects to.
pub trait Fetch: fmt::Debug + Send + Sync + 'static {
    /// Gets the document at a URL.
    fn get<'a>(&'a self, url: &'a str) -> Fetched<'a>;
}

/// Why a document could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchFailed {
    /// Its URL is not one that is fetched.
    #[error(transparent)]
    Url(#[from] BadUrl),
    /// Its host has an address that is not allowed, or none.
    #[error("the host of the URL has no address that may be connected to")]
    Address,
    /// The host answered something else than 200. Redirects are answers like any other.
    #[error("the provider answered with status {0}")]
    Status(u16),
    /// The document is larger than is read.
    #[error("the document is larger than {limit} bytes")]
    TooLarge {
        /// Bytes that are read.
        limit: usize,
    },
    /// It took too long.
    #[error("the provider did not answer within {seconds} s")]
    Timeout {
        /// Seconds given to it.
        seconds: u64,
    },
    /// The HTTP client could not be made.
    #[error("no HTTP client: {detail}")]
    NoClient {
        /// What happened.
        detail: String,
    },
    /// No connection, or it broke.
    #[error("the provider could not be reached")]
    Unreachable,
}

/// Why an issuer's keys are not to be had at the moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysUnavailable {
    /// A document could not be fetched.
    #[error("{0}")]
    Fetch(#[from] FetchFailed),
    /// A document was fetched and cannot be used.
    #[error("{0}")]
    Document(#[from] BadDocument),
    /// The fetch ended without an outcome.
    #[error("the fetch was cut off")]
    CutOff,
}

/// Why nobody was vouched for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyFailed {
    /// The token is not good.
    #[error(transparent)]
    Refused(#[from] UpstreamRefused),
    /// Whether it is good cannot be said now. Trying again later may help.
    #[error("the issuer's keys cannot be had now: {0}")]
    Unavailable(#[from] KeysUnavailable),
}

/// Verifies providers' tokens with keys that it fetches and keeps.
#[derive(Clone, Debug)]
pub struct Verifier {
    discoveries: Arc<Documents<Discovery>>,
    keys: Arc<Documents<IssuerKeys>>,
}

impl Verifier {
    /// A verifier that has fetched nothing yet.
    #[must_use]
    pub fn new(fetch: Arc<dyn Fetch>, algorithms: Algorithms) -> Self {
        let discoveries = Documents::new(Arc::clone(&fetch), Discovery::read);
        let keys = Documents::new(fetch, move |bytes| IssuerKeys::read(bytes, &algorithms));
        Self {
            discoveries: Arc::new(discoveries),
            keys: Arc::new(keys),
        }
    }

    /// Decides whom the trusted issuer vouches for with this token. `at` is the monotonic time, by which documents age.
    /// A key id that is not in the set is looked for once more in a newer one, if the last fetch is not too recent.
    ///
    /// # Errors
    /// [`VerifyFailed`].
    pub async fn verify(
        &self,
        token: &UpstreamToken,
        trust: &Trust<'_>,
        at: Instant,
    ) -> Result<Vouched, VerifyFailed> {
        let url = self.keys_url(trust, at).await?;
        let seen = self.keys.get(&url, Need::Fresh, at).await?;
        let vouched = token.vouch(trust, &seen.document);
        if vouched != Err(UpstreamRefused::UnknownKey) {
            return Ok(vouched?);
        }
        let newer = self.keys.get(&url, Need::After(seen.version), at).await?;
        if newer.version == seen.version {
            return Err(UpstreamRefused::UnknownKey.into());
        }
        Ok(token.vouch(trust, &newer.document)?)
    }

    async fn keys_url(&self, trust: &Trust<'_>, at: Instant) -> Result<String, KeysUnavailable> {
        if let Some(url) = trust.jwks_url {
            return Ok(url.to_owned());
        }
        let url = trust.discovery_url.map_or_else(
            || {
                let base = trust.issuer.strip_suffix('/').unwrap_or(trust.issuer);
                format!("{base}/.well-known/openid-configuration")
            },
            str::to_owned,
        );
        let seen = self.discoveries.get(&url, Need::Fresh, at).await?;
        Ok(seen.document.keys_url_of(trust.issuer)?.to_owned())
    }
}

type Parse<T> = dyn Fn(&[u8]) -> Result<T, BadDocument> + Send + Sync;

/// Documents of one kind, by URL.
struct Documents<T> {
    fetch: Arc<dyn Fetch>,
    parse: Arc<Parse<T>>,
    slots: Mutex<BTreeMap<String, Arc<AsyncMutex<Slot<T>>>>>,
}

impl<T> fmt::Debug for Documents<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Documents").finish_non_exhaustive()
    }
}

/// What is wanted of a document.
#[derive(Clone, Copy)]
enum Need {
    /// One that is not too old.
    Fresh,
    /// One that is newer than this version, if it can be had.
    After(u64),
}

/// A document, and which of its URL it is.
struct Seen<T> {
    version: u64,
    document: Arc<T>,
}

impl<T: Send + Sync + 'static> Documents<T> {
    fn new(
        fetch: Arc<dyn Fetch>,
        parse: impl Fn(&[u8]) -> Result<T, BadDocument> + Send + Sync + 'static,
    ) -> Self {
        Self {
            fetch,
            parse: Arc::new(parse),
            slots: Mutex::default(),
        }
    }

    /// Whoever comes while a document is being fetched waits for that fetch, and takes what comes of it.
    async fn get(&self, url: &str, need: Need, at: Instant) -> Result<Seen<T>, KeysUnavailable> {
        let mut slot = self.slot(url, at).lock_owned().await;
        if let Some(answer) = slot.answer(need, at) {
            return answer;
        }
        slot.tried_at = Some(at);
        // A task of its own: a caller who hangs up must not cut off the fetch that others wait for.
        let fetching = fetch_into(
            slot,
            Arc::clone(&self.fetch),
            Arc::clone(&self.parse),
            url.to_owned(),
            at,
        );
        tokio::spawn(fetching)
            .await
            .unwrap_or(Err(KeysUnavailable::CutOff))
    }

    fn slot(&self, url: &str, at: Instant) -> Arc<AsyncMutex<Slot<T>>> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() >= URLS_MAX && !slots.contains_key(url) {
            // A slot that was fetched lately stays, so that filling the table does not make fetches more frequent.
            slots.retain(|_, slot| {
                slot.try_lock()
                    .map_or(true, |slot| slot.is_within(BETWEEN_FETCHES, at))
            });
        }
        Arc::clone(slots.entry(url.to_owned()).or_default())
    }
}

async fn fetch_into<T>(
    mut slot: OwnedMutexGuard<Slot<T>>,
    fetch: Arc<dyn Fetch>,
    parse: Arc<Parse<T>>,
    url: String,
    at: Instant,
) -> Result<Seen<T>, KeysUnavailable> {
    let outcome = match fetch.get(&url).await {
        Ok(bytes) => parse(&bytes).map_err(KeysUnavailable::from),
        Err(failed) => Err(failed.into()),
    };
    slot.settle(outcome, at)
}

struct Slot<T> {
    tried_at: Option<Instant>,
    version: u64,
    got: Option<(Instant, Arc<T>)>,
    failed: Option<KeysUnavailable>,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self {
            tried_at: None,
            version: 0,
            got: None,
            failed: None,
        }
    }
}

impl<T> Slot<T> {
    /// The answer that needs no fetch; [`None`] when a fetch is due.
    fn answer(&self, need: Need, at: Instant) -> Option<Result<Seen<T>, KeysUnavailable>> {
        let held = self.held(at);
        let serves = held.as_ref().is_some_and(|_| match need {
            Need::Fresh => self.age(at).is_some_and(|age| age < FRESH),
            Need::After(version) => self.version > version,
        });
        if !serves && !self.is_within(BETWEEN_FETCHES, at) {
            return None;
        }
        let missing = || self.failed.clone().unwrap_or(KeysUnavailable::CutOff);
        Some(held.ok_or_else(missing))
    }

    fn settle(
        &mut self,
        outcome: Result<T, KeysUnavailable>,
        at: Instant,
    ) -> Result<Seen<T>, KeysUnavailable> {
        match outcome {
            Ok(document) => {
                self.version += 1;
                self.got = Some((at, Arc::new(document)));
                self.failed = None;
            }
            Err(failed) => self.failed = Some(failed),
        }
        let missing = || self.failed.clone().unwrap_or(KeysUnavailable::CutOff);
        self.held(at).ok_or_else(missing)
    }

    /// The document, unless it is too old to be used at all.
    fn held(&self, at: Instant) -> Option<Seen<T>> {
        let (_, document) = self.got.as_ref()?;
        (self.age(at)? < STALE_MAX).then(|| Seen {
            version: self.version,
            document: Arc::clone(document),
        })
    }

    fn age(&self, at: Instant) -> Option<Duration> {
        let (got_at, _) = self.got.as_ref()?;
        Some(at.saturating_duration_since(*got_at))
    }

    /// Whether the last fetch began within this time.
    fn is_within(&self, time: Duration, at: Instant) -> bool {
        self.tried_at
            .is_some_and(|tried| at.saturating_duration_since(tried) < time)
    }
}
