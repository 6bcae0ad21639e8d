//! Byte counts: `64MiB`, `1.5GB`, `4096`.

/// Why a text is no byte count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSize {
    /// There is no number at the beginning.
    #[error("{text:?} is no size; write 4096, 64KiB, 64MiB or 1.5GB")]
    NoNumber {
        /// What was typed.
        text: String,
    },
    /// The letters after the number are no unit of bytes.
    #[error("{unit:?} is no unit of bytes; use B, KiB, MiB, GiB, TiB, kB, MB, GB or TB")]
    UnknownUnit {
        /// The letters after the number.
        unit: String,
    },
    /// More bytes than 64 bits can count.
    #[error("{text:?} is more than 2^64 bytes")]
    TooLarge {
        /// What was typed.
        text: String,
    },
}

/// Reads a byte count. Units with an `i` are powers of 1024, those without are powers of 1000;
/// a bare letter (`64M`) means the power of 1024, as most tools for disks have it.
///
/// # Errors
/// When there is no number, an unknown unit, or too many bytes.
pub fn size(text: &str) -> Result<u64, BadSize> {
    let typed = text.trim();
    let split = typed.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_');
    let (number, unit) = typed.split_at(split.unwrap_or(typed.len()));
    let number = number.replace('_', "");
    let unit = unit.trim();
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => {
            return Err(BadSize::UnknownUnit {
                unit: unit.to_owned(),
            });
        }
    };
    let too_large = || BadSize::TooLarge {
        text: text.to_owned(),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(too_large);
    }
    let fraction: f64 = number.parse().map_err(|_| BadSize::NoNumber {
        text: text.to_owned(),
    })?;
    let bytes = fraction * factor as f64;
    if bytes >= u64::MAX as f64 {
        return Err(too_large());
    }
    Ok(bytes as u64)
}

/// Shows a byte count as people read it: the exact number when it is small or a whole number of
/// units, else three digits and a binary unit.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [
        ("TiB", 1 << 40),
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("KiB", 1 << 10),
    ];
    for (unit, factor) in UNITS {
        if bytes >= factor {
            return if bytes.is_multiple_of(factor) {
                format!("{}{unit}", bytes / factor)
            } else {
                format!("{:.1}{unit}", bytes as f64 / factor as f64)
            };
        }
    }
    format!("{bytes}B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_binary_and_decimal_units() {
        let table = [
            ("0", 0),
            ("4096", 4096),
            ("64KiB", 65_536),
            ("64k", 65_536),
            ("64MiB", 67_108_864),
            ("1.5GB", 1_500_000_000),
            ("1 GiB", 1_073_741_824),
            ("1_000", 1_000),
            ("2TB", 2_000_000_000_000),
        ];
        for (text, bytes) in table {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn a_size_without_a_number_or_with_a_strange_unit_is_refused() {
        assert!(matches!(size("MiB"), Err(BadSize::NoNumber { .. })));
        assert!(matches!(size(""), Err(BadSize::NoNumber { .. })));
        assert!(matches!(size("-5"), Err(BadSize::UnknownUnit { .. })));
        assert!(matches!(
            size("5 parsecs"),
            Err(BadSize::UnknownUnit { .. })
        ));
        assert!(matches!(size("1.2.3"), Err(BadSize::NoNumber { .. })));
        assert!(matches!(size("99999999TiB"), Err(BadSize::TooLarge { .. })));
        assert!(matches!(
            size("99999999.5TiB"),
            Err(BadSize::TooLarge { .. })
        ));
    }

    #[test]
    fn shown_sizes_are_short() {
        let table = [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1KiB"),
            (1536, "1.5KiB"),
            (64 << 20, "64MiB"),
            (u64::MAX, "16777216.0TiB"),
        ];
        for (bytes, text) in table {
            assert_eq!(show_size(bytes), text);
        }
    }
}
