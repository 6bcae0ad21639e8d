//! An identity provider on a free port of this machine, with keys of its own, that also misbehaves when it is told to.

#![allow(
    dead_code,
    reason = "two test programs share this, and neither uses all of it"
)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey};
use rsa::pkcs1::EncodeRsaPrivateKey;
use rsa::rand_core::{TryCryptoRng, TryRng};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// How the key set is answered.
#[derive(Clone, Debug, Default)]
pub(crate) enum Mood {
    /// As it should be.
    #[default]
    Good,
    /// With a redirect to there.
    Redirect(String),
    /// With this status and the good body.
    Status(u16),
    /// With this many bytes and no word about how many they are.
    Huge(usize),
    /// With this text.
    Text(String),
    /// Not at all; the connection stays open.
    Silent,
}

pub(crate) struct Idp {
    /// Its name, an `http` URL, or `https` if it was started with a certificate.
    pub(crate) issuer: String,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    issuer: Mutex<String>,
    keys: Mutex<Vec<Value>>,
    mood: Mutex<Mood>,
    discoveries: AtomicUsize,
    key_fetches: AtomicUsize,
    others: AtomicUsize,
}

impl Idp {
    pub(crate) async fn start(keys: &[&Key]) -> Self {
        Self::serve(keys, None).await
    }

    /// As [`Idp::start`], over TLS.
    pub(crate) async fn start_tls(keys: &[&Key], tls: rustls::ServerConfig) -> Self {
        Self::serve(keys, Some(TlsAcceptor::from(Arc::new(tls)))).await
    }

    async fn serve(keys: &[&Key], tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let own = format!("{scheme}://{}", listener.local_addr().unwrap());
        let issuer = own.clone();
        let state = Arc::new(State::default());
        state.issuer.lock().unwrap().clone_from(&issuer);
        let idp = Self { issuer, state };
        idp.publish(keys);
        let state = Arc::clone(&idp.state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (state, tls, own) = (Arc::clone(&state), tls.clone(), own.clone());
                tokio::spawn(async move {
                    match tls {
                        None => answer(stream, &own, &state).await,
                        Some(tls) => {
                            // Who does not trust the certificate is gone.
                            if let Ok(stream) = tls.accept(stream).await {
                                answer(stream, &own, &state).await;
                            }
                        }
                    }
                });
            }
        });
        idp
    }

    /// Replaces the published keys.
    pub(crate) fn publish(&self, keys: &[&Key]) {
        *self.state.keys.lock().unwrap() = keys.iter().map(|key| key.jwk.clone()).collect();
    }

    pub(crate) fn behave(&self, mood: Mood) {
        *self.state.mood.lock().unwrap() = mood;
    }

    /// Lets the discovery document name another issuer.
    pub(crate) fn call_itself(&self, issuer: &str) {
        issuer.clone_into(&mut self.state.issuer.lock().unwrap());
    }

    /// How often the key set was fetched.
    pub(crate) fn key_fetches(&self) -> usize {
        self.state.key_fetches.load(Ordering::SeqCst)
    }

    /// How often the discovery document was fetched.
    pub(crate) fn discoveries(&self) -> usize {
        self.state.discoveries.load(Ordering::SeqCst)
    }

    /// How often anything else was asked for.
    pub(crate) fn other_requests(&self) -> usize {
        self.state.others.load(Ordering::SeqCst)
    }

    /// Claims of a good token for `app`, minted at `now` (unix seconds).
    pub(crate) fn claims(&self, subject: &str, now: u64) -> Value {
        json!({
            "iss": self.issuer,
            "aud": "app",
            "sub": subject,
            "iat": now,
            "exp": now + 600,
        })
    }
}

/// A key pair of a provider.
pub(crate) struct Key {
    pub(crate) kid: String,
    pub(crate) jwk: Value,
    algorithm: Algorithm,
    encoding: EncodingKey,
}

impl Key {
    /// A new P-256 key.
    pub(crate) fn ec(kid: &str) -> Self {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let encoding = EncodingKey::from_ec_der(&pair.serialize_der());
        Self::of(kid, Algorithm::ES256, encoding)
    }

    /// An RSA key. One pair serves the whole process, because making one takes seconds.
    pub(crate) fn rsa(kid: &str, algorithm: Algorithm) -> Self {
        static PAIR: LazyLock<Vec<u8>> = LazyLock::new(|| {
            #[expect(deprecated, reason = "it is old only where side channels matter")]
            let key = rsa::RsaPrivateKey::new(&mut Os, 2048).unwrap();
            key.to_pkcs1_der().unwrap().as_bytes().to_vec()
        });
        Self::of(kid, algorithm, EncodingKey::from_rsa_der(&PAIR))
    }

    fn of(kid: &str, algorithm: Algorithm, encoding: EncodingKey) -> Self {
        let jwk = jsonwebtoken::jwk::Jwk::from_encoding_key(&encoding, algorithm).unwrap();
        let mut jwk = serde_json::to_value(jwk).unwrap();
        jwk["kid"] = json!(kid);
        jwk["use"] = json!("sig");
        Self {
            kid: kid.into(),
            jwk,
            algorithm,
            encoding,
        }
    }

    /// The header of a good token.
    pub(crate) fn header(&self) -> Value {
        json!({"alg": format!("{:?}", self.algorithm), "kid": self.kid, "typ": "JWT"})
    }

    /// Signs whatever it is given.
    pub(crate) fn sign_with(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature =
            jsonwebtoken::crypto::sign(signed.as_bytes(), &self.encoding, self.algorithm).unwrap();
        format!("{signed}.{signature}")
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        self.sign_with(&self.header(), claims)
    }
}

/// The operating system's randomness, as the RSA crate wants it.
struct Os;

impl TryRng for Os {
    type Error = std::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        Ok(getrandom::u32().unwrap())
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        Ok(getrandom::u64().unwrap())
    }

    fn try_fill_bytes(&mut self, into: &mut [u8]) -> Result<(), Self::Error> {
        getrandom::fill(into).unwrap();
        Ok(())
    }
}

impl TryCryptoRng for Os {}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, own: &str, state: &State) {
    let mut request = Vec::new();
    let mut chunk = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut chunk).await {
            Ok(length) if length > 0 => request.extend_from_slice(&chunk[..length]),
            _ => return,
        }
    }
    let text = String::from_utf8_lossy(&request);
    let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
    let issuer = state.issuer.lock().unwrap().clone();
    let response = match path.as_str() {
        "/.well-known/openid-configuration" => {
            state.discoveries.fetch_add(1, Ordering::SeqCst);
            let document = json!({"issuer": issuer, "jwks_uri": format!("{own}/keys")});
            http(200, &document.to_string())
        }
        "/keys" => {
            state.key_fetches.fetch_add(1, Ordering::SeqCst);
            let keys = json!({ "keys": *state.keys.lock().unwrap() }).to_string();
            let mood = state.mood.lock().unwrap().clone();
            match mood {
                Mood::Good => http(200, &keys),
                Mood::Status(status) => http(status, &keys),
                Mood::Text(text) => http(200, &text),
                Mood::Redirect(to) => {
                    format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n")
                }
                Mood::Huge(bytes) => {
                    let body = format!("{{\"keys\":[],\"x\":\"{}\"}}", "x".repeat(bytes));
                    format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{body}")
                }
                Mood::Silent => {
                    // Until the other side gives up.
                    let _ = stream.read(&mut chunk).await;
                    return;
                }
            }
        }
        _ => {
            state.others.fetch_add(1, Ordering::SeqCst);
            http(404, "{}")
        }
    };
    let _ = stream.write_all(response.as_bytes()).await;
    let _ = stream.shutdown().await;
}

fn http(status: u16, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}
