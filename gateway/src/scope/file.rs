//! The scope file as it is written, and the rules it has to keep.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;

use super::buckets::{Rate, Rates};
use super::{Cache, Counter, Limits, Resource, Scope, Stream, is_plain};

/// Why a scope file is refused. The gateway does not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScopeRefused {
    /// It is no TOML, or has a key that is not known, or a value of the wrong kind.
    #[error("{0}")]
    Toml(String),
    /// A key's value cannot be.
    #[error("{key}: {why}")]
    Value {
        /// Where it stands, for example `scope.streams[0].name`.
        key: String,
        /// What is wrong with it.
        why: String,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    allow_throttle: bool,
    #[serde(default)]
    namespaces: Vec<String>,
    scope: ScopePart,
    #[serde(default)]
    limits: LimitsPart,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScopePart {
    field: String,
    #[serde(default)]
    streams: Vec<ResourcePart>,
    #[serde(default)]
    caches: Vec<ResourcePart>,
    #[serde(default)]
    counters: Vec<ResourcePart>,
}

/// All keys that any kind of resource has. Which kind takes which is checked by name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResourcePart {
    alias: String,
    name: String,
    actions: Vec<String>,
    #[serde(default)]
    optional: bool,
    #[serde(default)]
    shared: bool,
    stamp_sender: Option<bool>,
    ttl_s: Option<u64>,
    max_payload_bytes: Option<usize>,
    writes_per_s: Option<u64>,
    write_burst: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LimitsPart {
    max_payload_bytes: usize,
    sessions_per_principal: usize,
    sessions_per_ip: usize,
    trusted_proxies: usize,
    session: RatesPart,
    principal: RatesPart,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RatesPart {
    writes_per_s: Option<u64>,
    write_burst: Option<u64>,
    bytes_per_s: Option<u64>,
    byte_burst: Option<u64>,
}

impl Default for LimitsPart {
    fn default() -> Self {
        Self {
            max_payload_bytes: 64 * 1024,
            sessions_per_principal: 8,
            sessions_per_ip: 32,
            trusted_proxies: 0,
            session: RatesPart::default(),
            principal: RatesPart::default(),
        }
    }
}

/// What holds for a session unless the file says otherwise.
const SESSION: RatesPart = RatesPart {
    writes_per_s: Some(50),
    write_burst: Some(100),
    bytes_per_s: Some(256 * 1024),
    byte_burst: Some(1024 * 1024),
};

/// What holds for a person's sessions together unless the file says otherwise.
const PRINCIPAL: RatesPart = RatesPart {
    writes_per_s: Some(100),
    write_burst: Some(200),
    bytes_per_s: Some(512 * 1024),
    byte_burst: Some(2 * 1024 * 1024),
};

/// Names that a field cannot have: `join` has them already.
const TAKEN: [&str; 5] = ["type", "token", "protocol", "features", "namespace"];

/// Largest payload that can be allowed: it must fit a frame of the native protocol.
const PAYLOAD_BYTES_CEILING: usize = 8 * 1024 * 1024;

pub(super) fn parse(text: &str) -> Result<Scope, ScopeRefused> {
    let file: File = toml::from_str(text).map_err(|error| ScopeRefused::Toml(error.to_string()))?;
    let field = file.scope.field;
    require(
        is_plain(&field) && !TAKEN.contains(&field.as_str()),
        "scope.field",
        || {
            format!(
                "{field:?} must be 1 to 64 of A-Z a-z 0-9 _ - and none of {}",
                TAKEN.join(", ")
            )
        },
    )?;
    for namespace in &file.namespaces {
        require(
            felix_model::Namespace::new(namespace).is_ok(),
            "namespaces",
            || format!("{namespace:?} is no name of a namespace"),
        )?;
    }
    let most = file.limits.max_payload_bytes;
    let most_key = "limits.max_payload_bytes";
    require(
        (1..=PAYLOAD_BYTES_CEILING).contains(&most),
        most_key,
        || format!("{most} must be 1 to {PAYLOAD_BYTES_CEILING}"),
    )?;
    let streams = each("streams", &file.scope.streams, |at, part| {
        stream(at, part, most)
    })?;
    let caches = each("caches", &file.scope.caches, |at, part| {
        cache(at, part, most)
    })?;
    let counters = each("counters", &file.scope.counters, counter)?;
    let largest = streams.iter().map(|one: &Stream| one.payload_bytes_max);
    let largest = largest.chain(caches.iter().map(|one: &Cache| one.payload_bytes_max));
    let largest = largest.fold(most, usize::max);
    let limits = Limits {
        payload_bytes_max: largest,
        sessions_per_principal: file.limits.sessions_per_principal,
        sessions_per_ip: file.limits.sessions_per_ip,
        trusted_proxies: file.limits.trusted_proxies,
        session: rates("limits.session", file.limits.session, SESSION, largest)?,
        principal: rates(
            "limits.principal",
            file.limits.principal,
            PRINCIPAL,
            largest,
        )?,
    };
    Ok(Scope {
        field,
        streams,
        caches,
        counters,
        namespaces: file.namespaces,
        allow_throttle: file.allow_throttle,
        limits,
    })
}

fn require(
    holds: bool,
    key: impl Into<String>,
    why: impl FnOnce() -> String,
) -> Result<(), ScopeRefused> {
    if holds {
        return Ok(());
    }
    Err(ScopeRefused::Value {
        key: key.into(),
        why: why(),
    })
}

fn each<T>(
    kind: &str,
    parts: &[ResourcePart],
    build: impl Fn(&str, &ResourcePart) -> Result<T, ScopeRefused>,
) -> Result<Vec<T>, ScopeRefused> {
    let mut aliases = BTreeSet::new();
    let mut built = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        let at = format!("scope.{kind}[{index}]");
        require(aliases.insert(&part.alias), format!("{at}.alias"), || {
            format!("{:?} is the alias of two {kind}", part.alias)
        })?;
        built.push(build(&at, part)?);
    }
    Ok(built)
}

fn resource(at: &str, part: &ResourcePart) -> Result<Resource, ScopeRefused> {
    require(is_plain(&part.alias), format!("{at}.alias"), || {
        format!("{:?} must be 1 to 64 of A-Z a-z 0-9 _ -", part.alias)
    })?;
    let name = &part.name;
    require(
        name.contains("{scope}") != part.shared,
        format!("{at}.name"),
        || match part.shared {
            true => format!("{name:?} is shared and must not contain {{scope}}"),
            false => format!("{name:?} must contain {{scope}}"),
        },
    )?;
    // As long as a name gets, with a value of one character of the narrowest kind.
    let sample = name.replace("{scope}", "a");
    require(
        felix_model::StreamName::new(&sample).is_ok(),
        format!("{at}.name"),
        || format!("{name:?} makes no name of a stream or cache"),
    )?;
    require(
        part.write_burst.is_none() || part.writes_per_s.is_some(),
        format!("{at}.write_burst"),
        || "means nothing without writes_per_s".to_owned(),
    )?;
    let writes = part
        .writes_per_s
        .filter(|&rate| rate > 0)
        .map(|per_second| Rate {
            per_second,
            burst: part.write_burst.unwrap_or(per_second).max(1),
        });
    Ok(Resource {
        alias: part.alias.clone(),
        name: name.clone(),
        optional: part.optional,
        rate: Rates {
            writes,
            bytes: None,
        },
    })
}

/// Which of the known actions are listed.
fn actions<const N: usize>(
    at: &str,
    part: &ResourcePart,
    known: [&str; N],
) -> Result<[bool; N], ScopeRefused> {
    let key = format!("{at}.actions");
    let mut listed = [false; N];
    for action in &part.actions {
        let place = known.iter().position(|name| name == action);
        let slot = place.and_then(|place| listed.get_mut(place));
        let Some(slot) = slot else {
            let why = format!("{action:?} is none of {}", known.join(", "));
            return Err(ScopeRefused::Value { key, why });
        };
        require(!std::mem::replace(slot, true), key.as_str(), || {
            format!("{action:?} stands twice")
        })?;
    }
    require(!part.actions.is_empty(), key, || {
        "must list at least one".to_owned()
    })?;
    Ok(listed)
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "what is there is refused, and gone"
)]
fn absent<T>(at: &str, key: &str, value: Option<T>, kind: &str) -> Result<(), ScopeRefused> {
    require(value.is_none(), format!("{at}.{key}"), || {
        format!("{kind} have no such key")
    })
}

fn payload(at: &str, part: &ResourcePart, most: usize) -> Result<usize, ScopeRefused> {
    let bytes = part.max_payload_bytes.unwrap_or(most);
    require(
        (1..=PAYLOAD_BYTES_CEILING).contains(&bytes),
        format!("{at}.max_payload_bytes"),
        || format!("{bytes} must be 1 to {PAYLOAD_BYTES_CEILING}"),
    )?;
    Ok(bytes)
}

fn stream(at: &str, part: &ResourcePart, most: usize) -> Result<Stream, ScopeRefused> {
    absent(at, "ttl_s", part.ttl_s, "streams")?;
    let [publish, subscribe] = actions(at, part, ["publish", "subscribe"])?;
    Ok(Stream {
        resource: resource(at, part)?,
        publish,
        subscribe,
        stamp_sender: part.stamp_sender.unwrap_or(false),
        payload_bytes_max: payload(at, part, most)?,
    })
}

fn cache(at: &str, part: &ResourcePart, most: usize) -> Result<Cache, ScopeRefused> {
    absent(at, "stamp_sender", part.stamp_sender, "caches")?;
    let [read, write, watch] = actions(at, part, ["read", "write", "watch"])?;
    require(part.ttl_s != Some(0), format!("{at}.ttl_s"), || {
        "must be at least 1".to_owned()
    })?;
    Ok(Cache {
        resource: resource(at, part)?,
        read,
        write,
        watch,
        ttl: part.ttl_s.map(Duration::from_secs),
        payload_bytes_max: payload(at, part, most)?,
    })
}

fn counter(at: &str, part: &ResourcePart) -> Result<Counter, ScopeRefused> {
    absent(at, "stamp_sender", part.stamp_sender, "counters")?;
    absent(at, "ttl_s", part.ttl_s, "counters")?;
    absent(at, "max_payload_bytes", part.max_payload_bytes, "counters")?;
    actions(at, part, ["add"])?;
    Ok(Counter {
        resource: resource(at, part)?,
    })
}

fn rates(
    at: &str,
    part: RatesPart,
    default: RatesPart,
    largest: usize,
) -> Result<Rates, ScopeRefused> {
    let rate = |per_second: Option<u64>, burst: Option<u64>| {
        let per_second = per_second.filter(|&rate| rate > 0)?;
        let burst = burst.unwrap_or(per_second).max(1);
        Some(Rate { per_second, burst })
    };
    let rates = Rates {
        writes: rate(
            part.writes_per_s.or(default.writes_per_s),
            part.write_burst.or(default.write_burst),
        ),
        bytes: rate(
            part.bytes_per_s.or(default.bytes_per_s),
            part.byte_burst.or(default.byte_burst),
        ),
    };
    if let Some(bytes) = rates.bytes {
        require(
            bytes.burst >= largest as u64,
            format!("{at}.byte_burst"),
            || {
                format!(
                    "{} is less than the largest payload, {largest}",
                    bytes.burst
                )
            },
        )?;
    }
    Ok(rates)
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
