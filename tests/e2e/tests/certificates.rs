//! Clients with certificates of their own, against a broker that binds tokens to them.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets anything else has failed"
)]

mod kafka_wire;

use std::path::{Path, PathBuf};

use felix_client::Builder;
use felix_e2e::{Home, Node, NodeFailed};
use kafka_wire::Wire;
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

/// A node whose broker demands certificates, and does not look at whose they are.
async fn demanding(authority: &Authority) -> (Home, Node) {
    let home = Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap();
    let roots = home.path().join("clients.pem");
    std::fs::write(&roots, &authority.pem).unwrap();
    let home = home
        .variable("FELIX_TLS_CLIENT_CA", &roots.display().to_string())
        .variable("FELIX_TLS_REQUIRE_CERT", "true");
    let node = home.start().await.unwrap();
    (home, node)
}

/// The exit status and the error of a command that must fail.
async fn fails(home: &Home, arguments: &[&str]) -> (i32, Value) {
    let output = home.felixctl(arguments).await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let error = said.lines().find(|line| line.starts_with('{'));
    let error = serde_json::from_str(error.unwrap_or_else(|| panic!("no error: {said}")));
    (output.status.code().unwrap(), error.unwrap())
}

#[tokio::test]
async fn felixctl_presents_a_certificate_and_says_what_to_do_without_a_good_one() {
    let authority = Authority::new();
    let (home, node) = node(&authority).await;
    let (chain, key) = authority.issue("p:dev").write(home.path());
    let (chain, key) = (chain.to_str().unwrap(), key.to_str().unwrap());
    let identity = ["--client-cert-file", chain, "--client-key-file", key];
    home.ok(&[&["pub", "orders", "from flags"][..], &identity].concat())
        .await
        .unwrap();

    // The context that `dev` wrote, with the certificate added.
    let ready = node.ready();
    let ca = ready.ca_file.to_str().unwrap();
    let context = [
        &["context", "add", "bound", "--use", "--tenant", "dev"][..],
        &["--brokers", &ready.brokers[0], "--ca-file", ca],
        &["--server-name", &ready.server_name, "--token", &ready.token],
        &identity,
    ];
    home.ok(&context.concat()).await.unwrap();
    home.ok(&["pub", "orders", "from the context"])
        .await
        .unwrap();
    let shown = home.ok(&["--json", "context", "show"]).await.unwrap();
    assert!(shown.contains(chain), "{shown}");

    let (exit, error) = fails(&home, &["--json", "--context", "dev", "pub", "orders", "x"]).await;
    assert_eq!(
        (exit, error["code"].as_str()),
        (4, Some("certificate_required"))
    );
    assert!(
        error["hint"]
            .as_str()
            .unwrap()
            .contains("--client-cert-file")
    );

    Authority::new().issue("p:dev").write(home.path());
    let (exit, error) = fails(&home, &["--json", "pub", "orders", "x"]).await;
    assert_eq!(
        (exit, error["code"].as_str()),
        (4, Some("certificate_refused"))
    );
    assert!(error["error"].as_str().unwrap().contains("tls_client_ca"));

    let half = ["--json", "--context", "dev", "--client-cert-file", chain];
    let (exit, error) = fails(&home, &[&half[..], &["pub", "orders", "x"]].concat()).await;
    assert_eq!(exit, 2, "{error}");
    assert!(
        error["hint"]
            .as_str()
            .unwrap()
            .contains("--client-key-file")
    );
    authority.issue("p:dev").write(home.path());
    let read = [
        "read",
        "orders",
        "--from",
        "earliest",
        "--context",
        "dev",
        "-f",
        "%v\\n",
    ];
    let held = home.ok(&[&read[..], &identity].concat()).await.unwrap();
    assert_eq!(held, "from flags\nfrom the context\n");
    node.stop().await.unwrap();
}

#[tokio::test]
async fn felixctl_presents_its_certificate_to_a_control_plane_that_demands_one() {
    let authority = Authority::new();
    let home = Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap();
    let directory = home.path();
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let write = |name: &str, text: &str| {
        let file = directory.join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    // The listener of the control plane that may demand certificates is the one for bootstrap; whoever is let in hears
    // that it has no such route.
    let config = felix_controlplane::Config {
        bind: "127.0.0.1:0".parse().unwrap(),
        metrics_bind: "127.0.0.1:0".parse().unwrap(),
        bootstrap_enabled: true,
        bootstrap_bind_addr: "127.0.0.1:0".parse().unwrap(),
        bootstrap_token: felix_controlplane::Secret("x".repeat(32)),
        bootstrap_tls_cert: Some(write("own.pem", &own.cert.pem())),
        bootstrap_tls_key: Some(write("own.key", &own.signing_key.serialize_pem())),
        bootstrap_tls_client_ca: Some(write("clients.pem", &authority.pem)),
        ..felix_controlplane::Config::default()
    };
    let plane = felix_controlplane::ControlPlane::start_ephemeral(config)
        .await
        .unwrap();
    let url = format!(
        "https://localhost:{}",
        plane.addresses().bootstrap.unwrap().port()
    );
    let ca = directory.join("own.pem");
    let asks = [
        &["--json", "tenant", "ls", "--controlplane-token", "t"][..],
        &[
            "--controlplane-url",
            &url,
            "--controlplane-ca-file",
            ca.to_str().unwrap(),
        ],
    ]
    .concat();
    let (exit, error) = fails(&home, &asks).await;
    is_about_the_certificate(exit, &error, "certificate_required");

    let (chain, key) = authority.issue("p:dev").write(directory);
    let (chain, key) = (chain.to_str().unwrap(), key.to_str().unwrap());
    let asks = [&asks[..], &["--client-cert", chain, "--client-key", key]].concat();
    let (exit, error) = fails(&home, &asks).await;
    assert_eq!(
        (exit, error["code"].as_str()),
        (3, Some("not_found")),
        "{error}"
    );

    Authority::new().issue("p:dev").write(directory);
    let (exit, error) = fails(&home, &asks).await;
    is_about_the_certificate(exit, &error, "certificate_refused");
    plane.shutdown().await;
}

/// A server over TCP that closes while a request is on its way may take back what it said of the certificate: then the
/// connection was just lost.
fn is_about_the_certificate(exit: i32, error: &Value, code: &str) {
    match error["code"].as_str() {
        None => assert_eq!(exit, 5, "{error}"),
        Some(said) => {
            assert_eq!((exit, said), (4, code), "{error}");
            let hint = error["hint"].as_str().unwrap();
            assert!(hint.contains("--client-cert-file"), "{hint}");
        }
    }
}

/// A Kafka listener in front of a node, in a process of its own as far as the broker can tell.
async fn listener(node: &Node, identity: Option<(PathBuf, PathBuf)>) -> felix_kafka::Running {
    let ready = node.ready();
    let (client_cert, client_key) = identity.unzip();
    let config = felix_kafka::Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        metrics_listen: "127.0.0.1:0".parse().unwrap(),
        brokers: ready.brokers.clone(),
        broker_ca: Some(ready.ca_file.clone()),
        broker_name: Some(ready.server_name.clone()),
        client_cert,
        client_key,
        controlplane_url: ready.controlplane_url.clone(),
        ..felix_kafka::Config::default()
    };
    let held = |token: &str| felix_controlplane_client::Held::new(token);
    let embedding = felix_kafka::Embedding {
        token: Some(held(&ready.controlplane_token)),
        near: None,
        anonymous: Some(felix_kafka::Anonymous {
            tenant: ready.tenant.clone(),
            token: held(&ready.token),
            controlplane_token: held(&ready.controlplane_token),
        }),
    };
    felix_kafka::start(config, embedding).await.unwrap()
}

/// What a Kafka client is told of a record that it produces: 0, or the number of the error.
async fn produce(listener: &felix_kafka::Running) -> i16 {
    let mut wire = Wire::connect(listener.address()).await;
    wire.produce("orders", "from kafka").await
}

#[tokio::test]
async fn a_kafka_client_is_served_through_a_listener_that_presents_a_good_certificate() {
    const CLUSTER_AUTHORIZATION_FAILED: i16 = 31;
    let authority = Authority::new();
    let (home, node) = demanding(&authority).await;
    let without = listener(&node, None).await;
    assert_eq!(produce(&without).await, CLUSTER_AUTHORIZATION_FAILED);
    without.shutdown().await;

    let files = Authority::new().issue("kafka").write(home.path());
    let listener = listener(&node, Some(files)).await;
    assert_eq!(produce(&listener).await, CLUSTER_AUTHORIZATION_FAILED);
    // A certificate that is mended on disk is presented by the next attempt.
    authority.issue("kafka").write(home.path());
    assert_eq!(produce(&listener).await, 0);
    let (chain, key) = authority.issue("p:dev").write(home.path());
    let identity = [("--client-cert", chain), ("--client-key", key)];
    let identity = identity.map(|(flag, file)| format!("{flag}={}", file.display()));
    let read = [
        "read",
        "orders",
        "--from",
        "earliest",
        "-f",
        "%v\\n",
        &identity[0],
        &identity[1],
    ];
    assert_eq!(home.ok(&read).await.unwrap(), "from kafka\n");
    listener.shutdown().await;
    node.stop().await.unwrap();
}
