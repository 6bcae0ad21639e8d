//! The catalogue from outside: commands in, events out, states folded.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use felix_meta::{
    CacheSpec, Catalogue, Command, Conflict, Decision, ENTRY_VERSION, Entry, EntryRefused, Event,
    Grouping, Invalid, NamespaceSpec, Overflow, Policy, Refused, Retention, Revision, StreamPatch,
    StreamSpec, SyncMode, TenantRecord, VerifyingKey, changes,
};
use felix_model::{Routing, TimeMs};
use proptest::prelude::*;
use proptest::sample::select;

#[test]
fn a_create_of_what_is_there_as_asked_is_unchanged_and_of_anything_else_a_conflict() {
    let state = with_stream();
    assert_eq!(
        state.decide(&create_stream(spec("s"))),
        Ok(Decision::Unchanged)
    );
    let other = |change: fn(&mut StreamSpec)| {
        let mut spec = spec("s");
        change(&mut spec);
        state.decide(&create_stream(spec)).unwrap_err()
    };
    let different = Refused::Conflict(Conflict::Different {
        names: vec!["stream `s`".into()],
    });
    assert_eq!(other(|spec| spec.shards = 2), different);
    assert_eq!(other(|spec| spec.durable = false), different);
    assert_eq!(
        other(|spec| spec.routing = Some(Routing::Murmur2)),
        different
    );
    assert_eq!(
        other(|spec| spec.sync = Some(SyncMode::OnCommit)),
        different
    );
    assert_eq!(
        other(|spec| spec.retention.max_age_seconds = Some(1)),
        different
    );
}

#[test]
fn settings_that_a_create_does_not_name_are_not_compared() {
    let mut state = with_namespace();
    let mut named = spec("s");
    named.routing = Some(Routing::Murmur2);
    named.sync = Some(SyncMode::OnCommit);
    named.overflow = Some(Overflow::Block);
    named.max_record_bytes = Some(1000);
    run(&mut state, create_stream(named));
    assert_eq!(
        state.decide(&create_stream(spec("s"))),
        Ok(Decision::Unchanged)
    );
}

#[test]
fn a_tenant_is_never_made_twice_but_a_namespace_may_be() {
    let state = with_namespace();
    assert!(matches!(
        state.decide(&tenant("t")),
        Err(Refused::Conflict(Conflict::TenantExists { .. }))
    ));
    assert_eq!(state.decide(&namespace("t", "ns")), Ok(Decision::Unchanged));
}

#[test]
fn what_is_missing_is_named_from_the_outside_in() {
    let state = with_stream();
    let missing = |tenant: &str, space: &str, stream: &str| {
        state
            .find_stream(tenant, space, stream)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(missing("x", "ns", "s"), "no tenant `x`");
    assert_eq!(missing("t", "x", "s"), "no namespace `x`");
    assert_eq!(missing("t", "ns", "x"), "no stream `x`");
    assert_eq!(state.close_streams("t", "ns", "S1", |_| true), ["s"]);
}

#[test]
fn bodies_that_cannot_be_meant_are_refused() {
    let state = with_namespace();
    let refused = |change: fn(&mut StreamSpec)| {
        let mut spec = spec("s");
        change(&mut spec);
        matches!(state.decide(&create_stream(spec)), Err(Refused::Invalid(_)))
    };
    assert!(refused(|spec| spec.shards = 0));
    assert!(refused(|spec| spec.shards = 1 << 20));
    assert!(refused(|spec| spec.replication_factor = 0));
    assert!(refused(|spec| spec.replication_factor = 3));
    assert!(refused(|spec| spec.retention.max_age_seconds = Some(0)));
    assert!(refused(|spec| spec.retention.max_size_bytes = Some(0)));
    assert!(refused(|spec| spec.region = Some(String::new())));
    assert!(refused(|spec| spec.max_record_bytes = Some(0)));
    assert!(refused(|spec| spec.max_record_bytes = Some(17 << 20)));
    let twice = batch(vec![spec("s"), spec("s")], vec![]);
    let named_twice = Invalid::NamedTwice { name: "s".into() };
    assert_eq!(state.decide(&twice), Err(named_twice.into()));
    assert!(matches!(
        state.decide(&batch(vec![], vec![])),
        Err(Refused::Invalid(_))
    ));
    let many = (0..257).map(|n| spec(&format!("s{n}"))).collect();
    assert!(matches!(
        state.decide(&batch(many, vec![])),
        Err(Refused::Invalid(_))
    ));
}

#[test]
fn a_misspelt_field_of_a_body_is_an_error() {
    let body = r#"{"stream":"s","kind":"Stream","shards":1,"retention":{},"consistency":"Leader",
        "delivery":"AtLeastOnce","durable":true,"max_record_byte":5}"#;
    let refused = serde_json::from_str::<StreamSpec>(body)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("max_record_byte"), "{refused}");
    assert!(serde_json::from_str::<StreamPatch>(r#"{"shards":3}"#).is_err());
    assert!(serde_json::from_str::<Retention>(r#"{"max_age":3}"#).is_err());
}

#[test]
fn a_stream_shows_the_published_fields_in_the_published_spelling() {
    let state = with_stream();
    let stream = state.stream("t", "ns", "s").unwrap();
    let json = serde_json::to_value(stream).unwrap();
    assert_eq!(json["kind"], "Stream");
    assert_eq!(json["consistency"], "Leader");
    assert_eq!(json["delivery"], "AtLeastOnce");
    assert_eq!(
        json["retention"],
        serde_json::json!({"max_age_seconds": null, "max_size_bytes": null})
    );
    assert_eq!(json["sync"], "periodic");
    assert!(json.get("routing").is_none() && json.get("region").is_none());
}

#[test]
fn a_batch_makes_all_or_nothing() {
    let mut state = with_stream();
    let mut conflicting = spec("s");
    conflicting.shards = 4;
    let refused = state.decide(&batch(vec![spec("new"), conflicting], vec![cache("c")]));
    assert!(matches!(
        refused,
        Err(Refused::Conflict(Conflict::Different { .. }))
    ));
    let decided = state
        .decide(&batch(vec![spec("new"), spec("s")], vec![cache("c")]))
        .unwrap();
    let Decision::Change(event) = decided else {
        panic!("nothing to do")
    };
    state.apply(&event);
    let Event::ResourcesCreated { streams, caches } = event else {
        panic!("{event:?}")
    };
    assert_eq!((streams.len(), caches.len()), (1, 1));
    assert!(state.stream("t", "ns", "new").is_some() && state.cache("t", "ns", "c").is_some());
}

#[test]
fn a_name_made_again_is_another_incarnation() {
    let mut state = with_stream();
    let first = state.stream("t", "ns", "s").unwrap().incarnation;
    run(&mut state, Command::DeleteStream(n("t"), n("ns"), n("s")));
    run(&mut state, create_stream(spec("s")));
    let second = state.stream("t", "ns", "s").unwrap().incarnation;
    assert!(second > first);
}

#[test]
fn a_patch_replaces_retention_whole_and_leaves_the_rest() {
    let mut state = with_namespace();
    let mut named = spec("s");
    named.retention = Retention {
        max_age_seconds: Some(5),
        max_size_bytes: Some(6),
    };
    run(&mut state, create_stream(named));
    let retention = Retention {
        max_age_seconds: Some(7),
        max_size_bytes: None,
    };
    let patch = StreamPatch {
        retention: Some(retention),
        ..StreamPatch::default()
    };
    run(
        &mut state,
        Command::UpdateStream(n("t"), n("ns"), n("s"), patch.clone()),
    );
    let stream = state.stream("t", "ns", "s").unwrap();
    assert_eq!((stream.retention, stream.durable), (retention, true));
    let again = Command::UpdateStream(n("t"), n("ns"), n("s"), patch);
    assert_eq!(state.decide(&again), Ok(Decision::Unchanged));
}

#[test]
fn a_key_is_staged_then_activated_then_the_old_one_retired() {
    let mut state = with_namespace();
    let kids = |state: &Catalogue| {
        let entry = state.tenant("t").unwrap();
        let all: Vec<String> = entry.keys.iter().map(|key| key.kid.clone()).collect();
        (entry.current_key.clone(), all)
    };
    assert_eq!(kids(&state), ("k1".into(), vec!["k1".into()]));
    run(&mut state, Command::StageKey(n("t"), key("k2")));
    let current = Command::RetireKey(n("t"), "k1".into());
    let is_current = Conflict::KeyIsCurrent { kid: "k1".into() };
    assert_eq!(state.decide(&current), Err(is_current.into()));
    run(&mut state, Command::ActivateKey(n("t"), "k2".into()));
    run(&mut state, Command::RetireKey(n("t"), "k1".into()));
    assert_eq!(kids(&state), ("k2".into(), vec!["k2".into()]));
    let unknown = Command::ActivateKey(n("t"), "k1".into());
    assert!(matches!(state.decide(&unknown), Err(Refused::Missing(_))));
}

#[test]
fn a_tenant_is_initialized_exactly_once() {
    let state = with_namespace();
    let again = initialize("t");
    assert!(matches!(
        state.decide(&again),
        Err(Refused::Conflict(Conflict::AlreadyInitialized { .. }))
    ));
}

#[test]
fn what_goes_takes_what_it_owned_with_it_and_the_feeds_say_so() {
    let mut state = with_stream();
    run(&mut state, batch(vec![], vec![cache("c")]));
    let Ok(Decision::Change(event)) = state.decide(&Command::DeleteTenant(n("t"))) else {
        panic!("refused");
    };
    assert_eq!(
        changes(&state, &event).len(),
        4,
        "stream, cache, namespace and tenant"
    );
    let before = state.sequences();
    state.apply(&event);
    let after = state.sequences();
    assert_eq!(after.streams, before.streams + 1);
    assert_eq!(after.tenants, before.tenants + 1);
    assert_eq!(state.tenants().count(), 0);
}

#[test]
fn an_entry_of_a_newer_form_is_refused_before_it_is_read() {
    let json = serde_json::json!({"version": ENTRY_VERSION + 1, "something": "else"});
    let too_new = EntryRefused::TooNew {
        found: ENTRY_VERSION + 1,
        newest: ENTRY_VERSION,
    };
    assert_eq!(Entry::from_json(&json), Err(too_new));
    let nonsense = serde_json::json!({"version": 1});
    assert!(matches!(
        Entry::from_json(&nonsense),
        Err(EntryRefused::Malformed(_))
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn apply_never_refuses_what_decide_allowed(
        commands in prop::collection::vec(command(), 1..60),
    ) {
        let mut state = Catalogue::default();
        let mut log = Vec::new();
        for command in commands {
            let before = state.clone();
            match state.decide(&command) {
                Ok(Decision::Change(event)) => {
                    let rows = changes(&state, &event).len() as u64;
                    state.apply(&event);
                    prop_assert_eq!(state.revision(), before.revision().next());
                    let count = |state: &Catalogue| {
                        let all = state.sequences();
                        all.tenants + all.namespaces + all.streams + all.caches
                    };
                    prop_assert_eq!(count(&state), count(&before) + rows);
                    // What was decided took effect: asked again, there is nothing more to do or nothing there any more.
                    prop_assert!(
                        !matches!(state.decide(&command), Ok(Decision::Change(_))),
                        "{:?} still wants a change", command
                    );
                    log.push(Entry::new(state.revision(), TimeMs(0), event));
                }
                Ok(Decision::Unchanged) | Err(_) => prop_assert_eq!(&state, &before),
            }
        }
        let json = serde_json::to_string(&state).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Catalogue>(&json).unwrap(), &state, "snapshot");
        let mut folded = Catalogue::default();
        for entry in &log {
            let json = serde_json::to_value(entry).unwrap();
            folded.apply(&Entry::from_json(&json).unwrap().event);
        }
        prop_assert_eq!(&folded, &state, "the same events make the same state");
        prop_assert_eq!(folded.revision(), Revision(log.len() as u64));
    }
}

fn command() -> impl Strategy<Value = Command> {
    let t = || select(vec!["t", "u"]);
    let s = || select(vec!["a", "b", "c"]);
    let k = || select(vec!["k1", "k2", "k3"]);
    prop_oneof![
        t().prop_map(tenant),
        t().prop_map(initialize),
        t().prop_map(|t| Command::DeleteTenant(n(t))),
        (t(), s()).prop_map(|(t, s)| namespace(t, s)),
        (t(), s()).prop_map(|(t, s)| Command::DeleteNamespace(n(t), n(s))),
        (t(), s(), s(), 1..3_u32).prop_map(|(t, space, name, shards)| {
            let mut stream = spec(name);
            stream.shards = shards;
            let (streams, caches) = (vec![stream], vec![cache(name)]);
            Command::CreateResources {
                tenant_id: n(t),
                namespace: n(space),
                streams,
                caches,
            }
        }),
        (t(), s(), s(), any::<bool>()).prop_map(|(t, space, name, durable)| {
            let patch = StreamPatch {
                durable: Some(durable),
                ..StreamPatch::default()
            };
            Command::UpdateStream(n(t), n(space), n(name), patch)
        }),
        (t(), s(), s())
            .prop_map(|(t, space, name)| { Command::DeleteStream(n(t), n(space), n(name)) }),
        (t(), s(), s()).prop_map(|(t, space, name)| Command::DeleteCache(n(t), n(space), n(name))),
        (t(), k()).prop_map(|(t, k)| Command::StageKey(n(t), key(k))),
        (t(), k()).prop_map(|(t, k)| Command::ActivateKey(n(t), k.into())),
        (t(), k()).prop_map(|(t, k)| Command::RetireKey(n(t), k.into())),
        (t(), s()).prop_map(|(t, s)| Command::AddPolicy(n(t), policy(s))),
        (t(), s()).prop_map(|(t, s)| Command::RemovePolicy(n(t), policy(s), TimeMs(1))),
        (t(), s()).prop_map(|(t, s)| Command::AddGrouping(n(t), grouping(s))),
        (t(), s()).prop_map(|(t, s)| Command::RemoveGrouping(n(t), grouping(s), TimeMs(1))),
    ]
}

fn with_namespace() -> Catalogue {
    let mut state = Catalogue::default();
    run(&mut state, initialize("t"));
    run(&mut state, namespace("t", "ns"));
    state
}

fn with_stream() -> Catalogue {
    let mut state = with_namespace();
    run(&mut state, create_stream(spec("s")));
    state
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "every caller has just made it"
)]
fn run(state: &mut Catalogue, command: Command) {
    match state.decide(&command) {
        Ok(Decision::Change(event)) => state.apply(&event),
        other => panic!("{command:?}: {other:?}"),
    }
}

/// A name of whatever kind is wanted.
fn n<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

fn spec(name: &str) -> StreamSpec {
    StreamSpec::new(n(name))
}

fn cache(name: &str) -> CacheSpec {
    CacheSpec::new(n(name))
}

fn create_stream(spec: StreamSpec) -> Command {
    batch(vec![spec], vec![])
}

fn batch(streams: Vec<StreamSpec>, caches: Vec<CacheSpec>) -> Command {
    Command::CreateResources {
        tenant_id: n("t"),
        namespace: n("ns"),
        streams,
        caches,
    }
}

fn tenant(name: &str) -> Command {
    Command::CreateTenant(TenantRecord {
        tenant_id: n(name),
        display_name: name.into(),
    })
}

fn initialize(name: &str) -> Command {
    Command::InitializeTenant {
        tenant: TenantRecord {
            tenant_id: n(name),
            display_name: name.into(),
        },
        key: key("k1"),
        policies: vec![policy("a")],
        groupings: vec![grouping("a")],
        issuers: vec![],
    }
}

fn namespace(tenant: &str, name: &str) -> Command {
    Command::CreateNamespace(
        n(tenant),
        NamespaceSpec {
            namespace: n(name),
            display_name: None,
        },
    )
}

fn key(kid: &str) -> VerifyingKey {
    VerifyingKey {
        kid: kid.into(),
        x: "x".into(),
    }
}

fn policy(subject: &str) -> Policy {
    Policy {
        subject: subject.into(),
        object: "tenant:t".into(),
        action: "rbac.view".into(),
    }
}

fn grouping(user: &str) -> Grouping {
    Grouping {
        user: user.into(),
        role: "role:r".into(),
    }
}
