//! The writer with ledgers that work, fail and are full.

use std::sync::Mutex;

use felix_meta::{Conflict, Decision, TenantRecord};
use felix_model::TimeMs;

use super::record::{Written, keep_snapshot, replay};
use super::*;
use crate::ledger::{AppendRefused, MemoryLedger};
use crate::limits::RACES_MAX;

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
        allowed: Mutex::new(1),
    });
    assert!(authority.is_healthy());
    authority.submit(tenant("a")).await.unwrap();
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
async fn a_writer_that_broke_answers_nobody_and_readiness_says_so() {
    let authority = start(BreakingLedger {
        inner: MemoryLedger::new(),
    });
    assert!(authority.is_healthy());
    assert_eq!(
        authority.submit(tenant("a")).await,
        Err(WriteFailed::Unconfirmed)
    );
    let mut ended = authority.trouble.clone();
    while ended.changed().await.is_ok() {}
    assert_eq!(
        authority.submit(tenant("b")).await,
        Err(WriteFailed::Stopping)
    );
    let standing = authority.standing();
    assert!(!standing.ready);
    let why = standing.why_not.unwrap();
    assert!(why.contains("restart"), "{why}");
}

#[tokio::test]
async fn a_full_disk_refuses_and_recovers_by_itself() {
    let authority = start(FullLedger {
        inner: MemoryLedger::new(),
        refusals: Mutex::new(1),
    });
    assert_eq!(authority.submit(tenant("a")).await, Err(WriteFailed::Full));
    assert!(authority.is_healthy());
    authority.submit(tenant("a")).await.unwrap();
    assert!(authority.catalogue().tenant("a").is_some());
}

#[tokio::test]
async fn who_loses_a_race_applies_what_the_winner_wrote_and_decides_again() {
    let authority = start(RacingLedger {
        inner: MemoryLedger::new(),
        rivals: Mutex::new(vec![tenant("c"), tenant("b"), tenant("a")]),
    });
    authority.submit(tenant("x")).await.unwrap();
    // Decided on a state without `c`, and refused on the one with it.
    let refused = authority.submit(tenant("c")).await.unwrap_err();
    assert!(matches!(refused, WriteFailed::Refused(_)), "{refused:?}");
    let catalogue = authority.catalogue();
    assert_eq!(catalogue.revision(), Revision(4));
    for name in ["a", "b", "c", "x"] {
        assert!(catalogue.tenant(name).is_some(), "{name}");
    }
    let past = authority.history().entries_after(Revision(0)).entries;
    assert_eq!(past.len(), 4);
}

#[tokio::test]
async fn who_loses_every_race_is_told_to_try_again_and_has_changed_nothing() {
    let rivals = (0..RACES_MAX).map(|n| tenant(&format!("r{n}"))).collect();
    let authority = start(RacingLedger {
        inner: MemoryLedger::new(),
        rivals: Mutex::new(rivals),
    });
    assert_eq!(authority.submit(tenant("x")).await, Err(WriteFailed::Busy));
    assert!(authority.catalogue().tenant("x").is_none());
    authority.submit(tenant("x")).await.unwrap();
}

#[tokio::test]
async fn two_authorities_over_one_ledger_see_each_others_changes() {
    let ledger = MemoryLedger::new();
    let (one, other) = (start(ledger.clone()), start(ledger));
    one.submit(tenant("a")).await.unwrap();
    let confirmed = other.confirmed().await.unwrap();
    assert!(confirmed.tenant("a").is_some());
    other.submit(tenant("b")).await.unwrap();
    let mut seen = one.watch();
    let caught_up = seen.wait_for(|catalogue| catalogue.tenant("b").is_some());
    caught_up.await.unwrap();
    // A refusal is said of the newest state, not of what was known here.
    other.submit(tenant("c")).await.unwrap();
    let refused = one.submit(tenant("c")).await.unwrap_err();
    assert!(matches!(refused, WriteFailed::Refused(_)), "{refused:?}");
}

#[tokio::test]
async fn many_authorities_that_race_carry_every_command_out_once() {
    let ledger = MemoryLedger::new();
    let authorities: Vec<_> = (0..4).map(|_| start(ledger.clone())).collect();
    let tasks: Vec<_> = (0..200)
        .map(|n| {
            let authority = authorities[n % 4].clone();
            // Each name is asked for twice, of two of them.
            let name = format!("t{}", n / 2);
            tokio::spawn(async move { authority.submit(tenant(&name)).await })
        })
        .collect();
    let (mut made, mut refused) = (0, 0);
    for task in tasks {
        match task.await.unwrap() {
            Ok(Some(_)) => made += 1,
            Err(WriteFailed::Refused(_)) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((made, refused), (100, 100));
    for authority in authorities {
        let catalogue = authority.confirmed().await.unwrap();
        assert_eq!(catalogue.revision(), Revision(100));
    }
}

#[tokio::test]
async fn what_was_not_confirmed_and_is_there_is_shown_later() {
    let authority = start(ForgetfulLedger {
        inner: MemoryLedger::new(),
        forgets: Mutex::new(true),
    });
    let unconfirmed = authority.submit(tenant("a")).await;
    assert_eq!(unconfirmed, Err(WriteFailed::Unconfirmed));
    authority.submit(tenant("b")).await.unwrap();
    let catalogue = authority.catalogue();
    assert!(catalogue.tenant("a").is_some() && catalogue.tenant("b").is_some());
    assert_eq!(catalogue.revision(), Revision(2));
}

#[tokio::test]
async fn a_record_of_a_newer_build_stops_the_following_and_readiness_says_so() {
    let ledger = MemoryLedger::new();
    let authority = start(ledger.clone());
    authority.submit(tenant("a")).await.unwrap();
    let mut trouble = authority.trouble.clone();
    let record = r#"{"entry":{"version":99,"revision":2,"at_ms":0,"event":{"type":"new"}}}"#;
    ledger.append(Revision(1), &[Bytes::from(record)]).unwrap();
    trouble.wait_for(Option::is_some).await.unwrap();
    let standing = authority.standing();
    assert!(!standing.ready);
    assert!(standing.why_not.unwrap().contains("upgrade"));
    let refused = authority.submit(tenant("b")).await;
    assert_eq!(refused, Err(WriteFailed::Unreachable));
    assert!(authority.catalogue().tenant("a").is_some());
}

#[tokio::test]
async fn the_whole_past_is_read_from_the_ledger_without_private_keys() {
    let authority = start(MemoryLedger::new());
    let key = SigningKey::generate().unwrap();
    let id: TenantId = "t".parse().unwrap();
    let command = initialize(&id, &key);
    authority.submit_with_key(command, &id, &key).await.unwrap();
    authority.submit(tenant("a")).await.unwrap();
    let past = authority.entries_after(Revision(0), 1 << 20).await.unwrap();
    assert_eq!(past.len(), 2);
    assert!(
        !serde_json::to_string(&past)
            .unwrap()
            .contains(&key.to_secret())
    );
    let rest = authority.entries_after(Revision(1), 1 << 20).await.unwrap();
    assert_eq!(rest, past[1..]);
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
    let ledger = MemoryLedger::new();
    let key = SigningKey::generate().unwrap();
    let id: TenantId = "t".parse().unwrap();
    write(
        &ledger,
        &initialize(&id, &key),
        vec![Secret::new(&id, &key)],
    );
    write(&ledger, &tenant("a"), vec![]);
    let (all, vault, _) = replay(&ledger).unwrap();
    keep_snapshot(&ledger, &all, &vault);
    write(&ledger, &tenant("b"), vec![]);
    let (catalogue, vault, history) = replay(&ledger).unwrap();
    assert_eq!(catalogue.revision(), Revision(3));
    assert_eq!(catalogue.tenants().count(), 3);
    assert_eq!(vault.current(&catalogue, &id).unwrap().kid(), key.kid());
    assert_eq!(history.entries_after(Revision(2)).entries.len(), 1);
    assert!(history.entries_after(Revision(1)).resync);
}

#[test]
fn a_snapshot_that_cannot_be_read_costs_nothing_but_time() {
    let ledger = MemoryLedger::new();
    write(&ledger, &tenant("a"), vec![]);
    for (at, state) in [(1, "nonsense"), (9, "{}")] {
        ledger
            .keep_snapshot(Revision(at), state.as_bytes())
            .unwrap();
        let (catalogue, ..) = replay(&ledger).unwrap();
        assert!(catalogue.tenant("a").is_some());
    }
}

#[test]
fn a_snapshot_of_another_history_is_not_used() {
    let (old, new) = (MemoryLedger::new(), MemoryLedger::new());
    write(&old, &tenant("old"), vec![]);
    let (catalogue, vault, _) = replay(&old).unwrap();
    keep_snapshot(&old, &catalogue, &vault);
    let (at, state) = old.snapshot().unwrap().unwrap();
    // A ledger that was filled anew beside the snapshot that was left behind.
    for name in ["a", "b"] {
        write(&new, &tenant(name), vec![]);
    }
    new.keep_snapshot(at, &state).unwrap();
    let (catalogue, ..) = replay(&new).unwrap();
    assert!(catalogue.tenant("a").is_some() && catalogue.tenant("b").is_some());
    assert!(catalogue.tenant("old").is_none());
}

#[test]
fn a_record_of_a_newer_build_refuses_the_start_and_says_so() {
    let ledger = MemoryLedger::new();
    let record = r#"{"entry":{"version":99,"revision":1,"at_ms":0,"event":{"type":"new"}}}"#;
    ledger.append(Revision(0), &[Bytes::from(record)]).unwrap();
    let refused = replay(&ledger).unwrap_err();
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
        issuers: vec![],
    }
}

fn write(ledger: &MemoryLedger, command: &Command, secrets: Vec<Secret>) {
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
    allowed: Mutex<usize>,
}

/// Has no room for so many appends.
#[derive(Debug)]
struct FullLedger {
    inner: MemoryLedger,
    refusals: Mutex<usize>,
}

/// Another writer is quicker so many times.
#[derive(Debug)]
struct RacingLedger {
    inner: MemoryLedger,
    rivals: Mutex<Vec<Command>>,
}

/// Keeps what it was given, and says that it does not know.
#[derive(Debug)]
struct ForgetfulLedger {
    inner: MemoryLedger,
    forgets: Mutex<bool>,
}

/// Has a defect.
#[derive(Debug)]
struct BreakingLedger {
    inner: MemoryLedger,
}

impl BreakingLedger {
    #[expect(clippy::unused_self, reason = "the form of every ledger here")]
    fn append_(&self, _: Revision, _: &[Bytes]) -> Result<(), AppendRefused> {
        panic!("a defect, as this test wants it")
    }

    fn standing_(&self) -> Standing {
        self.inner.standing()
    }
}

impl FailingLedger {
    fn append_(&self, at: Revision, records: &[Bytes]) -> Result<(), AppendRefused> {
        let mut allowed = self.allowed.lock().unwrap();
        let failed = || AppendRefused::Failed("EIO".into());
        *allowed = allowed.checked_sub(1).ok_or_else(failed)?;
        self.inner.append(at, records)
    }

    fn standing_(&self) -> Standing {
        let left = *self.allowed.lock().unwrap();
        Standing::alone("failing", (left == 0).then(|| "EIO".into()))
    }
}

impl FullLedger {
    fn append_(&self, at: Revision, records: &[Bytes]) -> Result<(), AppendRefused> {
        let mut refusals = self.refusals.lock().unwrap();
        if let Some(left) = refusals.checked_sub(1) {
            *refusals = left;
            return Err(AppendRefused::Full);
        }
        self.inner.append(at, records)
    }

    fn standing_(&self) -> Standing {
        self.inner.standing()
    }
}

impl RacingLedger {
    fn append_(&self, at: Revision, records: &[Bytes]) -> Result<(), AppendRefused> {
        if let Some(rival) = self.rivals.lock().unwrap().pop() {
            write(&self.inner, &rival, vec![]);
        }
        self.inner.append(at, records)
    }

    fn standing_(&self) -> Standing {
        self.inner.standing()
    }
}

impl ForgetfulLedger {
    fn append_(&self, at: Revision, records: &[Bytes]) -> Result<(), AppendRefused> {
        self.inner.append(at, records)?;
        match std::mem::take(&mut *self.forgets.lock().unwrap()) {
            true => Err(AppendRefused::Unconfirmed("the connection broke".into())),
            false => Ok(()),
        }
    }

    fn standing_(&self) -> Standing {
        self.inner.standing()
    }
}

macro_rules! delegate {
    ($ledger:ty) => {
        impl Ledger for $ledger {
            fn revision(&self) -> Revision {
                self.inner.revision()
            }

            fn watch(&self) -> watch::Receiver<Revision> {
                self.inner.watch()
            }

            fn append(&self, at: Revision, records: &[Bytes]) -> Result<(), AppendRefused> {
                self.append_(at, records)
            }

            fn read_after(&self, at: Revision, max: usize) -> Result<Vec<Bytes>, ReadFailed> {
                self.inner.read_after(at, max)
            }

            fn confirm(&self) -> Result<Revision, ConfirmFailed> {
                self.inner.confirm()
            }

            fn keep_snapshot(&self, at: Revision, state: &[u8]) -> Result<(), ReadFailed> {
                self.inner.keep_snapshot(at, state)
            }

            fn snapshot(&self) -> Result<Option<(Revision, Vec<u8>)>, ReadFailed> {
                self.inner.snapshot()
            }

            fn standing(&self) -> Standing {
                self.standing_()
            }

            fn close(self: Box<Self>) {}
        }
    };
}

delegate!(BreakingLedger);
delegate!(FailingLedger);
delegate!(FullLedger);
delegate!(RacingLedger);
delegate!(ForgetfulLedger);
