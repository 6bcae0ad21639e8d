//! Where reading begins, as a person writes it: an offset, an end, a time, or how long ago.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::refusal::Refusal;

/// A place in a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Earliest,
    Latest,
    Offset(u64),
    Time(SystemTime),
}

/// Reads `earliest`, `latest`, `57`, `-10m` (s, m, h, d, w) or `2026-11-30T09:15:00Z`.
///
/// # Errors
/// When it is none of these.
pub(super) fn parse(text: &str, now: SystemTime) -> Result<Place, Refusal> {
    match text {
        "earliest" => return Ok(Place::Earliest),
        "latest" => return Ok(Place::Latest),
        _ => {}
    }
    if let Ok(offset) = text.parse() {
        return Ok(Place::Offset(offset));
    }
    let time = match text.strip_prefix('-') {
        Some(ago) => duration(ago).and_then(|ago| now.checked_sub(ago)),
        None => rfc3339(text),
    };
    time.map(Place::Time).ok_or_else(|| {
        let shown: String = text.chars().take(64).collect();
        Refusal::invalid(format!(
            "`{shown}` is no place: write earliest, latest, an offset, -10m or 2026-11-30T09:15:00Z"
        ))
    })
}

fn duration(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        'w' => 604_800,
        _ => return None,
    };
    number.checked_mul(seconds).map(Duration::from_secs)
}

/// `2026-11-30T09:15:00Z`, with a fraction and an offset from UTC if need be.
fn rfc3339(text: &str) -> Option<SystemTime> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let mut parts = date.split('-');
    let (year, month, day) = (
        number(parts.next()?, 4)?,
        number(parts.next()?, 2)?,
        number(parts.next()?, 2)?,
    );
    let at = time.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = time.split_at_checked(at)?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut parts = clock.split(':');
    let (hour, minute) = (number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let second = number(parts.next()?, 2)?;
    let fits = parts.next().is_none()
        && (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !fits || fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let seconds =
        days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset(zone)?;
    let nanos: u32 = format!("{fraction:0<9}").parse().ok()?;
    UNIX_EPOCH.checked_add(Duration::new(u64::try_from(seconds).ok()?, nanos))
}

fn number(text: &str, digits: usize) -> Option<i64> {
    let plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// Seconds east of UTC.
fn offset(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, rest) = match zone.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    Some(sign * (number(hours, 2)? * 3_600 + number(minutes, 2)? * 60))
}

/// Days since 1970-01-01 of a date of the Gregorian calendar, with years that begin in March so that the leap day is
/// the last of them.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn every_way_of_writing_a_place_is_read() {
        let now = at(1_000_000);
        let read = |text: &str| parse(text, now).unwrap();
        assert_eq!(read("earliest"), Place::Earliest);
        assert_eq!(read("57"), Place::Offset(57));
        assert_eq!(read("-10m"), Place::Time(at(999_400)));
        assert_eq!(read("1970-01-02T00:00:00Z"), Place::Time(at(86_400)));
        assert_eq!(
            read("2026-11-30T10:15:00+01:00"),
            Place::Time(at(1_796_030_100))
        );
        assert_eq!(
            read("2024-02-29T00:00:00.5Z"),
            Place::Time(at(1_709_164_800) + Duration::from_millis(500))
        );
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for bad in [
            "",
            "-",
            "-10",
            "-10y",
            "2026-13-01T00:00:00Z",
            "2026-11-30",
            "1e9",
            "2026-11-30T25:00:00Z",
            "-99999999999999999999d",
        ] {
            assert!(parse(bad, at(0)).is_err(), "{bad}");
        }
    }
}
