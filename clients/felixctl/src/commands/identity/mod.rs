//! The commands that administrators use: roles, identity providers, keys, service accounts,
//! sessions, revocations, the audit log and quotas. Each is a request to the control plane; what
//! may be done by whom is decided there.

mod account;
mod audit;
mod idp;
mod quota;
mod rbac;
mod session;
mod signing;

pub(super) use account::run as service_account;
pub(super) use audit::run as audit;
pub(super) use idp::run as idp;
pub(super) use quota::run as quota;
pub(super) use rbac::run as rbac;
pub(super) use session::{revoke, run as session};
pub(super) use signing::run as keys;

use serde_json::Value;

use super::App;
use crate::api::{Api, quote};
use crate::exit::{Exit, Failure};
use crate::parse::show_time;
use crate::suggest::close_matches;

/// The control plane, and the path of the tenant in force.
async fn tenant(app: &App) -> Result<(Api, String), Failure> {
    let settings = app.settings()?;
    let path = format!("/v1/tenants/{}", quote(settings.tenant()?));
    Ok((app.controlplane(&settings).await?, path))
}

/// A field that is text.
fn text<'v>(value: &'v Value, field: &str) -> Option<&'v str> {
    value.get(field).and_then(Value::as_str)
}

/// The one item of a listing that carries a name.
fn named(items: Vec<Value>, field: &str, name: &str, what: &str) -> Result<Value, Failure> {
    let names: Vec<String> = items
        .iter()
        .filter_map(|item| text(item, field).map(ToOwned::to_owned))
        .collect();
    items
        .into_iter()
        .find(|item| text(item, field) == Some(name))
        .ok_or_else(|| {
            Failure::new(Exit::NotFound, format!("there is no {what} {name}"))
                .with_matches(close_matches(name, names.iter().map(String::as_str)))
        })
}

/// A time in Unix milliseconds, for people.
fn show_ms(value: &Value) -> String {
    value.as_i64().map_or_else(|| "-".into(), show_time)
}
