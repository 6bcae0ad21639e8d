//! What a finished command tells the shell, and what a failed one tells the person.

use std::fmt;
use std::process::ExitCode;

/// The exit status of every command. A status never changes its meaning; scripts rely on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command did what it was asked.
    Ok = 0,
    /// It failed for a reason that none of the other statuses names.
    Failed = 1,
    /// The arguments, the settings or the input could not be understood; nothing was sent.
    Usage = 2,
    /// A tenant, namespace, stream, cache, context or file that was named does not exist.
    NotFound = 3,
    /// The server understood and said no: credential, permission or a limit.
    Refused = 4,
    /// Nobody answered, or the answer was "not now". Trying again later is safe.
    Unavailable = 5,
    /// A write may or may not have been made. Trying again blindly could make it twice.
    OutcomeUnknown = 6,
    /// What exists contradicts what was asked: a name already taken, an offset already used, a version that has
    /// changed, a claim that has lapsed.
    Conflict = 7,
    /// The person pressed Ctrl-C.
    Interrupted = 130,
}

/// The table of [`Exit`] as `felixctl --help` and the documentation print it.
pub const EXIT_TABLE: &str = "\
Exit status:
  0    done
  1    failed, for a reason no other status names
  2    the arguments, the settings or the input could not be understood; nothing was sent
  3    what was named does not exist (the close matches are printed)
  4    refused: credential, permission or a limit
  5    unreachable, unavailable or timed out; trying again is safe
  6    outcome unknown: a write may or may not have been made
  7    conflict with what exists
  130  interrupted by Ctrl-C";

impl Exit {
    /// The number the shell sees.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.number())
    }
}

/// Why a command failed, in the form in which it is shown: one sentence, what to do next, and the
/// exit status. It is the last stop of every typed error of the client and the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The status the process ends with.
    pub exit: Exit,
    /// One sentence in plain words.
    pub message: String,
    /// The server's own code (`not_found`, `overloaded`, …) when a server said no.
    pub code: Option<String>,
    /// What the person could do next.
    pub hint: Option<String>,
    /// What a condition found instead, such as `current_version`, by its name in JSON.
    pub number: Option<Box<(&'static str, Option<u64>)>>,
    /// Names close to the one that was not found, best first.
    pub did_you_mean: Vec<String>,
}

impl Failure {
    /// A failure with a status and a sentence.
    #[must_use]
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            code: None,
            hint: None,
            number: None,
            did_you_mean: Vec::new(),
        }
    }

    /// Arguments, settings or input that could not be understood.
    #[must_use]
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// A failure that no other status names.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    /// The person pressed Ctrl-C.
    #[must_use]
    pub fn interrupted() -> Self {
        Self::new(Exit::Interrupted, "interrupted")
    }

    /// Adds the server's code.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Adds what the person could do next.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds what a condition found instead.
    #[must_use]
    pub fn with_number(mut self, name: &'static str, number: Option<u64>) -> Self {
        self.number = Some(Box::new((name, number)));
        self
    }

    /// Adds the close matches of a name that was not found.
    #[must_use]
    pub fn with_matches(mut self, matches: Vec<String>) -> Self {
        self.did_you_mean = matches;
        self
    }

    /// The lines shown on standard error for a person.
    #[must_use]
    pub fn for_people(&self) -> String {
        let mut text = format!("error: {}", self.message);
        if let Some(code) = &self.code {
            text.push_str(&format!(" ({code})"));
        }
        if let [first, rest @ ..] = self.did_you_mean.as_slice() {
            text.push_str(&format!("\n  did you mean {first}"));
            for name in rest {
                text.push_str(&format!(" or {name}"));
            }
            text.push('?');
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("\n  {hint}"));
        }
        text
    }

    /// The one line shown on standard error when `--json` was asked for.
    #[must_use]
    pub fn for_machines(&self) -> String {
        let mut object = serde_json::Map::new();
        object.insert("error".into(), self.message.clone().into());
        object.insert("exit".into(), self.exit.number().into());
        if let Some(code) = &self.code {
            object.insert("code".into(), code.clone().into());
        }
        if let Some((name, number)) = self.number.as_deref() {
            object.insert((*name).into(), (*number).into());
        }
        if let Some(hint) = &self.hint {
            object.insert("hint".into(), hint.clone().into());
        }
        if !self.did_you_mean.is_empty() {
            object.insert("did_you_mean".into(), self.did_you_mean.clone().into());
        }
        serde_json::Value::Object(object).to_string()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::failed(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_shows_its_matches_and_its_hint_to_people() {
        let failure = Failure::new(Exit::NotFound, "no stream ordrs in dev/default")
            .with_code("not_found")
            .with_matches(vec!["orders".into(), "orders-old".into()])
            .with_hint("--wait waits until it exists");
        insta::assert_snapshot!(failure.for_people(), @r"
        error: no stream ordrs in dev/default (not_found)
          did you mean orders or orders-old?
          --wait waits until it exists
        ");
    }

    #[test]
    fn a_failure_is_one_line_of_json_for_machines() {
        let failure = Failure::new(Exit::NotFound, "no stream \"ordrs\"\nhere")
            .with_matches(vec!["orders".into()]);
        let line = failure.for_machines();
        assert!(!line.contains('\n'));
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&line).expect("json"),
            serde_json::json!({
                "error": "no stream \"ordrs\"\nhere", "exit": 3, "did_you_mean": ["orders"],
            })
        );
    }

    #[test]
    fn the_printed_table_names_every_status() {
        let every = [
            Exit::Ok,
            Exit::Failed,
            Exit::Usage,
            Exit::NotFound,
            Exit::Refused,
            Exit::Unavailable,
            Exit::OutcomeUnknown,
            Exit::Conflict,
            Exit::Interrupted,
        ];
        for exit in every {
            let number = exit.number().to_string();
            assert!(
                EXIT_TABLE
                    .lines()
                    .any(|line| line.split_whitespace().next() == Some(&number)),
                "{number} is not in the table"
            );
        }
    }
}
