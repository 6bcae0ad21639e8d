//! The fields of a measurement's report.

use serde::Serialize;
use serde_json::{Map, Value};

use super::{Machine, Percentiles};
use crate::output::Field;
use crate::parse::show_size;

/// A field with two digits at most, however exact the number is.
pub(super) const fn rounded(name: &'static str) -> Field {
    Field::shown(name, |value| {
        value
            .as_f64()
            .map_or_else(|| "-".into(), |number| format!("{number:.1}"))
    })
}

/// A large number with its thousands set apart.
pub(super) const fn thousands(name: &'static str) -> Field {
    Field::shown(name, |value| {
        let Some(number) = value.as_f64() else {
            return "-".into();
        };
        let digits = format!("{number:.0}");
        let mut shown = String::new();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                shown.push(' ');
            }
            shown.push(digit);
        }
        shown
    })
}

/// A number of bytes.
pub(super) const fn bytes(name: &'static str) -> Field {
    Field::shown(name, |value| {
        value.as_u64().map_or_else(|| "-".into(), show_size)
    })
}

/// The machine, in one line.
pub(super) const MACHINE: Field = Field::shown("machine", |value| {
    serde_json::from_value::<Machine>(value.clone()).map_or_else(|_| "-".into(), |it| it.line())
});

/// Puts the percentiles into a report under a prefix, as in `ack_p50_us`.
pub(super) fn put_percentiles(report: &mut Value, prefix: &str, percentiles: &Percentiles) {
    let fields = to_map(percentiles);
    if let Some(report) = report.as_object_mut() {
        for (name, value) in fields {
            report.insert(format!("{prefix}_{name}"), value);
        }
    }
}

/// Puts the percentiles into a report that has no others.
pub(super) fn put_all(report: &mut Value, percentiles: &Percentiles) {
    if let Some(report) = report.as_object_mut() {
        report.extend(to_map(percentiles));
    }
}

fn to_map(value: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn large_numbers_are_readable() {
        let show = thousands("x").show;
        assert_eq!(show(&json!(1_234_567.4)), "1 234 567");
        assert_eq!(show(&json!(999)), "999");
        assert_eq!(show(&json!(1000)), "1 000");
        assert_eq!(show(&Value::Null), "-");
    }

    #[test]
    fn percentiles_get_their_prefix() {
        let mut report = json!({});
        put_percentiles(
            &mut report,
            "ack",
            &Percentiles {
                p50_us: 1.5,
                ..Percentiles::default()
            },
        );
        assert_eq!(report["ack_p50_us"], 1.5);
    }
}
