//! What is believed of a damaged log, what is refused, and what an operator can do then.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::PathBuf;
use std::sync::Arc;

use common::{batch, batch_at, dir, expected, open, segments, small, values};
use felix_journal::inspect::{Derived, Verdict, inspect};
use felix_journal::repair::{self, RepairRefused};
use felix_journal::{
    Damage, DamageKind, Disk, Log, LogOptions, OpenRefused, ReadRefused, Recovered, SimDisk,
};
use felix_model::Offset;

/// Forty single batches in small segments, closed in order.
fn sealed() -> SimDisk {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk, small());
    for base in 0..40 {
        log.append(&[batch(base, 1)]).unwrap();
    }
    log.close().unwrap();
    disk
}

fn try_open(disk: &SimDisk, options: LogOptions) -> Result<(Log, Recovered), OpenRefused> {
    Log::open(Arc::new(disk.clone()), &dir(), options)
}

fn refused(disk: &SimDisk) -> Damage {
    match try_open(disk, small()) {
        Err(OpenRefused::Damaged(damage)) => damage,
        other => panic!("{other:?}"),
    }
}

/// Byte at which the batch with this base begins in its segment, and the segment.
fn place_of(disk: &SimDisk, base: u64) -> (PathBuf, u64) {
    let mut file = segments(disk, &dir()).remove(0);
    let mut first = 0;
    for path in segments(disk, &dir()) {
        let name: u64 = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        if name <= base {
            (file, first) = (path, name);
        }
    }
    let position = (first..base).map(|base| batch(base, 1).len() as u64).sum();
    (file, position)
}

#[test]
fn a_durable_end_that_is_gone_between_two_batches_is_told() {
    let disk = sealed();
    let (file, position) = place_of(&disk, 39);
    let whole = disk.contents(&file).unwrap().len() as u64;
    disk.open(&file).unwrap().set_len(position).unwrap();

    let (log, recovered) = try_open(&disk, small()).unwrap();
    assert_eq!(recovered.lost_durable_bytes, whole - position);
    assert_eq!(recovered.truncated_bytes, 0);
    assert!(!recovered.clean);
    assert_eq!(values(&log.reader(), Offset(0)), expected(0..39));
    log.close().unwrap();

    let (_, again) = try_open(&disk, small()).unwrap();
    assert_eq!(again.lost_durable_bytes, 0, "it is told once");
}

/// The table of bit rot: a flipped bit anywhere in a log is refused, cut as a torn end, or of no consequence; it is
/// never read as data.
#[test]
fn a_flipped_bit_is_never_delivered() {
    let disk = sealed();
    let names: Vec<String> = disk
        .list(&dir())
        .unwrap()
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    let (last_file, last_position) = place_of(&disk, 39);
    let mut seen = [0; 3];
    for name in names {
        let path = dir().join(&name);
        let bytes = disk.contents(&path).unwrap().len() as u64;
        for bit in 0..bytes * 8 {
            let rotten = disk.fork();
            rotten.flip(&path, bit / 8, (bit % 8) as u8).unwrap();
            let context = format!("{name} bit {bit}");
            let is_log = name.ends_with(".log");
            match try_open(&rotten, small()) {
                Err(OpenRefused::Damaged(damage)) => {
                    assert!(is_log, "{context}: {damage}");
                    assert_eq!(damage.file, path, "{context}");
                    assert!(damage.position <= bit / 8, "{context}");
                    seen[0] += 1;
                }
                Err(other) => panic!("{context}: {other}"),
                Ok((log, recovered)) if recovered.truncated_bytes > 0 => {
                    assert!(path == last_file && bit / 8 >= last_position, "{context}");
                    assert!(
                        recovered.lost_durable_bytes > 0 && !recovered.clean,
                        "{context}"
                    );
                    assert_eq!(
                        values(&log.reader(), Offset(0)),
                        expected(0..39),
                        "{context}"
                    );
                    seen[1] += 1;
                }
                Ok((log, _)) => {
                    // The generation of the newest batch is under no checksum until its segment is sealed.
                    let single = batch(39, 1).len() as u64;
                    let in_generation = path == last_file && (12..16).contains(&(bit / 8 % single));
                    assert!(!is_log || in_generation, "{context}");
                    assert_eq!(
                        values(&log.reader(), Offset(0)),
                        expected(0..40),
                        "{context}"
                    );
                    seen[2] += 1;
                }
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
}

#[test]
fn damage_with_a_good_batch_after_it_is_refused_by_file_and_position() {
    for base in [0, 5, 20, 37, 38] {
        let disk = sealed();
        let (file, position) = place_of(&disk, base);
        disk.flip(&file, position + 70, 3).unwrap();
        let damage = refused(&disk);
        assert_eq!(
            (&damage.file, damage.position, damage.offset),
            (&file, position, Offset(base))
        );
        assert!(
            damage.to_string().contains("is damaged at byte"),
            "{damage}"
        );
    }
}

#[test]
fn damage_in_an_unclean_log_of_the_same_run_is_refused_too() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk, LogOptions::default());
    for base in 0..20 {
        log.append(&[batch(base, 1)]).unwrap();
    }
    drop(log);
    disk.kill();
    let (file, position) = place_of(&disk, 7);
    disk.flip(&file, position + 65, 0).unwrap();
    let Err(OpenRefused::Damaged(damage)) = try_open(&disk, LogOptions::default()) else {
        panic!()
    };
    assert_eq!(damage.position, position);
}

#[test]
fn a_length_that_reaches_past_the_end_does_not_hide_the_batches_after_it() {
    let disk = sealed();
    let (file, position) = place_of(&disk, 36);
    // The length field of a batch in the newest segment: 16 MiB more than there is.
    disk.flip(&file, position + 8, 0).unwrap();
    let damage = refused(&disk);
    assert_eq!((damage.file, damage.position), (file, position));
}

#[test]
fn a_missing_segment_is_refused() {
    let disk = sealed();
    let files = segments(&disk, &dir());
    assert!(files.len() >= 3);
    let gone = disk.fork();
    gone.unlink(&files[1]).unwrap();
    let damage = refused(&gone);
    assert!(
        matches!(damage.kind, DamageKind::MissingSegment { .. }),
        "{damage}"
    );
    let gone = disk.fork();
    gone.unlink(files.last().unwrap()).unwrap();
    assert!(matches!(
        refused(&gone).kind,
        DamageKind::MissingSegment { .. }
    ));
    for file in &files {
        disk.unlink(file).unwrap();
    }
    assert!(matches!(
        refused(&disk).kind,
        DamageKind::MissingSegment { .. }
    ));
}

#[test]
fn a_log_without_its_mark_opens_by_the_strict_rules() {
    let disk = sealed();
    disk.unlink(&dir().join("durable.mark")).unwrap();
    let (log, recovered) = try_open(&disk, small()).unwrap();
    assert!(!recovered.clean);
    assert_eq!(values(&log.reader(), Offset(0)), expected(0..40));
    drop(log);
    let (_, recovered) = try_open(&disk, small()).unwrap();
    assert!(recovered.clean);
}

#[test]
fn damage_that_appears_while_a_log_is_open_is_refused_at_the_batch_and_not_before() {
    let disk = sealed();
    let (log, _) = open(&disk, small());
    let (file, position) = place_of(&disk, 20);
    disk.flip(&file, position + 75, 1).unwrap();
    let reader = log.reader();
    for offset in (0..20).chain(21..40) {
        assert_eq!(
            reader.read(Offset(offset), 1, Offset(40)).unwrap().batches,
            [batch(offset, 1)]
        );
    }
    let Err(ReadRefused::Damaged(damage)) = reader.read(Offset(20), 1, Offset(40)) else {
        panic!()
    };
    assert_eq!((&damage.file, damage.position), (&file, position));
    let Err(ReadRefused::Damaged(scrubbed)) = reader.scrub(|_| {}) else {
        panic!()
    };
    assert_eq!(scrubbed.position, position);
}

#[test]
fn a_read_error_is_an_error_and_not_damage() {
    let disk = sealed();
    let (log, _) = open(&disk, small());
    disk.fail_reads(&place_of(&disk, 20).0);
    assert!(matches!(
        log.reader().read(Offset(20), 1, Offset(40)),
        Err(ReadRefused::Io(_))
    ));
    assert_eq!(
        log.reader().read(Offset(1), 1, Offset(40)).unwrap().batches,
        [batch(1, 1)]
    );
    disk.heal();
    assert_eq!(
        log.reader()
            .read(Offset(20), 1, Offset(40))
            .unwrap()
            .batches,
        [batch(20, 1)]
    );
}

#[test]
fn a_large_log_is_opened_without_reading_it_all_and_a_full_check_still_finds_the_damage() {
    let disk = sealed();
    let (file, position) = place_of(&disk, 5);
    disk.flip(&file, position + 75, 1).unwrap();
    let quick = LogOptions {
        verify_bytes: 0,
        ..small()
    };
    let (log, recovered) = try_open(&disk, quick).unwrap();
    assert!(recovered.clean);
    assert!(matches!(
        log.reader().scrub(|_| {}),
        Err(ReadRefused::Damaged(_))
    ));
    assert!(
        try_open(
            &disk,
            LogOptions {
                verify_bytes: u64::MAX,
                ..small()
            }
        )
        .is_err()
    );
}

#[test]
fn an_inspection_says_what_an_open_would_do_and_changes_nothing() {
    let disk = sealed();
    let before = disk.calls();
    let clean = inspect(&disk, &dir()).unwrap();
    assert_eq!(
        (clean.verdict, clean.verdict.exit_code()),
        (Verdict::Clean, 0)
    );
    assert_eq!(
        (clean.start, clean.end, clean.records),
        (Offset(0), Offset(40), 40)
    );
    assert_eq!(clean.durable_end, Some(Offset(40)));
    let sealed_well = clean
        .segments
        .iter()
        .rev()
        .skip(1)
        .all(|segment| segment.seal == Derived::Good);
    assert!(sealed_well, "{clean}");

    let torn = disk.fork();
    let (file, position) = place_of(&torn, 39);
    torn.open(&file).unwrap().set_len(position + 30).unwrap();
    let calls = torn.calls();
    let report = inspect(&torn, &dir()).unwrap();
    assert_eq!(torn.calls(), calls);
    assert_eq!(
        (report.verdict, report.verdict.exit_code()),
        (Verdict::WouldRepair, 6)
    );
    let place = report.place.unwrap();
    assert_eq!((place.position, place.offset), (position, Offset(39)));
    assert_eq!(open(&torn, small()).1.truncated_bytes, 30);

    let (file, position) = place_of(&disk, 20);
    disk.flip(&file, position + 75, 1).unwrap();
    let report = inspect(&disk, &dir()).unwrap();
    assert_eq!(
        (report.verdict, report.verdict.exit_code()),
        (Verdict::WouldRefuse, 7)
    );
    assert_eq!(report.place.as_ref().unwrap().position, position);
    let text = report.to_string();
    assert!(
        text.contains("would refuse") && text.contains(&format!("BAD at byte {position}")),
        "{text}"
    );
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(json["verdict"], "would_refuse");
    assert_eq!(json["segments"][0]["index"], "good");
    assert_eq!(disk.calls(), before);
}

/// B18: what was refused can be looked at, cut where the inspection says, or dropped.
#[test]
fn a_refused_log_is_repaired_at_the_place_the_inspection_names_and_nowhere_else() {
    let disk = sealed();
    let (file, position) = place_of(&disk, 20);
    disk.flip(&file, position + 75, 1).unwrap();
    let place = inspect(&disk, &dir()).unwrap().place.unwrap();
    let nearby = repair::cut(&disk, &dir(), place.segment, place.position - 1).unwrap_err();
    assert!(
        matches!(
            nearby,
            RepairRefused::DamagedBefore(_) | RepairRefused::NotABoundary { .. }
        ),
        "{nearby}"
    );
    let beyond = repair::cut(&disk, &dir(), place.segment, place.position + 90).unwrap_err();
    assert!(
        matches!(beyond, RepairRefused::DamagedBefore(_)),
        "{beyond}"
    );
    let unknown = repair::cut(&disk, &dir(), Offset(3), 0).unwrap_err();
    assert_eq!(unknown, RepairRefused::NoSegment { segment: Offset(3) });
    let repaired = repair::cut(&disk, &dir(), place.segment, place.position).unwrap();
    assert_eq!(repaired.end, Offset(20));
    let (mut log, _) = open(&disk, small());
    assert_eq!(values(&log.reader(), Offset(0)), expected(0..20));
    log.append(&[batch(20, 1)]).unwrap();
}

#[test]
fn a_repair_that_is_interrupted_can_be_repeated_or_is_done() {
    let disk = sealed();
    let (file, position) = place_of(&disk, 14);
    disk.flip(&file, position + 75, 1).unwrap();
    let place = inspect(&disk, &dir()).unwrap().place.unwrap();
    for step in 0..40 {
        for seed in 0..4 {
            let disk = disk.fork();
            disk.fail(disk.calls() + step, felix_journal::disk::Fault::Crash);
            let _ = repair::cut(&disk, &dir(), place.segment, place.position);
            disk.power_cut(seed);
            repair::cut(&disk, &dir(), place.segment, place.position).unwrap();
            let (log, _) = open(&disk, small());
            assert_eq!(
                values(&log.reader(), Offset(0)),
                expected(0..14),
                "step {step} seed {seed}"
            );
        }
    }
}

#[test]
fn a_dropped_log_leaves_nothing_however_often_it_is_interrupted() {
    let disk = sealed();
    for step in 0..30 {
        let disk = disk.fork();
        disk.fail(disk.calls() + step, felix_journal::disk::Fault::Crash);
        let _ = repair::drop_log(&disk, &dir());
        disk.power_cut(step);
        repair::drop_log(&disk, &dir()).unwrap();
        assert_eq!(disk.list(dir().parent().unwrap()).unwrap(), []);
    }
}

/// A batch inside a record must not be mistaken for one of the log's own when a torn end is judged after power loss.
#[test]
fn after_power_loss_nothing_past_the_mark_is_a_reason_to_refuse() {
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let (mut log, _) = open(&disk, small());
        log.append(&[batch(0, 1)]).unwrap();
        log.sync().unwrap();
        for base in 1..30 {
            log.append(&[batch_at(base, 1, 0, 300)]).unwrap();
        }
        drop(log);
        disk.power_cut(seed);
        let (log, recovered) = open(&disk, small());
        assert!(recovered.end >= Offset(1));
        assert_eq!(
            values(&log.reader(), Offset(0)),
            expected(0..recovered.end.0)
        );
    }
}
