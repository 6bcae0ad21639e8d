//! Every checker catches the broker that is broken on purpose for it.

use std::collections::BTreeSet;

use felix_sim::{Check, Mode, Plan, Twin, run, run_twice};

/// Whether some seed shows `check` to fire for a broker that is broken like this, in this mode.
fn is_caught(twin: Twin, mode: Mode, check: Check) -> bool {
    let mut fired = BTreeSet::new();
    for seed in 0..150 {
        let plan = Plan::of(seed, mode).broken(twin);
        let outcome = if check == Check::Determinism {
            run_twice(plan)
        } else {
            run(plan)
        };
        fired.extend(outcome.violations.iter().map(|violation| violation.check));
        if fired.contains(&check) {
            return true;
        }
    }
    panic!("{twin:?} is not caught by {check:?} with sync {mode}, only by {fired:?}");
}

#[test]
fn an_acknowledgement_before_the_write_is_caught() {
    for mode in Mode::ALL {
        assert!(is_caught(Twin::AckBeforeWrite, mode, Check::Durable));
    }
}

#[test]
fn a_write_that_is_left_out_is_caught() {
    for mode in Mode::ALL {
        assert!(is_caught(Twin::DropWrite, mode, Check::Durable));
    }
}

#[test]
fn an_offset_that_is_given_away_twice_is_caught() {
    for mode in Mode::ALL {
        assert!(is_caught(Twin::ReuseOffset, mode, Check::Offsets));
    }
}

#[test]
fn a_generation_that_is_used_twice_is_caught() {
    assert!(is_caught(
        Twin::KeepGeneration,
        Mode::Periodic,
        Check::Offsets
    ));
    assert!(is_caught(Twin::KeepGeneration, Mode::None, Check::Offsets));
}

#[test]
fn producers_that_are_forgotten_at_recovery_are_caught() {
    for mode in Mode::ALL {
        assert!(is_caught(Twin::ForgetProducers, mode, Check::Idempotent));
    }
}

#[test]
fn a_reader_that_misses_a_batch_or_gets_one_again_is_caught() {
    for mode in Mode::ALL {
        assert!(is_caught(Twin::JoinSkipsOne, mode, Check::Cursor));
        assert!(is_caught(Twin::RepeatOne, mode, Check::Cursor));
    }
}

#[test]
fn a_byte_that_is_changed_on_its_way_is_caught() {
    assert!(is_caught(Twin::FlipByte, Mode::Periodic, Check::Bytes));
}

#[test]
fn a_disk_that_lies_about_its_syncs_is_caught() {
    assert!(is_caught(Twin::LyingDisk, Mode::OnCommit, Check::Durable));
    assert!(is_caught(Twin::LyingDisk, Mode::Periodic, Check::Durable));
}

#[test]
fn a_broker_that_does_not_start_by_itself_is_caught() {
    for mode in Mode::ALL {
        assert!(is_caught(Twin::RefuseTornTail, mode, Check::Start));
    }
}

#[test]
fn an_answer_that_never_comes_and_a_reader_that_never_wakes_are_caught() {
    assert!(is_caught(
        Twin::SwallowReply,
        Mode::OnCommit,
        Check::Liveness
    ));
    assert!(is_caught(
        Twin::ForgetReader,
        Mode::OnCommit,
        Check::Liveness
    ));
}

#[test]
fn a_condition_that_is_ignored_is_caught() {
    assert!(is_caught(
        Twin::IgnoreCondition,
        Mode::Periodic,
        Check::Conditional
    ));
}

#[test]
fn a_batch_that_was_refused_and_is_in_the_log_is_caught() {
    assert!(is_caught(
        Twin::WriteRefused,
        Mode::OnCommit,
        Check::Refused
    ));
}

#[test]
fn a_choice_that_does_not_come_from_the_seed_is_caught() {
    assert!(is_caught(
        Twin::OutsideChoice,
        Mode::Periodic,
        Check::Determinism
    ));
}
