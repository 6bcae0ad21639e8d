//! Publishing that a page may repeat (`idempotent_publish`): what a publish is known by, whichever gateway and whichever
//! connection it comes over. Nothing is kept here: the broker remembers the key beside the record.

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

/// A page's name for itself, which it keeps when it connects again; another person's page of that name is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page([u8; 32]);

/// What one publish is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Once {
    /// The page: all its publishes are of one entity.
    pub(crate) entity: Bytes,
    /// The publish.
    pub(crate) key: Bytes,
}

impl Page {
    pub(crate) fn new(principal: &str, name: &str) -> Self {
        let mut digest = Sha256::new();
        digest.update((principal.len() as u64).to_be_bytes());
        digest.update(principal);
        digest.update(name);
        Self(digest.finalize().into())
    }

    /// The publish with this number.
    pub(crate) fn once(&self, seq: u64) -> Once {
        let mut digest = Sha256::new();
        digest.update(self.0);
        digest.update(seq.to_be_bytes());
        let key: [u8; 32] = digest.finalize().into();
        let entity: String = self
            .0
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Once {
            entity: entity.into(),
            key: key.to_vec().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publish_is_known_by_its_person_page_and_number() {
        let page = Page::new("ann", "tab-1");
        assert_eq!(page.once(7), Page::new("ann", "tab-1").once(7));
        assert_eq!(page.once(7).entity, page.once(8).entity);
        let others = [
            page.once(8),
            Page::new("bob", "tab-1").once(7),
            Page::new("ann", "tab-2").once(7),
            Page::new("annt", "ab-1").once(7),
        ];
        assert!(others.iter().all(|other| other.key != page.once(7).key));
    }
}
