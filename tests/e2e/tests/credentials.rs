//! Whoever follows the control plane for long keeps its own credential good: before it runs out, and when its key is
//! retired.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets anything else has failed"
)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use felix_client::Client;
use felix_e2e::broker::Broker;
use felix_e2e::{Home, Node, eventually, revocation};
use reqwest::Method;
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_felix-e2e");

const RENEWALS: &str = "felix_broker_node_credential_renewals_total";

/// An administrator's token, minted for this moment: older ones may not be good any more.
async fn admin(home: &Home, node: &Node) -> String {
    let spec = json!({"audience": "felix-controlplane"});
    node.token(home, spec).await.unwrap()
}

async fn rotate(home: &Home, node: &Node) {
    let admin = admin(home, node).await;
    revocation::rotate(node, &admin).await.unwrap();
}

async fn create(home: &Home, node: &Node, stream: &str) {
    let admin = admin(home, node).await;
    let spec = json!({
        "stream": stream, "kind": "Stream", "shards": 1, "retention": {},
        "consistency": "Leader", "delivery": "AtLeastOnce", "durable": true,
    });
    let path = "/v1/tenants/dev/namespaces/default/streams";
    let made = node.controlplane(&admin, Method::POST, path, Some(&spec));
    made.await.unwrap();
}

/// Publishes to a stream that exists once the broker is told so.
async fn is_served(client: &Client, stream: &str) {
    let served = eventually(|| async { client.publish(stream, "x").await.ok() });
    served.await.unwrap();
}

/// A second broker's credential, in files, and the settings that name them.
struct Second {
    directory: PathBuf,
    settings: Vec<(&'static str, PathBuf)>,
}

impl Second {
    async fn new(home: &Home, node: &Node) -> Self {
        let directory = home.path().join("second");
        std::fs::create_dir(&directory).unwrap();
        let tls = home.data().join("tls");
        let ready = node.ready();
        let made = Self {
            settings: vec![
                ("FELIX_NODE_ID", "second".into()),
                (
                    "FELIX_CONTROLPLANE_URL",
                    ready.controlplane_url.clone().into(),
                ),
                ("FELIX_NODE_TOKEN_FILE", directory.join("token")),
                ("FELIX_NODE_REFRESH_TOKEN_FILE", directory.join("refresh")),
                ("FELIX_DURABLE_STORAGE_DIR", directory.join("data")),
                ("FELIX_TLS_CERT", tls.join("server.pem")),
                ("FELIX_TLS_KEY", tls.join("server.key")),
            ],
            directory,
        };
        made.issue(home, node).await;
        made
    }

    /// Writes a new credential into the files, as an operator does.
    async fn issue(&self, home: &Home, node: &Node) {
        let admin = admin(home, node).await;
        let path = "/v1/nodes/second/credential";
        let issued: Value = node
            .controlplane(&admin, Method::POST, path, None)
            .await
            .unwrap();
        let write = |file: &str, field: &str| {
            std::fs::write(self.directory.join(file), issued[field].as_str().unwrap()).unwrap();
        };
        write("token", "felix_token");
        write("refresh", "refresh_token");
    }

    fn refresh_token(&self) -> (String, u32) {
        let file = self.directory.join("refresh");
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        (std::fs::read_to_string(file).unwrap(), mode & 0o777)
    }

    async fn start(&self) -> Broker {
        Broker::start(Path::new(PROGRAM), &self.settings)
            .await
            .unwrap()
    }
}

async fn renewed(broker: &Broker, times: f64) {
    let renewed =
        eventually(|| async { (broker.metric(RENEWALS).await.unwrap() >= times).then_some(()) });
    renewed.await.unwrap();
}

async fn client_of(node: &Node, broker: &Broker, token: &str) -> Client {
    let builder = Client::builder()
        .broker(&broker.address)
        .tenant("dev")
        .token(token)
        .ca_file(&node.ready().ca_file)
        .server_name("localhost");
    builder.connect().await.unwrap()
}

#[tokio::test]
async fn a_development_node_follows_on_when_its_key_is_retired_in_an_emergency() {
    let home = Home::new(PROGRAM).unwrap();
    let node = home.start().await.unwrap();
    for stream in ["first", "second"] {
        rotate(&home, &node).await;
        create(&home, &node, stream).await;
        let token = node.token(&home, json!({})).await.unwrap();
        is_served(&node.client_with(&token).await.unwrap(), stream).await;
    }
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_broker_renews_its_credential_again_and_again_and_follows_on() {
    let home = Home::new(PROGRAM)
        .unwrap()
        .variable("FELIX_EXCHANGE_TOKEN_TTL_SECONDS", "3");
    let node = home.start().await.unwrap();
    let second = Second::new(&home, &node).await;
    let (first, _) = second.refresh_token();
    let broker = second.start().await;
    renewed(&broker, 3.0).await;
    let (next, mode) = second.refresh_token();
    assert_ne!(next, first);
    assert_eq!(mode, 0o600);
    create(&home, &node, "late").await;
    let client = client_of(&node, &broker, &node.ready().token).await;
    is_served(&client, "late").await;
    let failed = "felix_broker_node_credential_failures_total";
    assert_eq!(broker.metric(failed).await.unwrap(), 0.0);
    // What it wrote is enough to start again, long after the token in the file ran out.
    drop(broker);
    let broker = second.start().await;
    assert!(broker.metric(RENEWALS).await.unwrap() >= 1.0);
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_broker_whose_key_is_retired_renews_at_once_and_takes_a_new_credential_where_it_may_not()
{
    let home = Home::new(PROGRAM).unwrap();
    let node = home.start().await.unwrap();
    let second = Second::new(&home, &node).await;
    let broker = second.start().await;
    // Its token is good for 15 minutes by itself.
    rotate(&home, &node).await;
    renewed(&broker, 1.0).await;
    create(&home, &node, "first").await;
    let token = node.token(&home, json!({})).await.unwrap();
    is_served(&client_of(&node, &broker, &token).await, "first").await;
    // A second key, while it is down: the start renews.
    drop(broker);
    rotate(&home, &node).await;
    let broker = second.start().await;
    assert!(broker.metric(RENEWALS).await.unwrap() >= 1.0);
    create(&home, &node, "second").await;
    let token = node.token(&home, json!({})).await.unwrap();
    is_served(&client_of(&node, &broker, &token).await, "second").await;
    // Its session is ended, and then it is given another credential in the same files.
    let (spent, _) = second.refresh_token();
    let body = json!({"refresh_token": spent});
    let path = "/v1/tenants/dev/token/revoke";
    let ended = node.controlplane("", Method::POST, path, Some(&body));
    ended.await.unwrap();
    let failed = "felix_broker_node_credential_failures_total";
    let refused =
        eventually(|| async { (broker.metric(failed).await.unwrap() >= 1.0).then_some(()) });
    refused.await.expect("the renewal is refused");
    second.issue(&home, &node).await;
    create(&home, &node, "third").await;
    let token = node.token(&home, json!({})).await.unwrap();
    is_served(&client_of(&node, &broker, &token).await, "third").await;
    node.stop().await.unwrap();
}
