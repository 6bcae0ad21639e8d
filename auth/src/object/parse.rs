//! Reading the grammar.

use std::str::FromStr;

use super::Object;
use super::shape::{Name, Shape};

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

/// Cuts a text at the first of a byte, which is ASCII. The texts are short: a plain walk is faster than a search.
pub(crate) fn cut(text: &str, byte: u8) -> Option<(&str, &str)> {
    let at = text.bytes().position(|found| found == byte)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

impl<'a> Name<'a> {
    fn parse(text: &'a str, prefixes: Prefixes) -> Result<Self, BadObject> {
        let Some((before, behind)) = cut(text, b'*') else {
            return match text {
                "" => Err(BadObject::EmptyPart),
                exact => Ok(Self::Exact(exact)),
            };
        };
        match (before, behind) {
            ("", "") => Ok(Self::Any),
            (prefix, "") if prefixes == Prefixes::Allowed => Ok(Self::Prefix(prefix)),
            _ => Err(BadObject::MisplacedStar),
        }
    }
}

impl FromStr for Object {
    type Err = BadObject;

    fn from_str(text: &str) -> Result<Self, BadObject> {
        Shape::parse(text).map(Self::from)
    }
}

impl<'a> Shape<'a> {
    /// Reads the grammar.
    pub(crate) fn parse(text: &'a str) -> Result<Self, BadObject> {
        let (kind, rest) = cut(text, b':').ok_or(BadObject::UnknownKind)?;
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

fn parse_namespace(rest: &str) -> Result<Shape<'_>, BadObject> {
    let [tenant, namespace] = parts(rest)?;
    Ok(Shape::Namespace {
        tenant: literal(tenant)?,
        namespace: name(namespace, Prefixes::Refused)?,
    })
}

fn parse_stream(rest: &str) -> Result<Shape<'_>, BadObject> {
    let [tenant, namespace, stream] = parts(rest)?;
    let namespace = name(namespace, Prefixes::Refused)?;
    let stream = name(stream, Prefixes::Allowed)?;
    only_stars_after_a_star(&[namespace, stream])?;
    Ok(Shape::Stream {
        tenant: literal(tenant)?,
        namespace,
        stream,
    })
}

fn parse_cache(rest: &str) -> Result<Shape<'_>, BadObject> {
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
        only_stars_after_a_star(&[namespace, cache])?;
        return Ok(Shape::Cache {
            tenant,
            namespace,
            cache,
        });
    };
    let (namespace, cache) = (literal(namespace)?, literal(cache)?);
    match Name::parse(key, Prefixes::Allowed)? {
        // `cache/*` says every key, which is the cache itself: one meaning, one form.
        Name::Any => Ok(Shape::Cache {
            tenant,
            namespace: Name::Exact(namespace),
            cache: Name::Exact(cache),
        }),
        key @ (Name::Prefix(_) | Name::Exact(_)) => Ok(Shape::CacheKey {
            tenant,
            namespace,
            cache,
            key,
        }),
    }
}

fn parse_group(rest: &str) -> Result<Shape<'_>, BadObject> {
    let [tenant, namespace, stream, group] = parts(rest)?;
    let namespace = name(namespace, Prefixes::Refused)?;
    let stream = name(stream, Prefixes::Refused)?;
    let group = name(group, Prefixes::Refused)?;
    only_stars_after_a_star(&[namespace, stream, group])?;
    Ok(Shape::Group {
        tenant: literal(tenant)?,
        namespace,
        stream,
        group,
    })
}

fn parts<const N: usize>(rest: &str) -> Result<[&str; N], BadObject> {
    let mut parts = [""; N];
    let mut left = Some(rest);
    for part in &mut parts {
        let text = left.ok_or_else(|| count::<N>(rest))?;
        (*part, left) = match cut(text, b'/') {
            Some((part, left)) => (part, Some(left)),
            None => (text, None),
        };
    }
    match left {
        None => Ok(parts),
        Some(_) => Err(count::<N>(rest)),
    }
}

fn count<const N: usize>(rest: &str) -> BadObject {
    BadObject::PartCount {
        found: rest.split('/').count(),
        expected: N,
    }
}

fn literal(part: &str) -> Result<&str, BadObject> {
    match name(part, Prefixes::Refused)? {
        Name::Exact(_) if part.bytes().any(|byte| byte == b'/') => Err(BadObject::PartCount {
            found: part.split('/').count(),
            expected: 1,
        }),
        Name::Exact(exact) => Ok(exact),
        Name::Any | Name::Prefix(_) => Err(BadObject::MisplacedStar),
    }
}

fn name(part: &str, prefixes: Prefixes) -> Result<Name<'_>, BadObject> {
    if part.bytes().any(|byte| byte == b':') {
        return Err(BadObject::ColonInName);
    }
    Name::parse(part, prefixes)
}

fn only_stars_after_a_star(names: &[Name<'_>]) -> Result<(), BadObject> {
    let mut rest = names.iter().skip_while(|name| **name != Name::Any);
    if rest.all(|name| *name == Name::Any) {
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
