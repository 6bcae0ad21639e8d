//! From sorted grants to rules.

use super::names::{Names, Scoped, Table, TextsDraft};
use super::{GroupSpace, Groups, Rules};
use crate::object::shape::{Name, Shape};
use crate::permission::Grant;

/// The rules of one action, from its grants in their order.
pub(super) fn rules(grants: &[Grant<'_>], texts: &mut TextsDraft) -> Rules {
    let mut rules = Rules::default();
    // The kinds come one after the other, so each is a slice of its own.
    let kinds = grants.chunk_by(|one, next| {
        std::mem::discriminant(&one.object) == std::mem::discriminant(&next.object)
    });
    for kind in kinds {
        let shapes = kind.iter().map(|grant| grant.object);
        match kind.first().map(|grant| grant.object) {
            None => {}
            Some(Shape::Cluster) => rules.cluster = true,
            Some(Shape::Tenant(_)) => rules.tenant = true,
            Some(Shape::Node(_)) => rules.nodes = set(shapes.filter_map(node), texts),
            Some(Shape::Namespace { .. }) => {
                rules.namespaces = set(shapes.filter_map(namespace), texts);
            }
            Some(Shape::Stream { .. }) => rules.streams = scoped(shapes.filter_map(stream), texts),
            Some(Shape::Cache { .. }) => rules.caches = scoped(shapes.filter_map(cache), texts),
            Some(Shape::CacheKey { .. }) => rules.keys = keys(shapes.filter_map(key), texts),
            Some(Shape::Group { .. }) => rules.groups = groups(shapes.filter_map(group), texts),
        }
    }
    rules
}

const fn node(shape: Shape<'_>) -> Option<Name<'_>> {
    let Shape::Node(node) = shape else {
        return None;
    };
    Some(Name::Exact(node))
}

const fn namespace(shape: Shape<'_>) -> Option<Name<'_>> {
    let Shape::Namespace { namespace, .. } = shape else {
        return None;
    };
    Some(namespace)
}

const fn stream(shape: Shape<'_>) -> Option<(Name<'_>, Name<'_>)> {
    let Shape::Stream {
        namespace, stream, ..
    } = shape
    else {
        return None;
    };
    Some((namespace, stream))
}

const fn cache(shape: Shape<'_>) -> Option<(Name<'_>, Name<'_>)> {
    let Shape::Cache {
        namespace, cache, ..
    } = shape
    else {
        return None;
    };
    Some((namespace, cache))
}

const fn key(shape: Shape<'_>) -> Option<(&str, (&str, Name<'_>))> {
    let Shape::CacheKey {
        namespace,
        cache,
        key,
        ..
    } = shape
    else {
        return None;
    };
    Some((namespace, (cache, key)))
}

const fn group(shape: Shape<'_>) -> Option<(Name<'_>, (Name<'_>, Name<'_>))> {
    let Shape::Group {
        namespace,
        stream,
        group,
        ..
    } = shape
    else {
        return None;
    };
    Some((namespace, (stream, group)))
}

/// Sorted names; all of them sort before prefixes, and these before exact ones.
fn set<'a>(names: impl Iterator<Item = Name<'a>>, texts: &mut TextsDraft) -> Names {
    let (mut any, mut prefixes, mut exact) = (false, Vec::new(), Vec::new());
    for name in names {
        match name {
            Name::Any => any = true,
            Name::Prefix(prefix) => prefixes.push(prefix),
            Name::Exact(name) => exact.push(name),
        }
    }
    Names::new(any, &prefixes, &exact, texts)
}

/// Sorted pairs, by the first of each.
fn table<'a, T: Copy, V>(
    pairs: &[(&'a str, T)],
    texts: &mut TextsDraft,
    value: impl Fn(&[(&'a str, T)], &mut TextsDraft) -> V,
) -> Table<V> {
    let same = pairs.chunk_by(|one, next| one.0 == next.0);
    let entries = same.filter_map(|same| {
        let name = texts.add(same.first()?.0);
        Some((name, value(same, texts)))
    });
    Table(entries.collect())
}

fn sets<'a>(pairs: &[(&'a str, Name<'a>)], texts: &mut TextsDraft) -> Table<Names> {
    table(pairs, texts, |same, texts| {
        set(same.iter().map(|(_, name)| *name), texts)
    })
}

fn scoped<'a>(pairs: impl Iterator<Item = (Name<'a>, Name<'a>)>, texts: &mut TextsDraft) -> Scoped {
    let (everywhere, pairs) = split(pairs);
    Scoped {
        everywhere,
        spaces: sets(&pairs, texts),
    }
}

fn keys<'a>(
    triples: impl Iterator<Item = (&'a str, (&'a str, Name<'a>))>,
    texts: &mut TextsDraft,
) -> Table<Table<Names>> {
    let triples: Vec<_> = triples.collect();
    table(&triples, texts, |same, texts| {
        let pairs: Vec<_> = same.iter().map(|(_, pair)| *pair).collect();
        sets(&pairs, texts)
    })
}

fn groups<'a>(
    triples: impl Iterator<Item = (Name<'a>, (Name<'a>, Name<'a>))>,
    texts: &mut TextsDraft,
) -> Groups {
    let (everywhere, triples) = split(triples);
    let spaces = table(&triples, texts, |same, texts| {
        let (any, pairs) = split(same.iter().map(|(_, pair)| *pair));
        GroupSpace {
            any,
            streams: sets(&pairs, texts),
        }
    });
    Groups { everywhere, spaces }
}

/// Whether a first name is a pattern, which the grammar lets only patterns follow, and those where it is not.
fn split<'a, T>(pairs: impl Iterator<Item = (Name<'a>, T)>) -> (bool, Vec<(&'a str, T)>) {
    let mut any = false;
    let pairs = pairs.filter_map(|(first, rest)| match first {
        Name::Exact(first) => Some((first, rest)),
        Name::Any | Name::Prefix(_) => {
            any = true;
            None
        }
    });
    let pairs = pairs.collect();
    (any, pairs)
}
