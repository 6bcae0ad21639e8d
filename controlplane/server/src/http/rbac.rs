//! Rules and gifts of roles.
//!
//! Nobody gives what lies outside his own scope: a rule's object must lie within it, and so must every rule of a role
//! that is given. The installation and its nodes lie in nobody's scope; rules over them are written at bootstrap only.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use felix_auth::{Action, Object, Permission, granted};
use felix_meta::http::Page;
use felix_meta::{Catalogue, Command, Grouping, Policy};
use felix_model::TenantId;
use serde::Serialize;

use super::body::{Raw, name};
use super::caller::{Caller, Ticket};
use super::error::Refusal;
use super::page::{Paging, Window};
use crate::app::App;
use crate::clock::now;

/// The rules within the caller's scope: a bare list, or a page when one is asked for.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/rbac/policies", tag = "rbac",
    params(("tenant_id" = String, Path), ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Page<Policy>, description = "a bare array when neither limit nor cursor is given")))]
pub(crate) async fn policies(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
    paging: Paging,
) -> Result<Response, Refusal> {
    let caller = viewer(&app, &ticket, &tenant)?;
    let catalogue = app.authority.catalogue();
    let all = catalogue
        .tenant(&tenant)
        .into_iter()
        .flat_map(|entry| entry.policies.iter());
    let visible = all
        .filter(|policy| {
            policy
                .object
                .parse()
                .is_ok_and(|object: Object| sees(&caller, &object))
        })
        .map(|policy| {
            (
                key(&[&policy.subject, &policy.object, &policy.action]),
                policy.clone(),
            )
        });
    listing(&paging, visible)
}

/// Adds a rule.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/rbac/policies", tag = "rbac",
    params(("tenant_id" = String, Path)), request_body = Policy, responses((status = 204)))]
pub(crate) async fn add_policy(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
    body: Raw,
) -> Result<StatusCode, Refusal> {
    let (tenant, policy) = permitted_policy(&app, &ticket, &tenant, &body)?;
    app.authority
        .submit(Command::AddPolicy(tenant, policy))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a rule, named by the body.
#[utoipa::path(delete, path = "/v1/tenants/{tenant_id}/rbac/policies", tag = "rbac",
    params(("tenant_id" = String, Path)), request_body = Policy, responses((status = 204)))]
pub(crate) async fn remove_policy(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
    body: Raw,
) -> Result<StatusCode, Refusal> {
    let (tenant, policy) = permitted_policy(&app, &ticket, &tenant, &body)?;
    app.authority
        .submit(Command::RemovePolicy(tenant, policy, now()))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The gifts of roles within the caller's scope: a bare list, or a page when one is asked for.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/rbac/groupings", tag = "rbac",
    params(("tenant_id" = String, Path), ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Page<Grouping>, description = "a bare array when neither limit nor cursor is given")))]
pub(crate) async fn groupings(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
    paging: Paging,
) -> Result<Response, Refusal> {
    let caller = viewer(&app, &ticket, &tenant)?;
    let catalogue = app.authority.catalogue();
    let all = catalogue
        .tenant(&tenant)
        .into_iter()
        .flat_map(|entry| entry.groupings.iter());
    // A role is given many times, and what it brings is found by walking through all rules.
    let mut within: BTreeMap<&str, bool> = BTreeMap::new();
    let visible = all
        .filter(|grouping| {
            *within.entry(&grouping.role).or_insert_with(|| {
                role_is_within(
                    &catalogue,
                    &caller,
                    Action::RbacView,
                    &tenant,
                    &grouping.role,
                )
            })
        })
        .map(|grouping| (key(&[&grouping.user, &grouping.role]), grouping.clone()));
    listing(&paging, visible)
}

/// Gives a role.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/rbac/groupings", tag = "rbac",
    params(("tenant_id" = String, Path)), request_body = Grouping, responses((status = 204)))]
pub(crate) async fn add_grouping(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
    body: Raw,
) -> Result<StatusCode, Refusal> {
    let (tenant, grouping) = permitted_grouping(&app, &ticket, &tenant, &body)?;
    app.authority
        .submit(Command::AddGrouping(tenant, grouping))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Takes a role away, named by the body.
#[utoipa::path(delete, path = "/v1/tenants/{tenant_id}/rbac/groupings", tag = "rbac",
    params(("tenant_id" = String, Path)), request_body = Grouping, responses((status = 204)))]
pub(crate) async fn remove_grouping(
    State(app): State<App>,
    Path(tenant): Path<String>,
    ticket: Ticket,
    body: Raw,
) -> Result<StatusCode, Refusal> {
    let (tenant, grouping) = permitted_grouping(&app, &ticket, &tenant, &body)?;
    app.authority
        .submit(Command::RemoveGrouping(tenant, grouping, now()))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Reads a rule as a permission of the grammar.
pub(super) fn permission(policy: &Policy) -> Result<Permission, Refusal> {
    let action: Action = policy
        .action
        .parse()
        .map_err(|_| Refusal::invalid("invalid action"))?;
    let object: Object = policy
        .object
        .parse()
        .map_err(|error| Refusal::invalid(format!("invalid object: {error}")))?;
    Permission::new(action, object).map_err(|error| Refusal::invalid(error.to_string()))
}

/// Refuses a group that is not written with its issuer: a bare name would mean whatever group of that name any provider
/// has.
fn check_group(who: &str) -> Result<(), Refusal> {
    let Some(group) = who.strip_prefix("group:") else {
        return Ok(());
    };
    match group.split_once('#') {
        Some((issuer, name)) if !issuer.is_empty() && !name.is_empty() => Ok(()),
        _ => Err(Refusal::invalid(
            "a group is written `group:{issuer}#{name}`",
        )),
    }
}

fn permitted_policy(
    app: &App,
    ticket: &Ticket,
    tenant: &str,
    body: &Raw,
) -> Result<(TenantId, Policy), Refusal> {
    let caller = app.caller_of(ticket, tenant)?;
    let policy: Policy = body.read()?;
    check_group(&policy.subject)?;
    let object = permission(&policy)?.object;
    if !caller
        .permissions()
        .holds(Action::RbacPolicyManage, &object)
    {
        return Err(Refusal::forbidden(
            "the rule's object lies outside what you may give",
        ));
    }
    Ok((name("tenant_id", tenant)?, policy))
}

fn permitted_grouping(
    app: &App,
    ticket: &Ticket,
    tenant: &str,
    body: &Raw,
) -> Result<(TenantId, Grouping), Refusal> {
    let caller = app.caller_of(ticket, tenant)?;
    let grouping: Grouping = body.read()?;
    check_group(&grouping.user)?;
    let catalogue = app.authority.catalogue();
    let action = Action::RbacAssignmentManage;
    if !role_is_within(&catalogue, &caller, action, tenant, &grouping.role) {
        return Err(Refusal::forbidden(
            "the role holds rules outside what you may give",
        ));
    }
    Ok((name("tenant_id", tenant)?, grouping))
}

fn viewer(app: &App, ticket: &Ticket, tenant: &str) -> Result<Caller, Refusal> {
    let caller = app.caller_of(ticket, tenant)?;
    let views = caller
        .permissions()
        .grants()
        .iter()
        .any(|one| one.action == Action::RbacView);
    if views {
        Ok(caller)
    } else {
        Err(Refusal::forbidden("this needs `rbac.view`"))
    }
}

fn sees(caller: &Caller, object: &Object) -> bool {
    caller.permissions().holds(Action::RbacView, object)
}

/// Whether everything a role brings lies within the caller's scope for an action. A role that brings nothing yet needs
/// the scope of the whole tenant, because it may bring anything later.
fn role_is_within(
    catalogue: &Catalogue,
    caller: &Caller,
    action: Action,
    tenant: &str,
    role: &str,
) -> bool {
    let whole = Object::Tenant(tenant.into());
    let Some(entry) = catalogue.tenant(tenant) else {
        return false;
    };
    let brings = granted(
        role,
        entry.groupings.iter().map(|one| felix_auth::Grouping {
            user: &one.user,
            role: &one.role,
        }),
        entry.policies.iter().map(|one| felix_auth::Policy {
            subject: &one.subject,
            object: &one.object,
            action: &one.action,
        }),
    );
    if brings.is_empty() {
        return caller.permissions().holds(action, &whole);
    }
    brings
        .iter()
        .all(|one| caller.permissions().holds(action, &one.object))
}

/// A key that orders as the set does, part by part.
fn key(parts: &[&str]) -> String {
    parts.join("\u{0}")
}

fn listing<T: Serialize>(
    paging: &Paging,
    items: impl Iterator<Item = (String, T)>,
) -> Result<Response, Refusal> {
    if paging.is_asked_for() {
        return Ok(Json(paging.read()?.cut(items)).into_response());
    }
    Ok(Json(Window::all().cut(items).items).into_response())
}
