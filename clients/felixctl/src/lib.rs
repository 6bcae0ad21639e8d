//! The command line of Felix, as a library so that tests and other tools can run its commands.
//!
//! What lives here: the definition of every command, the contexts file, what is printed and how,
//! the exit statuses, the measurements of `bench`, and `dev`, which runs a control plane and a
//! broker in this process. Commands speak to servers only through the public client and the HTTP
//! routes that anybody may use: if a command needs more, the client is what lacks it.
//!
//! What never does: decisions about records, offsets or permissions. A refusal is shown as the
//! server gave it, with the exit status that scripts rely on; nothing is guessed on the way.
//!
//! Where to begin: [`cli`] says what can be typed, [`run`] carries it out through [`commands`],
//! [`output`] and [`exit`] are what comes back.

pub mod api;
pub mod bench;
pub mod cli;
pub mod commands;
pub mod confirm;
pub mod contexts;
pub mod credentials;
pub mod dev;
pub mod exit;
mod logging;
pub mod output;
pub mod parse;
pub mod progress;
pub mod secret;
pub mod settings;
pub mod sign_in;
pub mod suggest;
pub mod surroundings;
pub mod trust;

use std::ffi::OsString;
use std::io::Write as _;

use clap::{CommandFactory as _, FromArgMatches as _};

use cli::Cli;
use exit::{Exit, Failure};
use settings::Given;
use surroundings::Surroundings;

/// Carries out one command line and says how the process should end. Results go to standard
/// output, everything else to standard error.
pub async fn run(args: Vec<OsString>, surroundings: Surroundings) -> Exit {
    let wants_json = args
        .iter()
        .any(|arg| arg == "--json" || arg == "json" || arg == "ndjson");
    let (cli, given) = match parse(args) {
        Ok(parsed) => parsed,
        Err(error) => return report_usage(&error, wants_json),
    };
    let no_color = surroundings.no_color;
    let shape = match (cli.global.json, cli.global.output) {
        (true, _) => output::Shape::Json,
        (false, shape) => shape.unwrap_or_default(),
    };
    let output = output::Output::to_stdout(shape, no_color);
    logging::start(&cli.command, cli.global.verbose);
    let app = commands::App {
        global: cli.global,
        given,
        surroundings,
        output,
    };
    match app.run(cli.command).await {
        Ok(()) => Exit::Ok,
        Err(failure) => {
            report_failure(&failure, output.is_json());
            failure.exit
        }
    }
}

/// Takes a command line apart.
///
/// # Errors
/// clap's own error, which is also how `--help` and `--version` come back.
pub fn parse(args: Vec<OsString>) -> Result<(Cli, Given), clap::Error> {
    let matches = Cli::command().try_get_matches_from(args)?;
    let given = Given::from_matches(&matches);
    Ok((Cli::from_arg_matches(&matches)?, given))
}

fn report_usage(error: &clap::Error, json: bool) -> Exit {
    if !error.use_stderr() {
        // `--help` into a closed pipe is nobody's problem.
        let _ = error.print();
        return Exit::Ok;
    }
    if json {
        let text = error.render().to_string();
        let first = text
            .lines()
            .next()
            .unwrap_or_default()
            .trim_start_matches("error: ");
        report_failure(&Failure::usage(first), true);
    } else {
        let _ = error.print();
    }
    Exit::Usage
}

fn report_failure(failure: &Failure, json: bool) {
    let text = if json {
        failure.for_machines()
    } else {
        failure.for_people()
    };
    // When standard error is gone, the exit status is all that is left to say.
    let _ = writeln!(std::io::stderr(), "{text}");
}
