//! Where in the ledger each line of an audit is.

use std::collections::BTreeMap;

use felix_meta::audit::AuditItem;
use felix_meta::http::AuditPage;
use felix_meta::{Entry, Revision};
use felix_model::TenantId;
use tokio::sync::Mutex;

use crate::authority::Authority;
use crate::ledger::ReadFailed;
use crate::limits::{AUDIT_LINES_LOOKED_AT, AUDIT_READ_BYTES, REPLAY_BYTES};

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
    /// At most [`AUDIT_LINES_LOOKED_AT`] lines are looked at, so a page may be short, or empty, and still not be the
    /// last.
    ///
    /// # Errors
    /// [`ReadFailed`] when the ledger cannot be read.
    pub(crate) async fn page(
        &self,
        authority: &Authority,
        tenant: Option<&TenantId>,
        asked: &Asked,
    ) -> Result<AuditPage, ReadFailed> {
        let (lines, more) = self.lines(authority, tenant, asked.after).await?;
        let mut page = AuditPage {
            items: Vec::new(),
            next_after: None,
            head: head(authority, tenant),
        };
        let mut looked_at = asked.after;
        let mut lines = lines.into_iter().peekable();
        while let Some(at) = lines.peek().copied() {
            let from = Revision(at.0.saturating_sub(1));
            let entries = authority.entries_after(from, AUDIT_READ_BYTES).await?;
            if entries.is_empty() {
                return Err(ReadFailed(format!("ledger record {at} is missing")));
            }
            for entry in entries {
                if lines.peek() != Some(&entry.revision) {
                    continue;
                }
                lines.next();
                looked_at += 1;
                page.items
                    .extend(line(&entry, tenant).filter(|item| asked.wants(item)));
                if page.items.len() == asked.limit {
                    let rest = more || lines.peek().is_some();
                    page.next_after = rest.then_some(looked_at);
                    return Ok(page);
                }
            }
        }
        page.next_after = more.then_some(looked_at);
        Ok(page)
    }

    /// The places of the lines after a number, as many as are looked at, and whether there are more.
    async fn lines(
        &self,
        authority: &Authority,
        tenant: Option<&TenantId>,
        after: u64,
    ) -> Result<(Vec<Revision>, bool), ReadFailed> {
        let mut known = self.known.lock().await;
        known.catch_up(authority).await?;
        let chain = known.chains.get(&tenant.cloned());
        let after = usize::try_from(after).unwrap_or(usize::MAX);
        let rest = chain
            .and_then(|chain| chain.get(after..))
            .unwrap_or_default();
        let lines = rest.iter().take(AUDIT_LINES_LOOKED_AT).copied().collect();
        Ok((lines, rest.len() > AUDIT_LINES_LOOKED_AT))
    }
}

impl Known {
    async fn catch_up(&mut self, authority: &Authority) -> Result<(), ReadFailed> {
        let newest = authority.catalogue().revision();
        while self.read_to < newest {
            let entries = authority.entries_after(self.read_to, REPLAY_BYTES).await?;
            if entries.is_empty() {
                break;
            }
            for entry in entries {
                self.read_to = entry.revision;
                self.add(&entry);
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

fn line(entry: &Entry, tenant: Option<&TenantId>) -> Option<AuditItem> {
    match tenant {
        Some(_) => AuditItem::of_tenant(entry),
        None => AuditItem::of_cluster(entry),
    }
}

fn head(authority: &Authority, tenant: Option<&TenantId>) -> felix_meta::audit::ChainHead {
    let catalogue = authority.catalogue();
    tenant.map_or_else(
        || catalogue.cluster_chain().clone(),
        |tenant| catalogue.chain_of(tenant.as_ref()),
    )
}
