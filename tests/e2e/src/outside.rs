//! What can be seen and had of a node beside its wire: metrics, the list of shards, tokens.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{Home, Node};

/// What has not happened after this long does not happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often it is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Asks again and again until there is an answer; `None` when there is none in time.
pub async fn eventually<T, F: Future<Output = Option<T>>>(mut ask: impl FnMut() -> F) -> Option<T> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if let Some(answer) = ask().await {
            return Some(answer);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    None
}

impl Node {
    /// The sum of a metric's series, as `/metrics` has it now; 0 while it has none.
    ///
    /// # Errors
    /// When the admin listener does not answer.
    pub async fn metric(&self, name: &str) -> reqwest::Result<f64> {
        let text = self.admin("metrics").await?.text().await?;
        Ok(sum(&text, name))
    }

    /// The shards the broker has, as `GET /shards` lists them.
    ///
    /// # Errors
    /// When the admin listener does not answer.
    pub async fn shards(&self) -> reqwest::Result<Vec<Value>> {
        let listed: Value = self.admin("shards").await?.json().await?;
        let shards = listed.get("shards").and_then(Value::as_array);
        Ok(shards.cloned().unwrap_or_default())
    }

    /// What the admin listener answers for a path.
    ///
    /// # Errors
    /// When it does not.
    pub async fn admin(&self, path: &str) -> reqwest::Result<reqwest::Response> {
        let url = format!("{}/{path}", self.ready().broker_admin_url);
        http().get(url).send().await
    }

    /// What the control plane answers to a call with this token; nothing when it answers without a body.
    ///
    /// # Errors
    /// When it does not answer, or refuses.
    pub async fn controlplane(
        &self,
        token: &str,
        method: reqwest::Method,
        path: &str,
        body: Option<&Value>,
    ) -> reqwest::Result<Value> {
        let url = format!("{}{path}", self.ready().controlplane_url);
        let mut request = http().request(method, url).bearer_auth(token);
        if let Some(body) = body {
            request = request.json(body);
        }
        let text = request.send().await?.error_for_status()?.text().await?;
        Ok(serde_json::from_str(&text).unwrap_or_default())
    }

    /// Posts to the bootstrap listener with the secret of `home`.
    ///
    /// # Errors
    /// When it does not answer, or refuses.
    pub async fn bootstrap(&self, home: &Home, path: &str, body: &Value) -> reqwest::Result<Value> {
        let secret = std::fs::read_to_string(home.data().join("bootstrap.secret"));
        let url = format!("{}/internal/bootstrap/{path}", self.ready().bootstrap_url);
        let answer = http()
            .post(url)
            .header("x-felix-bootstrap-token", secret.unwrap_or_default().trim())
            .json(body)
            .send()
            .await?;
        answer.error_for_status()?.json().await
    }

    /// A token of the developer of tenant `dev`, changed by the fields given.
    ///
    /// # Errors
    /// As [`Node::bootstrap`].
    pub async fn token(&self, home: &Home, mut spec: Value) -> reqwest::Result<String> {
        if let Some(fields) = spec.as_object_mut() {
            fields
                .entry("principal")
                .or_insert_with(|| Value::from("p:dev"));
        }
        let minted = self.bootstrap(home, "tenants/dev/dev-token", &spec).await?;
        let token = minted.get("felix_token").and_then(Value::as_str);
        Ok(token.unwrap_or_default().to_owned())
    }
}

/// The sum of a metric's series in the text of `/metrics`.
pub(crate) fn sum(text: &str, name: &str) -> f64 {
    let values = text.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let found = series.split('{').next()?;
        (found == name).then(|| value.parse::<f64>().ok())?
    });
    values.sum()
}

/// A client for HTTP. The library wants to know who does its TLS even where there is none.
pub(crate) fn http() -> reqwest::Client {
    // It fails when that was said before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}
