//! Asking before something is destroyed.

use std::io::{self, BufRead, IsTerminal as _, Write};

use crate::exit::{Exit, Failure};

/// Whether the person said beforehand that he does not want to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// Ask on a terminal; without one, refuse.
    Ask,
    /// `--yes` was given.
    Never,
}

impl From<bool> for Asking {
    fn from(yes: bool) -> Self {
        if yes { Self::Never } else { Self::Ask }
    }
}

/// Asks for the name of what is about to be destroyed, so that a wrong terminal or a reflex does
/// not do it. Without a terminal there is nobody to ask, and the command is refused.
///
/// # Errors
/// When the answer is another one, there is nobody to ask, or the terminal fails.
pub fn destroy(what: &str, name: &str, asking: Asking) -> Result<(), Failure> {
    if asking == Asking::Never {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(format!(
            "{what} would be destroyed, and nobody can be asked"
        ))
        .with_hint("--yes does it without asking"));
    }
    ask(what, name, &mut io::stdin().lock(), &mut io::stderr())
}

fn ask(
    what: &str,
    name: &str,
    from: &mut impl BufRead,
    to: &mut impl Write,
) -> Result<(), Failure> {
    write!(to, "{what} will be destroyed. Type its name to go on: ")?;
    to.flush()?;
    let mut answer = String::new();
    from.read_line(&mut answer)?;
    if answer.trim() == name {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Failed,
        format!("that is not {name:?}; nothing was done"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(typed: &str) -> Result<(), Failure> {
        ask(
            "stream orders",
            "orders",
            &mut typed.as_bytes(),
            &mut Vec::new(),
        )
    }

    #[test]
    fn only_the_name_itself_goes_on() {
        assert!(answer("orders\n").is_ok());
        for typed in ["", "\n", "y\n", "yes\n", "Orders\n", "orders2\n"] {
            assert_eq!(answer(typed).expect_err(typed).exit, Exit::Failed);
        }
    }

    #[test]
    fn yes_is_never_asked() {
        assert!(destroy("stream orders", "orders", Asking::from(true)).is_ok());
    }
}
