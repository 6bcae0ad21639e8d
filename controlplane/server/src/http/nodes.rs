//! Credentials of nodes.
//!
//! A broker signs in as `node:{id}`: it gets a short-lived token and a refresh token, and renews both by itself with
//! `token/refresh` from then on, so no long-lived token lies on its disk.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use felix_auth::{
    Action, Audience, Claims, Object, Permission, RefreshToken, Resource, Secret, mint, random_id,
};
use felix_meta::http::NodeCredential;
use felix_meta::{Command, Policy, SessionAsk, SessionRecord};
use felix_model::{NodeId, TenantId, TimeMs};

use super::body::name;
use super::caller::Ticket;
use super::error::Refusal;
use crate::app::App;
use crate::clock::now;
use crate::limits::NODE_SESSION_SECONDS;
use crate::{request, revoked};

/// Makes a credential for a node: it may then follow the catalogue and speak for itself, and nothing else. Needs
/// `node.manage` over the node and `node.view` over the cluster, which only bootstrap gives; the node's own rules are
/// written into the caller's tenant.
#[utoipa::path(post, path = "/v1/nodes/{node_id}/credential", tag = "nodes",
    params(("node_id" = String, Path)), responses((status = 201, body = NodeCredential)))]
pub(crate) async fn credential(
    State(app): State<App>,
    Path(node): Path<String>,
    ticket: Ticket,
) -> Result<(StatusCode, Json<NodeCredential>), Refusal> {
    let caller = app.caller(&ticket)?;
    caller.must(Action::NodeManage, &Resource::Node(&node))?;
    caller.must(Action::NodeView, &Resource::Cluster)?;
    let node: NodeId = name("node_id", &node)?;
    let tenant = caller.tenant().clone();
    let principal = format!("node:{node}");
    let rules = rules(&node)?;
    for rule in &rules {
        let policy = Policy {
            subject: principal.clone(),
            object: rule.object.to_string(),
            action: rule.action.to_string(),
        };
        let command = Command::AddPolicy(tenant.clone(), policy);
        app.authority.submit(command).await?;
    }
    let (session, refresh_token) = open(&app, &tenant, &principal).await?;
    let life = app.config.exchange_token_ttl_seconds;
    let felix_token = token(&app, &tenant, &principal, &session, rules)?;
    Ok((
        StatusCode::CREATED,
        Json(NodeCredential {
            felix_token,
            expires_in: life,
            token_type: "Bearer".into(),
            refresh_token,
            refresh_expires_in: NODE_SESSION_SECONDS,
        }),
    ))
}

/// What a node may do.
fn rules(node: &NodeId) -> Result<Vec<Permission>, Refusal> {
    let itself = Permission::new(Action::NodeManage, Object::Node(node.as_ref().into()));
    let view = Permission::new(Action::NodeView, Object::Cluster);
    [itself, view]
        .into_iter()
        .collect::<Result<_, _>>()
        .map_err(|error| Refusal::invalid(error.to_string()))
}

/// Begins a session of the node, and says its id and its first refresh token.
async fn open(app: &App, tenant: &TenantId, principal: &str) -> Result<(String, String), Refusal> {
    let session_id = random_id().map_err(|_| no_randomness())?;
    let secret = Secret::generate().map_err(|_| no_randomness())?;
    let now_ms = now();
    let from = request::current().map(|current| current.from());
    let session = SessionRecord {
        session_id: session_id.clone(),
        principal_id: principal.to_owned(),
        issuer: None,
        service_account: None,
        groups: Vec::new(),
        audience: Audience::ControlPlane.name().into(),
        ask: SessionAsk::default(),
        may_act: None,
        created_at_ms: now_ms,
        refreshed_at_ms: now_ms,
        expires_at_ms: TimeMs(now_ms.0.saturating_add(NODE_SESSION_SECONDS * 1000)),
        generation: 0,
        secret_sha256: secret.digest(),
        from: from.unwrap_or_default(),
    };
    let command = Command::OpenSession {
        tenant_id: tenant.clone(),
        session,
        principal: None,
    };
    app.authority.submit(command).await?;
    let refresh = RefreshToken {
        session_id: session_id.clone(),
        generation: 0,
        secret,
    };
    Ok((session_id, refresh.to_text()))
}

fn token(
    app: &App,
    tenant: &TenantId,
    principal: &str,
    session: &str,
    permissions: Vec<Permission>,
) -> Result<String, Refusal> {
    let failed = |error: &dyn std::fmt::Display| {
        tracing::error!(%error, "a token could not be minted");
        Refusal::internal()
    };
    let key = app
        .authority
        .signing_key(tenant)
        .ok_or_else(|| failed(&"the tenant has no key"))?;
    let life = app.config.exchange_token_ttl_seconds;
    let mut claims = Claims::new(
        tenant.clone(),
        principal.to_owned(),
        Audience::ControlPlane,
        (now().0 / 1000, life),
        permissions,
    );
    claims.session = Some(session.to_owned());
    claims.token_id = Some(random_id().map_err(|_| no_randomness())?);
    let catalogue = app.authority.catalogue();
    if let Some(entry) = catalogue.tenant(tenant.as_ref()) {
        let good_from = revoked::good_from(entry, &claims);
        claims.issued_at = claims.issued_at.max(good_from);
        claims.expires_at = claims.issued_at.saturating_add(life);
    }
    let minted = mint(&key, &claims).map_err(|error| failed(&error))?;
    app.stats.token_minted();
    Ok(minted)
}

fn no_randomness() -> Refusal {
    tracing::error!("the operating system gives no random bytes");
    Refusal::internal()
}
