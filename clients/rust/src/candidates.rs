//! The brokers a client may try, and in which order.

use crate::address::Address;

/// Addresses in the order of trying. Pure.
#[derive(Clone, Debug, Default)]
pub(crate) struct Candidates {
    order: Vec<Candidate>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) address: Address,
    /// Told by a broker, not by the user.
    pub(crate) learned: bool,
}

impl Candidates {
    pub(crate) fn given(addresses: &[Address]) -> Self {
        let given = addresses.iter().cloned();
        Self {
            order: given
                .map(|address| Candidate {
                    address,
                    learned: false,
                })
                .collect(),
        }
    }

    pub(crate) fn in_order(&self) -> Vec<Candidate> {
        self.order.clone()
    }

    pub(crate) fn prefer(&mut self, address: &Address) {
        self.order
            .sort_by_key(|candidate| candidate.address != *address);
    }

    pub(crate) fn put_last(&mut self, address: &Address) {
        self.order
            .sort_by_key(|candidate| candidate.address == *address);
    }

    /// Replaces what was learned before; what the user gave stays.
    pub(crate) fn learn(&mut self, addresses: Vec<Address>) {
        self.order
            .retain(|candidate| !candidate.learned || addresses.contains(&candidate.address));
        for address in addresses {
            if self
                .order
                .iter()
                .all(|candidate| candidate.address != address)
            {
                self.order.push(Candidate {
                    address,
                    learned: true,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(given: &[&str]) -> Candidates {
        let given: Vec<_> = given.iter().map(|text| text.parse().unwrap()).collect();
        Candidates::given(&given)
    }

    fn order(candidates: &Candidates) -> Vec<String> {
        candidates
            .order
            .iter()
            .map(|candidate| candidate.address.to_string())
            .collect()
    }

    #[test]
    fn a_broker_that_answered_comes_first_and_one_that_failed_comes_last() {
        let mut known = candidates(&["a:1", "b:1", "c:1"]);
        known.put_last(&"a:1".parse().unwrap());
        assert_eq!(order(&known), ["b:1", "c:1", "a:1"]);
        known.prefer(&"c:1".parse().unwrap());
        assert_eq!(order(&known), ["c:1", "b:1", "a:1"]);
    }

    #[test]
    fn learned_brokers_are_replaced_and_given_ones_stay() {
        let mut known = candidates(&["a:1"]);
        known.learn(vec!["a:1".parse().unwrap(), "b:1".parse().unwrap()]);
        assert_eq!(order(&known), ["a:1", "b:1"]);
        known.learn(vec!["c:1".parse().unwrap()]);
        assert_eq!(order(&known), ["a:1", "c:1"]);
        known.learn(Vec::new());
        assert_eq!(order(&known), ["a:1"]);
    }
}
