//! Reading the grammar.

use std::str::FromStr;

use super::{NamePattern, Object};

/// Why a text is not an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadObject {
    /// The text does not begin with a kind such as `stream:`.
    #[error("an object begins with its kind, as in `stream:tenant/namespace/name`")]
    UnknownKind,
    /// There are too few or too many parts between slashes.
    #[error("the object has {found} parts; this kind takes {expected}")]
    PartCount {
        /// Parts found.
        found: usize,
        /// Parts wanted; a cache also takes one more, the key.
        expected: usize,
    },
    /// A part is empty.
    #[error("a part of the object is empty")]
    EmptyPart,
    /// A part that is a name contains a colon.
    #[error("a name in an object contains `:`")]
    ColonInName,
    /// A `*` stands where only a literal may.
    #[error("`*` stands in a place where this kind of object takes a literal name")]
    MisplacedStar,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Prefixes {
    Allowed,
    Refused,
}

impl NamePattern {
    fn parse(text: &str, prefixes: Prefixes) -> Result<Self, BadObject> {
        match (text, text.strip_suffix('*')) {
            ("", _) => Err(BadObject::EmptyPart),
            ("*", _) => Ok(Self::Any),
            (_, Some(prefix)) if prefixes == Prefixes::Allowed && !prefix.contains('*') => {
                Ok(Self::Prefix(prefix.into()))
            }
            _ if text.contains('*') => Err(BadObject::MisplacedStar),
            _ => Ok(Self::Exact(text.into())),
        }
    }
}

impl FromStr for Object {
    type Err = BadObject;

    fn from_str(text: &str) -> Result<Self, BadObject> {
        let (kind, rest) = text.split_once(':').ok_or(BadObject::UnknownKind)?;
        match kind {
            "cluster" if rest == "*" => Ok(Self::Cluster),
            "cluster" => Err(BadObject::MisplacedStar),
            "node" => literal(rest).map(Self::Node),
            "tenant" => literal(rest).map(Self::Tenant),
            "namespace" => parse_namespace(rest),
            "stream" => parse_stream(rest),
            "cache" => parse_cache(rest),
            "group" => parse_group(rest),
            _ => Err(BadObject::UnknownKind),
        }
    }
}

fn parse_namespace(rest: &str) -> Result<Object, BadObject> {
    let [tenant, namespace] = parts(rest)?;
    Ok(Object::Namespace {
        tenant: literal(tenant)?,
        namespace: name(namespace, Prefixes::Refused)?,
    })
}

fn parse_stream(rest: &str) -> Result<Object, BadObject> {
    let [tenant, namespace, stream] = parts(rest)?;
    let namespace = name(namespace, Prefixes::Refused)?;
    let stream = name(stream, Prefixes::Allowed)?;
    only_stars_after_a_star(&[&namespace, &stream])?;
    Ok(Object::Stream {
        tenant: literal(tenant)?,
        namespace,
        stream,
    })
}

fn parse_cache(rest: &str) -> Result<Object, BadObject> {
    // A key is everything after the third slash, slashes included.
    let mut split = rest.splitn(4, '/');
    let (Some(tenant), Some(namespace), Some(cache)) = (split.next(), split.next(), split.next())
    else {
        return Err(BadObject::PartCount {
            found: rest.split('/').count(),
            expected: 3,
        });
    };
    let tenant = literal(tenant)?;
    let Some(key) = split.next() else {
        let namespace = name(namespace, Prefixes::Refused)?;
        let cache = name(cache, Prefixes::Refused)?;
        only_stars_after_a_star(&[&namespace, &cache])?;
        return Ok(Object::Cache {
            tenant,
            namespace,
            cache,
        });
    };
    let (namespace, cache) = (literal(namespace)?, literal(cache)?);
    match NamePattern::parse(key, Prefixes::Allowed)? {
        // `cache/*` says every key, which is the cache itself: one meaning, one form.
        NamePattern::Any => Ok(Object::Cache {
            tenant,
            namespace: NamePattern::Exact(namespace),
            cache: NamePattern::Exact(cache),
        }),
        key @ (NamePattern::Prefix(_) | NamePattern::Exact(_)) => Ok(Object::CacheKey {
            tenant,
            namespace,
            cache,
            key,
        }),
    }
}

fn parse_group(rest: &str) -> Result<Object, BadObject> {
    let [tenant, namespace, stream, group] = parts(rest)?;
    let namespace = name(namespace, Prefixes::Refused)?;
    let stream = name(stream, Prefixes::Refused)?;
    let group = name(group, Prefixes::Refused)?;
    only_stars_after_a_star(&[&namespace, &stream, &group])?;
    Ok(Object::Group {
        tenant: literal(tenant)?,
        namespace,
        stream,
        group,
    })
}

fn parts<const N: usize>(rest: &str) -> Result<[&str; N], BadObject> {
    let parts: Vec<&str> = rest.split('/').collect();
    let found = parts.len();
    parts
        .try_into()
        .map_err(|_| BadObject::PartCount { found, expected: N })
}

fn literal(part: &str) -> Result<Box<str>, BadObject> {
    match name(part, Prefixes::Refused)? {
        NamePattern::Exact(_) if part.contains('/') => Err(BadObject::PartCount {
            found: part.split('/').count(),
            expected: 1,
        }),
        NamePattern::Exact(exact) => Ok(exact),
        NamePattern::Any | NamePattern::Prefix(_) => Err(BadObject::MisplacedStar),
    }
}

fn name(part: &str, prefixes: Prefixes) -> Result<NamePattern, BadObject> {
    if part.contains(':') {
        return Err(BadObject::ColonInName);
    }
    NamePattern::parse(part, prefixes)
}

fn only_stars_after_a_star(patterns: &[&NamePattern]) -> Result<(), BadObject> {
    let mut rest = patterns
        .iter()
        .skip_while(|pattern| ***pattern != NamePattern::Any);
    if rest.all(|pattern| **pattern == NamePattern::Any) {
        return Ok(());
    }
    Err(BadObject::MisplacedStar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_the_grammar_read_back_as_written() {
        for text in [
            "cluster:*",
            "node:broker-1",
            "tenant:t",
            "namespace:t/ns",
            "namespace:t/*",
            "stream:t/ns/s",
            "stream:t/ns/*",
            "stream:t/*/*",
            "stream:t/ns/room.*",
            "cache:t/ns/c",
            "cache:t/ns/*",
            "cache:t/*/*",
            "cache:t/ns/c/key",
            "cache:t/ns/c/room1/*",
            "cache:t/ns/c/user:1*",
            "group:t/ns/s/g",
            "group:t/ns/s/*",
            "group:t/ns/*/*",
            "group:t/*/*/*",
        ] {
            let object: Object = text
                .parse()
                .unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(object.to_string(), text);
        }
    }

    #[test]
    fn what_the_grammar_does_not_spell_is_refused() {
        for text in [
            "",
            "stream",
            "topic:t/ns/s",
            "cluster:",
            "cluster:all",
            "node:*",
            "node:",
            "tenant:*",
            "tenant:a/b",
            "namespace:t",
            "namespace:*/*",
            "namespace:t/room*",
            "stream:*",
            "stream:*/*",
            "stream:t/*",
            "stream:t/*/named",
            "stream:t/*/room.*",
            "stream:t/ns/s/x",
            "stream:t/ns/a*b",
            "stream:t/ns/a**",
            "stream:t//s",
            "stream:t/ns/a:b",
            "cache:t/ns",
            "cache:t/*/c/key",
            "cache:t/ns/*/key",
            "cache:t/ns/c/",
            "cache:t/ns/c/a*b",
            "group:t/ns/*/g",
            "group:t/*/s/g",
            "group:t/ns/s",
        ] {
            assert!(text.parse::<Object>().is_err(), "{text} was taken");
        }
    }

    #[test]
    fn a_star_key_is_the_whole_cache() {
        assert_eq!(
            "cache:t/ns/c/*".parse::<Object>(),
            "cache:t/ns/c".parse::<Object>()
        );
    }
}
