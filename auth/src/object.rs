//! The object grammar of a grant.
//!
//! ```text
//! cluster:*                         node:{id}                      tenant:{t}
//! namespace:{t}/{ns|*}
//! stream:{t}/{ns}/{s|*|prefix*}     stream:{t}/*/*
//! cache:{t}/{ns}/{c|*}              cache:{t}/*/*                  cache:{t}/{ns}/{c}/{key|prefix*}
//! group:{t}/{ns}/{s|*}/{g|*}        group:{t}/*/*/*                (after a `*` only `*`)
//! ```
//!
//! A prefix is a plain string prefix: `user:1*` covers `user:10`. Keys may contain `/` and `:`, names may not.

use std::fmt;

use crate::resource::Resource;

mod concrete;
mod parse;
pub(crate) mod shape;

pub use parse::BadObject;
pub(crate) use parse::cut;

/// A name, or the names that begin with something, or any name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NamePattern {
    /// Every name.
    Any,
    /// Names that begin with this text, which is not empty.
    Prefix(Box<str>),
    /// This name alone.
    Exact(Box<str>),
}

impl NamePattern {
    /// Whether a name is covered.
    #[must_use]
    pub fn covers(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Prefix(prefix) => name.starts_with(&**prefix),
            Self::Exact(exact) => name == &**exact,
        }
    }

    /// Whether every name with this prefix is covered.
    fn covers_prefix(&self, asked: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Prefix(prefix) => asked.starts_with(&**prefix),
            Self::Exact(_) => false,
        }
    }

    /// The names covered by both.
    fn intersect(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Any, pattern) | (pattern, Self::Any) => Some(pattern.clone()),
            (Self::Prefix(a), Self::Prefix(b)) if a.starts_with(&**b) => {
                Some(Self::Prefix(a.clone()))
            }
            (Self::Prefix(a), Self::Prefix(b)) => {
                b.starts_with(&**a).then(|| Self::Prefix(b.clone()))
            }
            (Self::Exact(exact), pattern) | (pattern, Self::Exact(exact)) => {
                pattern.covers(exact).then(|| Self::Exact(exact.clone()))
            }
        }
    }

    /// Whether some name is covered by both.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.intersect(other).is_some()
    }

    /// Whether every name the other covers is covered here.
    fn contains(&self, other: &Self) -> bool {
        self.intersect(other).as_ref() == Some(other)
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => out.write_str("*"),
            Self::Prefix(prefix) => write!(out, "{prefix}*"),
            Self::Exact(exact) => out.write_str(exact),
        }
    }
}

/// What a grant is about: one thing, or everything below a point.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Object {
    /// The installation. An island: it confers nothing inside a tenant.
    Cluster,
    /// One node. An island, like the cluster.
    Node(Box<str>),
    /// A tenant itself.
    Tenant(Box<str>),
    /// Namespaces of a tenant.
    Namespace {
        /// Tenant, always literal.
        tenant: Box<str>,
        /// `Any` or `Exact`.
        namespace: NamePattern,
    },
    /// Streams of a tenant.
    Stream {
        /// Tenant, always literal.
        tenant: Box<str>,
        /// `Any` or `Exact`; `Any` only together with any stream.
        namespace: NamePattern,
        /// Which streams.
        stream: NamePattern,
    },
    /// Whole caches of a tenant.
    Cache {
        /// Tenant, always literal.
        tenant: Box<str>,
        /// `Any` or `Exact`; `Any` only together with any cache.
        namespace: NamePattern,
        /// `Any` or `Exact`.
        cache: NamePattern,
    },
    /// Keys of one cache.
    CacheKey {
        /// Tenant, always literal.
        tenant: Box<str>,
        /// Namespace, always literal.
        namespace: Box<str>,
        /// Cache, always literal.
        cache: Box<str>,
        /// `Prefix` or `Exact`.
        key: NamePattern,
    },
    /// Consumer groups of a stream.
    Group {
        /// Tenant, always literal.
        tenant: Box<str>,
        /// `Any` or `Exact`.
        namespace: NamePattern,
        /// `Any` or `Exact`.
        stream: NamePattern,
        /// `Any` or `Exact`.
        group: NamePattern,
    },
}

impl Object {
    /// The tenant the object names; `None` for the cluster and its nodes.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        match self {
            Self::Cluster | Self::Node(_) => None,
            Self::Tenant(tenant)
            | Self::Namespace { tenant, .. }
            | Self::Stream { tenant, .. }
            | Self::Cache { tenant, .. }
            | Self::CacheKey { tenant, .. }
            | Self::Group { tenant, .. } => Some(tenant),
        }
    }

    /// Whether a grant over this object covers the resource.
    ///
    /// It looks at one grant alone; [`crate::Permissions`] also knows how group grants restrict wider ones.
    #[must_use]
    pub fn covers(&self, resource: &Resource<'_>) -> bool {
        if self.tenant() != resource.tenant() {
            return false;
        }
        match (self, *resource) {
            (Self::Cluster, Resource::Cluster) | (Self::Tenant(_), Resource::Tenant(_)) => true,
            (Self::Node(granted), Resource::Node(node)) => &**granted == node,
            (
                Self::Namespace {
                    namespace: granted, ..
                },
                Resource::Namespace { namespace, .. },
            ) => granted.covers(namespace),
            (
                Self::Stream {
                    namespace: space,
                    stream: granted,
                    ..
                },
                Resource::Stream {
                    namespace, stream, ..
                }
                | Resource::Group {
                    namespace, stream, ..
                },
            ) => space.covers(namespace) && granted.covers(stream),
            (
                Self::Cache {
                    namespace: space,
                    cache: granted,
                    ..
                },
                Resource::Cache {
                    namespace, cache, ..
                }
                | Resource::CacheKey {
                    namespace, cache, ..
                }
                | Resource::CachePrefix {
                    namespace, cache, ..
                },
            ) => space.covers(namespace) && granted.covers(cache),
            (
                Self::CacheKey {
                    namespace: space,
                    cache: of,
                    key: granted,
                    ..
                },
                Resource::CacheKey {
                    namespace,
                    cache,
                    key,
                    ..
                },
            ) => &**space == namespace && &**of == cache && granted.covers(key),
            (
                Self::CacheKey {
                    namespace: space,
                    cache: of,
                    key: granted,
                    ..
                },
                Resource::CachePrefix {
                    namespace,
                    cache,
                    prefix,
                    ..
                },
            ) => &**space == namespace && &**of == cache && granted.covers_prefix(prefix),
            (
                Self::Group {
                    namespace: space,
                    stream: of,
                    group: granted,
                    ..
                },
                Resource::Group {
                    namespace,
                    stream,
                    group,
                    ..
                },
            ) => space.covers(namespace) && of.covers(stream) && granted.covers(group),
            _ => false,
        }
    }

    /// The part of the two objects that both cover; `None` when there is none.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        if self.tenant() != other.tenant() {
            return None;
        }
        match (self, other) {
            (Self::Cluster, Self::Cluster) | (Self::Tenant(_), Self::Tenant(_)) => {
                Some(self.clone())
            }
            (Self::Node(a), Self::Node(b)) => (a == b).then(|| self.clone()),
            (
                Self::Namespace {
                    tenant,
                    namespace: a,
                },
                Self::Namespace { namespace: b, .. },
            ) => Some(Self::Namespace {
                tenant: tenant.clone(),
                namespace: a.intersect(b)?,
            }),
            (
                Self::Stream {
                    tenant,
                    namespace: space_a,
                    stream: a,
                },
                Self::Stream {
                    namespace: space_b,
                    stream: b,
                    ..
                },
            ) => Some(Self::Stream {
                tenant: tenant.clone(),
                namespace: space_a.intersect(space_b)?,
                stream: a.intersect(b)?,
            }),
            (
                Self::Cache {
                    tenant,
                    namespace: space_a,
                    cache: a,
                },
                Self::Cache {
                    namespace: space_b,
                    cache: b,
                    ..
                },
            ) => Some(Self::Cache {
                tenant: tenant.clone(),
                namespace: space_a.intersect(space_b)?,
                cache: a.intersect(b)?,
            }),
            (
                Self::Cache {
                    namespace: space,
                    cache: of,
                    ..
                },
                key @ Self::CacheKey {
                    namespace, cache, ..
                },
            )
            | (
                key @ Self::CacheKey {
                    namespace, cache, ..
                },
                Self::Cache {
                    namespace: space,
                    cache: of,
                    ..
                },
            ) => (space.covers(namespace) && of.covers(cache)).then(|| key.clone()),
            (
                Self::CacheKey {
                    tenant,
                    namespace,
                    cache,
                    key: a,
                },
                Self::CacheKey {
                    namespace: space_b,
                    cache: of_b,
                    key: b,
                    ..
                },
            ) if namespace == space_b && cache == of_b => Some(Self::CacheKey {
                tenant: tenant.clone(),
                namespace: namespace.clone(),
                cache: cache.clone(),
                key: a.intersect(b)?,
            }),
            (
                Self::Group {
                    tenant,
                    namespace: space_a,
                    stream: of_a,
                    group: a,
                },
                Self::Group {
                    namespace: space_b,
                    stream: of_b,
                    group: b,
                    ..
                },
            ) => Some(Self::Group {
                tenant: tenant.clone(),
                namespace: space_a.intersect(space_b)?,
                stream: of_a.intersect(of_b)?,
                group: a.intersect(b)?,
            }),
            (
                Self::Stream {
                    namespace: space,
                    stream: of,
                    ..
                },
                Self::Group {
                    tenant,
                    namespace,
                    stream,
                    group,
                },
            )
            | (
                Self::Group {
                    tenant,
                    namespace,
                    stream,
                    group,
                },
                Self::Stream {
                    namespace: space,
                    stream: of,
                    ..
                },
            ) => group_within(tenant, (space, of), (namespace, stream), group),
            _ => None,
        }
    }

    /// Whether the other object lies within this one's place in the hierarchy.
    ///
    /// This is the rule for writing rules: a tenant holds everything of the tenant, a namespace everything inside it.
    /// The cluster and nodes are islands that hold only themselves.
    #[must_use]
    pub fn holds(&self, other: &Self) -> bool {
        if self.tenant() != other.tenant() {
            return false;
        }
        match (self, other) {
            (Self::Tenant(_), _) => true,
            (
                Self::Namespace {
                    namespace: space, ..
                },
                Self::Namespace { namespace, .. }
                | Self::Stream { namespace, .. }
                | Self::Cache { namespace, .. }
                | Self::Group { namespace, .. },
            ) => space.contains(namespace),
            (
                Self::Namespace {
                    namespace: space, ..
                },
                Self::CacheKey { namespace, .. },
            ) => space.covers(namespace),
            _ => self.intersect(other).as_ref() == Some(other),
        }
    }
}

/// The groups of `streams` that lie within the asked ones. A prefix cannot be written in a group object, so a prefix
/// grant meets only a literal stream.
fn group_within(
    tenant: &str,
    (space, of): (&NamePattern, &NamePattern),
    (namespace, stream): (&NamePattern, &NamePattern),
    group: &NamePattern,
) -> Option<Object> {
    let stream = of.intersect(stream)?;
    if matches!(stream, NamePattern::Prefix(_)) {
        return None;
    }
    let namespace = space.intersect(namespace)?;
    // After a `*` only `*` may follow; a named group of every stream has no spelling.
    if stream == NamePattern::Any && *group != NamePattern::Any {
        return None;
    }
    Some(Object::Group {
        tenant: tenant.into(),
        namespace,
        stream,
        group: group.clone(),
    })
}

impl fmt::Display for Object {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => out.write_str("cluster:*"),
            Self::Node(node) => write!(out, "node:{node}"),
            Self::Tenant(tenant) => write!(out, "tenant:{tenant}"),
            Self::Namespace { tenant, namespace } => write!(out, "namespace:{tenant}/{namespace}"),
            Self::Stream {
                tenant,
                namespace,
                stream,
            } => {
                write!(out, "stream:{tenant}/{namespace}/{stream}")
            }
            Self::Cache {
                tenant,
                namespace,
                cache,
            } => {
                write!(out, "cache:{tenant}/{namespace}/{cache}")
            }
            Self::CacheKey {
                tenant,
                namespace,
                cache,
                key,
            } => {
                write!(out, "cache:{tenant}/{namespace}/{cache}/{key}")
            }
            Self::Group {
                tenant,
                namespace,
                stream,
                group,
            } => {
                write!(out, "group:{tenant}/{namespace}/{stream}/{group}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_holds_what_lies_inside_it_and_islands_hold_only_themselves() {
        let holds = |scope: &str, object: &str| {
            scope
                .parse::<Object>()
                .unwrap()
                .holds(&object.parse::<Object>().unwrap())
        };
        assert!(holds("tenant:t", "stream:t/*/*"));
        assert!(holds("tenant:t", "tenant:t"));
        assert!(!holds("tenant:t", "stream:u/*/*"));
        assert!(!holds("tenant:t", "cluster:*"));
        assert!(!holds("cluster:*", "tenant:t"));
        assert!(!holds("cluster:*", "node:n"));
        assert!(holds("namespace:t/ns", "cache:t/ns/c/k*"));
        assert!(holds("namespace:t/*", "stream:t/*/*"));
        assert!(!holds("namespace:t/ns", "stream:t/*/*"));
        assert!(!holds("namespace:t/ns", "tenant:t"));
        assert!(holds("stream:t/ns/*", "stream:t/ns/room.*"));
        assert!(!holds("stream:t/ns/room.*", "stream:t/ns/*"));
        assert!(holds("stream:t/ns/*", "group:t/ns/s/g"));
    }
}
