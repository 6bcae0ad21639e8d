//! How many connections or sessions there may be, in total and of one address or person.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts what is open, in total and per key.
#[derive(Debug)]
pub struct Slots<K> {
    open: Mutex<Open<K>>,
}

#[derive(Debug)]
struct Open<K> {
    total: usize,
    by_key: HashMap<K, usize>,
}

/// One place; given back when dropped.
#[derive(Debug)]
pub struct Slot<K: Eq + Hash> {
    slots: Arc<Slots<K>>,
    key: K,
}

impl<K> Default for Slots<K> {
    fn default() -> Self {
        Self {
            open: Mutex::new(Open {
                total: 0,
                by_key: HashMap::new(),
            }),
        }
    }
}

impl<K: Eq + Hash + Clone> Slots<K> {
    /// A place for this key, if there is one.
    pub fn take(self: &Arc<Self>, key: K, total_max: usize, per_key_max: usize) -> Option<Slot<K>> {
        let mut open = self.lock();
        let here = open.by_key.get(&key).copied().unwrap_or(0);
        if open.total >= total_max || here >= per_key_max {
            return None;
        }
        open.total += 1;
        open.by_key.insert(key.clone(), here + 1);
        Some(Slot {
            slots: Arc::clone(self),
            key,
        })
    }
}

impl<K> Slots<K> {
    /// How many places are taken.
    pub fn taken(&self) -> usize {
        self.lock().total
    }

    fn lock(&self) -> MutexGuard<'_, Open<K>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash> Drop for Slot<K> {
    fn drop(&mut self) {
        let mut open = self.slots.lock();
        open.total -= 1;
        if let Some(here) = open.by_key.get_mut(&self.key) {
            *here -= 1;
            if *here == 0 {
                open.by_key.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn one_address_cannot_take_every_place() {
        let slots = Arc::new(Slots::default());
        let (near, far) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        let first = slots.take(near, 3, 2);
        let second = slots.take(near, 3, 2);
        assert!(first.is_some() && second.is_some());
        assert!(slots.take(near, 3, 2).is_none());
        let third = slots.take(far, 3, 2);
        assert!(third.is_some());
        assert!(slots.take(far, 3, 2).is_none(), "the total is reached");
        drop(first);
        assert!(slots.take(near, 3, 2).is_some());
    }
}
