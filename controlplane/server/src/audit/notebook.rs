//! What is to be remembered and changes nothing, until it is written down.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use felix_meta::{AuditRecord, Command};
use felix_model::TenantId;
use tokio::sync::Notify;

use crate::authority::{Authority, WriteFailed};
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
///
/// What is new is written at once. What repeats is counted, and the counts are written once a round: whoever fails a
/// thousand times a second makes two lines in a round, and a crash takes counts but no first time.
#[derive(Debug, Default)]
pub(crate) struct Notebook {
    notes: Mutex<Notes>,
    news: Notify,
    /// Held while something is written, so that whoever writes after somebody has what that one took behind him.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Notes {
    /// What there was in this round, by whom it concerns.
    tenants: BTreeMap<Option<TenantId>, BTreeMap<Key, Kept>>,
    different: usize,
    /// Whether something was counted together for want of room.
    crowded: bool,
    /// Whether that was so in the round before.
    after_crowd: bool,
}

/// Something noted in this round.
#[derive(Debug, Default)]
struct Kept {
    /// What waits to be written; nothing when all of it was.
    waiting: Option<AuditRecord>,
    /// Whether it is in the ledger already that there was any.
    is_told: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    what: &'static str,
    reason: &'static str,
    principal: String,
    from: String,
}

/// Records to write for one tenant, or the cluster, all of one kind.
#[derive(Debug)]
struct Page {
    tenant: Option<TenantId>,
    records: Vec<(Key, AuditRecord)>,
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
        let record = key.record(id.unwrap_or_default());
        if self.guard().add(note.tenant, key, record) {
            self.news.notify_one();
        }
    }

    /// Waits until there is something new to write.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// Writes down what is new.
    pub(crate) async fn write_new(&self, authority: &Authority) {
        let _one = self.writing.lock().await;
        let pages = self.guard().take_new();
        self.write_pages(authority, pages).await;
    }

    /// Writes down everything that was noted, and begins a new round.
    pub(crate) async fn write(&self, authority: &Authority) {
        let _one = self.writing.lock().await;
        let pages = self.guard().take_all();
        self.write_pages(authority, pages).await;
    }

    /// What could not be written waits for the next time, among what there is room for. What may have been written is not
    /// written twice: a count that is too high would be a lie.
    async fn write_pages(&self, authority: &Authority, pages: Vec<Page>) {
        for Page { tenant, records } in pages {
            let command = Command::Audited {
                tenant_id: tenant.clone(),
                records: records.iter().map(|(_, record)| record.clone()).collect(),
            };
            let Err(error) = authority.submit(command).await else {
                continue;
            };
            let count: u64 = records.iter().map(|(_, record)| record.count).sum();
            let waits = matches!(
                error,
                WriteFailed::Busy | WriteFailed::Full | WriteFailed::Unreachable
            );
            tracing::warn!(%error, count, waits, "what was to be audited was not written");
            if waits {
                let mut notes = self.guard();
                for (key, record) in records {
                    notes.add(tenant.as_ref(), key, record);
                }
            }
        }
    }

    /// How long the round that begins now is: longer after one in which there was too much.
    pub(crate) fn pause(&self) -> Duration {
        let notes = self.guard();
        match notes.crowded || notes.after_crowd {
            true => AUDIT_PAUSE_CROWDED,
            false => AUDIT_PAUSE,
        }
    }

    fn guard(&self) -> std::sync::MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Notes {
    /// Whether it is new, so that it should be written soon.
    fn add(&mut self, tenant: Option<&TenantId>, key: Key, record: AuditRecord) -> bool {
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
        let from = key.from.clone();
        let principal = key.principal.clone();
        let kept = notes.entry(key).or_default();
        match &mut kept.waiting {
            Some(waiting) => {
                waiting.count += record.count;
                waiting.first_ms = waiting.first_ms.min(record.first_ms);
                waiting.last_ms = waiting.last_ms.max(record.last_ms);
            }
            None => {
                kept.waiting = Some(AuditRecord {
                    principal,
                    from,
                    ..record
                });
            }
        }
        !kept.is_told
    }

    /// What nothing was written of yet in this round.
    fn take_new(&mut self) -> Vec<Page> {
        self.pages(|kept| match kept.is_told {
            true => None,
            false => {
                let taken = kept.waiting.take();
                kept.is_told = taken.is_some();
                taken
            }
        })
    }

    /// Everything that waits; the round is over.
    fn take_all(&mut self) -> Vec<Page> {
        let pages = self.pages(|kept| kept.waiting.take());
        *self = Self {
            after_crowd: self.crowded,
            ..Self::default()
        };
        pages
    }

    /// One page for each tenant and kind, so that an audit can be asked for one kind.
    fn pages(&mut self, mut take: impl FnMut(&mut Kept) -> Option<AuditRecord>) -> Vec<Page> {
        let mut pages = Vec::new();
        for (tenant, notes) in &mut self.tenants {
            let mut kinds: BTreeMap<&str, Vec<(Key, AuditRecord)>> = BTreeMap::new();
            for (key, kept) in notes {
                if let Some(record) = take(kept) {
                    let page = kinds.entry(key.what).or_default();
                    page.push((key.clone(), record));
                }
            }
            pages.extend(kinds.into_values().map(|records| Page {
                tenant: tenant.clone(),
                records,
            }));
        }
        pages
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

    /// That it happened once, just now.
    fn record(&self, request: String) -> AuditRecord {
        let now = now();
        AuditRecord {
            what: self.what.into(),
            principal: self.principal.clone(),
            from: self.from.clone(),
            reason: self.reason.into(),
            request,
            count: 1,
            first_ms: now,
            last_ms: now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_is_written_at_once_and_what_repeats_when_the_round_is_over() {
        let mut notes = Notes::default();
        let tenant: TenantId = "t".parse().unwrap();
        assert!(add(&mut notes, Some(&tenant), key("192.0.2.1"), "r0"));
        assert!(add(&mut notes, Some(&tenant), key("192.0.2.1"), "r1"));
        let new = notes.take_new();
        let (_, record) = &new[0].records[0];
        assert_eq!((record.count, record.request.as_str()), (2, "r0"));
        for n in 0..1000 {
            let request = format!("again{n}");
            let soon = add(&mut notes, Some(&tenant), key("192.0.2.1"), &request);
            assert!(!soon);
        }
        assert!(add(&mut notes, Some(&tenant), key("192.0.2.2"), "other"));
        let new = notes.take_new();
        assert_eq!((new.len(), new[0].records.len()), (1, 1));
        assert_eq!(new[0].records[0].1.from, "192.0.2.2");
        let rest = notes.take_all();
        let (_, record) = &rest[0].records[0];
        assert_eq!((rest.len(), rest[0].records.len()), (1, 1));
        assert_eq!((record.count, record.request.as_str()), (1000, "again0"));
        assert!(notes.take_all().is_empty());
        assert!(add(
            &mut notes,
            Some(&tenant),
            key("192.0.2.1"),
            "next round"
        ));
    }

    #[test]
    fn a_flood_from_everywhere_takes_bounded_room_and_loses_no_count() {
        let mut notes = Notes::default();
        let (mut lines, mut count) = (0, 0);
        let mut written = |pages: Vec<Page>| {
            for (_, record) in pages.into_iter().flat_map(|page| page.records) {
                lines += 1;
                count += record.count;
            }
        };
        for tenant in 0..100 {
            let tenant = format!("t{tenant}").parse().unwrap();
            for n in 0..500 {
                add(&mut notes, Some(&tenant), key(&format!("host{n}")), "");
                // However often it is written meanwhile.
                if n % 50 == 0 {
                    written(notes.take_new());
                }
            }
            let kept = notes.tenants.get(&Some(tenant)).map_or(0, BTreeMap::len);
            assert!(kept <= AUDIT_NOTES_PER_TENANT_MAX + 2);
        }
        assert!(notes.crowded);
        written(notes.take_all());
        assert_eq!(count, 50_000);
        assert!(lines <= 2 * (AUDIT_NOTES_MAX + 101), "{lines}");
    }

    #[test]
    fn after_a_crowd_rounds_are_longer_and_then_as_before() {
        let book = Notebook::default();
        assert_eq!(book.pause(), AUDIT_PAUSE);
        for n in 0..=AUDIT_NOTES_PER_TENANT_MAX {
            add(&mut book.guard(), None, key(&n.to_string()), "");
        }
        let all = book.guard().take_all();
        let written = all.iter().flat_map(|page| &page.records);
        let written: u64 = written.map(|(_, record)| record.count).sum();
        assert_eq!(written, AUDIT_NOTES_PER_TENANT_MAX as u64 + 1);
        assert_eq!(book.pause(), AUDIT_PAUSE_CROWDED);
        assert!(book.guard().take_all().is_empty());
        assert_eq!(book.pause(), AUDIT_PAUSE);
    }

    #[test]
    fn what_was_not_written_waits_with_what_came_meanwhile() {
        let mut notes = Notes::default();
        add(&mut notes, None, key("192.0.2.1"), "first");
        let failed = notes.take_all();
        add(&mut notes, None, key("192.0.2.1"), "second");
        for (key, record) in failed.into_iter().flat_map(|page| page.records) {
            notes.add(None, key, record);
        }
        let again = notes.take_all();
        assert_eq!(again[0].records[0].1.count, 2);
    }

    fn add(notes: &mut Notes, tenant: Option<&TenantId>, key: Key, request: &str) -> bool {
        let record = key.record(request.into());
        notes.add(tenant, key, record)
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
