//! What a request for an audit costs, and what it is answered.

use felix_meta::audit::verify;
use felix_meta::{AuditRecord, Command, TenantRecord};
use felix_model::TimeMs;

use super::*;
use crate::ledger::MemoryLedger;

/// A ledger where each line of `few` stands behind so many of `many`.
async fn apart(lines: usize, gap: usize) -> Authority {
    let authority = Authority::start(Box::new(MemoryLedger::new())).unwrap();
    for name in ["few", "many"] {
        let tenant = TenantRecord {
            tenant_id: name.parse().unwrap(),
            display_name: String::new(),
        };
        let made = authority.submit(Command::CreateTenant(tenant)).await;
        made.unwrap();
    }
    for _ in 0..lines {
        for name in std::iter::repeat_n("many", gap).chain(["few"]) {
            let command = Command::Audited {
                tenant_id: Some(name.parse().unwrap()),
                records: vec![record()],
            };
            authority.submit(command).await.unwrap();
        }
    }
    authority
}

fn record() -> AuditRecord {
    AuditRecord {
        what: "refused".into(),
        principal: "p:x".into(),
        from: "192.0.2.1".into(),
        reason: "forbidden".into(),
        request: "r".into(),
        count: 1,
        first_ms: TimeMs(1),
        last_ms: TimeMs(1),
    }
}

/// Every line of a chain that is asked for, page by page, and the end that the last page says.
async fn all(authority: &Authority, tenant: &str, asked: Asked) -> (Vec<AuditItem>, ChainHead) {
    let (index, tenant) = (Index::default(), tenant.parse().unwrap());
    let (mut asked, mut items) = (asked, Vec::new());
    loop {
        let page = index.page(authority, Some(&tenant), &asked).await.unwrap();
        assert!(page.items.len() <= asked.limit);
        items.extend(page.items);
        match page.next_after {
            Some(after) => {
                assert!(after > asked.after, "it goes on");
                asked.after = after;
            }
            None => return (items, page.head),
        }
    }
}

#[tokio::test]
async fn pages_of_any_size_hold_every_line_once_and_end_at_the_head() {
    let authority = apart(7, 3).await;
    for limit in 1..10 {
        let asked = Asked {
            limit,
            ..Asked::default()
        };
        let (items, head) = all(&authority, "few", asked).await;
        // The line of the tenant's making is the first.
        assert_eq!(items.len(), 8, "limit {limit}");
        assert_eq!(verify(&ChainHead::default(), &items), Ok(head));
    }
}

#[tokio::test]
async fn lines_that_are_far_apart_are_read_without_what_is_between_them() {
    let gap = AUDIT_GAP_READ as usize + 1;
    let authority = apart(20, gap).await;
    let (index, tenant) = (Index::default(), "few".parse().unwrap());
    let asked = Asked {
        limit: 1000,
        what: Some("nothing of this kind".into()),
        ..Asked::default()
    };
    let lines = index.lines(&authority, Some(&tenant), 0).await.unwrap();
    let mut read = 0;
    for (n, at) in lines.at.iter().enumerate() {
        let bytes = bytes_for(&lines.at, n);
        let from = Revision(at.0 - 1);
        read += authority.entries_after(from, bytes).await.unwrap().len();
    }
    assert_eq!(read, lines.at.len(), "one entry for each line");
    let page = index.page(&authority, Some(&tenant), &asked).await.unwrap();
    assert!(page.items.is_empty() && page.next_after.is_none());
}

#[tokio::test]
async fn a_head_is_that_of_the_lines_it_comes_with_while_others_write() {
    let authority = apart(3, 0).await;
    let writing = tokio::spawn({
        let authority = authority.clone();
        async move {
            loop {
                let command = Command::Audited {
                    tenant_id: Some("few".parse().unwrap()),
                    records: vec![record()],
                };
                authority.submit(command).await.unwrap();
            }
        }
    });
    let (index, tenant) = (Index::default(), "few".parse().unwrap());
    for _ in 0..200 {
        let asked = Asked {
            limit: usize::MAX,
            ..Asked::default()
        };
        let page = index.page(&authority, Some(&tenant), &asked).await.unwrap();
        if page.next_after.is_none() {
            assert_eq!(verify(&ChainHead::default(), &page.items), Ok(page.head));
        }
    }
    writing.abort();
}
