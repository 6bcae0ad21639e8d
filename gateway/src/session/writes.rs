//! The order in which a browser's writes reach the broker: as sent. Publishes to one stream may follow each other without
//! waiting; whatever goes elsewhere waits until everything before it is answered.

use std::collections::VecDeque;

use bytes::Bytes;

use super::message::Condition;
use super::once::Once;
use crate::limits::WRITES_WAITING_MAX;

/// Something to be written, by the resource's place in the scope file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    Publish {
        stream: usize,
        payload: Bytes,
        ack: bool,
        id: u64,
        /// Set when it may come again and is to land once.
        once: Option<Once>,
    },
    Add {
        counter: usize,
        key: String,
        delta: i64,
        id: u64,
    },
    Put {
        cache: usize,
        key: String,
        payload: Bytes,
    },
    Delete {
        cache: usize,
        key: String,
    },
    PutIf {
        cache: usize,
        key: String,
        payload: Bytes,
        condition: Condition,
        id: u64,
    },
    DeleteIf {
        cache: usize,
        key: String,
        version: u64,
        id: u64,
    },
}

/// Writes that have not been answered, in order.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    waiting: VecDeque<Write>,
    /// How many were begun and are not answered.
    begun: usize,
    /// The stream that all of those go to; `None` when what was begun is alone.
    lane: Option<usize>,
}

impl Writes {
    pub(crate) fn push(&mut self, write: Write) {
        self.waiting.push_back(write);
    }

    /// Whether no more should be heard from the browser until some are answered.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() + self.begun >= WRITES_WAITING_MAX
    }

    /// Whether nothing waits and nothing is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.begun == 0
    }

    /// The next write that may begin now.
    pub(crate) fn next(&mut self) -> Option<Write> {
        let lane = match self.waiting.front()? {
            Write::Publish {
                stream, once: None, ..
            } => Some(*stream),
            // What is repeated until it is answered could overtake, so it goes alone.
            Write::Publish { once: Some(_), .. }
            | Write::Add { .. }
            | Write::Put { .. }
            | Write::Delete { .. }
            | Write::PutIf { .. }
            | Write::DeleteIf { .. } => None,
        };
        let may = self.begun == 0 || (lane.is_some() && lane == self.lane);
        if !may {
            return None;
        }
        self.begun += 1;
        self.lane = lane;
        self.waiting.pop_front()
    }

    /// The oldest write under way was answered.
    pub(crate) fn answered(&mut self) {
        self.begun = self.begun.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(stream: usize, id: u64) -> Write {
        Write::Publish {
            stream,
            payload: Bytes::new(),
            ack: true,
            id,
            once: None,
        }
    }

    fn put(key: &str) -> Write {
        Write::Put {
            cache: 0,
            key: key.into(),
            payload: Bytes::new(),
        }
    }

    #[test]
    fn publishes_to_one_stream_follow_each_other_and_all_else_waits_its_turn() {
        let mut writes = Writes::default();
        for write in [
            publish(0, 1),
            publish(0, 2),
            publish(1, 3),
            put("a"),
            put("b"),
        ] {
            writes.push(write);
        }
        assert_eq!(writes.next(), Some(publish(0, 1)));
        assert_eq!(writes.next(), Some(publish(0, 2)));
        assert_eq!(writes.next(), None, "another stream waits");
        writes.answered();
        assert_eq!(writes.next(), None, "one is still under way");
        writes.answered();
        assert_eq!(writes.next(), Some(publish(1, 3)));
        assert_eq!(writes.next(), None);
        writes.answered();
        assert_eq!(writes.next(), Some(put("a")));
        assert_eq!(writes.next(), None, "cache writes go one at a time");
        writes.answered();
        assert_eq!(writes.next(), Some(put("b")));
        writes.answered();
        assert!(writes.is_empty());
    }

    #[test]
    fn there_is_room_for_a_bounded_number() {
        let mut writes = Writes::default();
        while !writes.is_full() {
            writes.push(publish(0, 0));
        }
        assert_eq!(writes.waiting.len(), WRITES_WAITING_MAX);
        writes.next();
        assert!(writes.is_full(), "what is under way counts");
        writes.answered();
        assert!(!writes.is_full());
    }
}
