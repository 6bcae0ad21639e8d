//! A control plane, a broker and a gateway in this process, and somebody who asks the console.

use std::collections::BTreeMap;

use felix_client::Client;
use felix_controlplane::ControlPlane;
use felix_controlplane_client::{Api, Held, TokenSource};
use felix_meta::http::{DevTokenSpec, InitializeSpec};
use felix_meta::record::{CacheSpec, Grouping, NamespaceSpec, Policy, StreamSpec};
use felix_model::TenantId;
use reqwest::{Method, Response, StatusCode};
use serde_json::Value;
use tempfile::TempDir;

/// Everything that runs.
pub(crate) struct Node {
    pub(crate) url: String,
    ca: std::path::PathBuf,
    brokers: Vec<String>,
    controlplane: ControlPlane,
    _gateway: felix_gateway::Running,
    _broker: felix_broker::Running,
    _home: TempDir,
}

/// An answer of the console.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
}

/// Somebody with a token.
pub(crate) struct Person<'n> {
    node: &'n Node,
    pub(crate) token: String,
}

const STREAMS: [&str; 2] = ["orders", "payments"];

impl Node {
    /// Two tenants, `dev` and `other`, each with the same streams and caches; the gateway serves `dev`.
    pub(crate) async fn start(console_writes: bool) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let home = TempDir::new().unwrap();
        let free = "127.0.0.1:0".parse().unwrap();
        let config = felix_controlplane::Config {
            data_dir: home.path().join("controlplane"),
            bind: free,
            metrics_bind: free,
            bootstrap_enabled: true,
            bootstrap_bind_addr: free,
            bootstrap_token: felix_controlplane::Secret("bootstrap-of-this-test".to_owned()),
            bootstrap_dev_tokens: true,
            shutdown_predrain_ms: 0,
            ..felix_controlplane::Config::load(None, &BTreeMap::<String, String>::new()).unwrap()
        };
        let controlplane = ControlPlane::start(config).await.unwrap();
        let url = format!("http://{}", controlplane.addresses().api);
        for tenant in ["dev", "other"] {
            fill(&controlplane, &url, tenant).await;
        }
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let file = |name: &str, text: String| {
            let path = home.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let ca = file("ca.pem", own.cert.pem());
        let broker = felix_broker::Config {
            listen: free,
            metrics_listen: free,
            data_dir: Some(home.path().join("broker")),
            node_id: "one".to_owned(),
            controlplane_url: url.clone(),
            tls_cert: Some(ca.clone()),
            tls_key: Some(file("key.pem", own.signing_key.serialize_pem())),
            advertise: None,
            ..felix_broker::Config::load(None).unwrap()
        };
        let token = mint(&controlplane, "dev", "p:broker", "felix-controlplane", &[]);
        let embedding = felix_broker::Embedding {
            token: Some(Held::new(&token)),
            cluster: Some("test".to_owned()),
            ..felix_broker::Embedding::default()
        };
        let broker = felix_broker::start(broker, embedding).await.unwrap();
        let brokers = vec![broker.address().to_string()];
        let config = felix_gateway::Config {
            listen: free,
            tenant: "dev".to_owned(),
            oidc_client_id: "console".to_owned(),
            console_writes,
            brokers: brokers.clone(),
            broker_ca: Some(ca.clone()),
            controlplane_url: url,
            ..felix_gateway::Config::default()
        };
        let embedding = felix_gateway::Embedding {
            scope: Some(SCOPE.to_owned()),
            ..felix_gateway::Embedding::default()
        };
        let gateway = felix_gateway::start(config, embedding).await.unwrap();
        Self {
            url: format!("http://{}", gateway.address()),
            ca,
            brokers,
            controlplane,
            _gateway: gateway,
            _broker: broker,
            _home: home,
        }
    }

    /// The administrator of a tenant.
    pub(crate) fn admin(&self, tenant: &str) -> Person<'_> {
        self.person(tenant, &[])
    }

    /// The administrator with no more than these rights, `action:object` each; with all of them for none.
    pub(crate) fn person(&self, tenant: &str, rights: &[&str]) -> Person<'_> {
        let token = mint(
            &self.controlplane,
            tenant,
            "p:admin",
            "felix-broker",
            rights,
        );
        Person { node: self, token }
    }

    /// Somebody who may read streams.
    pub(crate) fn bob(&self) -> Person<'_> {
        let token = mint(&self.controlplane, "dev", "p:bob", "felix-broker", &[]);
        Person { node: self, token }
    }

    /// The administrator with a token for development, which is good on this machine only.
    pub(crate) fn developer(&self) -> Person<'_> {
        let spec = DevTokenSpec {
            principal: "p:admin".to_owned(),
            audience: Some("felix-broker".to_owned()),
            ttl_seconds: Some(30 * 24 * 3600),
            ..DevTokenSpec::default()
        };
        let tokens = self.controlplane.dev_tokens();
        let answer = tokens.mint(&"dev".parse().unwrap(), &spec).unwrap();
        let token = answer.felix_token;
        Person { node: self, token }
    }

    /// Whoever sends this as a token.
    pub(crate) fn bearer(&self, token: &str) -> Person<'_> {
        let token = token.to_owned();
        Person { node: self, token }
    }

    /// A client of the broker, past the console.
    pub(crate) async fn client(&self) -> Client {
        let token = mint(&self.controlplane, "dev", "p:admin", "felix-broker", &[]);
        Client::builder()
            .brokers(self.brokers.clone())
            .tenant("dev")
            .token(token)
            .ca_file(&self.ca)
            .connect()
            .await
            .unwrap()
    }
}

/// The smallest scope there is: the console has no part in it.
const SCOPE: &str = r#"
[scope]
field = "board"

[[scope.streams]]
alias = "edits"
name = "board-{scope}-edits"
actions = ["subscribe"]
"#;

impl Person<'_> {
    /// Asks for something.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        read(self.open(Method::GET, path).send().await.unwrap()).await
    }

    /// Changes something, as the page does.
    pub(crate) async fn change(&self, method: Method, path: &str, body: Value) -> Answer {
        let request = self
            .open(method, path)
            .header("x-felix-console", "1")
            .json(&body);
        read(request.send().await.unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.change(Method::POST, path, body).await
    }

    /// A request with the token.
    pub(crate) fn open(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let url = format!("{}/console/api{path}", self.node.url);
        http().request(method, url).bearer_auth(&self.token)
    }
}

/// A client that asks nobody on the way.
pub(crate) fn http() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

pub(crate) async fn read(response: Response) -> Answer {
    let status = response.status();
    let bytes = response.bytes().await.unwrap();
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    Answer { status, body }
}

impl Answer {
    /// The body of a good answer.
    pub(crate) fn ok(self) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{}", self.body);
        self.body
    }

    /// Status and code of a refusal, which has an id of its request.
    pub(crate) fn refused(&self) -> (u16, &str) {
        assert!(
            self.body["request_id"]
                .as_str()
                .is_some_and(|id| id.len() == 16),
            "{}",
            self.body
        );
        (self.status.as_u16(), self.body["code"].as_str().unwrap())
    }
}

async fn fill(controlplane: &ControlPlane, url: &str, tenant: &str) {
    let id: TenantId = tenant.parse().unwrap();
    let spec = InitializeSpec {
        initial_admin_principals: vec!["p:admin".to_owned()],
        policies: vec![
            Policy {
                subject: "role:broker".to_owned(),
                object: "cluster:*".to_owned(),
                action: "node.view".to_owned(),
            },
            Policy {
                subject: "p:bob".to_owned(),
                object: format!("stream:{tenant}/default/*"),
                action: "stream.subscribe".to_owned(),
            },
        ],
        groupings: vec![Grouping {
            user: "p:broker".to_owned(),
            role: "role:broker".to_owned(),
        }],
        ..InitializeSpec::default()
    };
    controlplane.initialize(&id, spec).await.unwrap();
    let token = mint(controlplane, tenant, "p:admin", "felix-controlplane", &[]);
    let api = Api::new(url, TokenSource::fixed(&token)).unwrap();
    let namespace = "default".parse().unwrap();
    let space = NamespaceSpec {
        namespace: "default".parse().unwrap(),
        display_name: None,
    };
    api.create_namespace(&id, &space).await.unwrap();
    for stream in STREAMS {
        let spec = StreamSpec::new(stream.parse().unwrap());
        api.create_stream(&id, &namespace, &spec).await.unwrap();
    }
    let spec = CacheSpec::new("config".parse().unwrap());
    api.create_cache(&id, &namespace, &spec).await.unwrap();
}

fn mint(
    controlplane: &ControlPlane,
    tenant: &str,
    principal: &str,
    audience: &str,
    rights: &[&str],
) -> String {
    let spec = DevTokenSpec {
        principal: principal.to_owned(),
        audience: Some(audience.to_owned()),
        permissions: rights.iter().map(ToString::to_string).collect(),
        ..DevTokenSpec::default()
    };
    let answer = controlplane
        .dev_tokens()
        .mint(&tenant.parse().unwrap(), &spec)
        .unwrap();
    answer.felix_token
}
