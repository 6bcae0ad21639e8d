//! Everything that is printed: tables for people, versioned JSON for programs, records either way.

mod escape;
mod format;
mod record;
mod report;
mod style;

pub use escape::{escape, escape_line};
pub use format::{BadFormat, Format, write_for_people};
pub use record::{RECORD_SCHEMA, Seen, json_text};
pub use report::{Field, Report};
pub use style::Style;

use std::io::{self, IsTerminal as _, Write};

use clap::ValueEnum;

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// Aligned columns for people.
    #[default]
    Table,
    /// One JSON document with a versioned schema; records are one document a line.
    Json,
    /// One JSON object a line, each with its schema.
    Ndjson,
    /// Only the names, one a line.
    Name,
}

/// Standard output as one command sees it.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// How results are printed.
    pub shape: Shape,
    /// Whether a person is looking, so that raw bytes must be escaped.
    pub terminal: bool,
    /// Colours, or none.
    pub style: Style,
}

impl Output {
    /// Output in this shape to the real standard output.
    #[must_use]
    pub fn to_stdout(shape: Shape, no_color: bool) -> Self {
        let terminal = io::stdout().is_terminal();
        Self {
            shape,
            terminal,
            style: Style::new(terminal && !no_color),
        }
    }

    /// Whether results are JSON, so that errors should be as well.
    #[must_use]
    pub fn is_json(&self) -> bool {
        matches!(self.shape, Shape::Json | Shape::Ndjson)
    }

    /// Prints a report in the chosen shape.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn report(&self, report: &Report) -> io::Result<()> {
        let text = match self.shape {
            Shape::Table => report.table(self.style),
            Shape::Json => report.json(),
            Shape::Ndjson => report.ndjson(),
            Shape::Name => report.names(),
        };
        self.text(&text)
    }

    /// Prints a sentence for people; programs get nothing, their document says it.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn say(&self, text: &str) -> io::Result<()> {
        if self.is_json() || self.shape == Shape::Name {
            return Ok(());
        }
        self.text(&format!("{text}\n"))
    }

    /// Prints text as it is.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn text(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // Whoever reads the output and goes away (`| head`) has what he wanted.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written,
        }
    }
}
