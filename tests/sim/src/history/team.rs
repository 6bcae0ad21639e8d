//! The rules of groups of the Kafka protocol that share out themselves: generations only grow, one generation has one leader
//! and gives a partition to one member. And of positions in any group: one that was acknowledged is there until a later one
//! takes its place.

use std::collections::{BTreeMap, BTreeSet};

/// What became of a commit, as its member knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was acknowledged.
    Done,
    /// It was refused: the log does not have it.
    Refused,
    /// Nobody was told, or that it is not known.
    Unknown,
}

/// What members were told.
#[derive(Debug, Default)]
pub struct Checker {
    /// The largest generation that anybody was told of, by group.
    newest: BTreeMap<String, u32>,
    /// The largest of those before the last restart.
    before: BTreeMap<String, u32>,
    leaders: BTreeMap<(String, u32), String>,
    /// Whom a generation gave a partition.
    owners: BTreeMap<(String, u32, u32), String>,
    /// Commits of a group and partition, in the order in which they were decided.
    commits: BTreeMap<(String, u32), Vec<u64>>,
    outcomes: BTreeMap<u64, Outcome>,
    broken: Vec<String>,
}

impl Checker {
    /// The coordinator begins anew, from its log.
    pub fn restarted(&mut self) {
        self.before.clone_from(&self.newest);
    }

    /// A rule was broken that only its finder can see.
    pub fn broken(&mut self, what: String) {
        self.broken.push(what);
    }

    /// A member was told that it is in a generation, and who leads that.
    pub fn joined(&mut self, group: &str, generation: u32, leader: &str) {
        let before = self.before.get(group).copied().unwrap_or(0);
        if generation <= before {
            self.broken(format!(
                "{group}: generation {generation} after a restart, and {before} before"
            ));
        }
        let newest = self.newest.entry(group.to_owned()).or_default();
        let (was, now) = (*newest, generation);
        *newest = was.max(now);
        if now < was {
            self.broken(format!("{group}: generation {now} after {was}"));
        }
        let key = (group.to_owned(), generation);
        let known = self.leaders.entry(key).or_insert_with(|| leader.to_owned());
        if known != leader {
            let what = format!("{group}: {known} and {leader} both lead generation {generation}");
            self.broken(what);
        }
    }

    /// A member was told its partitions in a generation.
    pub fn assigned(
        &mut self,
        group: &str,
        generation: u32,
        member: &str,
        partitions: &BTreeSet<u32>,
    ) {
        for partition in partitions {
            let key = (group.to_owned(), generation, *partition);
            let owner = self.owners.entry(key).or_insert_with(|| member.to_owned());
            if owner != member {
                let what = format!(
                    "{group}: generation {generation} gives partition {partition} to {owner} and {member}"
                );
                self.broken(what);
            }
        }
    }

    /// A member asks for a position; commits are counted, and one is a later position than those before it.
    pub fn commits(&mut self, group: &str, partition: u32, commit: u64) {
        let key = (group.to_owned(), partition);
        self.commits.entry(key).or_default().push(commit);
    }

    /// What came of a commit. The first word counts.
    pub fn answered(&mut self, commit: u64, outcome: Outcome) {
        self.outcomes.entry(commit).or_insert(outcome);
    }

    /// The positions that a coordinator begins with.
    pub fn found(&mut self, group: &str, positions: &BTreeMap<u32, u64>) {
        let outcome = |commit: &u64| self.outcomes.get(commit).copied();
        let mut broken = Vec::new();
        for ((of, partition), commits) in &self.commits {
            if of != group {
                continue;
            }
            let acked = commits
                .iter()
                .rposition(|it| outcome(it) == Some(Outcome::Done));
            let found = positions.get(partition);
            let at = found.and_then(|found| commits.iter().position(|it| it == found));
            let refused = found.is_some_and(|found| outcome(found) == Some(Outcome::Refused));
            if refused || at < acked || (found.is_some() && at.is_none()) {
                let last = acked.and_then(|acked| commits.get(acked));
                broken.push(format!(
                    "{group}: partition {partition} is at {found:?}, and {last:?} was acknowledged"
                ));
            }
        }
        self.broken.extend(broken);
    }

    /// Commits that were acknowledged.
    #[must_use]
    pub fn acked(&self) -> u64 {
        let done = self.outcomes.values().filter(|it| **it == Outcome::Done);
        done.count() as u64
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

    fn positions(at: u64) -> BTreeMap<u32, u64> {
        BTreeMap::from([(0, at)])
    }

    #[test]
    fn a_position_may_be_later_than_the_last_that_was_acknowledged_and_never_earlier() {
        let mut checker = Checker::default();
        for (commit, outcome) in [
            (1, Some(Outcome::Done)),
            (2, Some(Outcome::Done)),
            (3, None),
            (4, Some(Outcome::Refused)),
        ] {
            checker.commits("g", 0, commit);
            outcome
                .into_iter()
                .for_each(|outcome| checker.answered(commit, outcome));
        }
        for good in [2, 3] {
            checker.found("g", &positions(good));
        }
        assert_eq!(checker.finish(), Vec::<String>::new());
        for bad in [1, 4, 9] {
            checker.found("g", &positions(bad));
            assert_eq!(checker.finish().len(), 1, "{bad}");
        }
        checker.found("g", &BTreeMap::new());
        assert_eq!(checker.finish().len(), 1);
    }

    #[test]
    fn one_generation_has_one_leader_and_gives_a_partition_once_and_is_not_given_out_again() {
        let mut checker = Checker::default();
        checker.joined("g", 1, "a");
        checker.joined("g", 1, "a");
        checker.assigned("g", 1, "a", &BTreeSet::from([0]));
        checker.assigned("g", 1, "b", &BTreeSet::from([1]));
        assert_eq!(checker.finish(), Vec::<String>::new());
        checker.joined("g", 1, "b");
        checker.assigned("g", 1, "b", &BTreeSet::from([0]));
        assert_eq!(checker.finish().len(), 2);
        checker.restarted();
        checker.joined("g", 1, "a");
        assert_eq!(checker.finish().len(), 1);
    }
}
