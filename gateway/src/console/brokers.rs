//! Brokers, as the one that answers knows them.

use axum::Json;
use serde::Serialize;

use super::caller::Caller;
use super::refusal::Refusal;
use super::shown::Listing;

/// One broker.
#[derive(Debug, Serialize)]
pub(super) struct Broker {
    address: String,
    node: Option<String>,
    /// Whether it is the one that answers here.
    entry: bool,
    /// Whether it takes clients.
    ok: bool,
    detail: Option<String>,
}

/// The brokers that take clients, and the one that answers.
pub(super) async fn list(caller: Caller) -> Result<Json<Listing<Broker>>, Refusal> {
    let client = caller.client(&caller.app.config.namespace).await?;
    let known = client.topology().await?;
    let entry = client.broker();
    let is_entry = |address: &str| entry.as_deref() == Some(address);
    let mut items: Vec<Broker> = known
        .into_iter()
        .map(|broker| Broker {
            entry: is_entry(&broker.addr),
            address: broker.addr,
            node: Some(broker.node_id).filter(|node| !node.is_empty()),
            ok: true,
            detail: None,
        })
        .collect();
    if let Some(address) = entry.filter(|_| !items.iter().any(|broker| broker.entry)) {
        items.insert(
            0,
            Broker {
                address,
                node: None,
                entry: true,
                ok: true,
                detail: None,
            },
        );
    }
    Ok(Json(Listing::whole(items)))
}
