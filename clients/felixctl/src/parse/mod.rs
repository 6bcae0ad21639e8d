//! What a person types, turned into numbers once, at the edge: sizes, durations, times, positions.

mod duration;
mod size;
mod start;
mod time;

pub use duration::{BadDuration, duration, show_duration};
pub use size::{BadSize, show_size, size};
pub use start::{BadStart, Start};
pub use time::{BadTime, rfc3339, show_time};
