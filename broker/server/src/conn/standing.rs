//! Who stands behind what is open, and for how long.
//!
//! Everything that one connection opened with one token shares a standing. It ends when the token runs out or what it
//! rests on is revoked, and then everything it stands behind ends by itself; a fresh token of the same principal keeps
//! it. Whoever depends on one compares a number per turn and is woken when it moves.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use felix_auth::{LEEWAY_SECONDS, Principal, RevokedKind};
use felix_model::{TenantId, TimeMs};
use felix_wire::error::{Code, Failure};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::Conn;
use crate::limits::{EXPIRY_WARNING_MS_MAX, EXPIRY_WARNING_PAUSE_MS};

/// What one connection opened with one token rests on.
#[derive(Debug)]
pub(crate) struct Standing {
    /// Its number on the whole broker; never 0.
    pub(crate) id: u64,
    conn: Weak<Conn>,
    registry: Arc<Standings>,
    /// Moves with every change.
    serial: AtomicU64,
    changed: Notify,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    holder: Holder,
    over: Option<Over>,
    /// Its client was told that the token runs out.
    warned: bool,
    /// When to look at it next, as it is entered among those that are due.
    due: Option<(u64, u64)>,
}

/// Who holds a standing, as his newest token says.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) principal: Arc<Principal>,
    /// Which key signed the token.
    pub(crate) key: Arc<str>,
}

/// Why a standing ended. It stays ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// The token ran out.
    Expired,
    /// What it rests on was revoked.
    Revoked(Revoked),
}

/// What was revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Revoked {
    /// The tenant is gone.
    Tenant,
    /// The key that signed the token is retired.
    Key,
    /// What an operator took back, or what follows from a change of his.
    Named(RevokedKind),
}

/// How a standing is at one moment.
#[derive(Clone, Debug)]
pub(crate) enum Stands {
    /// In force, for this principal.
    For(Arc<Principal>),
    /// Ended.
    Over(Over),
}

impl Revoked {
    /// A word for answers and metrics.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Tenant => "tenant_gone",
            Self::Key => "key_retired",
            Self::Named(kind) => kind.name(),
        }
    }
}

impl Over {
    /// What a client is told.
    pub(crate) fn failure(self) -> Failure {
        match self {
            Self::Expired => Failure::new(
                Code::Unauthenticated,
                "the token this stream was opened with has run out",
            )
            .with_reason("token_expired"),
            Self::Revoked(what) => Failure::new(
                Code::Revoked,
                "the token, or what it rests on, was revoked; a token minted later may be welcome",
            )
            .with_reason(what.word()),
        }
    }
}

impl Standing {
    /// Moves whenever anything about it changes.
    pub(crate) fn serial(&self) -> u64 {
        self.serial.load(Ordering::Acquire)
    }

    /// Resolves at the first change after this call.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Resolves once it has ended. Cancel-safe.
    pub(crate) async fn is_over(&self) -> Over {
        loop {
            let changed = self.changed();
            if let Some(over) = self.over() {
                return over;
            }
            changed.await;
        }
    }

    /// Why it ended, if it did.
    pub(crate) fn over(&self) -> Option<Over> {
        self.lock().over
    }

    /// How it is now.
    pub(crate) fn now(&self) -> Stands {
        let state = self.lock();
        match state.over {
            Some(over) => Stands::Over(over),
            None => Stands::For(Arc::clone(&state.holder.principal)),
        }
    }

    /// Who holds it, or held it last.
    pub(crate) fn holder(&self) -> Holder {
        self.lock().holder.clone()
    }

    /// Whether its client knows that it runs out, and has not renewed it.
    pub(crate) fn is_expiring(&self) -> bool {
        let state = self.lock();
        state.warned && state.over.is_none()
    }

    /// For how much longer it stands.
    pub(crate) fn left_ms(&self, now: TimeMs) -> u64 {
        ends_at(&self.lock().holder.principal).saturating_sub(now.0)
    }

    fn end(&self, over: Over) -> bool {
        let mut state = self.lock();
        if state.over.is_some() {
            return false;
        }
        state.over = Some(over);
        drop(state);
        self.tell();
        true
    }

    fn tell(&self) {
        self.serial.fetch_add(1, Ordering::Release);
        self.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When a token stops being good here, with the leeway that every verifier gives it.
fn ends_at(principal: &Principal) -> u64 {
    let leeway = LEEWAY_SECONDS.saturating_mul(1000);
    principal.expires_at_ms.0.saturating_add(leeway)
}

/// When the client is told: while a third of what is left now is left, and no sooner than it takes to fetch a token.
fn warns_at(principal: &Principal, now: TimeMs) -> u64 {
    let left = principal.expires_at_ms.0.saturating_sub(now.0);
    let ahead = (left / 3).min(EXPIRY_WARNING_MS_MAX);
    let at = principal.expires_at_ms.0.saturating_sub(ahead);
    // A client that keeps bringing a token that is almost over is not told so at every look.
    at.max(now.0.saturating_add(EXPIRY_WARNING_PAUSE_MS))
}

/// Every standing of a broker.
#[derive(Debug, Default)]
pub(crate) struct Standings {
    next: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    by_tenant: HashMap<TenantId, BTreeMap<u64, Weak<Standing>>>,
    /// By the time at which they are looked at next, in Unix milliseconds, and their numbers.
    due: BTreeMap<(u64, u64), Weak<Standing>>,
}

impl Standings {
    /// Begins a standing of a token that was found good.
    pub(crate) fn begin(
        self: &Arc<Self>,
        conn: Weak<Conn>,
        holder: Holder,
        now: TimeMs,
    ) -> Arc<Standing> {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let tenant = holder.principal.tenant.clone();
        let at = (warns_at(&holder.principal, now), id);
        let standing = Arc::new(Standing {
            id,
            conn,
            registry: Arc::clone(self),
            serial: AtomicU64::new(0),
            changed: Notify::new(),
            state: Mutex::new(State {
                holder,
                over: None,
                warned: false,
                due: Some(at),
            }),
        });
        let mut inner = self.lock();
        inner.due.insert(at, Arc::downgrade(&standing));
        let of_tenant = inner.by_tenant.entry(tenant).or_default();
        of_tenant.insert(id, Arc::downgrade(&standing));
        standing
    }

    /// A fresh token of the same principal takes the place of the one before.
    ///
    /// # Errors
    /// Why it ended; it does not begin again.
    pub(crate) fn renew(
        &self,
        standing: &Arc<Standing>,
        holder: Holder,
        now: TimeMs,
    ) -> Result<(), Over> {
        let at = (warns_at(&holder.principal, now), standing.id);
        let mut inner = self.lock();
        let mut state = standing.lock();
        if let Some(over) = state.over {
            return Err(over);
        }
        state.holder = holder;
        state.warned = false;
        if let Some(before) = state.due.replace(at) {
            inner.due.remove(&before);
        }
        inner.due.insert(at, Arc::downgrade(standing));
        drop(state);
        drop(inner);
        standing.tell();
        Ok(())
    }

    /// Ends a standing. `false` when it had ended.
    pub(crate) fn end(&self, standing: &Standing, over: Over) -> bool {
        self.forget(standing);
        standing.end(over)
    }

    /// Every standing of a tenant.
    pub(crate) fn of(&self, tenant: &TenantId) -> Vec<Arc<Standing>> {
        let inner = self.lock();
        let of_tenant = inner.by_tenant.get(tenant);
        of_tenant.map_or(Vec::new(), |standings| {
            standings.values().filter_map(Weak::upgrade).collect()
        })
    }

    /// Tenants that somebody stands for here.
    pub(crate) fn tenants(&self) -> Vec<TenantId> {
        self.lock().by_tenant.keys().cloned().collect()
    }

    /// Warns clients whose tokens run out, and ends what has run out. Cheap when nothing is due.
    pub(crate) fn tick(&self, now: TimeMs) {
        for standing in self.take_due(now) {
            let (ends, warned) = {
                let state = standing.lock();
                (ends_at(&state.holder.principal), state.warned)
            };
            if now.0 >= ends {
                if self.end(&standing, Over::Expired)
                    && let Some(conn) = standing.conn.upgrade()
                {
                    conn.shared.metrics.standings_expired.increment(1);
                }
                continue;
            }
            self.enter(&standing, ends);
            if !warned {
                standing.lock().warned = true;
                if let Some(conn) = standing.conn.upgrade() {
                    conn.tell_expiring(&standing, now);
                }
            }
        }
    }

    fn take_due(&self, now: TimeMs) -> Vec<Arc<Standing>> {
        let mut inner = self.lock();
        let mut due = Vec::new();
        while let Some(first) = inner.due.first_entry() {
            if first.key().0 > now.0 {
                break;
            }
            due.extend(first.remove().upgrade());
        }
        due
    }

    fn enter(&self, standing: &Arc<Standing>, at_ms: u64) {
        let at = (at_ms, standing.id);
        let mut inner = self.lock();
        let mut state = standing.lock();
        // Renewed meanwhile, it is entered already.
        if state.over.is_none() && state.due.is_none_or(|due| !inner.due.contains_key(&due)) {
            state.due = Some(at);
            inner.due.insert(at, Arc::downgrade(standing));
        }
    }

    fn forget(&self, standing: &Standing) {
        let mut inner = self.lock();
        let state = standing.lock();
        if let Some(due) = state.due {
            inner.due.remove(&due);
        }
        let tenant = &state.holder.principal.tenant;
        if let Some(of_tenant) = inner.by_tenant.get_mut(tenant) {
            of_tenant.remove(&standing.id);
            if of_tenant.is_empty() {
                inner.by_tenant.remove(tenant);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.registry.forget(self);
    }
}

#[cfg(test)]
mod tests {
    use felix_auth::Permissions;

    use super::*;

    fn holder(issued_at_ms: u64, expires_at_ms: u64) -> Holder {
        let times = (TimeMs(issued_at_ms), TimeMs(expires_at_ms));
        let permissions = Arc::new(Permissions::compile("t", []));
        Holder {
            principal: Arc::new(Principal::new(
                "t".parse().unwrap(),
                "p",
                times,
                permissions,
            )),
            key: "k".into(),
        }
    }

    fn begun(standings: &Arc<Standings>, now: u64, expires_at_ms: u64) -> Arc<Standing> {
        standings.begin(Weak::new(), holder(now, expires_at_ms), TimeMs(now))
    }

    #[test]
    fn a_third_of_what_is_left_before_the_end_it_is_told_and_after_the_leeway_it_is_over() {
        let standings = Arc::new(Standings::default());
        let standing = begun(&standings, 0, 90_000);
        standings.tick(TimeMs(59_999));
        assert!(!standing.is_expiring());
        standings.tick(TimeMs(60_000));
        assert!(standing.is_expiring());
        let serial = standing.serial();
        standings.tick(TimeMs(94_999));
        assert_eq!((standing.over(), standing.serial()), (None, serial));
        standings.tick(TimeMs(95_000));
        assert_eq!(standing.over(), Some(Over::Expired));
        assert_ne!(standing.serial(), serial);
        assert!(standings.tenants().is_empty());
    }

    #[test]
    fn no_token_is_told_of_more_than_a_minute_before_it_runs_out() {
        let standings = Arc::new(Standings::default());
        let standing = begun(&standings, 0, 3_600_000);
        standings.tick(TimeMs(3_539_999));
        assert!(!standing.is_expiring());
        standings.tick(TimeMs(3_540_000));
        assert!(standing.is_expiring());
    }

    #[test]
    fn a_renewed_standing_has_the_life_of_its_next_token_and_moves() {
        let standings = Arc::new(Standings::default());
        let standing = begun(&standings, 0, 90_000);
        standings.tick(TimeMs(60_000));
        let serial = standing.serial();
        standings
            .renew(&standing, holder(61_000, 161_000), TimeMs(61_000))
            .unwrap();
        assert_ne!(standing.serial(), serial);
        assert!(!standing.is_expiring());
        standings.tick(TimeMs(95_000));
        assert_eq!(standing.over(), None);
        assert_eq!(standing.left_ms(TimeMs(95_000)), 71_000);
        standings.tick(TimeMs(166_000));
        assert_eq!(standing.over(), Some(Over::Expired));
    }

    #[test]
    fn what_has_ended_stays_ended() {
        let standings = Arc::new(Standings::default());
        let standing = begun(&standings, 0, 90_000);
        let revoked = Over::Revoked(Revoked::Key);
        assert!(standings.end(&standing, revoked));
        assert!(!standings.end(&standing, Over::Expired));
        let renewed = standings.renew(&standing, holder(0, 900_000), TimeMs(1));
        assert_eq!(renewed, Err(revoked));
        standings.tick(TimeMs(95_000));
        assert_eq!(standing.over(), Some(revoked));
        assert_eq!(revoked.failure().code(), Some(Code::Revoked));
    }

    #[test]
    fn what_nobody_holds_is_forgotten() {
        let standings = Arc::new(Standings::default());
        let standing = begun(&standings, 0, 90_000);
        let tenant: TenantId = "t".parse().unwrap();
        assert_eq!(standings.of(&tenant).len(), 1);
        drop(standing);
        assert!(standings.tenants().is_empty());
        assert!(standings.lock().due.is_empty());
    }

    #[tokio::test]
    async fn whoever_waits_is_woken_by_the_end() {
        let standings = Arc::new(Standings::default());
        let standing = begun(&standings, 0, 90_000);
        let waiting = tokio::spawn({
            let standing = Arc::clone(&standing);
            async move { standing.is_over().await }
        });
        tokio::task::yield_now().await;
        standings.end(&standing, Over::Revoked(Revoked::Tenant));
        assert_eq!(waiting.await.unwrap(), Over::Revoked(Revoked::Tenant));
    }
}
