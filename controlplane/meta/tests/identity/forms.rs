//! Forms that must stay readable.

use felix_meta::audit::{self, AuditItem, ChainHead};
use felix_meta::{Catalogue, ENTRY_VERSION, Entry};

/// An audit in the form that readers of it were told, one line a line, chained by another program than ours; and its end.
const AUDIT_1: &str = include_str!("../fixtures/audit-v1.jsonl");
const AUDIT_1_HEAD: &str = "1907938588f1804824c7732bf38b2468c3324234121cccce75174875ffddbe9c";

/// Entries as the first form wrote them, one a line.
const FORM_1: &str = include_str!("../fixtures/entries-v1.jsonl");

#[test]
fn entries_of_the_first_form_are_still_read() {
    let mut state = Catalogue::default();
    let mut kinds = std::collections::BTreeSet::new();
    for line in FORM_1.lines() {
        let json: serde_json::Value = serde_json::from_str(line).unwrap();
        let entry = Entry::from_json(&json).unwrap();
        assert_eq!((entry.version, &entry.audit), (1, &None));
        assert_eq!(entry.revision, state.revision().next());
        kinds.insert(json["event"]["type"].as_str().unwrap().to_owned());
        state.apply_entry(&entry);
    }
    assert_eq!(kinds.len(), 17, "every event of that form: {kinds:?}");
    assert_eq!(state.revision().0, 22);
    let entry = state.tenant("t").unwrap();
    assert_eq!(entry.current_key, "k2");
    assert_eq!(entry.keys.len(), 1);
    assert!(entry.revocations.is_empty() && entry.groupings.is_empty());
    assert!(state.stream("t", "ns", "s2").is_some() && state.stream("t", "ns", "s").is_none());
    assert!(state.cluster_chain().is_empty());
}

#[test]
fn a_new_entry_says_its_form() {
    let event = felix_meta::Event::TenantDeleted {
        tenant_id: "t".parse().unwrap(),
    };
    let entry = Catalogue::default().entry(felix_model::TimeMs(1), event, None);
    let json = serde_json::to_value(&entry).unwrap();
    assert_eq!(json["version"], ENTRY_VERSION);
    assert_eq!(ENTRY_VERSION, 3);
    assert!(json.get("by").is_none());
    assert_eq!(json["audit"]["cluster"]["seq"], 1);
}

#[test]
fn an_audit_chained_long_ago_or_elsewhere_holds() {
    let lines: Result<Vec<AuditItem>, _> = AUDIT_1.lines().map(serde_json::from_str).collect();
    // A field that is added to a line, or a form that changes, would say of every old one that it was tampered with.
    let end = audit::verify(&ChainHead::default(), &lines.unwrap()).unwrap();
    assert_eq!((end.seq, end.hash.as_str()), (5, AUDIT_1_HEAD));
}
