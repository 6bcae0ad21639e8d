//! The subscriptions that are open, for operators who want to know who reads what and who is behind.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use felix_auth::Principal;
use felix_engine::{Overflow, ReaderId};
use felix_model::Offset;
use felix_wire::message::{
    Message, SubscriptionCursor, SubscriptionFilter, SubscriptionView, SubscriptionsPage,
};

use crate::conn::Conn;
use crate::shards::cell::Cell;
use crate::shards::{Kind, StreamSpec};

/// Every open subscription of a broker.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    next: AtomicU64,
    open: Mutex<BTreeMap<Place, Arc<Row>>>,
}

/// The order of the listing: by shard, then by subscriber.
type Place = (String, String, String, u32, u64);

#[derive(Debug)]
struct Row {
    connection: u64,
    peer: String,
    principal: Arc<str>,
    policy: &'static str,
    since: Instant,
    cell: Weak<Cell>,
    reader: ReaderId,
    /// The offset after the last record handed to the transport.
    position: AtomicU64,
    dropped: AtomicU64,
}

/// One subscription's row; taken out when dropped.
#[derive(Debug)]
pub(crate) struct Listing {
    conn: Arc<Conn>,
    place: Place,
    row: Arc<Row>,
}

impl Listing {
    /// Lists a subscription. Its id is unique on the whole broker.
    pub(crate) fn add(
        conn: &Arc<Conn>,
        principal: &Principal,
        spec: &StreamSpec,
        shard: u32,
        cell: &Arc<Cell>,
        (reader, start): (ReaderId, Offset),
    ) -> Self {
        let subscriptions = &conn.shared.subscriptions;
        let id = subscriptions.next_id();
        let place = (
            spec.id.tenant.to_string(),
            spec.id.namespace.to_string(),
            spec.id.stream.to_string(),
            shard,
            id,
        );
        let row = Arc::new(Row {
            connection: conn.id,
            peer: conn.remote.to_string(),
            principal: Arc::clone(&principal.subject),
            policy: match spec.kind {
                Kind::Durable { .. }
                | Kind::Memory {
                    overflow: Overflow::Block,
                } => "block",
                Kind::Memory {
                    overflow: Overflow::DropNew,
                } => "drop_new",
                Kind::Memory {
                    overflow: Overflow::DropOld,
                } => "drop_old",
            },
            since: Instant::now(),
            cell: Arc::downgrade(cell),
            reader,
            position: AtomicU64::new(start.0),
            dropped: AtomicU64::new(0),
        });
        subscriptions.lock().insert(place.clone(), Arc::clone(&row));
        Self {
            conn: Arc::clone(conn),
            place,
            row,
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.place.4
    }

    /// Takes note of a delivery.
    pub(crate) fn delivered(&self, next: Offset, lost: u64) {
        self.row.position.store(next.0, Ordering::Relaxed);
        if lost > 0 {
            self.row.dropped.fetch_add(lost, Ordering::Relaxed);
        }
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        self.conn.shared.subscriptions.lock().remove(&self.place);
    }
}

impl Subscriptions {
    /// An id that no other subscription or watch of this broker has.
    pub(crate) fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Place, Arc<Row>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One page of the listing, after `cursor`.
    pub(crate) fn page(
        &self,
        node_id: &str,
        filter: &SubscriptionFilter,
        cursor: Option<&SubscriptionCursor>,
        limit: usize,
        request_id: u64,
    ) -> Message {
        let after = cursor.map(|cursor| {
            (
                cursor.tenant_id.clone(),
                cursor.namespace.clone(),
                cursor.stream.clone(),
                cursor.shard,
                cursor.subscriber_id,
            )
        });
        let open: Vec<_> = self
            .lock()
            .iter()
            .filter(|(place, row)| {
                after.as_ref().is_none_or(|after| *place > after) && matches(filter, place, row)
            })
            .take(limit + 1)
            .map(|(place, row)| (place.clone(), Arc::clone(row)))
            .collect();
        let more = open.len() > limit;
        let subscriptions: Vec<_> = open
            .into_iter()
            .take(limit)
            .map(|(place, row)| view(place, &row))
            .collect();
        let next_cursor = subscriptions.last().filter(|_| more).map(|last| {
            Box::new(SubscriptionCursor {
                tenant_id: last.tenant_id.clone(),
                namespace: last.namespace.clone(),
                stream: last.stream.clone(),
                shard: last.shard,
                subscriber_id: last.subscriber_id,
            })
        });
        SubscriptionsPage {
            node_id: node_id.to_owned(),
            subscriptions,
            next_cursor,
            request_id,
        }
        .into()
    }
}

fn matches(filter: &SubscriptionFilter, place: &Place, row: &Row) -> bool {
    let (tenant, namespace, stream, shard, _) = place;
    let same = |wanted: &Option<String>, found: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted == found)
    };
    same(&filter.tenant_id, tenant)
        && same(&filter.namespace, namespace)
        && same(&filter.stream, stream)
        && filter.shard.is_none_or(|wanted| wanted == *shard)
        && same(&filter.principal, &row.principal)
        && (!filter.dropping || row.dropped.load(Ordering::Relaxed) > 0)
}

fn view(place: Place, row: &Row) -> SubscriptionView {
    let (tenant_id, namespace, stream, shard, subscriber_id) = place;
    let cell = row.cell.upgrade();
    let tail = cell.as_ref().map_or(0, |cell| cell.marks().committed.0);
    let reader = cell.and_then(|cell| cell.reader(row.reader));
    let position = row.position.load(Ordering::Relaxed);
    let lost = reader.as_ref().map_or(0, |reader| reader.lost);
    SubscriptionView {
        tenant_id,
        namespace,
        stream,
        shard,
        subscriber_id,
        subscription_id: Some(subscriber_id),
        connection: Some(row.connection),
        peer: Some(row.peer.clone()),
        principal: Some(row.principal.to_string()),
        policy: row.policy.to_owned(),
        // A cursor has no queue: what it is behind by is counted in records.
        depth: tail.saturating_sub(position),
        capacity: 0,
        dropped: row.dropped.load(Ordering::Relaxed).max(lost),
        position: Some(position),
        tail,
        age_ms: u64::try_from(row.since.elapsed().as_millis()).unwrap_or(u64::MAX),
    }
}
