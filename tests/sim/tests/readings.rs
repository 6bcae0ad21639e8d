//! Caches, counters, groups, commits and groups of the Kafka protocol: a sample of seeds, and the brokers that are broken on purpose.

use std::collections::BTreeSet;

use felix_sim::readings::{Campaign, Kind, Plan, Twin, run};
use felix_sim::{Check, Mode};

#[test]
fn no_rule_is_broken_in_a_sample_of_seeds() {
    let summary = Campaign {
        seeds: 40,
        seed: 1_000_000,
        kinds: Kind::ALL.to_vec(),
    }
    .run(&mut Vec::new());
    assert!(summary.broken.is_none(), "{summary}");
    for ((kind, mode), tally) in &summary.tallies {
        assert!(tally.acked > 500, "{kind} {mode}: {summary}");
        assert!(tally.crashes() > 50, "{kind} {mode}: {summary}");
    }
    let torn = |mode| {
        let those = summary.tallies.iter().filter(|((_, of), _)| *of == mode);
        those.map(|(_, tally)| tally.torn.0).sum::<u64>()
    };
    assert!(torn(Mode::OnCommit) > 0, "{summary}");
}

/// Which reading a twin is of, and which check has to catch it.
fn caught_by(twin: Twin) -> (Kind, Check) {
    match twin {
        Twin::StaleRead
        | Twin::ForgetLast
        | Twin::IgnoreCondition
        | Twin::IgnoreExpiry
        | Twin::AddAgain => (Kind::Cache, Check::Linear),
        Twin::DropAck
        | Twin::SkipRecord
        | Twin::FreshAttempts
        | Twin::BackToFront
        | Twin::EarlyLapse => (Kind::Groups, Check::Group),
        Twin::StateOnly | Twin::EventOnly | Twin::CommitAgain => (Kind::Commits, Check::Atomic),
        Twin::CommitBeforeLog
        | Twin::ForgetGeneration
        | Twin::TwoOwners
        | Twin::ForgetMembers
        | Twin::EarlyHandover => (Kind::Teams, Check::Team),
    }
}

/// What is said of a twin must name what is wrong with it.
fn words(twin: Twin) -> &'static [&'static str] {
    match twin {
        Twin::StaleRead | Twin::ForgetLast | Twin::IgnoreCondition | Twin::IgnoreExpiry => {
            &["key", "no order of the calls explains"]
        }
        Twin::AddAgain => &["counter", "no order of the calls explains"],
        Twin::DropAck => &["was acknowledged and came again"],
        Twin::SkipRecord => &["was skipped"],
        Twin::FreshAttempts => &["came with attempt 1 after"],
        Twin::BackToFront => &["came for the first time after"],
        Twin::EarlyLapse => &["had it"],
        Twin::StateOnly | Twin::EventOnly => &["was read as"],
        Twin::CommitAgain => &["and again at"],
        Twin::CommitBeforeLog => &["was acknowledged"],
        Twin::ForgetGeneration => &["after a restart"],
        Twin::TwoOwners => &["gives partition 0 to"],
        Twin::ForgetMembers | Twin::EarlyHandover => &["has not given it back"],
    }
}

#[test]
fn every_broken_broker_is_caught_by_its_checker_and_for_what_it_does() {
    for twin in Twin::ALL {
        let (kind, check) = caught_by(twin);
        let mut fired = BTreeSet::new();
        let caught = (0..200).any(|seed| {
            let mut plan = Plan::of(seed, kind, Mode::OnCommit);
            plan.twin = Some(twin);
            let found = run(plan).violations;
            fired.extend(found.iter().map(|violation| violation.what.clone()));
            found.iter().any(|violation| {
                violation.check == check
                    && words(twin).iter().all(|word| violation.what.contains(word))
            })
        });
        assert!(caught, "{twin:?} is not caught, only {fired:?}");
    }
}

#[test]
fn a_seed_has_one_transcript() {
    for kind in Kind::ALL {
        let hash = |seed| run(Plan::of(seed, kind, Mode::OnCommit)).hash;
        assert_eq!(hash(77), hash(77));
        assert_ne!(hash(77), hash(78));
    }
}
