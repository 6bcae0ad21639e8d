//! Sharing partitions out among members: by the broker, for groups that leave it to it.

use std::collections::{BTreeMap, BTreeSet};

/// One shard of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    /// The stream's number, [`felix_model::Incarnation::number`].
    pub number: u64,
    /// The shard.
    pub shard: u32,
}

/// Who shares out, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Assignor {
    /// As even as can be, moving as little as can be.
    #[default]
    Uniform,
    /// Of every stream, a run of neighbouring shards for each of its readers: the same runs for streams of the same width.
    Range,
}

impl Assignor {
    /// The name in the protocol.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Range => "range",
        }
    }

    /// The one of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Uniform, Self::Range]
            .into_iter()
            .find(|assignor| assignor.name() == name)
    }
}

/// What one member reads and has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Numbers of the streams it reads.
    pub reads: BTreeSet<u64>,
    /// What it was to have so far.
    pub had: BTreeSet<Partition>,
}

/// Shares every partition of `topics` (number and width) out among the members that read it; one of a stream that
/// nobody reads is nobody's. The answer has one set for each wish, in their order, and they do not overlap.
pub fn share_out(
    assignor: Assignor,
    topics: &BTreeMap<u64, u32>,
    wishes: &[Wish],
) -> Vec<BTreeSet<Partition>> {
    match assignor {
        Assignor::Uniform => uniform(topics, wishes),
        Assignor::Range => range(topics, wishes),
    }
}

fn partitions(topics: &BTreeMap<u64, u32>) -> impl Iterator<Item = Partition> + '_ {
    topics
        .iter()
        .flat_map(|(&number, &width)| (0..width).map(move |shard| Partition { number, shard }))
}

fn uniform(topics: &BTreeMap<u64, u32>, wishes: &[Wish]) -> Vec<BTreeSet<Partition>> {
    let mut shares: Vec<BTreeSet<Partition>> = vec![BTreeSet::new(); wishes.len()];
    let mut free = Vec::new();
    // Whoever had a partition and reads it still keeps it, for the time being.
    for partition in partitions(topics) {
        let reads = |wish: &Wish| wish.reads.contains(&partition.number);
        let before = wishes
            .iter()
            .position(|wish| reads(wish) && wish.had.contains(&partition));
        match before.and_then(|owner| shares.get_mut(owner)) {
            Some(share) => {
                share.insert(partition);
            }
            None if wishes.iter().any(reads) => free.push(partition),
            None => {}
        }
    }
    let readers = |number: u64| {
        let reads = wishes.iter().enumerate();
        reads
            .filter(move |(_, wish)| wish.reads.contains(&number))
            .map(|(place, _)| place)
    };
    let size = |shares: &[BTreeSet<Partition>], place: usize| {
        shares.get(place).map_or(usize::MAX, BTreeSet::len)
    };
    for partition in free {
        let least = readers(partition.number).min_by_key(|&place| size(&shares, place));
        if let Some(share) = least.and_then(|least| shares.get_mut(least)) {
            share.insert(partition);
        }
    }
    // Then partitions move from who has most to who has two less, until nobody has. Each move evens out, so it ends.
    while let Some((partition, from, to)) = uneven(wishes, &shares) {
        if let Some(share) = shares.get_mut(from) {
            share.remove(&partition);
        }
        if let Some(share) = shares.get_mut(to) {
            share.insert(partition);
        }
    }
    shares
}

/// A partition whose move makes the shares more even.
fn uneven(wishes: &[Wish], shares: &[BTreeSet<Partition>]) -> Option<(Partition, usize, usize)> {
    let mut by_size: Vec<usize> = (0..shares.len()).collect();
    by_size.sort_by_key(|&place| shares.get(place).map_or(0, BTreeSet::len));
    for &from in by_size.iter().rev() {
        let share = shares.get(from)?;
        for &to in &by_size {
            if shares.get(to)?.len() + 2 > share.len() {
                break;
            }
            let reads = &wishes.get(to)?.reads;
            // The last of them, so that those at the front stay together.
            let moved = share
                .iter()
                .rev()
                .find(|partition| reads.contains(&partition.number));
            if let Some(&partition) = moved {
                return Some((partition, from, to));
            }
        }
    }
    None
}

fn range(topics: &BTreeMap<u64, u32>, wishes: &[Wish]) -> Vec<BTreeSet<Partition>> {
    let mut shares: Vec<BTreeSet<Partition>> = vec![BTreeSet::new(); wishes.len()];
    for (&number, &width) in topics {
        let readers: Vec<usize> = wishes
            .iter()
            .enumerate()
            .filter(|(_, wish)| wish.reads.contains(&number))
            .map(|(place, _)| place)
            .collect();
        let count = u32::try_from(readers.len()).unwrap_or(u32::MAX);
        let (Some(each), Some(more)) = (width.checked_div(count), width.checked_rem(count)) else {
            continue;
        };
        let mut shard = 0;
        for (place, reader) in (0..).zip(readers) {
            let run = each + u32::from(place < more);
            if let Some(share) = shares.get_mut(reader) {
                share.extend((shard..shard + run).map(|shard| Partition { number, shard }));
            }
            shard += run;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(reads: &[u64], had: &[(u64, u32)]) -> Wish {
        Wish {
            reads: reads.iter().copied().collect(),
            had: had
                .iter()
                .map(|&(number, shard)| Partition { number, shard })
                .collect(),
        }
    }

    fn shares(assignor: Assignor, topics: &[(u64, u32)], wishes: &[Wish]) -> Vec<Vec<(u64, u32)>> {
        let topics = topics.iter().copied().collect();
        share_out(assignor, &topics, wishes)
            .into_iter()
            .map(|share| share.into_iter().map(|it| (it.number, it.shard)).collect())
            .collect()
    }

    #[test]
    fn a_uniform_share_is_even_and_moves_little() {
        let wishes = [
            wish(&[1], &[(1, 0), (1, 1), (1, 2), (1, 3)]),
            wish(&[1], &[]),
        ];
        assert_eq!(
            shares(Assignor::Uniform, &[(1, 4)], &wishes),
            [[(1, 0), (1, 1)], [(1, 2), (1, 3)]]
        );
        let wishes = [wish(&[1], &[(1, 0)]), wish(&[1, 2], &[]), wish(&[2], &[])];
        let uniform = shares(Assignor::Uniform, &[(1, 2), (2, 4), (9, 3)], &wishes);
        assert_eq!(uniform.concat().len(), 6, "{uniform:?}");
        assert!(uniform.iter().all(|share| share.len() == 2), "{uniform:?}");
    }

    #[test]
    fn a_range_gives_neighbours_and_the_first_readers_one_more() {
        let wishes = [wish(&[1, 2], &[]), wish(&[1], &[])];
        assert_eq!(
            shares(Assignor::Range, &[(1, 3), (2, 2)], &wishes),
            [vec![(1, 0), (1, 1), (2, 0), (2, 1)], vec![(1, 2)]]
        );
    }
}
