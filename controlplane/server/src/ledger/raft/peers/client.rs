//! Calling members over HTTP.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::{Client, StatusCode};
use rustls::{ClientConfig, RootCertStore};

use super::super::transport::{CallFailed, Calling, Peer, Transport};
use super::{MEMBER, MESSAGE_BYTES_MAX, PATH, PeerSecurity, TlsRefused};

/// How long to wait for a connection.
const CONNECT_TIME: Duration = Duration::from_secs(2);

/// Calls the peer listeners of other members.
#[derive(Clone, Debug)]
pub struct HttpTransport {
    member: u64,
    security: PeerSecurity,
    /// One for each member: with certificates each is known by another name.
    clients: Arc<Mutex<BTreeMap<u64, Client>>>,
}

impl HttpTransport {
    /// The way from a member to the others.
    ///
    /// # Errors
    /// [`TlsRefused`] when its certificates cannot be used.
    pub fn new(member: u64, security: PeerSecurity) -> Result<Self, TlsRefused> {
        let transport = Self {
            member,
            security,
            clients: Arc::default(),
        };
        // What is wrong with the files is better said now than at the first call.
        transport.client(member)?;
        Ok(transport)
    }

    fn client(&self, member: u64) -> Result<Client, TlsRefused> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&member) {
            return Ok(client.clone());
        }
        let config = match &self.security.tls {
            Some(files) => files.client(member)?,
            None => plain()?,
        };
        let client = Client::builder()
            .tls_backend_preconfigured(config)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIME)
            .build()
            .map_err(|error| TlsRefused::Together(error.to_string()))?;
        clients.insert(member, client.clone());
        Ok(client)
    }

    async fn send(
        &self,
        to: &Peer,
        message: Bytes,
        deadline: Duration,
    ) -> Result<Bytes, CallFailed> {
        let member = to.member;
        let unreachable = |detail: String| CallFailed::Unreachable { member, detail };
        let lost = |error: reqwest::Error| CallFailed::Lost {
            member,
            detail: error.without_url().to_string(),
        };
        let client = self
            .client(member)
            .map_err(|error| unreachable(error.to_string()))?;
        let scheme = if self.security.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let mut request = client
            .post(format!("{scheme}://{}{PATH}", to.address))
            .timeout(deadline)
            .header(MEMBER, self.member)
            .body(message);
        if let Some(token) = &self.security.token {
            request = request.header("authorization", token.header());
        }
        let mut response = request
            .send()
            .await
            .map_err(|error| match error.is_connect() {
                true => unreachable(error.without_url().to_string()),
                false => lost(error),
            })?;
        let status = response.status();
        if status != StatusCode::OK {
            // Refused before the message was looked at.
            return Err(unreachable(format!("it answered {status}")));
        }
        let mut answer = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(lost)? {
            if answer.len() + chunk.len() > MESSAGE_BYTES_MAX {
                let detail = format!("its answer has more than {MESSAGE_BYTES_MAX} bytes");
                return Err(CallFailed::Lost { member, detail });
            }
            answer.extend_from_slice(&chunk);
        }
        Ok(answer.freeze())
    }
}

/// For calls that are not encrypted; nothing is trusted with it.
fn plain() -> Result<ClientConfig, TlsRefused> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsRefused::Together(error.to_string()))?;
    Ok(config
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth())
}

impl Transport for HttpTransport {
    fn call(&self, to: &Peer, message: Bytes, deadline: Duration) -> Calling<'_> {
        let to = to.clone();
        Box::pin(async move { self.send(&to, message, deadline).await })
    }
}
