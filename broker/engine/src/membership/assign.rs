//! The sharing out itself: balanced within one, moving as few shards as possible.

use std::cmp::Reverse;

/// Shares shards out among `members` members, of which there must be at least one; without any,
/// nothing is shared out.
///
/// `owners` says for each shard whose it was (an index below `members`), or that it was nobody's.
/// The answer says for each shard whose it is now. Nobody gets more than one shard more than
/// anybody else, and a shard changes hands only when its owner has more than his share, so a member
/// that joins takes at most its own share and a member that leaves causes no move but of what it
/// had. The same input gives the same answer everywhere.
#[must_use]
pub fn balance(members: usize, owners: &[Option<usize>]) -> Vec<Option<usize>> {
    let mut room = shares(members, owners);
    let mut result: Vec<Option<usize>> = owners
        .iter()
        .map(|owner| owner.filter(|&owner| take(&mut room, owner)))
        .collect();
    let mut free = room
        .iter()
        .enumerate()
        .flat_map(|(member, &left)| std::iter::repeat_n(member, left))
        .collect::<Vec<_>>()
        .into_iter();
    for owner in result.iter_mut().filter(|owner| owner.is_none()) {
        *owner = free.next();
    }
    result
}

/// How many shards each member gets. What does not divide evenly goes to those who have the most
/// already, so that it need not move.
fn shares(members: usize, owners: &[Option<usize>]) -> Vec<usize> {
    let (Some(base), Some(mut extra)) = (
        owners.len().checked_div(members),
        owners.len().checked_rem(members),
    ) else {
        return Vec::new();
    };
    let mut had = vec![0_usize; members];
    for owner in owners.iter().flatten() {
        if let Some(count) = had.get_mut(*owner) {
            *count += 1;
        }
    }
    let mut by_most: Vec<usize> = (0..members).collect();
    by_most.sort_by_key(|&member| (Reverse(had.get(member).copied()), member));
    let mut shares = vec![base; members];
    for member in by_most {
        if extra > 0
            && let Some(share) = shares.get_mut(member)
        {
            *share += 1;
            extra -= 1;
        }
    }
    shares
}

fn take(room: &mut [usize], member: usize) -> bool {
    match room.get_mut(member) {
        Some(left) if *left > 0 => {
            *left -= 1;
            true
        }
        Some(_) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_first_member_gets_everything_and_a_second_takes_half() {
        let alone = balance(1, &[None; 5]);
        assert_eq!(alone, vec![Some(0); 5]);
        let two = balance(2, &alone);
        assert_eq!(two, [Some(0), Some(0), Some(0), Some(1), Some(1)]);
    }

    #[test]
    fn nothing_is_shared_out_among_nobody() {
        assert_eq!(balance(0, &[None, Some(3)]), [None, None]);
    }

    fn owners() -> impl Strategy<Value = (usize, Vec<Option<usize>>)> {
        (1_usize..12).prop_flat_map(|members| {
            let owner = proptest::option::of(0..members + 2);
            (Just(members), proptest::collection::vec(owner, 0..64))
        })
    }

    fn counts(members: usize, owners: &[Option<usize>]) -> Vec<usize> {
        (0..members)
            .map(|member| {
                owners
                    .iter()
                    .filter(|owner| **owner == Some(member))
                    .count()
            })
            .collect()
    }

    proptest! {
        #[test]
        fn every_shard_has_an_owner_and_the_shares_differ_by_at_most_one(
            (members, owners) in owners()
        ) {
            let shared = balance(members, &owners);
            prop_assert!(shared.iter().all(|owner| owner.is_some_and(|owner| owner < members)));
            let counts = counts(members, &shared);
            let spread = counts.iter().max().unwrap() - counts.iter().min().unwrap();
            prop_assert!(spread <= 1, "{counts:?}");
        }

        #[test]
        fn what_is_balanced_already_does_not_move((members, owners) in owners()) {
            let once = balance(members, &owners);
            prop_assert_eq!(&balance(members, &once), &once);
        }

        #[test]
        fn no_fewer_shards_could_have_moved((members, owners) in owners()) {
            let shared = balance(members, &owners);
            let owners: Vec<_> =
                owners.iter().map(|owner| owner.filter(|owner| *owner < members)).collect();
            let kept = owners.iter().zip(&shared).filter(|(old, new)| old.is_some() && old == new);
            // The most that can stay: each keeps up to the base share, and as many as do not
            // divide evenly keep one more if they have one more.
            let (base, extra) = (owners.len() / members, owners.len() % members);
            let had = counts(members, &owners);
            let most: usize = had.iter().map(|&had| had.min(base)).sum::<usize>()
                + had.iter().filter(|&&had| had > base).count().min(extra);
            prop_assert_eq!(kept.count(), most);
        }

        #[test]
        fn a_member_that_joins_takes_its_share_and_nothing_else_moves(
            shards in 0_usize..64, members in 1_usize..12
        ) {
            let before = balance(members, &vec![None; shards]);
            let after = balance(members + 1, &before);
            let moved: Vec<_> =
                before.iter().zip(&after).filter(|(old, new)| old != new).map(|(_, new)| *new).collect();
            prop_assert!(moved.iter().all(|new| *new == Some(members)));
            prop_assert!(moved.len() <= shards.div_ceil(members + 1));
        }
    }
}
