//! From roles to grants.

use std::collections::{BTreeMap, BTreeSet};

use crate::action::Action;
use crate::object::{NamePattern, Object};
use crate::permission::Permission;
use crate::token::Audience;

/// The role that the first administrators of a tenant are given.
pub const TENANT_ADMIN_ROLE: &str = "role:tenant-admin";

/// How many steps a role may be away from a user. A longer chain is cut, so that a loop of roles ends.
const ROLE_STEPS_MAX: usize = 16;

/// One rule: whoever has this subject may do this to that. Borrowed from wherever the rules are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy<'a> {
    /// A role, or a principal named directly.
    pub subject: &'a str,
    /// An object of the grammar.
    pub object: &'a str,
    /// An action.
    pub action: &'a str,
}

/// One gift of a role. Borrowed from wherever it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grouping<'a> {
    /// A principal, a group, or a role that receives.
    pub user: &'a str,
    /// The role that is given.
    pub role: &'a str,
}

/// What somebody holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The grants, sorted, without repeats.
    pub permissions: Vec<Permission>,
    /// The roles and groups that gave something, directly or through others, sorted. The principal is not among them.
    pub roles: Vec<String>,
}

/// What a principal holds: the rules of himself and of every role he has, directly or through other roles.
///
/// Rules that do not parse are skipped; they were refused when written, unless a newer build wrote them.
pub fn granted<'a>(
    principal: &'a str,
    groupings: impl IntoIterator<Item = Grouping<'a>>,
    policies: impl IntoIterator<Item = Policy<'a>>,
) -> Vec<Permission> {
    held_by(principal, [], groupings, policies).permissions
}

/// As [`granted`], for a principal who is in groups, and with the roles that gave something.
pub fn held_by<'a>(
    principal: &'a str,
    groups: impl IntoIterator<Item = &'a str>,
    groupings: impl IntoIterator<Item = Grouping<'a>>,
    policies: impl IntoIterator<Item = Policy<'a>>,
) -> Held {
    let mut roles_of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for grouping in groupings {
        roles_of
            .entry(grouping.user)
            .or_default()
            .push(grouping.role);
    }
    let mut subjects: BTreeSet<&str> = groups.into_iter().chain([principal]).collect();
    let mut newest: Vec<&str> = subjects.iter().copied().collect();
    for _ in 0..ROLE_STEPS_MAX {
        let found: Vec<&str> = newest
            .iter()
            .filter_map(|subject| roles_of.get(*subject))
            .flatten()
            .copied()
            .collect();
        newest = found
            .into_iter()
            .filter(|role| subjects.insert(role))
            .collect();
    }
    let mut giving: BTreeSet<&str> = BTreeSet::new();
    let mut permissions: BTreeSet<Permission> = BTreeSet::new();
    for policy in policies {
        let Some(subject) = subjects.get(policy.subject) else {
            continue;
        };
        let parsed = policy.action.parse().ok().zip(policy.object.parse().ok());
        let Some(Ok(permission)) = parsed.map(|(action, object)| Permission::new(action, object))
        else {
            continue;
        };
        giving.insert(subject);
        permissions.insert(permission);
    }
    lead_to(&mut giving, &subjects, &roles_of);
    giving.remove(principal);
    Held {
        permissions: permissions.into_iter().collect(),
        roles: giving.into_iter().map(str::to_owned).collect(),
    }
}

/// Adds to those that give something the roles on the way to them: taking one of those away takes the rest.
fn lead_to<'a>(
    giving: &mut BTreeSet<&'a str>,
    subjects: &BTreeSet<&'a str>,
    roles_of: &BTreeMap<&str, Vec<&'a str>>,
) {
    for _ in 0..ROLE_STEPS_MAX {
        let more: Vec<&str> = subjects
            .iter()
            .copied()
            // A group that only leads to a role is not named: taking the role from it takes back the role.
            .filter(|subject| !subject.starts_with("group:") && !giving.contains(subject))
            .filter(|subject| {
                roles_of
                    .get(subject)
                    .is_some_and(|roles| roles.iter().any(|role| giving.contains(role)))
            })
            .collect();
        if more.is_empty() {
            break;
        }
        giving.extend(more);
    }
}

/// Adds what management of a tenant or a namespace brings with it, and takes away what has no use for the audience.
///
/// Managing a tenant brings its namespaces, sessions and quotas; managing a namespace brings the streams and caches in it. The right to act
/// for others is for the control plane alone, so brokers never see it in a token.
#[must_use]
pub fn expand(held: &[Permission], audience: Audience) -> Vec<Permission> {
    let mut all: BTreeSet<Permission> = held.iter().cloned().collect();
    for grant in held {
        match (&grant.action, &grant.object) {
            (Action::TenantManage, Object::Tenant(tenant)) => {
                all.insert(Permission {
                    action: Action::NamespaceManage,
                    object: Object::Namespace {
                        tenant: tenant.clone(),
                        namespace: NamePattern::Any,
                    },
                });
                all.extend(over(tenant, [Action::SessionManage, Action::QuotaManage]));
                all.extend(within(tenant, &NamePattern::Any));
            }
            (Action::NamespaceManage, Object::Namespace { tenant, namespace }) => {
                all.extend(within(tenant, namespace));
            }
            _ => {}
        }
    }
    all.into_iter()
        .filter(|grant| audience != Audience::Broker || grant.action != Action::TokenDelegate)
        .collect()
}

/// The rules of [`TENANT_ADMIN_ROLE`] in a new tenant.
#[must_use]
pub fn tenant_admin_policies(tenant: &str) -> Vec<Permission> {
    let over_the_tenant = [
        Action::TenantManage,
        Action::RbacView,
        Action::RbacPolicyManage,
        Action::RbacAssignmentManage,
        Action::AuditView,
    ];
    let mut rules: Vec<Permission> = over(tenant, over_the_tenant).collect();
    rules.push(Permission {
        action: Action::NamespaceManage,
        object: Object::Namespace {
            tenant: tenant.into(),
            namespace: NamePattern::Any,
        },
    });
    rules
}

/// Grants over a tenant itself.
fn over<const N: usize>(tenant: &str, actions: [Action; N]) -> impl Iterator<Item = Permission> {
    actions.into_iter().map(move |action| Permission {
        action,
        object: Object::Tenant(tenant.into()),
    })
}

fn within(tenant: &str, namespace: &NamePattern) -> Vec<Permission> {
    let over_streams = [
        Action::StreamPublish,
        Action::StreamSubscribe,
        Action::StreamTrim,
        Action::StreamManage,
    ];
    let over_caches = [Action::CacheRead, Action::CacheWrite, Action::CacheManage];
    let stream = Object::Stream {
        tenant: tenant.into(),
        namespace: namespace.clone(),
        stream: NamePattern::Any,
    };
    let cache = Object::Cache {
        tenant: tenant.into(),
        namespace: namespace.clone(),
        cache: NamePattern::Any,
    };
    over_streams
        .map(|action| Permission {
            action,
            object: stream.clone(),
        })
        .into_iter()
        .chain(over_caches.map(|action| Permission {
            action,
            object: cache.clone(),
        }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_holds_the_rules_of_his_roles_and_of_their_roles() {
        let groupings = [
            Grouping {
                user: "p:alice",
                role: "role:lead",
            },
            Grouping {
                user: "role:lead",
                role: "role:reader",
            },
            Grouping {
                user: "p:bob",
                role: "role:writer",
            },
        ];
        let policies = [
            rule("role:reader", "stream:t/ns/s", "stream.subscribe"),
            rule("role:writer", "stream:t/ns/s", "stream.publish"),
            rule("p:alice", "cache:t/ns/c", "cache.read"),
        ];
        let held = granted("p:alice", groupings, policies);
        let held: Vec<String> = held.iter().map(ToString::to_string).collect();
        assert_eq!(
            held,
            ["stream.subscribe:stream:t/ns/s", "cache.read:cache:t/ns/c"]
        );
    }

    #[test]
    fn groups_bring_their_roles_and_what_gave_something_is_told() {
        let group = "group:https://login.example.com#writers";
        let groupings = [
            grouping(group, "role:lead"),
            grouping("role:lead", "role:writer"),
            grouping("p:alice", "role:empty"),
            grouping("p:bob", "role:other"),
        ];
        let policies = [
            rule("role:writer", "stream:t/ns/s", "stream.publish"),
            rule("p:alice", "cache:t/ns/c", "cache.read"),
            rule("role:other", "cache:t/ns/c", "cache.write"),
        ];
        let held = held_by("p:alice", [group], groupings, policies);
        assert_eq!(held.permissions.len(), 2);
        assert_eq!(held.roles, ["role:lead", "role:writer"]);
        let direct = [rule(group, "stream:t/ns/s", "stream.publish")];
        assert_eq!(
            held_by("p:alice", [group], groupings, direct).roles,
            [group]
        );
        let alone = held_by("p:alice", [], groupings, policies);
        assert_eq!((alone.permissions.len(), alone.roles.len()), (1, 0));
    }

    #[test]
    fn a_loop_of_roles_ends() {
        let groupings = [
            Grouping {
                user: "p",
                role: "role:a",
            },
            Grouping {
                user: "role:a",
                role: "role:b",
            },
            Grouping {
                user: "role:b",
                role: "role:a",
            },
        ];
        let held = granted("p", groupings, [rule("role:b", "tenant:t", "rbac.view")]);
        assert_eq!(held.len(), 1);
    }

    #[test]
    fn managing_a_tenant_brings_everything_inside_it() {
        let expanded = expand(&tenant_admin_policies("t"), Audience::Broker);
        for wanted in [
            "ns.manage:namespace:t/*",
            "stream.publish:stream:t/*/*",
            "stream.manage:stream:t/*/*",
            "cache.write:cache:t/*/*",
            "session.manage:tenant:t",
            "quota.manage:tenant:t",
        ] {
            assert!(expanded.contains(&wanted.parse().unwrap()), "{wanted}");
        }
    }

    #[test]
    fn managing_a_namespace_brings_only_what_is_in_it() {
        let held = ["ns.manage:namespace:t/ns".parse().unwrap()];
        let expanded = expand(&held, Audience::Broker);
        assert!(expanded.contains(&"stream.publish:stream:t/ns/*".parse().unwrap()));
        assert!(
            expanded
                .iter()
                .all(|grant| !grant.to_string().contains("t/*"))
        );
    }

    #[test]
    fn the_cluster_brings_nothing_inside_a_tenant() {
        let held: [Permission; 1] = ["tenant.manage:cluster:*".parse().unwrap()];
        assert_eq!(expand(&held, Audience::ControlPlane), held);
    }

    #[test]
    fn brokers_never_see_the_right_to_act_for_others() {
        let held: [Permission; 1] = ["token.delegate:tenant:t".parse().unwrap()];
        assert!(expand(&held, Audience::Broker).is_empty());
        assert_eq!(expand(&held, Audience::ControlPlane), held);
    }

    const fn grouping<'a>(user: &'a str, role: &'a str) -> Grouping<'a> {
        Grouping { user, role }
    }

    fn rule<'a>(subject: &'a str, object: &'a str, action: &'a str) -> Policy<'a> {
        Policy {
            subject,
            object,
            action,
        }
    }
}
