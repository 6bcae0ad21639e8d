//! Rules while grants are added to them.

use std::collections::{BTreeMap, BTreeSet};

use super::{GroupSpace, Groups, Names, Rules, Scoped, Table};
use crate::object::{NamePattern, Object};

#[derive(Default)]
pub(super) struct RulesDraft {
    cluster: bool,
    tenant: bool,
    nodes: NamesDraft,
    namespaces: NamesDraft,
    streams: ScopedDraft,
    caches: ScopedDraft,
    keys: BTreeMap<Box<str>, BTreeMap<Box<str>, NamesDraft>>,
    groups_everywhere: bool,
    groups: BTreeMap<Box<str>, GroupSpaceDraft>,
}

#[derive(Default)]
struct GroupSpaceDraft {
    any: bool,
    streams: BTreeMap<Box<str>, NamesDraft>,
}

#[derive(Default)]
struct ScopedDraft {
    everywhere: bool,
    spaces: BTreeMap<Box<str>, NamesDraft>,
}

#[derive(Default)]
struct NamesDraft {
    any: bool,
    exact: BTreeSet<Box<str>>,
    prefixes: BTreeSet<Box<str>>,
}

impl RulesDraft {
    pub(super) fn add(&mut self, object: &Object) {
        match object {
            Object::Cluster => self.cluster = true,
            Object::Node(node) => self.nodes.add(&NamePattern::Exact(node.clone())),
            Object::Tenant(_) => self.tenant = true,
            Object::Namespace { namespace, .. } => self.namespaces.add(namespace),
            Object::Stream {
                namespace, stream, ..
            } => self.streams.add(namespace, stream),
            Object::Cache {
                namespace, cache, ..
            } => self.caches.add(namespace, cache),
            Object::CacheKey {
                namespace,
                cache,
                key,
                ..
            } => self
                .keys
                .entry(namespace.clone())
                .or_default()
                .entry(cache.clone())
                .or_default()
                .add(key),
            Object::Group {
                namespace,
                stream,
                group,
                ..
            } => {
                self.add_group(namespace, stream, group);
            }
        }
    }

    fn add_group(&mut self, namespace: &NamePattern, stream: &NamePattern, group: &NamePattern) {
        // The grammar lets only a `*` follow a `*`, so each arm has seen all that matters.
        let NamePattern::Exact(namespace) = namespace else {
            self.groups_everywhere = true;
            return;
        };
        let space = self.groups.entry(namespace.clone()).or_default();
        match stream {
            NamePattern::Exact(stream) => {
                space.streams.entry(stream.clone()).or_default().add(group);
            }
            NamePattern::Any | NamePattern::Prefix(_) => space.any = true,
        }
    }

    pub(super) fn finish(self) -> Rules {
        let space = |draft: GroupSpaceDraft| GroupSpace {
            any: draft.any,
            streams: Table::from_sorted(draft.streams, NamesDraft::finish),
        };
        let caches = |draft| Table::from_sorted(draft, NamesDraft::finish);
        Rules {
            cluster: self.cluster,
            tenant: self.tenant,
            nodes: self.nodes.finish(),
            namespaces: self.namespaces.finish(),
            streams: self.streams.finish(),
            caches: self.caches.finish(),
            keys: Table::from_sorted(self.keys, caches),
            groups: Groups {
                everywhere: self.groups_everywhere,
                spaces: Table::from_sorted(self.groups, space),
            },
        }
    }
}

impl ScopedDraft {
    fn add(&mut self, namespace: &NamePattern, name: &NamePattern) {
        match namespace {
            NamePattern::Exact(namespace) => {
                self.spaces.entry(namespace.clone()).or_default().add(name);
            }
            NamePattern::Any | NamePattern::Prefix(_) => self.everywhere = true,
        }
    }

    fn finish(self) -> Scoped {
        Scoped {
            everywhere: self.everywhere,
            spaces: Table::from_sorted(self.spaces, NamesDraft::finish),
        }
    }
}

impl NamesDraft {
    fn add(&mut self, pattern: &NamePattern) {
        match pattern {
            NamePattern::Any => self.any = true,
            NamePattern::Prefix(prefix) => {
                self.prefixes.insert(prefix.clone());
            }
            NamePattern::Exact(exact) => {
                self.exact.insert(exact.clone());
            }
        }
    }

    fn finish(self) -> Names {
        // In sorted order a prefix comes right before what it makes superfluous.
        let mut prefixes: Vec<Box<str>> = Vec::with_capacity(self.prefixes.len());
        for prefix in self.prefixes {
            if prefixes
                .last()
                .is_none_or(|shorter| !prefix.starts_with(&**shorter))
            {
                prefixes.push(prefix);
            }
        }
        Names {
            any: self.any,
            exact: self.exact.into_iter().collect(),
            prefixes: prefixes.into_boxed_slice(),
        }
    }
}
