//! What a request touches.

/// The thing a request is about, borrowed from the request.
///
/// It is concrete: a wildcard stands in a grant ([`crate::Object`]), never in a request. The two exceptions are asks
/// about everything below a point, which only a grant at least as wide covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource<'a> {
    /// The whole installation.
    Cluster,
    /// One node by id.
    Node(&'a str),
    /// One tenant.
    Tenant(&'a str),
    /// One namespace of a tenant.
    Namespace {
        /// Tenant that owns the namespace.
        tenant: &'a str,
        /// Name of the namespace.
        namespace: &'a str,
    },
    /// One stream.
    Stream {
        /// Tenant that owns the stream.
        tenant: &'a str,
        /// Namespace of the stream.
        namespace: &'a str,
        /// Name of the stream.
        stream: &'a str,
    },
    /// One consumer group of a stream.
    Group {
        /// Tenant that owns the stream.
        tenant: &'a str,
        /// Namespace of the stream.
        namespace: &'a str,
        /// Name of the stream.
        stream: &'a str,
        /// Name of the group.
        group: &'a str,
    },
    /// A whole cache, every key of it.
    Cache {
        /// Tenant that owns the cache.
        tenant: &'a str,
        /// Namespace of the cache.
        namespace: &'a str,
        /// Name of the cache.
        cache: &'a str,
    },
    /// One key of a cache.
    CacheKey {
        /// Tenant that owns the cache.
        tenant: &'a str,
        /// Namespace of the cache.
        namespace: &'a str,
        /// Name of the cache.
        cache: &'a str,
        /// The key.
        key: &'a str,
    },
    /// Every key of a cache that begins with a prefix, as a prefix watch asks for.
    CachePrefix {
        /// Tenant that owns the cache.
        tenant: &'a str,
        /// Namespace of the cache.
        namespace: &'a str,
        /// Name of the cache.
        cache: &'a str,
        /// What every key begins with; the empty prefix is the whole cache.
        prefix: &'a str,
    },
}

impl<'a> Resource<'a> {
    /// The tenant the thing belongs to; `None` for the cluster and its nodes.
    #[must_use]
    pub const fn tenant(&self) -> Option<&'a str> {
        match *self {
            Self::Cluster | Self::Node(_) => None,
            Self::Tenant(tenant)
            | Self::Namespace { tenant, .. }
            | Self::Stream { tenant, .. }
            | Self::Group { tenant, .. }
            | Self::Cache { tenant, .. }
            | Self::CacheKey { tenant, .. }
            | Self::CachePrefix { tenant, .. } => Some(tenant),
        }
    }
}
