//! One HTTP call to the provider: bounded in time and bytes, to where it was sent and nowhere else.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use openidconnect::{AsyncHttpClient, HttpRequest, HttpResponse};
use rustls::pki_types::CertificateDer;

/// Time for a whole call.
const CALL_TIME: Duration = Duration::from_secs(5);
/// Bytes of an answer that are taken. What it says of its own length is not believed.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpFailed {
    /// It was not reached, or did not answer in time.
    #[error("no answer: {0}")]
    NoAnswer(String),
    /// It answers too much.
    #[error("an answer over {limit} bytes")]
    TooLarge {
        /// Bytes allowed.
        limit: usize,
    },
}

/// Calls the provider.
#[derive(Clone, Debug)]
pub(super) struct Http(reqwest::Client);

impl Http {
    /// Trusts the machine's authorities and these.
    ///
    /// # Errors
    /// When no client can be made.
    pub(super) fn new(roots: &[CertificateDer<'static>]) -> Result<Self, reqwest::Error> {
        let mut store = rustls::RootCertStore::empty();
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        store.add_parsable_certificates(roots.iter().cloned());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .referer(false)
            .timeout(CALL_TIME);
        let versions = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions();
        if let Ok(versions) = versions {
            let tls = versions.with_root_certificates(store).with_no_client_auth();
            builder = builder.tls_backend_preconfigured(tls);
        }
        builder.build().map(Self)
    }

    /// Carries out one request of the library.
    async fn carry_out(&self, request: HttpRequest) -> Result<HttpResponse, HttpFailed> {
        // The error's text would repeat the URL, which may hold what nobody else is to see.
        let failed = |error: reqwest::Error| HttpFailed::NoAnswer(error.without_url().to_string());
        let request = reqwest::Request::try_from(request).map_err(failed)?;
        let mut answer = self.0.execute(request).await.map_err(failed)?;
        let status = answer.status();
        // It, or somebody before it, says that it cannot answer now; that is no verdict on anybody.
        if status.is_server_error() || status.as_u16() == 429 {
            return Err(HttpFailed::NoAnswer(format!("status {status}")));
        }
        let mut response = openidconnect::http::Response::new(Vec::new());
        *response.status_mut() = status;
        std::mem::swap(response.headers_mut(), answer.headers_mut());
        while let Some(chunk) = answer.chunk().await.map_err(failed)? {
            let body = response.body_mut();
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(HttpFailed::TooLarge {
                    limit: ANSWER_BYTES_MAX,
                });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(response)
    }
}

impl<'c> AsyncHttpClient<'c> for Http {
    type Error = HttpFailed;
    type Future = BoxFuture<'c, Result<HttpResponse, HttpFailed>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        self.carry_out(request).boxed()
    }
}
