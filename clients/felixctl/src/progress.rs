//! Progress of long work: a bar on standard error where a person is looking, silence on a pipe.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What the numbers of a bar count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Records, files, samples: things.
    Things,
}

/// A bar for work whose size may be known. It draws on standard error, so what a command prints
/// can be piped while the bar is seen; nothing is drawn when standard error is no terminal.
#[must_use]
pub fn bar(title: &str, total: Option<u64>, unit: Unit) -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(8);
    let bar = ProgressBar::with_draw_target(total, target).with_message(title.to_owned());
    let template = match (total, unit) {
        (Some(_), Unit::Bytes) => "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        (Some(_), Unit::Things) => "{msg} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}",
        (None, Unit::Bytes) => "{msg} {spinner} {bytes} {bytes_per_sec}",
        (None, Unit::Things) => "{msg} {spinner} {human_pos} {per_sec}",
    };
    // The templates are the four above; a test keeps them good.
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style);
    bar
}

/// A bar that fills by itself over a known time, for measurements that simply last.
#[must_use]
pub fn clock(title: &str, total: Duration) -> ProgressBar {
    let ms = u64::try_from(total.as_millis()).unwrap_or(u64::MAX);
    let bar = ProgressBar::with_draw_target(Some(ms), ProgressDrawTarget::stderr_with_hz(4))
        .with_message(title.to_owned());
    bar.set_style(
        ProgressStyle::with_template("{msg} {wide_bar} {eta}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_on_a_pipe_draws_nothing() {
        // Under the test runner standard error is no terminal.
        let bar = bar("copying", Some(10), Unit::Bytes);
        assert!(bar.is_hidden() || !std::io::IsTerminal::is_terminal(&std::io::stderr()));
    }

    #[test]
    fn every_template_is_good() {
        for template in [
            "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
            "{msg} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}",
            "{msg} {spinner} {bytes} {bytes_per_sec}",
            "{msg} {spinner} {human_pos} {per_sec}",
            "{msg} {wide_bar} {eta}",
        ] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }
}
