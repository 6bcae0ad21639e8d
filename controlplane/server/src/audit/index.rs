//! Where in the ledger each line of an audit is.

use std::collections::BTreeMap;

use felix_meta::audit::{AuditItem, ChainHead};
use felix_meta::http::AuditPage;
use felix_meta::{Entry, Event, Revision};
use felix_model::TenantId;
use tokio::sync::Mutex;

use crate::authority::Authority;
use crate::ledger::ReadFailed;
use crate::limits::{
    AUDIT_ENTRIES_READ, AUDIT_GAP_READ, AUDIT_LINES_LOOKED_AT, AUDIT_READ_BYTES, REPLAY_BYTES,
};

/// Which part of an audit is asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// Lines with a higher number.
    pub(crate) after: u64,
    /// How many lines at most.
    pub(crate) limit: usize,
    /// Only of this principal.
    pub(crate) principal: Option<String>,
    /// Only of this kind.
    pub(crate) what: Option<String>,
}

impl Asked {
    fn wants(&self, item: &AuditItem) -> bool {
        let principal = self.principal.as_deref().is_none_or(|principal| {
            let by = item.by.as_ref();
            by.is_some_and(|by| by.principal == principal)
                || item.target == principal
                || is_among_records(item, principal)
        });
        principal && self.what.as_deref().is_none_or(|what| item.what == what)
    }
}

fn is_among_records(item: &AuditItem, principal: &str) -> bool {
    let records = item.after.get("records").and_then(|all| all.as_array());
    records.is_some_and(|records| records.iter().any(|one| one["principal"] == principal))
}

/// The revision of every line of every chain: eight bytes for each, read from the ledger when first asked for.
#[derive(Debug, Default)]
pub(crate) struct Index {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    read_to: Revision,
    /// By chain, `None` for the cluster's; line `n` is at place `n - 1`.
    chains: BTreeMap<Option<TenantId>, Vec<Revision>>,
}

impl Index {
    /// A part of the audit of a tenant, or of the cluster.
    ///
    /// At most [`AUDIT_LINES_LOOKED_AT`] lines are looked at and about [`AUDIT_ENTRIES_READ`] entries read for them, so a
    /// page may be short, or empty, and still not be the last. The head is the end of the chain that the page is of: of
    /// the last page, the last line.
    ///
    /// # Errors
    /// [`ReadFailed`] when the ledger cannot be read.
    pub(crate) async fn page(
        &self,
        authority: &Authority,
        tenant: Option<&TenantId>,
        asked: &Asked,
    ) -> Result<AuditPage, ReadFailed> {
        let Lines { at, more, head } = self.lines(authority, tenant, asked.after).await?;
        let mut page = AuditPage {
            items: Vec::new(),
            next_after: None,
            head,
        };
        let (mut done, mut read) = (0, 0);
        while let Some(next) = at.get(done).copied() {
            let looked_at = asked.after + done as u64;
            if page.items.len() == asked.limit || read >= AUDIT_ENTRIES_READ {
                page.next_after = Some(looked_at);
                return Ok(page);
            }
            let from = Revision(next.0.saturating_sub(1));
            let entries = authority.entries_after(from, bytes_for(&at, done)).await?;
            if entries.is_empty() {
                return Err(ReadFailed(format!("ledger record {next} is missing")));
            }
            read += entries.len();
            for entry in entries {
                if page.items.len() == asked.limit {
                    break;
                }
                if at.get(done) == Some(&entry.revision) {
                    done += 1;
                    let item = line(&entry, tenant).filter(|item| asked.wants(item));
                    page.items.extend(item);
                }
            }
        }
        page.next_after = more.then_some(asked.after + done as u64);
        Ok(page)
    }

    /// The places of the lines after a number, as many as are looked at.
    async fn lines(
        &self,
        authority: &Authority,
        tenant: Option<&TenantId>,
        after: u64,
    ) -> Result<Lines, ReadFailed> {
        let mut known = self.known.lock().await;
        // Taken while nobody else reads on, so that what is known never goes beyond it.
        let catalogue = authority.catalogue();
        known.catch_up(authority, catalogue.revision()).await?;
        let head = tenant.map_or_else(
            || catalogue.cluster_chain().clone(),
            |tenant| catalogue.chain_of(tenant.as_ref()),
        );
        let chain = known.chains.get(&tenant.cloned());
        let after = usize::try_from(after).unwrap_or(usize::MAX);
        let rest = chain
            .and_then(|chain| chain.get(after..))
            .unwrap_or_default();
        Ok(Lines {
            at: rest.iter().take(AUDIT_LINES_LOOKED_AT).copied().collect(),
            more: rest.len() > AUDIT_LINES_LOOKED_AT,
            head,
        })
    }
}

/// Lines of a chain.
struct Lines {
    /// Where they are.
    at: Vec<Revision>,
    /// Whether there are more behind them.
    more: bool,
    /// The end of the chain.
    head: ChainHead,
}

impl Known {
    /// Reads on up to a revision, and not beyond it.
    async fn catch_up(&mut self, authority: &Authority, upto: Revision) -> Result<(), ReadFailed> {
        while self.read_to < upto {
            let entries = authority.entries_after(self.read_to, REPLAY_BYTES).await?;
            if entries.is_empty() {
                break;
            }
            for entry in entries.iter().take_while(|entry| entry.revision <= upto) {
                self.read_to = entry.revision;
                self.add(entry);
            }
        }
        Ok(())
    }

    fn add(&mut self, entry: &Entry) {
        let Some(audit) = &entry.audit else { return };
        self.put(None, audit.cluster.seq, entry.revision);
        if let (Some(link), Some(tenant)) = (&audit.tenant, entry.event.tenant_id()) {
            self.put(Some(tenant.clone()), link.seq, entry.revision);
        }
        // Nobody can ask for the audit of a tenant that is gone; its lines are among the cluster's.
        if let Event::TenantDeleted { tenant_id } = &entry.event {
            self.chains.remove(&Some(tenant_id.clone()));
        }
    }

    fn put(&mut self, chain: Option<TenantId>, seq: u64, at: Revision) {
        let lines = self.chains.entry(chain).or_default();
        // A tenant that was made again has a chain of its own; the one before is not its business.
        if seq == 1 {
            lines.clear();
        }
        lines.push(at);
    }
}

/// How much to read for a line and those behind it. Where the lines of a tenant are few among those of others, what is
/// between them is not read.
fn bytes_for(lines: &[Revision], n: usize) -> usize {
    let is_dense = match (lines.get(n), lines.get(n + 1)) {
        (Some(line), Some(after)) => after.0.saturating_sub(line.0) <= AUDIT_GAP_READ,
        _ => false,
    };
    if is_dense { AUDIT_READ_BYTES } else { 1 }
}

fn line(entry: &Entry, tenant: Option<&TenantId>) -> Option<AuditItem> {
    match tenant {
        Some(_) => AuditItem::of_tenant(entry),
        None => AuditItem::of_cluster(entry),
    }
}

#[cfg(test)]
mod tests;
