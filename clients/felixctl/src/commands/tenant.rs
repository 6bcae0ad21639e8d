//! `tenant ls | info | create | rm`.

use serde_json::{Value, json};

use super::App;
use crate::api::{Api, Created, quote};
use crate::cli::TenantCommand;
use crate::confirm;
use crate::exit::{Exit, Failure};
use crate::output::{Field, Report};
use crate::suggest::close_matches;

const FIELDS: &[Field] = &[Field::plain("tenant_id"), Field::plain("display_name")];

pub(super) async fn run(app: &App, command: TenantCommand) -> Result<(), Failure> {
    let api = app.controlplane(&app.settings()?).await?;
    match command {
        TenantCommand::Ls => {
            let all = api.list("/v1/tenants").await?;
            Ok(app
                .output
                .report(&Report::list("felixctl.tenant.ls/1", FIELDS, all))?)
        }
        TenantCommand::Info { tenant_id } => {
            let found = find(&api, &tenant_id).await?;
            Ok(app
                .output
                .report(&Report::one("felixctl.tenant.info/1", FIELDS, &found))?)
        }
        TenantCommand::Create(create) => {
            let display_name = create.display_name.as_deref().unwrap_or(&create.tenant_id);
            let body = json!({ "tenant_id": create.tenant_id, "display_name": display_name });
            let (created, tenant) = api.create("/v1/tenants", &body).await?;
            let state = match created {
                Created::New => "is created",
                Created::Unchanged => "exists and is just so",
            };
            app.output
                .say(&format!("tenant {} {state}", create.tenant_id))?;
            Ok(app
                .output
                .report(&Report::one("felixctl.tenant.info/1", FIELDS, &tenant))?)
        }
        TenantCommand::Rm { tenant_id, yes } => {
            find(&api, &tenant_id).await?;
            let what = format!("tenant {tenant_id} with its namespaces, streams, caches and keys");
            confirm::destroy(&what, &tenant_id, yes.into())?;
            api.delete(&format!("/v1/tenants/{}", quote(&tenant_id)))
                .await?;
            Ok(app.output.say(&format!("tenant {tenant_id} is removed"))?)
        }
    }
}

/// The control plane has no route for one tenant, so the listing is searched.
async fn find(api: &Api, tenant_id: &str) -> Result<Value, Failure> {
    let all = api.list("/v1/tenants").await?;
    let name = |it: &Value| {
        it.get("tenant_id")
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let names: Vec<String> = all.iter().filter_map(name).collect();
    all.into_iter()
        .find(|it| name(it).as_deref() == Some(tenant_id))
        .ok_or_else(|| {
            Failure::new(Exit::NotFound, format!("there is no tenant {tenant_id}"))
                .with_matches(close_matches(tenant_id, names.iter().map(String::as_str)))
        })
}
