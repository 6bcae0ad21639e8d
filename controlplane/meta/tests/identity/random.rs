//! Random commands: whatever comes, what must never be is not.

use std::collections::BTreeSet;

use felix_meta::{
    Catalogue, Command, Entry, NamespaceSpec, QuotaLimits, QuotaScope, RevokedKind, TenantRecord,
    audit, service_principal,
};
use felix_model::TimeMs;
use proptest::prelude::*;
use proptest::sample::select;

use super::common::{
    ISSUER, account, beginning, entry, grouping, issuer, n, open, policy, refresh, service_key,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_session_outlives_who_vouched_for_it_and_no_rule_whom_it_was_given_to(
        commands in prop::collection::vec(command(), 1..80),
    ) {
        let mut state = Catalogue::default();
        let mut log = Vec::new();
        for (at, command) in beginning("t").into_iter().chain(commands).enumerate() {
            let before = state.clone();
            match entry(&mut state, &command, at as u64) {
                Ok(Some(entry)) => log.push(entry),
                Ok(None) | Err(_) => prop_assert_eq!(&before, &state),
            }
            hold(&state)?;
        }
        let json = serde_json::to_string(&state).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Catalogue>(&json).unwrap(), &state, "snapshot");
        let (mut folded, mut at_node) = (Catalogue::default(), Catalogue::default());
        let mut read = Vec::new();
        for entry in &log {
            let entry = Entry::from_json(&serde_json::to_value(entry).unwrap()).unwrap();
            folded.apply_entry(&entry);
            let sent = serde_json::to_value(entry.for_nodes()).unwrap();
            prop_assert!(!sent.to_string().contains("secret"), "{}", sent);
            at_node.apply_entry(&Entry::from_json(&sent).unwrap());
            read.push(audit::AuditItem::of_cluster(&entry).unwrap());
        }
        prop_assert_eq!(&folded, &state, "the same events make the same state");
        prop_assert_eq!(at_node, state.for_nodes(), "nodes fold to the stripped state");
        let end = audit::verify(&audit::ChainHead::default(), &read);
        prop_assert_eq!(end.as_ref(), Ok(state.cluster_chain()));
    }
}

fn hold(state: &Catalogue) -> Result<(), TestCaseError> {
    for (_, tenant) in state.tenants() {
        let mut by_principal = 0;
        let mut principals = BTreeSet::new();
        for session in tenant.sessions.iter() {
            if let Some(issuer) = &session.issuer {
                prop_assert!(tenant.issuers.contains_key(issuer), "{session:?}");
            }
            if let Some(name) = &session.service_account {
                let account = tenant.service_accounts.get(name);
                prop_assert!(account.is_some_and(|one| !one.disabled), "{session:?}");
            }
            principals.insert(session.principal_id.clone());
        }
        for principal in &principals {
            by_principal += tenant.sessions.of(principal).count();
        }
        prop_assert_eq!(by_principal, tenant.sessions.len());
        for one in tenant.groupings.iter().filter(|one| one.user == "sa:bot") {
            let account = tenant.service_accounts.get("bot");
            prop_assert!(account.is_some(), "{one:?}");
        }
        for (namespace, _) in tenant.quotas.namespaces() {
            prop_assert!(tenant.namespaces.contains_key(namespace));
        }
    }
    Ok(())
}

fn command() -> impl Strategy<Value = Command> {
    let t = || select(vec!["t", "u"]);
    let id = || select(vec!["s1", "s2", "s3", "s4"]);
    let who = || select(vec!["p1", "p2", "sa:bot"]);
    let at = || 1..3000_u64;
    let bot = |tenant: &str| (n(tenant), "bot".to_owned());
    prop_oneof![
        1 => t().prop_map(|t| Command::CreateTenant(TenantRecord {
            tenant_id: n(t),
            display_name: String::new(),
        })),
        1 => t().prop_map(|t| Command::DeleteTenant(n(t))),
        3 => (t(), select(vec![ISSUER, "https://b.example"]))
            .prop_map(|(t, one)| Command::SetIssuer(n(t), issuer(one))),
        2 => (t(), at()).prop_map(|(t, now)| Command::RemoveIssuer {
            tenant_id: n(t),
            issuer: ISSUER.into(),
            now_ms: TimeMs(now),
        }),
        3 => t().prop_map(|t| account(t, "bot")),
        2 => (t(), at()).prop_map(move |(t, now)| {
            let (tenant_id, name) = bot(t);
            Command::DeleteServiceAccount { tenant_id, name, now_ms: TimeMs(now) }
        }),
        2 => (t(), any::<bool>(), at()).prop_map(move |(t, disabled, now)| {
            let (tenant_id, name) = bot(t);
            Command::DisableServiceAccount { tenant_id, name, disabled, now_ms: TimeMs(now) }
        }),
        2 => (t(), select(vec!["k1", "k2"])).prop_map(move |(t, key)| {
            let (tenant_id, name) = bot(t);
            Command::AddServiceKey { tenant_id, name, key: service_key(key) }
        }),
        2 => (t(), select(vec!["k1", "k2"]), at()).prop_map(move |(t, key, now)| {
            let (tenant_id, name) = bot(t);
            Command::RemoveServiceKey {
                tenant_id,
                name,
                key_id: key.into(),
                now_ms: TimeMs(now),
            }
        }),
        8 => (t(), id(), who(), at()).prop_map(|(t, id, who, at)| open(t, id, who, at)),
        4 => (t(), id(), 0..3_u64, at()).prop_map(|(t, id, g, at)| refresh(t, id, g, at)),
        2 => (t(), id(), at()).prop_map(|(t, id, now)| Command::EndSession {
            tenant_id: n(t),
            session_id: id.into(),
            reason: "logout".into(),
            now_ms: TimeMs(now),
        }),
        1 => (t(), at()).prop_map(|(t, now)| Command::ExpireSessions {
            tenant_id: n(t),
            now_ms: TimeMs(now),
        }),
        3 => (t(), select(RevokedKind::ALL.to_vec()), who(), at()).prop_map(
            |(t, kind, who, now)| Command::Revoke {
                tenant_id: n(t),
                kind,
                id: if kind == RevokedKind::Tenant { t } else { who }.into(),
                not_before_ms: TimeMs(now),
                reason: String::new(),
                now_ms: TimeMs(now),
            }
        ),
        2 => (t(), who()).prop_map(|(t, who)| {
            // Rules for an account that is gone may be written ahead; only those are of interest that were there.
            let who = if who == "sa:bot" { "p1" } else { who };
            Command::AddGrouping(n(t), grouping(who, "role:r"))
        }),
        2 => (t(), at()).prop_map(|(t, now)| {
            Command::RemoveGrouping(n(t), grouping("p1", "role:r"), TimeMs(now))
        }),
        1 => t().prop_map(|t| Command::AddPolicy(n(t), policy("role:r"))),
        1 => (t(), at()).prop_map(|(t, now)| {
            Command::RemovePolicy(n(t), policy("role:r"), TimeMs(now))
        }),
        1 => t().prop_map(|t| Command::CreateNamespace(n(t), NamespaceSpec {
            namespace: n("ns"),
            display_name: None,
        })),
        1 => t().prop_map(|t| Command::DeleteNamespace(n(t), n("ns"))),
        3 => (t(), scope(), 1..5_u64).prop_map(|(t, scope, subscriptions)| Command::SetQuota {
            tenant_id: n(t),
            scope,
            limits: QuotaLimits {
                subscriptions: Some(subscriptions),
                ..QuotaLimits::default()
            },
        }),
        1 => (t(), scope()).prop_map(|(t, scope)| Command::RemoveQuota {
            tenant_id: n(t),
            scope,
        }),
        1 => t().prop_map(|t| Command::ReplaceKeys(n(t), super::common::verifying("k9"))),
    ]
}

fn scope() -> impl Strategy<Value = QuotaScope> {
    select(vec![
        QuotaScope::Tenant,
        QuotaScope::Namespace(n("ns")),
        QuotaScope::Principal(service_principal("bot")),
    ])
}
