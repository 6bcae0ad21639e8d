//! What is known about the newest record of every key: the readings of a log that are not a stream.
//!
//! [`Index`] says where a key's newest value stands and when it expires, [`Sums`] what a counter has
//! come to, [`Values`] keeps some of the values in memory, [`Once`] answers what is sent again, and
//! [`snapshot`] writes the first three down so that a restart need not read the log.

mod index;
mod once;
pub mod snapshot;
mod sums;
mod values;

use std::sync::Arc;

pub use index::{Entry, Index};
pub use once::{Once, OnceBounds, OnceVerdict, Remembered};
pub use sums::{Sum, Sums};
pub use values::Values;

/// The bytes of a key, shared by everything that has to name it.
pub type Key = Arc<[u8]>;
