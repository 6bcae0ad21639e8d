//! Credentials of nodes.
//!
//! A broker signs in as `node:{id}`: it gets a short-lived token and a refresh token, and renews both by itself with
//! `token/refresh` from then on, so no long-lived token lies on its disk.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use felix_auth::{Action, Audience, Resource};
use felix_meta::http::{DevTokenSpec, TokenAnswer};
use felix_meta::{Command, Policy};
use felix_model::NodeId;

use super::body::{Unkept, name};
use super::caller::Ticket;
use super::error::Refusal;
use super::tokens::dev_session;
use crate::app::App;

/// Makes a credential for a node: it may then follow the catalogue and speak for itself, and nothing else. Needs
/// `node.manage` over the node, or over the cluster, and `node.view` over the cluster, which only bootstrap gives; the node's own rules are
/// written into the caller's tenant.
#[utoipa::path(post, path = "/v1/nodes/{node_id}/credential", tag = "nodes",
    params(("node_id" = String, Path)), responses((status = 201, body = TokenAnswer)))]
pub(crate) async fn credential(
    State(app): State<App>,
    Path(node): Path<String>,
    ticket: Ticket,
) -> Result<(StatusCode, Unkept<TokenAnswer>), Refusal> {
    let caller = app.caller(&ticket)?;
    if !caller.may(Action::NodeManage, &Resource::Cluster) {
        caller.must(Action::NodeManage, &Resource::Node(&node))?;
    }
    caller.must(Action::NodeView, &Resource::Cluster)?;
    let node: NodeId = name("node_id", &node)?;
    let tenant = &caller.principal().tenant;
    let principal = format!("node:{node}");
    let rules = [
        (Action::NodeManage, principal.clone()),
        (Action::NodeView, "cluster:*".to_owned()),
    ];
    for (action, object) in rules {
        let policy = Policy {
            subject: principal.clone(),
            object,
            action: action.to_string(),
        };
        let command = Command::AddPolicy(tenant.clone(), policy);
        app.authority.submit(command).await?;
    }
    let spec = DevTokenSpec {
        principal,
        audience: Some(Audience::ControlPlane.name().into()),
        ..DevTokenSpec::default()
    };
    let credential = dev_session(&app, tenant, &spec).await?;
    Ok((StatusCode::CREATED, Unkept(credential)))
}
