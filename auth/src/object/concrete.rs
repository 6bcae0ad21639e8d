//! From an object to the one thing it names.

use super::{NamePattern, Object};
use crate::resource::Resource;

impl Object {
    /// The one thing the object names, as a request would; [`None`] when it is a pattern. The keys below a prefix are
    /// one thing, because a prefix watch asks for them.
    #[must_use]
    pub fn as_resource(&self) -> Option<Resource<'_>> {
        fn one(pattern: &NamePattern) -> Option<&str> {
            match pattern {
                NamePattern::Exact(exact) => Some(exact),
                NamePattern::Any | NamePattern::Prefix(_) => None,
            }
        }
        Some(match self {
            Self::Cluster => Resource::Cluster,
            Self::Node(node) => Resource::Node(node),
            Self::Tenant(tenant) => Resource::Tenant(tenant),
            Self::Namespace { tenant, namespace } => Resource::Namespace {
                tenant,
                namespace: one(namespace)?,
            },
            Self::Stream {
                tenant,
                namespace,
                stream,
            } => Resource::Stream {
                tenant,
                namespace: one(namespace)?,
                stream: one(stream)?,
            },
            Self::Cache {
                tenant,
                namespace,
                cache,
            } => Resource::Cache {
                tenant,
                namespace: one(namespace)?,
                cache: one(cache)?,
            },
            Self::CacheKey {
                tenant,
                namespace,
                cache,
                key: NamePattern::Prefix(prefix),
            } => Resource::CachePrefix {
                tenant,
                namespace,
                cache,
                prefix,
            },
            Self::CacheKey {
                tenant,
                namespace,
                cache,
                key,
            } => Resource::CacheKey {
                tenant,
                namespace,
                cache,
                key: one(key)?,
            },
            Self::Group {
                tenant,
                namespace,
                stream,
                group,
            } => Resource::Group {
                tenant,
                namespace: one(namespace)?,
                stream: one(stream)?,
                group: one(group)?,
            },
        })
    }
}
