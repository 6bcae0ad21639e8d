//! Fetching the documents of identity providers: the one place in this crate that talks to a network.
//!
//! A provider's URL was written by whoever administers a tenant, so the request must not become a way into the
//! operator's network. It goes to the address that was checked and to no other: names are resolved by a resolver that
//! gives out only allowed addresses, and the connection is made to those. Redirects are not followed and proxies are
//! not used, because both would choose another destination.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect;

use crate::oidc::{AddressRules, BadUrl, Fetch, FetchFailed, Fetched, check_url, is_allowed};

/// Time for a whole fetch, from the look-up of the name to the last byte.
const FETCH_TIME: Duration = Duration::from_secs(5);

/// Bytes of a document that are read. What the answer says of its length is not believed.
const DOCUMENT_BYTES_MAX: usize = 256 * 1024;

/// Fetches over HTTP.
#[derive(Clone, Debug)]
pub struct HttpFetch {
    client: reqwest::Client,
    rules: AddressRules,
}

/// Why nothing can be fetched at all.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client could not be made: {0}")]
pub struct NoClient(#[from] reqwest::Error);

impl HttpFetch {
    /// A fetcher for these rules. A TLS provider must have been chosen for the process.
    ///
    /// # Errors
    /// [`NoClient`] when the machine has no certificates to trust, for example.
    pub fn new(rules: AddressRules) -> Result<Self, NoClient> {
        let client = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .referer(false)
            .timeout(FETCH_TIME)
            .pool_max_idle_per_host(0)
            .dns_resolver(CheckedResolver { rules })
            .build()?;
        Ok(Self { client, rules })
    }

    /// Checks a URL as it is written and as its host resolves now. A name that does not resolve passes: it may later,
    /// and every fetch checks again.
    ///
    /// # Errors
    /// [`BadUrl`].
    pub async fn check(&self, text: &str) -> Result<(), BadUrl> {
        let url = check_url(text, self.rules)?;
        let host = url.host_str().unwrap_or_default();
        let found = tokio::time::timeout(FETCH_TIME, resolved(host)).await;
        let addresses = found.unwrap_or_default();
        if addresses.iter().all(|one| is_allowed(one.ip(), self.rules)) {
            return Ok(());
        }
        Err(BadUrl::Address)
    }

    /// What addresses are allowed.
    #[must_use]
    pub const fn rules(&self) -> AddressRules {
        self.rules
    }

    async fn fetch(&self, text: &str) -> Result<Vec<u8>, FetchFailed> {
        let url = check_url(text, self.rules)?;
        let mut response = self
            .client
            .get(url)
            .header("accept", "application/json")
            .send()
            .await
            .map_err(|error| failed(&error))?;
        let status = response.status();
        if status != reqwest::StatusCode::OK {
            return Err(FetchFailed::Status(status.as_u16()));
        }
        let mut document = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| failed(&error))? {
            if document.len() + chunk.len() > DOCUMENT_BYTES_MAX {
                return Err(FetchFailed::TooLarge {
                    limit: DOCUMENT_BYTES_MAX,
                });
            }
            document.extend_from_slice(&chunk);
        }
        Ok(document)
    }
}

impl Fetch for HttpFetch {
    fn get<'a>(&'a self, url: &'a str) -> Fetched<'a> {
        Box::pin(self.fetch(url))
    }
}

fn failed(error: &reqwest::Error) -> FetchFailed {
    if error.is_timeout() {
        return FetchFailed::Timeout {
            seconds: FETCH_TIME.as_secs(),
        };
    }
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(one) = cause {
        if one.is::<NotAllowed>() {
            return FetchFailed::Address;
        }
        cause = one.source();
    }
    FetchFailed::Unreachable
}

/// A host has no address, or one that is not allowed.
#[derive(Debug, thiserror::Error)]
#[error("the host has no address that may be connected to")]
struct NotAllowed;

/// Resolves names to addresses that may be connected to. One address that may not is enough to refuse the host: a name
/// with both is made to slip through.
#[derive(Clone, Copy, Debug)]
struct CheckedResolver {
    rules: AddressRules,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let rules = self.rules;
        Box::pin(async move {
            let addresses = resolved(name.as_str()).await;
            let all_allowed = addresses.iter().all(|one| is_allowed(one.ip(), rules));
            if addresses.is_empty() || !all_allowed {
                return Err(NotAllowed.into());
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// The addresses of a host; none when it has none.
async fn resolved(host: &str) -> Vec<SocketAddr> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<IpAddr>() {
        return vec![SocketAddr::new(address, 0)];
    }
    tokio::net::lookup_host((host, 0))
        .await
        .map(Iterator::collect)
        .unwrap_or_default()
}
