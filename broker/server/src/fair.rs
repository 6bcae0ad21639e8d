//! The per-tenant publish queue: bytes that are accepted but not yet answered, shared fairly.
//!
//! Every publish to a durable stream holds a share of one byte budget from admission until its answer. While the
//! budget lasts, nothing waits. When it is spent, publishes wait in a queue of their tenant, and what is
//! released is handed out by deficit round robin over the tenants that wait, so a tenant that floods the broker
//! waits behind itself. A quarter of the budget is only for tenants below their guaranteed share
//! (budget / tenants, a newcomer included), so that one tenant never has to wait for another's backlog to clear.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use felix_model::TenantId;
use tokio::sync::{Notify, oneshot};

use crate::limits::{FAIR_QUANTUM_BYTES, PUBLISH_QUEUE_DEPTH, PUBLISH_QUEUE_WAIT};

/// Why a publish did not get a share. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the publish queue of this tenant is full; try again in {retry_after_ms} ms")]
pub(crate) struct QueueFull {
    pub(crate) retry_after_ms: u64,
}

/// The decision part: who may go on, in which order. No clock, no task.
#[derive(Debug)]
struct Scheduler {
    capacity: u64,
    in_use: u64,
    tenants: BTreeMap<TenantId, Share>,
    /// Tenants that have something waiting, in turn order.
    round: VecDeque<TenantId>,
    next_ticket: u64,
}

#[derive(Debug, Default)]
struct Share {
    in_use: u64,
    deficit: u64,
    waiting: VecDeque<(u64, u64)>,
}

#[derive(Debug, PartialEq, Eq)]
enum Offered {
    Granted,
    Waiting(u64),
    Full,
}

impl Scheduler {
    fn new(capacity: u64) -> Self {
        Self {
            capacity,
            in_use: 0,
            tenants: BTreeMap::new(),
            round: VecDeque::new(),
            next_ticket: 0,
        }
    }

    fn fits(&self, share_in_use: u64, bytes: u64) -> bool {
        // A batch larger than the whole budget must still be possible: it goes alone.
        if self.in_use == 0 {
            return true;
        }
        let after = self.in_use.saturating_add(bytes);
        // One more than there are, so that the next tenant to come finds its share free.
        let tenants = u64::try_from(self.tenants.len())
            .unwrap_or(u64::MAX)
            .saturating_add(1);
        let guaranteed = self.capacity / tenants;
        let common = self.capacity - self.capacity / 4;
        after <= common || (after <= self.capacity && share_in_use + bytes <= guaranteed)
    }

    fn offer(&mut self, tenant: &TenantId, bytes: u64) -> Offered {
        if !self.tenants.contains_key(tenant) {
            self.tenants.insert(tenant.clone(), Share::default());
        }
        let (in_use, queued) = self
            .tenants
            .get(tenant)
            .map_or((0, 0), |share| (share.in_use, share.waiting.len()));
        if queued == 0 && self.fits(in_use, bytes) {
            self.take(tenant, bytes);
            return Offered::Granted;
        }
        if queued >= PUBLISH_QUEUE_DEPTH {
            return Offered::Full;
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        if let Some(share) = self.tenants.get_mut(tenant) {
            share.waiting.push_back((ticket, bytes));
        }
        if queued == 0 {
            self.round.push_back(tenant.clone());
        }
        Offered::Waiting(ticket)
    }

    fn take(&mut self, tenant: &TenantId, bytes: u64) {
        self.in_use += bytes;
        if let Some(share) = self.tenants.get_mut(tenant) {
            share.in_use += bytes;
        }
    }

    /// Gives bytes back and says which waiting tickets may go on now.
    fn release(&mut self, tenant: &TenantId, bytes: u64, granted: &mut Vec<u64>) {
        self.in_use = self.in_use.saturating_sub(bytes);
        if let Some(share) = self.tenants.get_mut(tenant) {
            share.in_use = share.in_use.saturating_sub(bytes);
        }
        self.hand_out(granted);
        self.forget_if_idle(tenant);
    }

    fn hand_out(&mut self, granted: &mut Vec<u64>) {
        // Two rounds without a grant mean that nothing at the head of any queue fits: a deficit only has to
        // grow while its head is affordable.
        let mut fruitless = 0;
        while fruitless <= self.round.len() {
            let Some(tenant) = self.round.pop_front() else {
                return;
            };
            let Some(share) = self.tenants.get_mut(&tenant) else {
                continue;
            };
            share.deficit = share.deficit.saturating_add(FAIR_QUANTUM_BYTES);
            let before = granted.len();
            let affordable_later = self.serve(&tenant, granted);
            if granted.len() > before || affordable_later {
                fruitless = 0;
            } else {
                fruitless += 1;
            }
            match self.tenants.get_mut(&tenant) {
                Some(share) if share.waiting.is_empty() => share.deficit = 0,
                Some(_) => self.round.push_back(tenant),
                None => {}
            }
        }
    }

    /// Serves one tenant's turn. `true` when its head would fit the budget and only its deficit is too small.
    fn serve(&mut self, tenant: &TenantId, granted: &mut Vec<u64>) -> bool {
        loop {
            let Some(share) = self.tenants.get(tenant) else {
                return false;
            };
            let Some(&(ticket, bytes)) = share.waiting.front() else {
                return false;
            };
            if !self.fits(share.in_use, bytes) {
                return false;
            }
            if share.deficit < bytes {
                return true;
            }
            if let Some(share) = self.tenants.get_mut(tenant) {
                share.waiting.pop_front();
                share.deficit -= bytes;
            }
            self.take(tenant, bytes);
            granted.push(ticket);
        }
    }

    /// Takes a ticket out of the queue. `false` when it was granted meanwhile.
    fn cancel(&mut self, tenant: &TenantId, ticket: u64) -> bool {
        let Some(share) = self.tenants.get_mut(tenant) else {
            return false;
        };
        let before = share.waiting.len();
        share.waiting.retain(|(waiting, _)| *waiting != ticket);
        let removed = share.waiting.len() < before;
        if share.waiting.is_empty() {
            self.round.retain(|queued| queued != tenant);
        }
        self.forget_if_idle(tenant);
        removed
    }

    fn forget_if_idle(&mut self, tenant: &TenantId) {
        if self
            .tenants
            .get(tenant)
            .is_some_and(|s| s.in_use == 0 && s.waiting.is_empty())
        {
            self.tenants.remove(tenant);
        }
    }
}

/// The queue itself: the scheduler and those who wait for it.
#[derive(Debug)]
pub(crate) struct FairQueue {
    inner: Mutex<Inner>,
    /// Told whenever the last share was given back.
    emptied: Notify,
}

#[derive(Debug)]
struct Inner {
    scheduler: Scheduler,
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
}

/// A share of the budget; given back when dropped.
#[derive(Debug)]
pub(crate) struct Grant {
    queue: Arc<FairQueue>,
    tenant: TenantId,
    bytes: u64,
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.queue.release(&self.tenant, self.bytes);
    }
}

impl FairQueue {
    /// A queue over a budget of `capacity` bytes.
    pub(crate) fn new(capacity: u64) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(Inner {
                scheduler: Scheduler::new(capacity.max(1)),
                waiting: BTreeMap::new(),
            }),
            emptied: Notify::new(),
        })
    }

    /// Bytes that hold a share now.
    pub(crate) fn in_use(&self) -> u64 {
        self.lock().scheduler.in_use
    }

    /// Publishes that wait for a share now.
    pub(crate) fn queued(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Takes a share at once, or waits for the tenant's turn.
    ///
    /// # Errors
    /// [`QueueFull`] when too many of the tenant's publishes wait already, or the wait ran out.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        tenant: &TenantId,
        bytes: u64,
    ) -> Result<Grant, QueueFull> {
        let (ticket, turn) = {
            let mut inner = self.lock();
            match inner.scheduler.offer(tenant, bytes) {
                Offered::Granted => return Ok(self.grant(tenant, bytes)),
                Offered::Full => {
                    return Err(QueueFull {
                        retry_after_ms: retry_hint(),
                    });
                }
                Offered::Waiting(ticket) => {
                    let (sender, receiver) = oneshot::channel();
                    inner.waiting.insert(ticket, sender);
                    (ticket, receiver)
                }
            }
        };
        let mut place = Place {
            queue: self,
            tenant,
            ticket,
            bytes,
            settled: false,
        };
        if tokio::time::timeout(PUBLISH_QUEUE_WAIT, turn)
            .await
            .is_ok_and(|turn| turn.is_ok())
        {
            place.settled = true;
            return Ok(self.grant(tenant, bytes));
        }
        drop(place);
        Err(QueueFull {
            retry_after_ms: retry_hint(),
        })
    }

    /// Resolves when nothing holds a share. Cancel-safe.
    pub(crate) async fn idle(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.in_use() == 0 {
                return;
            }
            emptied.await;
        }
    }

    fn grant(self: &Arc<Self>, tenant: &TenantId, bytes: u64) -> Grant {
        Grant {
            queue: Arc::clone(self),
            tenant: tenant.clone(),
            bytes,
        }
    }

    fn release(&self, tenant: &TenantId, bytes: u64) {
        let mut granted = Vec::new();
        let mut inner = self.lock();
        inner.scheduler.release(tenant, bytes, &mut granted);
        for ticket in granted {
            if let Some(sender) = inner.waiting.remove(&ticket) {
                // A waiter that is gone gives its share back through its `Place`.
                let _ = sender.send(());
            }
        }
        if inner.scheduler.in_use == 0 {
            self.emptied.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the queue; leaving it, also by cancellation, gives back whatever it holds.
struct Place<'a> {
    queue: &'a FairQueue,
    tenant: &'a TenantId,
    ticket: u64,
    bytes: u64,
    settled: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        let was_waiting = {
            let mut inner = self.queue.lock();
            inner.waiting.remove(&self.ticket);
            inner.scheduler.cancel(self.tenant, self.ticket)
        };
        if !was_waiting {
            self.queue.release(self.tenant, self.bytes);
        }
    }
}

/// How long a refused publisher should stay away: half the longest wait.
fn retry_hint() -> u64 {
    u64::try_from((PUBLISH_QUEUE_WAIT / 2).as_millis()).unwrap_or(1_000)
}

/// A token bucket for messages and bytes (0 = no limit). It may be overdrawn once, so that a batch larger than
/// a burst is possible; the debt is paid before the next publish.
#[derive(Debug)]
pub(crate) struct RateLimit {
    bytes: Bucket,
    messages: Bucket,
}

#[derive(Debug)]
struct Bucket {
    per_second: u64,
    /// Thousandths of a unit, so that slow rates are exact.
    level: i128,
    updated: Duration,
}

impl RateLimit {
    /// A full bucket at `now` (time since any fixed instant).
    pub(crate) fn new(bytes_per_second: u64, messages_per_second: u64, now: Duration) -> Self {
        let bucket = |per_second: u64| Bucket {
            per_second,
            level: i128::from(per_second) * 1000,
            updated: now,
        };
        Self {
            bytes: bucket(bytes_per_second),
            messages: bucket(messages_per_second),
        }
    }

    /// For how many ms bytes and messages allow nothing more.
    pub(crate) fn waits(&mut self, now: Duration) -> (u64, u64) {
        (self.bytes.wait(now), self.messages.wait(now))
    }

    /// Takes what a publish needs, whether it is there or not.
    pub(crate) fn spend(&mut self, bytes: u64, messages: u64) {
        self.bytes.take(bytes);
        self.messages.take(messages);
    }
}

impl Bucket {
    fn wait(&mut self, now: Duration) -> u64 {
        if self.per_second == 0 {
            return 0;
        }
        let elapsed = now.saturating_sub(self.updated);
        let rate = i128::from(self.per_second);
        let gained = rate * i128::try_from(elapsed.as_micros()).unwrap_or(i128::MAX / rate) / 1000;
        if gained > 0 {
            self.level = (self.level + gained).min(rate * 1000);
            self.updated = now;
        }
        if self.level > 0 {
            return 0;
        }
        u64::try_from((-self.level) / rate + 1).unwrap_or(u64::MAX)
    }

    fn take(&mut self, units: u64) {
        if self.per_second > 0 {
            self.level -= i128::from(units) * 1000;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantId {
        name.parse().unwrap()
    }

    #[test]
    fn nothing_waits_while_the_budget_lasts() {
        let mut scheduler = Scheduler::new(1000);
        assert_eq!(scheduler.offer(&tenant("a"), 400), Offered::Granted);
        assert_eq!(scheduler.offer(&tenant("a"), 300), Offered::Granted);
        assert!(matches!(
            scheduler.offer(&tenant("a"), 200),
            Offered::Waiting(_)
        ));
    }

    #[test]
    fn a_batch_larger_than_the_budget_goes_alone() {
        let mut scheduler = Scheduler::new(1000);
        assert_eq!(scheduler.offer(&tenant("a"), 5000), Offered::Granted);
        assert!(matches!(
            scheduler.offer(&tenant("b"), 1),
            Offered::Waiting(_)
        ));
        let mut granted = Vec::new();
        scheduler.release(&tenant("a"), 5000, &mut granted);
        assert_eq!(granted.len(), 1);
    }

    #[test]
    fn a_tenant_below_its_share_does_not_wait_for_a_flood() {
        let mut scheduler = Scheduler::new(1000);
        assert_eq!(scheduler.offer(&tenant("flood"), 750), Offered::Granted);
        assert!(matches!(
            scheduler.offer(&tenant("flood"), 100),
            Offered::Waiting(_)
        ));
        assert_eq!(scheduler.offer(&tenant("quiet"), 200), Offered::Granted);
    }

    #[test]
    fn what_is_released_is_shared_in_turns() {
        let mut scheduler = Scheduler::new(400);
        assert_eq!(scheduler.offer(&tenant("a"), 400), Offered::Granted);
        let a: Vec<Offered> = (0..100)
            .map(|_| scheduler.offer(&tenant("a"), 100))
            .collect();
        let b: Vec<Offered> = (0..2).map(|_| scheduler.offer(&tenant("b"), 100)).collect();
        assert!(
            a.iter()
                .chain(&b)
                .all(|offered| matches!(offered, Offered::Waiting(_)))
        );
        let mut granted = Vec::new();
        scheduler.release(&tenant("a"), 400, &mut granted);
        assert!(
            granted.contains(&100),
            "b's first publish goes although a came first: {granted:?}"
        );
    }

    #[test]
    fn a_flood_is_refused_once_its_queue_is_full_and_others_are_not() {
        let mut scheduler = Scheduler::new(400);
        assert_eq!(scheduler.offer(&tenant("a"), 400), Offered::Granted);
        for _ in 0..PUBLISH_QUEUE_DEPTH {
            assert!(matches!(
                scheduler.offer(&tenant("a"), 1),
                Offered::Waiting(_)
            ));
        }
        assert_eq!(scheduler.offer(&tenant("a"), 1), Offered::Full);
        assert!(matches!(
            scheduler.offer(&tenant("b"), 200),
            Offered::Waiting(_)
        ));
    }

    #[tokio::test]
    async fn a_cancelled_wait_gives_its_place_back() {
        let queue = FairQueue::new(100);
        let held = queue.acquire(&tenant("a"), 100).await.unwrap();
        let waiting = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { queue.acquire(&tenant("a"), 50).await }
        });
        while queue.queued() == 0 {
            tokio::task::yield_now().await;
        }
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        drop(held);
        assert_eq!((queue.in_use(), queue.queued()), (0, 0));
    }

    fn take(limit: &mut RateLimit, bytes: u64, now_ms: u64) -> Result<(), u64> {
        let (of_bytes, of_messages) = limit.waits(Duration::from_millis(now_ms));
        match of_bytes.max(of_messages) {
            0 => {
                limit.spend(bytes, 1);
                Ok(())
            }
            wait => Err(wait),
        }
    }

    #[test]
    fn an_overdrawn_bucket_is_paid_back_before_the_next_publish() {
        let mut limit = RateLimit::new(1000, 0, Duration::ZERO);
        assert_eq!(take(&mut limit, 3000, 0), Ok(()));
        assert_eq!(take(&mut limit, 1, 0), Err(2001));
        assert!(take(&mut limit, 1, 1999).is_err());
        assert_eq!(take(&mut limit, 1, 2001), Ok(()));
    }
}
