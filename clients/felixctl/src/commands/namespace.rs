//! `namespace ls | info | create | rm`.

use serde_json::{Value, json};

use super::App;
use crate::api::{Api, Created, quote};
use crate::cli::NamespaceCommand;
use crate::confirm;
use crate::exit::{Exit, Failure};
use crate::output::{Field, Report};
use crate::suggest::close_matches;

const FIELDS: &[Field] = &[
    Field::plain("namespace"),
    Field::plain("tenant_id"),
    Field::plain("display_name"),
];

pub(super) async fn run(app: &App, command: NamespaceCommand) -> Result<(), Failure> {
    if let NamespaceCommand::Template(command) = command {
        return super::template::run(app, command).await;
    }
    let settings = app.settings()?;
    let api = app.controlplane(&settings).await?;
    let base = format!("/v1/tenants/{}/namespaces", quote(settings.tenant()?));
    match command {
        // It went another way before.
        NamespaceCommand::Template(_) => Ok(()),
        NamespaceCommand::Ls => {
            let all = api.list(&base).await?;
            Ok(app
                .output
                .report(&Report::list("felixctl.namespace.ls/1", FIELDS, all))?)
        }
        NamespaceCommand::Info { name } => {
            let found = find(&api, &base, &name).await?;
            Ok(app
                .output
                .report(&Report::one("felixctl.namespace.info/1", FIELDS, &found))?)
        }
        NamespaceCommand::Create(create) => {
            let display_name = create.display_name.as_deref().unwrap_or(&create.name);
            let body = json!({ "namespace": create.name, "display_name": display_name });
            let (created, namespace) = api.create(&base, &body).await?;
            let state = match created {
                Created::New => "is created",
                Created::Unchanged => "exists and is just so",
            };
            app.output
                .say(&format!("namespace {} {state}", create.name))?;
            Ok(app.output.report(&Report::one(
                "felixctl.namespace.info/1",
                FIELDS,
                &namespace,
            ))?)
        }
        NamespaceCommand::Rm { name, yes } => {
            find(&api, &base, &name).await?;
            let what = format!("namespace {name} with its streams and caches");
            confirm::destroy(&what, &name, yes.into())?;
            api.delete(&format!("{base}/{}", quote(&name))).await?;
            Ok(app.output.say(&format!("namespace {name} is removed"))?)
        }
    }
}

/// The control plane has no route for one namespace, so the listing is searched.
async fn find(api: &Api, base: &str, namespace: &str) -> Result<Value, Failure> {
    let all = api.list(base).await?;
    let name = |it: &Value| {
        it.get("namespace")
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let names: Vec<String> = all.iter().filter_map(name).collect();
    all.into_iter()
        .find(|it| name(it).as_deref() == Some(namespace))
        .ok_or_else(|| {
            Failure::new(Exit::NotFound, format!("there is no namespace {namespace}"))
                .with_matches(close_matches(namespace, names.iter().map(String::as_str)))
        })
}
