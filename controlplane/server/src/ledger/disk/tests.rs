//! The contract on a disk, and what a disk does beside it.

use std::path::Path;

use felix_journal::disk::{Call, CallKind, Fault};
use felix_journal::{RealDisk, SimDisk};

use super::super::contract::{Stand, append, keeps, ledger_contract, read_all};
use super::*;

struct Directory(tempfile::TempDir);

impl Stand for Directory {
    fn open(&self) -> Box<dyn Ledger> {
        Box::new(open(Arc::new(RealDisk), self.0.path()))
    }

    fn several(&self) -> bool {
        false
    }
}

ledger_contract!(Directory(tempfile::tempdir().unwrap()));

#[test]
fn a_power_cut_takes_nothing_that_an_append_returned() {
    for seed in 0..50 {
        let disk = Arc::new(SimDisk::new(seed));
        let dir = Path::new("/data");
        let ledger = open(Arc::clone(&disk) as _, dir);
        let records: Vec<String> = (0..seed).map(|n| format!("record {n}")).collect();
        for (n, record) in records.iter().enumerate() {
            append(&ledger, n as u64, &[record]);
        }
        drop(ledger);
        disk.power_cut(seed);
        let ledger = open(disk as _, dir);
        assert_eq!(read_all(&ledger, 0), records, "seed {seed}");
    }
}

/// A ledger whose last record was acknowledged and has rotted since.
fn rotten(dir: &Path) -> Arc<SimDisk> {
    let disk = Arc::new(SimDisk::new(1));
    let ledger = open(Arc::clone(&disk) as _, dir);
    append(&ledger, 0, &["a"]);
    append(&ledger, 1, &["acknowledged"]);
    drop(ledger);
    rot(&disk, &dir.join("ledger"));
    disk
}

#[test]
fn an_end_that_rotted_is_missed_at_every_start_until_somebody_decides() {
    let dir = Path::new("/data");
    let disk = rotten(dir);
    let start = || {
        let (cluster, node) = ("test".parse().unwrap(), "node".parse().unwrap());
        let data_dir = DataDir::open(&*disk, dir, &cluster, &node).unwrap();
        DiskLedger::open(Arc::clone(&disk) as _, data_dir)
    };
    for _ in 0..3 {
        let refused = start().map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains("Restore a backup"), "{refused}");
        assert!(refused.contains("ledger.lost"), "{refused}");
    }
    durable::unlink(&*disk, &dir.join("ledger.lost")).unwrap();
    assert_eq!(read_all(&start().unwrap(), 0), ["a"]);
}

#[test]
fn an_end_that_rotted_is_noted_before_it_is_cut_off() {
    let dir = Path::new("/data");
    let disk = rotten(dir);
    // Whichever call fails, the next start has not forgotten.
    let calls = disk.calls();
    let start = |disk: &Arc<SimDisk>| {
        let (cluster, node) = ("test".parse().unwrap(), "node".parse().unwrap());
        let data_dir = DataDir::open(&**disk, dir, &cluster, &node);
        let data_dir = data_dir.map_err(|why| why.to_string())?;
        let ledger = DiskLedger::open(Arc::clone(disk) as _, data_dir);
        ledger.map(|_| ()).map_err(|why| why.to_string())
    };
    for last in calls.. {
        let disk = Arc::new(disk.fork());
        disk.fail(last, Fault::Io);
        assert!(start(&disk).is_err());
        if disk.calls() <= last {
            assert!(last > calls, "it changed nothing");
            return;
        }
        disk.heal();
        let again = start(&disk).unwrap_err();
        assert!(again.contains("ledger.lost"), "call {last}: {again}");
    }
}

/// Changes one bit of the last batch in a log.
pub(crate) fn rot(disk: &SimDisk, log: &Path) {
    let entries = Disk::list(disk, log).unwrap();
    let names = entries.into_iter().map(|entry| entry.name);
    let newest = names.filter(|name| name.ends_with(".log")).max().unwrap();
    let newest = log.join(newest);
    let end = disk.contents(&newest).unwrap().len() as u64;
    disk.flip(&newest, end - 1, 0).unwrap();
}

#[test]
fn a_failed_sync_ends_all_appends_until_the_ledger_is_opened_again() {
    let disk = Arc::new(SimDisk::new(1));
    let dir = Path::new("/data");
    let ledger = open(Arc::clone(&disk) as _, dir);
    append(&ledger, 0, &["a"]);
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
    let ledger = open(disk as _, dir);
    let held = read_all(&ledger, 0);
    assert_eq!(held.first().map(String::as_str), Some("a"));
    append(&ledger, held.len() as u64, &["c"]);
}

#[test]
fn a_full_disk_refuses_with_its_own_word_and_recovers_by_itself() {
    let disk = Arc::new(SimDisk::new(1));
    let ledger = open(Arc::clone(&disk) as _, Path::new("/data"));
    append(&ledger, 0, &["a"]);
    disk.full(0);
    let record = Bytes::from(vec![b'x'; 1 << 20]);
    assert_eq!(
        ledger.append(Revision(1), &[record]),
        Err(AppendRefused::Full)
    );
    assert_eq!(ledger.revision(), Revision(1));
    disk.full(u64::MAX);
    append(&ledger, 1, &["b"]);
    assert_eq!(read_all(&ledger, 0), ["a", "b"]);
}

fn open(disk: Arc<dyn Disk>, dir: &Path) -> DiskLedger {
    let (cluster, node) = ("test".parse().unwrap(), "node".parse().unwrap());
    let dir = DataDir::open(&*disk, dir, &cluster, &node).unwrap();
    DiskLedger::open(disk, dir).unwrap()
}
