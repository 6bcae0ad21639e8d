//! Who asks, and what he may.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::Query;
use felix_auth::{
    Action, Lacks, NamePattern, Object, Permission, Permissions, Verdict, explain as judge,
};
use felix_client::raw::RawDescribe;
use serde::{Deserialize, Serialize};

use super::caller::Caller;
use super::limits::ITEMS;
use super::people::Via;
use super::refusal::Refusal;

/// Rights that are listed, of as many as there are.
const GRANTS: usize = 1_000;

/// Who asks.
#[derive(Debug, Serialize)]
pub(super) struct Me {
    principal: String,
    tenant: String,
    name: Option<String>,
    roles: Vec<String>,
    actor: Option<String>,
    session: Option<String>,
    expires_at_ms: Option<u64>,
    via: &'static str,
    grants: Vec<Grant>,
    writable: bool,
    namespaces: BTreeSet<String>,
    actions: Vec<&'static str>,
    version: &'static str,
}

#[derive(Debug, Serialize)]
struct Grant {
    action: &'static str,
    object: String,
}

/// A question about one's rights.
#[derive(Debug, Deserialize)]
pub(super) struct Question {
    action: String,
    object: String,
}

/// Its answer.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Explained {
    allowed: bool,
    because: String,
    near: Vec<Near>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Near {
    grant: String,
    lacks: &'static str,
}

/// Who asks, as his token says and a broker confirms by letting him in.
pub(super) async fn me(caller: Caller) -> Result<Json<Me>, Refusal> {
    let claims = caller.person.claims().await?;
    let namespaces = namespaces(&caller, &claims.permissions()).await?;
    let permissions = claims.permissions();
    let grants = permissions.grants().iter().take(GRANTS).map(|grant| Grant {
        action: grant.action.name(),
        object: grant.object.to_string(),
    });
    Ok(Json(Me {
        grants: grants.collect(),
        actor: claims.actor().map(str::to_owned),
        expires_at_ms: claims.expires_at_ms(),
        principal: claims.principal,
        tenant: claims.tenant,
        name: caller.person.name.clone(),
        roles: claims.roles,
        session: claims.session,
        via: match caller.person.via {
            Via::Session => "session",
            Via::Token => "token",
        },
        writable: caller.app.config.console_writes,
        namespaces,
        actions: Action::ALL.iter().map(|action| action.name()).collect(),
        version: env!("CARGO_PKG_VERSION"),
    }))
}

/// Namespaces of which the caller knows something: of his streams, of his rights, and of those he manages.
async fn namespaces(
    caller: &Caller,
    permissions: &Permissions,
) -> Result<BTreeSet<String>, Refusal> {
    let own = &caller.app.config.namespace;
    let client = caller.client(own).await?;
    let every = RawDescribe {
        streams: None,
        want_shards: false,
    };
    let described = client.raw().describe(every).await?;
    let mut names: BTreeSet<String> = std::iter::once(own.clone()).collect();
    names.extend(
        described
            .streams
            .iter()
            .map(|stream| stream.namespace.as_str().to_owned()),
    );
    names.extend(
        permissions
            .grants()
            .iter()
            .filter_map(|grant| named(&grant.object)),
    );
    let console = &caller.app.console;
    if let Some(api) = caller.person.api(console).await? {
        match api.namespaces(console.tenant()).await {
            Ok(managed) => names.extend(
                managed
                    .iter()
                    .map(|space| space.namespace.as_ref().to_owned()),
            ),
            Err(failed) => tracing::debug!(%failed, "the control plane lists no namespaces"),
        }
    }
    Ok(names.into_iter().take(ITEMS as usize).collect())
}

/// The namespace that a right names.
fn named(object: &Object) -> Option<String> {
    match object {
        Object::Namespace { namespace, .. }
        | Object::Stream { namespace, .. }
        | Object::Cache { namespace, .. }
        | Object::Group { namespace, .. } => match namespace {
            NamePattern::Exact(name) => Some(name.to_string()),
            NamePattern::Any | NamePattern::Prefix(_) => None,
        },
        Object::CacheKey { namespace, .. } => Some(namespace.to_string()),
        Object::Cluster | Object::Node(_) | Object::Tenant(_) => None,
    }
}

/// May the caller do this to that, and why?
pub(super) async fn explain(
    caller: Caller,
    Query(question): Query<Question>,
) -> Result<Json<Explained>, Refusal> {
    let permissions = caller.person.claims().await?.permissions();
    answer(&permissions, &question).map(Json)
}

fn answer(permissions: &Permissions, question: &Question) -> Result<Explained, Refusal> {
    let action: Action = question.action.parse().map_err(Refusal::invalid)?;
    let object: Object = question.object.parse().map_err(Refusal::invalid)?;
    let ask = Permission::new(action, object).map_err(Refusal::invalid)?;
    let Some(resource) = ask.object.as_resource() else {
        return Ok(of_many(permissions, &ask));
    };
    let explanation = judge(permissions, ask.action, &resource);
    let because = match &explanation.verdict {
        Verdict::Allowed { by } => allowed_by(by, action),
        Verdict::Restricted { would, by } => {
            let by: Vec<String> = by.iter().map(ToString::to_string).collect();
            format!(
                "{would} would, but {} keeps it to other groups of the stream",
                by.join(" and ")
            )
        }
        Verdict::OtherTenant => "It belongs to another tenant.".to_owned(),
        Verdict::Missing => format!("No right of yours gives {action} there."),
    };
    let near = explanation.near.iter().map(|miss| Near {
        grant: miss.grant.to_string(),
        lacks: match miss.lacks {
            Lacks::Action => "is for another action",
            Lacks::Name => "is for other names",
            Lacks::Place => "is for another place",
        },
    });
    Ok(Explained {
        allowed: explanation.is_allowed(),
        because,
        near: near.collect(),
    })
}

/// A question about many things at once: one right must hold them all.
fn of_many(permissions: &Permissions, ask: &Permission) -> Explained {
    let gives = |grant: &&Permission| {
        grant.action == ask.action || ask.action.implied_by().contains(&grant.action)
    };
    let grants = permissions.grants().iter().filter(gives);
    let holding = grants.clone().find(|grant| grant.object.holds(&ask.object));
    match holding {
        Some(grant) => Explained {
            allowed: true,
            because: allowed_by(grant, ask.action),
            near: Vec::new(),
        },
        None => Explained {
            allowed: false,
            because: format!("No right of yours gives {} on all of that.", ask.action),
            near: grants
                .take(5)
                .map(|grant| Near {
                    grant: grant.to_string(),
                    lacks: "holds a part of it, or nothing",
                })
                .collect(),
        },
    }
}

fn allowed_by(grant: &Permission, action: Action) -> String {
    if grant.action == action {
        format!("Your right {grant} allows it.")
    } else {
        format!("Your right {grant} allows it: it implies {action}.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(action: &str, object: &str) -> Result<Explained, Refusal> {
        let rights = ["stream.publish:stream:t/ns/a", "cache.read:cache:t/ns/*"];
        let permissions = Permissions::compile_claim("t", rights);
        let question = Question {
            action: action.into(),
            object: object.into(),
        };
        answer(&permissions, &question)
    }

    #[test]
    fn the_right_that_decides_is_named_and_what_is_near_is_shown() {
        let yes = ask("cache.watch", "cache:t/ns/config").unwrap();
        assert!(yes.allowed && yes.because.contains("implies cache.watch"));
        let no = ask("stream.publish", "stream:t/ns/b").unwrap();
        assert!(!no.allowed);
        assert_eq!(
            no.near.first().map(|near| near.lacks),
            Some("is for other names")
        );
        assert!(!ask("stream.publish", "stream:t/ns/*").unwrap().allowed);
        assert!(ask("stream.publsh", "stream:t/ns/a").is_err());
    }
}
