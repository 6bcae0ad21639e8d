//! Templates of namespaces and the rooms that are opened by them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use felix_meta::{
    CacheSpec, Catalogue, Command, Conflict, Decision, Entry, Event, Invalid, NamespaceSpec,
    Refused, StreamSpec, TemplateRecord, TemplateSpec, TenantRecord, changes,
};
use felix_model::TimeMs;

#[test]
fn a_room_is_made_whole_in_one_event_and_once() {
    let mut state = with_template(2);
    let event = run(&mut state, &open("plans"));
    let Event::RoomOpened {
        streams, caches, ..
    } = &event
    else {
        panic!("{event:?}");
    };
    let names: Vec<&str> = streams.iter().map(|one| one.stream.as_str()).collect();
    assert_eq!(names, ["board-plans-edits", "board-plans-cursors"]);
    assert_eq!(caches.len(), 1);
    assert!(
        state
            .stream("t", "ns", "board-plans-cursors")
            .is_some_and(|one| !one.durable)
    );
    assert_eq!(state.decide(&open("plans")), Ok(Decision::Unchanged));
}

#[test]
fn the_feeds_tell_of_a_room_what_they_tell_of_a_batch() {
    let mut state = with_template(2);
    let Ok(Decision::Change(event)) = state.decide(&open("a")) else {
        panic!("refused");
    };
    assert_eq!(changes(&state, &event).len(), 3);
    let before = state.sequences();
    state.apply(&event);
    assert_eq!(state.sequences().streams, before.streams + 2);
    assert_eq!(state.sequences().caches, before.caches + 1);
}

#[test]
fn what_is_missing_of_a_room_is_made_and_what_somebody_changed_stays() {
    let mut state = with_template(2);
    run(&mut state, &open("a"));
    let stream = state
        .stream("t", "ns", "board-a-edits")
        .unwrap()
        .incarnation;
    run(
        &mut state,
        &Command::DeleteCache(n("t"), n("ns"), n("board-a-presence")),
    );
    let patch = felix_meta::StreamPatch {
        max_record_bytes: Some(2048),
        ..Default::default()
    };
    run(
        &mut state,
        &Command::UpdateStream(n("t"), n("ns"), n("board-a-edits"), patch),
    );
    let Event::RoomOpened {
        streams, caches, ..
    } = run(&mut state, &open("a"))
    else {
        panic!("another event");
    };
    assert_eq!((streams.len(), caches.len()), (0, 1));
    let kept = state.stream("t", "ns", "board-a-edits").unwrap();
    assert_eq!((kept.incarnation, kept.max_record_bytes), (stream, 2048));
}

#[test]
fn there_are_no_more_rooms_than_the_template_allows_and_an_empty_one_makes_room() {
    let mut state = with_template(2);
    run(&mut state, &open("a"));
    run(&mut state, &open("b"));
    let full = Conflict::Full {
        what: "rooms of this template",
        limit: 2,
    };
    assert_eq!(state.decide(&open("c")), Err(Refused::Conflict(full)));
    run(
        &mut state,
        &Command::DeleteStream(n("t"), n("ns"), n("board-a-edits")),
    );
    run(
        &mut state,
        &Command::DeleteStream(n("t"), n("ns"), n("board-a-cursors")),
    );
    assert!(state.decide(&open("c")).is_err(), "a cache of it is left");
    run(
        &mut state,
        &Command::DeleteCache(n("t"), n("ns"), n("board-a-presence")),
    );
    run(&mut state, &open("c"));
}

#[test]
fn names_that_two_rooms_could_share_are_refused() {
    let state = with_template(2);
    let set = |template: &str, spec: TemplateSpec| {
        let record = spec.named(n("t"), n("ns"), template.into());
        state.decide(&Command::SetTemplate(record))
    };
    let mut dashed = spec(2);
    dashed.streams = vec![StreamSpec::new(n("x-edits"))];
    assert!(matches!(
        set("board", dashed),
        Err(Refused::Invalid(Invalid::Contradiction(_)))
    ));
    for prefix in ["board-x-", "boa", "board-"] {
        let refused = set(
            "other",
            TemplateSpec {
                prefix: prefix.into(),
                ..spec(2)
            },
        );
        let Err(Refused::Conflict(Conflict::PrefixTaken { template, .. })) = refused else {
            panic!("{prefix}: {refused:?}");
        };
        assert_eq!(template, "board");
    }
    let twice = vec![StreamSpec::new(n("a")), StreamSpec::new(n("a"))];
    let refused = set(
        "board",
        TemplateSpec {
            streams: twice,
            ..spec(2)
        },
    );
    assert!(matches!(
        refused,
        Err(Refused::Invalid(Invalid::NamedTwice { .. }))
    ));
}

#[test]
fn a_template_is_bounded_and_so_is_a_scope() {
    let state = with_template(2);
    let invalid = |spec: TemplateSpec| {
        let record = spec.named(n("t"), n("ns"), "board".into());
        let refused = state.decide(&Command::SetTemplate(record));
        assert!(matches!(refused, Err(Refused::Invalid(_))), "{refused:?}");
    };
    invalid(TemplateSpec {
        streams: vec![],
        caches: vec![],
        ..spec(2)
    });
    let many = (0..33).map(|number| StreamSpec::new(n(&format!("s{number}"))));
    invalid(TemplateSpec {
        streams: many.collect(),
        ..spec(2)
    });
    invalid(TemplateSpec {
        prefix: "p".repeat(60),
        ..spec(2)
    });
    invalid(TemplateSpec {
        prefix: "_x".into(),
        ..spec(2)
    });
    invalid(spec(0));
    invalid(spec(10_001));
    for scope in ["", "a/b", "a.b", "ä", &"s".repeat(65)] {
        let refused = state.decide(&open(scope));
        assert!(
            matches!(refused, Err(Refused::Invalid(_))),
            "{scope:?}: {refused:?}"
        );
    }
    let longest = "s".repeat(64);
    assert!(state.decide(&open(&longest)).is_ok());
}

#[test]
fn a_prefix_stays_while_there_are_rooms_and_other_settings_may_change() {
    let mut state = with_template(2);
    run(&mut state, &open("a"));
    let moved = TemplateSpec {
        prefix: "desk-".into(),
        ..spec(2)
    };
    let refused = state.decide(&set(moved));
    let rooms = Conflict::RoomsExist {
        template: "board".into(),
        rooms: 1,
    };
    assert_eq!(refused, Err(Refused::Conflict(rooms)));
    let mut wider = spec(3);
    wider.caches.push(CacheSpec::new(n("snapshot")));
    run(&mut state, &set(wider));
    let Event::RoomOpened {
        streams, caches, ..
    } = run(&mut state, &open("a"))
    else {
        panic!("another event");
    };
    assert_eq!(
        (streams.len(), caches.len()),
        (0, 1),
        "the room gets what is new"
    );
}

#[test]
fn templates_fold_from_their_entries_and_read_back_from_a_snapshot() {
    let mut state = Catalogue::default();
    let mut folded = Catalogue::default();
    let commands = beginning(2)
        .into_iter()
        .chain([
            open("a"),
            open("b"),
            Command::DeleteCache(n("t"), n("ns"), n("board-a-presence")),
        ])
        .chain([Command::RemoveTemplate {
            tenant_id: n("t"),
            namespace: n("ns"),
            template: "board".into(),
        }]);
    for command in commands {
        let Ok(Decision::Change(event)) = state.decide(&command) else {
            panic!("{command:?}");
        };
        let entry = state.entry(TimeMs(1), event, None);
        state.apply_entry(&entry);
        let json = serde_json::to_value(&entry).unwrap();
        assert!(json["audit"]["cluster"].is_object());
        folded.apply_entry(&Entry::from_json(&json).unwrap());
        let snapshot = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<Catalogue>(&snapshot).unwrap(), state);
    }
    assert_eq!(folded, state);
    assert!(
        state.stream("t", "ns", "board-b-edits").is_some(),
        "rooms stay"
    );
    assert!(matches!(state.decide(&open("c")), Err(Refused::Missing(_))));
}

fn n<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

fn spec(rooms_max: u32) -> TemplateSpec {
    let cursors = StreamSpec {
        durable: false,
        ..StreamSpec::new(n("cursors"))
    };
    TemplateSpec {
        prefix: "board-".into(),
        streams: vec![StreamSpec::new(n("edits")), cursors],
        caches: vec![CacheSpec::new(n("presence"))],
        rooms_max: Some(rooms_max),
    }
}

fn set(spec: TemplateSpec) -> Command {
    let record: TemplateRecord = spec.named(n("t"), n("ns"), "board".into());
    Command::SetTemplate(record)
}

fn open(scope: &str) -> Command {
    Command::OpenRoom {
        tenant_id: n("t"),
        namespace: n("ns"),
        template: "board".into(),
        scope: scope.into(),
    }
}

fn beginning(rooms_max: u32) -> Vec<Command> {
    let namespace = NamespaceSpec {
        namespace: n("ns"),
        display_name: None,
    };
    let tenant = TenantRecord {
        tenant_id: n("t"),
        display_name: String::new(),
    };
    vec![
        Command::CreateTenant(tenant),
        Command::CreateNamespace(n("t"), namespace),
        set(spec(rooms_max)),
    ]
}

fn with_template(rooms_max: u32) -> Catalogue {
    let mut state = Catalogue::default();
    for command in beginning(rooms_max) {
        run(&mut state, &command);
    }
    state
}

fn run(state: &mut Catalogue, command: &Command) -> Event {
    let decided = state.decide(command);
    let Ok(Decision::Change(event)) = decided else {
        panic!("{command:?}: {decided:?}");
    };
    state.apply(&event);
    event
}
