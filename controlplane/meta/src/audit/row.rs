//! What auditors are told of an event.

use serde::Serialize;
use serde_json::Value;

use super::AuditRow;
use crate::catalogue::{Catalogue, TenantEntry};
use crate::event::Event;

/// Fields that no auditor sees, whatever they are in.
const SECRETS: [&str; 1] = ["secret_sha256"];

/// Fields of an event that a row has elsewhere.
const ELSEWHERE: [&str; 2] = ["type", "tenant_id"];

/// The row of an event that is to be applied to `before`.
pub(super) fn of(before: &Catalogue, event: &Event) -> AuditRow {
    let mut fields = json(event);
    let what = fields
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or("unknown")
        .to_owned();
    if let Some(fields) = fields.as_object_mut() {
        ELSEWHERE.iter().for_each(|name| {
            fields.remove(*name);
        });
    }
    AuditRow {
        what: only_kind(event).map_or(what, str::to_owned),
        target: target(event),
        before: earlier(before, event).map_or(Value::Null, |value| value),
        after: if ends(event) { Value::Null } else { fields },
    }
}

/// What was refused or done is the name of a row whose records all say so.
fn only_kind(event: &Event) -> Option<&str> {
    let Event::Audited { records, .. } = event else {
        return None;
    };
    let first = records.first()?.what.as_str();
    records
        .iter()
        .all(|record| record.what == first)
        .then_some(first)
}

/// Whether nothing is left of what the event is about.
const fn ends(event: &Event) -> bool {
    matches!(
        event,
        Event::TenantDeleted { .. }
            | Event::NamespaceDeleted { .. }
            | Event::StreamDeleted { .. }
            | Event::CacheDeleted { .. }
            | Event::TemplateRemoved { .. }
            | Event::KeyRetired { .. }
            | Event::QuotaRemoved { .. }
    )
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the rest is named by the next function"
)]
fn target(event: &Event) -> String {
    match event {
        Event::TenantCreated { tenant } | Event::TenantInitialized { tenant, .. } => {
            tenant.tenant_id.to_string()
        }
        Event::TenantDeleted { tenant_id } => tenant_id.to_string(),
        Event::NamespaceCreated { namespace } => namespace.namespace.to_string(),
        Event::NamespaceDeleted { namespace, .. } => namespace.to_string(),
        Event::ResourcesCreated { streams, caches } => {
            let streams = streams.iter().map(|one| path(&one.namespace, &one.stream));
            let caches = caches.iter().map(|one| path(&one.namespace, &one.cache));
            let mut names: Vec<String> = streams.chain(caches).take(2).collect();
            if names.len() > 1 {
                names.truncate(1);
                names.push("and more".into());
            }
            names.join(" ")
        }
        Event::StreamUpdated { stream } => path(&stream.namespace, &stream.stream),
        Event::StreamDeleted {
            namespace, stream, ..
        } => path(namespace, stream),
        Event::CacheUpdated { cache } => path(&cache.namespace, &cache.cache),
        Event::CacheDeleted {
            namespace, cache, ..
        } => path(namespace, cache),
        Event::TemplateSet { template } => path(&template.namespace, &template.template),
        Event::TemplateRemoved {
            namespace,
            template,
            ..
        } => path(namespace, template),
        Event::RoomOpened {
            namespace,
            template,
            scope,
            ..
        } => format!("{namespace}/{template}/{scope}"),
        Event::KeyStaged { key, .. } | Event::KeyReplaced { key, .. } => key.kid.clone(),
        Event::KeyActivated { kid, .. } | Event::KeyRetired { kid, .. } => kid.clone(),
        Event::PolicyAdded { policy, .. } | Event::PolicyRemoved { policy, .. } => {
            policy.subject.clone()
        }
        Event::GroupingAdded { grouping, .. } | Event::GroupingRemoved { grouping, .. } => {
            grouping.user.clone()
        }
        other => target_of_identity(other),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "what has no name has none")]
fn target_of_identity(event: &Event) -> String {
    match event {
        Event::IssuerSet { issuer, .. } => issuer.issuer.clone(),
        Event::IssuerRemoved { issuer, .. } => issuer.clone(),
        Event::PrincipalRecorded { principal, .. } => principal.principal_id.clone(),
        Event::ServiceAccountCreated { account, .. } => account.name.clone(),
        Event::ServiceAccountDeleted { name, .. }
        | Event::ServiceAccountDisabled { name, .. }
        | Event::ServiceKeyAdded { name, .. }
        | Event::ServiceKeyRemoved { name, .. } => name.clone(),
        Event::SessionOpened { session, .. } => session.principal_id.clone(),
        Event::SessionRefreshed { session_id, .. } | Event::SessionEnded { session_id, .. } => {
            session_id.clone()
        }
        Event::Revoked { revocation, .. } => {
            format!("{} {}", revocation.kind.name(), revocation.id)
        }
        Event::QuotaSet { scope, .. } | Event::QuotaRemoved { scope, .. } => scope.to_string(),
        _ => String::new(),
    }
}

fn path(namespace: &impl std::fmt::Display, name: &impl std::fmt::Display) -> String {
    format!("{namespace}/{name}")
}

/// What the event changes or ends, as it is before.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the rest is looked up by the next function"
)]
fn earlier(before: &Catalogue, event: &Event) -> Option<Value> {
    let tenant = event.tenant_id()?.as_ref();
    let entry = before.tenant(tenant)?;
    match event {
        Event::TenantDeleted { .. } | Event::TenantInitialized { .. } => Some(summary(entry)),
        Event::NamespaceDeleted { namespace, .. } => {
            let space = entry.namespaces.get(namespace)?;
            let (streams, caches) = (space.streams.len(), space.caches.len());
            Some(serde_json::json!({
                "display_name": space.display_name, "streams": streams, "caches": caches,
            }))
        }
        Event::StreamUpdated { stream } => before
            .stream(tenant, stream.namespace.as_ref(), stream.stream.as_ref())
            .map(|held| json(&**held)),
        Event::StreamDeleted {
            namespace, stream, ..
        } => before
            .stream(tenant, namespace.as_ref(), stream.as_ref())
            .map(|held| json(&**held)),
        Event::CacheUpdated { cache } => before
            .cache(tenant, cache.namespace.as_ref(), cache.cache.as_ref())
            .map(|held| json(&**held)),
        Event::CacheDeleted {
            namespace, cache, ..
        } => before
            .cache(tenant, namespace.as_ref(), cache.as_ref())
            .map(|held| json(&**held)),
        Event::TemplateSet { template } => {
            let space = entry.namespaces.get(&template.namespace)?;
            space
                .templates
                .get(&template.template)
                .map(|held| json(&held.record))
        }
        Event::TemplateRemoved {
            namespace,
            template,
            ..
        } => {
            let space = entry.namespaces.get(namespace)?;
            space.templates.get(template).map(|held| json(&held.record))
        }
        Event::KeyStaged { .. }
        | Event::KeyActivated { .. }
        | Event::KeyRetired { .. }
        | Event::KeyReplaced { .. } => Some(keys(entry)),
        Event::PolicyRemoved { policy, .. } => Some(json(policy)),
        Event::GroupingRemoved { grouping, .. } => Some(json(grouping)),
        other => earlier_identity(entry, other),
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "what begins was nothing before"
)]
fn earlier_identity(entry: &TenantEntry, event: &Event) -> Option<Value> {
    match event {
        Event::IssuerSet { issuer, .. } => entry.issuers.get(&issuer.issuer).map(json),
        Event::IssuerRemoved { issuer, .. } => entry.issuers.get(issuer).map(json),
        Event::ServiceAccountDeleted { name, .. }
        | Event::ServiceAccountDisabled { name, .. }
        | Event::ServiceKeyAdded { name, .. }
        | Event::ServiceKeyRemoved { name, .. } => {
            entry.service_accounts.get(name).map(|held| json(&**held))
        }
        Event::SessionEnded { session_id, .. } => {
            let held = entry.sessions.get(session_id)?;
            Some(serde_json::json!({
                "principal_id": held.principal_id,
                "created_at_ms": held.created_at_ms,
                "from": held.from,
            }))
        }
        Event::QuotaSet { scope, .. } | Event::QuotaRemoved { scope, .. } => {
            entry.quotas.get(scope).map(|held| json(&held))
        }
        _ => None,
    }
}

fn summary(entry: &TenantEntry) -> Value {
    serde_json::json!({
        "display_name": entry.display_name,
        "namespaces": entry.namespaces.len(),
        "keys": keys(entry),
    })
}

fn keys(entry: &TenantEntry) -> Value {
    let verifying: Vec<&str> = entry.keys.iter().map(|key| key.kid.as_str()).collect();
    serde_json::json!({ "current": entry.current_key, "verifying": verifying })
}

/// A record as JSON, without secrets. All records have a JSON form.
fn json(record: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(record).unwrap_or_default();
    scrub(&mut value);
    value
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "plain values hold no fields"
)]
fn scrub(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            SECRETS.iter().for_each(|name| {
                fields.remove(*name);
            });
            fields.values_mut().for_each(scrub);
        }
        Value::Array(items) => items.iter_mut().for_each(scrub),
        _ => {}
    }
}
