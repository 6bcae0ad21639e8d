//! How far revocations reach.

use felix_meta::limits::{REVOCATION_REACH_MS, REVOCATION_REACH_MS_MAX};
use felix_meta::{Catalogue, Command, RevokedKind};
use felix_model::TimeMs;

use super::common::{ISSUER, grouping, n, open, policy, run, state};

#[test]
fn whatever_takes_back_reaches_past_what_is_minted_meanwhile_on_what_was_known_before() {
    let mut state = state();
    run(&mut state, &open("t", "s1", "p1", 10));
    run(&mut state, &Command::AddPolicy(n("t"), policy("role:r")));
    let gift = grouping("p1", "role:r");
    run(&mut state, &Command::AddGrouping(n("t"), gift.clone()));
    let mut at = 1_000_000;
    for command in [
        end("s1"),
        Command::RemoveGrouping(n("t"), gift, TimeMs(1)),
        Command::RemovePolicy(n("t"), policy("role:r"), TimeMs(1)),
        Command::RemoveServiceKey {
            tenant_id: n("t"),
            name: "bot".into(),
            key_id: "k1".into(),
            now_ms: TimeMs(1),
        },
        Command::DeleteServiceAccount {
            tenant_id: n("t"),
            name: "bot".into(),
            now_ms: TimeMs(1),
        },
        revoke("p2"),
        Command::RemoveIssuer {
            tenant_id: n("t"),
            issuer: ISSUER.into(),
            now_ms: TimeMs(1),
        },
    ] {
        at += 60_000;
        run(&mut state, &dated(command.clone(), at));
        let reached = state.tenant("t").unwrap().revocations.latest();
        assert_eq!(reached, TimeMs(at + REVOCATION_REACH_MS), "{command:?}");
    }
}

#[test]
fn of_two_revocations_at_one_moment_the_second_covers_what_was_minted_after_the_first() {
    let mut state = state();
    run(&mut state, &dated(revoke("p1"), 1_000_000));
    // Whoever follows the first is dated right after it.
    let minted = TimeMs(latest(&state).0 + 1);
    run(&mut state, &dated(revoke("p2"), 1_000_000));
    let held = state.tenant("t").unwrap();
    let second = held.revocations.get(RevokedKind::Principal, "p2").unwrap();
    assert!(minted <= second.not_before_ms, "{second:?}");
    // And by a clock that is behind as well, as far as verifiers bear.
    run(&mut state, &dated(revoke("p3"), 998_500));
    let held = state.tenant("t").unwrap();
    let third = held.revocations.get(RevokedKind::Principal, "p3").unwrap();
    assert!(minted <= third.not_before_ms, "{third:?}");
}

#[test]
fn a_clock_that_was_far_ahead_once_shuts_out_nobody_else() {
    let mut state = state();
    let ahead = Command::Revoke {
        tenant_id: n("t"),
        kind: RevokedKind::Role,
        id: "role:r".into(),
        not_before_ms: TimeMs(1_050_000),
        reason: String::new(),
        now_ms: TimeMs(1_000_000),
    };
    run(&mut state, &ahead);
    run(&mut state, &dated(revoke("p1"), 1_000_000));
    let held = state.tenant("t").unwrap();
    let one = held.revocations.get(RevokedKind::Principal, "p1").unwrap();
    assert_eq!(
        one.not_before_ms,
        TimeMs(1_000_000 + REVOCATION_REACH_MS_MAX)
    );
}

#[test]
fn how_far_the_furthest_reaches_is_known_again_from_a_snapshot() {
    let mut state = state();
    run(&mut state, &dated(revoke("p1"), 1_000_000));
    let json = serde_json::to_value(&state).unwrap();
    let read: Catalogue = serde_json::from_value(json.clone()).unwrap();
    assert_eq!((latest(&read), &read), (latest(&state), &state));
    let text = json.to_string();
    assert!(!text.contains("latest"), "the stored form is as it was");
}

fn latest(state: &Catalogue) -> TimeMs {
    state.tenant("t").unwrap().revocations.latest()
}

fn dated(mut command: Command, at: u64) -> Command {
    command.date(TimeMs(at));
    command
}

fn end(session: &str) -> Command {
    Command::EndSession {
        tenant_id: n("t"),
        session_id: session.into(),
        reason: String::new(),
        now_ms: TimeMs(1),
    }
}

fn revoke(principal: &str) -> Command {
    Command::Revoke {
        tenant_id: n("t"),
        kind: RevokedKind::Principal,
        id: principal.into(),
        not_before_ms: TimeMs(1),
        reason: String::new(),
        now_ms: TimeMs(1),
    }
}
