//! How many connections there may be.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use crate::limits::{CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX};

/// Counts the connections of one listener.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    all: usize,
    by_address: BTreeMap<IpAddr, usize>,
}

/// Room for one connection, given back when dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    gate: Arc<Gate>,
    address: IpAddr,
}

impl Gate {
    /// Makes room for a connection, or says which bound is reached. Addresses of this machine share only the bound of
    /// all: what runs here is not kept out by its own number.
    pub(crate) fn admit(self: &Arc<Self>, from: IpAddr) -> Result<Admitted, &'static str> {
        let address = network(from);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.all >= CONNECTIONS_MAX {
            return Err("too_many");
        }
        let held = open.by_address.entry(address).or_default();
        if *held >= CONNECTIONS_PER_ADDRESS_MAX && !address.is_loopback() {
            return Err("too_many_from_address");
        }
        *held += 1;
        open.all += 1;
        let gate = Arc::clone(self);
        Ok(Admitted { gate, address })
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut open = self
            .gate
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        open.all -= 1;
        if let Some(held) = open.by_address.get_mut(&self.address) {
            *held -= 1;
            if *held == 0 {
                open.by_address.remove(&self.address);
            }
        }
    }
}

/// What counts as one address: whoever has one IPv6 address has all of its /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            let prefix = u128::from(v6) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(prefix))
        }
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(loopback) => IpAddr::V6(loopback),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_holds_its_share_and_gets_it_back() {
        let gate = Arc::new(Gate::default());
        let from: IpAddr = "192.0.2.1".parse().unwrap();
        let mut held: Vec<_> = (0..CONNECTIONS_PER_ADDRESS_MAX)
            .map(|_| gate.admit(from).unwrap())
            .collect();
        assert_eq!(gate.admit(from).err(), Some("too_many_from_address"));
        assert!(gate.admit("192.0.2.2".parse().unwrap()).is_ok());
        held.pop();
        assert!(gate.admit(from).is_ok());
        held.clear();
        assert!(gate.open.lock().unwrap().by_address.is_empty());
    }

    #[test]
    fn all_addresses_together_have_a_bound_and_this_machine_no_other() {
        let gate = Arc::new(Gate::default());
        let here: IpAddr = "127.0.0.1".parse().unwrap();
        let held: Vec<_> = (0..CONNECTIONS_MAX)
            .map(|_| gate.admit(here).unwrap())
            .collect();
        assert_eq!(gate.admit(here).err(), Some("too_many"));
        drop(held);
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_are_one() {
        let same = |a: &str, b: &str| network(a.parse().unwrap()) == network(b.parse().unwrap());
        assert!(same("2001:db8::1", "2001:db8::ffff:1"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same("::ffff:192.0.2.1", "192.0.2.1"));
    }
}
