//! What a browser and this gateway can do beyond version 1, agreed on at `join`.

/// One feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Feature {
    /// Refusals by a limit have a code of their own.
    RateLimited = 1,
    /// Events and publishes as binary frames; ours.
    Binary = 1 << 1,
    /// Several subscriptions in one message; ours.
    Resume = 1 << 2,
    /// A message before the gateway closes for good; ours.
    Drain = 1 << 3,
    /// A newer sign-in within the session; ours.
    Refresh = 1 << 4,
    /// Events as binary frames, in the published layout.
    BinaryEvents = 1 << 5,
    /// Several subscriptions to one stream.
    Slots = 1 << 6,
    /// Reading the state that commits keep.
    State = 1 << 7,
    /// Pages of the log.
    Read = 1 << 8,
    /// Shards other than the first.
    Shards = 1 << 9,
    /// A code of its own for an offset that does not exist yet.
    PastEnd = 1 << 10,
    /// Versions of cache entries, and writes under a condition.
    CacheVersions = 1 << 11,
    /// Who one is.
    Principal = 1 << 12,
    /// Offsets by time.
    Time = 1 << 13,
    /// Publishes that a page may repeat.
    IdempotentPublish = 1 << 14,
}

/// Every feature under its name.
pub(crate) const NAMES: [(&str, Feature); 15] = [
    ("rate_limited", Feature::RateLimited),
    ("binary", Feature::Binary),
    ("resume", Feature::Resume),
    ("drain", Feature::Drain),
    ("refresh", Feature::Refresh),
    ("binary_events", Feature::BinaryEvents),
    ("slots", Feature::Slots),
    ("state", Feature::State),
    ("read", Feature::Read),
    ("shards", Feature::Shards),
    ("past_end", Feature::PastEnd),
    ("cache_versions", Feature::CacheVersions),
    ("principal", Feature::Principal),
    ("time", Feature::Time),
    ("idempotent_publish", Feature::IdempotentPublish),
];

/// The features a session has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features(u16);

impl Features {
    /// Those that are known, and their names in the order asked, each once. Two layouts of binary events exclude each
    /// other: `binary` goes first. Publishes can be repeated only by a page that has a name (`is_named`).
    pub(crate) fn agree(asked: &[String], is_named: bool) -> (Self, Vec<&'static str>) {
        let (mut features, mut names) = (Self::default(), Vec::new());
        let wants_binary = asked.iter().any(|name| name == "binary");
        for name in asked {
            let known = NAMES.iter().find(|(known, _)| known == name);
            let Some((name, feature)) = known else {
                continue;
            };
            let excluded = (*feature == Feature::BinaryEvents && wants_binary)
                || (*feature == Feature::IdempotentPublish && !is_named);
            if !features.has(*feature) && !excluded {
                features.0 |= *feature as u16;
                names.push(*name);
            }
        }
        (features, names)
    }

    pub(crate) const fn has(self, feature: Feature) -> bool {
        self.0 & feature as u16 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_ones_are_agreed_on_in_the_order_asked() {
        let asked = ["read", "telepathy", "rate_limited", "read"].map(String::from);
        let (features, names) = Features::agree(&asked, true);
        assert_eq!(names, ["read", "rate_limited"]);
        assert!(features.has(Feature::Read) && !features.has(Feature::Binary));
    }

    #[test]
    fn there_is_one_layout_of_binary_events() {
        let both = ["binary_events", "binary"].map(String::from);
        assert_eq!(Features::agree(&both, true).1, ["binary"]);
        let one = ["binary_events"].map(String::from);
        assert_eq!(Features::agree(&one, true).1, ["binary_events"]);
    }

    #[test]
    fn a_page_without_a_name_cannot_repeat_what_it_publishes() {
        let asked = ["idempotent_publish", "read"].map(String::from);
        assert_eq!(Features::agree(&asked, false).1, ["read"]);
        assert_eq!(
            Features::agree(&asked, true).1,
            ["idempotent_publish", "read"]
        );
    }
}
