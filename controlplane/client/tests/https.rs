//! Calls through TLS, against the smallest server there can be.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use felix_controlplane_client::{Api, CallFailed, TokenSource};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

#[tokio::test]
async fn an_https_control_plane_is_trusted_by_its_own_root_and_by_no_other() {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let url = format!("https://localhost:{}", serve(&own).port());
    let ready = |roots: String| {
        let api = Api::trusting(&url, TokenSource::None, roots.as_bytes()).unwrap();
        async move { api.ready().await }
    };
    assert_eq!(ready(own.cert.pem()).await, Ok(()));
    let refused = ready(other.cert.pem()).await.unwrap_err();
    assert!(
        matches!(refused, CallFailed::Unreachable { .. }),
        "{refused}"
    );
}

/// Answers every request on every connection with 200 and an empty object.
fn serve(own: &rcgen::CertifiedKey<rcgen::KeyPair>) -> SocketAddr {
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let Ok(session) = ServerConnection::new(Arc::clone(&config)) else {
                continue;
            };
            let mut stream = StreamOwned::new(session, socket);
            let mut request = [0; 4096];
            if stream.read(&mut request).is_ok() {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
                let _ = stream.write_all(answer);
            }
        }
    });
    address
}
