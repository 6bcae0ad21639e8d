//! What `--help` says, and that every command and flag says something.

use clap::{Command, CommandFactory as _};
use felixctl::cli::Cli;

/// Every command with its full name, the deepest first in no particular order.
fn every_command() -> Vec<(String, Command)> {
    let mut root = Cli::command();
    root.build();
    let mut found = Vec::new();
    let mut waiting = vec![("felixctl".to_owned(), root)];
    while let Some((name, command)) = waiting.pop() {
        for below in command.get_subcommands() {
            waiting.push((format!("{name} {}", below.get_name()), below.clone()));
        }
        found.push((name, command));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

#[test]
fn the_help_of_every_command_is_as_it_was_reviewed() {
    let mut text = String::new();
    for (name, mut command) in every_command() {
        text.push_str(&format!("# {name}\n\n{}\n", command.render_help()));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn the_long_help_names_the_environment_variables() {
    let (_, mut root) = every_command().swap_remove(0);
    let help = root.render_long_help().to_string();
    for variable in [
        "FELIX_BROKERS",
        "FELIX_AUTH_TENANT",
        "FELIX_CA_FILE",
        "FELIX_CONTROLPLANE_URL",
    ] {
        assert!(help.contains(variable), "{variable} is not in the help");
    }
    assert!(help.contains("Exit status:"));
}

#[test]
fn every_command_and_every_flag_explains_itself() {
    for (name, command) in every_command() {
        assert!(command.get_about().is_some(), "{name} has no description");
        for arg in command.get_arguments() {
            assert!(
                arg.get_help().is_some(),
                "{name} {} has no description",
                arg.get_id()
            );
        }
    }
}

#[test]
fn every_command_that_destroys_takes_yes() {
    for (name, command) in every_command() {
        if name.ends_with(" rm") {
            let yes = command.get_arguments().any(|arg| arg.get_id() == "yes");
            assert!(yes, "{name} has no --yes");
        }
    }
}

#[test]
fn the_definition_of_the_command_line_is_sound() {
    Cli::command().debug_assert();
}
