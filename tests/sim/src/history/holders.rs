//! The rules of a group in which the broker shares out (KIP-848), as its members can tell.
//!
//! A member works on what it was told until it hears otherwise, leaves, or is silent for its session. Until then nobody else
//! is told of any of it, whatever becomes of the coordinator; nor is the member forgotten. Epochs only grow.

use std::collections::{BTreeMap, BTreeSet};

use felix_model::TimeMs;

/// What members were told.
#[derive(Debug, Default)]
pub struct Holders {
    members: BTreeMap<String, Holder>,
    /// The largest epoch that anybody was told.
    newest: i64,
    broken: Vec<String>,
}

#[derive(Debug, Default)]
struct Holder {
    epoch: i64,
    held: BTreeSet<u32>,
    /// The coordinator may not take it for dead before.
    until: TimeMs,
}

impl Holders {
    /// A rule was broken that only its finder can see.
    pub fn broken(&mut self, what: String) {
        self.broken.push(what);
    }

    /// The largest epoch that anybody was told.
    #[must_use]
    pub fn newest(&self) -> i64 {
        self.newest
    }

    /// The coordinator heard a member, whose session it is until `until`.
    pub fn heard(&mut self, member: &str, now: TimeMs, until: TimeMs) {
        if let Some(holder) = self.members.get_mut(member) {
            if holder.until <= now {
                // It was silent for too long: what it had may be another's, until it is told again.
                holder.held.clear();
            }
            holder.until = until;
        } else {
            let holder = Holder {
                until,
                ..Holder::default()
            };
            self.members.insert(member.to_owned(), holder);
        }
    }

    /// A member was told its epoch and what it may hold. `least` is for one that joins: the smallest epoch it can have.
    pub fn told(
        &mut self,
        member: &str,
        now: TimeMs,
        least: Option<i64>,
        epoch: i64,
        held: &BTreeSet<u32>,
    ) {
        for (other, holder) in &self.members {
            let both = holder.held.intersection(held).next();
            if other != member
                && holder.until > now
                && let Some(partition) = both
            {
                self.broken.push(format!(
                    "{member} was told that partition {partition} is its own, and {other} has not given it back"
                ));
            }
        }
        let holder = self.members.entry(member.to_owned()).or_default();
        let least = least.unwrap_or(holder.epoch);
        if epoch < least {
            self.broken.push(format!(
                "{member} was told epoch {epoch}, and {least} is the smallest it can have"
            ));
        }
        holder.epoch = epoch;
        holder.held.clone_from(held);
        self.newest = self.newest.max(epoch);
    }

    /// A member gave everything up, and said so.
    pub fn gone(&mut self, member: &str) {
        self.members.remove(member);
    }

    /// A member that goes on was told that it is none.
    pub fn refused(&mut self, member: &str, now: TimeMs, why: &str) {
        if let Some(holder) = self.members.remove(member)
            && holder.until > now
        {
            self.broken
                .push(format!("{member} was forgotten within its session: {why}"));
        }
    }

    /// Every rule that was broken.
    #[must_use]
    pub fn finish(&mut self) -> Vec<String> {
        std::mem::take(&mut self.broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_members() -> Holders {
        let mut holders = Holders::default();
        for (member, shard) in [("a", 0), ("b", 1)] {
            holders.heard(member, TimeMs(0), TimeMs(10));
            let held = BTreeSet::from([shard]);
            holders.told(member, TimeMs(1), Some(1), 1, &held);
        }
        assert_eq!(holders.finish(), Vec::<String>::new());
        holders
    }

    fn wants_both(holders: &mut Holders, now: u64) -> usize {
        holders.told("b", TimeMs(now), None, 2, &BTreeSet::from([0, 1]));
        holders.finish().len()
    }

    #[test]
    fn a_partition_is_anothers_once_it_was_given_back_or_its_session_is_over() {
        assert_eq!(wants_both(&mut two_members(), 9), 1);
        assert_eq!(wants_both(&mut two_members(), 10), 0);
        let mut holders = two_members();
        holders.told("a", TimeMs(2), None, 1, &BTreeSet::new());
        assert_eq!(wants_both(&mut holders, 3), 0);
        let mut holders = two_members();
        holders.gone("a");
        assert_eq!(wants_both(&mut holders, 3), 0);
        // Being heard in time prolongs it; too late does not bring it back.
        let mut holders = two_members();
        holders.heard("a", TimeMs(9), TimeMs(19));
        assert_eq!(wants_both(&mut holders, 18), 1);
        let mut holders = two_members();
        holders.heard("a", TimeMs(10), TimeMs(20));
        assert_eq!(wants_both(&mut holders, 11), 0);
    }

    #[test]
    fn epochs_only_grow_and_who_is_heard_is_not_forgotten() {
        let mut holders = two_members();
        holders.told("a", TimeMs(2), None, 0, &BTreeSet::new());
        assert_eq!(holders.finish().len(), 1);
        holders.told("c", TimeMs(2), Some(2), 1, &BTreeSet::new());
        assert_eq!(holders.finish().len(), 1);
        holders.refused("a", TimeMs(9), "unknown");
        holders.refused("b", TimeMs(10), "unknown");
        assert_eq!(holders.finish().len(), 1);
    }
}
