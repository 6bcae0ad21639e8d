//! A map that stays cheap to share when it holds very much.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How much of a name says in which box it lies. Three characters of a random name make boxes of a few hundred when
/// there are a million names.
type Label = [u8; 3];

type Boxes<V> = BTreeMap<Label, Arc<BTreeMap<String, Arc<V>>>>;

/// Records by name, in the order of the names' bytes.
///
/// A clone costs one count. A change of a shared shelf copies the list of its boxes and one box, not everything: a
/// tenant may have a million sessions, and every sign-in changes one. It serialises as a plain map.
#[derive(Debug)]
pub struct Shelf<V> {
    len: usize,
    boxes: Arc<Boxes<V>>,
}

impl<V> Shelf<V> {
    /// How many records there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The record of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<V>> {
        self.boxes.get(&label(name))?.get(name)
    }

    /// Whether there is a record of that name.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// All records, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<V>)> {
        self.boxes
            .values()
            .flat_map(|names| names.iter().map(|(name, value)| (name.as_str(), value)))
    }

    /// Puts a record, in place of the one of that name.
    pub(crate) fn insert(&mut self, name: impl Into<String>, value: V) {
        let name = name.into();
        let boxes = Arc::make_mut(&mut self.boxes);
        let names = boxes.entry(label(&name)).or_default();
        if Arc::make_mut(names).insert(name, Arc::new(value)).is_none() {
            self.len += 1;
        }
    }

    /// Takes a record away.
    pub(crate) fn remove(&mut self, name: &str) -> Option<Arc<V>> {
        if !self.contains(name) {
            return None;
        }
        let label = label(name);
        let boxes = Arc::make_mut(&mut self.boxes);
        let names = Arc::make_mut(boxes.get_mut(&label)?);
        let removed = names.remove(name)?;
        if names.is_empty() {
            boxes.remove(&label);
        }
        self.len -= 1;
        Some(removed)
    }

    /// Takes away every record that is not wanted, and copies only the boxes that change.
    pub(crate) fn retain(&mut self, wanted: impl Fn(&str, &V) -> bool) {
        let unwanted: Vec<String> = self
            .iter()
            .filter(|(name, value)| !wanted(name, value))
            .map(|(name, _)| name.to_owned())
            .collect();
        for name in unwanted {
            self.remove(&name);
        }
    }
}

impl<V: Clone> Shelf<V> {
    /// Changes the record of a name where it stands; does nothing when there is none.
    pub(crate) fn change(&mut self, name: &str, change: impl FnOnce(&mut V)) {
        if !self.contains(name) {
            return;
        }
        let boxes = Arc::make_mut(&mut self.boxes);
        if let Some(value) = boxes
            .get_mut(&label(name))
            .and_then(|names| Arc::make_mut(names).get_mut(name))
        {
            change(Arc::make_mut(value));
        }
    }
}

/// The first bytes of a name, filled up with zeros, which keeps the order of the names.
fn label(name: &str) -> Label {
    let mut label = Label::default();
    label
        .iter_mut()
        .zip(name.bytes())
        .for_each(|(place, byte)| *place = byte);
    label
}

impl<V> Clone for Shelf<V> {
    fn clone(&self) -> Self {
        Self {
            len: self.len,
            boxes: Arc::clone(&self.boxes),
        }
    }
}

impl<V> Default for Shelf<V> {
    fn default() -> Self {
        Self {
            len: 0,
            boxes: Arc::default(),
        }
    }
}

impl<V: PartialEq> PartialEq for Shelf<V> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.boxes, &other.boxes) || self.boxes == other.boxes
    }
}

impl<V: Eq> Eq for Shelf<V> {}

impl<V: Serialize> Serialize for Shelf<V> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut map = out.serialize_map(Some(self.len))?;
        for (name, value) in self.iter() {
            map.serialize_entry(name, &**value)?;
        }
        map.end()
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Shelf<V> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_map(Reader(std::marker::PhantomData))
    }
}

struct Reader<V>(std::marker::PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for Reader<V> {
    type Value = Shelf<V>;

    fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("records by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Shelf<V>, A::Error> {
        let mut shelf = Shelf::default();
        while let Some((name, value)) = map.next_entry::<String, V>()? {
            shelf.insert(name, value);
        }
        Ok(shelf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_in_the_order_of_their_bytes() {
        let mut shelf = Shelf::default();
        let names = ["b", "a", "abcd", "abc", "ab\0", "ab", "\u{e4}"];
        for (value, name) in names.into_iter().enumerate() {
            shelf.insert(name, value);
        }
        let mut sorted = names;
        sorted.sort_unstable();
        let found: Vec<&str> = shelf.iter().map(|(name, _)| name).collect();
        assert_eq!((found, shelf.len()), (sorted.to_vec(), names.len()));
    }

    #[test]
    fn a_change_of_one_clone_is_not_seen_in_the_other() {
        let mut shelf = Shelf::default();
        shelf.insert("a", 1);
        shelf.insert("b", 2);
        let before = shelf.clone();
        shelf.change("a", |value| *value = 3);
        assert_eq!(shelf.remove("b").as_deref(), Some(&2));
        assert_eq!(shelf.remove("b"), None);
        shelf.insert("a", 4);
        assert_eq!((shelf.len(), before.len()), (1, 2));
        assert_eq!(before.get("a").map(|value| **value), Some(1));
        assert_eq!(shelf.get("a").map(|value| **value), Some(4));
        shelf.retain(|_, _| false);
        assert!(shelf.is_empty() && shelf == Shelf::default());
    }

    #[test]
    fn it_reads_back_from_a_plain_map() {
        let mut shelf = Shelf::default();
        shelf.insert("a", 1_u64);
        let json = serde_json::to_string(&shelf).unwrap();
        assert_eq!(json, r#"{"a":1}"#);
        assert_eq!(serde_json::from_str::<Shelf<u64>>(&json).unwrap(), shelf);
    }
}
