//! What a stream promised and what it showed, kept outside of it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

/// The history of one stream with one shard, as its clients know it: payloads by offset.
#[derive(Debug, Default)]
pub struct History {
    /// Acknowledged with this offset.
    acknowledged: BTreeMap<u64, Vec<u8>>,
    /// Digests of what a reader saw, by offset: a long campaign sees more than fits into memory.
    read: Vec<u64>,
    /// How many acknowledgements were compared.
    compared: u64,
}

/// A promise that was not kept.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// An acknowledged record is not there.
    #[error("offset {offset} was acknowledged, but the log ends at {end}")]
    Acknowledged {
        /// Its offset.
        offset: u64,
        /// The end of the log, exclusive.
        end: u64,
    },
    /// An offset holds other bytes than before.
    #[error("offset {offset} held {before:?} and now holds {now:?}")]
    Reused {
        /// The offset.
        offset: u64,
        /// What was acknowledged or read there.
        before: String,
        /// What is there now.
        now: String,
    },
    /// Two publishes were told the same offset.
    #[error("offset {offset} was acknowledged twice, for {first:?} and {second:?}")]
    AcknowledgedTwice {
        /// The offset.
        offset: u64,
        /// The first payload.
        first: String,
        /// The second.
        second: String,
    },
    /// Offsets have a hole.
    #[error("offset {found} follows where {expected} was due")]
    Hole {
        /// The offset that was due.
        expected: u64,
        /// The one that came.
        found: u64,
    },
    /// What a reader saw is gone.
    #[error("a reader saw offset {offset}, but the log ends at {end}")]
    Unread {
        /// The offset.
        offset: u64,
        /// The end of the log, exclusive.
        end: u64,
    },
}

impl History {
    /// A publish was answered with an offset.
    ///
    /// # Errors
    /// When the offset belongs to another record already.
    pub fn acknowledge(&mut self, offset: u64, payload: &[u8]) -> Result<(), Lost> {
        if let Some(first) = self.contradiction(offset, payload) {
            return Err(Lost::AcknowledgedTwice {
                offset,
                first,
                second: text(payload),
            });
        }
        self.acknowledged.insert(offset, payload.to_vec());
        Ok(())
    }

    /// Where the next reading has to begin: everything below was compared already.
    pub fn next(&self) -> u64 {
        self.read.len() as u64
    }

    /// A reader was given a record; readings are dense and begin at [`History::next`].
    ///
    /// # Errors
    /// When there is a hole, or the bytes are not those that were acknowledged.
    pub fn see(&mut self, offset: u64, payload: &[u8]) -> Result<(), Lost> {
        let expected = self.next();
        if offset != expected {
            return Err(Lost::Hole {
                expected,
                found: offset,
            });
        }
        if let Some(before) = self.acknowledged.remove(&offset) {
            self.compared += 1;
            if before != payload {
                return Err(Lost::Reused {
                    offset,
                    before: text(&before),
                    now: text(payload),
                });
            }
        }
        self.read.push(digest(payload));
        Ok(())
    }

    /// A second reading of everything, from 0.
    ///
    /// # Errors
    /// When the bytes are not those of the first.
    pub fn see_again(&self, offset: u64, payload: &[u8]) -> Result<(), Lost> {
        match self.contradiction(offset, payload) {
            Some(before) => Err(Lost::Reused {
                offset,
                before,
                now: text(payload),
            }),
            None => Ok(()),
        }
    }

    /// A reading has reached the end of the log. Nothing acknowledged or seen may lie at or after it.
    ///
    /// # Errors
    /// The first offset that is missing.
    pub fn ends_at(&self, end: u64) -> Result<(), Lost> {
        if let Some(offset) = self.acknowledged.keys().find(|offset| **offset >= end) {
            return Err(Lost::Acknowledged {
                offset: *offset,
                end,
            });
        }
        if self.next() > end {
            return Err(Lost::Unread {
                offset: self.next().saturating_sub(1),
                end,
            });
        }
        Ok(())
    }

    /// How many acknowledgements were found again with their own bytes.
    pub fn compared(&self) -> u64 {
        self.compared
    }

    /// What is known of an offset, if it is not this payload.
    fn contradiction(&self, offset: u64, payload: &[u8]) -> Option<String> {
        let read = usize::try_from(offset)
            .ok()
            .and_then(|offset| self.read.get(offset));
        if let Some(known) = read {
            return (*known != digest(payload))
                .then(|| format!("something with digest {known:016x}"));
        }
        self.acknowledged
            .get(&offset)
            .filter(|known| *known != payload)
            .map(|known| text(known))
    }
}

fn digest(payload: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(payload);
    hasher.finish()
}

fn text(payload: &[u8]) -> String {
    String::from_utf8_lossy(payload).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(acknowledged: &[(u64, &str)], read: &[&str]) -> History {
        let mut history = History::default();
        for (offset, payload) in acknowledged {
            history.acknowledge(*offset, payload.as_bytes()).unwrap();
        }
        for (offset, payload) in (0..).zip(read) {
            history.see(offset, payload.as_bytes()).unwrap();
        }
        history
    }

    #[test]
    fn a_kept_promise_is_counted() {
        let history = of(&[(0, "a"), (2, "c")], &["a", "b", "c", "not acknowledged"]);
        assert_eq!(history.ends_at(4), Ok(()));
        assert_eq!(history.compared(), 2);
    }

    #[test]
    fn an_acknowledged_record_that_is_gone_is_found() {
        let history = of(&[(0, "a"), (1, "b")], &["a"]);
        assert_eq!(
            history.ends_at(1),
            Err(Lost::Acknowledged { offset: 1, end: 1 })
        );
    }

    #[test]
    fn an_offset_with_other_bytes_is_found() {
        let mut history = of(&[(0, "a"), (1, "b")], &["a"]);
        assert!(matches!(
            history.see(1, b"x"),
            Err(Lost::Reused { offset: 1, .. })
        ));
        assert!(matches!(
            history.see_again(0, b"x"),
            Err(Lost::Reused { offset: 0, .. })
        ));
        assert_eq!(history.see_again(0, b"a"), Ok(()));
    }

    #[test]
    fn an_offset_that_is_given_twice_is_found() {
        let mut history = of(&[(3, "d")], &["a"]);
        assert!(matches!(
            history.acknowledge(3, b"x"),
            Err(Lost::AcknowledgedTwice { offset: 3, .. })
        ));
        assert!(matches!(
            history.acknowledge(0, b"x"),
            Err(Lost::AcknowledgedTwice { offset: 0, .. })
        ));
        assert_eq!(history.acknowledge(3, b"d"), Ok(()));
    }

    #[test]
    fn a_hole_and_a_log_that_shrank_are_found() {
        let mut history = of(&[], &["a", "b"]);
        assert_eq!(
            history.see(3, b"d"),
            Err(Lost::Hole {
                expected: 2,
                found: 3
            })
        );
        assert_eq!(history.ends_at(1), Err(Lost::Unread { offset: 1, end: 1 }));
    }
}
