//! Close matches of a misspelt name.

/// How many close matches are shown at most.
const MATCHES_MAX: usize = 3;

/// The names that a person who typed `typed` may have meant, best first, at most three.
/// Swapped, missing and doubled letters count once each; a name further away than a third of its
/// length is no match, and a name that merely begins with what was typed is one.
#[must_use]
pub fn close_matches<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let typed = typed.to_lowercase();
    let mut scored: Vec<(usize, &str)> = names
        .into_iter()
        .filter_map(|name| {
            let lower = name.to_lowercase();
            let distance = strsim::damerau_levenshtein(&typed, &lower);
            let allowed = typed.chars().count().max(lower.chars().count()).div_ceil(3);
            let begins = typed.len() >= 3 && lower.starts_with(&typed);
            (distance <= allowed || begins).then_some((distance, name))
        })
        .collect();
    scored.sort();
    scored.dedup();
    scored
        .into_iter()
        .take(MATCHES_MAX)
        .map(|(_, name)| name.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_finds_the_right_one_first() {
        let names = ["orders", "orders-archive", "payments", "odors"];
        assert_eq!(
            close_matches("ordrs", names).first().map(String::as_str),
            Some("orders")
        );
        assert_eq!(
            close_matches("oredrs", names).first().map(String::as_str),
            Some("orders")
        );
        assert_eq!(
            close_matches("ORDERS", names).first().map(String::as_str),
            Some("orders")
        );
        assert_eq!(close_matches("payment", names), ["payments"]);
    }

    #[test]
    fn a_name_far_from_all_others_has_no_match() {
        assert!(close_matches("telemetry", ["orders", "payments"]).is_empty());
        assert!(close_matches("x", ["orders"]).is_empty());
        assert!(close_matches("orders", []).is_empty());
    }

    #[test]
    fn the_beginning_of_a_long_name_is_a_match() {
        assert_eq!(
            close_matches("ord", ["orders-of-the-day"]),
            ["orders-of-the-day"]
        );
    }

    #[test]
    fn at_most_three_matches_are_shown() {
        let names = ["order1", "order2", "order3", "order4", "order5"];
        assert_eq!(close_matches("order", names).len(), 3);
    }
}
