//! What is to be remembered and changes nothing, until it is written down.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use felix_meta::{AuditRecord, Command};
use felix_model::TenantId;

use crate::authority::Authority;
use crate::clock::now;
use crate::limits::{
    AUDIT_NOTES_MAX, AUDIT_NOTES_PER_TENANT_MAX, AUDIT_PAUSE, AUDIT_PAUSE_CROWDED,
};
use crate::request;

/// The address, or reason, of notes that are counted together because there were too many different ones.
const MANY: &str = "many";

/// Something to remember.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note<'a> {
    /// Whom it concerns; the cluster when `None`.
    pub(crate) tenant: Option<&'a TenantId>,
    /// What happened.
    pub(crate) what: &'static str,
    /// The code of a refusal, or what more there is to say. From a fixed set.
    pub(crate) reason: &'static str,
}

/// Notes that were not written down yet.
#[derive(Debug, Default)]
pub(crate) struct Notebook {
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    tenants: BTreeMap<Option<TenantId>, BTreeMap<Key, AuditRecord>>,
    different: usize,
    /// Whether something was counted together for want of room.
    crowded: bool,
    /// Whether that was so until the last writing.
    after_crowd: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    what: &'static str,
    reason: &'static str,
    principal: String,
    from: String,
}

impl Notebook {
    /// Notes something about the request that is being answered.
    pub(crate) fn note(&self, note: Note<'_>) {
        let current = request::current();
        let principal = current
            .as_deref()
            .and_then(request::Current::principal)
            .unwrap_or_default();
        let from = current.as_deref().map(request::Current::from);
        let key = Key {
            what: note.what,
            reason: note.reason,
            principal,
            from: from.unwrap_or_default(),
        };
        let id = current.map(|current| current.id().to_owned());
        self.guard().add(note.tenant, key, id.unwrap_or_default());
    }

    /// Writes down what was noted. What cannot be written is forgotten, and the log says so: it must not grow.
    pub(crate) async fn write(&self, authority: &Authority) {
        for (tenant_id, records) in self.take() {
            let lost: u64 = records.iter().map(|one| one.count).sum();
            let command = Command::Audited { tenant_id, records };
            if let Err(error) = authority.submit(command).await {
                tracing::warn!(%error, lost, "what was to be audited was not written");
            }
        }
    }

    /// How long to wait before the next writing: longer while there is too much of it.
    pub(crate) fn pause(&self) -> Duration {
        let notes = self.guard();
        match notes.crowded || notes.after_crowd {
            true => AUDIT_PAUSE_CROWDED,
            false => AUDIT_PAUSE,
        }
    }

    /// What was noted, one list for each tenant and kind, so that an audit can be asked for one kind.
    fn take(&self) -> Vec<(Option<TenantId>, Vec<AuditRecord>)> {
        let mut held = self.guard();
        let after_crowd = held.crowded;
        let next = Notes {
            after_crowd,
            ..Notes::default()
        };
        let notes = std::mem::replace(&mut *held, next);
        drop(held);
        let mut all = Vec::new();
        for (tenant_id, records) in notes.tenants {
            let mut kinds: BTreeMap<&str, Vec<AuditRecord>> = BTreeMap::new();
            for (key, record) in records {
                kinds.entry(key.what).or_default().push(record);
            }
            let of_tenant = kinds.into_values();
            all.extend(of_tenant.map(|records| (tenant_id.clone(), records)));
        }
        all
    }

    fn guard(&self) -> std::sync::MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Notes {
    fn add(&mut self, tenant: Option<&TenantId>, key: Key, request: String) {
        let now = now();
        let held = self.tenants.get(&tenant.cloned());
        let known = held.is_some_and(|notes| notes.contains_key(&key));
        let room = held.map_or(0, BTreeMap::len) < AUDIT_NOTES_PER_TENANT_MAX
            && self.different < AUDIT_NOTES_MAX;
        let (tenant, key) = match known || room {
            true => (tenant.cloned(), key),
            false => {
                self.crowded = true;
                // Among those of its tenant when that has some, so that the tenant sees that there were more.
                let tenant = tenant.filter(|_| held.is_some()).cloned();
                (tenant, key.with_many())
            }
        };
        let notes = self.tenants.entry(tenant).or_default();
        if !notes.contains_key(&key) {
            self.different += 1;
        }
        let record = notes.entry(key.clone()).or_insert_with(|| AuditRecord {
            what: key.what.into(),
            principal: key.principal,
            from: key.from,
            reason: key.reason.into(),
            request,
            count: 0,
            first_ms: now,
            last_ms: now,
        });
        record.count += 1;
        record.last_ms = now;
    }
}

impl Key {
    fn with_many(self) -> Self {
        Self {
            principal: String::new(),
            from: MANY.into(),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_is_counted_and_not_repeated() {
        let mut notes = Notes::default();
        let tenant = "t".parse().unwrap();
        for n in 0..1000 {
            notes.add(Some(&tenant), key("192.0.2.1"), format!("r{n}"));
        }
        let written = &notes.tenants[&Some(tenant)];
        let record = written.values().next().unwrap();
        assert_eq!((written.len(), record.count), (1, 1000));
        assert_eq!(record.request, "r0");
        assert!(!notes.crowded);
    }

    #[test]
    fn a_flood_from_everywhere_takes_bounded_room_and_loses_no_count() {
        let mut notes = Notes::default();
        for tenant in 0..100 {
            let tenant = format!("t{tenant}").parse().unwrap();
            for n in 0..500 {
                notes.add(Some(&tenant), key(&format!("host{n}")), String::new());
            }
        }
        let all = || notes.tenants.values().flat_map(BTreeMap::values);
        assert_eq!(all().map(|one| one.count).sum::<u64>(), 50_000);
        assert!(all().count() <= AUDIT_NOTES_MAX + 101, "{}", all().count());
        assert!(notes.crowded);
        for notes in notes.tenants.values() {
            assert!(notes.len() <= AUDIT_NOTES_PER_TENANT_MAX + 2);
        }
    }

    #[test]
    fn after_a_crowd_it_is_written_less_often_and_then_as_before() {
        let book = Notebook::default();
        assert_eq!(book.pause(), AUDIT_PAUSE);
        for n in 0..=AUDIT_NOTES_PER_TENANT_MAX {
            book.guard().add(None, key(&n.to_string()), String::new());
        }
        let written: u64 = book
            .take()
            .iter()
            .flat_map(|(_, all)| all)
            .map(|one| one.count)
            .sum();
        assert_eq!(written, AUDIT_NOTES_PER_TENANT_MAX as u64 + 1);
        assert_eq!(book.pause(), AUDIT_PAUSE_CROWDED);
        assert!(book.take().is_empty());
        assert_eq!(book.pause(), AUDIT_PAUSE);
    }

    fn key(from: &str) -> Key {
        Key {
            what: "refused",
            reason: "unauthorized",
            principal: String::new(),
            from: from.into(),
        }
    }
}
