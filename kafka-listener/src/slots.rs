//! How many connections there may be, in total and of one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts connections in total and per address.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    total: usize,
    by_ip: HashMap<IpAddr, usize>,
}

/// One connection's place; given back when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Arc<Slots>,
    ip: IpAddr,
}

impl Slots {
    /// A place for a connection of this address, if there is one.
    pub(crate) fn take(
        self: &Arc<Self>,
        ip: IpAddr,
        total_max: usize,
        per_ip_max: usize,
    ) -> Option<Slot> {
        let ip = ip.to_canonical();
        let mut open = self.lock();
        let here = open.by_ip.get(&ip).copied().unwrap_or(0);
        if open.total >= total_max || here >= per_ip_max {
            return None;
        }
        open.total += 1;
        open.by_ip.insert(ip, here + 1);
        Some(Slot {
            slots: Arc::clone(self),
            ip,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut open = self.slots.lock();
        open.total -= 1;
        if let Some(here) = open.by_ip.get_mut(&self.ip) {
            *here -= 1;
            if *here == 0 {
                open.by_ip.remove(&self.ip);
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
