//! Sets of offsets as ranges.

use std::collections::BTreeMap;

/// A set of offsets. Ranges that touch are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges {
    /// First offset to the one after the last.
    ranges: BTreeMap<u64, u64>,
}

impl Ranges {
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    pub(super) fn clear(&mut self) {
        self.ranges.clear();
    }

    pub(super) fn contains(&self, offset: u64) -> bool {
        self.end_of(offset).is_some()
    }

    /// Where the range that holds `offset` ends, exclusive.
    pub(super) fn end_of(&self, offset: u64) -> Option<u64> {
        let (_, end) = self.ranges.range(..=offset).next_back()?;
        (*end > offset).then_some(*end)
    }

    pub(super) fn insert(&mut self, run: Run) {
        let Run { mut start, count } = run;
        let mut end = start.saturating_add(count);
        if count == 0 {
            return;
        }
        if let Some((&before, &until)) = self.ranges.range(..=start).next_back()
            && until >= start
        {
            start = before;
            end = end.max(until);
        }
        while let Some((&next, &until)) = self.ranges.range(start..=end).next() {
            self.ranges.remove(&next);
            end = end.max(until);
        }
        self.ranges.insert(start, end);
    }

    /// Forgets what lies below `offset`.
    pub(super) fn remove_below(&mut self, offset: u64) {
        while let Some((&start, &end)) = self.ranges.first_key_value()
            && start < offset
        {
            self.ranges.remove(&start);
            if end > offset {
                self.ranges.insert(offset, end);
                return;
            }
        }
    }

    /// Forgets what lies at or above `offset`.
    pub(super) fn remove_from(&mut self, offset: u64) {
        let _ = self.ranges.split_off(&offset);
        if let Some((&start, &end)) = self.ranges.last_key_value()
            && end > offset
        {
            self.ranges.insert(start, offset);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Run> + '_ {
        self.ranges.iter().map(|(&start, &end)| Run {
            start,
            count: end - start,
        })
    }
}

/// Consecutive offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: u64,
    pub(super) count: u64,
}

impl Run {
    pub(super) fn offsets(self) -> std::ops::Range<u64> {
        self.start..self.start.saturating_add(self.count)
    }

    /// Adds an offset to the runs, which it joins if it follows the last of them.
    pub(super) fn add(runs: &mut Vec<Self>, offset: u64) {
        match runs.last_mut() {
            Some(run) if run.start.saturating_add(run.count) == offset => run.count += 1,
            Some(_) | None => runs.push(Self {
                start: offset,
                count: 1,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_hold_what_a_set_would_hold(
            steps in proptest::collection::vec((0_u8..4, 0_u64..40, 0_u64..6), 0..60)
        ) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (what, start, count) in steps {
                match what {
                    0 | 1 => {
                        ranges.insert(Run { start, count });
                        set.extend(start..start + count);
                    }
                    2 => {
                        ranges.remove_below(start);
                        set = set.split_off(&start);
                    }
                    _ => {
                        ranges.remove_from(start);
                        drop(set.split_off(&start));
                    }
                }
                let held: BTreeSet<u64> = ranges.iter().flat_map(Run::offsets).collect();
                prop_assert_eq!(&held, &set);
                for offset in 0..50 {
                    prop_assert_eq!(ranges.contains(offset), set.contains(&offset));
                }
                let runs: Vec<Run> = ranges.iter().collect();
                for pair in runs.windows(2) {
                    prop_assert!(pair[0].start + pair[0].count < pair[1].start);
                }
            }
        }
    }
}
