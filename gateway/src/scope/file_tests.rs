use super::*;

const BOARD: &str = r#"
    [scope]
    field = "board"
    [[scope.streams]]
    alias = "edits"
    name = "board-{scope}-edits"
    actions = ["publish", "subscribe"]
    writes_per_s = 20
    [[scope.caches]]
    alias = "presence"
    name = "board-{scope}-presence"
    actions = ["read", "write", "watch"]
    ttl_s = 15
    optional = true
    [[scope.counters]]
    alias = "seq"
    name = "board-{scope}-seq"
    actions = ["add"]
"#;

fn refused(from: &str, to: &str) -> String {
    assert!(BOARD.contains(from), "{from}");
    Scope::parse(&BOARD.replacen(from, to, 1))
        .unwrap_err()
        .to_string()
}

#[test]
fn a_whole_file_is_taken_with_its_defaults() {
    let scope = Scope::parse(BOARD).unwrap();
    assert_eq!(scope.streams[0].resource.name_in("b7"), "board-b7-edits");
    assert_eq!(scope.caches[0].ttl, Some(Duration::from_secs(15)));
    assert!(!scope.allow_throttle);
    let limits = &scope.limits;
    assert_eq!(
        (limits.sessions_per_principal, limits.sessions_per_ip),
        (8, 32)
    );
    let writes = limits.session.writes.unwrap();
    assert_eq!((writes.per_second, writes.burst), (50, 100));
    let bytes = limits.principal.bytes.unwrap();
    assert_eq!((bytes.per_second, bytes.burst), (524_288, 2_097_152));
    let alias = scope.streams[0].resource.rate.writes.unwrap();
    assert_eq!((alias.per_second, alias.burst), (20, 20));
    assert_eq!(
        scope.message_bytes_max(),
        65536usize.div_ceil(3) * 4 + 16384
    );
}

#[test]
fn every_rule_that_is_broken_is_told_with_its_key() {
    for (from, to, key) in [
        ("field = \"board\"", "field = \"token\"", "scope.field"),
        ("field = \"board\"", "field = \"a b\"", "scope.field"),
        ("field = \"board\"", "feild = \"board\"", "feild"),
        (
            "alias = \"edits\"",
            "alias = \"\"",
            "scope.streams[0].alias",
        ),
        ("board-{scope}-edits", "edits", "scope.streams[0].name"),
        ("board-{scope}-edits", "a/{scope}", "scope.streams[0].name"),
        (
            "\"publish\", \"subscribe\"",
            "\"read\"",
            "scope.streams[0].actions",
        ),
        (
            "\"publish\", \"subscribe\"",
            "\"publish\", \"publish\"",
            "scope.streams[0].actions",
        ),
        ("\"publish\", \"subscribe\"", "", "scope.streams[0].actions"),
        ("writes_per_s = 20", "ttl_s = 3", "scope.streams[0].ttl_s"),
        (
            "writes_per_s = 20",
            "write_burst = 3",
            "scope.streams[0].write_burst",
        ),
        (
            "writes_per_s = 20",
            "max_payload_bytes = 0",
            "scope.streams[0].max_payload_bytes",
        ),
        ("ttl_s = 15", "ttl_s = 0", "scope.caches[0].ttl_s"),
        (
            "ttl_s = 15",
            "stamp_sender = true",
            "scope.caches[0].stamp_sender",
        ),
        ("ttl_s = 15", "shared = true", "scope.caches[0].name"),
        (
            "[\"add\"]",
            "[\"add\", \"get\"]",
            "scope.counters[0].actions",
        ),
        (
            "[\"add\"]",
            "[\"add\"]\nmax_payload_bytes = 3",
            "scope.counters[0].max_payload_bytes",
        ),
        (
            "[\"add\"]",
            "[\"add\"]\n[limits]\nmax_payload_bytes = 3000000",
            "limits.session.byte_burst",
        ),
        (
            "[\"add\"]",
            "[\"add\"]\n[limits.session]\nwrites = 3",
            "writes",
        ),
    ] {
        let text = refused(from, to);
        assert!(text.contains(key), "{to}: {text}");
    }
}

#[test]
fn an_alias_is_told_apart_within_its_kind_only() {
    let same_kind = BOARD.replacen(
        "[[scope.caches]]",
        "[[scope.streams]]\nalias='edits'\nname='x-{scope}'\nactions=['publish']\n[[scope.caches]]",
        1,
    );
    let text = Scope::parse(&same_kind).unwrap_err().to_string();
    assert!(text.starts_with("scope.streams[1].alias"), "{text}");
    assert!(Scope::parse(&BOARD.replacen("\"presence\"", "\"edits\"", 1)).is_ok());
}

#[test]
fn a_rate_of_zero_is_no_limit() {
    let open = format!("{BOARD}\n[limits.session]\nwrites_per_s = 0\nbytes_per_s = 0");
    let limits = Scope::parse(&open).unwrap().limits;
    assert_eq!((limits.session.writes, limits.session.bytes), (None, None));
    assert!(limits.principal.writes.is_some());
}
