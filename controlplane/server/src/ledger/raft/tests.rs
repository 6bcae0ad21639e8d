//! The contract over raft with one member and with three, and what is raft's own.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use felix_journal::{RealDisk, SimDisk};
use felix_meta::Revision;
use tokio::sync::watch;

use super::*;
use crate::ledger::contract::{Stand, append, keeps, ledger_contract, read_all};
use crate::ledger::{AppendRefused, ConfirmFailed, Ledger, ReadFailed, Standing};

struct One(tempfile::TempDir);

impl Stand for One {
    fn open(&self) -> Box<dyn Ledger> {
        Box::new(alone(Arc::new(RealDisk), self.0.path()))
    }

    fn several(&self) -> bool {
        false
    }
}

mod one_member {
    use super::*;

    ledger_contract!(One(tempfile::tempdir().unwrap()));
}

mod three_members {
    use super::*;

    ledger_contract!(Three::new());
}

#[test]
fn a_power_cut_takes_nothing_that_an_append_of_a_lone_member_returned() {
    for seed in 0..20 {
        let disk = Arc::new(SimDisk::new(seed));
        let dir = Path::new("/data");
        let ledger = alone(Arc::clone(&disk) as _, dir);
        let records: Vec<String> = (0..seed).map(|n| format!("record {n}")).collect();
        for (n, record) in records.iter().enumerate() {
            append(&ledger, n as u64, &[record]);
        }
        // The disk dies first: nothing that ends in order can help.
        disk.power_cut(seed);
        drop(ledger);
        let ledger = alone(disk as _, dir);
        assert_eq!(read_all(&ledger, 0), records, "seed {seed}");
    }
}

#[test]
fn a_full_disk_refuses_with_its_own_word_and_recovers_by_itself() {
    let disk = Arc::new(SimDisk::new(1));
    let ledger = alone(Arc::clone(&disk) as _, Path::new("/data"));
    append(&ledger, 0, &["a"]);
    disk.full(0);
    let refused = ledger.append(Revision(1), &[Bytes::from_static(b"x")]);
    assert_eq!(refused, Err(AppendRefused::Full));
    disk.full(u64::MAX);
    append(&ledger, 1, &["b"]);
    assert_eq!(read_all(&ledger, 0), ["a", "b"]);
}

#[test]
fn a_directory_of_another_member_or_cluster_is_refused_with_both_names() {
    let dir = tempfile::tempdir().unwrap();
    drop(alone(Arc::new(RealDisk), dir.path()));
    let other = MemberOptions {
        member: 2,
        ..options(1, BTreeMap::new(), false)
    };
    let refused = RaftLedger::open_in(Arc::new(RealDisk), dir.path(), None, other, None);
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.ends_with("belongs to member 1 of cluster test, not to member 2 of cluster test"),
        "{refused}"
    );
}

#[test]
fn a_directory_of_which_a_part_is_missing_is_refused() {
    for part in ["vote.json", "log.json"] {
        let dir = tempfile::tempdir().unwrap();
        let ledger = alone(Arc::new(RealDisk), dir.path());
        append(&ledger, 0, &["a"]);
        drop(ledger);
        std::fs::remove_file(dir.path().join(RAFT).join(part)).unwrap();
        let again = RaftLedger::open_in(
            Arc::new(RealDisk),
            dir.path(),
            None,
            options(1, BTreeMap::new(), false),
            None,
        );
        let refused = again.unwrap_err().to_string();
        assert!(refused.contains(part), "{refused}");
    }
}

#[test]
fn a_member_whose_disk_forgot_is_refused_at_every_start_and_not_only_at_the_first() {
    let disk = Arc::new(SimDisk::new(1));
    let dir = Path::new("/data");
    let ledger = alone(Arc::clone(&disk) as _, dir);
    append(&ledger, 0, &["a"]);
    append(&ledger, 1, &["acknowledged"]);
    drop(ledger);
    crate::ledger::disk::tests::rot(&disk, &dir.join(RAFT).join("log-0"));
    for _ in 0..3 {
        let start = RaftLedger::open_in(
            Arc::clone(&disk) as _,
            dir,
            None,
            options(1, BTreeMap::new(), false),
            None,
        );
        let refused = start.unwrap_err().to_string();
        assert!(refused.contains("forgotten what it promised"), "{refused}");
    }
}

#[test]
fn a_stopped_member_claims_no_leadership_and_confirms_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = alone(Arc::new(RealDisk), dir.path());
    append(&ledger, 0, &["a"]);
    assert!(ledger.standing().leads);
    let core = Arc::clone(ledger.core());
    drop(ledger);
    assert!(!core.leads());
    assert_eq!(core.leader(), None);
    assert!(core.why_not().is_some());
}

#[test]
fn a_lone_member_lets_go_of_its_raft_log_and_keeps_every_record() {
    let dir = tempfile::tempdir().unwrap();
    let small = || MemberOptions {
        layout: Layout {
            segment_bytes: 2048,
            snapshot_entries: 20,
            keep_entries: 5,
        },
        ..options(1, BTreeMap::new(), false)
    };
    let open = || RaftLedger::open_in(Arc::new(RealDisk), dir.path(), None, small(), None).unwrap();
    let ledger = open();
    let records: Vec<String> = (0..300).map(|n| format!("record {n}")).collect();
    for (n, record) in records.iter().enumerate() {
        append(&ledger, n as u64, &[record]);
    }
    drop(ledger);
    let ledger = open();
    assert_eq!(read_all(&ledger, 0), records);
    append(&ledger, 300, &["more"]);
    drop(ledger);
    let log: u64 = std::fs::read_dir(dir.path().join(RAFT).join("log-0"))
        .unwrap()
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    assert!(log < 20_000, "the raft log still has {log} bytes");
}

#[test]
fn a_few_large_records_are_written_down_before_a_start_has_to_hold_them_all() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = alone(Arc::new(RealDisk), dir.path());
    let large = Bytes::from(vec![7; 4 * 1024 * 1024]);
    for at in 0..10 {
        ledger
            .append(Revision(at), std::slice::from_ref(&large))
            .unwrap();
    }
    let begun = std::time::Instant::now();
    while ledger.core().metrics().snapshot.is_none() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "nothing is written down"
        );
        std::thread::yield_now();
    }
}

/// Three members in one process, over disks in memory.
struct Three {
    ledgers: Vec<Arc<RaftLedger>>,
    opened: Mutex<usize>,
}

impl Three {
    fn new() -> Self {
        let wires = Wires::default();
        let peers: BTreeMap<u64, String> = (1..=3)
            .map(|member| (member, format!("member-{member}:1")))
            .collect();
        let ledgers: Vec<Arc<RaftLedger>> = (1..=3)
            .map(|member| {
                let ledger = RaftLedger::open_in(
                    Arc::new(SimDisk::new(member)),
                    Path::new("/data"),
                    None,
                    options(member, peers.clone(), true),
                    Some(Arc::new(wires.clone())),
                )
                .unwrap();
                wires
                    .0
                    .lock()
                    .unwrap()
                    .insert(member, Arc::downgrade(ledger.core()));
                Arc::new(ledger)
            })
            .collect();
        for ledger in &ledgers {
            while ledger.confirm().is_err() {}
        }
        Self {
            ledgers,
            opened: Mutex::new(0),
        }
    }
}

impl Stand for Three {
    fn open(&self) -> Box<dyn Ledger> {
        // The first three are three members; what is opened after that is the first of them again.
        let mut opened = self.opened.lock().unwrap();
        let ledger = Arc::clone(self.ledgers.get(*opened).unwrap_or(&self.ledgers[0]));
        *opened += 1;
        Box::new(Shared(ledger, Arc::clone(&self.ledgers[0])))
    }

    fn several(&self) -> bool {
        true
    }
}

/// One of the members, and the one that keeps snapshots: each keeps its own, and a test that opens a ledger again means
/// one member.
#[derive(Debug)]
struct Shared(Arc<RaftLedger>, Arc<RaftLedger>);

impl Ledger for Shared {
    fn revision(&self) -> Revision {
        self.0.revision()
    }

    fn watch(&self) -> watch::Receiver<Revision> {
        self.0.watch()
    }

    fn append(&self, expected: Revision, records: &[Bytes]) -> Result<(), AppendRefused> {
        self.0.append(expected, records)
    }

    fn read_after(&self, after: Revision, bytes_max: usize) -> Result<Vec<Bytes>, ReadFailed> {
        self.0.read_after(after, bytes_max)
    }

    fn confirm(&self) -> Result<Revision, ConfirmFailed> {
        self.0.confirm()
    }

    fn keep_snapshot(&self, at: Revision, state: &[u8]) -> Result<(), ReadFailed> {
        self.1.keep_snapshot(at, state)
    }

    fn snapshot(&self) -> Result<Option<(Revision, Vec<u8>)>, ReadFailed> {
        self.1.snapshot()
    }

    fn standing(&self) -> Standing {
        self.0.standing()
    }

    fn close(self: Box<Self>) {}
}

/// Calls from member to member inside one process.
#[derive(Clone, Debug, Default)]
struct Wires(Arc<Mutex<BTreeMap<u64, Weak<Core>>>>);

impl Transport for Wires {
    fn call(&self, to: &Peer, message: Bytes, deadline: Duration) -> Calling<'_> {
        let member = to.member;
        let core = self.0.lock().unwrap().get(&member).and_then(Weak::upgrade);
        Box::pin(async move {
            let core = core.ok_or_else(|| CallFailed::Unreachable {
                member,
                detail: "it is not there".into(),
            })?;
            tokio::time::timeout(deadline, core.answer(None, message))
                .await
                .map_err(|_| CallFailed::Lost {
                    member,
                    detail: "it took too long".into(),
                })
        })
    }
}

fn options(member: u64, peers: BTreeMap<u64, String>, forms: bool) -> MemberOptions {
    MemberOptions {
        cluster: "test".parse().unwrap(),
        member,
        peers,
        forms,
        timing: Timing::default(),
        layout: Layout::default(),
        draw: Arc::new(|| {
            let mut bytes = [0; 8];
            getrandom::fill(&mut bytes).unwrap();
            u64::from_le_bytes(bytes)
        }),
    }
}

fn alone(disk: Arc<dyn felix_journal::Disk>, dir: &Path) -> RaftLedger {
    RaftLedger::open_in(disk, dir, None, options(1, BTreeMap::new(), false), None).unwrap()
}
