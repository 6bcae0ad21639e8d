//! What a new development node has in it: a tenant, its people, a namespace, a stream, two caches.
//! All of it is asked for again at every start; what is there already stays as it is.

use felix_controlplane::{CallRefused, ControlPlane, DevTokens};
use felix_controlplane_client::{Api, CallFailed};
use felix_meta::http::{DevTokenSpec, InitializeSpec};
use felix_meta::record::{CacheSpec, Grouping, NamespaceSpec, Policy, StreamSpec};
use felix_model::{CacheName, Namespace, StreamName, TenantId};

/// The tenant.
pub(super) const TENANT: &str = "dev";
/// The namespace.
pub(super) const NAMESPACE: &str = "default";
/// The durable stream.
pub(super) const STREAM: &str = "orders";
/// The caches.
const CACHES: [&str; 2] = ["config", "stats"];
/// Who a developer is.
pub(super) const DEVELOPER: &str = "p:dev";
/// Who the broker is.
const BROKER: &str = "p:broker";
/// What lets somebody operate the cluster.
pub(super) const OPERATOR_ROLE: &str = "role:operator";
/// Life of every token handed out, in seconds: 30 days, good only from this machine.
const TOKEN_SECONDS: u64 = 30 * 24 * 3600;

/// Why the node could not be filled.
#[derive(Debug, thiserror::Error)]
pub(super) enum SeedFailed {
    /// The control plane refused or did not answer.
    #[error("the development content cannot be made: {0}")]
    Call(#[from] CallFailed),
    /// The control plane refused a call from inside the process.
    #[error("the development content cannot be made: {0}")]
    Refused(#[from] CallRefused),
    /// The control plane could not write what people may do.
    #[error("people cannot be let in: {0}")]
    Roles(#[from] felix_controlplane::WriteFailed),
    /// The template of boards could not be set.
    #[error(transparent)]
    Template(#[from] super::browsers::TemplateFailed),
    /// The names of the development content are good; this says that a rule for names changed.
    #[error("a name of the development content is refused: {0}")]
    Name(#[from] felix_model::BadName),
}

/// The tokens of a development node.
pub(super) struct Tokens {
    /// For clients of the broker.
    pub client: String,
    /// For callers of the control plane, with every right in it.
    pub controlplane: String,
    /// For the broker itself, to follow the catalogue.
    pub node: String,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Tokens(..)")
    }
}

/// Makes the tenant with its first key and its people, and their tokens.
///
/// `issuer` is the provider whose people are let in.
///
/// # Errors
/// When the control plane refuses.
pub(super) async fn people(
    controlplane: &ControlPlane,
    issuer: &str,
) -> Result<Tokens, SeedFailed> {
    let tenant: TenantId = TENANT.parse()?;
    match controlplane.initialize(&tenant, initialize_spec()).await {
        Ok(_) => {}
        Err(refused) if refused.code == "already_initialized" => {}
        Err(refused) => return Err(refused.into()),
    }
    super::roles::give(controlplane, &tenant, issuer).await?;
    tokens(&controlplane.dev_tokens())
}

/// Mints the tokens anew.
///
/// # Errors
/// When the control plane refuses.
pub(super) fn tokens(mint: &DevTokens) -> Result<Tokens, SeedFailed> {
    let tenant: TenantId = TENANT.parse()?;
    let token = |principal: &str, audience: &str| {
        let spec = DevTokenSpec {
            principal: principal.to_owned(),
            audience: Some(audience.to_owned()),
            ttl_seconds: Some(TOKEN_SECONDS),
            ..DevTokenSpec::default()
        };
        mint.mint(&tenant, &spec).map(|answer| answer.felix_token)
    };
    Ok(Tokens {
        client: token(DEVELOPER, "felix-broker")?,
        controlplane: token(DEVELOPER, "felix-controlplane")?,
        node: token(BROKER, "felix-controlplane")?,
    })
}

/// The developer is administrator of the tenant and operator of the cluster; the broker may only
/// look.
pub(super) fn initialize_spec() -> InitializeSpec {
    let policy = |subject: &str, action: &str| Policy {
        subject: subject.to_owned(),
        object: "cluster:*".to_owned(),
        action: action.to_owned(),
    };
    let grouping = |user: &str, role: &str| Grouping {
        user: user.to_owned(),
        role: role.to_owned(),
    };
    InitializeSpec {
        display_name: "Development".to_owned(),
        initial_admin_principals: vec![DEVELOPER.to_owned()],
        policies: vec![
            policy(OPERATOR_ROLE, "tenant.manage"),
            policy(OPERATOR_ROLE, "node.view"),
            policy(OPERATOR_ROLE, "node.manage"),
            policy(OPERATOR_ROLE, "audit.view"),
            policy(OPERATOR_ROLE, "session.manage"),
            policy(OPERATOR_ROLE, "quota.manage"),
            policy("role:broker", "node.view"),
        ],
        groupings: vec![
            grouping(DEVELOPER, OPERATOR_ROLE),
            grouping(BROKER, "role:broker"),
        ],
        ..InitializeSpec::default()
    }
}

/// Makes the namespace, the stream and the caches. What a developer changed since is his: a stream
/// of the name that is set up otherwise stays so.
///
/// # Errors
/// When the control plane refuses for another reason.
pub(super) async fn content(api: &Api) -> Result<(), SeedFailed> {
    let tenant: TenantId = TENANT.parse()?;
    let namespace: Namespace = NAMESPACE.parse()?;
    let spec = NamespaceSpec {
        namespace: namespace.clone(),
        display_name: None,
    };
    there(api.create_namespace(&tenant, &spec).await)?;
    let stream: StreamName = STREAM.parse()?;
    there(
        api.create_stream(&tenant, &namespace, &StreamSpec::new(stream))
            .await,
    )?;
    for cache in CACHES {
        let spec = CacheSpec::new(cache.parse::<CacheName>()?);
        there(api.create_cache(&tenant, &namespace, &spec).await)?;
    }
    super::browsers::template(api).await?;
    Ok(())
}

/// Something of the name that is there already is as good as made.
fn there<T>(made: Result<T, CallFailed>) -> Result<(), SeedFailed> {
    match made {
        Ok(_) | Err(CallFailed::Refused { status: 409, .. }) => Ok(()),
        Err(failed) => Err(failed.into()),
    }
}
