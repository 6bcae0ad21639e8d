//! What a batch brings: what is new, and what exists and differs.

use std::sync::Arc;

use felix_model::limits::RECORD_BYTES_DEFAULT;
use felix_model::{Incarnation, Namespace, TenantId};

use super::named;
use crate::catalogue::NamespaceEntry;
use crate::record::{CACHE_MEMORY_BYTES_DEFAULT, CacheRecord, CacheSpec, StreamRecord, StreamSpec};

/// Where and when new things come to be.
pub(super) struct Place<'a> {
    pub(super) tenant: &'a TenantId,
    pub(super) namespace: &'a Namespace,
    pub(super) incarnation: Incarnation,
}

impl Place<'_> {
    /// The streams that are new, and the names of those that exist and differ.
    pub(super) fn new_streams(
        &self,
        space: &NamespaceEntry,
        specs: &[StreamSpec],
    ) -> (Vec<Arc<StreamRecord>>, Vec<String>) {
        let (mut new, mut differing) = (Vec::new(), Vec::new());
        for spec in specs {
            match space.streams.get(spec.stream.as_ref()) {
                None => new.push(Arc::new(self.stream(spec))),
                Some(held) if is_as_asked(held, &self.stream(spec), spec) => {}
                Some(_) => differing.push(format!("stream `{}`", spec.stream)),
            }
        }
        (new, differing)
    }

    /// The caches that are new, and the names of those that exist and differ.
    pub(super) fn new_caches(
        &self,
        space: &NamespaceEntry,
        specs: &[CacheSpec],
    ) -> (Vec<Arc<CacheRecord>>, Vec<String>) {
        let (mut new, mut differing) = (Vec::new(), Vec::new());
        for spec in specs {
            let mut wanted = self.cache(spec);
            match space.caches.get(spec.cache.as_ref()) {
                None => new.push(Arc::new(wanted)),
                Some(held) => {
                    keep_unnamed(&mut wanted, held, spec);
                    if wanted != **held {
                        differing.push(format!("cache `{}`", spec.cache));
                    }
                }
            }
        }
        (new, differing)
    }

    fn stream(&self, spec: &StreamSpec) -> StreamRecord {
        StreamRecord {
            tenant_id: self.tenant.clone(),
            namespace: self.namespace.clone(),
            stream: spec.stream.clone(),
            kind: spec.kind,
            shards: spec.shards,
            replication_factor: spec.replication_factor,
            retention: spec.retention,
            consistency: spec.consistency,
            delivery: spec.delivery,
            durable: spec.durable,
            region: spec.region.clone(),
            routing: spec.routing.unwrap_or_default(),
            sync: spec.sync.unwrap_or_default(),
            overflow: spec.overflow.unwrap_or_default(),
            cleanup: spec.cleanup.unwrap_or_default(),
            timestamps: spec.timestamps.unwrap_or_default(),
            max_record_bytes: spec.max_record_bytes.unwrap_or(RECORD_BYTES_DEFAULT as u32),
            incarnation: self.incarnation,
        }
    }

    fn cache(&self, spec: &CacheSpec) -> CacheRecord {
        CacheRecord {
            tenant_id: self.tenant.clone(),
            namespace: self.namespace.clone(),
            cache: spec.cache.clone(),
            display_name: named(spec.display_name.as_ref(), spec.cache.as_ref()),
            shards: spec.shards.max(1),
            replication_factor: spec.replication_factor,
            consistency: spec.consistency,
            durable: spec.durable.unwrap_or(true),
            sync: spec.sync.unwrap_or_default(),
            memory_bytes: spec.memory_bytes.unwrap_or(CACHE_MEMORY_BYTES_DEFAULT),
            max_record_bytes: spec.max_record_bytes.unwrap_or(RECORD_BYTES_DEFAULT as u32),
            incarnation: self.incarnation,
        }
    }
}

/// Takes over from an existing cache what a create does not name: settings of later versions, and the
/// name for people.
fn keep_unnamed(wanted: &mut CacheRecord, held: &CacheRecord, spec: &CacheSpec) {
    wanted.incarnation = held.incarnation;
    if spec.display_name.is_none() {
        wanted.display_name.clone_from(&held.display_name);
    }
    if spec.durable.is_none() {
        wanted.durable = held.durable;
    }
    if spec.sync.is_none() {
        wanted.sync = held.sync;
    }
    if spec.memory_bytes.is_none() {
        wanted.memory_bytes = held.memory_bytes;
    }
    if spec.max_record_bytes.is_none() {
        wanted.max_record_bytes = held.max_record_bytes;
    }
}

/// Whether an existing stream is what a create asks for. Settings of later versions count only when the request names
/// them, so that an older caller's repeat of a create is a repeat.
fn is_as_asked(held: &StreamRecord, wanted: &StreamRecord, spec: &StreamSpec) -> bool {
    let mut wanted = wanted.clone();
    wanted.incarnation = held.incarnation;
    if spec.routing.is_none() {
        wanted.routing = held.routing;
    }
    if spec.sync.is_none() {
        wanted.sync = held.sync;
    }
    if spec.overflow.is_none() {
        wanted.overflow = held.overflow;
    }
    if spec.cleanup.is_none() {
        wanted.cleanup = held.cleanup;
    }
    if spec.timestamps.is_none() {
        wanted.timestamps = held.timestamps;
    }
    if spec.max_record_bytes.is_none() {
        wanted.max_record_bytes = held.max_record_bytes;
    }
    wanted == *held
}
