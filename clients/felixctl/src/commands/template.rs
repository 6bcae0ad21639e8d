//! `namespace template ls | show | set | open | rm`.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use felix_meta::{CacheSpec, StreamSpec, TemplateSpec};
use serde_json::{Value, json};

use super::App;
use crate::api::{Created, quote};
use crate::cli::{TemplateCommand, TemplateSet};
use crate::confirm;
use crate::exit::Failure;
use crate::output::{Field, Report};

const FIELDS: &[Field] = &[
    Field::plain("template"),
    Field::plain("prefix"),
    Field::plain("streams"),
    Field::plain("caches"),
    Field::plain("rooms_max"),
];
const ROOM_FIELDS: &[Field] = &[
    Field::plain("kind"),
    Field::plain("name"),
    Field::plain("status"),
];
/// Bytes of a file with a template. The control plane takes no more.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

pub(super) async fn run(app: &App, command: TemplateCommand) -> Result<(), Failure> {
    let settings = app.settings()?;
    let api = app.controlplane(&settings).await?;
    let (tenant, namespace) = (settings.tenant()?, settings.namespace());
    let base = format!(
        "/v1/tenants/{}/namespaces/{}/templates",
        quote(tenant),
        quote(namespace)
    );
    let path = |template: &str| format!("{base}/{}", quote(template));
    match command {
        TemplateCommand::Ls => {
            let items = api.list(&base).await?.into_iter().map(named);
            Ok(app
                .output
                .report(&Report::list("felixctl.template.ls/1", FIELDS, items))?)
        }
        TemplateCommand::Show { template } => {
            let mut held = api.get(&path(&template)).await?;
            // What is left is the body that sets it.
            if let Some(fields) = held.as_object_mut() {
                for name in ["tenant_id", "namespace", "template"] {
                    fields.remove(name);
                }
            }
            let text = serde_json::to_string_pretty(&held)
                .map_err(|error| Failure::failed(error.to_string()))?;
            Ok(app.output.text(&format!("{text}\n"))?)
        }
        TemplateCommand::Set(set) => {
            let body = match &set.file {
                Some(file) => read(file)?,
                None => spec(&set)?,
            };
            let body = json!(body);
            api.put(&path(&set.template), &body).await?;
            Ok(app
                .output
                .say(&format!("template {} is set", set.template))?)
        }
        TemplateCommand::Open { template, scope } => {
            let room = format!("{}/rooms/{}", path(&template), quote(&scope));
            let (created, answer) = api.create(&room, &Value::Null).await?;
            let state = match created {
                Created::New => "is open",
                Created::Unchanged => "was open before",
            };
            app.output.say(&format!("room {scope} {state}"))?;
            Ok(app.output.report(&Report::list(
                "felixctl.template.open/1",
                ROOM_FIELDS,
                parts(&answer),
            ))?)
        }
        TemplateCommand::Rm { template, yes } => {
            api.get(&path(&template)).await?;
            let what = format!("template {template}; its rooms stay");
            confirm::destroy(&what, &template, yes.into())?;
            api.delete(&path(&template)).await?;
            Ok(app.output.say(&format!("template {template} is removed"))?)
        }
    }
}

/// A template with the names alone of what it brings.
fn named(mut template: Value) -> Value {
    for (list, name) in [("streams", "stream"), ("caches", "cache")] {
        let items = template.get(list).and_then(Value::as_array);
        let names: Vec<&str> = items
            .into_iter()
            .flatten()
            .filter_map(|item| item.get(name).and_then(Value::as_str))
            .collect();
        let names = names.join(", ");
        if let Some(fields) = template.as_object_mut() {
            fields.insert(list.to_owned(), Value::String(names));
        }
    }
    template
}

/// The streams and caches of a room, one a row.
fn parts(answer: &Value) -> Vec<Value> {
    let mut rows = Vec::new();
    for (list, kind) in [("streams", "stream"), ("caches", "cache")] {
        let items = answer.get(list).and_then(Value::as_array);
        for item in items.into_iter().flatten() {
            let name = item.get(kind).and_then(|held| held.get(kind));
            rows.push(json!({ "kind": kind, "name": name, "status": item.get("status") }));
        }
    }
    rows
}

fn spec(set: &TemplateSet) -> Result<TemplateSpec, Failure> {
    let bad = |error: felix_model::BadName| Failure::usage(error.to_string());
    let stream = |name: &String, durable: bool| -> Result<StreamSpec, Failure> {
        let spec = StreamSpec::new(name.parse().map_err(bad)?);
        Ok(StreamSpec { durable, ..spec })
    };
    let cache = |name: &String, durable: bool| -> Result<CacheSpec, Failure> {
        let spec = CacheSpec::new(name.parse().map_err(bad)?);
        let durable = Some(durable);
        Ok(CacheSpec { durable, ..spec })
    };
    let durable = set.streams.iter().map(|name| stream(name, true));
    let memory = set.memory_streams.iter().map(|name| stream(name, false));
    let streams = durable.chain(memory).collect::<Result<_, _>>()?;
    let durable = set.caches.iter().map(|name| cache(name, true));
    let memory = set.memory_caches.iter().map(|name| cache(name, false));
    let caches = durable.chain(memory).collect::<Result<_, _>>()?;
    Ok(TemplateSpec {
        prefix: set.prefix.clone().unwrap_or_default(),
        streams,
        caches,
        rooms_max: set.rooms_max,
    })
}

fn read(file: &Path) -> Result<TemplateSpec, Failure> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", file.display()));
    let mut text = String::new();
    File::open(file)
        .and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text))
        .map_err(|error| failed(&error))?;
    serde_json::from_str(&text).map_err(|error| failed(&error))
}
