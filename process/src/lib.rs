//! What every server process of ours needs and none should write again: reading its configuration, counting who is
//! connected, exporting its metrics, logging, and hearing that it should stop.
//!
//! What lives here: the mechanism. What never does: a key, a metric or a limit; those belong to the process that has
//! them, beside the sentence that explains them.
//!
//! Begin with [`load`], which turns defaults, a file and the environment into a typed configuration.

mod export;
mod life;
mod settings;
mod slots;

pub use export::Export;
pub use life::{log_to_stderr, stop_signal};
pub use settings::{LoadRefused, flag, list, load, to_toml};
pub use slots::{Slot, Slots};
