//! What every ledger must do, run over every kind of them.

use std::sync::{Arc, Barrier};

use bytes::Bytes;
use felix_meta::Revision;

use super::{AppendRefused, Ledger, ReadFailed};

/// Somewhere to keep a ledger.
pub(crate) trait Stand {
    /// A ledger over what this stand keeps. The first call makes an empty one; later calls come while the ones before
    /// are open where [`Stand::several`] says so, and after they are gone otherwise.
    fn open(&self) -> Box<dyn Ledger>;

    /// Whether several may be open at once.
    fn several(&self) -> bool;
}

macro_rules! promises {
    ($($promise:ident)*) => {
        /// Every promise, for a kind of ledger whose stand is dear: a test of all of them in turn.
        pub(crate) fn promises() -> Vec<(&'static str, fn(&dyn Stand))> {
            vec![$((stringify!($promise), $promise as fn(&dyn Stand))),*]
        }

        /// A test of each promise. The argument makes a fresh [`Stand`].
        macro_rules! ledger_contract {
            ($stand:expr) => {
                $(
                    #[test]
                    fn $promise() {
                        keeps(&$stand, $crate::ledger::contract::$promise);
                    }
                )*
            };
        }
    };
}

promises!(
    an_empty_ledger_is_at_revision_0_and_reads_as_nothing
    each_record_makes_one_revision_and_reads_back_in_order
    an_append_at_another_revision_is_refused_and_adds_nothing
    an_append_of_nothing_makes_no_revision
    a_page_holds_at_least_one_record_however_small_it_must_be
    pages_of_any_size_hold_every_record_once
    a_record_of_4_mib_and_any_bytes_reads_back_as_it_was
    the_snapshot_kept_last_is_the_one_found
    an_older_snapshot_does_not_replace_a_newer_one
    a_ledger_opened_again_holds_what_was_appended
    who_follows_is_told_of_every_revision
    what_one_wrote_is_confirmed_and_read_by_another
    of_two_who_append_at_one_revision_exactly_one_wins
    writers_that_race_lose_no_record_and_double_none
);
pub(crate) use ledger_contract;

/// Whether a promise is kept, and every record up to the newest revision is there afterwards.
pub(crate) fn keeps(stand: &dyn Stand, promise: fn(&dyn Stand)) {
    promise(stand);
    let ledger = stand.open();
    let newest = ledger.confirm().unwrap();
    let mut records = 0;
    while let Ok(page) = ledger.read_after(Revision(records), 1 << 20)
        && !page.is_empty()
    {
        records += page.len() as u64;
    }
    assert_eq!(Revision(records), newest);
}

pub(crate) fn an_empty_ledger_is_at_revision_0_and_reads_as_nothing(stand: &dyn Stand) {
    let ledger = stand.open();
    assert_eq!(ledger.revision(), Revision(0));
    assert_eq!(ledger.confirm(), Ok(Revision(0)));
    assert_eq!(ledger.read_after(Revision(0), 1 << 20), Ok(vec![]));
    assert_eq!(ledger.snapshot(), Ok(None));
    let standing = ledger.standing();
    assert!(standing.ready, "{standing:?}");
    ledger.close();
}

pub(crate) fn each_record_makes_one_revision_and_reads_back_in_order(stand: &dyn Stand) {
    let ledger = stand.open();
    append(&*ledger, 0, &["a", "b"]);
    append(&*ledger, 2, &["c"]);
    assert_eq!(ledger.revision(), Revision(3));
    assert_eq!(read_all(&*ledger, 0), ["a", "b", "c"]);
    assert_eq!(read_all(&*ledger, 1), ["b", "c"]);
    assert_eq!(read_all(&*ledger, 3), Vec::<String>::new());
}

pub(crate) fn an_append_at_another_revision_is_refused_and_adds_nothing(stand: &dyn Stand) {
    let ledger = stand.open();
    append(&*ledger, 0, &["a"]);
    let raced = AppendRefused::Raced {
        expected: Revision(0),
        found: Revision(1),
    };
    let refused = ledger.append(Revision(0), &[Bytes::from("x")]);
    assert_eq!(refused, Err(raced));
    // Nobody has seen revision 2, so it is a mistake of the caller or a ledger that lost records.
    let ahead = ledger.append(Revision(2), &[Bytes::from("x")]);
    assert!(ahead.is_err(), "{ahead:?}");
    assert_eq!(read_all(&*ledger, 0), ["a"]);
}

pub(crate) fn an_append_of_nothing_makes_no_revision(stand: &dyn Stand) {
    let ledger = stand.open();
    append(&*ledger, 0, &[]);
    assert_eq!(ledger.revision(), Revision(0));
}

pub(crate) fn a_page_holds_at_least_one_record_however_small_it_must_be(stand: &dyn Stand) {
    let ledger = stand.open();
    append(&*ledger, 0, &["a long record", "another"]);
    append(&*ledger, 2, &["third"]);
    for after in 0..3 {
        let page = ledger.read_after(Revision(after), 1).unwrap();
        assert!(!page.is_empty(), "after {after}");
    }
}

pub(crate) fn pages_of_any_size_hold_every_record_once(stand: &dyn Stand) {
    let ledger = stand.open();
    let records: Vec<String> = (0..100).map(|n| format!("{n}{}", "x".repeat(n))).collect();
    for (at, some) in records.chunks(7).enumerate() {
        let some: Vec<&str> = some.iter().map(String::as_str).collect();
        append(&*ledger, at as u64 * 7, &some);
    }
    for bytes_max in [1, 10, 100, 1000, 100_000] {
        let found = read_pages(&*ledger, 0, bytes_max).unwrap();
        assert_eq!(found, records, "pages of {bytes_max} bytes");
    }
}

pub(crate) fn a_record_of_4_mib_and_any_bytes_reads_back_as_it_was(stand: &dyn Stand) {
    let ledger = stand.open();
    let large: Bytes = (0..4 << 20).map(|n: u32| (n % 251) as u8).collect();
    let odd = Bytes::from_static(&[0, 255, 10, 13, 39, 92, 0]);
    let records = [odd, large, Bytes::from_static(b" ")];
    ledger.append(Revision(0), &records).unwrap();
    let mut found = Vec::new();
    while found.len() < 3 {
        let after = Revision(found.len() as u64);
        let page = ledger.read_after(after, 1 << 20).unwrap();
        assert!(!page.is_empty());
        found.extend(page);
    }
    assert!(found == records, "a record came back changed");
}

pub(crate) fn the_snapshot_kept_last_is_the_one_found(stand: &dyn Stand) {
    let ledger = stand.open();
    append(&*ledger, 0, &["a", "b"]);
    ledger.keep_snapshot(Revision(1), br#"{"n":1}"#).unwrap();
    ledger.keep_snapshot(Revision(2), br#"{"n":2}"#).unwrap();
    let newest = (Revision(2), br#"{"n":2}"#.to_vec());
    assert_eq!(ledger.snapshot(), Ok(Some(newest)));
}

pub(crate) fn an_older_snapshot_does_not_replace_a_newer_one(stand: &dyn Stand) {
    let ledger = stand.open();
    append(&*ledger, 0, &["a", "b"]);
    ledger.keep_snapshot(Revision(2), b"newer").unwrap();
    ledger.keep_snapshot(Revision(1), b"older").unwrap();
    let newest = (Revision(2), b"newer".to_vec());
    assert_eq!(ledger.snapshot(), Ok(Some(newest)));
}

pub(crate) fn a_ledger_opened_again_holds_what_was_appended(stand: &dyn Stand) {
    let ledger = stand.open();
    append(&*ledger, 0, &["a"]);
    ledger.close();
    let ledger = stand.open();
    append(&*ledger, 1, &["b", "c"]);
    ledger.keep_snapshot(Revision(3), b"{}").unwrap();
    // As after a crash.
    drop(ledger);
    let ledger = stand.open();
    assert_eq!(ledger.confirm(), Ok(Revision(3)));
    assert_eq!(read_all(&*ledger, 0), ["a", "b", "c"]);
    assert_eq!(ledger.snapshot(), Ok(Some((Revision(3), b"{}".to_vec()))));
    append(&*ledger, 3, &["d"]);
}

pub(crate) fn who_follows_is_told_of_every_revision(stand: &dyn Stand) {
    let ledger = stand.open();
    let other = stand.several().then(|| stand.open());
    let follower = other.as_deref().unwrap_or(&*ledger);
    let mut moved = follower.watch();
    for at in 0..5 {
        append(&*ledger, at, &["x"]);
        // Told by itself: nobody asks for the newest here.
        wait(async { moved.wait_for(|seen| seen.0 > at).await.map(|_| ()) });
        assert_eq!(read_all(follower, at).len(), 1);
    }
}

pub(crate) fn what_one_wrote_is_confirmed_and_read_by_another(stand: &dyn Stand) {
    let ledger = stand.open();
    let other = stand.several().then(|| stand.open());
    let reader = other.as_deref().unwrap_or(&*ledger);
    for at in 0..20 {
        append(&*ledger, at, &["x"]);
        assert_eq!(reader.confirm(), Ok(Revision(at + 1)));
        assert_eq!(reader.revision(), Revision(at + 1));
        assert_eq!(read_all(reader, at), ["x"]);
    }
}

pub(crate) fn of_two_who_append_at_one_revision_exactly_one_wins(stand: &dyn Stand) {
    let one: Arc<dyn Ledger> = stand.open().into();
    let other: Arc<dyn Ledger> = match stand.several() {
        true => stand.open().into(),
        false => Arc::clone(&one),
    };
    for round in 0..20 {
        let start = Arc::new(Barrier::new(2));
        let threads = [&one, &other].map(|ledger| {
            let (ledger, start) = (Arc::clone(ledger), Arc::clone(&start));
            std::thread::spawn(move || {
                start.wait();
                // Both write the same: who won is not told by what is there.
                ledger.append(Revision(round), &[Bytes::from("same")])
            })
        });
        let outcomes = threads.map(|thread| thread.join().unwrap());
        let won = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        assert_eq!(won, 1, "round {round}: {outcomes:?}");
        let raced = AppendRefused::Raced {
            expected: Revision(round),
            found: Revision(round + 1),
        };
        assert!(outcomes.contains(&Err(raced)), "{outcomes:?}");
        // The loser can read what came, at once.
        assert_eq!(one.revision(), Revision(round + 1));
        assert_eq!(other.revision(), Revision(round + 1));
    }
}

pub(crate) fn writers_that_race_lose_no_record_and_double_none(stand: &dyn Stand) {
    let one: Arc<dyn Ledger> = stand.open().into();
    let other: Arc<dyn Ledger> = match stand.several() {
        true => stand.open().into(),
        false => Arc::clone(&one),
    };
    let threads = [(&one, "a"), (&other, "b")].map(|(ledger, name)| {
        let ledger = Arc::clone(ledger);
        std::thread::spawn(move || {
            for n in 0..30 {
                let records = [format!("{name}{n}"), format!("{name}{n}+")].map(Bytes::from);
                loop {
                    match ledger.append(ledger.revision(), &records) {
                        Ok(()) => break,
                        Err(AppendRefused::Raced { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            }
        })
    });
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(one.confirm(), Ok(Revision(120)));
    let found = read_all(&*one, 0);
    other.confirm().unwrap();
    assert_eq!(found, read_all(&*other, 0));
    for name in ["a", "b"] {
        let own: Vec<&String> = found
            .iter()
            .filter(|found| found.starts_with(name))
            .collect();
        let written: Vec<String> = (0..30)
            .flat_map(|n| [format!("{name}{n}"), format!("{name}{n}+")])
            .collect();
        assert_eq!(own, written.iter().collect::<Vec<_>>());
    }
    // What was appended together stays together.
    for pair in found.chunks(2) {
        assert_eq!(format!("{}+", pair[0]), pair[1]);
    }
}

pub(crate) fn append(ledger: &dyn Ledger, expected: u64, records: &[&str]) {
    let records: Vec<Bytes> = records
        .iter()
        .map(|record| Bytes::copy_from_slice(record.as_bytes()))
        .collect();
    ledger.append(Revision(expected), &records).unwrap();
}

pub(crate) fn read_all(ledger: &dyn Ledger, after: u64) -> Vec<String> {
    read_pages(ledger, after, 1 << 20).unwrap()
}

fn read_pages(
    ledger: &dyn Ledger,
    after: u64,
    bytes_max: usize,
) -> Result<Vec<String>, ReadFailed> {
    let mut found = Vec::new();
    loop {
        let page = ledger.read_after(Revision(after + found.len() as u64), bytes_max)?;
        if page.is_empty() {
            return Ok(found);
        }
        found.extend(
            page.iter()
                .map(|record| String::from_utf8(record.to_vec()).unwrap()),
        );
    }
}

/// Waits on a thread of a test, which runs no tasks.
pub(crate) fn wait<E: std::fmt::Debug>(what: impl Future<Output = Result<(), E>>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime
        .block_on(async { tokio::time::timeout(std::time::Duration::from_secs(30), what).await })
        .expect("it comes within 30 s")
        .unwrap();
}

mod in_memory {
    use super::super::MemoryLedger;
    use super::*;

    struct Memory(MemoryLedger);

    impl Stand for Memory {
        fn open(&self) -> Box<dyn Ledger> {
            Box::new(self.0.clone())
        }

        fn several(&self) -> bool {
            true
        }
    }

    ledger_contract!(Memory(MemoryLedger::new()));
}
