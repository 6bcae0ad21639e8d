//! Fetch sessions (KIP-227): what a client fetches is remembered, so that it says only what changes, and is told only
//! what has changed.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::Got;
use super::request::{Place, Request, TopicKey, Wanted};
use crate::limits::{
    FETCH_SESSION_IDLE, FETCH_SESSION_PARTITIONS_MAX, FETCH_SESSIONS_MAX,
    FETCH_SESSIONS_PARTITIONS_MAX, FETCH_SESSIONS_PARTITIONS_PER_TENANT_MAX,
    FETCH_SESSIONS_PER_TENANT_MAX,
};
use crate::wire::codes::{FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH};

/// The request mixes names and ids of topics in one session.
const FETCH_SESSION_TOPIC_ID_ERROR: i16 = 106;

/// Epoch of a request without a session, which also ends the one it names.
const SESSIONLESS: i32 = -1;

/// Epoch of a request that names everything and begins a session.
const FIRST: i32 = 0;

/// The sessions of all connections.
#[derive(Debug, Default)]
pub(crate) struct FetchSessions {
    sessions: Mutex<HashMap<i32, Session>>,
}

/// Whose session it is: another principal's is as unknown as none.
pub(super) type Owner = (Arc<str>, Arc<str>);

#[derive(Debug)]
struct Session {
    owner: Owner,
    /// The epoch that the next request must have.
    next: i32,
    used: Instant,
    by_id: bool,
    partitions: BTreeMap<Place, Held>,
}

#[derive(Clone, Debug)]
struct Held {
    wanted: Wanted,
    /// What was told last: high watermark and log start.
    told: Option<(i64, i64)>,
    /// Order in which partitions are served: those that gave something go behind the others.
    turn: u64,
}

/// What a request comes to.
#[derive(Debug)]
pub(super) struct Plan {
    /// The session that is told to the client; 0 for none.
    pub(super) session_id: i32,
    /// Everything to fetch, in the order in which it is to be served.
    pub(super) wanted: Vec<Wanted>,
    /// Only what has changed is answered.
    pub(super) incremental: bool,
}

impl FetchSessions {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Finds out what a request wants. Only partitions that are there are remembered.
    ///
    /// # Errors
    /// The code of what is wrong with the session; the client begins another one.
    pub(super) fn plan(
        &self,
        owner: &Owner,
        request: &mut Request,
        is_there: &dyn Fn(&Wanted) -> bool,
    ) -> Result<Plan, i16> {
        match request.session_epoch {
            SESSIONLESS => {
                self.end(owner, request.session_id);
                Ok(Plan::whole(0, std::mem::take(&mut request.wanted)))
            }
            FIRST => {
                self.end(owner, request.session_id);
                let wanted = std::mem::take(&mut request.wanted);
                Ok(self.begin(owner, wanted, is_there))
            }
            epoch => self.go_on(owner, epoch, request, is_there),
        }
    }

    fn begin(
        &self,
        owner: &Owner,
        wanted: Vec<Wanted>,
        is_there: &dyn Fn(&Wanted) -> bool,
    ) -> Plan {
        let fits = (1..=FETCH_SESSION_PARTITIONS_MAX).contains(&wanted.len());
        if !fits || !wanted.iter().all(is_there) {
            return Plan::whole(0, wanted);
        }
        let mut sessions = self.lock();
        if !has_room(&sessions, owner, 1, wanted.len()) {
            sessions.retain(|_, session| session.used.elapsed() < FETCH_SESSION_IDLE);
            if !has_room(&sessions, owner, 1, wanted.len()) {
                return Plan::whole(0, wanted);
            }
        }
        let Some(id) = fresh_id(&sessions) else {
            return Plan::whole(0, wanted);
        };
        let by_id = wanted.iter().any(|one| is_id(&one.place.topic));
        let partitions = wanted.iter().map(|one| {
            let held = Held {
                wanted: one.clone(),
                told: None,
                turn: 0,
            };
            (one.place.clone(), held)
        });
        let session = Session {
            owner: owner.clone(),
            next: 1,
            used: Instant::now(),
            by_id,
            partitions: partitions.collect(),
        };
        sessions.insert(id, session);
        Plan::whole(id, wanted)
    }

    fn go_on(
        &self,
        owner: &Owner,
        epoch: i32,
        request: &mut Request,
        is_there: &dyn Fn(&Wanted) -> bool,
    ) -> Result<Plan, i16> {
        let mut sessions = self.lock();
        let before = sessions.get(&request.session_id);
        let added = request.wanted.iter().filter(|wanted| {
            before.is_some_and(|session| !session.partitions.contains_key(&wanted.place))
        });
        let added = added.count();
        let has_room = added == 0 || has_room(&sessions, owner, 0, added);
        let session = sessions
            .get_mut(&request.session_id)
            .filter(|session| session.owner == *owner)
            .ok_or(FETCH_SESSION_ID_NOT_FOUND)?;
        if session.next != epoch {
            return Err(INVALID_FETCH_SESSION_EPOCH);
        }
        let topics = request.wanted.iter().map(|one| &one.place.topic);
        if topics
            .into_iter()
            .any(|topic| is_id(topic) != session.by_id)
        {
            return Err(FETCH_SESSION_TOPIC_ID_ERROR);
        }
        session.next = if epoch == i32::MAX { 1 } else { epoch + 1 };
        session.used = Instant::now();
        for place in &request.forgotten {
            session.partitions.remove(place);
        }
        for wanted in request.wanted.drain(..) {
            let count = session.partitions.len();
            let place = wanted.place.clone();
            match session.partitions.entry(place) {
                Entry::Occupied(mut held) => held.get_mut().wanted = wanted,
                Entry::Vacant(free)
                    if has_room && count < FETCH_SESSION_PARTITIONS_MAX && is_there(&wanted) =>
                {
                    free.insert(Held {
                        wanted,
                        told: None,
                        turn: 0,
                    });
                }
                // It would be forgotten silently; without the session the client names all of them.
                Entry::Vacant(_) => return Err(FETCH_SESSION_ID_NOT_FOUND),
            }
        }
        let mut held: Vec<&Held> = session.partitions.values().collect();
        held.sort_by_key(|held| held.turn);
        Ok(Plan {
            session_id: request.session_id,
            wanted: held.into_iter().map(|held| held.wanted.clone()).collect(),
            incremental: true,
        })
    }

    /// Remembers what is told of each partition, and drops from the answer what was told before.
    pub(super) fn told(&self, plan: &Plan, got: &mut Vec<Got>) {
        let mut sessions = self.lock();
        let Some(session) = sessions.get_mut(&plan.session_id) else {
            return;
        };
        let epoch = u64::from(session.next.unsigned_abs());
        got.retain(|got| {
            let Some(held) = session.partitions.get_mut(&got.place) else {
                return true;
            };
            let now = (got.high_watermark, got.log_start);
            let news = got.has_news() || held.told != Some(now);
            held.told = (got.error == 0).then_some(now);
            if !got.records.is_empty() {
                held.turn = epoch;
            }
            news || !plan.incremental
        });
    }

    fn end(&self, owner: &Owner, id: i32) {
        let mut sessions = self.lock();
        if sessions
            .get(&id)
            .is_some_and(|session| session.owner == *owner)
        {
            sessions.remove(&id);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i32, Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Plan {
    fn whole(session_id: i32, wanted: Vec<Wanted>) -> Self {
        Self {
            session_id,
            wanted,
            incremental: false,
        }
    }
}

/// Whether so many more fit beside those that there are.
fn has_room(
    sessions: &HashMap<i32, Session>,
    owner: &Owner,
    more: usize,
    more_partitions: usize,
) -> bool {
    let count = |of: &dyn Fn(&Session) -> bool| {
        let sessions = sessions.values().filter(|session| of(session));
        sessions.fold((more, more_partitions), |(count, partitions), session| {
            (count + 1, partitions + session.partitions.len())
        })
    };
    let (all, partitions) = count(&|_| true);
    let (own, own_partitions) = count(&|session| session.owner.0 == owner.0);
    all <= FETCH_SESSIONS_MAX
        && partitions <= FETCH_SESSIONS_PARTITIONS_MAX
        && own <= FETCH_SESSIONS_PER_TENANT_MAX
        && own_partitions <= FETCH_SESSIONS_PARTITIONS_PER_TENANT_MAX
}

fn is_id(topic: &TopicKey) -> bool {
    matches!(topic, TopicKey::Id(_))
}

/// An id that no session has and nobody guesses.
fn fresh_id(sessions: &HashMap<i32, Session>) -> Option<i32> {
    (0..16).find_map(|_| {
        let drawn = getrandom::u32().ok()? & 0x7fff_ffff;
        let id = i32::try_from(drawn).ok()?;
        (id != 0 && !sessions.contains_key(&id)).then_some(id)
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const THERE: &dyn Fn(&Wanted) -> bool = &|_| true;

    fn owner(name: &str) -> Owner {
        ("t".into(), name.into())
    }

    fn wanted(partition: i32, offset: i64) -> Wanted {
        Wanted {
            place: Place {
                topic: TopicKey::Name("t".into()),
                partition,
            },
            current_leader_epoch: -1,
            offset,
            last_fetched_epoch: -1,
            max_bytes: 1,
        }
    }

    fn request(session_id: i32, session_epoch: i32, wanted: Vec<Wanted>) -> Request {
        Request {
            max_wait_ms: 0,
            min_bytes: 0,
            max_bytes: 1,
            committed: false,
            session_id,
            session_epoch,
            wanted,
            forgotten: Vec::new(),
        }
    }

    fn got(partition: i32, high_watermark: i64, records: &'static [u8]) -> Got {
        Got {
            records: Bytes::from_static(records).into(),
            ..Got::empty(wanted(partition, 0).place, 0, high_watermark)
        }
    }

    #[test]
    fn a_session_remembers_what_is_wanted_and_tells_only_what_changed() {
        let (sessions, me) = (FetchSessions::default(), owner("me"));
        let mut first = request(0, 0, vec![wanted(0, 5), wanted(1, 6)]);
        let plan = sessions.plan(&me, &mut first, THERE).unwrap();
        assert!(plan.session_id > 0 && !plan.incremental);
        let mut all = vec![got(0, 5, b""), got(1, 6, b"")];
        sessions.told(&plan, &mut all);
        assert_eq!(all.len(), 2, "the first answer has everything");

        let mut second = request(plan.session_id, 1, vec![wanted(1, 7)]);
        let plan = sessions.plan(&me, &mut second, THERE).unwrap();
        let offsets: Vec<_> = plan.wanted.iter().map(|one| one.offset).collect();
        assert_eq!(offsets, [5, 7]);
        let mut all = vec![got(0, 5, b""), got(1, 9, b"")];
        sessions.told(&plan, &mut all);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].place.partition, 1);
    }

    #[test]
    fn partitions_that_gave_something_go_behind_the_others() {
        let (sessions, me) = (FetchSessions::default(), owner("me"));
        let mut first = request(0, 0, vec![wanted(0, 0), wanted(1, 0)]);
        let plan = sessions.plan(&me, &mut first, THERE).unwrap();
        sessions.told(&plan, &mut vec![got(0, 5, b"x"), got(1, 5, b"")]);
        let plan = sessions
            .plan(&me, &mut request(plan.session_id, 1, vec![]), THERE)
            .unwrap();
        let order: Vec<_> = plan.wanted.iter().map(|one| one.place.partition).collect();
        assert_eq!(order, [1, 0]);
    }

    #[test]
    fn a_wrong_epoch_and_another_principal_are_refused() {
        let (sessions, me) = (FetchSessions::default(), owner("me"));
        let plan = sessions
            .plan(&me, &mut request(0, 0, vec![wanted(0, 0)]), THERE)
            .unwrap();
        let id = plan.session_id;
        let refused = |owner, epoch| {
            sessions
                .plan(&owner, &mut request(id, epoch, vec![]), THERE)
                .err()
        };
        assert_eq!(refused(owner("me"), 2), Some(INVALID_FETCH_SESSION_EPOCH));
        assert_eq!(refused(owner("you"), 1), Some(FETCH_SESSION_ID_NOT_FOUND));
        assert_eq!(refused(owner("me"), -1), None);
        assert_eq!(refused(owner("me"), 1), Some(FETCH_SESSION_ID_NOT_FOUND));
    }

    #[test]
    fn names_and_ids_do_not_mix() {
        let (sessions, me) = (FetchSessions::default(), owner("me"));
        let plan = sessions
            .plan(&me, &mut request(0, 0, vec![wanted(0, 0)]), THERE)
            .unwrap();
        let mut by_id = wanted(0, 0);
        by_id.place.topic = TopicKey::Id([1; 16]);
        let refused = sessions.plan(&me, &mut request(plan.session_id, 1, vec![by_id]), THERE);
        assert_eq!(refused.err(), Some(FETCH_SESSION_TOPIC_ID_ERROR));
    }

    fn begin(sessions: &FetchSessions, owner: &Owner, partitions: i32) -> i32 {
        let wanted = (0..partitions).map(|one| wanted(one, 0)).collect();
        let plan = sessions.plan(owner, &mut request(0, 0, wanted), THERE);
        plan.unwrap().session_id
    }

    #[test]
    fn what_is_not_there_is_not_remembered() {
        let (sessions, me) = (FetchSessions::default(), owner("me"));
        let is_there = |wanted: &Wanted| wanted.place.partition < 2;
        let both = vec![wanted(0, 0), wanted(2, 0)];
        let plan = sessions
            .plan(&me, &mut request(0, 0, both), &is_there)
            .unwrap();
        assert_eq!((plan.session_id, plan.wanted.len()), (0, 2));
        assert_eq!(sessions.len(), 0);

        let id = begin(&sessions, &me, 1);
        let more = |epoch, one| {
            let mut request = request(id, epoch, vec![wanted(one, 0)]);
            sessions.plan(&me, &mut request, &is_there).err()
        };
        assert_eq!(more(1, 1), None);
        assert_eq!(more(2, 2), Some(FETCH_SESSION_ID_NOT_FOUND));
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_session_that_is_idle_makes_room() {
        let (sessions, me) = (FetchSessions::default(), owner("me"));
        let used = begin(&sessions, &me, 1);
        for _ in 1..FETCH_SESSIONS_PER_TENANT_MAX {
            assert_ne!(begin(&sessions, &me, 1), 0);
        }
        assert_eq!(begin(&sessions, &me, 1), 0);
        let other = ("other".into(), "me".into());
        assert_ne!(begin(&sessions, &other, 1), 0);

        tokio::time::advance(FETCH_SESSION_IDLE).await;
        let goes_on = |epoch| sessions.plan(&me, &mut request(used, epoch, vec![]), THERE);
        assert!(goes_on(1).is_ok());
        assert_ne!(begin(&sessions, &me, 1), 0);
        assert_eq!(sessions.len(), 2);
        assert!(goes_on(2).is_ok());
    }

    #[test]
    fn partitions_are_counted_over_all_sessions_of_a_tenant() {
        let (sessions, me) = (FetchSessions::default(), owner("me"));
        let each = 9_999;
        let fit = FETCH_SESSIONS_PARTITIONS_PER_TENANT_MAX / each;
        let first = begin(&sessions, &me, 9_999);
        for _ in 1..fit {
            assert_ne!(begin(&sessions, &me, 9_999), 0);
        }
        assert_eq!(begin(&sessions, &me, 9_999), 0);
        let left = FETCH_SESSIONS_PARTITIONS_PER_TENANT_MAX - fit * each;
        assert_ne!(begin(&sessions, &me, i32::try_from(left).unwrap()), 0);
        let added = sessions.plan(&me, &mut request(first, 1, vec![wanted(10_000, 0)]), THERE);
        assert_eq!(added.err(), Some(FETCH_SESSION_ID_NOT_FOUND));
    }
}
