//! The stream or cache a measurement runs on: its own, made before and removed after, unless a stream is named.

use serde_json::{Value, json};

use crate::api::{Api, quote};
use crate::cli::Common;
use crate::commands::App;
use crate::exit::Failure;
use crate::settings::Settings;

/// How a stream for measuring is set up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind<'a> {
    pub(super) durable: bool,
    pub(super) sync: Option<&'a str>,
    pub(super) shards: u32,
}

/// A stream or cache to measure on.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) name: String,
    /// How to remove it, when it is ours.
    own: Option<(Api, String)>,
}

impl Stream {
    /// Takes the stream that was named, or makes one.
    pub(super) async fn open(
        app: &App,
        settings: &Settings,
        common: &Common,
        kind: Kind<'_>,
    ) -> Result<Self, Failure> {
        if let Some(name) = &common.stream {
            return Ok(Self {
                name: name.clone(),
                own: None,
            });
        }
        Self::make(app, settings, "streams", |name| spec(name, kind)).await
    }

    /// Makes a cache of one shard on disk.
    pub(super) async fn cache(app: &App, settings: &Settings) -> Result<Self, Failure> {
        let spec = |name: &str| json!({"cache": name, "shards": 1, "sync": "periodic"});
        Self::make(app, settings, "caches", spec).await
    }

    async fn make(
        app: &App,
        settings: &Settings,
        what: &str,
        spec: impl FnOnce(&str) -> Value,
    ) -> Result<Self, Failure> {
        let number = getrandom::u32().map_err(|error| Failure::failed(error.to_string()))?;
        let name = format!("bench-{number:08x}");
        let api = app.controlplane(settings).await?;
        let base = format!(
            "/v1/tenants/{}/namespaces/{}/{what}",
            quote(settings.tenant()?),
            quote(settings.namespace())
        );
        api.create(&base, &spec(&name)).await?;
        let path = format!("{base}/{name}");
        Ok(Self {
            name,
            own: Some((api, path)),
        })
    }

    /// Removes it if it is ours. A failure is only worth a word: the figures are there.
    pub(super) async fn close(self) {
        if let Some((api, path)) = self.own
            && let Err(failure) = api.delete(&path).await
        {
            eprintln!("{} is left behind: {}", self.name, failure.message);
        }
    }
}

fn spec(name: &str, kind: Kind<'_>) -> Value {
    let mut spec = json!({
        "stream": name,
        "kind": "Stream",
        "shards": kind.shards,
        "retention": {"max_age_seconds": null, "max_size_bytes": null},
        "consistency": "Leader",
        "delivery": "AtLeastOnce",
        "durable": kind.durable,
    });
    if let (Some(spec), Some(sync)) = (spec.as_object_mut(), kind.sync) {
        spec.insert("sync".into(), sync.into());
    }
    spec
}
