//! Groups of the Kafka protocol: the coordinator of each, on the broker's own stream `_groups`.
//!
//! A group belongs to the shard that its tenant and name hash to. The pure core decides; here its decisions are written to
//! that shard, timed and answered. What is written is applied and answered by the shard's one task, in the order of the log.

mod answers;
mod calls;
mod describe;
mod lane;
mod offsets;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use felix_engine::membership::LedOptions;
use felix_engine::teams::{ConsumerOptions, TeamId, TeamOptions};
use felix_journal::{RetentionPolicy, SyncMode};
use felix_meta::{Catalogue, Cleanup, StreamRecord};
use felix_model::limits::RECORD_BYTES_MAX;
use felix_model::{Incarnation, Routing, ShardIndex, StreamId, key_hash};
use felix_wire::error::Failure;

pub(crate) use self::calls::calls;
use self::lane::Lane;
use crate::broker::Shared;
use crate::shards::{Kind, StreamHandle, StreamSpec};

/// Shards of the groups' stream: as many for the life of a cluster, or groups would move away from what they committed.
const SHARDS: u32 = 16;

/// The bounds of groups. Those of members are the Kafka broker's own defaults; the first round waits a little, so that
/// members that start together share out once.
const OPTIONS: TeamOptions = TeamOptions {
    led: LedOptions {
        session_ms_min: 6_000,
        session_ms_max: 30 * 60_000,
        members_max: 1_000,
        initial_delay_ms: 150,
    },
    consumer: ConsumerOptions {
        session_ms: 45_000,
        heartbeat_ms: 5_000,
        members_max: 1_000,
    },
    retention_ms: 7 * 24 * 3_600_000,
    teams_max: 10_000,
    teams_of_tenant_max: 2_500,
};

/// Every coordinator of this broker.
#[derive(Debug, Default)]
pub(crate) struct Teams {
    handle: OnceLock<Arc<StreamHandle>>,
    lanes: Mutex<Vec<(ShardIndex, Arc<Lane>)>>,
    opening: tokio::sync::Mutex<()>,
}

/// The groups' stream. No tenant has it, and its name is none that can be asked for.
pub(crate) fn spec() -> StreamSpec {
    StreamSpec {
        id: StreamId::kafka_groups(),
        incarnation: Incarnation(1),
        shards: SHARDS,
        routing: Routing::Modulo,
        max_record_bytes: u32::try_from(RECORD_BYTES_MAX).unwrap_or(u32::MAX),
        timestamps: felix_meta::Timestamps::default(),
        kind: Kind::Durable {
            sync: SyncMode::OnCommit,
            retention: RetentionPolicy::default(),
            cleanup: Cleanup::Compact,
        },
    }
}

/// What a stream is called where its shards are shared out and where positions in it are stored.
fn number(stream: &StreamRecord) -> u64 {
    let (namespace, name) = (stream.namespace.as_str(), stream.stream.as_str());
    stream.incarnation.number(namespace, name)
}

/// Which shard a group belongs to.
fn shard_of(team: &TeamId) -> ShardIndex {
    let name = [team.tenant.as_bytes(), b"\0", team.group.as_bytes()].concat();
    let shard = key_hash(&name) % u64::from(SHARDS);
    ShardIndex(u32::try_from(shard).unwrap_or(0))
}

impl Teams {
    /// The coordinator of a group.
    async fn lane(&self, shared: &Arc<Shared>, team: &TeamId) -> Result<Arc<Lane>, Failure> {
        self.lane_at(shared, shard_of(team)).await
    }

    /// The coordinator of a shard. One whose shard was closed is replaced by one that reads it anew.
    async fn lane_at(&self, shared: &Arc<Shared>, shard: ShardIndex) -> Result<Arc<Lane>, Failure> {
        let handle = self.handle.get_or_init(|| shared.shards.stream(spec()));
        if let Some(lane) = self.current(handle, shard) {
            return Ok(lane);
        }
        // Two coordinators of one shard would each miss what the other writes.
        let _opening = self.opening.lock().await;
        if let Some(lane) = self.current(handle, shard) {
            return Ok(lane);
        }
        let cell = shared.shards.open(handle, shard).await;
        let cell = cell.map_err(|error| error.failure())?;
        let lane = Lane::open(cell, OPTIONS).await?;
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|(at, before)| {
            if *at == shard {
                before.close();
            }
            *at != shard
        });
        lanes.push((shard, Arc::clone(&lane)));
        Ok(lane)
    }

    fn current(&self, handle: &StreamHandle, shard: ShardIndex) -> Option<Arc<Lane>> {
        let cell = handle.open_cell(shard)?;
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, lane) = lanes.iter().find(|(at, _)| *at == shard)?;
        lane.is_of(&cell).then(|| Arc::clone(lane))
    }

    /// Forgets positions that nobody has used for long, and those of streams that are gone.
    pub(crate) fn sweep(&self, catalogue: &Catalogue) {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let lanes: Vec<_> = lanes.iter().map(|(_, lane)| Arc::clone(lane)).collect();
        for lane in lanes {
            lane.sweep(&|tenant, wanted| {
                catalogue.tenant(tenant).is_some_and(|entry| {
                    let namespaces = entry.namespaces.values();
                    let mut streams = namespaces.flat_map(|it| it.streams.values());
                    streams.any(|stream| number(stream) == wanted)
                })
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_stays_on_its_shard() {
        let shard = |tenant: &str, group: &str| {
            shard_of(&TeamId {
                tenant: tenant.to_owned(),
                group: group.to_owned(),
            })
            .0
        };
        // Where these are is on disks.
        let shards = [shard("t1", "a"), shard("t1", "b"), shard("t2", "a")];
        assert_eq!(shards, EXPECTED);
        assert!((0..100).all(|group| shard("t", &group.to_string()) < SHARDS));
    }

    const EXPECTED: [u32; 3] = [2, 7, 9];
}
