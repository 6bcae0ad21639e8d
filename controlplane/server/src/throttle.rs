//! Slowing down who fails to prove who he is.
//!
//! Each network place may fail some times at once, and then a few times a second. Who comes from a place that has used
//! this up waits before he is looked at, and when many wait already he is turned away. Nobody is shut out for what he
//! presents: behind one address there may be a thousand people and one broken program.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::{
    AUTH_FAILURES_AT_ONCE, AUTH_FAILURES_PER_SECOND, AUTH_PLACES_MAX, AUTH_WAITING_MAX,
};

/// Where somebody comes from: an IPv4 address, or the first half of an IPv6 one, because whoever has one of those has
/// all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    V4([u8; 4]),
    V6([u16; 4]),
    /// All for whom there was no room.
    Elsewhere,
}

impl From<IpAddr> for Place {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.octets()),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self::V6([a, b, c, d])
            }
        }
    }
}

#[derive(Debug)]
struct Account {
    /// Failures that are still free.
    left: f64,
    at: Instant,
    waiting: u32,
}

impl Account {
    const fn full(at: Instant) -> Self {
        Self {
            left: AUTH_FAILURES_AT_ONCE,
            at,
            waiting: 0,
        }
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + passed * AUTH_FAILURES_PER_SECOND).min(AUTH_FAILURES_AT_ONCE);
        self.at = now;
    }
}

/// Too many wait already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TurnedAway;

/// The accounts of all places. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Throttle {
    places: Arc<Mutex<BTreeMap<Place, Account>>>,
}

impl Throttle {
    /// Lets somebody from this address be looked at, after a while if his place has failed too often.
    pub(crate) async fn pass(&self, from: IpAddr) -> Result<(), TurnedAway> {
        let Some((wait, place)) = self.reserve(from, Instant::now())? else {
            return Ok(());
        };
        let _waiting = Waiting(self, place);
        tokio::time::sleep(wait).await;
        Ok(())
    }

    /// Counts a failure.
    pub(crate) fn failed(&self, from: IpAddr) {
        let now = Instant::now();
        self.with(from, now, |_, account| account.left -= 1.0);
    }

    /// How long to wait and in whose account; [`None`] for not at all. Who waits must say so when he is done.
    fn reserve(&self, from: IpAddr, now: Instant) -> Result<Option<(Duration, Place)>, TurnedAway> {
        self.with(from, now, |place, account| {
            if account.left > 0.0 {
                return Ok(None);
            }
            if account.waiting >= AUTH_WAITING_MAX {
                return Err(TurnedAway);
            }
            account.waiting += 1;
            let turn = f64::from(account.waiting) / AUTH_FAILURES_PER_SECOND;
            Ok(Some((Duration::from_secs_f64(turn), place)))
        })
    }

    fn with<T>(&self, from: IpAddr, now: Instant, act: impl FnOnce(Place, &mut Account) -> T) -> T {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let mut place = Place::from(from);
        if places.len() >= AUTH_PLACES_MAX && !places.contains_key(&place) {
            places.retain(|_, account| {
                account.refill(now);
                account.waiting > 0 || account.left < AUTH_FAILURES_AT_ONCE
            });
            if places.len() >= AUTH_PLACES_MAX {
                place = Place::Elsewhere;
            }
        }
        let account = places.entry(place).or_insert_with(|| Account::full(now));
        account.refill(now);
        act(place, account)
    }

    /// Somebody waits no longer. Which account an address has may have changed meanwhile, so the one he was counted in
    /// is named; it is there as long as somebody waits in it.
    fn done(&self, place: Place) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(account) = places.get_mut(&place) {
            account.waiting = account.waiting.saturating_sub(1);
        }
    }
}

/// Somebody who waits, until it is dropped.
struct Waiting<'a>(&'a Throttle, Place);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.done(self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_failed_too_often_waits_and_then_is_turned_away() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let (here, there) = (ip("192.0.2.1"), ip("192.0.2.2"));
        for _ in 0..AUTH_FAILURES_AT_ONCE as usize {
            assert_eq!(throttle.reserve(here, now), Ok(None));
            throttle.with(here, now, |_, account| account.left -= 1.0);
        }
        for _ in 0..AUTH_WAITING_MAX {
            assert!(matches!(throttle.reserve(here, now), Ok(Some(_))));
        }
        assert_eq!(throttle.reserve(here, now), Err(TurnedAway));
        assert_eq!(throttle.reserve(there, now), Ok(None), "somewhere else");
        let later = now + Duration::from_secs(1);
        assert_eq!(throttle.reserve(here, later), Ok(None));
    }

    #[test]
    fn a_network_of_ipv6_is_one_place() {
        let place = |text: &str| Place::from(ip(text));
        assert_eq!(place("2001:db8:1:2::1"), place("2001:db8:1:2:ffff::9"));
        assert_ne!(place("2001:db8:1:2::1"), place("2001:db8:1:3::1"));
        assert_eq!(place("::ffff:192.0.2.1"), place("192.0.2.1"));
    }

    #[test]
    fn more_places_than_are_kept_share_one_account() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        for n in 0..2 * AUTH_PLACES_MAX as u32 {
            let from = IpAddr::from(n.to_be_bytes());
            throttle.with(from, now, |_, account| account.left -= 1.0);
        }
        let places = throttle.places.lock().unwrap().len();
        assert_eq!(places, AUTH_PLACES_MAX + 1);
    }

    #[test]
    fn who_waited_in_the_shared_account_leaves_it_although_there_is_room_by_then() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        for n in 0..AUTH_PLACES_MAX as u32 {
            let from = IpAddr::from(n.to_be_bytes());
            throttle.with(from, now, |_, account| account.left -= 1.0);
        }
        let late = ip("203.0.113.9");
        throttle.with(late, now, |_, account| account.left = 0.0);
        let Ok(Some((_, place))) = throttle.reserve(late, now) else {
            panic!("it does not wait");
        };
        assert_eq!(place, Place::Elsewhere);
        throttle
            .places
            .lock()
            .unwrap()
            .remove(&Place::V4([0, 0, 0, 0]));
        throttle.done(place);
        let places = throttle.places.lock().unwrap();
        assert_eq!(places[&Place::Elsewhere].waiting, 0);
        assert!(!places.contains_key(&Place::from(late)));
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }
}
