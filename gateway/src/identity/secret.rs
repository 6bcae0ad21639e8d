//! Text that is never shown.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

/// A token or a part of one. It shows neither in `Debug` nor in errors.
#[derive(Clone)]
pub(crate) struct Secret(Arc<str>);

impl Secret {
    pub(crate) fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text itself, for whoever it is meant for.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// What it can be found again by without being kept.
    pub(crate) fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(hidden)")
    }
}
