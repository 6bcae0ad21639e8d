//! Consumer groups and schedules: scripts with transcripts, and random use with crashes.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test stops at what it did not expect"
)]

mod bounds;
mod random;
mod scripts;
mod world;
