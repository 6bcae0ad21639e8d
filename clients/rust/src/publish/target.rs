//! Which stream is meant.

use bytes::{BufMut as _, Bytes, BytesMut};
use felix_model::{Namespace, StreamName, TenantId};

/// A stream by its full name, with the name as it stands in every frame.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) tenant: TenantId,
    pub(crate) namespace: Namespace,
    pub(crate) stream: StreamName,
    /// Tenant, namespace and stream, each behind its length.
    names: Bytes,
}

impl Target {
    pub(crate) fn new(tenant: TenantId, namespace: Namespace, stream: StreamName) -> Self {
        let mut names = BytesMut::new();
        for name in [tenant.as_str(), namespace.as_str(), stream.as_str()] {
            // A name has at most 128 bytes.
            names.put_u16(u16::try_from(name.len()).unwrap_or(u16::MAX));
            names.put_slice(name.as_bytes());
        }
        Self {
            tenant,
            namespace,
            stream,
            names: names.freeze(),
        }
    }

    pub(crate) fn names(&self) -> &Bytes {
        &self.names
    }

    pub(crate) fn strings(&self) -> (String, String, String) {
        let owned = |name: &str| name.to_owned();
        (
            owned(self.tenant.as_str()),
            owned(self.namespace.as_str()),
            owned(self.stream.as_str()),
        )
    }
}
