//! Clients with certificates of their own, against a broker that binds tokens to them.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets anything else has failed"
)]

use std::path::{Path, PathBuf};

use felix_client::Builder;
use felix_e2e::{Home, Node, NodeFailed};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use reqwest::Method;
use serde_json::{Value, json};

/// Who signs certificates of clients.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

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

    fn issue(&self, principal: &str) -> Certificate {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        let uri = format!("felix:principal:{principal}");
        params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
        let chain = params.signed_by(&key, &self.issuer).unwrap().pem();
        let key = key.serialize_pem();
        Certificate { chain, key }
    }
}

impl Certificate {
    fn write(&self, directory: &Path) -> (PathBuf, PathBuf) {
        let (chain, key) = (directory.join("client.pem"), directory.join("client.key"));
        std::fs::write(&chain, &self.chain).unwrap();
        std::fs::write(&key, &self.key).unwrap();
        (chain, key)
    }

    fn presented_by(&self, builder: Builder) -> Builder {
        builder.client_identity_pem(self.chain.as_str(), self.key.as_str())
    }
}

/// A node whose broker demands certificates of one authority and binds tokens to them.
async fn node(authority: &Authority) -> (Home, Node) {
    let home = Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap();
    let roots = home.path().join("clients.pem");
    std::fs::write(&roots, &authority.pem).unwrap();
    let home = home
        .variable("FELIX_TLS_CLIENT_CA", &roots.display().to_string())
        .variable("FELIX_TLS_REQUIRE_CERT", "true")
        .variable("FELIX_TLS_CLIENT_CERT_BIND_SUBJECT", "true")
        .variable("FELIX_CONTROLPLANE_DELEGATE_UNBOUND_TOKENS", "true");
    let node = home.start().await.unwrap();
    (home, node)
}

/// A token with which p:gateway acts for p:dev.
async fn delegated(home: &Home, node: &Node) -> String {
    let post = |token: String, path: &'static str, body: Value| async move {
        let answer = node.controlplane(&token, Method::POST, path, Some(&body));
        answer.await.unwrap()
    };
    let admin = node.ready().controlplane_token.clone();
    let right = json!({"subject": "p:gateway", "action": "token.delegate", "object": "tenant:dev"});
    post(admin, "/v1/tenants/dev/rbac/policies", right).await;
    let gateway = json!({"principal": "p:gateway", "audience": "felix-controlplane"});
    let gateway = node.token(home, gateway).await.unwrap();
    let grant = "urn:ietf:params:oauth:grant-type:token-exchange";
    let body = json!({"grant_type": grant, "subject_token": node.ready().token});
    let answer = post(gateway, "/v1/tenants/dev/token/delegate", body).await;
    answer["access_token"].as_str().unwrap().to_owned()
}

/// The code of what happens to the first publish of a client, over whatever stands in its way.
async fn publish(builder: Builder) -> Result<(), String> {
    let client = builder.connect().await;
    let client = client.map_err(|failed| format!("{} {failed}", failed.code()))?;
    let published = client.publish("orders", "x").await;
    published
        .map(|_| ())
        .map_err(|failed| format!("{} {failed}", failed.code()))
}

#[tokio::test]
async fn a_bound_token_counts_only_with_the_certificate_that_names_its_principal() {
    let authority = Authority::new();
    let (home, node) = node(&authority).await;
    // The node's own token is p:dev's.
    let developer = authority.issue("p:dev");
    publish(developer.presented_by(node.builder()))
        .await
        .unwrap();

    let without = publish(node.builder()).await.unwrap_err();
    assert!(!without.contains("token_"), "{without}");
    let foreign = Authority::new().issue("p:dev");
    let foreign = publish(foreign.presented_by(node.builder())).await;
    assert!(foreign.is_err());

    let gateway = authority.issue("p:gateway");
    let stolen = publish(gateway.presented_by(node.builder())).await;
    let stolen = stolen.unwrap_err();
    assert!(stolen.starts_with("unauthenticated"), "{stolen}");
    // Whoever acts for the principal is named as well as the principal.
    let delegated = delegated(&home, &node).await;
    let acting = node.builder().token(delegated.as_str());
    publish(gateway.presented_by(acting)).await.unwrap();
    assert_eq!(node.log().matches("panicked").count(), 0);
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_certificate_renewed_on_disk_is_shown_by_the_next_connection() -> Result<(), NodeFailed> {
    let authority = Authority::new();
    let (home, node) = node(&authority).await;
    let (chain, key) = authority.issue("p:somebody").write(home.path());
    let builder = node.builder().client_identity_files(chain, key);
    let refused = publish(builder.clone()).await.unwrap_err();
    assert!(refused.starts_with("unauthenticated"), "{refused}");
    authority.issue("p:dev").write(home.path());
    publish(builder).await.unwrap();
    node.stop().await.map(drop)
}
