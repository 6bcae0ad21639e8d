//! Counters of a cache: sums of what was added to a key.

use bytes::Bytes;

use super::field::{Text, layout};

layout! {
    /// Adds to a counter.
    CounterAdd {
        /// The key. Counters and entries of the same name are two things.
        key: Text,
        /// What is added. A sum that does not fit is refused with `overflow`.
        delta: i64,
        /// 1 to 128 bytes. An add that was applied under the same key before is not applied again.
        once: Option<Bytes> = 0x0001,
    }
}

layout! {
    /// Reads a counter.
    CounterGet {
        /// The key.
        key: Text,
    }
}

layout! {
    /// What a counter stands at.
    CounterValue {
        /// The sum; absent when nothing was ever added.
        value: Option<i64> = 0x0001,
        /// The add had been applied before, and the value is what the counter stood at then.
        repeated: bool = 0x0002,
    }
}
