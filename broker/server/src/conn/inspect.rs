//! What operators ask a broker about itself.

use felix_auth::{Action, Resource};
use felix_wire::error::{Code, Failure};
use felix_wire::message::{
    Message, ObjectKind, ShardInspect, ShardInspection, ShardView, SubscriptionsList,
};

use super::stream::StreamState;

/// Rows of one page when the caller names no number, and at most.
const PAGE: (u32, u32) = (100, 1000);

fn check(state: &StreamState) -> Result<(), Failure> {
    if state.principal.allows(Action::NodeView, &Resource::Cluster) {
        Ok(())
    } else {
        Err(Failure::new(
            Code::Forbidden,
            "the token does not allow node.view on cluster:*",
        ))
    }
}

/// Answers `shard_inspect`.
pub(crate) async fn shard(state: &StreamState, ask: ShardInspect) -> Result<Message, Failure> {
    check(state)?;
    let shared = &state.conn.shared;
    let mut view = ShardView {
        node_id: shared.config.node_id.clone(),
        role: "none".into(),
        phase: "unassigned".into(),
        shards: 0,
        serving: false,
        reason: Some("not_assigned_here".into()),
        detail: None,
        generation: None,
        tail: None,
        committed: None,
        accepted_generation: None,
        assignment: None,
        fence: None,
        lease: None,
        replicas: Vec::new(),
    };
    let id = felix_model::StreamId::new(&ask.tenant_id, &ask.namespace, &ask.name).ok();
    let handle = match (id, ask.kind) {
        (Some(id), ObjectKind::Stream) => shared.find(&id).await,
        (_, ObjectKind::Cache) | (None, _) => None,
    };
    if let Some(handle) = handle {
        view.shards = handle.spec().shards;
        let index = felix_model::ShardIndex(ask.shard);
        if ask.shard < view.shards {
            match shared.shards.open(&handle, index).await {
                Ok(cell) => {
                    let marks = cell.marks();
                    view.role = "leader".into();
                    view.phase = "active".into();
                    view.serving = true;
                    view.reason = None;
                    view.tail = Some(marks.end.0);
                    view.committed = Some(marks.committed.0);
                }
                Err(error) => {
                    view.phase = "failed".into();
                    view.reason = Some("failed".into());
                    view.detail = Some(error.to_string());
                }
            }
        }
    }
    Ok(ShardInspection {
        view: Box::new(view),
        request_id: ask.request_id,
    }
    .into())
}

/// Answers `subscriptions_list`.
pub(crate) fn subscriptions(
    state: &StreamState,
    ask: &SubscriptionsList,
) -> Result<Message, Failure> {
    check(state)?;
    let limit = ask.limit.unwrap_or(PAGE.0).clamp(1, PAGE.1) as usize;
    Ok(state.conn.shared.subscriptions.page(
        &state.conn.shared.config.node_id,
        &ask.filter,
        ask.cursor.as_deref(),
        limit,
        ask.request_id,
    ))
}
