//! What every ledger must do. A new kind of ledger adds one line to `for_every_ledger`.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use felix_journal::disk::{Call, CallKind, Fault};
use felix_journal::{DataDir, Disk, RealDisk, SimDisk};
use felix_meta::Revision;

use super::{AppendRefused, DiskLedger, Ledger, MemoryLedger};

#[test]
fn an_empty_ledger_is_at_revision_0_and_reads_as_nothing() {
    for_every_ledger(|ledger| {
        assert_eq!(ledger.revision(), Revision(0));
        assert_eq!(ledger.read_after(Revision(0), 1 << 20), Ok(vec![]));
        assert_eq!(ledger.snapshot(), Ok(None));
    });
}

#[test]
fn each_record_makes_one_revision_and_reads_back_in_order() {
    for_every_ledger(|ledger| {
        append(ledger, 0, &["a", "b"]);
        append(ledger, 2, &["c"]);
        assert_eq!(ledger.revision(), Revision(3));
        assert_eq!(read_all(ledger, 0), ["a", "b", "c"]);
        assert_eq!(read_all(ledger, 1), ["b", "c"]);
        assert_eq!(read_all(ledger, 3), Vec::<String>::new());
    });
}

#[test]
fn an_append_at_another_revision_is_refused_and_adds_nothing() {
    for_every_ledger(|ledger| {
        append(ledger, 0, &["a"]);
        for expected in [Revision(0), Revision(2)] {
            let raced = AppendRefused::Raced {
                expected,
                found: Revision(1),
            };
            assert_eq!(ledger.append(expected, &[Bytes::from("x")]), Err(raced));
        }
        assert_eq!(read_all(ledger, 0), ["a"]);
    });
}

#[test]
fn an_append_of_nothing_makes_no_revision() {
    for_every_ledger(|ledger| {
        append(ledger, 0, &[]);
        assert_eq!(ledger.revision(), Revision(0));
    });
}

#[test]
fn a_page_holds_at_least_one_record_however_small_it_must_be() {
    for_every_ledger(|ledger| {
        append(ledger, 0, &["a long record", "another"]);
        append(ledger, 2, &["third"]);
        assert!(!ledger.read_after(Revision(0), 1).unwrap().is_empty());
    });
}

#[test]
fn the_snapshot_kept_last_is_the_one_found() {
    for_every_ledger(|ledger| {
        append(ledger, 0, &["a", "b"]);
        ledger.keep_snapshot(Revision(1), br#"{"n":1}"#).unwrap();
        ledger.keep_snapshot(Revision(2), br#"{"n":2}"#).unwrap();
        assert_eq!(
            ledger.snapshot(),
            Ok(Some((Revision(2), br#"{"n":2}"#.to_vec())))
        );
    });
}

#[test]
fn a_disk_ledger_opened_again_holds_what_was_appended() {
    let dir = tempfile::tempdir().unwrap();
    let open = || open(Arc::new(RealDisk), dir.path());
    append(&mut open(), 0, &["a"]);
    append(&mut open(), 1, &["b", "c"]);
    let mut ledger = open();
    ledger.keep_snapshot(Revision(3), b"{}").unwrap();
    drop(ledger);
    assert_eq!(read_all(&open(), 0), ["a", "b", "c"]);
    assert_eq!(open().snapshot(), Ok(Some((Revision(3), b"{}".to_vec()))));
}

#[test]
fn a_power_cut_takes_nothing_that_an_append_returned() {
    for seed in 0..50 {
        let disk = Arc::new(SimDisk::new(seed));
        let dir = Path::new("/data");
        let mut ledger = open(Arc::clone(&disk) as _, dir);
        let records: Vec<String> = (0..seed).map(|n| format!("record {n}")).collect();
        for (n, record) in records.iter().enumerate() {
            append(&mut ledger, n as u64, &[record]);
        }
        drop(ledger);
        disk.power_cut(seed);
        let ledger = open(disk as _, dir);
        assert_eq!(read_all(&ledger, 0), records, "seed {seed}");
    }
}

#[test]
fn a_failed_sync_ends_all_appends_until_the_ledger_is_opened_again() {
    let disk = Arc::new(SimDisk::new(1));
    let dir = Path::new("/data");
    let mut ledger = open(Arc::clone(&disk) as _, dir);
    append(&mut ledger, 0, &["a"]);
    let failing = Arc::clone(&disk);
    disk.set_hook(Some(Arc::new(move |call: &Call| {
        if call.kind == CallKind::Sync {
            failing.fail(call.number, Fault::Io);
        }
    })));
    let refused = ledger.append(Revision(1), &[Bytes::from("lost")]);
    assert!(
        matches!(refused, Err(AppendRefused::Failed(_))),
        "{refused:?}"
    );
    disk.set_hook(None);
    disk.heal();
    let again = ledger.append(Revision(1), &[Bytes::from("b")]);
    assert!(matches!(again, Err(AppendRefused::Failed(_))), "{again:?}");
    drop(ledger);
    disk.power_cut(1);
    let mut ledger = open(disk as _, dir);
    let held = read_all(&ledger, 0);
    assert_eq!(held.first().map(String::as_str), Some("a"));
    append(&mut ledger, held.len() as u64, &["c"]);
}

#[test]
fn a_full_disk_refuses_with_its_own_word_and_recovers_by_itself() {
    let disk = Arc::new(SimDisk::new(1));
    let mut ledger = open(Arc::clone(&disk) as _, Path::new("/data"));
    append(&mut ledger, 0, &["a"]);
    disk.full(0);
    let record = Bytes::from(vec![b'x'; 1 << 20]);
    assert_eq!(
        ledger.append(Revision(1), &[record]),
        Err(AppendRefused::Full)
    );
    assert_eq!(ledger.revision(), Revision(1));
    disk.full(u64::MAX);
    append(&mut ledger, 1, &["b"]);
    assert_eq!(read_all(&ledger, 0), ["a", "b"]);
}

fn for_every_ledger(check: impl Fn(&mut dyn Ledger)) {
    check(&mut MemoryLedger::new());
    let dir = tempfile::tempdir().unwrap();
    check(&mut open(Arc::new(RealDisk), dir.path()));
}

fn open(disk: Arc<dyn Disk>, dir: &Path) -> DiskLedger {
    let (cluster, node) = ("test".parse().unwrap(), "node".parse().unwrap());
    let dir = DataDir::open(&*disk, dir, &cluster, &node).unwrap();
    DiskLedger::open(disk, dir).unwrap()
}

fn append(ledger: &mut dyn Ledger, expected: u64, records: &[&str]) {
    let records: Vec<Bytes> = records
        .iter()
        .map(|record| Bytes::copy_from_slice(record.as_bytes()))
        .collect();
    ledger.append(Revision(expected), &records).unwrap();
}

fn read_all(ledger: &dyn Ledger, after: u64) -> Vec<String> {
    let mut found = Vec::new();
    loop {
        let page = ledger
            .read_after(Revision(after + found.len() as u64), 1 << 20)
            .unwrap();
        if page.is_empty() {
            return found;
        }
        found.extend(
            page.iter()
                .map(|record| String::from_utf8(record.to_vec()).unwrap()),
        );
    }
}
