//! One tenant, namespace or principal: its bounds and what it uses.

use std::time::Duration;

use felix_meta::{QuotaLimits, QuotaScope};

use super::{Exceeded, ListedScope};
use crate::fair::RateLimit;
use crate::limits::QUOTA_RETRY_MS;

/// Bounds and use.
#[derive(Debug)]
pub(super) struct Scope {
    limits: QuotaLimits,
    /// Present where a rate is bounded.
    rate: Option<RateLimit>,
    pub(super) subscriptions: u64,
    pub(super) connections: u64,
    /// What its caches held at the last measurement, and what was written since: no less than what they hold.
    pub(super) cache_bytes: u64,
}

impl Scope {
    pub(super) fn new(limits: QuotaLimits, now: Duration) -> Self {
        Self {
            rate: rate(&limits, now),
            limits,
            subscriptions: 0,
            connections: 0,
            cache_bytes: 0,
        }
    }

    /// Takes over other bounds. A rate that stays keeps what it owes.
    pub(super) fn set(&mut self, limits: QuotaLimits, now: Duration) {
        let rates = |limits: &QuotaLimits| {
            (
                limits.publish_bytes_per_second,
                limits.publish_records_per_second,
            )
        };
        if rates(&self.limits) != rates(&limits) {
            self.rate = rate(&limits, now);
        }
        self.limits = limits;
    }

    pub(super) fn is_rated(&self) -> bool {
        self.rate.is_some()
    }

    pub(super) fn limits(&self) -> QuotaLimits {
        self.limits
    }

    /// Whether it may be forgotten.
    pub(super) fn is_idle(&self) -> bool {
        self.limits.is_unlimited() && self.subscriptions == 0 && self.connections == 0
    }

    /// For how long its rate allows nothing, and what then bounds it.
    pub(super) fn wait(&mut self, of: &QuotaScope, now: Duration) -> Result<(), Exceeded> {
        let nothing = [
            (
                "publish_bytes_per_second",
                self.limits.publish_bytes_per_second,
            ),
            (
                "publish_records_per_second",
                self.limits.publish_records_per_second,
            ),
        ];
        if let Some((bound, _)) = nothing.into_iter().find(|(_, limit)| *limit == Some(0)) {
            return Err(exceeded(of, bound, 0, QUOTA_RETRY_MS));
        }
        let Some(rate) = &mut self.rate else {
            return Ok(());
        };
        let (bytes, records) = rate.waits(now);
        if bytes == 0 && records == 0 {
            return Ok(());
        }
        let [(of_bytes, byte_limit), (of_records, record_limit)] = nothing;
        Err(if bytes >= records {
            exceeded(of, of_bytes, byte_limit.unwrap_or(0), bytes)
        } else {
            exceeded(of, of_records, record_limit.unwrap_or(0), records)
        })
    }

    pub(super) fn spend(&mut self, bytes: u64, records: u64) {
        if let Some(rate) = &mut self.rate {
            rate.spend(bytes, records);
        }
    }

    pub(super) fn room_for_subscription(&self, of: &QuotaScope) -> Result<(), Exceeded> {
        room(
            of,
            "subscriptions",
            self.limits.subscriptions,
            self.subscriptions,
            1,
        )
    }

    pub(super) fn room_for_connection(&self, of: &QuotaScope) -> Result<(), Exceeded> {
        room(
            of,
            "connections",
            self.limits.connections,
            self.connections,
            1,
        )
    }

    pub(super) fn room_in_caches(&self, of: &QuotaScope, bytes: u64) -> Result<(), Exceeded> {
        room(
            of,
            "cache_bytes",
            self.limits.cache_bytes,
            self.cache_bytes,
            bytes,
        )
    }

    pub(super) fn listing(&self, name: Option<&str>) -> ListedScope {
        ListedScope {
            name: name.map(str::to_owned),
            connections: None,
            subscriptions: self.subscriptions,
            cache_bytes: None,
            limits: self.limits,
        }
    }
}

fn rate(limits: &QuotaLimits, now: Duration) -> Option<RateLimit> {
    let (bytes, records) = (
        limits.publish_bytes_per_second,
        limits.publish_records_per_second,
    );
    (bytes.is_some() || records.is_some())
        .then(|| RateLimit::new(bytes.unwrap_or(0), records.unwrap_or(0), now))
}

fn room(
    of: &QuotaScope,
    bound: &'static str,
    limit: Option<u64>,
    used: u64,
    more: u64,
) -> Result<(), Exceeded> {
    match limit {
        Some(limit) if used.saturating_add(more) > limit => {
            Err(exceeded(of, bound, limit, QUOTA_RETRY_MS))
        }
        Some(_) | None => Ok(()),
    }
}

fn exceeded(of: &QuotaScope, bound: &'static str, limit: u64, wait_ms: u64) -> Exceeded {
    Exceeded::Quota {
        scope: of.clone(),
        bound,
        limit,
        wait_ms,
    }
}
