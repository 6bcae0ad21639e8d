//! What a request names more than once is answered once, as Kafka does: the answer to a name may be a thousand times as
//! long as the name.

use std::collections::HashSet;
use std::hash::Hash;

/// What is asked for, each thing once, where it stands first.
pub(super) fn once<T, K: Eq + Hash>(mut asked: Vec<T>, key: impl Fn(&T) -> K) -> Vec<T> {
    let mut seen = HashSet::with_capacity(asked.len());
    asked.retain(|one| seen.insert(key(one)));
    asked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_again_is_left_out_and_the_order_stays() {
        let asked = vec![("b", 1), ("a", 2), ("b", 3), ("c", 4), ("a", 5)];
        let kept = once(asked, |(name, _)| *name);
        assert_eq!(kept, [("b", 1), ("a", 2), ("c", 4)]);
    }
}
