//! What one tenant uses, altogether, in its namespaces, and by its principals.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use felix_meta::{QuotaLimits, QuotaScope};
use felix_model::TenantId;

use super::scope::Scope;
use super::{Exceeded, ListedTenant};
use crate::fair::RateLimit;
use crate::limits::{AHEAD_MS_MAX, PRINCIPALS_LISTED_MAX};

/// What one tenant uses of this broker.
#[derive(Debug)]
pub(crate) struct TenantUse {
    tenant: TenantId,
    started: Instant,
    /// Some rate bounds somebody here. While it does not, no request takes the lock.
    rated: AtomicBool,
    /// What caches hold is bounded for somebody here.
    caches_bounded: AtomicBool,
    refused: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// By this broker's configuration.
    configured: Option<RateLimit>,
    quotas: felix_meta::Quotas,
    all: Scope,
    namespaces: BTreeMap<String, Scope>,
    principals: BTreeMap<Arc<str>, Scope>,
}

/// Who uses something, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) principal: &'a Arc<str>,
}

impl TenantUse {
    /// Rates are bytes and messages a second by configuration; 0 is no bound.
    pub(super) fn new(tenant: TenantId, (bytes, messages): (u64, u64), started: Instant) -> Self {
        let now = started.elapsed();
        let configured = (bytes > 0 || messages > 0).then(|| RateLimit::new(bytes, messages, now));
        Self {
            tenant,
            started,
            rated: AtomicBool::new(configured.is_some()),
            caches_bounded: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            inner: Mutex::new(Inner {
                configured,
                quotas: felix_meta::Quotas::default(),
                all: Scope::new(QuotaLimits::default(), now),
                namespaces: BTreeMap::new(),
                principals: BTreeMap::new(),
            }),
        }
    }

    /// Takes over other bounds.
    pub(super) fn set(&self, quotas: &felix_meta::Quotas) {
        let now = self.now();
        let mut inner = self.lock();
        if inner.quotas == *quotas {
            return;
        }
        inner.quotas = quotas.clone();
        let of_tenant = quotas.get(&QuotaScope::Tenant).unwrap_or_default();
        inner.all.set(of_tenant, now);
        for (name, scope) in &mut inner.namespaces {
            let limits = quotas.namespaces().find(|(held, _)| held == name);
            scope.set(
                limits.map_or_else(QuotaLimits::default, |(_, limits)| limits),
                now,
            );
        }
        for (name, limits) in quotas.namespaces() {
            let scope = inner.namespaces.entry(name.to_owned());
            scope.or_insert_with(|| Scope::new(limits, now));
        }
        for (id, scope) in &mut inner.principals {
            let limits = quotas.get(&QuotaScope::Principal(id.to_string()));
            scope.set(limits.unwrap_or_default(), now);
        }
        for (id, limits) in quotas.principals() {
            let scope = inner.principals.entry(id.into());
            scope.or_insert_with(|| Scope::new(limits, now));
        }
        inner.principals.retain(|_, scope| !scope.is_idle());
        let rated = inner.configured.is_some() || inner.scopes().any(Scope::is_rated);
        let bounded = inner
            .scopes()
            .any(|scope| scope.limits().cache_bytes.is_some());
        self.rated.store(rated, Ordering::Relaxed);
        self.caches_bounded.store(bounded, Ordering::Relaxed);
    }

    /// Counts a write against every rate that bounds its author.
    ///
    /// # Errors
    /// [`Exceeded`]; nothing was counted.
    pub(crate) fn write(&self, by: User<'_>, bytes: u64, records: u64) -> Result<(), Exceeded> {
        if !self.rated.load(Ordering::Relaxed) {
            return Ok(());
        }
        let now = self.now();
        self.judge(|inner| {
            inner.waits(by, now).map_or(Ok(()), Err)?;
            inner.spend(by, bytes, records);
            Ok(())
        })
    }

    /// Counts a write of somebody who waits afterwards: he may be ahead of his rate by [`AHEAD_MS_MAX`]. Gives how long he
    /// has to wait until he is not, in milliseconds.
    ///
    /// # Errors
    /// [`Exceeded`]; nothing was counted.
    pub(crate) fn write_ahead(
        &self,
        by: User<'_>,
        bytes: u64,
        records: u64,
    ) -> Result<u64, Exceeded> {
        if !self.rated.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let now = self.now();
        let mut owed_ms = 0;
        self.judge(|inner| {
            let wait = inner.waits(by, now);
            wait.filter(|wait| !wait.is_over_within(AHEAD_MS_MAX))
                .map_or(Ok(()), Err)?;
            inner.spend(by, bytes, records);
            owed_ms = inner.waits(by, now).map_or(0, |wait| wait.wait_ms());
            Ok(())
        })?;
        Ok(owed_ms)
    }

    /// Counts a write to a cache against every rate, and what it may add against what caches may hold.
    ///
    /// # Errors
    /// [`Exceeded`]; nothing was counted.
    pub(crate) fn write_to_cache(
        &self,
        by: User<'_>,
        bytes: u64,
        adds: u64,
    ) -> Result<(), Exceeded> {
        if adds > 0 && self.caches_bounded.load(Ordering::Relaxed) {
            self.judge(|inner| inner.room_in_caches(by, adds))?;
        }
        self.write(by, bytes, 1)?;
        if adds > 0 && self.caches_bounded.load(Ordering::Relaxed) {
            let mut inner = self.lock();
            inner.all.cache_bytes = inner.all.cache_bytes.saturating_add(adds);
            let now = self.now();
            let namespace = inner.namespace(by.namespace, now);
            namespace.cache_bytes = namespace.cache_bytes.saturating_add(adds);
        }
        Ok(())
    }

    /// Takes a place for a subscription or a watch.
    ///
    /// # Errors
    /// [`Exceeded`].
    pub(crate) fn open_reader(self: &Arc<Self>, by: User<'_>) -> Result<OpenReader, Exceeded> {
        let now = self.now();
        self.judge(|inner| {
            inner.all.room_for_subscription(&QuotaScope::Tenant)?;
            let scope = scope_of_namespace(by.namespace);
            let namespace = inner.namespace(by.namespace, now);
            namespace.room_for_subscription(&scope)?;
            let scope = scope_of_principal(by.principal);
            let principal = inner.principal(by.principal, now);
            let judged = principal.room_for_subscription(&scope);
            if judged.is_ok() {
                inner.count_reader(by, now, |count| *count += 1);
            } else {
                inner.forget_if_idle(by.principal);
            }
            judged
        })?;
        Ok(OpenReader {
            used: Arc::clone(self),
            namespace: by.namespace.to_owned(),
            principal: Arc::clone(by.principal),
        })
    }

    /// Counts a connection of the tenant.
    ///
    /// # Errors
    /// [`Exceeded`].
    pub(crate) fn enter(self: &Arc<Self>) -> Result<Present, Exceeded> {
        self.judge(|inner| {
            inner.all.room_for_connection(&QuotaScope::Tenant)?;
            inner.all.connections += 1;
            Ok(())
        })?;
        Ok(Present {
            used: Arc::clone(self),
            principals: Vec::new(),
        })
    }

    /// Takes over what the caches of its namespaces hold.
    pub(super) fn measured(&self, held: impl Iterator<Item = (String, u64)>) {
        let now = self.now();
        let mut inner = self.lock();
        inner.all.cache_bytes = 0;
        for scope in inner.namespaces.values_mut() {
            scope.cache_bytes = 0;
        }
        for (namespace, bytes) in held {
            inner.all.cache_bytes = inner.all.cache_bytes.saturating_add(bytes);
            inner.namespace(&namespace, now).cache_bytes = bytes;
        }
    }

    pub(super) fn listing(&self) -> ListedTenant {
        let inner = self.lock();
        let mut all = inner.all.listing(None);
        all.connections = Some(inner.all.connections);
        all.cache_bytes = Some(inner.all.cache_bytes);
        let namespaces = inner.namespaces.iter().map(|(name, scope)| {
            let mut listed = scope.listing(Some(name));
            listed.cache_bytes = Some(scope.cache_bytes);
            listed
        });
        let principals = inner.principals.iter().map(|(id, scope)| {
            let mut listed = scope.listing(Some(id));
            listed.connections = Some(scope.connections);
            listed
        });
        ListedTenant {
            tenant: self.tenant.to_string(),
            refused: self.refused.load(Ordering::Relaxed),
            all,
            namespaces: namespaces.collect(),
            principals: principals.take(PRINCIPALS_LISTED_MAX).collect(),
            truncated: inner.principals.len() > PRINCIPALS_LISTED_MAX,
        }
    }

    fn judge(
        &self,
        judge: impl FnOnce(&mut Inner) -> Result<(), Exceeded>,
    ) -> Result<(), Exceeded> {
        let judged = judge(&mut self.lock());
        if judged.is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        judged
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn scopes(&self) -> impl Iterator<Item = &Scope> {
        let rest = self.namespaces.values().chain(self.principals.values());
        std::iter::once(&self.all).chain(rest)
    }

    fn namespace(&mut self, name: &str, now: Duration) -> &mut Scope {
        let Self {
            namespaces, quotas, ..
        } = self;
        if !namespaces.contains_key(name) {
            let limits = quotas.namespaces().find(|(held, _)| *held == name);
            let limits = limits.map_or_else(QuotaLimits::default, |(_, limits)| limits);
            namespaces.insert(name.to_owned(), Scope::new(limits, now));
        }
        namespaces
            .entry(name.to_owned())
            .or_insert_with(|| Scope::new(QuotaLimits::default(), now))
    }

    fn principal(&mut self, id: &Arc<str>, now: Duration) -> &mut Scope {
        let Self {
            principals, quotas, ..
        } = self;
        principals.entry(Arc::clone(id)).or_insert_with(|| {
            let limits = quotas.get(&QuotaScope::Principal(id.to_string()));
            Scope::new(limits.unwrap_or_default(), now)
        })
    }

    /// What bounds a write at this moment; of several, what does so for longest.
    fn waits(&mut self, by: User<'_>, now: Duration) -> Option<Exceeded> {
        let configured = self.configured.as_mut().and_then(|rate| {
            let (of_bytes, of_records) = rate.waits(now);
            let wait_ms = of_bytes.max(of_records);
            (wait_ms > 0).then_some(Exceeded::Configured { wait_ms })
        });
        let of_tenant = self.all.wait(&QuotaScope::Tenant, now).err();
        let namespace = self.namespaces.get_mut(by.namespace);
        let of_namespace = namespace
            .filter(|scope| scope.is_rated())
            .and_then(|scope| scope.wait(&scope_of_namespace(by.namespace), now).err());
        let principal = self.principals.get_mut(by.principal);
        let of_principal = principal
            .filter(|scope| scope.is_rated())
            .and_then(|scope| scope.wait(&scope_of_principal(by.principal), now).err());
        let waits = [of_principal, of_namespace, of_tenant, configured];
        waits.into_iter().flatten().max_by_key(Exceeded::wait_ms)
    }

    fn spend(&mut self, by: User<'_>, bytes: u64, records: u64) {
        if let Some(rate) = &mut self.configured {
            rate.spend(bytes, records);
        }
        self.all.spend(bytes, records);
        let namespace = self.namespaces.get_mut(by.namespace);
        let principal = self.principals.get_mut(by.principal);
        for scope in namespace.into_iter().chain(principal) {
            scope.spend(bytes, records);
        }
    }

    fn room_in_caches(&self, by: User<'_>, adds: u64) -> Result<(), Exceeded> {
        self.all.room_in_caches(&QuotaScope::Tenant, adds)?;
        let namespace = self.namespaces.get(by.namespace);
        namespace.map_or(Ok(()), |scope| {
            scope.room_in_caches(&scope_of_namespace(by.namespace), adds)
        })
    }

    fn count_reader(&mut self, by: User<'_>, now: Duration, change: impl Fn(&mut u64)) {
        change(&mut self.all.subscriptions);
        change(&mut self.namespace(by.namespace, now).subscriptions);
        change(&mut self.principal(by.principal, now).subscriptions);
        self.forget_if_idle(by.principal);
    }

    fn forget_if_idle(&mut self, id: &Arc<str>) {
        if self.principals.get(id).is_some_and(Scope::is_idle) {
            self.principals.remove(id);
        }
    }
}

fn scope_of_namespace(name: &str) -> QuotaScope {
    // A name that no namespace can have bounds nothing, and is refused before it gets here.
    name.parse()
        .map_or(QuotaScope::Tenant, QuotaScope::Namespace)
}

fn scope_of_principal(id: &str) -> QuotaScope {
    QuotaScope::Principal(id.to_owned())
}

/// Counts while a subscription or watch is open.
#[derive(Debug)]
pub(crate) struct OpenReader {
    used: Arc<TenantUse>,
    namespace: String,
    principal: Arc<str>,
}

impl Drop for OpenReader {
    fn drop(&mut self) {
        let by = User {
            namespace: &self.namespace,
            principal: &self.principal,
        };
        let mut inner = self.used.lock();
        inner.count_reader(by, self.used.now(), |count| {
            *count = count.saturating_sub(1);
        });
    }
}

/// Counts while a connection is open on which somebody of the tenant authenticated.
#[derive(Debug)]
pub(crate) struct Present {
    used: Arc<TenantUse>,
    principals: Vec<Arc<str>>,
}

impl Present {
    /// Of whom it counts.
    pub(crate) fn tenant(&self) -> &TenantId {
        &self.used.tenant
    }

    /// What is used altogether.
    pub(crate) fn used(&self) -> &Arc<TenantUse> {
        &self.used
    }

    /// Counts it for a principal too, once.
    ///
    /// # Errors
    /// [`Exceeded`].
    pub(crate) fn speaks_for(&mut self, principal: &Arc<str>) -> Result<(), Exceeded> {
        if self.principals.contains(principal) {
            return Ok(());
        }
        let now = self.used.now();
        self.used.judge(|inner| {
            let scope = inner.principal(principal, now);
            let judged = scope.room_for_connection(&scope_of_principal(principal));
            if judged.is_ok() {
                scope.connections += 1;
            }
            inner.forget_if_idle(principal);
            judged
        })?;
        self.principals.push(Arc::clone(principal));
        Ok(())
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        let now = self.used.now();
        let mut inner = self.used.lock();
        inner.all.connections = inner.all.connections.saturating_sub(1);
        for id in &self.principals {
            let scope = inner.principal(id, now);
            scope.connections = scope.connections.saturating_sub(1);
            inner.forget_if_idle(id);
        }
    }
}
