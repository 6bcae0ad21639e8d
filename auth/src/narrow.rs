//! Taking less than one holds.

use std::collections::BTreeSet;

use crate::action::Action;
use crate::object::Object;
use crate::permission::Permission;

/// What someone wants of what he holds. Everything empty asks for all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Keep only these actions; empty keeps all.
    pub requested: Vec<Action>,
    /// Narrow every grant to these objects; empty keeps all.
    pub resources: Vec<Object>,
    /// Narrow to these pairs, each on its own; empty keeps all.
    pub permissions: Vec<Permission>,
}

/// Why an ask gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NarrowRefused {
    /// No grant covers any of what was asked for.
    #[error("no permissions")]
    NothingLeft,
    /// Pairs were asked for together with actions or objects, which would say the same thing twice.
    #[error("`permissions` stands alone: `requested` and `resources` must be empty beside it")]
    PairsNotAlone,
}

/// The part of `grants` that `ask` asks for. The answer never allows what the grants did not.
///
/// A wider ask yields the grant itself. An action that a held action implies may be asked for by its own name. Group
/// grants of any action restrict stream-wide ones, so those that touch a kept stream stay in the answer even when nobody
/// asked.
///
/// # Errors
/// [`NarrowRefused`] when nothing is left or the ask is contradictory.
pub fn narrow(grants: &[Permission], ask: &Ask) -> Result<Vec<Permission>, NarrowRefused> {
    let by_parts = !ask.requested.is_empty() || !ask.resources.is_empty();
    if by_parts && !ask.permissions.is_empty() {
        return Err(NarrowRefused::PairsNotAlone);
    }
    let mut kept: BTreeSet<Permission> = BTreeSet::new();
    for grant in grants {
        if !by_parts && ask.permissions.is_empty() {
            kept.insert(grant.clone());
        }
        for pair in &ask.permissions {
            kept.extend(take(grants, grant, pair.action, Some(&pair.object)));
        }
        if by_parts {
            kept.extend(take_parts(grants, grant, ask));
        }
    }
    let restrictions: Vec<Permission> = grants
        .iter()
        .filter(|grant| restricts(grant, &kept))
        .cloned()
        .collect();
    kept.extend(restrictions);
    if kept.is_empty() {
        Err(NarrowRefused::NothingLeft)
    } else {
        Ok(kept.into_iter().collect())
    }
}

fn take_parts(grants: &[Permission], grant: &Permission, ask: &Ask) -> Vec<Permission> {
    let own = [grant.action];
    let actions: &[Action] = if ask.requested.is_empty() {
        &own
    } else {
        &ask.requested
    };
    let mut taken = Vec::new();
    for action in actions {
        if ask.resources.is_empty() {
            taken.extend(take(grants, grant, *action, None));
        }
        for object in &ask.resources {
            taken.extend(take(grants, grant, *action, Some(object)));
        }
    }
    taken
}

/// What one grant gives of one asked pair.
fn take(
    grants: &[Permission],
    grant: &Permission,
    action: Action,
    asked: Option<&Object>,
) -> Option<Permission> {
    if grant.action != action && !action.implied_by().contains(&grant.action) {
        return None;
    }
    let object = match asked {
        Some(asked) => grant.object.intersect(asked)?,
        None => grant.object.clone(),
    };
    let from_a_stream_wide_grant = matches!(grant.object, Object::Stream { .. });
    let to_groups = matches!(object, Object::Group { .. });
    if from_a_stream_wide_grant && to_groups && is_restricted(grants, action, &object) {
        return None;
    }
    // A group grant of another action says nothing about this one.
    if to_groups && !from_a_stream_wide_grant && grant.action != action {
        return None;
    }
    Permission::new(action, object).ok()
}

/// Whether group grants already speak about a stream that this group object touches.
fn is_restricted(grants: &[Permission], action: Action, object: &Object) -> bool {
    grants
        .iter()
        .any(|held| held.action == action && touches_a_stream_of(&held.object, object))
}

/// Whether a group grant must stay, because it restricts a stream-wide grant that was kept.
fn restricts(held: &Permission, kept: &BTreeSet<Permission>) -> bool {
    matches!(held.object, Object::Group { .. })
        && kept.iter().any(|grant| {
            let gives =
                grant.action == held.action || held.action.implied_by().contains(&grant.action);
            gives && touches_a_stream_of(&held.object, &grant.object)
        })
}

/// Whether a group object and another group or stream object share a stream.
fn touches_a_stream_of(group: &Object, other: &Object) -> bool {
    let (
        Object::Group {
            namespace, stream, ..
        },
        Object::Stream {
            namespace: space,
            stream: of,
            ..
        }
        | Object::Group {
            namespace: space,
            stream: of,
            ..
        },
    ) = (group, other)
    else {
        return false;
    };
    group.tenant() == other.tenant() && namespace.meets(space) && stream.meets(of)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use super::*;
    use crate::matcher::Permissions;
    use crate::resource::Resource;

    #[test]
    fn an_empty_ask_keeps_everything() {
        let held = grants(&["stream.publish:stream:t/ns/*", "cache.read:cache:t/ns/c"]);
        let kept = narrow(&held, &Ask::default()).unwrap();
        assert_eq!(kept.len(), 2);
    }

    #[test]
    fn actions_and_objects_multiply() {
        let held = grants(&[
            "stream.publish:stream:t/ns/*",
            "stream.subscribe:stream:t/ns/*",
        ]);
        let ask = Ask {
            requested: vec![Action::StreamPublish],
            resources: vec![
                "stream:t/ns/a".parse().unwrap(),
                "stream:t/ns/b".parse().unwrap(),
            ],
            permissions: vec![],
        };
        assert_eq!(
            narrow(&held, &ask),
            Ok(grants(&[
                "stream.publish:stream:t/ns/a",
                "stream.publish:stream:t/ns/b"
            ]))
        );
    }

    #[test]
    fn a_wider_ask_yields_the_grant_itself() {
        let held = grants(&["cache.read:cache:t/ns/c/room1/*"]);
        let ask = pairs(&["cache.read:cache:t/*/*"]);
        assert_eq!(narrow(&held, &ask), Ok(held));
    }

    #[test]
    fn an_implied_action_can_be_asked_for_by_its_own_name() {
        let held = grants(&["cache.read:cache:t/ns/c"]);
        let ask = pairs(&["cache.watch:cache:t/ns/c/k"]);
        assert_eq!(
            narrow(&held, &ask),
            Ok(grants(&["cache.watch:cache:t/ns/c/k"]))
        );
    }

    #[test]
    fn an_ask_for_nothing_that_is_held_is_refused() {
        let held = grants(&["cache.read:cache:t/ns/c"]);
        assert_eq!(
            narrow(&held, &pairs(&["cache.write:cache:t/ns/c"])),
            Err(NarrowRefused::NothingLeft)
        );
    }

    #[test]
    fn pairs_beside_actions_are_refused() {
        let mut ask = pairs(&["cache.write:cache:t/ns/c"]);
        ask.requested.push(Action::CacheWrite);
        assert_eq!(narrow(&[], &ask), Err(NarrowRefused::PairsNotAlone));
    }

    #[test]
    fn dropping_a_group_grant_does_not_open_the_other_groups() {
        let held = grants(&[
            "stream.subscribe:stream:t/ns/s",
            "group.consume:group:t/ns/s/g",
        ]);
        let kept = narrow(&held, &pairs(&["stream.subscribe:stream:t/ns/s"])).unwrap();
        let permissions = Permissions::compile("t", kept);
        let other = Resource::Group {
            tenant: "t",
            namespace: "ns",
            stream: "s",
            group: "h",
        };
        assert!(!permissions.allows(Action::GroupConsume, &other));
    }

    #[test]
    fn group_grants_of_every_action_go_on_restricting() {
        let held = grants(&["cache.read:stream:t/n/*", "cache.watch:group:t/n/ab/g"]);
        let ask = Ask {
            requested: vec![Action::CacheRead],
            ..Ask::default()
        };
        let permissions = Permissions::compile("t", narrow(&held, &ask).unwrap());
        let other = Resource::Group {
            tenant: "t",
            namespace: "n",
            stream: "ab",
            group: "h",
        };
        assert!(!permissions.allows(Action::CacheWatch, &other));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn narrowing_never_widens(
            held in prop::collection::vec(permission(), 0..6),
            requested in prop::collection::vec(select(ACTIONS), 0..3),
            resources in prop::collection::vec(object(), 0..3),
            pairs in prop::collection::vec(permission(), 0..4),
            by_pairs in any::<bool>(),
        ) {
            let ask = if by_pairs {
                Ask { permissions: pairs, ..Ask::default() }
            } else {
                Ask { requested, resources, permissions: vec![] }
            };
            let Ok(kept) = narrow(&held, &ask) else { return Ok(()) };
            let before = Permissions::compile("t", held.clone());
            let after = Permissions::compile("t", kept.clone());
            for action in ACTIONS {
                for resource in universe() {
                    prop_assert!(
                        before.allows(*action, &resource) || !after.allows(*action, &resource),
                        "{action} over {resource:?}: {held:?} narrowed by {ask:?} to {kept:?}"
                    );
                }
            }
        }

        #[test]
        fn a_session_never_gets_more_than_it_asked_for_however_its_owners_rights_grow(
            held in prop::collection::vec(permission(), 1..5),
            gained in prop::collection::vec(permission(), 0..5),
            asked in prop::collection::vec(permission(), 1..4),
            taken_on in prop::collection::vec(permission(), 1..3),
        ) {
            let ask = Ask { permissions: asked.clone(), ..Ask::default() };
            let all: Vec<Permission> = held.iter().chain(&gained).cloned().collect();
            let Ok(refreshed) = narrow(&all, &ask) else { return Ok(()) };
            let owner = Permissions::compile("t", all);
            // What the asked pairs would allow if somebody held them, restrictions aside.
            let covered = |action: Action, resource: &Resource<'_>| {
                asked.iter().any(|pair| {
                    (pair.action == action || action.implied_by().contains(&pair.action))
                        && pair.object.covers(resource)
                })
            };
            // A gateway takes a part of that, or of as much as it likes to ask for.
            let part = Ask { permissions: taken_on, ..Ask::default() };
            let delegated = narrow(&refreshed, &part).unwrap_or_default();
            let refreshed = Permissions::compile("t", refreshed);
            let delegated = Permissions::compile("t", delegated);
            for action in ACTIONS {
                for resource in universe() {
                    let may = refreshed.allows(*action, &resource);
                    prop_assert!(!may || owner.allows(*action, &resource), "{action} {resource:?}");
                    // Group grants that restrict are kept unasked; they allow their own group, which the owner may.
                    let restricting = matches!(resource, Resource::Group { .. });
                    prop_assert!(
                        !may || restricting || covered(*action, &resource),
                        "{action} {resource:?}"
                    );
                    prop_assert!(!delegated.allows(*action, &resource) || may, "{action} {resource:?}");
                }
            }
        }

        #[test]
        fn an_empty_ask_keeps_every_right(held in prop::collection::vec(permission(), 1..6)) {
            let kept = narrow(&held, &Ask::default()).unwrap();
            let before = Permissions::compile("t", held);
            let after = Permissions::compile("t", kept);
            for action in ACTIONS {
                for resource in universe() {
                    prop_assert_eq!(
                        before.allows(*action, &resource),
                        after.allows(*action, &resource)
                    );
                }
            }
        }
    }

    const ACTIONS: &[Action] = &[
        Action::StreamPublish,
        Action::StreamSubscribe,
        Action::StreamManage,
        Action::GroupConsume,
        Action::GroupManage,
        Action::CacheRead,
        Action::CacheWatch,
        Action::CounterAdd,
        Action::TenantManage,
    ];

    const OBJECTS: &[&str] = &[
        "cluster:*",
        "tenant:t",
        "namespace:t/n",
        "namespace:t/*",
        "stream:t/n/ab",
        "stream:t/n/a*",
        "stream:t/n/ab*",
        "stream:t/n/*",
        "stream:t/m/b",
        "stream:t/*/*",
        "cache:t/n/c",
        "cache:t/*/*",
        "cache:t/n/c/k1",
        "cache:t/n/c/k*",
        "group:t/n/ab/g",
        "group:t/n/ab/*",
        "group:t/n/b/h",
        "group:t/n/*/*",
        "group:t/*/*/*",
    ];

    fn object() -> impl Strategy<Value = Object> {
        any::<Index>().prop_map(|at| at.get(OBJECTS).parse().unwrap())
    }

    fn permission() -> impl Strategy<Value = Permission> {
        (select(ACTIONS), object()).prop_filter_map("no key for this action", |(action, object)| {
            Permission::new(action, object).ok()
        })
    }

    fn universe() -> Vec<Resource<'static>> {
        let mut all = vec![
            Resource::Cluster,
            Resource::Tenant("t"),
            Resource::Namespace {
                tenant: "t",
                namespace: "n",
            },
            Resource::Cache {
                tenant: "t",
                namespace: "n",
                cache: "c",
            },
        ];
        for namespace in ["n", "m"] {
            for stream in ["a", "ab", "abc", "b"] {
                all.push(Resource::Stream {
                    tenant: "t",
                    namespace,
                    stream,
                });
                for group in ["g", "h"] {
                    all.push(Resource::Group {
                        tenant: "t",
                        namespace,
                        stream,
                        group,
                    });
                }
            }
        }
        for key in ["k1", "k2", "x"] {
            let (tenant, namespace, cache) = ("t", "n", "c");
            all.push(Resource::CacheKey {
                tenant,
                namespace,
                cache,
                key,
            });
            all.push(Resource::CachePrefix {
                tenant,
                namespace,
                cache,
                prefix: key,
            });
        }
        all
    }

    fn grants(texts: &[&str]) -> Vec<Permission> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn pairs(texts: &[&str]) -> Ask {
        Ask {
            permissions: grants(texts),
            ..Ask::default()
        }
    }
}
