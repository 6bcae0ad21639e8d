//! An object as it stands in a text: nothing is copied, so that reading a token's grants takes no memory of its own.

use super::{NamePattern, Object};

/// As [`NamePattern`], in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name<'a> {
    Any,
    Prefix(&'a str),
    Exact(&'a str),
}

/// As [`Object`], in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shape<'a> {
    Cluster,
    Node(&'a str),
    Tenant(&'a str),
    Namespace {
        tenant: &'a str,
        namespace: Name<'a>,
    },
    Stream {
        tenant: &'a str,
        namespace: Name<'a>,
        stream: Name<'a>,
    },
    Cache {
        tenant: &'a str,
        namespace: Name<'a>,
        cache: Name<'a>,
    },
    CacheKey {
        tenant: &'a str,
        namespace: &'a str,
        cache: &'a str,
        key: Name<'a>,
    },
    Group {
        tenant: &'a str,
        namespace: Name<'a>,
        stream: Name<'a>,
        group: Name<'a>,
    },
}

impl Shape<'_> {
    /// The tenant it names; `None` for the cluster and its nodes.
    pub(crate) const fn tenant(&self) -> Option<&str> {
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
}

impl From<Name<'_>> for NamePattern {
    fn from(name: Name<'_>) -> Self {
        match name {
            Name::Any => Self::Any,
            Name::Prefix(prefix) => Self::Prefix(prefix.into()),
            Name::Exact(exact) => Self::Exact(exact.into()),
        }
    }
}

impl<'a> From<&'a NamePattern> for Name<'a> {
    fn from(pattern: &'a NamePattern) -> Self {
        match pattern {
            NamePattern::Any => Self::Any,
            NamePattern::Prefix(prefix) => Self::Prefix(prefix),
            NamePattern::Exact(exact) => Self::Exact(exact),
        }
    }
}

impl From<Shape<'_>> for Object {
    fn from(shape: Shape<'_>) -> Self {
        match shape {
            Shape::Cluster => Self::Cluster,
            Shape::Node(node) => Self::Node(node.into()),
            Shape::Tenant(tenant) => Self::Tenant(tenant.into()),
            Shape::Namespace { tenant, namespace } => Self::Namespace {
                tenant: tenant.into(),
                namespace: namespace.into(),
            },
            Shape::Stream {
                tenant,
                namespace,
                stream,
            } => Self::Stream {
                tenant: tenant.into(),
                namespace: namespace.into(),
                stream: stream.into(),
            },
            Shape::Cache {
                tenant,
                namespace,
                cache,
            } => Self::Cache {
                tenant: tenant.into(),
                namespace: namespace.into(),
                cache: cache.into(),
            },
            Shape::CacheKey {
                tenant,
                namespace,
                cache,
                key,
            } => Self::CacheKey {
                tenant: tenant.into(),
                namespace: namespace.into(),
                cache: cache.into(),
                key: key.into(),
            },
            Shape::Group {
                tenant,
                namespace,
                stream,
                group,
            } => Self::Group {
                tenant: tenant.into(),
                namespace: namespace.into(),
                stream: stream.into(),
                group: group.into(),
            },
        }
    }
}

impl<'a> From<&'a Object> for Shape<'a> {
    fn from(object: &'a Object) -> Self {
        match object {
            Object::Cluster => Self::Cluster,
            Object::Node(node) => Self::Node(node),
            Object::Tenant(tenant) => Self::Tenant(tenant),
            Object::Namespace { tenant, namespace } => Self::Namespace {
                tenant,
                namespace: namespace.into(),
            },
            Object::Stream {
                tenant,
                namespace,
                stream,
            } => Self::Stream {
                tenant,
                namespace: namespace.into(),
                stream: stream.into(),
            },
            Object::Cache {
                tenant,
                namespace,
                cache,
            } => Self::Cache {
                tenant,
                namespace: namespace.into(),
                cache: cache.into(),
            },
            Object::CacheKey {
                tenant,
                namespace,
                cache,
                key,
            } => Self::CacheKey {
                tenant,
                namespace,
                cache,
                key: key.into(),
            },
            Object::Group {
                tenant,
                namespace,
                stream,
                group,
            } => Self::Group {
                tenant,
                namespace: namespace.into(),
                stream: stream.into(),
                group: group.into(),
            },
        }
    }
}
