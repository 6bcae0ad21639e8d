//! The contract on a real server, and what a server does beside it.

use std::cell::Cell;

use super::super::contract::{Stand, append, keeps, promises, read_all, wait};
use super::test_server::TestServer;
use super::*;
use crate::config::Secret;

/// A database of a server that several tests share.
struct Database<'a> {
    server: &'a TestServer,
    name: String,
    made: Cell<bool>,
}

impl Stand for Database<'_> {
    fn open(&self) -> Box<dyn Ledger> {
        if !self.made.replace(true) {
            self.server.database(&self.name);
        }
        Box::new(open(&self.server.url(&self.name)))
    }

    fn several(&self) -> bool {
        true
    }
}

#[test]
fn every_promise_is_kept() {
    let Some(server) = TestServer::start() else {
        return;
    };
    for (number, (name, promise)) in promises().into_iter().enumerate() {
        eprintln!("{name}");
        let database = Database {
            server: &server,
            name: format!("promise{number}"),
            made: Cell::new(false),
        };
        keeps(&database, promise);
    }
    let left = server.sql("promise1", "SELECT count(*) FROM felix_ledger_record");
    assert_eq!(left, "3");
}

#[test]
fn a_server_that_is_killed_and_comes_back_lost_nothing_that_was_answered() {
    let Some(mut server) = TestServer::start() else {
        return;
    };
    let ledger = open(&server.database("felix"));
    append(&ledger, 0, &["a", "b"]);
    server.kill();
    let refused = ledger.append(Revision(2), &[Bytes::from("c")]);
    let is_open = |refused: &Result<(), AppendRefused>| {
        matches!(
            refused,
            Err(AppendRefused::Unconfirmed(_) | AppendRefused::Unreachable(_))
        )
    };
    assert!(is_open(&refused), "{refused:?}");
    assert!(ledger.confirm().is_err());
    until(&ledger, |standing| !standing.ready);
    server.resume();
    until(&ledger, |standing| standing.ready);
    // Whether it was added was not known, and now it is.
    let found = ledger.confirm().unwrap();
    assert_eq!(found, Revision(2));
    append(&ledger, 2, &["c"]);
    assert_eq!(read_all(&ledger, 0), ["a", "b", "c"]);
}

#[test]
fn an_append_during_an_outage_is_answered_once_the_server_is_back() {
    let Some(mut server) = TestServer::start() else {
        return;
    };
    let ledger = Arc::new(open(&server.database("felix")));
    append(&*ledger, 0, &["a"]);
    server.kill();
    let writer = Arc::clone(&ledger);
    // The kept connection is dead, which only the answer that does not come tells.
    let writing = std::thread::spawn(move || writer.append(Revision(1), &[Bytes::from("b")]));
    server.resume();
    assert_eq!(writing.join().unwrap(), Ok(()));
    assert_eq!(read_all(&*ledger, 0), ["a", "b"]);
}

#[test]
fn an_append_whose_answer_was_lost_is_there_once_and_known_to_be() {
    let Some(server) = TestServer::start() else {
        return;
    };
    let url = server.database("felix");
    let ledger = open(&url);
    append(&ledger, 0, &["a"]);
    let batch = Batch::new(&ledger.core.tip(), &[Bytes::from("b")]).unwrap();
    let settled = ledger
        .block_on(async {
            let mut writing = ledger.writing.lock().await;
            // It is committed, and whoever asked for it never hears of it.
            let mut connection = ledger.core.connect().await.unwrap();
            let inserted = rows::insert(&mut connection, &batch).await.unwrap();
            assert_eq!(inserted, Inserted::All);
            ledger
                .settle(&mut writing, &batch, "the answer was lost".into())
                .await
        })
        .unwrap();
    assert_eq!(settled, Ok(Inserted::All));
    let other = open(&url);
    assert_eq!(read_all(&other, 0), ["a", "b"]);
    // The same records of somebody else are somebody else's.
    let mut stranger = batch;
    stranger.renew();
    let settled = ledger.block_on(async {
        let mut writing = ledger.writing.lock().await;
        ledger
            .settle(&mut writing, &stranger, "the answer was lost".into())
            .await
    });
    assert_eq!(settled, Some(Ok(Inserted::Elsewhere)));
}

#[test]
fn an_append_that_no_standby_has_is_not_answered_although_it_can_be_seen() {
    let Some(server) = TestServer::start() else {
        return;
    };
    let url = server.database("felix");
    let (ledger, other) = (Arc::new(open(&url)), open(&url));
    append(&*ledger, 0, &["a"]);
    // A standby that is not there.
    server.wait_for_standbys();
    let waiting = || {
        let waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' LIMIT 1";
        server.sql("postgres", waiting)
    };
    let writer = Arc::clone(&ledger);
    let writing = std::thread::spawn(move || writer.append(Revision(1), &[Bytes::from("b")]));
    while waiting().is_empty() {}
    let cut = format!("SELECT pg_terminate_backend({})", waiting());
    assert_eq!(server.sql("postgres", &cut), "t");
    while other.confirm() != Ok(Revision(2)) {}
    // It is there for everybody to see. Whoever asks again waits again.
    while waiting().is_empty() {
        assert!(
            !writing.is_finished(),
            "it was answered, and no standby has it"
        );
    }
    server.sql("postgres", "ALTER SYSTEM RESET synchronous_standby_names");
    server.sql("postgres", "SELECT pg_reload_conf()");
    assert_eq!(writing.join().unwrap(), Ok(()));
    assert_eq!(read_all(&*ledger, 0), ["a", "b"]);
}

#[test]
fn commits_are_durable_however_weakly_the_database_is_set() {
    let Some(server) = TestServer::start() else {
        return;
    };
    let url = server.database("felix");
    let ledger = open(&url);
    for (set, expected) in [
        ("off", "on"),
        ("local", "on"),
        ("remote_write", "on"),
        ("on", "on"),
        ("remote_apply", "remote_apply"),
    ] {
        let alter = format!("ALTER DATABASE felix SET synchronous_commit = {set}");
        server.sql("postgres", &alter);
        let found: String = ledger
            .block_on(async {
                let mut connection = ledger.core.connect().await.unwrap();
                let asked = sqlx::query_scalar("SELECT current_setting('synchronous_commit')");
                asked.fetch_one(&mut connection).await.unwrap()
            })
            .unwrap();
        assert_eq!(found, expected, "{set}");
    }
}

#[test]
fn a_promoted_standby_goes_on_where_the_primary_was_killed() {
    let Some(mut primary) = TestServer::start() else {
        return;
    };
    primary.database("felix");
    let standby = primary.standby();
    primary.wait_for_standbys();
    let hosts = format!("{},{}", standby.host(), primary.host());
    let url = format!("postgres://felix@{hosts}/felix");
    let (ledger, other) = (open(&url), open(&url));
    for at in 0..10 {
        append(&ledger, at, &["x"]);
    }
    primary.kill();
    standby.promote();
    until(&ledger, |standing| standing.ready);
    until(&other, |standing| standing.ready);
    let mut at = ledger.confirm().unwrap();
    assert_eq!(at, Revision(10), "nothing that was answered is lost");
    for writer in [&other, &ledger] {
        assert_eq!(writer.confirm(), Ok(at));
        append(writer, at.0, &["y"]);
        at = at.next();
    }
    assert_eq!(read_all(&other, 0).len(), 12);
}

#[test]
fn a_server_that_lost_records_is_not_written_to() {
    let Some(server) = TestServer::start() else {
        return;
    };
    let url = server.database("felix");
    let (ledger, idle) = (open(&url), open(&url));
    append(&ledger, 0, &["a", "b"]);
    idle.confirm().unwrap();
    // As when a standby that lagged is promoted.
    server.sql(
        "felix",
        "SET session_replication_role = replica; DELETE FROM felix_ledger_record WHERE revision = 2",
    );
    let refused = ledger.append(Revision(2), &[Bytes::from("c")]);
    let words = refused.unwrap_err().to_string();
    assert!(words.contains("does not have record 2"), "{words}");
    assert!(!ledger.standing().ready);
    assert!(idle.confirm().is_err());
    // One that starts now knows of nothing else.
    let fresh = open(&url);
    append(&fresh, 1, &["another"]);
    let refused = idle.append(Revision(2), &[Bytes::from("c")]);
    assert!(matches!(refused, Err(AppendRefused::Failed(_))));
    assert_eq!(read_all(&fresh, 0), ["a", "another"]);
}

#[test]
fn tables_of_a_newer_build_and_of_another_cluster_are_refused_and_left_alone() {
    let Some(server) = TestServer::start() else {
        return;
    };
    let url = server.database("felix");
    append(&open(&url), 0, &["a"]);
    let other = "other".parse().unwrap();
    let refused = PostgresLedger::open(address(&url), &other).unwrap_err();
    assert!(
        matches!(refused, PostgresRefused::OtherCluster { .. }),
        "{refused}"
    );
    server.sql("felix", "UPDATE felix_ledger SET version = 99");
    let refused = PostgresLedger::open(address(&url), &cluster()).unwrap_err();
    assert!(refused.to_string().contains("upgrade"), "{refused}");
    assert_eq!(
        server.sql("felix", "SELECT version FROM felix_ledger"),
        "99"
    );
}

#[test]
fn many_that_start_at_once_make_the_tables_once() {
    let Some(server) = TestServer::start() else {
        return;
    };
    let url = server.database("felix");
    let threads: Vec<_> = (0..6)
        .map(|_| {
            let url = url.clone();
            std::thread::spawn(move || open(&url).revision())
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), Revision(0));
    }
}

#[test]
fn a_server_is_believed_only_with_a_certificate_that_was_said_to_be_good() {
    let Some(mut server) = TestServer::start() else {
        return;
    };
    server.database("felix");
    // An address of this test's own, so that the port is free.
    let id = std::process::id();
    let host = format!(
        "127.{}.{}.{}",
        id % 250,
        id / 250 % 250,
        1 + id / 62_500 % 250
    );
    let [own, other] =
        [(); 2].map(|()| rcgen::generate_simple_self_signed([host.clone()]).unwrap());
    server.encrypt(&host, &own.cert.pem(), &own.signing_key.serialize_pem());
    let dir = tempfile::tempdir().unwrap();
    let url = |name: &str, certificate: &str| {
        let file = dir.path().join(name);
        std::fs::write(&file, certificate).unwrap();
        let file = file.display();
        format!("postgres://felix@{host}:5432/felix?sslmode=verify-full&sslrootcert={file}")
    };
    let ledger = open(&url("own", &own.cert.pem()));
    append(&ledger, 0, &["a"]);
    let plain = format!("postgres://felix@{host}:5432/felix?sslmode=disable");
    for url in [url("other", &other.cert.pem()), plain] {
        let core = Core::new(address(&url), cluster());
        let refused = ledger.block_on(core.connect()).unwrap();
        assert!(refused.is_err(), "{url}");
    }
}

#[test]
fn records_cannot_be_changed_or_removed_by_mistake() {
    let Some(server) = TestServer::start() else {
        return;
    };
    let ledger = open(&server.database("felix"));
    append(&ledger, 0, &["a"]);
    let tries = "DO $$ DECLARE refused int := 0; statement text; BEGIN \
         FOREACH statement IN ARRAY ARRAY['UPDATE felix_ledger_record SET record = ''''', \
             'DELETE FROM felix_ledger_record', 'TRUNCATE felix_ledger_record'] LOOP \
           BEGIN EXECUTE statement; EXCEPTION WHEN raise_exception THEN refused := refused + 1; END; \
         END LOOP; \
         IF refused <> 3 THEN RAISE 'only % were refused', refused USING ERRCODE = 'P0002'; END IF; END $$";
    server.sql("felix", tries);
    assert_eq!(read_all(&ledger, 0), ["a"]);
}

fn open(url: &str) -> PostgresLedger {
    PostgresLedger::open(address(url), &cluster()).unwrap()
}

fn address(url: &str) -> Address {
    Address::parse(&Secret(url.into())).unwrap()
}

fn cluster() -> ClusterId {
    "test".parse().unwrap()
}

/// Waits until the ledger says so, looking again and again.
fn until(ledger: &PostgresLedger, says: impl Fn(&Standing) -> bool) {
    wait::<()>(async {
        while !says(&ledger.standing()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    });
}
