//! Following the catalogue: with which credential, and what a change of it means for what is served and what is open.

use std::path::Path;
use std::sync::Arc;

use felix_controlplane_client::{Api, Credential, Follower, Given, Held, Trust};
use felix_meta::{Catalogue, TenantEntry};
use felix_model::TenantId;
use felix_wire::error::Failure;

use crate::broker::{Shared, StartRefused};
use crate::caches::CacheSpec;
use crate::config::Config;
use crate::conn::standing::{Over, Revoked, Standing};
use crate::metrics::Metrics;
use crate::names::spec;
use crate::quotas::{Exceeded, TenantUse};

/// Takes a first copy of the catalogue, with the credential that is kept fresh if there is one.
pub(crate) async fn follow(
    config: &Config,
    token: Option<Held>,
    metrics: &Metrics,
) -> Result<(Follower, Option<Credential>), StartRefused> {
    let refused = |error: &dyn std::fmt::Display| StartRefused::Endpoint(error.to_string());
    let read = |file: &Path| {
        std::fs::read(file).map_err(|error| refused(&format!("{}: {error}", file.display())))
    };
    let roots = config.controlplane_ca.as_deref().map(read).transpose()?;
    let trust = Trust::roots(roots.as_deref());
    let given = Given {
        token,
        token_file: config.node_token_file.clone(),
        refresh_token_file: config.node_refresh_token_file.clone(),
    };
    let url = &config.controlplane_url;
    let (source, credential) = given.source(url, &trust).map_err(|error| refused(&error))?;
    let api = Api::with_trust(url, source, &trust).map_err(|error| refused(&error))?;
    let tell = |event| metrics.credential(event);
    let follower = Follower::start_with(api, credential.as_ref(), tell).await?;
    Ok((follower, credential))
}

impl Shared {
    /// Ends everything that a standing stands behind.
    pub(crate) fn revoke(&self, standing: &Standing, revoked: Revoked) {
        if !self.standings.end(standing, Over::Revoked(revoked)) {
            return;
        }
        self.metrics.standings_revoked.increment(1);
        self.members.expel(self.elapsed(), standing.id);
        let holder = standing.holder().principal;
        tracing::info!(
            tenant = %holder.tenant,
            principal = %holder.subject,
            what = revoked.word(),
            "revoked; what was open ends"
        );
    }

    /// Ends whatever rests on what a change of the catalogue took away.
    fn enforce(&self, before: &Catalogue, after: &Catalogue) {
        for tenant in self.standings.tenants() {
            let (was, is) = (
                before.tenant(tenant.as_str()),
                after.tenant(tenant.as_str()),
            );
            let same = was
                .zip(is)
                .is_some_and(|(was, is)| Arc::ptr_eq(was, is) || is_as_good(was, is));
            if same {
                continue;
            }
            for standing in self.standings.of(&tenant) {
                if let Some(revoked) = self.names.revoked(&standing.holder()) {
                    self.revoke(&standing, revoked);
                }
            }
        }
    }

    /// What a tenant uses of this broker.
    pub(crate) fn used(&self, tenant: &TenantId) -> Arc<TenantUse> {
        self.quotas.of(tenant, &self.names.catalogue())
    }

    /// The refusal of a use that is over a bound.
    pub(crate) fn exceeded(&self, exceeded: Exceeded) -> Failure {
        match &exceeded {
            Exceeded::Configured { .. } => self.metrics.throttled.increment(1),
            Exceeded::Quota { .. } => self.metrics.quota_refused.increment(1),
        }
        exceeded.into()
    }
}

/// Whether every token that rested on a tenant's entry rests on another one as well.
fn is_as_good(was: &TenantEntry, is: &TenantEntry) -> bool {
    was.keys == is.keys && was.revocations == is.revocations
}

/// Applies what changes in the catalogue to what is served: deletions, new incarnations, new settings.
pub(crate) async fn follow_changes(shared: &Arc<Shared>) {
    let mut changes = shared.names.follower().watch();
    // Taken before the look at the disk, so that a deletion in the meantime is seen as one.
    let mut before = shared.names.catalogue();
    shared.verify_shards().await;
    while changes.changed().await.is_ok() {
        let after = Arc::clone(&changes.borrow_and_update());
        // First, so that what is revoked with a tenant that is deleted is told so.
        shared.enforce(&before, &after);
        shared.quotas.follow(&after);
        for handle in shared.shards.handles() {
            let known = handle.spec();
            let id = &known.id;
            let (tenant, namespace, stream) = (
                id.tenant.as_str(),
                id.namespace.as_str(),
                id.stream.as_str(),
            );
            match after.stream(tenant, namespace, stream) {
                Some(record) => drop(shared.shards.stream(spec(record, &after))),
                // Only what the catalogue had and has no longer was deleted; a name it never had is an orphan.
                None if before.stream(tenant, namespace, stream).is_some() => {
                    shared.shards.deleted(id, known.incarnation);
                }
                None => {}
            }
        }
        for handle in shared.caches.handles() {
            let known = handle.spec();
            let (tenant, namespace, cache) = (
                known.id.tenant.as_str(),
                known.id.namespace.as_str(),
                known.id.cache.as_str(),
            );
            match after.cache(tenant, namespace, cache) {
                Some(record) => drop(shared.caches.cache(CacheSpec::of(record))),
                None if before.cache(tenant, namespace, cache).is_some() => {
                    shared.caches.deleted(&known.id, known.incarnation);
                }
                None => {}
            }
        }
        before = after;
    }
}
