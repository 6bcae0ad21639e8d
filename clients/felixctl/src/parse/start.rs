//! Where reading begins: `latest`, `earliest`, an offset, a time, or a time ago.

use std::str::FromStr;
use std::time::Duration;

use super::{BadDuration, BadTime, duration, rfc3339};

/// Where a subscription or a read begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Only what is published from now on.
    Latest,
    /// The oldest record that retention has kept.
    Earliest,
    /// The record with this offset.
    Offset(u64),
    /// The first record at or after this moment, in Unix milliseconds.
    At(i64),
    /// The first record of the last so much time.
    Ago(Duration),
}

/// Why a text is no position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadStart {
    /// It begins like a time ago, and the rest is no duration.
    #[error(transparent)]
    Ago(#[from] BadDuration),
    /// It looks like a date and is none.
    #[error(transparent)]
    Time(#[from] BadTime),
    /// It is nothing of the kind.
    #[error(
        "{text:?} is no position; write latest, earliest, an offset, -10m or \
         2026-11-30T09:15:00Z"
    )]
    Unknown {
        /// What was typed.
        text: String,
    },
}

impl FromStr for Start {
    type Err = BadStart;

    fn from_str(text: &str) -> Result<Self, BadStart> {
        let text = text.trim();
        match text {
            "latest" | "end" => return Ok(Self::Latest),
            "earliest" | "start" => return Ok(Self::Earliest),
            _ => {}
        }
        if let Some(ago) = text.strip_prefix('-') {
            return Ok(Self::Ago(duration(ago)?));
        }
        if let Ok(offset) = text.parse() {
            return Ok(Self::Offset(offset));
        }
        if text.starts_with(|c: char| c.is_ascii_digit()) && text.contains('-') {
            return Ok(Self::At(rfc3339(text)?));
        }
        Err(BadStart::Unknown {
            text: text.to_owned(),
        })
    }
}

impl Start {
    /// The moment meant, when a time was meant; `now_ms` is what a time ago counts back from.
    #[must_use]
    pub fn moment_ms(self, now_ms: i64) -> Option<i64> {
        match self {
            Self::Latest | Self::Earliest | Self::Offset(_) => None,
            Self::At(ms) => Some(ms),
            Self::Ago(ago) => {
                Some(now_ms.saturating_sub(i64::try_from(ago.as_millis()).unwrap_or(i64::MAX)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_position_is_read() {
        let table = [
            ("latest", Start::Latest),
            ("earliest", Start::Earliest),
            ("0", Start::Offset(0)),
            ("18446744073709551615", Start::Offset(u64::MAX)),
            ("-10m", Start::Ago(Duration::from_secs(600))),
            ("2026-11-30T09:15:00Z", Start::At(1_796_030_100_000)),
        ];
        for (text, start) in table {
            assert_eq!(text.parse(), Ok(start), "{text}");
        }
    }

    #[test]
    fn a_bad_position_says_what_is_wrong_with_it() {
        assert!(matches!("-10".parse::<Start>(), Err(BadStart::Ago(_))));
        assert!(matches!(
            "2026-11-31".parse::<Start>(),
            Err(BadStart::Time(_))
        ));
        assert!(matches!(
            "newest".parse::<Start>(),
            Err(BadStart::Unknown { .. })
        ));
        assert!(matches!(
            "18446744073709551616".parse::<Start>(),
            Err(BadStart::Unknown { .. })
        ));
    }

    #[test]
    fn a_time_ago_counts_back_from_now() {
        assert_eq!(
            Start::Ago(Duration::from_secs(60)).moment_ms(100_000),
            Some(40_000)
        );
        assert_eq!(Start::Ago(Duration::MAX).moment_ms(0), Some(-i64::MAX));
        assert_eq!(Start::Latest.moment_ms(0), None);
    }
}
