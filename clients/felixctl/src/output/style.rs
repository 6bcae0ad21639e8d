//! Colours, only where a person is looking and has not said no.

/// Whether text is decorated. `NO_COLOR` and a pipe both mean that it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    on: bool,
}

impl Style {
    /// Decorates when `on`.
    #[must_use]
    pub fn new(on: bool) -> Self {
        Self { on }
    }

    /// Important text.
    #[must_use]
    pub fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// Text that may be overlooked.
    #[must_use]
    pub fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    /// Text that says that something went well.
    #[must_use]
    pub fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.on {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_decorated_when_style_is_off() {
        assert_eq!(Style::new(false).bold("x"), "x");
        assert_eq!(Style::new(true).bold("x"), "\u{1b}[1mx\u{1b}[0m");
    }
}
