//! What a control plane does by itself, again and again.

use felix_meta::Command;
use felix_model::TenantId;
use tokio::time::{Instant, sleep, sleep_until};

use crate::app::App;
use crate::clock::now;
use crate::limits::{AUDIT_NEW_PAUSE, EXPIRY_PAUSE};

/// Writes down what was noted for the audit: what is new almost at once, the rest when its round is over, and what there
/// is at the end.
pub(crate) async fn write_audit(app: App) {
    let mut round_ends = Instant::now() + app.notebook.pause();
    loop {
        tokio::select! {
            () = app.stopping.cancelled() => break,
            () = sleep_until(round_ends) => {
                app.notebook.write(&app.authority).await;
                round_ends = Instant::now() + app.notebook.pause();
            }
            () = app.notebook.news() => {
                // What comes together is written together.
                tokio::select! {
                    () = app.stopping.cancelled() => break,
                    () = sleep(AUDIT_NEW_PAUSE) => app.notebook.write_new(&app.authority).await,
                }
            }
        }
    }
    app.notebook.write(&app.authority).await;
}

/// Forgets sessions that cannot be refreshed any more, so that they take no room.
pub(crate) async fn expire_sessions(app: App) {
    loop {
        tokio::select! {
            () = sleep(EXPIRY_PAUSE) => {}
            () = app.stopping.cancelled() => return,
        }
        expire_once(&app).await;
    }
}

async fn expire_once(app: &App) {
    let now_ms = now();
    let catalogue = app.authority.catalogue();
    let expired = |entry: &felix_meta::TenantEntry| {
        let mut sessions = entry.sessions.iter();
        sessions.any(|session| session.expires_at_ms <= now_ms)
    };
    let tenants: Vec<TenantId> = catalogue
        .tenants()
        .filter(|(_, entry)| expired(entry))
        .map(|(tenant, _)| tenant.clone())
        .collect();
    drop(catalogue);
    for tenant_id in tenants {
        let command = Command::ExpireSessions { tenant_id, now_ms };
        if let Err(error) = app.authority.submit(command).await {
            // The next round finds them again.
            tracing::debug!(%error, "expired sessions were not forgotten");
        }
    }
}

#[cfg(test)]
mod tests {
    use felix_meta::{SessionAsk, SessionRecord, TenantRecord};
    use felix_model::TimeMs;

    use super::*;
    use crate::audit::Note;
    use crate::authority::Authority;
    use crate::config::Config;
    use crate::ledger::MemoryLedger;

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_in_the_ledger_a_moment_after_it() {
        let authority = Authority::start(Box::new(MemoryLedger::new())).unwrap();
        let app = App::new(authority, Config::default());
        let writing = tokio::spawn(write_audit(app.clone()));
        for refusals in 1..=2 {
            let reason = ["unauthorized", "forbidden"][refusals - 1];
            app.notebook.note(Note {
                tenant: None,
                what: "refused",
                reason,
            });
            // Waiting busily keeps the clock where it is, so that it is only this moment that passes.
            tokio::task::yield_now().await;
            tokio::time::advance(AUDIT_NEW_PAUSE).await;
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
            while app.authority.catalogue().cluster_chain().seq < refusals as u64 {
                assert!(std::time::Instant::now() < deadline, "it is not written");
                tokio::task::yield_now().await;
            }
        }
        app.stopping.cancel();
        writing.await.unwrap();
    }

    #[tokio::test]
    async fn sessions_that_ran_out_are_forgotten_and_others_stay() {
        let authority = Authority::start(Box::new(MemoryLedger::new())).unwrap();
        let app = App::new(authority, Config::default());
        let tenant: TenantId = "t".parse().unwrap();
        let record = TenantRecord {
            tenant_id: tenant.clone(),
            display_name: String::new(),
        };
        let make = Command::CreateTenant(record);
        app.authority.submit(make).await.unwrap();
        for (id, expires_at_ms) in [("old", TimeMs(2)), ("new", TimeMs(u64::MAX))] {
            let command = Command::OpenSession {
                tenant_id: tenant.clone(),
                session: session(id, expires_at_ms),
                principal: None,
            };
            app.authority.submit(command).await.unwrap();
        }
        expire_once(&app).await;
        let catalogue = app.authority.catalogue();
        let left = catalogue.tenant("t").unwrap().sessions.iter();
        let left: Vec<_> = left.map(|session| session.session_id.clone()).collect();
        assert_eq!(left, ["new"]);
    }

    fn session(id: &str, expires_at_ms: TimeMs) -> SessionRecord {
        SessionRecord {
            session_id: id.into(),
            principal_id: "p".into(),
            issuer: None,
            service_account: None,
            groups: vec![],
            audience: "felix-broker".into(),
            ask: SessionAsk::default(),
            may_act: None,
            created_at_ms: TimeMs(1),
            refreshed_at_ms: TimeMs(1),
            expires_at_ms,
            generation: 0,
            secret_sha256: "ab".repeat(32),
            from: String::new(),
        }
    }
}
