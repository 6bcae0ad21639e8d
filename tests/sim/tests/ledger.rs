//! A sample of seeds of the raft ledger, and ledgers that are broken on purpose.

use std::collections::BTreeSet;

use felix_sim::ledger::{Campaign, Check, Plan, Twin, run, run_twice};

#[test]
fn three_members_keep_every_promise_under_a_sample_of_seeds() {
    let campaign = Campaign {
        seeds: 24,
        seed: 1,
        twin: Twin::Sound,
    };
    let summary = campaign.run(&mut std::io::sink());
    assert!(summary.broken.is_none(), "{summary}");
    // A sample in which nothing went wrong shows nothing.
    let tally = summary.tally;
    assert!(
        tally.power_cuts > 10 && tally.wipes > 0 && tally.cuts > 10 && tally.done > 500,
        "{summary}"
    );
}

#[test]
fn one_seed_is_one_run_to_the_last_byte() {
    for seed in [3, 9, 14] {
        let outcome = run_twice(Plan::of(seed));
        assert_eq!(outcome.violations, []);
    }
}

#[test]
fn a_leader_that_was_restarted_confirms_nothing_older_than_what_it_acknowledged() {
    // The seed with which it was found that openraft resumes leadership with an older read index.
    assert_eq!(run(Plan::of(9)).violations, []);
}

#[test]
fn an_acknowledgement_before_the_flush_is_caught() {
    is_caught(
        Twin::AckBeforeFlush,
        &[Check::Durable, Check::Agreement, Check::Confirmed],
    );
}

#[test]
fn a_wiped_voter_that_votes_and_counts_at_once_is_caught() {
    is_caught(
        Twin::WipedVotes,
        &[
            Check::Durable,
            Check::Agreement,
            Check::Confirmed,
            Check::Running,
        ],
    );
}

#[test]
fn a_confirmed_read_from_what_a_follower_has_is_caught() {
    is_caught(Twin::ConfirmFromLocal, &[Check::Confirmed]);
}

/// Whether some seed shows the twin for what it is, by one of these checks.
fn is_caught(twin: Twin, by: &[Check]) {
    let mut fired = BTreeSet::new();
    for seed in 1..200 {
        let outcome = run(Plan::of(seed).broken(twin));
        fired.extend(outcome.violations.iter().map(|violation| violation.check));
        if by.iter().any(|check| fired.contains(check)) {
            return;
        }
    }
    panic!("{twin:?} is not caught by {by:?}, only by {fired:?}");
}
