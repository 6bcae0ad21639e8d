//! The compiled form of a token's grants.

use std::sync::OnceLock;

use crate::action::Action;
use crate::object::Object;
use crate::permission::{Grant, Permission};
use crate::resource::Resource;

mod build;
mod names;

use names::{Names, Scoped, Span, Table, Texts, TextsDraft};

/// Everything one principal may do, compiled once when his token is verified.
///
/// [`Permissions::allows`] allocates nothing and costs a few binary searches, however many grants there are. Grants
/// over another tenant than the token's own confer nothing: they are dropped while compiling.
///
/// Group grants restrict as well as allow: once a principal holds any group grant of an action that names a stream,
/// his stream-wide grants stop covering the other groups of that stream for that action.
#[derive(Clone, Debug, Default)]
pub struct Permissions {
    tenant: Box<str>,
    /// The names that the rules speak of.
    texts: Texts,
    /// Sorted by action.
    rules: Box<[(Action, Rules)]>,
    /// The grants as they were written, in their order.
    written: Box<[Span]>,
    /// The same, read, once somebody has asked for them: most never do.
    grants: OnceLock<Box<[Permission]>>,
}

impl Permissions {
    /// Compiles the grants of a principal of `tenant`. Grants over other tenants are dropped.
    #[must_use]
    pub fn compile(tenant: &str, grants: impl IntoIterator<Item = Permission>) -> Self {
        let mut grants: Vec<Permission> = grants
            .into_iter()
            .filter(|grant| grant.object.tenant().is_none_or(|owner| owner == tenant))
            .collect();
        grants.sort_unstable();
        grants.dedup();
        let read: Vec<Grant<'_>> = grants.iter().map(Grant::from).collect();
        let compiled = Self::of_sorted(tenant, &read, TextsDraft::default());
        Self {
            grants: OnceLock::from(grants.into_boxed_slice()),
            ..compiled
        }
    }

    /// Compiles the `perms` claim of a token. Texts this build cannot read are ignored: they confer nothing here, and a
    /// token stays good for what is understood.
    #[must_use]
    pub fn compile_claim<'a>(tenant: &str, perms: impl IntoIterator<Item = &'a str>) -> Self {
        let read = perms
            .into_iter()
            .filter_map(|text| Some((Grant::parse(text).ok()?, text)));
        let own = |grant: &Grant<'_>| grant.object.tenant().is_none_or(|owner| owner == tenant);
        let mut read: Vec<(Grant<'_>, &str)> = read.filter(|(grant, _)| own(grant)).collect();
        read.sort_unstable_by_key(|(grant, _)| *grant);
        read.dedup_by_key(|(grant, _)| *grant);
        let bytes = read.iter().map(|(_, text)| 2 * text.len()).sum();
        let mut texts = TextsDraft::with_capacity(bytes);
        let written = read.iter().map(|(_, text)| texts.add(text)).collect();
        let grants: Vec<Grant<'_>> = read.into_iter().map(|(grant, _)| grant).collect();
        Self {
            written,
            ..Self::of_sorted(tenant, &grants, texts)
        }
    }

    /// Compiles grants that are sorted, without repeats, and of no other tenant.
    fn of_sorted(tenant: &str, grants: &[Grant<'_>], mut texts: TextsDraft) -> Self {
        // Grants order by action first.
        let rules = grants
            .chunk_by(|one, next| one.action == next.action)
            .filter_map(|same| Some((same.first()?.action, build::rules(same, &mut texts))))
            .collect();
        Self {
            tenant: tenant.into(),
            rules,
            texts: texts.finish(),
            written: Box::default(),
            grants: OnceLock::new(),
        }
    }

    /// The tenant the grants act in.
    #[must_use]
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// The grants that were understood and are over the own tenant, the cluster or a node. Sorted, without repeats.
    #[must_use]
    pub fn grants(&self) -> &[Permission] {
        self.grants.get_or_init(|| {
            let written = self.written.iter();
            written
                .filter_map(|text| self.texts.get(*text).parse().ok())
                .collect()
        })
    }

    /// Whether the principal may do this to that. Allocates nothing.
    #[must_use]
    pub fn allows(&self, action: Action, resource: &Resource<'_>) -> bool {
        if resource
            .tenant()
            .is_some_and(|tenant| tenant != &*self.tenant)
        {
            return false;
        }
        let texts = &self.texts;
        let own = self.rules(action);
        if let Resource::Group {
            namespace,
            stream,
            group,
            ..
        } = *resource
        {
            match own.map_or(Said::Nothing, |rules| {
                rules.groups.say(texts, namespace, stream, group)
            }) {
                Said::Yes => return true,
                Said::No => return false,
                Said::Nothing => {}
            }
        }
        own.is_some_and(|rules| rules.cover(texts, resource))
            || action.implied_by().iter().any(|wider| {
                self.rules(*wider)
                    .is_some_and(|rules| rules.cover(texts, resource))
            })
    }

    /// Whether some grant of this action holds the object within its scope, as the writing of rules requires.
    #[must_use]
    pub fn holds(&self, action: Action, object: &Object) -> bool {
        self.grants()
            .iter()
            .any(|grant| grant.action == action && grant.object.holds(object))
    }

    fn rules(&self, action: Action) -> Option<&Rules> {
        let at = self
            .rules
            .binary_search_by_key(&action, |(action, _)| *action)
            .ok()?;
        self.rules.get(at).map(|(_, rules)| rules)
    }
}

/// What the grants of one action cover.
#[derive(Clone, Debug, Default)]
struct Rules {
    cluster: bool,
    tenant: bool,
    nodes: Names,
    namespaces: Names,
    streams: Scoped,
    caches: Scoped,
    keys: Table<Table<Names>>,
    groups: Groups,
}

impl Rules {
    fn cover(&self, texts: &Texts, resource: &Resource<'_>) -> bool {
        match *resource {
            Resource::Cluster => self.cluster,
            Resource::Node(node) => self.nodes.cover(texts, node),
            Resource::Tenant(_) => self.tenant,
            Resource::Namespace { namespace, .. } => self.namespaces.cover(texts, namespace),
            Resource::Stream {
                namespace, stream, ..
            }
            | Resource::Group {
                namespace, stream, ..
            } => self.streams.cover(texts, namespace, stream),
            Resource::Cache {
                namespace, cache, ..
            } => self.caches.cover(texts, namespace, cache),
            Resource::CacheKey {
                namespace,
                cache,
                key,
                ..
            } => {
                self.caches.cover(texts, namespace, cache)
                    || self
                        .keys_of(texts, namespace, cache)
                        .is_some_and(|keys| keys.cover(texts, key))
            }
            Resource::CachePrefix {
                namespace,
                cache,
                prefix,
                ..
            } => {
                self.caches.cover(texts, namespace, cache)
                    || self
                        .keys_of(texts, namespace, cache)
                        .is_some_and(|keys| keys.cover_prefix(texts, prefix))
            }
        }
    }

    fn keys_of(&self, texts: &Texts, namespace: &str, cache: &str) -> Option<&Names> {
        self.keys.get(texts, namespace)?.get(texts, cache)
    }
}

/// What the group grants of an action say about a group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Said {
    /// A group grant covers it.
    Yes,
    /// Group grants name the stream, and none covers this group.
    No,
    /// No group grant names the stream; stream-wide grants decide.
    Nothing,
}

#[derive(Clone, Debug, Default)]
struct Groups {
    everywhere: bool,
    spaces: Table<GroupSpace>,
}

#[derive(Clone, Debug, Default)]
struct GroupSpace {
    any: bool,
    streams: Table<Names>,
}

impl Groups {
    fn say(&self, texts: &Texts, namespace: &str, stream: &str, group: &str) -> Said {
        if self.everywhere {
            return Said::Yes;
        }
        let Some(space) = self.spaces.get(texts, namespace) else {
            return Said::Nothing;
        };
        if space.any {
            return Said::Yes;
        }
        match space.streams.get(texts, stream) {
            Some(names) if names.cover(texts, group) => Said::Yes,
            Some(_) => Said::No,
            None => Said::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_covers_its_own_object_and_nothing_beside_it() {
        check(
            &["stream.publish:stream:t/ns/s"],
            "stream.publish",
            stream("ns", "s"),
            true,
        );
        check(
            &["stream.publish:stream:t/ns/s"],
            "stream.publish",
            stream("ns", "s2"),
            false,
        );
        check(
            &["stream.publish:stream:t/ns/s"],
            "stream.subscribe",
            stream("ns", "s"),
            false,
        );
        check(
            &["stream.publish:stream:t/ns/*"],
            "stream.publish",
            stream("ns", "any"),
            true,
        );
        check(
            &["stream.publish:stream:t/ns/*"],
            "stream.publish",
            stream("other", "any"),
            false,
        );
        check(
            &["stream.publish:stream:t/*/*"],
            "stream.publish",
            stream("other", "any"),
            true,
        );
    }

    #[test]
    fn a_stream_prefix_covers_the_names_that_begin_with_it() {
        let grants = [
            "stream.publish:stream:t/ns/room.*",
            "stream.publish:stream:t/ns/room.a.*",
        ];
        check(&grants, "stream.publish", stream("ns", "room.b"), true);
        check(&grants, "stream.publish", stream("ns", "room.a.1"), true);
        check(&grants, "stream.publish", stream("ns", "room"), false);
        check(&grants, "stream.publish", stream("ns", "rooms"), false);
    }

    #[test]
    fn a_key_prefix_is_a_plain_string_prefix() {
        let grants = [
            "cache.read:cache:t/ns/c/user:1*",
            "cache.read:cache:t/ns/c/exact",
        ];
        check(&grants, "cache.read", key("user:10"), true);
        check(&grants, "cache.read", key("user:2"), false);
        check(&grants, "cache.read", key("exact"), true);
        check(&grants, "cache.read", key("exactly"), false);
        check(&grants, "cache.write", key("user:10"), false);
        let whole = Resource::Cache {
            tenant: "t",
            namespace: "ns",
            cache: "c",
        };
        check(&grants, "cache.read", whole, false);
        let prefix = |prefix| Resource::CachePrefix {
            tenant: "t",
            namespace: "ns",
            cache: "c",
            prefix,
        };
        check(&grants, "cache.watch", prefix("user:12"), true);
        check(&grants, "cache.watch", prefix("user:"), false);
        check(&grants, "cache.watch", prefix("exact"), false);
    }

    #[test]
    fn older_wider_actions_imply_the_narrower_ones_and_not_the_other_way_round() {
        check(&["cache.read:cache:t/ns/c"], "cache.watch", key("k"), true);
        check(&["cache.watch:cache:t/ns/c"], "cache.read", key("k"), false);
        check(&["cache.write:cache:t/ns/c"], "counter.add", key("k"), true);
        check(
            &["counter.add:cache:t/ns/c"],
            "cache.write",
            key("k"),
            false,
        );
        check(
            &["stream.subscribe:stream:t/ns/s"],
            "group.consume",
            group("s", "g"),
            true,
        );
        check(
            &["group.consume:stream:t/ns/s"],
            "stream.subscribe",
            stream("ns", "s"),
            false,
        );
        check(
            &["stream.manage:stream:t/ns/s"],
            "group.manage",
            group("s", "g"),
            true,
        );
        check(
            &["stream.manage:stream:t/ns/s"],
            "group.consume",
            group("s", "g"),
            false,
        );
    }

    #[test]
    fn a_group_grant_keeps_stream_wide_grants_from_other_groups_of_that_stream() {
        let grants = [
            "stream.subscribe:stream:t/ns/*",
            "group.consume:group:t/ns/s/g",
        ];
        check(&grants, "group.consume", group("s", "g"), true);
        check(&grants, "group.consume", group("s", "other"), false);
        check(&grants, "group.consume", group("s2", "other"), true);
        check(&grants, "stream.subscribe", stream("ns", "s"), true);
    }

    #[test]
    fn a_grant_over_another_tenant_confers_nothing() {
        let permissions = compile(&["stream.publish:stream:u/*/*", "tenant.manage:tenant:u"]);
        assert!(permissions.grants().is_empty());
        let other = Resource::Stream {
            tenant: "u",
            namespace: "ns",
            stream: "s",
        };
        assert!(!permissions.allows(Action::StreamPublish, &other));
    }

    #[test]
    fn the_cluster_and_nodes_are_islands() {
        let grants = ["node.manage:node:a", "tenant.manage:cluster:*"];
        check(&grants, "node.manage", Resource::Node("a"), true);
        check(&grants, "node.manage", Resource::Node("b"), false);
        check(&grants, "tenant.manage", Resource::Cluster, true);
        check(&grants, "tenant.manage", Resource::Tenant("t"), false);
    }

    #[test]
    fn an_action_or_object_of_a_newer_build_is_ignored_and_the_rest_counts() {
        let grants = [
            "stream.teleport:stream:t/ns/s",
            "stream.publish:galaxy:t/ns/s",
            "stream.publish:stream:t/ns/s",
        ];
        check(&grants, "stream.publish", stream("ns", "s"), true);
        assert_eq!(compile(&grants).grants().len(), 1);
    }

    #[test]
    fn the_grants_of_a_claim_read_back_sorted_and_without_repeats() {
        let texts = [
            "stream.subscribe:stream:t/ns/b",
            "stream.publish:stream:t/ns/room.*",
            "stream.publish:stream:t/ns/b",
            "cache.read:cache:t/ns/c/*",
            "cache.read:cache:t/ns/c",
            "stream.publish:stream:t/ns/b",
        ];
        let parsed = texts.map(|text| text.parse::<Permission>().unwrap());
        let (claimed, given) = (compile(&texts), Permissions::compile("t", parsed));
        assert_eq!(claimed.grants(), given.grants());
        assert_eq!(claimed.grants().len(), 4);
        let (copied, too) = (claimed.clone(), given.clone());
        assert_eq!(copied.grants(), too.grants());
        assert_eq!(claimed.grants(), given.grants());
    }

    #[test]
    fn many_grants_answer_the_same_as_a_walk_over_them() {
        let mut grants: Vec<String> = (0..200)
            .map(|n| format!("cache.read:cache:t/ns/c/room{n}/*"))
            .collect();
        grants.push("cache.read:cache:t/ns/c/room1*".into());
        let parsed: Vec<Permission> = grants.iter().map(|text| text.parse().unwrap()).collect();
        let compiled = Permissions::compile("t", parsed.clone());
        for n in 0..300 {
            for asked in [format!("room{n}"), format!("room{n}/x"), format!("roo{n}")] {
                let walk = parsed.iter().any(|grant| grant.object.covers(&key(&asked)));
                assert_eq!(
                    compiled.allows(Action::CacheRead, &key(&asked)),
                    walk,
                    "{asked}"
                );
            }
        }
    }

    fn check(grants: &[&str], action: &str, resource: Resource<'_>, expected: bool) {
        let action: Action = action.parse().unwrap();
        let answer = compile(grants).allows(action, &resource);
        assert_eq!(
            answer, expected,
            "{grants:?} for {action} over {resource:?}"
        );
    }

    fn compile(grants: &[&str]) -> Permissions {
        Permissions::compile_claim("t", grants.iter().copied())
    }

    fn stream<'a>(namespace: &'a str, stream: &'a str) -> Resource<'a> {
        Resource::Stream {
            tenant: "t",
            namespace,
            stream,
        }
    }

    fn group<'a>(stream: &'a str, group: &'a str) -> Resource<'a> {
        Resource::Group {
            tenant: "t",
            namespace: "ns",
            stream,
            group,
        }
    }

    fn key(key: &str) -> Resource<'_> {
        Resource::CacheKey {
            tenant: "t",
            namespace: "ns",
            cache: "c",
            key,
        }
    }
}
