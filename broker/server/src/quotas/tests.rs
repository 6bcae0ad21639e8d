use serde_json::{Value, json};

use super::*;

fn used(configured: (u64, u64), quotas: Value) -> Arc<TenantUse> {
    let used = TenantUse::new("t".parse().unwrap(), configured, Instant::now());
    used.set(&serde_json::from_value(quotas).unwrap());
    Arc::new(used)
}

fn by<'a>(namespace: &'a str, principal: &'a Arc<str>) -> User<'a> {
    User {
        namespace,
        principal,
    }
}

/// Whose bound was reached, and which.
fn bound<T: std::fmt::Debug>(judged: Result<T, Exceeded>) -> (QuotaScope, &'static str) {
    match judged {
        Err(Exceeded::Quota { scope, bound, .. }) => (scope, bound),
        other => panic!("not over a quota: {other:?}"),
    }
}

#[test]
fn a_rate_of_each_scope_counts_on_its_own_and_a_refused_write_counts_for_none() {
    let used = used(
        (0, 0),
        json!({
            "tenant": {"publish_bytes_per_second": 1_000_000},
            "namespaces": {"slow": {"publish_records_per_second": 1}},
            "principals": {"p:small": {"publish_bytes_per_second": 10}},
        }),
    );
    let (small, other): (Arc<str>, Arc<str>) = ("p:small".into(), "p:other".into());
    used.write(by("fast", &small), 11, 1).unwrap();
    let of_small = QuotaScope::Principal("p:small".into());
    let refused = used.write(by("slow", &small), 1, 1);
    assert_eq!(bound(refused), (of_small, "publish_bytes_per_second"));
    // What was refused took nothing of the namespace.
    used.write(by("slow", &other), 1, 1).unwrap();
    let of_slow = QuotaScope::Namespace("slow".parse().unwrap());
    let refused = used.write(by("slow", &other), 1, 1);
    assert_eq!(bound(refused), (of_slow, "publish_records_per_second"));
    used.write(by("fast", &other), 1, 1).unwrap();
    assert_eq!(used.listing().refused, 2);
}

#[test]
fn the_brokers_own_rate_is_told_by_its_own_word() {
    let used = used((1, 0), json!({}));
    let somebody: Arc<str> = "p".into();
    used.write(by("n", &somebody), 100, 1).unwrap();
    let refused = Failure::from(used.write(by("n", &somebody), 1, 1).unwrap_err());
    assert_eq!(refused.reason(), Some("tenant_quota"));
    assert!(refused.retry_after_ms() > Some(0));
}

#[test]
fn who_waits_afterwards_is_told_for_how_long_and_is_not_refused_until_he_is_far_ahead() {
    let limits = json!({"tenant": {"publish_bytes_per_second": 1_000}});
    let used = used((0, 0), limits);
    let me: Arc<str> = "p:me".into();
    assert_eq!(used.write_ahead(by("n", &me), 500, 1), Ok(0));
    let owed_ms = used.write_ahead(by("n", &me), 5_500, 1).unwrap();
    assert!((1..=5_001).contains(&owed_ms), "{owed_ms}");
    // Whoever does not wait is refused, and counts for nothing.
    used.write(by("n", &me), 1, 1).unwrap_err();
    let more_ms = used.write_ahead(by("n", &me), 9_000_000, 1).unwrap();
    assert!(more_ms > owed_ms, "{more_ms}");
    let refused = used.write_ahead(by("n", &me), 1, 1);
    assert_eq!(bound(refused).1, "publish_bytes_per_second");
}

#[test]
fn a_rate_of_nothing_lets_nothing_through() {
    let used = used((0, 0), json!({"tenant": {"publish_records_per_second": 0}}));
    let somebody: Arc<str> = "p".into();
    let refused = Failure::from(used.write(by("n", &somebody), 1, 1).unwrap_err());
    assert_eq!(refused.reason(), Some("quota_exceeded"));
}

#[test]
fn subscriptions_and_connections_are_counted_while_they_are_open_also_before_they_are_bounded() {
    let used = used((0, 0), json!({}));
    let (alice, bob): (Arc<str>, Arc<str>) = ("p:alice".into(), "p:bob".into());
    let first = used.open_reader(by("n", &alice)).unwrap();
    let mut connection = used.enter().unwrap();
    connection.speaks_for(&alice).unwrap();
    connection.speaks_for(&alice).unwrap();
    let limits = json!({
        "tenant": {"subscriptions": 2},
        "principals": {"p:alice": {"subscriptions": 1, "connections": 1}},
    });
    used.set(&serde_json::from_value(limits).unwrap());
    let of_alice = QuotaScope::Principal("p:alice".into());
    let refused = used.open_reader(by("n", &alice));
    assert_eq!(bound(refused), (of_alice.clone(), "subscriptions"));
    let second = used.open_reader(by("n", &bob)).unwrap();
    assert_eq!(
        bound(used.open_reader(by("n", &bob))),
        (QuotaScope::Tenant, "subscriptions")
    );
    let mut another = used.enter().unwrap();
    assert_eq!(bound(another.speaks_for(&alice)), (of_alice, "connections"));
    another.speaks_for(&bob).unwrap();
    drop((first, connection));
    another.speaks_for(&alice).unwrap();
    used.open_reader(by("n", &alice)).unwrap();
    drop((second, another));
    let listed = used.listing();
    assert_eq!(
        (listed.all.connections, listed.all.subscriptions),
        (Some(0), 0)
    );
    // Who uses nothing and is bounded by nothing is forgotten.
    let names: Vec<_> = listed
        .principals
        .iter()
        .map(|one| one.name.clone())
        .collect();
    assert_eq!(names, [Some("p:alice".to_owned())]);
}

#[test]
fn caches_take_what_was_measured_and_what_was_written_since_and_deleting_is_always_possible() {
    let used = used((0, 0), json!({"namespaces": {"n": {"cache_bytes": 100}}}));
    let somebody: Arc<str> = "p".into();
    used.write_to_cache(by("n", &somebody), 60, 60).unwrap();
    let refused = used.write_to_cache(by("n", &somebody), 60, 60);
    let of_n = QuotaScope::Namespace("n".parse().unwrap());
    assert_eq!(bound(refused), (of_n, "cache_bytes"));
    used.write_to_cache(by("n", &somebody), 3, 0).unwrap();
    used.write_to_cache(by("other", &somebody), 600, 600)
        .unwrap();
    // What was overwritten or deleted is seen at the next measurement.
    used.measured([("n".to_owned(), 10)].into_iter());
    used.write_to_cache(by("n", &somebody), 60, 60).unwrap();
}
