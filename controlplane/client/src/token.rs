//! Where the bearer token comes from.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::held::Held;

/// A token, or the file that always holds a fresh one. It never shows the token in `Debug`.
#[derive(Clone)]
pub enum TokenSource {
    /// No token: for the routes that need none.
    None,
    /// This token.
    Fixed(Arc<str>),
    /// Whatever the file holds when a call is made, so that whoever renews it need not tell us.
    File(Arc<Path>),
    /// Whatever its holder put in last.
    Held(Held),
}

impl TokenSource {
    /// A fixed token.
    #[must_use]
    pub fn fixed(token: &str) -> Self {
        Self::Fixed(token.into())
    }

    /// A file that holds a token.
    #[must_use]
    pub fn file(path: PathBuf) -> Self {
        Self::File(path.into())
    }

    pub(crate) fn read(&self) -> Result<Option<Arc<str>>, (Arc<Path>, io::Error)> {
        match self {
            Self::None => Ok(None),
            Self::Fixed(token) => Ok(Some(Arc::clone(token))),
            Self::Held(held) => Ok(Some(held.token())),
            Self::File(path) => std::fs::read_to_string(path)
                .map(|text| Some(text.trim().into()))
                .map_err(|error| (Arc::clone(path), error)),
        }
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => out.write_str("None"),
            Self::Fixed(_) => out.write_str("Fixed(..)"),
            Self::Held(held) => held.fmt(out),
            Self::File(path) => out.debug_tuple("File").field(path).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_shows_no_token() {
        assert_eq!(format!("{:?}", TokenSource::fixed("secret")), "Fixed(..)");
        let held = TokenSource::Held(Held::new("secret"));
        assert_eq!(format!("{held:?}"), "Held(..)");
    }
}
