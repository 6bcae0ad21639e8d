//! Lengths of time: `90s`, `15m`, `1h30m`, `250ms`.

use std::time::Duration;

/// Why a text is no length of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDuration {
    /// No number where one was expected, or nothing at all.
    #[error("{text:?} is no duration; write 250ms, 90s, 15m, 1h30m or 7d")]
    NoNumber {
        /// What was typed.
        text: String,
    },
    /// The letters after a number are no unit of time, or there are none.
    #[error("{unit:?} is no unit of time; use ms, s, m, h, d or w")]
    UnknownUnit {
        /// The letters after the number.
        unit: String,
    },
    /// Longer than 64 bits of milliseconds.
    #[error("{text:?} is too long a time")]
    TooLong {
        /// What was typed.
        text: String,
    },
}

/// Reads a length of time made of whole numbers and units, the largest first by custom only.
///
/// # Errors
/// When a number or a unit is missing or unknown, or the sum does not fit 64 bits of milliseconds.
pub fn duration(text: &str) -> Result<Duration, BadDuration> {
    let no_number = || BadDuration::NoNumber {
        text: text.to_owned(),
    };
    let too_long = || BadDuration::TooLong {
        text: text.to_owned(),
    };
    let mut rest = text.trim();
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(no_number());
    }
    let mut total_ms: u64 = 0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let number: u64 = match number {
            "" => return Err(no_number()),
            digits => digits.parse().map_err(|_| too_long())?,
        };
        let letters = after
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let unit_ms: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 604_800_000,
            _ => {
                return Err(BadDuration::UnknownUnit {
                    unit: unit.to_owned(),
                });
            }
        };
        let part_ms = number.checked_mul(unit_ms).ok_or_else(too_long)?;
        total_ms = total_ms.checked_add(part_ms).ok_or_else(too_long)?;
        rest = after.trim_start();
    }
    Ok(Duration::from_millis(total_ms))
}

/// Shows a length of time in its two largest units, so that `1h30m` reads back as it was typed.
#[must_use]
pub fn show_duration(time: Duration) -> String {
    const UNITS: [(&str, u128); 5] = [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
        ("ms", 1),
    ];
    let mut rest = time.as_millis();
    let mut text = String::new();
    let mut parts = 0;
    for (unit, unit_ms) in UNITS {
        if rest >= unit_ms && parts < 2 {
            text.push_str(&format!("{}{unit}", rest / unit_ms));
            rest %= unit_ms;
            parts += 1;
        } else if parts == 1 {
            // `1d5s` would pretend to a precision that "a day" does not have.
            break;
        }
    }
    if text.is_empty() { "0s".into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_every_unit() {
        let table = [
            ("0", 0),
            ("250ms", 250),
            ("90s", 90_000),
            ("15m", 900_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("7d", 604_800_000),
            ("2w", 1_209_600_000),
        ];
        for (text, ms) in table {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn a_duration_needs_numbers_and_units() {
        assert!(matches!(duration(""), Err(BadDuration::NoNumber { .. })));
        assert!(matches!(duration("m"), Err(BadDuration::NoNumber { .. })));
        assert!(matches!(
            duration("10"),
            Err(BadDuration::UnknownUnit { .. })
        ));
        assert!(matches!(
            duration("10 fortnights"),
            Err(BadDuration::UnknownUnit { .. })
        ));
        assert!(matches!(
            duration("-10m"),
            Err(BadDuration::NoNumber { .. })
        ));
        assert!(matches!(
            duration("99999999999999999999s"),
            Err(BadDuration::TooLong { .. })
        ));
        assert!(matches!(
            duration("18446744073709551615w"),
            Err(BadDuration::TooLong { .. })
        ));
    }

    #[test]
    fn shown_durations_read_back() {
        for text in ["250ms", "1m30s", "15m", "1h30m", "7d", "30d"] {
            let time = duration(text).expect("a good duration");
            assert_eq!(show_duration(time), text);
        }
        assert_eq!(show_duration(Duration::ZERO), "0s");
        assert_eq!(show_duration(Duration::from_secs(86_405)), "1d");
    }
}
