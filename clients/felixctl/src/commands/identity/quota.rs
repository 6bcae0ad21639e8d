//! `quota ls | set | rm`.

use serde_json::{Map, Value, json};

use super::{tenant, text};
use crate::api::quote;
use crate::cli::{QuotaCommand, QuotaScope, QuotaSet};
use crate::commands::App;
use crate::confirm;
use crate::exit::Failure;
use crate::output::{Field, Report};
use crate::parse;

const FIELDS: &[Field] = &[
    Field::plain("scope"),
    Field::plain("name"),
    Field::shown("publish_bytes_per_second", size),
    Field::plain("publish_records_per_second"),
    Field::plain("subscriptions"),
    Field::plain("connections"),
    Field::shown("cache_bytes", size),
    Field::shown("stream_retention_bytes", size),
];
/// The word that lifts a limit.
const NONE: &str = "none";

pub(in crate::commands) async fn run(app: &App, command: QuotaCommand) -> Result<(), Failure> {
    let (api, path) = tenant(app).await?;
    let all = format!("{path}/quotas");
    match command {
        QuotaCommand::Ls => {
            let items = api.list(&all).await?.into_iter().map(flat);
            Ok(app
                .output
                .report(&Report::list("felixctl.quota.ls/1", FIELDS, items))?)
        }
        QuotaCommand::Set(set) => {
            let given = given(&set)?;
            let path = format!("{all}{}", path_of(&set.scope));
            let mut limits = held(api.list(&all).await?, &set.scope);
            limits.extend(given);
            api.put(&path, &Value::Object(limits)).await?;
            Ok(app.output.say(&format!(
                "the limits of {} are set; brokers keep them within seconds",
                name_of(&set.scope)
            ))?)
        }
        QuotaCommand::Rm { scope, yes } => {
            let name = name_of(&scope);
            let asked = scope
                .of_namespace
                .as_deref()
                .or(scope.of_principal.as_deref())
                .unwrap_or("tenant");
            confirm::destroy(&format!("every limit of {name}"), asked, yes.into())?;
            api.delete(&format!("{all}{}", path_of(&scope))).await?;
            Ok(app
                .output
                .say(&format!("the limits of {name} are lifted"))?)
        }
    }
}

fn path_of(scope: &QuotaScope) -> String {
    match (&scope.of_namespace, &scope.of_principal) {
        (Some(namespace), _) => format!("/namespaces/{}", quote(namespace)),
        (None, Some(principal)) => format!("/principals/{}", quote(principal)),
        (None, None) => String::new(),
    }
}

fn name_of(scope: &QuotaScope) -> String {
    match (&scope.of_namespace, &scope.of_principal) {
        (Some(namespace), _) => format!("namespace {namespace}"),
        (None, Some(principal)) => format!("principal {principal}"),
        (None, None) => "the tenant".to_owned(),
    }
}

/// Limits that were given on the command line.
fn given(set: &QuotaSet) -> Result<Map<String, Value>, Failure> {
    let sizes = [
        ("publish_bytes_per_second", &set.publish_bytes_per_second),
        ("cache_bytes", &set.cache_bytes),
        ("stream_retention_bytes", &set.stream_retention_bytes),
    ];
    let counts = [
        (
            "publish_records_per_second",
            &set.publish_records_per_second,
        ),
        ("subscriptions", &set.subscriptions),
        ("connections", &set.connections),
    ];
    let mut limits = Map::new();
    for (name, text) in sizes {
        if let Some(text) = text {
            let size = |text: &str| parse::size(text).map_err(|error| error.to_string());
            limits.insert(name.into(), limit(name, text, size)?);
        }
    }
    for (name, text) in counts {
        if let Some(text) = text {
            let count = |text: &str| text.parse().map_err(|_| format!("{text:?} is no number"));
            limits.insert(name.into(), limit(name, text, count)?);
        }
    }
    if limits.is_empty() {
        return Err(Failure::usage("no limit was given"));
    }
    Ok(limits)
}

fn limit(
    name: &str,
    text: &str,
    read: impl Fn(&str) -> Result<u64, String>,
) -> Result<Value, Failure> {
    if text == NONE {
        return Ok(Value::Null);
    }
    let flag = name.replace('_', "-");
    read(text)
        .map(Value::from)
        .map_err(|why| Failure::usage(format!("--{flag}: {why}")))
}

/// The limits that a scope has already. What is not given on the command line stays as it is.
fn held(items: Vec<Value>, scope: &QuotaScope) -> Map<String, Value> {
    let (kind, name) = match (&scope.of_namespace, &scope.of_principal) {
        (Some(namespace), _) => ("namespace", Some(namespace)),
        (None, Some(principal)) => ("principal", Some(principal)),
        (None, None) => ("tenant", None),
    };
    let found = items.into_iter().find(|item| {
        text(item, "scope") == Some(kind)
            && name.is_none_or(|name| text(item, "name") == Some(name))
    });
    found.map(limits).unwrap_or_default()
}

fn limits(mut item: Value) -> Map<String, Value> {
    match item.get_mut("limits").map(Value::take) {
        Some(Value::Object(limits)) => limits,
        _ => Map::new(),
    }
}

/// Scope, name and limits side by side.
fn flat(item: Value) -> Value {
    let scope = item.get("scope").cloned().unwrap_or_default();
    let name = item.get("name").cloned().unwrap_or_default();
    let mut row = limits(item);
    row.insert("scope".into(), scope);
    row.insert("name".into(), name);
    json!(row)
}

fn size(value: &Value) -> String {
    value.as_u64().map_or_else(|| "-".into(), parse::show_size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set() -> QuotaSet {
        QuotaSet {
            scope: QuotaScope::default(),
            publish_bytes_per_second: None,
            publish_records_per_second: None,
            subscriptions: None,
            connections: None,
            cache_bytes: None,
            stream_retention_bytes: None,
        }
    }

    #[test]
    fn a_limit_is_a_number_a_size_or_none() {
        let limits = given(&QuotaSet {
            publish_bytes_per_second: Some("10MiB".into()),
            connections: Some("none".into()),
            subscriptions: Some("7".into()),
            ..set()
        })
        .expect("limits");
        assert_eq!(limits["publish_bytes_per_second"], 10 << 20);
        assert_eq!(limits["connections"], Value::Null);
        assert_eq!(limits["subscriptions"], 7);
    }

    #[test]
    fn limits_that_are_not_given_are_kept() {
        let items = vec![
            json!({"scope": "tenant", "name": "dev", "limits": {"connections": 1}}),
            json!({"scope": "namespace", "name": "dev", "limits": {"connections": 2}}),
        ];
        let namespace = QuotaScope {
            of_namespace: Some("dev".into()),
            of_principal: None,
        };
        assert_eq!(held(items.clone(), &namespace)["connections"], 2);
        assert_eq!(held(items, &QuotaScope::default())["connections"], 1);
        assert!(held(Vec::new(), &namespace).is_empty());
    }

    #[test]
    fn nothing_given_and_nonsense_are_refused() {
        assert!(given(&set()).is_err());
        let nonsense = given(&QuotaSet {
            connections: Some("many".into()),
            ..set()
        });
        assert!(
            nonsense
                .expect_err("no number")
                .message
                .contains("--connections")
        );
    }
}
