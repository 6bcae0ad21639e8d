//! `cache ls | info | create | rm`: what the control plane keeps about caches. Their keys are in `keys.rs`.

use serde_json::{Value, json};

use super::stream::put;
use super::{App, keys};
use crate::api::{Api, Created, quote};
use crate::cli::CacheCommand;
use crate::confirm;
use crate::exit::{Exit, Failure};
use crate::output::{Field, Report};
use crate::settings::Settings;
use crate::suggest::close_matches;

const FIELDS: &[Field] = &[
    Field::plain("cache"),
    Field::plain("tenant_id"),
    Field::plain("namespace"),
    Field::plain("shards"),
    Field::plain("replication_factor"),
    Field::plain("consistency"),
    Field::plain("durable"),
    Field::plain("sync"),
    Field::plain("memory_bytes"),
    Field::plain("max_record_bytes"),
    Field::plain("display_name"),
];

pub(super) async fn run(app: &App, command: CacheCommand) -> Result<(), Failure> {
    match command {
        CacheCommand::Get { cache, key } => keys::get(app, &cache, &key).await,
        CacheCommand::Put(args) => keys::put(app, &args).await,
        CacheCommand::LsKeys(args) => keys::keys(app, &args).await,
        CacheCommand::Watch(args) => keys::watch(app, &args).await,
        CacheCommand::Rm {
            cache,
            key: Some(key),
            if_version,
            ..
        } => keys::remove(app, &cache, &key, if_version).await,
        command @ (CacheCommand::Ls
        | CacheCommand::Info { .. }
        | CacheCommand::Create(_)
        | CacheCommand::Rm { key: None, .. }) => catalogue(app, command).await,
    }
}

/// The names close to a cache that does not exist, if the control plane can be asked.
pub(super) async fn matches(app: &App, settings: &Settings, cache: &str) -> Vec<String> {
    let (Ok(api), Ok(base)) = (app.controlplane(settings).await, base(settings)) else {
        return Vec::new();
    };
    let all = api.list(&base).await.unwrap_or_default();
    close_matches(cache, all.iter().filter_map(|it| it.get("cache")?.as_str()))
}

fn base(settings: &Settings) -> Result<String, Failure> {
    Ok(format!(
        "/v1/tenants/{}/namespaces/{}/caches",
        quote(settings.tenant()?),
        quote(settings.namespace())
    ))
}

async fn catalogue(app: &App, command: CacheCommand) -> Result<(), Failure> {
    let settings = app.settings()?;
    let api = app.controlplane(&settings).await?;
    let base = base(&settings)?;
    match command {
        CacheCommand::Ls => {
            let all = api.list(&base).await?;
            Ok(app
                .output
                .report(&Report::list("felixctl.cache.ls/1", FIELDS, all))?)
        }
        CacheCommand::Info { cache } => {
            let found = find(&api, &base, &cache).await?;
            Ok(app
                .output
                .report(&Report::one("felixctl.cache.info/1", FIELDS, &found))?)
        }
        CacheCommand::Create(create) => {
            let consistency = if create.consistency == "quorum" {
                "Quorum"
            } else {
                "Leader"
            };
            let mut body = json!({
                "cache": create.cache,
                "display_name": create.display_name.as_deref().unwrap_or(&create.cache),
                "shards": create.shards,
                "replication_factor": create.replication_factor,
                "consistency": consistency,
                "durable": create.durable,
            });
            if let Some(body) = body.as_object_mut() {
                // What was not asked for is left out, so that the server's default applies.
                put(body, "sync", create.sync);
                put(body, "memory_bytes", create.memory_size);
                put(body, "max_record_bytes", create.max_record_size);
            }
            let (created, cache) = api.create(&base, &body).await?;
            let state = match created {
                Created::New => "is created",
                Created::Unchanged => "exists and is just so",
            };
            app.output.say(&format!("cache {} {state}", create.cache))?;
            Ok(app
                .output
                .report(&Report::one("felixctl.cache.info/1", FIELDS, &cache))?)
        }
        CacheCommand::Rm { cache, yes, .. } => {
            find(&api, &base, &cache).await?;
            let what = format!("cache {cache} and every entry in it");
            confirm::destroy(&what, &cache, yes.into())?;
            api.delete(&format!("{base}/{}", quote(&cache))).await?;
            Ok(app.output.say(&format!("cache {cache} is removed"))?)
        }
        CacheCommand::Get { .. }
        | CacheCommand::Put(_)
        | CacheCommand::LsKeys(_)
        | CacheCommand::Watch(_) => Ok(()),
    }
}

async fn find(api: &Api, base: &str, cache: &str) -> Result<Value, Failure> {
    match api.get(&format!("{base}/{}", quote(cache))).await {
        Err(failure) if failure.exit == Exit::NotFound => {
            let all = api.list(base).await.unwrap_or_default();
            let names = all.iter().filter_map(|it| it.get("cache")?.as_str());
            Err(failure.with_matches(close_matches(cache, names)))
        }
        found => found,
    }
}
