//! Connections that are slow, large or encrypted.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_rustls::TlsConnector;

use super::*;
use crate::authority::Authority;
use crate::config::Config;
use crate::http::api_router;
use crate::ledger::MemoryLedger;

const REQUEST: &str = "GET /v1/system/live HTTP/1.1\r\nhost: felix\r\n";

#[tokio::test(start_paused = true)]
async fn a_head_that_never_ends_is_given_up() {
    let (mut caller, served) = open();
    caller.write_all(REQUEST.as_bytes()).await.unwrap();
    assert_eq!(served.await.unwrap(), Err("slow_request"));
    assert_eq!(all(&mut caller).await, "");
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_is_not_waited_for() {
    let (_caller, served) = open();
    let began = tokio::time::Instant::now();
    assert_eq!(served.await.unwrap(), Err("slow_request"));
    assert_eq!(began.elapsed().as_secs(), FIRST_REQUEST_TIME.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_trickle_of_headers_does_not_make_the_time_longer() {
    let (mut caller, served) = open();
    caller.write_all(REQUEST.as_bytes()).await.unwrap();
    let trickle = async {
        for n in 0.. {
            let header = format!("x-{n}: y\r\n");
            if caller.write_all(header.as_bytes()).await.is_err() {
                return n;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        0
    };
    let (written, served) = tokio::join!(trickle, served);
    assert_eq!(served.unwrap(), Err("slow_request"));
    assert!(written <= FIRST_REQUEST_TIME.as_secs() + 1, "{written}");
}

#[tokio::test(start_paused = true)]
async fn a_second_head_that_never_ends_is_given_up_too() {
    let (mut caller, served) = open();
    let whole = format!("{REQUEST}\r\n");
    caller.write_all(whole.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    caller.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    caller.write_all(REQUEST.as_bytes()).await.unwrap();
    let ended = served.await.unwrap();
    assert!(matches!(ended, Err("idle") | Ok(())), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_answered_without_it() {
    let (mut caller, _served) = open();
    let head = "POST /v1/tenants HTTP/1.1\r\nhost: felix\r\nconnection: close\r\n\
                content-length: 100\r\n\r\n{";
    caller.write_all(head.as_bytes()).await.unwrap();
    let answer = all(&mut caller).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("\"code\":\"validation_error\""), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn too_many_headers_and_too_large_ones_are_refused_before_they_are_kept() {
    let many: String = (0..1000).map(|n| format!("x-{n}: y\r\n")).collect();
    let large = format!("x-large: {}\r\n", "y".repeat(HEAD_BYTES_MAX));
    for headers in [many, large] {
        let (mut caller, served) = open();
        let request = format!("{REQUEST}{headers}\r\n");
        // It is refused, and closed, before all of it is written.
        let _ = caller.write_all(request.as_bytes()).await;
        let answer = all(&mut caller).await;
        assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
        assert_eq!(served.await.unwrap(), Err("malformed"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_over_the_limit_is_refused_by_its_announced_length() {
    let (mut caller, _served) = open();
    let head = "POST /v1/tenants HTTP/1.1\r\nhost: felix\r\nconnection: close\r\n\
                content-length: 2147483647\r\n\r\n";
    caller.write_all(head.as_bytes()).await.unwrap();
    let answer = all(&mut caller).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test]
async fn a_new_certificate_is_shown_from_the_next_connection_on() {
    let dir = TempDir::new().unwrap();
    let first = write(dir.path(), 1);
    let certificates = read(dir.path(), false).unwrap();
    assert!(shakes_hands(&certificates, &first, &first).await);
    let second = write(dir.path(), 2);
    certificates.refresh();
    assert!(shakes_hands(&certificates, &second, &second).await);
    assert!(!shakes_hands(&certificates, &first, &first).await);
    std::fs::write(dir.path().join("key.pem"), "nonsense").unwrap();
    certificates.refresh();
    let reason = "files that cannot be used leave what is";
    assert!(
        shakes_hands(&certificates, &second, &second).await,
        "{reason}"
    );
}

#[tokio::test]
async fn who_must_show_a_certificate_of_a_certain_authority_is_refused_without() {
    let dir = TempDir::new().unwrap();
    let own = write(dir.path(), 1);
    let stranger = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificates = read(dir.path(), true).unwrap();
    assert!(shakes_hands(&certificates, &own, &own).await);
    assert!(!shakes_hands(&certificates, &own, &stranger).await);
}

#[test]
fn files_that_are_no_certificate_are_refused_by_name() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), 1);
    std::fs::write(dir.path().join("cert.pem"), "").unwrap();
    let refused = read(dir.path(), false).err().unwrap().to_string();
    assert!(refused.contains("cert.pem"), "{refused}");
}

/// A connection to an API that keeps nothing, and what becomes of it.
fn open() -> (
    DuplexStream,
    tokio::task::JoinHandle<Result<(), &'static str>>,
) {
    let authority = Authority::start(Box::new(MemoryLedger::new())).unwrap();
    let app = App::new(authority, Config::default());
    let (caller, served) = duplex(4 * 1024 * 1024);
    let connection = Connection {
        name: "api",
        peer: "192.0.2.1:1".parse().unwrap(),
        router: api_router(app.clone()),
        app,
        stop: CancellationToken::new(),
    };
    let served = tokio::spawn(async move { connection.answer(served).await });
    (caller, served)
}

async fn all(caller: &mut DuplexStream) -> String {
    let mut answer = Vec::new();
    // A connection that is cut off has still said what it said.
    let _ = caller.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

type Made = rcgen::CertifiedKey<rcgen::KeyPair>;

/// Writes a new certificate and key, changed at that second.
fn write(dir: &Path, second: u64) -> Made {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let files = [
        ("cert.pem", made.cert.pem()),
        ("key.pem", made.signing_key.serialize_pem()),
    ];
    for (name, text) in files {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_modified(changed)
            .unwrap();
    }
    made
}

fn read(dir: &Path, asks_for_certificates: bool) -> Result<Arc<Certificates>, TlsRefused> {
    let config = Config {
        bootstrap_tls_cert: Some(dir.join("cert.pem")),
        bootstrap_tls_key: Some(dir.join("key.pem")),
        bootstrap_tls_client_ca: asks_for_certificates.then(|| dir.join("cert.pem")),
        ..Config::default()
    };
    certificates(&config).map(|(_, bootstrap)| bootstrap.unwrap())
}

/// Whether a caller that trusts one certificate and shows another one is let in, and lets in.
async fn shakes_hands(certificates: &Certificates, trusted: &Made, shown: &Made) -> bool {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(trusted.cert.der().clone()).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(shown.signing_key.serialize_der());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![shown.cert.der().clone()], key.unwrap())
        .unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let (caller, served) = duplex(64 * 1024);
    let acceptor = certificates.acceptor();
    let accepted = tokio::spawn(async move {
        let mut stream = acceptor.accept(served).await.ok()?;
        stream.write_all(b"!").await.ok()?;
        stream.flush().await.ok()
    });
    let name = ServerName::try_from("localhost").unwrap();
    let connected = TlsConnector::from(Arc::new(config)).connect(name, caller);
    let Ok(mut stream) = connected.await else {
        return false;
    };
    // With TLS 1.3 a caller learns that his certificate was refused only when he reads.
    let heard = stream.read_u8().await.is_ok();
    heard && accepted.await.unwrap().is_some()
}
