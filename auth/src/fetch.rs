//! Fetching the documents of identity providers: the one place in this crate that talks to a network.
//!
//! A provider's URL was written by whoever administers a tenant, so the request must not become a way into the
//! operator's network. It goes to the address that was checked and to no other: names are resolved by a resolver that
//! gives out only allowed addresses, and the connection is made to those. Redirects are not followed and proxies are
//! not used, because both would choose another destination.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect;
use rustls::pki_types::CertificateDer;

use crate::oidc::{AddressRules, BadUrl, Fetch, FetchFailed, Fetched, check_url, is_allowed};

/// Time for a whole fetch, from the look-up of the name to the last byte.
const FETCH_TIME: Duration = Duration::from_secs(5);

/// Bytes of a document that are read. What the answer says of its length is not believed.
const DOCUMENT_BYTES_MAX: usize = 256 * 1024;

/// Fetches over HTTP. It trusts the authorities that the machine trusts.
#[derive(Debug)]
pub struct HttpFetch {
    rules: AddressRules,
    /// Further authorities.
    roots: Vec<CertificateDer<'static>>,
    names: Names,
    /// Made at the first fetch: reading the machine's authorities takes time that most processes never need.
    client: OnceLock<Result<reqwest::Client, FetchFailed>>,
}

impl HttpFetch {
    /// A fetcher for these rules.
    #[must_use]
    pub const fn new(rules: AddressRules) -> Self {
        Self::trusting(rules, Vec::new())
    }

    /// A fetcher that trusts further authorities.
    #[must_use]
    pub const fn trusting(rules: AddressRules, roots: Vec<CertificateDer<'static>>) -> Self {
        Self {
            rules,
            roots,
            names: Names::System,
            client: OnceLock::new(),
        }
    }

    /// A fetcher that knows the addresses of these hosts and of no others. What it gives out is checked as well.
    #[must_use]
    pub fn knowing(rules: AddressRules, hosts: BTreeMap<String, Vec<IpAddr>>) -> Self {
        Self {
            names: Names::Fixed(Arc::new(hosts)),
            ..Self::new(rules)
        }
    }

    /// Checks a URL as it is written and as its host resolves now. A name that does not resolve passes: it may later,
    /// and every fetch checks again.
    ///
    /// # Errors
    /// [`BadUrl`].
    pub async fn check(&self, text: &str) -> Result<(), BadUrl> {
        let url = check_url(text, self.rules)?;
        let host = url.host_str().unwrap_or_default();
        let found = tokio::time::timeout(FETCH_TIME, self.names.resolve(host)).await;
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

    fn client(&self) -> Result<reqwest::Client, FetchFailed> {
        self.client.get_or_init(|| self.make_client()).clone()
    }

    fn make_client(&self) -> Result<reqwest::Client, FetchFailed> {
        let no_client = |detail: String| FetchFailed::NoClient { detail };
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots.add_parsable_certificates(self.roots.iter().cloned());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| no_client(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .referer(false)
            .timeout(FETCH_TIME)
            .pool_max_idle_per_host(0)
            .dns_resolver(CheckedResolver {
                rules: self.rules,
                names: self.names.clone(),
            })
            .tls_backend_preconfigured(tls)
            .build()
            .map_err(|error| no_client(error.to_string()))
    }

    async fn fetch(&self, text: &str) -> Result<Vec<u8>, FetchFailed> {
        let url = check_url(text, self.rules)?;
        let mut response = self
            .client()?
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
#[derive(Clone, Debug)]
struct CheckedResolver {
    rules: AddressRules,
    names: Names,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let Self { rules, names } = self.clone();
        Box::pin(async move {
            let addresses = names.resolve(name.as_str()).await;
            let all_allowed = addresses.iter().all(|one| is_allowed(one.ip(), rules));
            if addresses.is_empty() || !all_allowed {
                return Err(NotAllowed.into());
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// Who knows the addresses of hosts.
#[derive(Clone, Debug)]
enum Names {
    System,
    Fixed(Arc<BTreeMap<String, Vec<IpAddr>>>),
}

impl Names {
    /// The addresses of a host; none when it has none.
    async fn resolve(&self, host: &str) -> Vec<SocketAddr> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = bare.parse::<IpAddr>() {
            return vec![SocketAddr::new(address, 0)];
        }
        match self {
            Self::System => tokio::net::lookup_host((host, 0))
                .await
                .map(Iterator::collect)
                .unwrap_or_default(),
            Self::Fixed(hosts) => {
                let found = hosts.get(host).into_iter().flatten();
                found.map(|one| SocketAddr::new(*one, 0)).collect()
            }
        }
    }
}
