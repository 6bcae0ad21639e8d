//! Checkers of what clients were told. They know nothing of an engine: they hold a history, what was asked and what was
//! answered and when, against the rules of a reading.
//!
//! [`linear`] says whether a history could have happened one operation at a time; [`register`] and [`counter`] are what
//! one key of a cache and one counter do then. [`group`] holds the rules of consumer groups, [`commit`] those of
//! commits, [`team`] and [`holders`] those of groups of the Kafka protocol. Each is shown good and bad histories in its own
//! tests, and brokers that are broken on purpose by `tests/readings.rs`.

pub mod commit;
pub mod counter;
pub mod group;
pub mod holders;
pub mod linear;
pub mod register;
pub mod team;
