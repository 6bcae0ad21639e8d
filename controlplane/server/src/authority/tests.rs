//! The writer with ledgers that work, fail and are full.

use felix_meta::{Conflict, TenantRecord};

use super::*;
use crate::ledger::MemoryLedger;

#[tokio::test]
async fn what_submit_answered_is_visible_at_once() {
    let authority = start(MemoryLedger::new());
    authority.submit(tenant("t")).await.unwrap();
    assert!(authority.catalogue().tenant("t").is_some());
    assert_eq!(
        authority.history().entries_after(Revision(0)).entries.len(),
        1
    );
}

#[tokio::test]
async fn a_refused_command_changes_nothing() {
    let authority = start(MemoryLedger::new());
    authority.submit(tenant("t")).await.unwrap();
    let refused = authority.submit(tenant("t")).await.unwrap_err();
    let exists = Conflict::TenantExists {
        tenant: "t".parse().unwrap(),
    };
    assert_eq!(refused, WriteFailed::Refused(exists.into()));
    assert_eq!(authority.catalogue().revision(), Revision(1));
}

#[tokio::test]
async fn many_at_once_are_all_carried_out_in_one_order() {
    let authority = start(MemoryLedger::new());
    let tasks: Vec<_> = (0..500)
        .map(|n| {
            let authority = authority.clone();
            tokio::spawn(async move { authority.submit(tenant(&format!("t{n}"))).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(authority.catalogue().revision(), Revision(500));
    assert_eq!(authority.catalogue().tenants().count(), 500);
}

#[tokio::test]
async fn a_ledger_that_fails_shows_nothing_and_answers_nothing_as_done() {
    let authority = start(FailingLedger {
        inner: MemoryLedger::new(),
        allowed: 1,
    });
    authority.submit(tenant("a")).await.unwrap();
    assert!(authority.is_healthy());
    assert_eq!(
        authority.submit(tenant("b")).await,
        Err(WriteFailed::Unconfirmed)
    );
    assert!(!authority.is_healthy());
    assert_eq!(authority.catalogue().revision(), Revision(1));
    assert!(authority.catalogue().tenant("b").is_none());
    assert_eq!(
        authority.history().entries_after(Revision(1)).entries,
        vec![]
    );
}

#[tokio::test]
async fn a_full_disk_refuses_and_recovers_by_itself() {
    let authority = start(FullLedger {
        inner: MemoryLedger::new(),
        refusals: 1,
    });
    assert_eq!(authority.submit(tenant("a")).await, Err(WriteFailed::Full));
    assert!(authority.is_healthy());
    authority.submit(tenant("a")).await.unwrap();
    assert!(authority.catalogue().tenant("a").is_some());
}

#[tokio::test]
async fn private_keys_are_in_the_ledger_and_in_nothing_that_is_shown() {
    let authority = start(MemoryLedger::new());
    let key = SigningKey::generate().unwrap();
    let id: TenantId = "t".parse().unwrap();
    authority
        .submit_with_key(initialize(&id, &key), &id, &key)
        .await
        .unwrap();
    assert_eq!(authority.signing_key(&id).unwrap().kid(), key.kid());
    let shown = serde_json::to_string(&*authority.catalogue()).unwrap()
        + &serde_json::to_string(&authority.history().entries_after(Revision(0))).unwrap()
        + &format!("{authority:?}");
    assert!(shown.contains(key.kid()));
    assert!(!shown.contains(&key.to_secret()));
}

#[test]
fn a_start_from_a_snapshot_holds_what_a_start_from_all_records_holds() {
    let mut ledger = MemoryLedger::new();
    let key = SigningKey::generate().unwrap();
    let id: TenantId = "t".parse().unwrap();
    write(
        &mut ledger,
        &initialize(&id, &key),
        vec![Secret::new(&id, &key)],
    );
    write(&mut ledger, &tenant("a"), vec![]);
    let (all, vault, _) = replay(&mut ledger).unwrap();
    keep_snapshot(&mut ledger, &all, &vault);
    write(&mut ledger, &tenant("b"), vec![]);
    let (catalogue, vault, history) = replay(&mut ledger).unwrap();
    assert_eq!(catalogue.revision(), Revision(3));
    assert_eq!(catalogue.tenants().count(), 3);
    assert_eq!(vault.current(&catalogue, &id).unwrap().kid(), key.kid());
    assert_eq!(history.entries_after(Revision(2)).entries.len(), 1);
    assert!(history.entries_after(Revision(1)).resync);
}

#[test]
fn a_snapshot_that_cannot_be_read_costs_nothing_but_time() {
    let mut ledger = MemoryLedger::new();
    write(&mut ledger, &tenant("a"), vec![]);
    for (at, state) in [(1, "nonsense"), (9, "{}")] {
        ledger
            .keep_snapshot(Revision(at), state.as_bytes())
            .unwrap();
        let (catalogue, ..) = replay(&mut ledger).unwrap();
        assert!(catalogue.tenant("a").is_some());
    }
}

#[test]
fn a_record_of_a_newer_build_refuses_the_start_and_says_so() {
    let mut ledger = MemoryLedger::new();
    let record = r#"{"entry":{"version":99,"revision":1,"at_ms":0,"event":{"type":"new"}}}"#;
    ledger.append(Revision(0), &[Bytes::from(record)]).unwrap();
    let refused = replay(&mut ledger).unwrap_err();
    assert!(refused.to_string().contains("upgrade"), "{refused}");
}

fn start(ledger: impl Ledger) -> Authority {
    Authority::start(Box::new(ledger)).unwrap()
}

fn tenant(name: &str) -> Command {
    Command::CreateTenant(TenantRecord {
        tenant_id: name.parse().unwrap(),
        display_name: String::new(),
    })
}

fn initialize(tenant: &TenantId, key: &SigningKey) -> Command {
    Command::InitializeTenant {
        tenant: TenantRecord {
            tenant_id: tenant.clone(),
            display_name: String::new(),
        },
        key: felix_meta::VerifyingKey {
            kid: key.kid().to_owned(),
            x: key.public().x.clone(),
        },
        policies: vec![],
        groupings: vec![],
    }
}

fn write(ledger: &mut MemoryLedger, command: &Command, secrets: Vec<Secret>) {
    let (catalogue, ..) = replay(ledger).unwrap();
    let Ok(Decision::Change(event)) = catalogue.decide(command) else {
        panic!("refused")
    };
    let entry = Entry::new(catalogue.revision().next(), TimeMs(0), event);
    let written = Written {
        entry: serde_json::to_value(&entry).unwrap(),
        secrets,
    };
    let record = Bytes::from(serde_json::to_vec(&written).unwrap());
    ledger.append(catalogue.revision(), &[record]).unwrap();
}

/// Takes so many appends and then fails for good.
#[derive(Debug)]
struct FailingLedger {
    inner: MemoryLedger,
    allowed: usize,
}

/// Has no room for so many appends.
#[derive(Debug)]
struct FullLedger {
    inner: MemoryLedger,
    refusals: usize,
}

impl FailingLedger {
    fn before_append(&mut self) -> Result<(), AppendRefused> {
        self.allowed = self
            .allowed
            .checked_sub(1)
            .ok_or_else(|| AppendRefused::Failed("EIO".into()))?;
        Ok(())
    }
}

impl FullLedger {
    fn before_append(&mut self) -> Result<(), AppendRefused> {
        match self.refusals.checked_sub(1) {
            None => Ok(()),
            Some(left) => {
                self.refusals = left;
                Err(AppendRefused::Full)
            }
        }
    }
}

macro_rules! delegate {
    ($ledger:ty) => {
        impl Ledger for $ledger {
            fn revision(&self) -> Revision {
                self.inner.revision()
            }

            fn append(&mut self, at: Revision, records: &[Bytes]) -> Result<(), AppendRefused> {
                self.before_append()?;
                self.inner.append(at, records)
            }

            fn read_after(&self, at: Revision, max: usize) -> Result<Vec<Bytes>, ReadFailed> {
                self.inner.read_after(at, max)
            }

            fn keep_snapshot(&mut self, at: Revision, state: &[u8]) -> Result<(), ReadFailed> {
                self.inner.keep_snapshot(at, state)
            }

            fn snapshot(&self) -> Result<Option<(Revision, Vec<u8>)>, ReadFailed> {
                self.inner.snapshot()
            }

            fn close(self: Box<Self>) {}
        }
    };
}

delegate!(FailingLedger);
delegate!(FullLedger);
