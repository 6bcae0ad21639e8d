//! What the libraries underneath have to say, on standard error, when somebody wants to hear it.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::cli::Command;

/// Starts logging as loud as `-v` asked: a command is silent but for its own words, `dev` passes on
/// the warnings of its servers. `RUST_LOG` overrules both.
pub(crate) fn start(command: &Command, verbose: u8) {
    let level = match (command, verbose) {
        (Command::Dev(_), 0) => "warn",
        (_, 0) => "error",
        (_, 1) => "info",
        (_, _) => "debug",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let logging = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    // A process that runs several command lines, as tests do, keeps its first logging.
    let _ = logging.try_init();
}
