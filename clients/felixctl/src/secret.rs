//! A text that is never shown.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A token, a key or a password. It is written to files that only their owner may read and to
/// nothing else: neither `Debug` nor an error shows it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// The text itself, for the one place that must send or keep it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_kept_whole_and_never_shown() {
        let secret = Secret::from("sesame");
        assert_eq!(
            format!("{secret:?} {:#?}", Some(&secret)).find("sesame"),
            None
        );
        let kept = serde_json::to_string(&secret).expect("json");
        let read: Secret = serde_json::from_str(&kept).expect("json");
        assert_eq!(read.reveal(), "sesame");
    }
}
