//! Metadata into files and out of them.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use felix_auth::SigningKey;
use felix_meta::{Command, TenantRecord};
use tempfile::TempDir;

use super::*;

#[test]
fn a_backup_restored_elsewhere_has_every_record_byte_for_byte() {
    let place = Place::new();
    let records = write_some(&place.config("old"));
    let file = place.file("backup");
    let done = backup(&place.config("old"), &file).unwrap();
    assert_eq!(done.revision, Revision(records.len() as u64));
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(restore(&place.config("new"), &file).unwrap(), done);
    assert_eq!(read(&place.config("new")), records);
    // Again is no harm, and goes on where an attempt ended.
    assert_eq!(restore(&place.config("new"), &file).unwrap(), done);
    let half = place.config("half");
    let ledger = place::open(&half, StorageBackend::Disk).unwrap();
    ledger.append(Revision(0), &records[..2]).unwrap();
    ledger.close();
    restore(&half, &file).unwrap();
    assert_eq!(read(&half), records);
}

#[test]
fn a_ledger_that_holds_anything_else_takes_nothing() {
    let place = Place::new();
    write_some(&place.config("old"));
    let file = place.file("backup");
    backup(&place.config("old"), &file).unwrap();
    let other = write_some(&place.config("other"));
    let refused = restore(&place.config("other"), &file).unwrap_err();
    assert!(
        matches!(refused, TransferFailed::NotEmpty { .. }),
        "{refused}"
    );
    assert_eq!(read(&place.config("other")), other);
    // Neither does one that has more.
    let authority = start(&place.config("old"));
    submit(&authority, "more");
    end(authority);
    let longer = read(&place.config("old"));
    let refused = restore(&place.config("old"), &file).unwrap_err();
    assert!(
        matches!(refused, TransferFailed::NotEmpty { .. }),
        "{refused}"
    );
    assert_eq!(read(&place.config("old")), longer);
}

#[test]
fn a_backup_of_another_cluster_is_refused() {
    let place = Place::new();
    write_some(&place.config("old"));
    let file = place.file("backup");
    backup(&place.config("old"), &file).unwrap();
    let mut config = place.config("new");
    config.cluster_id = "another".parse().unwrap();
    let refused = restore(&config, &file).unwrap_err().to_string();
    assert!(
        refused.contains("another") && refused.contains("felix"),
        "{refused}"
    );
    assert!(!config.data_dir.exists(), "nothing was touched");
}

#[test]
fn a_backup_that_was_cut_off_or_changed_anywhere_restores_nothing() {
    let place = Place::new();
    write_some(&place.config("old"));
    let file = place.file("backup");
    backup(&place.config("old"), &file).unwrap();
    let whole = std::fs::read(&file).unwrap();
    let damaged = place.file("damaged");
    let refuses = |bytes: &[u8], what: &str| {
        std::fs::write(&damaged, bytes).unwrap();
        assert!(restore(&place.config("new"), &damaged).is_err(), "{what}");
        assert!(!place.config("new").data_dir.exists(), "{what}");
    };
    for length in (0..whole.len()).step_by(37) {
        refuses(&whole[..length], &format!("cut off at {length}"));
    }
    for at in (0..whole.len()).step_by(11) {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        refuses(&changed, &format!("changed at {at}"));
    }
    let longer = [&whole[..], b"x"].concat();
    refuses(&longer, "one byte longer");
}

#[test]
fn a_backup_replaces_no_file_and_leaves_none_when_it_fails() {
    let place = Place::new();
    write_some(&place.config("old"));
    let file = place.file("backup");
    std::fs::write(&file, "precious").unwrap();
    assert!(backup(&place.config("old"), &file).is_err());
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    assert!(!place.file("backup.partial").exists());
}

#[test]
fn moving_to_where_it_is_already_is_refused() {
    let place = Place::new();
    let refused = migrate(
        &place.config("old"),
        StorageBackend::Disk,
        StorageBackend::Disk,
    );
    assert!(matches!(refused, Err(TransferFailed::Same(_))));
}

#[tokio::test]
async fn a_copy_of_a_running_ledger_is_a_data_directory_that_opens() {
    let place = Place::new();
    let config = place.config("old");
    let records = write_some(&config);
    let authority = start(&config);
    let to = place.config("copy");
    let done = copy_live(&authority, &config.cluster_id, &to.data_dir)
        .await
        .unwrap();
    assert_eq!(done.revision, Revision(records.len() as u64));
    // As `felixctl restore` does it: every batch is checked on the way.
    let from = to.data_dir.join("ledger");
    let disk: std::sync::Arc<dyn felix_journal::Disk> =
        std::sync::Arc::new(felix_journal::RealDisk);
    let end = felix_model::Offset(u64::MAX);
    let restored = felix_journal::backup::restore(&disk, &from, &place.file("log"), end).unwrap();
    assert_eq!(restored.end.0, done.revision.0);
    assert_eq!(read(&to), records);
    let again = copy_live(&authority, &config.cluster_id, &to.data_dir).await;
    assert!(matches!(again, Err(TransferFailed::NotEmpty { .. })));
}

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn config(&self, name: &str) -> Config {
        Config {
            data_dir: self.0.path().join(name),
            storage_backend: Some(StorageBackend::Disk),
            ..Config::default()
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// Some tenants, one of them with a private key, and the records that make them.
fn write_some(config: &Config) -> Vec<Bytes> {
    let authority = start(config);
    let key = SigningKey::generate().unwrap();
    let tenant: felix_model::TenantId = "keyed".parse().unwrap();
    let command = Command::InitializeTenant {
        tenant: record("keyed"),
        key: felix_meta::VerifyingKey {
            kid: key.kid().to_owned(),
            x: key.public().x.clone(),
        },
        policies: vec![],
        groupings: vec![],
        issuers: vec![],
    };
    block_on(authority.submit_with_key(command, &tenant, &key)).unwrap();
    for name in ["a", "b", "c", "d"] {
        submit(&authority, name);
    }
    end(authority);
    let records = read(config);
    assert_eq!(records.len(), 5);
    records
}

fn start(config: &Config) -> Authority {
    Authority::start(place::open(config, config.backend()).unwrap()).unwrap()
}

fn submit(authority: &Authority, tenant: &str) {
    block_on(authority.submit(Command::CreateTenant(record(tenant)))).unwrap();
}

fn end(authority: Authority) {
    block_on(authority.ended());
}

fn record(name: &str) -> TenantRecord {
    TenantRecord {
        tenant_id: name.parse().unwrap(),
        display_name: String::new(),
    }
}

fn read(config: &Config) -> Vec<Bytes> {
    let ledger = place::open(config, config.backend()).unwrap();
    let mut records = Vec::new();
    let newest = ledger.revision();
    for_all(&*ledger, newest, |record| {
        records.push(record.clone());
        Ok(())
    })
    .unwrap();
    ledger.close();
    records
}

fn block_on<T: Send>(what: impl Future<Output = T> + Send) -> T {
    // A thread of its own, because some tests run tasks.
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                tokio::runtime::Builder::new_current_thread()
                    .enable_time()
                    .build()
                    .unwrap()
                    .block_on(what)
            })
            .join()
            .unwrap()
    })
}
