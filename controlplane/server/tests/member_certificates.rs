//! Members that know each other by certificates: three that have them keep a ledger, and whoever has none, or another
//! authority's, or another member's, is no member.
//!
//! A program of its own for the same reason as `kill`.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[expect(
    dead_code,
    reason = "programs of tests share it, and none uses all of it"
)]
mod support;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use support::cluster::Cluster;
use support::{http, made, names, tenant_with_operator};

/// Who signs the certificates of members.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// One member's certificate and key, in PEM.
struct Certificate {
    chain: String,
    key: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { issuer, pem }
    }

    fn issue(&self, member: usize) -> Certificate {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name(member)]).unwrap();
        let chain = params.signed_by(&key, &self.issuer).unwrap().pem();
        let key = key.serialize_pem();
        Certificate { chain, key }
    }

    /// Writes what a member needs into a directory, and says where it is.
    fn equip(&self, member: usize, directory: &Path) -> Vec<(&'static str, String)> {
        let certificate = self.issue(member);
        let write = |file: String, pem: &str| {
            let file = directory.join(file);
            std::fs::write(&file, pem).unwrap();
            file.to_str().unwrap().to_owned()
        };
        let own = |kind: &str| format!("{}.{kind}", name(member));
        vec![
            ("FELIX_RAFT_TLS_CERT", write(own("pem"), &certificate.chain)),
            ("FELIX_RAFT_TLS_KEY", write(own("key"), &certificate.key)),
            ("FELIX_RAFT_TLS_CA", write(own("ca"), &self.pem)),
        ]
    }
}

fn name(member: usize) -> String {
    format!("felix-raft-{member}")
}

/// Somebody who calls a member as a member does, with this certificate or none. He trusts the members' authority.
fn caller(authority: &Authority, shown: Option<&Certificate>, to: SocketAddr) -> reqwest::Client {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap();
    roots.add(root).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let tls = match shown {
        Some(Certificate { chain, key }) => {
            let chain = CertificateDer::from_pem_slice(chain.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            tls.with_client_auth_cert(vec![chain], key).unwrap()
        }
        None => tls.with_no_client_auth(),
    };
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .resolve(&name(1), to)
        .build()
        .unwrap()
}

/// The status of a message to member 1 from who says that he is this member; `None` when the handshake fails.
async fn message(caller: &reqwest::Client, to: SocketAddr, member: usize) -> Option<u16> {
    let url = format!("https://{}:{}/raft/v1/message", name(1), to.port());
    let sent = caller
        .post(url)
        .header("x-felix-member", member.to_string())
        .body("\u{0}x")
        .send()
        .await;
    sent.ok().map(|answer| answer.status().as_u16())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_with_certificates_keep_a_ledger_that_nobody_without_a_right_one_can_reach() {
    let http = http();
    let authority = Authority::new();
    let cluster = Cluster::prepared(|member, home| authority.equip(member, home));
    let cluster = cluster.formed(&http).await;
    let token = tenant_with_operator(&http, cluster.process(1)).await;
    made(&http, &cluster.process(2).api, &token, "one").await;
    for member in 1..=3 {
        let held = names(&http, &cluster.process(member).api, &token).await;
        assert_eq!(held, ["one"], "member {member}");
    }
    let to: SocketAddr = cluster.binds[0].parse().unwrap();
    let second = authority.issue(2);
    let right = caller(&authority, Some(&second), to);
    assert_eq!(
        message(&right, to, 2).await,
        Some(200),
        "nonsense is answered in words"
    );
    assert_eq!(
        message(&right, to, 3).await,
        Some(403),
        "it is another member's"
    );
    let without = caller(&authority, None, to);
    assert_eq!(message(&without, to, 2).await, None);
    let foreign = Authority::new().issue(2);
    let foreign = caller(&authority, Some(&foreign), to);
    assert_eq!(message(&foreign, to, 2).await, None);
    let plain = http.post(format!("http://{to}/raft/v1/message")).body("x");
    assert!(plain.send().await.is_err());
    cluster.all_ready(&http).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_with_another_authoritys_certificate_takes_no_part_until_it_has_its_own_again() {
    let http = http();
    let authority = Authority::new();
    let cluster = Cluster::prepared(|member, home| authority.equip(member, home));
    let mut cluster = cluster.formed(&http).await;
    let token = tenant_with_operator(&http, cluster.process(1)).await;
    let stranger = tempfile::tempdir().unwrap();
    let foreign = Authority::new().equip(3, stranger.path());
    let own = std::mem::replace(&mut cluster.settings[2], foreign);
    cluster.kill(3);
    cluster.start(3);
    // The two others are a majority, and go on; the third can never know what is newest.
    made(&http, &cluster.process(1).api, &token, "without").await;
    let url = format!(
        "http://{}/v1/tenants/acme/namespaces?consistency=linearizable",
        cluster.process(3).api
    );
    let asked = http.get(url).bearer_auth(&token).send().await.unwrap();
    assert_eq!(asked.status(), 503);
    cluster.settings[2] = own;
    cluster.kill(3);
    cluster.start(3);
    let held = names(&http, &cluster.process(3).api, &token).await;
    assert_eq!(held, ["without"]);
}
