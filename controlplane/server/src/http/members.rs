//! The members that keep a raft ledger: who they are, and changes of them, one at a time.

use std::sync::{Arc, Weak};

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use felix_auth::{Action, Resource};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::body::Raw;
use super::caller::Ticket;
use super::error::Refusal;
use crate::app::App;
use crate::ledger::raft::{Change, Core, Listed, Refused};

/// A member to take in.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemberSpec {
    /// Its number, from 1.
    member: u64,
    /// Its peer address, `host:port`.
    address: String,
}

/// All members.
#[utoipa::path(get, path = "/v1/controlplane/members", tag = "system",
    responses((status = 200, body = Object, description = "items: member, address, storage, role, leads, holds"),
        (status = 404, body = felix_meta::http::ErrorBody)))]
pub(crate) async fn list(State(app): State<App>, ticket: Ticket) -> Result<Json<Value>, Refusal> {
    let core = operated(&app, &ticket)?;
    let items: Vec<Value> = core.members().iter().map(shown).collect();
    Ok(Json(json!({ "items": items, "next_cursor": null })))
}

/// Takes a member in: its empty process must be running. It is a learner first, and a voter once it holds what was
/// committed; the listing says when.
#[utoipa::path(post, path = "/v1/controlplane/members", tag = "system", request_body = MemberSpec,
    responses((status = 202, body = Object), (status = 409, body = felix_meta::http::ErrorBody)))]
pub(crate) async fn add(
    State(app): State<App>,
    ticket: Ticket,
    body: Raw,
) -> Result<(StatusCode, Json<Value>), Refusal> {
    let core = operated(&app, &ticket)?;
    let MemberSpec { member, address } = body.read()?;
    let port = address
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse::<u16>().ok());
    if member == 0 || port.is_none_or(|port| port == 0) || address.len() > ADDRESS_BYTES_MAX {
        return Err(Refusal::invalid(
            "a member has a number from 1 and an address like host:8444",
        ));
    }
    let change = Change::Add {
        member,
        address: address.clone(),
    };
    core.change_members(change).await.map_err(refusal)?;
    Ok((
        StatusCode::ACCEPTED,
        Json(json!({ "member": member, "address": address })),
    ))
}

/// Lets a member go. The last voter stays.
#[utoipa::path(delete, path = "/v1/controlplane/members/{member}", tag = "system",
    params(("member" = u64, Path)),
    responses((status = 204), (status = 409, body = felix_meta::http::ErrorBody)))]
pub(crate) async fn remove(
    State(app): State<App>,
    ticket: Ticket,
    Path(member): Path<u64>,
) -> Result<StatusCode, Refusal> {
    let core = operated(&app, &ticket)?;
    core.change_members(Change::Remove { member })
        .await
        .map_err(refusal)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Longest address of a member: a host name has at most 253 characters.
const ADDRESS_BYTES_MAX: usize = 260;

/// The member that this process is, for who operates the installation.
fn operated(app: &App, ticket: &Ticket) -> Result<Arc<Core>, Refusal> {
    app.caller(ticket)?
        .must(Action::NodeManage, &Resource::Cluster)?;
    app.member.as_ref().and_then(Weak::upgrade).ok_or_else(|| {
        Refusal::not_enabled(
            "the ledger of this control plane is not kept by members (storage_backend)",
        )
    })
}

fn shown(listed: &Listed) -> Value {
    serde_json::to_value(listed).unwrap_or_default()
}

fn refusal(refused: Refused) -> Refusal {
    let message = refused.to_string();
    match refused {
        Refused::Not { code, .. } => match code.as_str() {
            "unknown_member" => Refusal::not_found(message),
            "busy" => Refusal::members_busy(message),
            _ => Refusal::members_refused(message),
        },
        Refused::Unknown { .. } => Refusal::members_unknown(message),
        Refused::NotLeader { .. }
        | Refused::Cluster { .. }
        | Refused::Member { .. }
        | Refused::Storage { .. } => Refusal::not_ready(message),
    }
}
