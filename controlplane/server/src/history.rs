//! The recent past, for those who follow: the catalogue's own feed and the four published ones.

use std::collections::VecDeque;
use std::sync::Arc;

use felix_meta::http::CatalogueChanges;
use felix_meta::{Catalogue, Change, Changed, Entry, Op, Revision};
use serde_json::{Value, json};

use crate::limits::{
    CHANGES_BYTES_PER_ANSWER, CHANGES_PER_ANSWER, FEED_ROWS, HISTORY_BYTES, HISTORY_ENTRIES,
};

/// One of the published feeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feed {
    Tenants,
    Namespaces,
    Streams,
    Caches,
}

/// What happened lately, bounded in entries and bytes.
#[derive(Debug, Default)]
pub(crate) struct History {
    newest: Revision,
    entries: VecDeque<(Arc<Entry>, usize)>,
    bytes: usize,
    rows: [Rows; 4],
}

/// The last rows of one published feed; their numbers are consecutive and end before `next`.
#[derive(Debug, Default)]
struct Rows {
    next: u64,
    kept: VecDeque<Change>,
}

impl History {
    /// The past of a catalogue that was read from a snapshot: nothing is known of it but its length.
    pub(crate) fn after(catalogue: &Catalogue) -> Self {
        let sequences = catalogue.sequences();
        let counts = [
            sequences.tenants,
            sequences.namespaces,
            sequences.streams,
            sequences.caches,
        ];
        let rows = counts.map(|next| Rows {
            next,
            kept: VecDeque::new(),
        });
        Self {
            newest: catalogue.revision(),
            rows,
            ..Self::default()
        }
    }

    /// Remembers an entry, what it means for the published feeds, and the bytes it takes.
    pub(crate) fn remember(&mut self, entry: Arc<Entry>, changes: Vec<Change>, bytes: usize) {
        for change in changes {
            let [tenants, namespaces, streams, caches] = &mut self.rows;
            let rows = match change.changed {
                Changed::Tenant(..) => tenants,
                Changed::Namespace(..) => namespaces,
                Changed::Stream(..) => streams,
                Changed::Cache(..) => caches,
            };
            rows.next += 1;
            rows.kept.push_back(change);
            if rows.kept.len() > FEED_ROWS {
                rows.kept.pop_front();
            }
        }
        self.newest = entry.revision;
        self.bytes += bytes;
        self.entries.push_back((entry, bytes));
        while self.entries.len() > HISTORY_ENTRIES || self.bytes > HISTORY_BYTES {
            let Some((_, bytes)) = self.entries.pop_front() else {
                break;
            };
            self.bytes -= bytes;
        }
    }

    /// The entries after a revision, as many as fit an answer.
    pub(crate) fn entries_after(&self, since: Revision) -> CatalogueChanges {
        let revision = self.newest;
        let oldest = self.entries.front().map(|(entry, _)| entry.revision);
        let reachable = since == revision || oldest.is_some_and(|oldest| oldest <= since.next());
        if since > revision || !reachable {
            return CatalogueChanges {
                entries: Vec::new(),
                revision,
                resync: true,
            };
        }
        let skip = oldest.map_or(0, |oldest| since.next().0.saturating_sub(oldest.0));
        let mut bytes = 0;
        let entries = self
            .entries
            .iter()
            .skip(usize::try_from(skip).unwrap_or(usize::MAX))
            .take(CHANGES_PER_ANSWER)
            .take_while(|(_, size)| {
                let fits = bytes == 0 || bytes + size <= CHANGES_BYTES_PER_ANSWER;
                bytes += size;
                fits
            })
            .map(|(entry, _)| entry.for_nodes())
            .collect();
        CatalogueChanges {
            entries,
            revision,
            resync: false,
        }
    }

    /// Rows of a published feed from a number on, and the number after the last of them.
    ///
    /// When the number asked for is not kept any more the first row has a higher one, and when none is kept the next
    /// number is higher: both tell the reader to take a snapshot.
    pub(crate) fn rows_from(&self, feed: Feed, since: u64) -> (Vec<Value>, u64) {
        let [tenants, namespaces, streams, caches] = &self.rows;
        let rows = match feed {
            Feed::Tenants => tenants,
            Feed::Namespaces => namespaces,
            Feed::Streams => streams,
            Feed::Caches => caches,
        };
        let first = rows.next - rows.kept.len() as u64;
        let skip = usize::try_from(since.saturating_sub(first)).unwrap_or(usize::MAX);
        let from = first + skip.min(rows.kept.len()) as u64;
        let page: Vec<Value> = rows
            .kept
            .iter()
            .skip(skip)
            .take(CHANGES_PER_ANSWER)
            .zip(from..)
            .map(|(change, seq)| row(seq, change))
            .collect();
        let next = from + page.len() as u64;
        (page, next)
    }
}

fn row(seq: u64, change: &Change) -> Value {
    let op = match change.op {
        Op::Created => "created",
        Op::Updated => "updated",
        Op::Deleted => "deleted",
    };
    match &change.changed {
        Changed::Tenant(tenant, now) => {
            json!({ "seq": seq, "op": op, "key": tenant, "tenant": now })
        }
        Changed::Namespace(tenant, namespace, now) => json!({
            "seq": seq,
            "op": op,
            "key": { "tenant_id": tenant, "namespace": namespace },
            "namespace": now,
        }),
        Changed::Stream(tenant, namespace, stream, now) => json!({
            "seq": seq,
            "op": op,
            "key": { "tenant_id": tenant, "namespace": namespace, "stream": stream },
            "stream": now,
        }),
        Changed::Cache(tenant, namespace, cache, now) => json!({
            "seq": seq,
            "op": op,
            "key": { "tenant_id": tenant, "namespace": namespace, "cache": cache },
            "cache": now,
        }),
    }
}

#[cfg(test)]
mod tests {
    use felix_meta::{Command, Decision, TenantRecord};
    use felix_model::TimeMs;

    use super::*;

    #[test]
    fn a_follower_gets_what_came_after_his_revision() {
        let history = tenants(5).1;
        let found = history.entries_after(Revision(3));
        let revisions: Vec<u64> = found.entries.iter().map(|entry| entry.revision.0).collect();
        assert_eq!(
            (revisions, found.revision, found.resync),
            (vec![4, 5], Revision(5), false)
        );
        assert!(history.entries_after(Revision(5)).entries.is_empty());
    }

    #[test]
    fn a_follower_from_before_what_is_kept_or_from_the_future_takes_a_snapshot() {
        let (catalogue, history) = tenants(HISTORY_ENTRIES + 2);
        assert!(history.entries_after(Revision(1)).resync);
        assert!(!history.entries_after(Revision(2)).resync);
        assert!(history.entries_after(catalogue.revision().next()).resync);
        assert!(History::after(&catalogue).entries_after(Revision(0)).resync);
        assert!(
            !History::after(&catalogue)
                .entries_after(catalogue.revision())
                .resync
        );
    }

    #[test]
    fn an_answer_is_bounded_and_the_next_one_goes_on_from_it() {
        let history = tenants(CHANGES_PER_ANSWER + 5).1;
        let first = history.entries_after(Revision(0));
        assert_eq!(first.entries.len(), CHANGES_PER_ANSWER);
        let last = first.entries.last().unwrap().revision;
        assert_eq!(history.entries_after(last).entries.len(), 5);
    }

    #[test]
    fn rows_of_a_published_feed_are_numbered_without_gaps() {
        let history = tenants(4).1;
        let (rows, next) = history.rows_from(Feed::Tenants, 2);
        assert_eq!(
            rows.iter()
                .map(|row| row["seq"].as_u64().unwrap())
                .collect::<Vec<_>>(),
            [2, 3]
        );
        assert_eq!(next, 4);
        assert_eq!(rows[0]["op"], "created");
        assert_eq!(rows[0]["tenant"]["tenant_id"], "t2");
        assert_eq!(history.rows_from(Feed::Streams, 0), (vec![], 0));
    }

    #[test]
    fn all_three_signs_of_a_needed_snapshot_are_given() {
        let (catalogue, history) = tenants(FEED_ROWS + 3);
        let (rows, _) = history.rows_from(Feed::Tenants, 1);
        assert_eq!(rows[0]["seq"], 3, "the first row is later than asked for");
        let (rows, next) = History::after(&catalogue).rows_from(Feed::Tenants, 1);
        assert!(
            rows.is_empty() && next > 1,
            "nothing is kept and the next number is later"
        );
        let (rows, next) = history.rows_from(Feed::Tenants, 1 << 40);
        assert!(rows.is_empty() && next < 1 << 40, "the reader is ahead");
    }

    fn tenants(count: usize) -> (Catalogue, History) {
        let mut catalogue = Catalogue::default();
        let mut history = History::after(&catalogue);
        for n in 0..count {
            let tenant = TenantRecord {
                tenant_id: format!("t{n}").parse().unwrap(),
                display_name: String::new(),
            };
            let Ok(Decision::Change(event)) = catalogue.decide(&Command::CreateTenant(tenant))
            else {
                panic!("a new tenant was refused");
            };
            let rows = felix_meta::changes(&catalogue, &event);
            catalogue.apply(&event);
            let entry = Entry::new(catalogue.revision(), TimeMs(0), event);
            history.remember(Arc::new(entry), rows, 100);
        }
        (catalogue, history)
    }
}
