//! Names, and tables by name, over one text that holds them all.

/// The text. One piece of memory for all names of a token.
#[derive(Clone, Debug, Default)]
pub(super) struct Texts(Box<str>);

/// Where a name is in the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    at: u32,
    end: u32,
}

/// The text while names are added to it. A token is far smaller than a span can say.
#[derive(Default)]
pub(super) struct TextsDraft(String);

impl TextsDraft {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self(String::with_capacity(bytes))
    }

    pub(super) fn add(&mut self, name: &str) -> Span {
        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let at = place(self.0.len());
        self.0.push_str(name);
        let end = place(self.0.len());
        Span { at, end }
    }

    pub(super) fn finish(self) -> Texts {
        Texts(self.0.into_boxed_str())
    }
}

impl Texts {
    pub(super) fn get(&self, span: Span) -> &str {
        let range = span.at as usize..span.end as usize;
        self.0.get(range).unwrap_or_default()
    }

    fn bytes(&self, span: Span) -> &[u8] {
        let range = span.at as usize..span.end as usize;
        self.0.as_bytes().get(range).unwrap_or_default()
    }
}

/// A sorted map with few entries and no spare room.
#[derive(Clone, Debug)]
pub(super) struct Table<V>(pub(super) Box<[(Span, V)]>);

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<V> Table<V> {
    pub(super) fn get(&self, texts: &Texts, key: &str) -> Option<&V> {
        let at = self
            .0
            .binary_search_by(|(held, _)| texts.bytes(*held).cmp(key.as_bytes()))
            .ok()?;
        self.0.get(at).map(|(_, value)| value)
    }
}

/// A set of names: all, some by prefix, some by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub(super) any: bool,
    /// Sorted.
    exact: Box<[Exact]>,
    /// Bytes that all of them begin with.
    common: u32,
    /// Sorted, and none begins with another. So the last one not after a name is the only one that can be its prefix.
    prefixes: Box<[Span]>,
}

/// One name, with what it begins with behind what all have in common: looking through many of them touches their
/// texts once.
#[derive(Clone, Copy, Debug)]
struct Exact {
    head: u64,
    name: Span,
}

impl Names {
    /// Takes names that are sorted: those by prefix first, and each kind in its order.
    pub(super) fn new(
        any: bool,
        prefixes: &[&str],
        exact: &[&str],
        texts: &mut TextsDraft,
    ) -> Self {
        let mut kept: Vec<Span> = Vec::with_capacity(prefixes.len());
        let mut shorter: Option<&str> = None;
        for prefix in prefixes {
            // In sorted order a prefix comes right before what it makes superfluous.
            if shorter.is_none_or(|shorter| !prefix.starts_with(shorter)) {
                kept.push(texts.add(prefix));
                shorter = Some(prefix);
            }
        }
        // What the first and the last have in common, those between them have as well.
        let common = match (exact.first(), exact.last()) {
            (Some(first), Some(last)) => {
                let pairs = first.bytes().zip(last.bytes());
                pairs.take_while(|(one, other)| one == other).count()
            }
            _ => 0,
        };
        let exact = exact.iter().map(|name| Exact {
            head: head(name.as_bytes().get(common..).unwrap_or_default()),
            name: texts.add(name),
        });
        Self {
            any,
            exact: exact.collect(),
            common: u32::try_from(common).unwrap_or(u32::MAX),
            prefixes: kept.into_boxed_slice(),
        }
    }

    pub(super) fn cover(&self, texts: &Texts, name: &str) -> bool {
        self.any || self.name(texts, name.as_bytes()) || self.cover_prefix(texts, name)
    }

    /// Whether the name itself is among them.
    fn name(&self, texts: &Texts, name: &[u8]) -> bool {
        let (Some(first), Some((common, rest))) = (
            self.exact.first(),
            name.split_at_checked(self.common as usize),
        ) else {
            return false;
        };
        if !texts.bytes(first.name).starts_with(common) {
            return false;
        }
        let head = head(rest);
        self.exact
            .binary_search_by(|held| {
                let by_head = held.head.cmp(&head);
                by_head.then_with(|| texts.bytes(held.name).cmp(name))
            })
            .is_ok()
    }

    /// Whether every name that begins with `prefix` is covered.
    pub(super) fn cover_prefix(&self, texts: &Texts, prefix: &str) -> bool {
        if self.any {
            return true;
        }
        let prefix = prefix.as_bytes();
        let after = self
            .prefixes
            .partition_point(|held| texts.bytes(*held) <= prefix);
        after
            .checked_sub(1)
            .and_then(|at| self.prefixes.get(at))
            .is_some_and(|held| prefix.starts_with(texts.bytes(*held)))
    }
}

/// The first eight bytes as a number that sorts as they do; what is missing counts as zero.
fn head(bytes: &[u8]) -> u64 {
    if let Some(first) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    let mut head = [0; 8];
    head.iter_mut()
        .zip(bytes)
        .for_each(|(to, from)| *to = *from);
    u64::from_be_bytes(head)
}

#[derive(Clone, Debug, Default)]
pub(super) struct Scoped {
    pub(super) everywhere: bool,
    pub(super) spaces: Table<Names>,
}

impl Scoped {
    pub(super) fn cover(&self, texts: &Texts, namespace: &str, name: &str) -> bool {
        self.everywhere
            || self
                .spaces
                .get(texts, namespace)
                .is_some_and(|names| names.cover(texts, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_whatever_they_share_and_however_short_they_are() {
        let sets: [&[&str]; 5] = [
            &["a"],
            &["", "a", "a\0", "a\0b", "aa"],
            &["orders-1", "orders-10", "orders-100", "orders-2"],
            &["room.aaaaaaaa-1", "room.aaaaaaaa-2", "room.aaaaaaab"],
            &["x", "xyyyyyyyyyyyy", "xyyyyyyyyyyyz"],
        ];
        let all: Vec<&str> = sets.iter().flat_map(|set| set.iter().copied()).collect();
        for set in sets {
            let mut texts = TextsDraft::default();
            let names = Names::new(false, &[], set, &mut texts);
            let texts = texts.finish();
            for asked in &all {
                assert_eq!(
                    names.cover(&texts, asked),
                    set.contains(asked),
                    "{set:?} {asked:?}"
                );
            }
        }
    }
}
