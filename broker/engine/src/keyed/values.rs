//! Some of the values, in memory.

use std::collections::HashMap;

use bytes::Bytes;
use felix_model::Offset;

use super::Key;

/// Counted for every value beside its bytes: its slot, its place in the map and the allocation.
const VALUE_OVERHEAD_BYTES: u64 = 128;

/// Values by the offsets of their records, within a budget of bytes.
///
/// What was not asked for since the hand came by last goes first (CLOCK), which is nearly as good as
/// the order of use and costs a read one bit. A value over a quarter of the budget is not kept: it
/// would drive out too much.
#[derive(Debug)]
pub struct Values {
    budget: u64,
    used: u64,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    by_offset: HashMap<Offset, usize>,
    hand: usize,
}

#[derive(Debug)]
struct Slot {
    offset: Offset,
    key: Key,
    value: Bytes,
    asked_for: bool,
}

impl Values {
    /// No values yet, and at most `budget` bytes of them.
    #[must_use]
    pub fn new(budget: u64) -> Self {
        Self {
            budget,
            used: 0,
            slots: Vec::new(),
            free: Vec::new(),
            by_offset: HashMap::new(),
            hand: 0,
        }
    }

    /// Bytes in use, with what each value takes beside its own.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Whether more is held than the budget allows.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.used > self.budget
    }

    /// What a value of this length, under this key, takes of a budget.
    #[must_use]
    pub fn cost(key: &[u8], length: usize) -> u64 {
        VALUE_OVERHEAD_BYTES + key.len() as u64 + length as u64
    }

    /// Whether [`Values::insert`] would hold a value of this length.
    #[must_use]
    pub fn admits(&self, key: &[u8], length: usize) -> bool {
        Self::cost(key, length) <= self.budget / 4
    }

    /// Changes the budget, and forgets what is over it.
    pub fn set_budget(&mut self, budget: u64) {
        self.budget = budget;
        self.shrink();
    }

    /// The value set by the record at `offset`, if it is held.
    pub fn get(&mut self, offset: Offset) -> Option<Bytes> {
        let slot = *self.by_offset.get(&offset)?;
        let held = self.slots.get_mut(slot)?.as_mut()?;
        held.asked_for = true;
        Some(held.value.clone())
    }

    /// Whether the value set by the record at `offset` is held.
    #[must_use]
    pub fn holds(&self, offset: Offset) -> bool {
        self.by_offset.contains_key(&offset)
    }

    /// Holds a value, and forgets others for it. It must not share memory with anything larger.
    pub fn insert(&mut self, offset: Offset, key: Key, value: Bytes) {
        if self.admits(&key, value.len()) {
            self.place(offset, key, value, false);
            self.shrink();
        }
    }

    /// Holds a value whatever that takes, and passes it over when the hand comes by first; see
    /// [`Values::pop`].
    pub fn hold(&mut self, offset: Offset, key: Key, value: Bytes) {
        self.place(offset, key, value, true);
    }

    fn place(&mut self, offset: Offset, key: Key, value: Bytes, asked_for: bool) {
        self.remove(offset);
        self.used += Self::cost(&key, value.len());
        let held = Some(Slot {
            offset,
            key,
            value,
            asked_for,
        });
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                self.slots.len() - 1
            }
        };
        if let Some(place) = self.slots.get_mut(slot) {
            *place = held;
            self.by_offset.insert(offset, slot);
        }
    }

    /// Forgets a value.
    pub fn remove(&mut self, offset: Offset) {
        if let Some(slot) = self.by_offset.remove(&offset) {
            self.take(slot);
        }
    }

    /// Forgets the value that was asked for least, and says whose it was.
    pub fn pop(&mut self) -> Option<(Key, Offset)> {
        // Twice around reaches every slot with its mark cleared.
        for _ in 0..self.slots.len() * 2 {
            let slot = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            let Some(held) = self.slots.get_mut(slot).and_then(Option::as_mut) else {
                continue;
            };
            if std::mem::take(&mut held.asked_for) {
                continue;
            }
            let held = self.take(slot)?;
            self.by_offset.remove(&held.offset);
            return Some((held.key, held.offset));
        }
        None
    }

    fn take(&mut self, slot: usize) -> Option<Slot> {
        let held = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot);
        self.used -= Self::cost(&held.key, held.value.len());
        Some(held)
    }

    fn shrink(&mut self) {
        while self.is_over() && self.pop().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: u64 = VALUE_OVERHEAD_BYTES + 2;

    fn insert(values: &mut Values, offset: u64) {
        values.insert(
            Offset(offset),
            Key::from(b"k".as_slice()),
            Bytes::from_static(b"v"),
        );
    }

    #[test]
    fn what_was_asked_for_outlives_what_was_not() {
        let mut values = Values::new(4 * COST);
        (0..4).for_each(|offset| insert(&mut values, offset));
        assert!(values.get(Offset(0)).is_some());
        insert(&mut values, 4);
        insert(&mut values, 5);
        let held: Vec<u64> = (0..6)
            .filter(|offset| values.holds(Offset(*offset)))
            .collect();
        assert_eq!(held, [0, 3, 4, 5]);
        assert_eq!(values.used(), 4 * COST);
    }

    #[test]
    fn the_budget_holds_whatever_happens() {
        let mut values = Values::new(100 * COST);
        for offset in 0..1_000 {
            insert(&mut values, offset);
            values.get(Offset(offset / 2));
            values.remove(Offset(offset / 3));
            assert!(!values.is_over());
        }
        values.set_budget(10 * COST);
        assert!(values.used() <= 10 * COST);
        values.set_budget(0);
        assert_eq!(values.used(), 0);
        insert(&mut values, 1);
        assert_eq!(values.used(), 0);
        assert_eq!(values.pop(), None);
    }

    #[test]
    fn a_value_larger_than_a_quarter_of_the_budget_is_not_held() {
        let mut values = Values::new(4 * COST);
        values.insert(
            Offset(1),
            Key::from(b"k".as_slice()),
            Bytes::from_static(b"12"),
        );
        assert!(!values.holds(Offset(1)));
    }

    #[test]
    fn an_offset_inserted_again_replaces_its_value() {
        let mut values = Values::new(100 * COST);
        insert(&mut values, 1);
        insert(&mut values, 1);
        assert_eq!(values.used(), COST);
    }
}
