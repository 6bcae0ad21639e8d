use super::*;

fn members(quiet_until: u64) -> Members {
    Members {
        groups: Mutex::default(),
        quiet_until: TimeMs(quiet_until),
        marker: None,
    }
}

fn ask(members: &Members, now: u64, who: (u64, &str), op: Op) -> Result<Answer, Failure> {
    let name = Name {
        stream: StreamId::new("t", "n", "s").unwrap(),
        incarnation: Incarnation(1),
        group: "g".into(),
    };
    let (connection, member) = who;
    let speaks = Speaks {
        connection,
        // One token for each connection.
        standing: 100 + connection,
    };
    members.turn(TimeMs(now), &name, 4, (speaks, member), op)
}

fn join(held: &[u32]) -> Op {
    Op::Join {
        session_ms: 9_000,
        held: held.to_vec(),
    }
}

fn beat(generation: u64, held: &[u32]) -> Op {
    Op::Heartbeat {
        generation,
        held: held.to_vec(),
    }
}

fn assignment(answer: Result<Answer, Failure>) -> (u64, Vec<u32>, u64) {
    match answer {
        Ok(Answer::Assigned {
            generation,
            assigned,
            heartbeat_ms,
            ..
        }) => (generation, assigned, heartbeat_ms),
        other => panic!("{other:?}"),
    }
}

#[test]
fn members_that_start_together_share_the_shards() {
    let members = members(0);
    let (generation, shards, soon) = assignment(ask(&members, 0, (1, "a"), join(&[])));
    assert_eq!((shards, soon), (vec![], WAITING_BEAT_MS));
    assignment(ask(&members, 10, (2, "b"), join(&[])));
    members.tick(TimeMs(300));
    let (_, first, beat_ms) = assignment(ask(&members, 300, (1, "a"), beat(generation, &[])));
    let (_, second, _) = assignment(ask(&members, 300, (2, "b"), beat(generation, &[])));
    assert_eq!((first, second, beat_ms), (vec![0, 1], vec![2, 3], 3_000));
}

#[test]
fn a_heartbeat_from_another_connection_than_the_joining_is_refused() {
    let members = members(0);
    assignment(ask(&members, 0, (1, "a"), join(&[])));
    let refused = ask(&members, 1, (2, "a"), beat(0, &[])).unwrap_err();
    assert_eq!(refused.reason(), Some("member_replaced"));
    // It joins again, and the former connection is the wrong one.
    assignment(ask(&members, 2, (2, "a"), join(&[])));
    let refused = ask(&members, 3, (1, "a"), beat(0, &[])).unwrap_err();
    assert_eq!(refused.reason(), Some("member_replaced"));
    assert!(ask(&members, 3, (1, "a"), Op::Leave).is_err());
    // A joining that is refused takes nobody's place.
    let short = Op::Join {
        session_ms: 1,
        held: vec![],
    };
    assert!(ask(&members, 4, (3, "a"), short).is_err());
    assignment(ask(&members, 5, (2, "a"), beat(0, &[])));
}

#[test]
fn who_speaks_under_a_revoked_token_is_out_and_others_stay() {
    let members = members(0);
    assignment(ask(&members, 0, (1, "a"), join(&[])));
    assignment(ask(&members, 0, (2, "b"), join(&[])));
    members.expel(TimeMs(1), 101);
    let refused = ask(&members, 2, (1, "a"), beat(0, &[])).unwrap_err();
    assert_eq!(refused.reason(), Some("unknown_member"));
    assignment(ask(&members, 2, (2, "b"), join(&[])));
    members.expel(TimeMs(3), 102);
    assert!(members.lock().by_name.is_empty());
}

#[test]
fn a_member_that_was_silent_for_its_session_is_forgotten_with_its_group() {
    let members = members(0);
    let (generation, ..) = assignment(ask(&members, 0, (1, "a"), join(&[])));
    members.tick(TimeMs(8_999));
    assert_eq!(members.lock().by_name.len(), 1);
    members.tick(TimeMs(9_000));
    assert!(members.lock().by_name.is_empty());
    let refused = ask(&members, 9_001, (1, "a"), beat(generation, &[])).unwrap_err();
    assert_eq!(refused.code(), Some(Code::StaleClaim));
    assert_eq!(refused.reason(), Some("unknown_member"));
    let left = ask(&members, 9_002, (1, "a"), Op::Leave);
    assert_eq!(left.unwrap(), Answer::Left { existed: false });
}

#[test]
fn after_a_restart_a_member_goes_on_and_the_rest_waits_until_nobody_can_be_at_work_unheard() {
    let members = members(9_000);
    let (generation, shards, _) = assignment(ask(&members, 100, (1, "a"), join(&[0, 1])));
    assert_eq!(shards, [0, 1]);
    let (generation, shards, _) =
        assignment(ask(&members, 8_999, (1, "a"), beat(generation, &[0, 1])));
    assert_eq!(shards, [0, 1]);
    let (_, shards, _) = assignment(ask(&members, 9_000, (1, "a"), beat(generation, &[0, 1])));
    assert_eq!(shards, [0, 1, 2, 3]);
}

#[test]
fn joining_and_leaving_over_and_over_leaves_no_shard_alone() {
    let members = members(0);
    let mut now = 0;
    let (mut generation, mut held, _) = assignment(ask(&members, now, (1, "stays"), join(&[])));
    for connection in 2..22 {
        now += 500;
        assignment(ask(&members, now, (connection, "comes"), join(&[])));
        now += 500;
        (generation, held, _) =
            assignment(ask(&members, now, (1, "stays"), beat(generation, &held)));
        (generation, held, _) =
            assignment(ask(&members, now, (1, "stays"), beat(generation, &held)));
        let (_, given, _) = assignment(ask(&members, now, (connection, "comes"), beat(0, &[])));
        let mut all = [held.clone(), given].concat();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3]);
        assert_eq!(held.len(), 2);
        ask(&members, now, (connection, "comes"), Op::Leave).unwrap();
        (generation, held, _) =
            assignment(ask(&members, now, (1, "stays"), beat(generation, &held)));
        assert_eq!(held, [0, 1, 2, 3]);
    }
}

#[tokio::test]
async fn the_marker_says_less_once_the_members_with_long_sessions_are_gone_and_not_while_they_may_be()
 {
    use felix_journal::SimDisk;

    let disk = Arc::new(SimDisk::new(1));
    let path = PathBuf::from("/members");
    let marker = Marker {
        disk: disk.clone(),
        path: path.clone(),
        longest: tokio::sync::Mutex::new(0),
        look_at: AtomicU64::new(0),
    };
    let members = Members {
        marker: Some(marker),
        ..members(0)
    };
    let said = || durable::read(disk.as_ref(), &path).unwrap().unwrap();
    let remembered = members.remember(300_000).await.unwrap();
    // Somebody is joining.
    members.tick(TimeMs(0));
    assert_eq!(said(), b"300000");
    drop(remembered);
    drop(members.remember(9_000).await.unwrap());
    assignment(ask(&members, 0, (1, "a"), join(&[])));
    members.tick(TimeMs(1));
    assert_eq!(said(), b"9000");
    // It is gone, and that is looked at once in a while.
    members.tick(TimeMs(10_000));
    assert_eq!(said(), b"9000");
    members.tick(TimeMs(1 + LOWER_EVERY_MS));
    assert_eq!(said(), b"0");
}
