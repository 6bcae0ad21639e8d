//! `completions` and `version`.

use clap::CommandFactory as _;
use clap_complete::Shell;
use serde_json::json;

use super::App;
use crate::cli::Cli;
use crate::exit::Failure;
use crate::output::{Field, Report};

/// Prints the completion script of a shell.
pub(super) fn completions(app: &App, shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "felixctl", &mut script);
    Ok(app.output.text(&String::from_utf8_lossy(&script))?)
}

/// Prints the version.
pub(super) fn version(app: &App) -> Result<(), Failure> {
    const FIELDS: &[Field] = &[Field::plain("version"), Field::plain("record_schema")];
    let report = Report::one(
        "felixctl.version/1",
        FIELDS,
        &json!({
            "version": env!("CARGO_PKG_VERSION"),
            "record_schema": crate::output::RECORD_SCHEMA,
        }),
    );
    Ok(app.output.report(&report)?)
}
