//! Calling members over HTTP.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::{Client, StatusCode};
use rustls::{ClientConfig, RootCertStore};

use super::super::transport::{CallFailed, Calling, Peer, Transport};
use super::tls::{Renewed, TlsFiles};
use super::{MEMBER, MESSAGE_BYTES_MAX, PATH, PeerSecurity, TlsRefused, UNREAD};
use crate::limits::CERTIFICATES_PAUSE;

/// How long to wait for a connection.
const CONNECT_TIME: Duration = Duration::from_secs(2);

/// How long a connection is kept that nothing is sent on.
const IDLE_TIME: Duration = Duration::from_secs(20);

/// Calls the peer listeners of other members.
#[derive(Clone, Debug)]
pub struct HttpTransport {
    member: u64,
    security: PeerSecurity,
    /// One for each member: with certificates each is known by another name.
    clients: Arc<Mutex<BTreeMap<u64, Made>>>,
}

/// A client for one member.
#[derive(Debug)]
enum Made {
    Plain(Client),
    Encrypted(Renewed<Client>),
}

impl Made {
    fn new(member: u64, tls: Option<&TlsFiles>) -> Result<Self, TlsRefused> {
        match tls {
            None => Ok(Self::Plain(with(plain()?)?)),
            Some(files) => {
                let made = Renewed::new(files.clone(), CERTIFICATES_PAUSE, encrypted(member));
                Ok(Self::Encrypted(made?))
            }
        }
    }

    fn client(&self, member: u64) -> Client {
        match self {
            Self::Plain(client) => client.clone(),
            Self::Encrypted(client) => client.get(encrypted(member)),
        }
    }
}

fn encrypted(member: u64) -> impl FnOnce(&TlsFiles) -> Result<Client, TlsRefused> {
    move |files| with(files.client(member)?)
}

fn with(config: ClientConfig) -> Result<Client, TlsRefused> {
    Client::builder()
        .tls_backend_preconfigured(config)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIME)
        // The listener closes what is idle a little later; whoever closes first cuts off no message.
        .pool_idle_timeout(IDLE_TIME)
        .build()
        .map_err(|error| TlsRefused::Together(error.to_string()))
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
        let made = match clients.remove(&member) {
            Some(made) => made,
            None => Made::new(member, self.security.tls.as_ref())?,
        };
        let client = made.client(member);
        clients.insert(member, made);
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
            let detail = format!("it answered {status}");
            // Only the listener itself knows that it did not look at the message: what stands in between may have handed
            // it on, and a listener that ran out of time has.
            return Err(match response.headers().contains_key(UNREAD) {
                true => unreachable(detail),
                false => CallFailed::Lost { member, detail },
            });
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn only_a_refusal_of_the_listener_itself_says_that_nothing_was_done() {
        let answered = async |answer: &'static str| {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 4096]).await;
                stream.write_all(answer.as_bytes()).await.unwrap();
            });
            let transport = HttpTransport::new(1, PeerSecurity::default()).unwrap();
            let peer = Peer { member: 2, address };
            let wait = Duration::from_secs(30);
            transport.call(&peer, Bytes::from_static(b"x"), wait).await
        };
        let unread = "HTTP/1.1 503 Busy\r\nx-felix-unread: 1\r\ncontent-length: 0\r\n\r\n";
        let unread = answered(unread).await;
        assert!(matches!(unread, Err(CallFailed::Unreachable { .. })));
        for status in ["408 Late", "502 Bad", "503 Busy", "504 Late", "500 Broken"] {
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
            let lost = answered(answer.leak()).await;
            assert!(matches!(lost, Err(CallFailed::Lost { .. })), "{status}");
        }
    }
}
