//! What a development node has for browsers: the gateway, the whiteboard it serves, and the template that makes boards.

use std::net::SocketAddr;
use std::path::Path;

use felix_controlplane_client::{Api, CallFailed};
use felix_gateway::{Config, Embedding, Page, Pages, Running, StartRefused};
use felix_meta::{CacheSpec, Overflow, StreamSpec, TemplateSpec};
use felix_model::{BadName, Namespace, TenantId};
use rust_embed::RustEmbed;

use super::provider::CLIENT_ID;
use super::seed;

/// What a board is to browsers.
const SCOPE: &str = include_str!("board.toml");
/// Name of the template that makes boards.
const TEMPLATE: &str = "board";
/// What the names of a board's streams and caches begin with.
const PREFIX: &str = "board-";

/// The whiteboard as it was compiled; empty where it was not.
#[derive(RustEmbed)]
#[folder = "../typescript/examples/whiteboard/dist"]
#[allow_missing = true]
struct Whiteboard;

/// Why boards cannot be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum TemplateFailed {
    /// The control plane refused or did not answer.
    #[error("the template of boards cannot be set: {0}")]
    Call(#[from] CallFailed),
    /// The names are good; this says that a rule for names changed.
    #[error("a name of the template is refused: {0}")]
    Name(#[from] BadName),
}

/// Where the gateway finds what is behind it.
pub(super) struct Behind<'a> {
    pub(super) broker: SocketAddr,
    pub(super) ca: &'a Path,
    pub(super) controlplane_url: &'a str,
    pub(super) issuer: &'a str,
}

/// Starts the gateway, with the console allowed to change things: it is the developer's own node.
///
/// # Errors
/// When it cannot listen.
pub(super) async fn start(
    listen: SocketAddr,
    behind: &Behind<'_>,
) -> Result<Running, StartRefused> {
    let config = Config {
        listen,
        tenant: seed::TENANT.to_owned(),
        namespace: seed::NAMESPACE.to_owned(),
        oidc_issuer: behind.issuer.to_owned(),
        oidc_client_id: CLIENT_ID.to_owned(),
        console_writes: true,
        brokers: vec![behind.broker.to_string()],
        broker_name: "localhost".to_owned(),
        broker_ca: Some(behind.ca.to_owned()),
        controlplane_url: behind.controlplane_url.to_owned(),
        ..Config::default()
    };
    let embedding = Embedding {
        scope: Some(SCOPE.to_owned()),
        pages: Some(Pages::new(find)),
    };
    felix_gateway::start(config, embedding).await
}

fn find(name: &str) -> Option<Page> {
    let file = Whiteboard::get(name)?;
    Some(Page {
        kind: Pages::kind_of(name),
        bytes: file.data,
    })
}

/// Sets the template of boards, unless there is one of the name: what a developer changed since is his.
///
/// # Errors
/// [`TemplateFailed`].
pub(super) async fn template(api: &Api) -> Result<(), TemplateFailed> {
    let tenant: TenantId = seed::TENANT.parse()?;
    let namespace: Namespace = seed::NAMESPACE.parse()?;
    match api.template(&tenant, &namespace, TEMPLATE).await {
        Err(CallFailed::Refused { status: 404, .. }) => {}
        there => return there.map(|_| ()).map_err(TemplateFailed::from),
    }
    let cursors = StreamSpec {
        durable: false,
        overflow: Some(Overflow::DropOld),
        ..StreamSpec::new("cursors".parse()?)
    };
    let presence = CacheSpec {
        durable: Some(false),
        ..CacheSpec::new("presence".parse()?)
    };
    let spec = TemplateSpec {
        prefix: PREFIX.to_owned(),
        streams: vec![StreamSpec::new("edits".parse()?), cursors],
        caches: vec![
            presence,
            CacheSpec::new("snapshot".parse()?),
            CacheSpec::new("seq".parse()?),
        ],
        rooms_max: None,
    };
    api.set_template(&tenant, &namespace, TEMPLATE, &spec)
        .await?;
    Ok(())
}
