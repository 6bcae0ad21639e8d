//! Real processes of the control plane, and plain HTTP calls to them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

pub(crate) mod cluster;

const BOOTSTRAP: &str = "the bootstrap token";

/// A control plane in a process of its own, which is killed when this is dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) api: String,
    pub(crate) metrics: String,
    bootstrap: String,
    /// Everything it wrote.
    pub(crate) log: Arc<Mutex<String>>,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Process {
    /// Starts it on free ports and reads from its log where it listens.
    pub(crate) fn start(settings: &[(&str, &str)]) -> Self {
        let mut child = command(settings)
            .env("FELIX_CONTROLPLANE_BIND", "127.0.0.1:0")
            .env("FELIX_CONTROLPLANE_METRICS_BIND", "127.0.0.1:0")
            .env("FELIX_BOOTSTRAP_ENABLED", "true")
            .env("FELIX_BOOTSTRAP_BIND_ADDR", "127.0.0.1:0")
            .env("FELIX_BOOTSTRAP_TOKEN", BOOTSTRAP)
            .env("FELIX_BOOTSTRAP_DEV_TOKENS", "true")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let fields = loop {
            let line = lines
                .next()
                .unwrap_or_else(|| panic!("it ended: {}", log.lock().unwrap()))
                .unwrap();
            note(&log, &line);
            match serde_json::from_str::<Value>(&line) {
                Ok(value) if value["fields"]["message"] == "serving" => {
                    break value["fields"].clone();
                }
                _ => {}
            }
        };
        // Somebody must read on, or the process stops at a full pipe.
        let all = Arc::clone(&log);
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .for_each(|line| note(&all, &line))
        });
        let text = |field: &str| fields[field].as_str().unwrap().to_owned();
        Self {
            child,
            api: text("api"),
            metrics: text("metrics"),
            bootstrap: text("bootstrap"),
            log,
        }
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

fn note(log: &Mutex<String>, line: &str) {
    let mut log = log.lock().unwrap();
    log.push_str(line);
    log.push('\n');
}

/// The program with these settings, and none of this machine's.
pub(crate) fn command(settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_felix-controlplane"));
    command.env("FELIX_CONTROLPLANE_LOG_FORMAT", "json");
    command.envs(settings.iter().copied());
    command
}

/// A client for HTTP. The library wants to know who does its TLS even where there is none.
pub(crate) fn http() -> reqwest::Client {
    // It fails when that was said before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

/// A tenant, a namespace and a token that outlives all restarts.
pub(crate) async fn bootstrap(http: &reqwest::Client, process: &Process) -> String {
    let admins = json!({"initial_admin_principals": ["p:admin"]});
    bootstrap_with(http, process, admins).await
}

/// As [`bootstrap`], and the token may operate the cluster.
pub(crate) async fn tenant_with_operator(http: &reqwest::Client, process: &Process) -> String {
    let rule =
        |action: &str| json!({"subject": "role:operator", "object": "cluster:*", "action": action});
    let spec = json!({
        "initial_admin_principals": ["p:admin"],
        "policies": [rule("tenant.manage"), rule("node.view"), rule("node.manage")],
        "groupings": [{"user": "p:admin", "role": "role:operator"}],
    });
    bootstrap_with(http, process, spec).await
}

async fn bootstrap_with(http: &reqwest::Client, process: &Process, spec: Value) -> String {
    let base = format!(
        "http://{}/internal/bootstrap/tenants/acme",
        process.bootstrap
    );
    let post = |url: &str, body: &Value| {
        let request = http.post(url).header("X-Felix-Bootstrap-Token", BOOTSTRAP);
        request.json(body)
    };
    let url = format!("{base}/initialize");
    let done = settled(|| post(&url, &spec)).await;
    // The first answer may have been lost with the leader who made it.
    assert!(done.is(200) || done.again && done.is(409), "{done:?}");
    let ask = json!({"principal": "p:admin", "audience": "felix-controlplane"});
    let url = format!("{base}/dev-token");
    let minted = settled(|| post(&url, &ask)).await;
    let token = minted.body["felix_token"].as_str();
    let token = token.unwrap_or_else(|| panic!("{minted:?}")).to_owned();
    let url = format!("http://{}/v1/tenants/acme/namespaces", process.api);
    let namespace = json!({"namespace": "ns"});
    let made = settled(|| http.post(&url).bearer_auth(&token).json(&namespace)).await;
    assert!(made.is(201) || made.again && made.is(200), "{made:?}");
    token
}

/// An answer, and whether it was not the first.
#[derive(Debug)]
pub(crate) struct Settled {
    status: u16,
    pub(crate) body: Value,
    /// It was asked before without an answer that says what became of it.
    pub(crate) again: bool,
}

impl Settled {
    pub(crate) fn is(&self, status: u16) -> bool {
        self.status == status
    }
}

/// Asks until the answer is not that there is no leader, which an election brings about at any time on a busy machine.
pub(crate) async fn settled(request: impl Fn() -> reqwest::RequestBuilder) -> Settled {
    let mut again = false;
    loop {
        let answer = request().send().await.unwrap();
        let status = answer.status().as_u16();
        if status != 503 {
            let body = answer.text().await.unwrap();
            let body = serde_json::from_str(&body).unwrap_or_default();
            return Settled {
                status,
                body,
                again,
            };
        }
        again = true;
        tokio::task::yield_now().await;
    }
}

/// Creates a plain durable stream; the status of the answer, `None` when there was none.
pub(crate) async fn create(
    http: &reqwest::Client,
    api: &str,
    token: &str,
    name: &str,
) -> Option<u16> {
    let sent = new_stream(http, api, token, name).send().await;
    sent.ok().map(|response| response.status().as_u16())
}

/// Creates one that is not there, however long the members have no leader.
pub(crate) async fn made(http: &reqwest::Client, api: &str, token: &str, name: &str) {
    let made = settled(|| new_stream(http, api, token, name)).await;
    assert!(made.is(201) || made.again && made.is(200), "{made:?}");
}

fn new_stream(
    http: &reqwest::Client,
    api: &str,
    token: &str,
    name: &str,
) -> reqwest::RequestBuilder {
    let stream = json!({
        "stream": name,
        "kind": "Stream",
        "shards": 1,
        "retention": {},
        "consistency": "Leader",
        "delivery": "AtLeastOnce",
        "durable": true,
    });
    let url = format!("http://{api}/v1/tenants/acme/namespaces/ns/streams");
    http.post(url).bearer_auth(token).json(&stream)
}

/// The names of all streams, by the newest state there is; asked again while the members have no leader, which an
/// election takes away from one that answered `ready` just before.
pub(crate) async fn names(http: &reqwest::Client, api: &str, token: &str) -> Vec<String> {
    let url = format!(
        "http://{api}/v1/tenants/acme/namespaces/ns/streams?limit=10000&consistency=linearizable"
    );
    let page = settled(|| http.get(&url).bearer_auth(token)).await.body;
    let items = page["items"].as_array().unwrap_or_else(|| panic!("{page}"));
    items
        .iter()
        .map(|item| item["stream"].as_str().unwrap().to_owned())
        .collect()
}
