//! Settings of topics under the names that Kafka has for them.

use felix_meta::{Cleanup, StreamRecord, Timestamps};
use kafka_protocol::protocol::StrBytes;

use super::admin::{Refused, Settings};
use crate::limits::{BATCH_BYTES_CEILING, BATCH_BYTES_MAX};
use crate::wire::codes::INVALID_CONFIG;

/// Type of a setting, in the numbers of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Boolean = 1,
    Text = 2,
    Int = 3,
    Long = 5,
    Double = 6,
    List = 7,
}

/// A setting as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) kind: Type,
    /// Somebody set it for this topic.
    pub(super) own: bool,
    pub(super) read_only: bool,
}

/// Settings of Kafka's topics that have no effect here, with the value that says how things are. Setting one to
/// something else is taken and means nothing, because tools set many of them by habit.
const WITHOUT_EFFECT: [(&str, &str, Type); 19] = [
    ("delete.retention.ms", "86400000", Type::Long),
    ("file.delete.delay.ms", "60000", Type::Long),
    ("flush.messages", "9223372036854775807", Type::Long),
    ("flush.ms", "9223372036854775807", Type::Long),
    ("index.interval.bytes", "4096", Type::Int),
    ("local.retention.bytes", "-2", Type::Long),
    ("local.retention.ms", "-2", Type::Long),
    ("max.compaction.lag.ms", "9223372036854775807", Type::Long),
    (
        "message.timestamp.after.max.ms",
        "9223372036854775807",
        Type::Long,
    ),
    (
        "message.timestamp.before.max.ms",
        "9223372036854775807",
        Type::Long,
    ),
    ("min.cleanable.dirty.ratio", "0.5", Type::Double),
    ("min.compaction.lag.ms", "0", Type::Long),
    ("min.insync.replicas", "1", Type::Int),
    ("preallocate", "false", Type::Boolean),
    ("remote.storage.enable", "false", Type::Boolean),
    ("segment.bytes", "1073741824", Type::Int),
    ("segment.index.bytes", "10485760", Type::Int),
    ("segment.jitter.ms", "0", Type::Long),
    ("segment.ms", "604800000", Type::Long),
];

/// Settings that can only be what they are, because batches stay as producers made them.
const FIXED: [(&str, &str, Type); 2] = [
    ("compression.type", "producer", Type::Text),
    ("unclean.leader.election.enable", "false", Type::Boolean),
];

/// Every setting of a topic, by name.
pub(super) fn of_topic(stream: &StreamRecord) -> Vec<Setting> {
    let retention = &stream.retention;
    let age = retention.max_age_seconds;
    let cleanup = match stream.cleanup {
        Cleanup::Delete => "delete",
        Cleanup::Compact => "compact",
    };
    let own = |name, value: String, kind, own| Setting {
        name,
        value,
        kind,
        own,
        read_only: false,
    };
    let unbounded =
        |bound: Option<u64>| bound.map_or_else(|| "-1".to_owned(), |bound| bound.to_string());
    let mut all = vec![
        own(
            "cleanup.policy",
            cleanup.to_owned(),
            Type::List,
            stream.cleanup != Cleanup::Delete,
        ),
        own(
            "max.message.bytes",
            batch_bytes_max(stream).to_string(),
            Type::Int,
            false,
        ),
        own(
            "message.timestamp.type",
            match stream.timestamps {
                Timestamps::Create => "CreateTime".to_owned(),
                Timestamps::Append => "LogAppendTime".to_owned(),
            },
            Type::Text,
            stream.timestamps != Timestamps::default(),
        ),
        own(
            "retention.bytes",
            unbounded(retention.max_size_bytes),
            Type::Long,
            retention.max_size_bytes.is_some(),
        ),
        own(
            "retention.ms",
            unbounded(age.map(|age| age.saturating_mul(1000))),
            Type::Long,
            age.is_some(),
        ),
    ];
    for (name, value, kind) in WITHOUT_EFFECT.iter().chain(&FIXED) {
        all.push(Setting {
            name,
            value: (*value).to_owned(),
            kind: *kind,
            own: false,
            read_only: true,
        });
    }
    all.sort_by_key(|setting| setting.name);
    all
}

/// The largest batch that a topic takes: one of Kafka's usual size, and larger ones where larger records are allowed.
pub(crate) fn batch_bytes_max(stream: &StreamRecord) -> usize {
    let record = usize::try_from(stream.max_record_bytes).unwrap_or(BATCH_BYTES_CEILING);
    // A batch header and a record's own fields beside what the limit counts.
    record
        .saturating_add(1024)
        .clamp(BATCH_BYTES_MAX, BATCH_BYTES_CEILING)
}

/// Every setting that has an effect, put back to its default.
pub(super) const fn defaults() -> Settings {
    Settings {
        cleanup: Some(Cleanup::Delete),
        timestamps: Some(Timestamps::Create),
        max_age: Some(None),
        max_size: Some(None),
        max_record_bytes: Some(BATCH_BYTES_MAX as u32),
    }
}

/// Reads settings on top of others; null puts one back to its default.
///
/// # Errors
/// [`Refused`] names the setting and what it can be.
pub(super) fn read<'a>(
    mut settings: Settings,
    pairs: impl Iterator<Item = (&'a StrBytes, Option<&'a StrBytes>)>,
) -> Result<Settings, Refused> {
    for (name, value) in pairs {
        set(&mut settings, name.as_str(), value.map(StrBytes::as_str))?;
    }
    Ok(settings)
}

/// Takes one setting over.
///
/// # Errors
/// [`Refused`] names the setting and what it can be.
pub(super) fn set(settings: &mut Settings, name: &str, value: Option<&str>) -> Result<(), Refused> {
    let bad = |can_be: &str| {
        let value = value.unwrap_or("null");
        Refused::new(
            INVALID_CONFIG,
            format!("{name} cannot be {value:?}: {can_be}"),
        )
    };
    match name {
        "cleanup.policy" => {
            settings.cleanup = Some(match value {
                None | Some("delete") => Cleanup::Delete,
                Some("compact") => Cleanup::Compact,
                Some(_) => return Err(bad("delete or compact")),
            });
        }
        "message.timestamp.type" => {
            settings.timestamps = Some(match value {
                None | Some("CreateTime") => Timestamps::Create,
                Some("LogAppendTime") => Timestamps::Append,
                Some(_) => return Err(bad("CreateTime or LogAppendTime")),
            });
        }
        "retention.ms" => {
            let age = bound(value).ok_or_else(|| bad("a number of milliseconds, or -1"))?;
            // A stream counts seconds; less than one would delete everything at once.
            settings.max_age = Some(age.map(|ms| ms.div_ceil(1000).max(1)));
        }
        "retention.bytes" => {
            let size = bound(value).ok_or_else(|| bad("a number of bytes, or -1"))?;
            settings.max_size = Some(size.map(|bytes| bytes.max(1)));
        }
        "max.message.bytes" => {
            let bytes = match value {
                None => BATCH_BYTES_MAX as u32,
                Some(text) => text
                    .parse()
                    .ok()
                    .filter(|bytes| (1..=BATCH_BYTES_CEILING as u32).contains(bytes))
                    .ok_or_else(|| bad("a number of bytes up to 15728640"))?,
            };
            settings.max_record_bytes = Some(bytes);
        }
        _ => {
            if let Some((_, only, _)) = FIXED.iter().find(|(fixed, ..)| *fixed == name) {
                let same = value.is_none_or(|value| value.eq_ignore_ascii_case(only));
                return if same { Ok(()) } else { Err(bad(only)) };
            }
            if !WITHOUT_EFFECT.iter().any(|(known, ..)| *known == name) {
                let message = format!("there is no setting {name:?} of topics");
                return Err(Refused::new(INVALID_CONFIG, message));
            }
        }
    }
    Ok(())
}

/// A number, or none for -1 and for the default; `None` for anything else.
fn bound(value: Option<&str>) -> Option<Option<u64>> {
    match value {
        None | Some("-1") => Some(None),
        Some(text) => text.parse().ok().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, value: &str) -> Result<Settings, Refused> {
        let mut settings = Settings::default();
        set(&mut settings, name, Some(value)).map(|()| settings)
    }

    #[test]
    fn what_has_an_effect_is_read() {
        assert_eq!(
            one("cleanup.policy", "compact").unwrap().cleanup,
            Some(Cleanup::Compact)
        );
        assert_eq!(
            one("message.timestamp.type", "LogAppendTime")
                .unwrap()
                .timestamps,
            Some(Timestamps::Append)
        );
        assert_eq!(one("retention.ms", "-1").unwrap().max_age, Some(None));
        assert_eq!(one("retention.ms", "1500").unwrap().max_age, Some(Some(2)));
        assert_eq!(
            one("retention.bytes", "1000").unwrap().max_size,
            Some(Some(1000))
        );
        assert_eq!(
            one("max.message.bytes", "5").unwrap().max_record_bytes,
            Some(5)
        );
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (name, value) in [
            ("cleanup.policy", "compact,delete"),
            ("retention.ms", "soon"),
            ("compression.type", "gzip"),
            ("message.timestamp.type", "Whenever"),
            ("no.such.setting", "1"),
        ] {
            let refused = one(name, value).unwrap_err();
            assert_eq!(refused.code, INVALID_CONFIG);
            assert!(refused.message.contains(name), "{}", refused.message);
        }
    }

    #[test]
    fn defaults_are_what_null_puts_a_setting_back_to() {
        let mut settings = Settings::default();
        for setting in of_effect() {
            set(&mut settings, setting, None).unwrap();
        }
        assert_eq!(settings, defaults());
    }

    fn of_effect() -> [&'static str; 5] {
        [
            "cleanup.policy",
            "max.message.bytes",
            "message.timestamp.type",
            "retention.bytes",
            "retention.ms",
        ]
    }

    #[test]
    fn what_has_no_effect_is_taken() {
        for (name, ..) in WITHOUT_EFFECT {
            assert_eq!(one(name, "7").unwrap(), Settings::default());
        }
        assert!(one("compression.type", "producer").is_ok());
    }
}
