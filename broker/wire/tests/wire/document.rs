//! What `docs/PROTOCOL.md` says, compared with what the code does.

use std::fs;
use std::path::Path;

use felix_wire::extension::{Extension, Kind};
use felix_wire::{Code, Message, Retry};

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/PROTOCOL.md");
    fs::read_to_string(path).unwrap()
}

#[test]
fn every_message_is_described() {
    let document = document();
    for (name, _) in Message::TYPES {
        assert!(
            document.contains(&format!("`{name}`")),
            "{name} is not described"
        );
    }
}

#[test]
fn every_code_is_described_with_its_number_and_class() {
    let document = document();
    for code in Code::ALL {
        let row = format!(
            "| {} | `{code}` | {} |",
            code.number(),
            code.default_retry()
        );
        assert!(document.contains(&row), "no row begins with {row}");
    }
    for class in Retry::ALL {
        let row = format!("| {} | `{class}` |", class.byte());
        assert!(document.contains(&row), "no row begins with {row}");
    }
}

#[test]
fn every_kind_and_every_extension_is_described() {
    let document = document();
    for kind in Kind::all() {
        let owner = kind
            .extension()
            .map(|extension| format!("`{}`", extension.name()));
        let owner = owner.unwrap_or_else(|| "all".to_owned());
        let (start, end) = (
            format!("| {:#06x} | ", kind.number()),
            format!("| {owner} |"),
        );
        let described = |line: &str| line.starts_with(&start) && line.ends_with(&end);
        assert!(document.lines().any(described), "{kind:?} is not described");
    }
    for extension in Extension::ALL {
        assert!(document.contains(&format!("### `{}`", extension.name())));
    }
}
