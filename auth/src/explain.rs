//! Why a check says yes or no, for people.

use std::fmt;

use felix_model::TimeMs;

use crate::action::Action;
use crate::matcher::Permissions;
use crate::object::{NamePattern, Object};
use crate::permission::Permission;
use crate::principal::Principal;
use crate::resource::Resource;
use crate::revoked::{Revocations, RevokedBy};

/// Grants that are shown as near misses. More would hide the one that was meant.
const NEAR_MISSES_MAX: usize = 5;

/// The answer to a check, with its reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// What the grants say.
    pub verdict: Verdict,
    /// Why the token is worth nothing whatever the grants say; [`None`] when it is good, or when only grants were given.
    pub ended: Option<Ended>,
    /// Grants that would have allowed something close to it, the closest first; empty when it is allowed.
    pub near: Vec<NearMiss>,
}

/// What the grants say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This grant allows it. Its action may be an older, wider one that implies the one asked about.
    Allowed {
        /// The grant.
        by: Permission,
    },
    /// A stream-wide grant would allow it, but group grants of the action name this stream and not this group.
    Restricted {
        /// The grant that would allow it.
        would: Permission,
        /// The group grants that keep it from doing so.
        by: Vec<Permission>,
    },
    /// The thing belongs to another tenant, in which nothing is ever allowed.
    OtherTenant,
    /// No grant covers it.
    Missing,
}

/// Why a token is worth nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It ran out at this instant, unix ms.
    Expired {
        /// When.
        at_ms: TimeMs,
    },
    /// It was revoked.
    Revoked(RevokedBy),
}

/// A grant that came close.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearMiss {
    /// The grant.
    pub grant: Permission,
    /// What about it does not fit.
    pub lacks: Lacks,
}

/// What about a grant does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lacks {
    /// It covers the thing, for another action.
    Action,
    /// It is for the action and in the same namespace, and covers other names there.
    Name,
    /// It is for the action, in another place.
    Place,
}

impl Explanation {
    /// Whether a check would say yes.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        self.ended.is_none() && matches!(self.verdict, Verdict::Allowed { .. })
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.ended {
            Some(Ended::Expired { at_ms }) => {
                return write!(out, "no: the token ran out at {} ms", at_ms.0);
            }
            Some(Ended::Revoked(by)) => return write!(out, "no: {by}"),
            None => {}
        }
        match &self.verdict {
            Verdict::Allowed { by } => write!(out, "yes: `{by}` allows it"),
            Verdict::Restricted { would, by } => {
                let by: Vec<String> = by.iter().map(|one| format!("`{one}`")).collect();
                let by = by.join(", ");
                write!(out, "no: `{would}` would, but {by} leaves other groups out")
            }
            Verdict::OtherTenant => out.write_str("no: it belongs to another tenant"),
            Verdict::Missing => out.write_str("no: no grant covers it"),
        }
    }
}

/// Says why these grants allow this, or do not. It always agrees with [`Permissions::allows`].
#[must_use]
pub fn explain(permissions: &Permissions, action: Action, resource: &Resource<'_>) -> Explanation {
    let verdict = judge(permissions, action, resource);
    let near = match verdict {
        Verdict::Allowed { .. } | Verdict::OtherTenant => Vec::new(),
        Verdict::Restricted { .. } | Verdict::Missing => near(permissions, action, resource),
    };
    Explanation {
        verdict,
        ended: None,
        near,
    }
}

/// As [`explain`], and says too whether the token behind the principal ran out or was revoked at `now`.
#[must_use]
pub fn explain_principal(
    principal: &Principal,
    revocations: &Revocations,
    now: TimeMs,
    (action, resource): (Action, &Resource<'_>),
) -> Explanation {
    let ended = if let Some(by) = revocations.covers(principal) {
        Some(Ended::Revoked(by))
    } else if principal.is_expired(now) {
        Some(Ended::Expired {
            at_ms: principal.expires_at_ms,
        })
    } else {
        None
    };
    Explanation {
        ended,
        ..explain(&principal.permissions, action, resource)
    }
}

fn judge(permissions: &Permissions, action: Action, resource: &Resource<'_>) -> Verdict {
    if resource
        .tenant()
        .is_some_and(|tenant| tenant != permissions.tenant())
    {
        return Verdict::OtherTenant;
    }
    let grants = permissions.grants();
    let gives = |grant: &&Permission| {
        (grant.action == action && grant.object.covers(resource))
            || (action.implied_by().contains(&grant.action)
                && !matches!(grant.object, Object::Group { .. })
                && grant.object.covers(resource))
    };
    let of_groups = |grant: &&Permission| matches!(grant.object, Object::Group { .. });
    if let Some(by) = grants.iter().find(|grant| of_groups(grant) && gives(grant)) {
        return Verdict::Allowed { by: by.clone() };
    }
    let Some(found) = grants.iter().find(gives) else {
        return Verdict::Missing;
    };
    let restricting: Vec<Permission> = grants
        .iter()
        .filter(|grant| grant.action == action && names_the_stream_of(&grant.object, resource))
        .cloned()
        .collect();
    if restricting.is_empty() {
        return Verdict::Allowed { by: found.clone() };
    }
    Verdict::Restricted {
        would: found.clone(),
        by: restricting,
    }
}

/// Whether a group grant speaks about the stream that a group belongs to.
fn names_the_stream_of(object: &Object, resource: &Resource<'_>) -> bool {
    let Object::Group {
        namespace: space,
        stream: of,
        ..
    } = object
    else {
        return false;
    };
    matches!(resource, Resource::Group { namespace, stream, .. }
        if space.covers(namespace) && of.covers(stream))
}

fn near(permissions: &Permissions, action: Action, resource: &Resource<'_>) -> Vec<NearMiss> {
    let place = place_of_resource(resource);
    let mut found: Vec<NearMiss> = permissions
        .grants()
        .iter()
        .filter_map(|grant| {
            let for_action = grant.action == action || action.implied_by().contains(&grant.action);
            let lacks = if grant.object.covers(resource) {
                // A grant that covers it for the action is the one that was restricted: no near miss.
                (!for_action).then_some(Lacks::Action)?
            } else if !for_action {
                return None;
            } else if place
                .is_some_and(|name| place_of(&grant.object).is_some_and(|at| at.covers(name)))
            {
                Lacks::Name
            } else {
                Lacks::Place
            };
            Some(NearMiss {
                grant: grant.clone(),
                lacks,
            })
        })
        .collect();
    found.sort_by_key(|miss| miss.lacks);
    found.truncate(NEAR_MISSES_MAX);
    found
}

fn place_of_resource<'a>(resource: &Resource<'a>) -> Option<&'a str> {
    match *resource {
        Resource::Cluster | Resource::Node(_) | Resource::Tenant(_) => None,
        Resource::Namespace { namespace, .. }
        | Resource::Stream { namespace, .. }
        | Resource::Group { namespace, .. }
        | Resource::Cache { namespace, .. }
        | Resource::CacheKey { namespace, .. }
        | Resource::CachePrefix { namespace, .. } => Some(namespace),
    }
}

fn place_of(object: &Object) -> Option<NamePattern> {
    match object {
        Object::Cluster | Object::Node(_) | Object::Tenant(_) => None,
        Object::Namespace { namespace, .. }
        | Object::Stream { namespace, .. }
        | Object::Cache { namespace, .. }
        | Object::Group { namespace, .. } => Some(namespace.clone()),
        Object::CacheKey { namespace, .. } => Some(NamePattern::Exact(namespace.clone())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use super::*;
    use crate::revoked::Revocation;
    use felix_model::RevokedKind;

    #[test]
    fn a_yes_names_the_grant_that_gives_it() {
        let explained = ask(
            &["stream.subscribe:stream:t/ns/room.*"],
            "group.consume",
            "group:t/ns/room.1/g",
        );
        assert!(explained.is_allowed());
        assert_eq!(
            explained.to_string(),
            "yes: `stream.subscribe:stream:t/ns/room.*` allows it"
        );
    }

    #[test]
    fn a_no_names_the_group_grant_that_restricts() {
        let grants = [
            "stream.subscribe:stream:t/ns/*",
            "group.consume:group:t/ns/s/g",
        ];
        let explained = ask(&grants, "group.consume", "group:t/ns/s/other");
        assert_eq!(
            explained.to_string(),
            "no: `stream.subscribe:stream:t/ns/*` would, but `group.consume:group:t/ns/s/g` leaves other groups out"
        );
    }

    #[test]
    fn a_no_shows_what_came_close_the_closest_first() {
        let grants = [
            "stream.publish:stream:t/other/*",
            "stream.publish:stream:t/ns/room.*",
            "stream.subscribe:stream:t/ns/*",
            "cache.read:cache:t/ns/c",
        ];
        let explained = ask(&grants, "stream.publish", "stream:t/ns/lobby");
        assert_eq!(explained.verdict, Verdict::Missing);
        let near: Vec<(String, Lacks)> = explained
            .near
            .iter()
            .map(|miss| (miss.grant.to_string(), miss.lacks))
            .collect();
        assert_eq!(
            near,
            [
                ("stream.subscribe:stream:t/ns/*".into(), Lacks::Action),
                ("stream.publish:stream:t/ns/room.*".into(), Lacks::Name),
                ("stream.publish:stream:t/other/*".into(), Lacks::Place),
            ]
        );
    }

    #[test]
    fn another_tenants_thing_is_told_apart_from_a_missing_grant() {
        let explained = ask(
            &["stream.publish:stream:t/*/*"],
            "stream.publish",
            "stream:u/ns/s",
        );
        assert_eq!(explained.verdict, Verdict::OtherTenant);
    }

    #[test]
    fn a_token_that_ended_allows_nothing_whatever_its_grants() {
        let grant = "stream.publish:stream:t/*/*".parse().unwrap();
        let principal = Principal::new(
            "t".parse().unwrap(),
            "p:alice",
            (TimeMs(1000), TimeMs(2000)),
            Arc::new(Permissions::compile("t", [grant])),
        );
        let object: Object = "stream:t/ns/s".parse().unwrap();
        let resource = object.as_resource().unwrap();
        let at = |now, revoked: &Revocations| {
            explain_principal(
                &principal,
                revoked,
                TimeMs(now),
                (Action::StreamPublish, &resource),
            )
        };
        let nothing = Revocations::default();
        assert!(at(1999, &nothing).is_allowed());
        assert_eq!(
            at(2000, &nothing).to_string(),
            "no: the token ran out at 2000 ms"
        );
        let revoked = Revocations::new([Revocation {
            kind: RevokedKind::Principal,
            id: "p:alice",
            not_before_ms: TimeMs(1000),
        }]);
        assert_eq!(
            at(1500, &revoked).to_string(),
            "no: the principal behind this token was revoked"
        );
    }

    proptest! {
        #[test]
        fn an_explanation_agrees_with_the_check(
            held in prop::collection::vec((select(Action::ALL), any::<Index>()), 0..8),
            action in select(Action::ALL),
            about in any::<Index>(),
        ) {
            let held = held.into_iter().filter_map(|(action, at)| {
                Permission::new(action, at.get(OBJECTS).parse().unwrap()).ok()
            });
            let permissions = Permissions::compile("t", held);
            let about: Object = about.get(RESOURCES).parse().unwrap();
            let resource = about.as_resource().unwrap();
            prop_assert_eq!(
                explain(&permissions, action, &resource).is_allowed(),
                permissions.allows(action, &resource)
            );
        }
    }

    const OBJECTS: &[&str] = &[
        "cluster:*",
        "node:n",
        "tenant:t",
        "namespace:t/n",
        "stream:t/n/ab",
        "stream:t/n/a*",
        "stream:t/*/*",
        "cache:t/n/c",
        "cache:t/n/c/k*",
        "group:t/n/ab/g",
        "group:t/n/ab/*",
        "group:t/n/*/*",
        "group:t/*/*/*",
    ];

    const RESOURCES: &[&str] = &[
        "cluster:*",
        "node:n",
        "tenant:t",
        "namespace:t/n",
        "stream:t/n/ab",
        "stream:t/m/ab",
        "cache:t/n/c",
        "cache:t/n/c/k1",
        "cache:t/n/c/k*",
        "group:t/n/ab/g",
        "group:t/n/ab/h",
        "group:t/n/b/h",
        "group:t/m/b/h",
        "stream:u/n/ab",
    ];

    fn ask(grants: &[&str], action: &str, about: &str) -> Explanation {
        let permissions = Permissions::compile_claim("t", grants.iter().copied());
        let about: Object = about.parse().unwrap();
        explain(
            &permissions,
            action.parse().unwrap(),
            &about.as_resource().unwrap(),
        )
    }
}
