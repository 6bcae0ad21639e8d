//! Who could carry something that many share, and who does.

use std::collections::BTreeMap;

/// The members of one feed; the runner is the one on whose connection and token it runs.
#[derive(Debug)]
pub(super) struct Crew<T> {
    members: BTreeMap<u64, T>,
    runner: u64,
    last_id: u64,
}

/// What a member leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) was_runner: bool,
    pub(super) is_last: bool,
}

impl<T> Default for Crew<T> {
    fn default() -> Self {
        Self {
            members: BTreeMap::new(),
            // Whoever comes first.
            runner: 1,
            last_id: 0,
        }
    }
}

impl<T: Clone> Crew<T> {
    /// Takes somebody in; what comes back is his number.
    pub(super) fn enter(&mut self, member: T) -> u64 {
        self.last_id += 1;
        self.members.insert(self.last_id, member);
        self.last_id
    }

    pub(super) fn leave(&mut self, id: u64) -> Left {
        self.members.remove(&id);
        Left {
            was_runner: self.runner == id,
            is_last: self.members.is_empty(),
        }
    }

    /// This one cannot carry it: the broker refused him.
    pub(super) fn pass_over(&mut self, id: u64) {
        self.members.remove(&id);
    }

    pub(super) const fn runner(&self) -> u64 {
        self.runner
    }

    pub(super) fn has(&self, id: u64) -> bool {
        self.members.contains_key(&id)
    }

    /// Who carries it from now on: the same as before while he is there. `None` when nobody is left.
    pub(super) fn next_runner(&mut self) -> Option<(u64, T)> {
        let current = self.members.get_key_value(&self.runner);
        let (id, member) = current.or_else(|| self.members.first_key_value())?;
        self.runner = *id;
        Some((*id, member.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_carried_by_one_until_he_leaves_and_then_by_the_next() {
        let mut crew = Crew::default();
        assert_eq!(crew.next_runner(), None::<(u64, char)>);
        let [a, b, c] = ['a', 'b', 'c'].map(|who| crew.enter(who));
        assert_eq!(crew.next_runner(), Some((a, 'a')));
        let other = Left {
            was_runner: false,
            is_last: false,
        };
        assert_eq!(crew.leave(b), other);
        assert_eq!(crew.next_runner(), Some((a, 'a')));
        crew.pass_over(a);
        assert!(!crew.has(a));
        assert_eq!(crew.next_runner(), Some((c, 'c')));
        let last = Left {
            was_runner: true,
            is_last: true,
        };
        assert_eq!(crew.leave(c), last);
        assert_eq!(crew.next_runner(), None);
    }
}
