//! A sample of seeds in every mode, in which no promise may be broken.

use felix_sim::campaign::Campaign;
use felix_sim::{Mode, Plan, run_twice};

#[test]
fn no_promise_is_broken_in_a_sample_of_seeds() {
    let summary = Campaign {
        crashes: 750,
        seed: 1_000_000,
        modes: Mode::ALL.to_vec(),
    }
    .run(&mut Vec::new());
    assert!(summary.broken.is_none(), "{summary}");
    let total = summary.total();
    assert!(total.runs >= 100, "{summary}");
    assert!(total.acked > 10_000, "{summary}");
    assert!(total.torn.0 > 20, "{summary}");
    assert!(total.duplicates > 100, "{summary}");
    assert!(total.pages > 100, "{summary}");
    assert!(!total.in_recovery.is_empty(), "{summary}");
    let lost = |mode| {
        let tallies = summary.tallies.iter().filter(|(known, _)| *known == mode);
        tallies.map(|(_, tally)| tally.lost_acked).sum::<u64>()
    };
    assert_eq!(lost(Mode::OnCommit), 0);
    assert!(
        lost(Mode::None) > 0,
        "power cuts take nothing, so the disk forgets nothing: {summary}"
    );
}

#[test]
fn a_seed_has_one_transcript() {
    for mode in Mode::ALL {
        let first = run_twice(Plan::of(77, mode));
        assert_eq!(first.violations, []);
        assert_eq!(first.hash, run_twice(Plan::of(77, mode)).hash);
        assert_ne!(first.hash, run_twice(Plan::of(78, mode)).hash);
    }
}
