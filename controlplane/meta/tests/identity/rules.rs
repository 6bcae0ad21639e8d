//! What each command does and takes back.

use felix_meta::audit;
use felix_meta::limits::{
    KEYS_PER_SERVICE_ACCOUNT_MAX, REVOCATION_PRUNE_SLACK_MS, REVOCATION_REACH_MS,
    REVOCATIONS_PER_TENANT_MAX, SESSION_TOKEN_LIFE_MS_MAX, SESSIONS_PER_PRINCIPAL_MAX,
    TOKEN_LIFE_MS_MAX,
};
use felix_meta::{
    AuditRecord, By, Command, Conflict, Decision, Event, Invalid, NamespaceSpec, QuotaLimits,
    QuotaScope, Refused, RevocationRecord, RevokedKind,
};
use felix_model::TimeMs;

use super::common::{
    ISSUER, account, beginning, digest, entry, grouping, issuer, n, open, policy, refresh, revoked,
    run, service_key, session, state, verifying,
};

#[test]
fn a_refresh_token_is_good_once() {
    let mut state = state();
    run(&mut state, &open("t", "s1", "p1", 10));
    run(&mut state, &refresh("t", "s1", 0, 20));
    let held = state.tenant("t").unwrap().sessions.get("s1").unwrap();
    assert_eq!((held.generation, held.refreshed_at_ms), (1, TimeMs(20)));
    assert_eq!(held.secret_sha256, digest(3));
    assert_eq!(held.expires_at_ms, TimeMs(1020), "as long again as before");
    let replayed = state.decide(&refresh("t", "s1", 0, 30));
    assert!(
        matches!(
            replayed,
            Err(Refused::Conflict(Conflict::SessionMovedOn { found: 1, .. }))
        ),
        "{replayed:?}"
    );
}

#[test]
fn a_session_that_ran_out_is_not_told_from_one_that_never_was() {
    let mut state = state();
    run(&mut state, &open("t", "s1", "p1", 10));
    let late = state.decide(&refresh("t", "s1", 0, 1010)).unwrap_err();
    let never = state.decide(&refresh("t", "s2", 0, 20)).unwrap_err();
    assert_eq!(late.to_string().replace("s1", "s2"), never.to_string());
    let now_ms = TimeMs(1010);
    let tenant_id = n("t");
    run(&mut state, &Command::ExpireSessions { tenant_id, now_ms });
    assert!(state.tenant("t").unwrap().sessions.is_empty());
}

#[test]
fn the_session_refreshed_longest_ago_makes_room_for_one_more() {
    let mut state = state();
    for n in 0..SESSIONS_PER_PRINCIPAL_MAX {
        run(&mut state, &open("t", &format!("s{n}"), "p1", 10));
    }
    for n in 1..SESSIONS_PER_PRINCIPAL_MAX {
        run(&mut state, &refresh("t", &format!("s{n}"), 0, 20));
    }
    run(&mut state, &open("t", "other", "p2", 25));
    run(&mut state, &open("t", "new", "p1", 30));
    let sessions = &state.tenant("t").unwrap().sessions;
    assert!(sessions.get("s0").is_none() && sessions.get("new").is_some());
    assert_eq!(sessions.of("p1").count(), SESSIONS_PER_PRINCIPAL_MAX);
    assert_eq!(revoked(&state), [("session".into(), "s0".into())]);
}

#[test]
fn nobody_signs_in_by_a_provider_or_account_that_is_gone_or_shut_out() {
    let mut state = state();
    run(&mut state, &open("t", "s1", "p1", 10));
    run(&mut state, &open("t", "s2", "sa:bot", 10));
    let removed = Command::RemoveIssuer {
        tenant_id: n("t"),
        issuer: ISSUER.into(),
        now_ms: TimeMs(20),
    };
    run(&mut state, &removed);
    assert!(matches!(
        state.decide(&open("t", "s3", "p1", 30)),
        Err(Refused::Missing(_))
    ));
    run(&mut state, &disable(true));
    assert!(matches!(
        state.decide(&open("t", "s4", "sa:bot", 30)),
        Err(Refused::Conflict(Conflict::AccountDisabled { .. }))
    ));
    assert!(state.tenant("t").unwrap().sessions.is_empty());
    let expected = [
        ("principal".to_owned(), "sa:bot".to_owned()),
        ("issuer".to_owned(), ISSUER.to_owned()),
    ];
    assert_eq!(revoked(&state), expected);
    run(&mut state, &disable(false));
    run(&mut state, &open("t", "s4", "sa:bot", 40));
    let mut foreign = session("s5", "p1", 50);
    foreign.issuer = None;
    foreign.service_account = Some("bot".into());
    let foreign = Command::OpenSession {
        tenant_id: n("t"),
        session: foreign,
        principal: None,
    };
    assert!(matches!(
        state.decide(&foreign),
        Err(Refused::Invalid(Invalid::Contradiction(_)))
    ));
}

#[test]
fn a_deleted_service_account_leaves_nothing_to_one_of_the_same_name() {
    let mut state = state();
    run(&mut state, &open("t", "s1", "sa:bot", 10));
    run(
        &mut state,
        &Command::AddGrouping(n("t"), grouping("sa:bot", "role:r")),
    );
    run(&mut state, &Command::AddPolicy(n("t"), policy("sa:bot")));
    run(&mut state, &Command::AddPolicy(n("t"), policy("role:r")));
    let delete = Command::DeleteServiceAccount {
        tenant_id: n("t"),
        name: "bot".into(),
        now_ms: TimeMs(20),
    };
    run(&mut state, &delete);
    run(&mut state, &account("t", "bot"));
    let entry = state.tenant("t").unwrap();
    assert!(entry.sessions.is_empty() && entry.groupings.is_empty());
    assert_eq!(entry.policies.iter().count(), 1);
    assert!(entry.service_accounts.get("bot").unwrap().keys.is_empty());
    assert_eq!(revoked(&state), [("principal".into(), "sa:bot".into())]);
}

#[test]
fn removing_a_key_of_an_account_ends_what_was_opened_with_it() {
    let mut state = state();
    run(&mut state, &open("t", "s1", "sa:bot", 10));
    let remove = Command::RemoveServiceKey {
        tenant_id: n("t"),
        name: "bot".into(),
        key_id: "k1".into(),
        now_ms: TimeMs(20),
    };
    run(&mut state, &remove);
    assert!(state.tenant("t").unwrap().sessions.is_empty());
    assert_eq!(revoked(&state), [("principal".into(), "sa:bot".into())]);
    assert!(matches!(state.decide(&remove), Err(Refused::Missing(_))));
}

#[test]
fn an_account_has_at_most_eight_keys_of_different_ids() {
    let mut state = state();
    let add = |id: &str| Command::AddServiceKey {
        tenant_id: n("t"),
        name: "bot".into(),
        key: service_key(id),
    };
    assert!(matches!(
        state.decide(&add("k1")),
        Err(Refused::Conflict(Conflict::IdTaken { .. }))
    ));
    for n in 1..KEYS_PER_SERVICE_ACCOUNT_MAX {
        run(&mut state, &add(&format!("more{n}")));
    }
    assert!(matches!(
        state.decide(&add("last")),
        Err(Refused::Conflict(Conflict::Full { limit: 8, .. }))
    ));
}

#[test]
fn taking_a_role_away_takes_back_the_tokens_that_hold_something_by_it() {
    let mut state = state();
    for user in ["p1", "group:x#staff", "role:lead", "lead"] {
        run(
            &mut state,
            &Command::AddGrouping(n("t"), grouping(user, "role:r")),
        );
    }
    run(
        &mut state,
        &Command::AddGrouping(n("t"), grouping("p2", "lead")),
    );
    let remove = |user: &str| Command::RemoveGrouping(n("t"), grouping(user, "role:r"), TimeMs(9));
    let takes_back = |command: &Command| {
        let Ok(Decision::Change(Event::GroupingRemoved { revocations, .. })) =
            state.decide(command)
        else {
            panic!("{command:?}");
        };
        let named = revocations.iter().map(|one| (one.kind, one.id.clone()));
        named.collect::<Vec<_>>()
    };
    let principal = |id: &str| (RevokedKind::Principal, id.to_owned());
    let role = || (RevokedKind::Role, "role:r".to_owned());
    assert_eq!(takes_back(&remove("p1")), [principal("p1")]);
    assert_eq!(takes_back(&remove("group:x#staff")), [role()]);
    assert_eq!(takes_back(&remove("role:lead")), [role()]);
    let reason = "a name that is itself given as a role may be held by anybody";
    assert_eq!(
        takes_back(&remove("lead")),
        [principal("lead"), role()],
        "{reason}"
    );
}

#[test]
fn removing_a_rule_takes_back_the_tokens_of_its_holders() {
    let mut state = state();
    run(&mut state, &Command::AddPolicy(n("t"), policy("role:r")));
    run(&mut state, &Command::AddPolicy(n("t"), policy("p1")));
    run(
        &mut state,
        &Command::RemovePolicy(n("t"), policy("role:r"), TimeMs(5)),
    );
    assert_eq!(revoked(&state), [("role".into(), "role:r".into())]);
    run(
        &mut state,
        &Command::RemovePolicy(n("t"), policy("p1"), TimeMs(6)),
    );
    assert!(revoked(&state).contains(&("principal".into(), "p1".into())));
}

#[test]
fn revoking_a_principal_ends_his_sessions_and_says_how_many() {
    let mut state = state();
    for id in ["s1", "s2"] {
        run(&mut state, &open("t", id, "p1", 10));
    }
    run(&mut state, &open("t", "s3", "p2", 10));
    let event = run(&mut state, &revoke(RevokedKind::Principal, "p1", 20));
    assert!(matches!(
        event,
        Event::Revoked {
            ended_sessions: 2,
            ..
        }
    ));
    let sessions = &state.tenant("t").unwrap().sessions;
    assert_eq!(sessions.iter().count(), 1);
    assert_eq!(sessions.of("p1").count(), 0);
}

#[test]
fn a_revocation_reaches_neither_back_behind_an_earlier_one_nor_far_into_the_future() {
    let mut state = state();
    run(&mut state, &revoke(RevokedKind::Token, "j", 5000));
    let mut earlier = revoke(RevokedKind::Token, "j", 6000);
    if let Command::Revoke { not_before_ms, .. } = &mut earlier {
        *not_before_ms = TimeMs(100);
    }
    run(&mut state, &earlier);
    let held = state.tenant("t").unwrap();
    let held = held.revocations.get(RevokedKind::Token, "j").unwrap();
    assert_eq!(held.not_before_ms, TimeMs(5000 + REVOCATION_REACH_MS));
    let mut future = revoke(RevokedKind::Token, "j", 6000);
    if let Command::Revoke { not_before_ms, .. } = &mut future {
        *not_before_ms = TimeMs(10_000_000);
    }
    assert!(matches!(state.decide(&future), Err(Refused::Invalid(_))));
    assert!(
        matches!(
            state.decide(&revoke(RevokedKind::Tenant, "u", 1)),
            Err(Refused::Invalid(_))
        ),
        "a whole tenant is revoked by its own name only"
    );
}

#[test]
fn a_revocation_of_the_whole_tenant_stands_for_all_that_came_before() {
    let mut state = state();
    run(&mut state, &open("t", "s1", "p1", 10));
    run(&mut state, &revoke(RevokedKind::Token, "j", 5000));
    run(&mut state, &revoke(RevokedKind::Tenant, "t", 5000));
    assert_eq!(revoked(&state), [("tenant".into(), "t".into())]);
    assert!(state.tenant("t").unwrap().sessions.is_empty());
    run(&mut state, &revoke(RevokedKind::Token, "j2", 5001));
    assert_eq!(revoked(&state).len(), 2);
}

#[test]
fn one_revocation_more_than_are_kept_takes_back_the_whole_tenant() {
    let mut state = state();
    let one = |id: usize| RevocationRecord {
        kind: RevokedKind::Token,
        id: id.to_string(),
        not_before_ms: TimeMs(10),
        reason: String::new(),
        at_ms: TimeMs(10),
    };
    state.apply(&Event::Withheld {
        tenant_id: Some(n("t")),
        revocations: (0..REVOCATIONS_PER_TENANT_MAX).map(one).collect(),
    });
    let held = &state.tenant("t").unwrap().revocations;
    assert_eq!(held.len(), REVOCATIONS_PER_TENANT_MAX);
    run(&mut state, &revoke(RevokedKind::Token, "one more", 20));
    let held = &state.tenant("t").unwrap().revocations;
    assert_eq!(held.len(), 1, "it stands for all");
    assert!(held.get(RevokedKind::Tenant, "t").is_some());
}

#[test]
fn a_revocation_is_kept_until_no_token_can_be_older() {
    let mut state = state();
    run(&mut state, &revoke(RevokedKind::Principal, "p1", 1000));
    run(&mut state, &revoke(RevokedKind::Session, "s1", 1000));
    let session_over = 1000 + SESSION_TOKEN_LIFE_MS_MAX + REVOCATION_PRUNE_SLACK_MS;
    run(
        &mut state,
        &revoke(RevokedKind::Token, "a", session_over - 1),
    );
    assert_eq!(revoked(&state).len(), 3);
    run(&mut state, &revoke(RevokedKind::Token, "b", session_over));
    assert!(!revoked(&state).contains(&("session".into(), "s1".into())));
    let all_over = session_over + TOKEN_LIFE_MS_MAX + REVOCATION_PRUNE_SLACK_MS;
    run(&mut state, &revoke(RevokedKind::Token, "c", all_over));
    assert_eq!(revoked(&state), [("token".into(), "c".into())]);
}

#[test]
fn the_smallest_quota_holds() {
    let mut state = state();
    let namespace = NamespaceSpec {
        namespace: n("ns"),
        display_name: None,
    };
    run(&mut state, &Command::CreateNamespace(n("t"), namespace));
    let bytes = |bytes| QuotaLimits {
        publish_bytes_per_second: Some(bytes),
        ..QuotaLimits::default()
    };
    let subscriptions = QuotaLimits {
        subscriptions: Some(7),
        ..bytes(300)
    };
    run(&mut state, &quota(QuotaScope::Tenant, bytes(200)));
    run(
        &mut state,
        &quota(QuotaScope::Namespace(n("ns")), bytes(100)),
    );
    run(
        &mut state,
        &quota(QuotaScope::Principal("p1".into()), subscriptions),
    );
    assert_eq!(state.effective("t", None, None), bytes(200));
    assert_eq!(state.effective("t", Some("ns"), None), bytes(100));
    let everything = state.effective("t", Some("ns"), Some("p1"));
    assert_eq!(everything.publish_bytes_per_second, Some(100));
    assert_eq!(everything.subscriptions, Some(7));
    assert_eq!(
        state.effective("u", None, Some("p1")),
        QuotaLimits::default()
    );
    run(&mut state, &Command::DeleteNamespace(n("t"), n("ns")));
    assert_eq!(
        state.tenant("t").unwrap().quotas.len(),
        2,
        "its quota went with it"
    );
}

#[test]
fn a_quota_that_only_tightens_is_refused_where_it_would_loosen() {
    let mut state = state();
    let tighten = |connections| Command::TightenQuota {
        tenant_id: n("t"),
        limits: QuotaLimits {
            connections: Some(connections),
            ..QuotaLimits::default()
        },
    };
    run(&mut state, &tighten(10));
    run(&mut state, &tighten(9));
    let nothing = Command::TightenQuota {
        tenant_id: n("t"),
        limits: QuotaLimits::default(),
    };
    for loosens in [tighten(10), nothing] {
        let refused = state.decide(&loosens);
        assert!(matches!(refused, Err(Refused::Conflict(_))), "{refused:?}");
    }
}

#[test]
fn an_issuer_that_is_only_added_takes_nobodys_place() {
    let mut state = state();
    for command in beginning("u") {
        run(&mut state, &command);
    }
    let mut other_terms = issuer(ISSUER);
    other_terms.jwks_url = Some("https://elsewhere.example/keys".into());
    let only_u_has = issuer("https://only.example");
    run(&mut state, &Command::SetIssuer(n("u"), only_u_has.clone()));
    for taken in [other_terms, only_u_has] {
        let refused = state.decide(&Command::AddIssuer(n("t"), taken));
        assert!(matches!(refused, Err(Refused::Conflict(_))), "{refused:?}");
    }
    let again = Command::AddIssuer(n("t"), issuer(ISSUER));
    assert_eq!(state.decide(&again), Ok(Decision::Unchanged));
    let new = Command::AddIssuer(n("t"), issuer("https://new.example"));
    run(&mut state, &new);
}

#[test]
fn a_quota_that_means_nothing_is_refused() {
    let state = state();
    let refused = |scope, limits| {
        matches!(
            state.decide(&quota(scope, limits)),
            Err(Refused::Invalid(_) | Refused::Missing(_))
        )
    };
    let connections = QuotaLimits {
        connections: Some(1),
        ..QuotaLimits::default()
    };
    let cache = QuotaLimits {
        cache_bytes: Some(1),
        ..QuotaLimits::default()
    };
    let zero = QuotaLimits {
        subscriptions: Some(0),
        ..QuotaLimits::default()
    };
    assert!(refused(QuotaScope::Tenant, zero));
    assert!(refused(QuotaScope::Namespace(n("ns")), connections));
    assert!(refused(QuotaScope::Namespace(n("missing")), cache));
    assert!(refused(QuotaScope::Principal("p".into()), cache));
    assert!(refused(QuotaScope::Principal(String::new()), connections));
}

#[test]
fn in_an_emergency_one_key_takes_the_place_of_all() {
    let mut state = state();
    run(&mut state, &Command::StageKey(n("t"), verifying("k2")));
    assert!(matches!(
        state.decide(&Command::ReplaceKeys(n("t"), verifying("k2"))),
        Err(Refused::Conflict(Conflict::KeyExists { .. }))
    ));
    run(&mut state, &Command::ReplaceKeys(n("t"), verifying("k3")));
    let entry = state.tenant("t").unwrap();
    assert_eq!(entry.current_key, "k3");
    assert_eq!(entry.keys, [verifying("k3")]);
}

#[test]
fn bodies_about_identity_that_cannot_be_meant_are_refused() {
    let state = state();
    let invalid = |command: Command| matches!(state.decide(&command), Err(Refused::Invalid(_)));
    let set = |change: fn(&mut felix_meta::IssuerRecord)| {
        let mut record = issuer("https://other.example");
        change(&mut record);
        Command::SetIssuer(n("t"), record)
    };
    assert!(invalid(set(|one| one.issuer.push('#'))));
    assert!(invalid(set(|one| one.issuer.push_str("/|a"))));
    assert!(invalid(set(|one| one.audiences.clear())));
    assert!(invalid(set(|one| one.audiences = vec!["a".into(); 17])));
    assert!(invalid(set(|one| one.jwks_url = Some("\u{7}".into()))));
    for name in ["", ".x", "a b", "a/b", "\u{e4}"] {
        assert!(invalid(account("t", name)), "{name}");
    }
    let open_with = |change: fn(&mut felix_meta::SessionRecord)| {
        let mut session = session("s", "p", 1);
        change(&mut session);
        Command::OpenSession {
            tenant_id: n("t"),
            session,
            principal: None,
        }
    };
    assert!(invalid(open_with(|one| one.session_id = "a-b".into())));
    assert!(invalid(open_with(|one| one.secret_sha256 = "ab".into())));
    assert!(invalid(open_with(
        |one| one.groups = vec!["g".repeat(70_000)]
    )));
    assert!(invalid(open_with(
        |one| one.groups = vec![String::new(); 1025]
    )));
    assert!(invalid(open_with(|one| one.expires_at_ms = TimeMs(1))));
    let nothing = Command::Audited {
        tenant_id: None,
        records: vec![],
    };
    assert!(invalid(nothing));
}

#[test]
fn an_audit_chain_shows_every_change_of_what_it_holds() {
    let mut state = state();
    let before = state.chain_of("t");
    let by = By {
        principal: "p:admin".into(),
        tenant: "t".into(),
        from: "192.0.2.9".into(),
        request: "r1".into(),
        ..By::default()
    };
    let mut items = Vec::new();
    let commands = [
        open("t", "s1", "p1", 10),
        refresh("t", "s1", 0, 20),
        quota(
            QuotaScope::Tenant,
            QuotaLimits {
                connections: Some(1),
                ..QuotaLimits::default()
            },
        ),
        quota(
            QuotaScope::Tenant,
            QuotaLimits {
                connections: Some(2),
                ..QuotaLimits::default()
            },
        ),
        Command::Audited {
            tenant_id: Some(n("t")),
            records: vec![refusal()],
        },
    ];
    for command in commands {
        let Ok(Decision::Change(event)) = state.decide(&command) else {
            panic!("{command:?}");
        };
        let entry = state.entry(TimeMs(30), event, Some(by.clone()));
        state.apply_entry(&entry);
        items.push(audit::AuditItem::of_tenant(&entry).unwrap());
    }
    assert_eq!(audit::verify(&before, &items), Ok(state.chain_of("t")));
    assert_eq!(items[3].before["connections"], 1);
    assert_eq!(items[3].after["limits"]["connections"], 2);
    assert_eq!(items[4].what, "refused");
    let text = serde_json::to_string(&items).unwrap();
    assert!(
        !text.contains(&digest(2)) && !text.contains(&digest(3)),
        "no secret's hash is in it"
    );
    let as_answered: Vec<audit::AuditItem> = serde_json::from_str(&text).unwrap();
    assert_eq!(
        audit::verify(&before, &as_answered),
        Ok(state.chain_of("t"))
    );
    let mut left_out = items.clone();
    left_out.remove(2);
    assert!(matches!(
        audit::verify(&before, &left_out),
        Err(audit::ChainBroken::Gap { seq, before, .. }) if seq == before + 2
    ));
    items[1].by.as_mut().unwrap().principal = "p:other".into();
    assert!(matches!(
        audit::verify(&before, &items),
        Err(audit::ChainBroken::Changed { .. })
    ));
}

#[test]
fn a_tenant_made_again_begins_its_own_chain_and_the_clusters_goes_on() {
    let mut state = state();
    let delete = Command::DeleteTenant(n("t"));
    let last = entry(&mut state, &delete, 1).unwrap().unwrap();
    let seq = audit::AuditItem::of_tenant(&last).unwrap().seq;
    assert_eq!(seq, 5, "its end is the last line of its chain");
    let again = Command::CreateTenant(felix_meta::TenantRecord {
        tenant_id: n("t"),
        display_name: String::new(),
    });
    let first = entry(&mut state, &again, 1).unwrap().unwrap();
    assert_eq!(audit::AuditItem::of_tenant(&first).unwrap().seq, 1);
    assert_eq!(audit::AuditItem::of_cluster(&first).unwrap().seq, 6);
}

fn refusal() -> AuditRecord {
    AuditRecord {
        what: "refused".into(),
        principal: String::new(),
        from: "192.0.2.7".into(),
        reason: "unauthorized".into(),
        request: "r2".into(),
        count: 12,
        first_ms: TimeMs(1),
        last_ms: TimeMs(2),
    }
}

fn quota(scope: QuotaScope, limits: QuotaLimits) -> Command {
    Command::SetQuota {
        tenant_id: n("t"),
        scope,
        limits,
    }
}

fn disable(disabled: bool) -> Command {
    Command::DisableServiceAccount {
        tenant_id: n("t"),
        name: "bot".into(),
        disabled,
        now_ms: TimeMs(20),
    }
}

fn revoke(kind: RevokedKind, id: &str, at: u64) -> Command {
    Command::Revoke {
        tenant_id: n("t"),
        kind,
        id: id.into(),
        not_before_ms: TimeMs(at),
        reason: "lost laptop".into(),
        now_ms: TimeMs(at),
    }
}
