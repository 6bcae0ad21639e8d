//! How much room the sessions of a tenant have.

use felix_meta::limits::{
    SESSION_TOKEN_LIFE_MS_MAX, SESSIONS_ENDED_SHARE, SESSIONS_PER_TENANT_MAX,
};
use felix_meta::{Catalogue, Event};

use super::common::{n, open, run, session, state};

/// Well after every token of the sessions that fill a tenant has run out.
const LATER: u64 = 1_000_000 + SESSION_TOKEN_LIFE_MS_MAX;

#[test]
fn a_full_tenant_lets_its_people_in_and_ends_the_sessions_refreshed_longest_ago() {
    let mut state = state();
    fill(&mut state, "t", SESSIONS_PER_TENANT_MAX);
    let event = run(&mut state, &open("t", "new", "somebody", LATER));
    let Event::SessionOpened {
        ended, revocations, ..
    } = event
    else {
        panic!("{event:?}");
    };
    assert_eq!(ended.len(), SESSIONS_PER_TENANT_MAX / SESSIONS_ENDED_SHARE);
    assert!(revocations.is_empty(), "no token of theirs can be good");
    let sessions = &state.tenant("t").unwrap().sessions;
    assert!(sessions.get("new").is_some());
    assert!(sessions.get("t0").is_none(), "the oldest");
    let youngest = format!("t{}", SESSIONS_PER_TENANT_MAX - 1);
    assert!(sessions.get(&youngest).is_some());
    assert!(sessions.len() < SESSIONS_PER_TENANT_MAX);
}

/// Sessions of so many people, each refreshed a little after the one before.
fn fill(state: &mut Catalogue, tenant: &str, count: usize) {
    for number in 0..count {
        let mut session = session(
            &format!("{tenant}{number}"),
            &format!("p{number}"),
            1 + number as u64,
        );
        session.expires_at_ms = felix_model::TimeMs(u64::MAX);
        state.apply(&Event::SessionOpened {
            tenant_id: n(tenant),
            session,
            principal: None,
            ended: Vec::new(),
            revocations: Vec::new(),
        });
    }
}
