//! Events of one shared subscription, kept once for all its browsers: each is a place in it, not a queue.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

use crate::limits::{EVENTS_HELD_BYTES_MAX, EVENTS_HELD_MAX};

/// Something of which so many bytes are kept.
pub(super) trait Weighed {
    fn bytes(&self) -> usize;
}

/// The newest events, and who waits for more. Bounded in number and in bytes; the newest one is always kept.
#[derive(Debug)]
pub(super) struct Ring<T> {
    /// The number of the oldest event that is kept. Numbers count events of this ring and are no offsets.
    base: u64,
    items: VecDeque<Arc<T>>,
    bytes: usize,
    wakers: BTreeMap<u64, Arc<AtomicWaker>>,
    /// The offset after the last event; `None` on streams without a log.
    next_offset: Option<u64>,
    end: Option<End>,
}

/// Why nothing follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Records were deleted before they could be read; the oldest is this.
    Trimmed { oldest: u64 },
    /// The subscription is over.
    Over { why: String },
}

/// What a browser finds at its place.
#[derive(Debug)]
pub(super) enum Taken<T> {
    Events(Vec<Arc<T>>),
    /// Events at its place are not kept any more.
    Behind,
    End(End),
}

impl<T: Weighed> Ring<T> {
    pub(super) fn starting_at(next_offset: Option<u64>) -> Self {
        Self {
            base: 0,
            items: VecDeque::new(),
            bytes: 0,
            wakers: BTreeMap::new(),
            next_offset,
            end: None,
        }
    }

    /// Adds events; what is too old for it goes.
    pub(super) fn push(&mut self, items: impl IntoIterator<Item = Arc<T>>, next: Option<u64>) {
        for item in items {
            self.bytes = self.bytes.saturating_add(item.bytes());
            self.items.push_back(item);
        }
        while self.items.len() > EVENTS_HELD_MAX
            || (self.bytes > EVENTS_HELD_BYTES_MAX && self.items.len() > 1)
        {
            let oldest = self.items.pop_front();
            self.bytes -= oldest.map_or(0, |item| item.bytes());
            self.base += 1;
        }
        self.next_offset = next.or(self.next_offset);
        self.wake();
    }

    pub(super) fn end(&mut self, end: End) {
        self.end.get_or_insert(end);
        self.wake();
    }

    pub(super) fn is_over(&self) -> bool {
        self.end.is_some()
    }

    pub(super) const fn next_offset(&self) -> Option<u64> {
        self.next_offset
    }

    /// The place after the newest event.
    pub(super) fn tail(&self) -> u64 {
        self.base + self.items.len() as u64
    }

    pub(super) fn enter(&mut self, id: u64, waker: Arc<AtomicWaker>) {
        self.wakers.insert(id, waker);
    }

    pub(super) fn leave(&mut self, id: u64) {
        self.wakers.remove(&id);
    }

    /// Events from a place on, which moves behind them.
    pub(super) fn take(&self, place: &mut u64, most: usize) -> Option<Taken<T>> {
        let Some(from) = place.checked_sub(self.base) else {
            return Some(Taken::Behind);
        };
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let events: Vec<_> = self.items.iter().skip(from).take(most).cloned().collect();
        if events.is_empty() {
            return self.end.clone().map(Taken::End);
        }
        *place += events.len() as u64;
        Some(Taken::Events(events))
    }

    /// Lets everybody who waits look again.
    pub(super) fn wake(&self) {
        for waker in self.wakers.values() {
            waker.wake();
        }
    }
}

/// As [`Ring::take`], and wakes the task when there is more. `look` takes the lock that guards the ring.
pub(super) fn poll_take<T>(
    waker: &AtomicWaker,
    cx: &mut Context<'_>,
    mut look: impl FnMut() -> Option<T>,
) -> Poll<T> {
    if let Some(taken) = look() {
        return Poll::Ready(taken);
    }
    waker.register(cx.waker());
    // What came between the two looks has woken nobody.
    match look() {
        Some(taken) => Poll::Ready(taken),
        None => Poll::Pending,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use bytes::Bytes;
    use futures_util::task::noop_waker;

    use super::super::item::Item;
    use super::*;

    fn items(from: u64, count: u64) -> Vec<Arc<Item>> {
        let item = |offset| Arc::new(Item::new(Some(offset), Bytes::new(), Instant::now()));
        (from..from + count).map(item).collect()
    }

    fn offsets(taken: Option<Taken<Item>>) -> Vec<u64> {
        match taken {
            Some(Taken::Events(events)) => events.iter().filter_map(|item| item.offset).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_reader_takes_every_event_from_its_place_on_once() {
        let mut ring = Ring::starting_at(Some(10));
        let (mut early, mut late) = (ring.tail(), 0);
        ring.push(items(10, 3), Some(13));
        late += ring.tail();
        ring.push(items(13, 2), Some(15));
        assert_eq!(offsets(ring.take(&mut early, 4)), [10, 11, 12, 13]);
        assert_eq!(offsets(ring.take(&mut early, 4)), [14]);
        assert_eq!(offsets(ring.take(&mut late, 9)), [13, 14]);
        assert!(ring.take(&mut early, 4).is_none());
        assert_eq!(ring.next_offset(), Some(15));
    }

    #[test]
    fn who_is_too_slow_is_told_and_nothing_grows() {
        let mut ring = Ring::starting_at(None);
        let mut slow = ring.tail();
        ring.push(items(0, EVENTS_HELD_MAX as u64), None);
        let mut in_time = slow;
        assert_eq!(offsets(ring.take(&mut in_time, 1)), [0]);
        ring.push(items(0, 1), None);
        assert!(matches!(ring.take(&mut slow, 1), Some(Taken::Behind)));
        assert_eq!(ring.items.len(), EVENTS_HELD_MAX);
    }

    #[test]
    fn large_events_are_kept_within_a_bound_of_bytes_and_the_newest_always() {
        let large = |offset: u64, bytes: usize| {
            let payload = Bytes::from(vec![0; bytes]);
            Arc::new(Item::new(Some(offset), payload, Instant::now()))
        };
        let mut ring = Ring::starting_at(Some(0));
        let most = EVENTS_HELD_BYTES_MAX / (1 << 20);
        for offset in 0..2 * most as u64 {
            ring.push([large(offset, 1 << 20)], None);
        }
        assert!((1..=most).contains(&ring.items.len()) && ring.bytes <= EVENTS_HELD_BYTES_MAX);
        ring.push([large(99, 2 * EVENTS_HELD_BYTES_MAX)], None);
        assert_eq!(ring.items.len(), 1);
        let mut place = ring.tail() - 1;
        assert_eq!(offsets(ring.take(&mut place, 1)), [99]);
    }

    #[test]
    fn what_was_there_before_the_end_is_still_taken() {
        let mut ring = Ring::<Item>::starting_at(None);
        let mut place = ring.tail();
        ring.push(items(0, 1), None);
        ring.end(End::Over { why: "gone".into() });
        assert!(matches!(ring.take(&mut place, 9), Some(Taken::Events(_))));
        assert!(matches!(ring.take(&mut place, 9), Some(Taken::End(_))));
    }

    #[test]
    fn a_reader_who_waits_is_woken() {
        let mut ring = Ring::starting_at(None);
        let waker = Arc::new(AtomicWaker::new());
        ring.enter(1, Arc::clone(&waker));
        let mut place = ring.tail();
        let task = noop_waker();
        let mut cx = Context::from_waker(&task);
        assert!(poll_take(&waker, &mut cx, || ring.take(&mut place, 9)).is_pending());
        ring.push(items(0, 1), None);
        assert!(waker.take().is_none(), "it was taken to wake the reader");
    }
}
