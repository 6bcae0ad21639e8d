//! Moments: RFC 3339 in, RFC 3339 in UTC out. Written here because it is forty lines of
//! arithmetic and the only calendar this program needs.

/// Why a text is no moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no time; write it as 2026-11-30T09:15:00Z or 2026-11-30T10:15:00+01:00")]
pub struct BadTime {
    /// What was typed.
    pub text: String,
}

const DAY_MS: i64 = 86_400_000;

/// Reads an RFC 3339 time as Unix milliseconds. A date alone means its midnight in UTC; fractions
/// of a second beyond the third digit are cut.
///
/// # Errors
/// When the text has another shape or names a day or an hour that does not exist.
pub fn rfc3339(text: &str) -> Result<i64, BadTime> {
    parse(text.trim()).ok_or_else(|| BadTime {
        text: text.to_owned(),
    })
}

fn parse(text: &str) -> Option<i64> {
    let (date, clock) = match text.split_once(['T', 't', ' ']) {
        Some((date, clock)) => (date, Some(clock)),
        None => (text, None),
    };
    let mut parts = date.split('-');
    let year = digits(parts.next()?, 4)?;
    let month = digits(parts.next()?, 2)?;
    let day = digits(parts.next()?, 2)?;
    if parts.next().is_some() || !(1..=12).contains(&month) {
        return None;
    }
    if day < 1 || day > days_in_month(year, month) {
        return None;
    }
    let midnight_ms = days_since_epoch(year, month, day) * DAY_MS;
    clock.map_or(Some(midnight_ms), |clock| {
        Some(midnight_ms + clock_ms(clock)?)
    })
}

/// Milliseconds from midnight UTC to a wall time with its zone.
fn clock_ms(clock: &str) -> Option<i64> {
    let zone_at = clock.find(['Z', 'z', '+', '-'])?;
    let (wall, zone) = clock.split_at(zone_at);
    let offset_minutes = zone_minutes(zone)?;
    let (whole, fraction) = wall.split_once('.').unwrap_or((wall, "0"));
    let mut parts = whole.split(':');
    let hour = digits(parts.next()?, 2)?;
    let minute = digits(parts.next()?, 2)?;
    let second = digits(parts.next()?, 2)?;
    // A leap second is taken as the first moment after it, as the system clock does.
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let ms: i64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    Some(((hour * 60 + minute - offset_minutes) * 60 + second) * 1_000 + ms)
}

fn zone_minutes(zone: &str) -> Option<i64> {
    if zone == "Z" || zone == "z" {
        return Some(0);
    }
    let (sign, rest) = match zone.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let (hours, minutes) = (digits(hours, 2)?, digits(minutes, 2)?);
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 60 + minutes))
}

fn digits(text: &str, count: usize) -> Option<i64> {
    let good = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    good.then(|| text.parse().ok()).flatten()
}

/// Shows Unix milliseconds as RFC 3339 in UTC with milliseconds.
#[must_use]
pub fn show_time(unix_ms: i64) -> String {
    let (year, month, day) = date_of(unix_ms.div_euclid(DAY_MS));
    let ms = unix_ms.rem_euclid(DAY_MS);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        ms / 3_600_000,
        ms / 60_000 % 60,
        ms / 1_000 % 60,
        ms % 1_000
    )
}

fn leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

// Years are counted from March, so that the leap day is the last day of a year and every month
// before it has a fixed place; 400 years are 146,097 days, and 719,468 days lie between
// 0000-03-01 and 1970-01-01.

fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let march_year = if month > 2 { year } else { year - 1 };
    let march_month = (month + 9) % 12;
    let era = march_year.div_euclid(400);
    let year_of_era = march_year.rem_euclid(400);
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_moments_are_read() {
        let table = [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-11-30T09:15:00Z", 1_796_030_100_000),
            ("2026-11-30T10:15:00+01:00", 1_796_030_100_000),
            ("2026-11-30T03:45:00-05:30", 1_796_030_100_000),
            ("2026-11-30T09:15:00.5Z", 1_796_030_100_500),
            ("2026-11-30 09:15:00.123456Z", 1_796_030_100_123),
            ("2026-11-30", 1_795_996_800_000),
            ("2000-02-29T12:00:00z", 951_825_600_000),
            ("1969-12-31T23:59:59.999Z", -1),
        ];
        for (text, ms) in table {
            assert_eq!(rfc3339(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn moments_that_do_not_exist_are_refused() {
        let bad = [
            "",
            "yesterday",
            "2026-13-01",
            "2026-02-29",
            "1900-02-29",
            "2026-1-1",
            "2026-11-30T09:15Z",
            "2026-11-30T09:15:00",
            "2026-11-30T25:00:00Z",
            "2026-11-30T09:15:00.Z",
            "2026-11-30T09:15:00+0100",
            "2026-11-30T09:15:00+25:00",
            "2026-11-30-01T00:00:00Z",
        ];
        for text in bad {
            assert!(rfc3339(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_moment_reads_back(ms in -60_000_000_000_000_i64..250_000_000_000_000) {
            prop_assert_eq!(rfc3339(&show_time(ms)), Ok(ms));
        }
    }
}
