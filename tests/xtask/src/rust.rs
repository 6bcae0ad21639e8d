//! Enough of a Rust lexer to tell code from strings and comments, and product code from tests.

/// One source file, taken apart.
#[derive(Debug)]
pub(crate) struct Source {
    /// The text with comments and the insides of literals blanked, byte for byte as long as the original.
    pub(crate) code: String,
    /// String literals: where the text inside begins, and the text.
    pub(crate) strings: Vec<(usize, String)>,
}

impl Source {
    pub(crate) fn scan(text: &str) -> Self {
        let mut scanner = Scanner {
            text: text.as_bytes(),
            at: 0,
            code: Vec::new(),
            strings: Vec::new(),
        };
        scanner.run();
        Self {
            code: String::from_utf8_lossy(&scanner.code).into_owned(),
            strings: scanner.strings,
        }
    }

    /// Byte ranges of the items behind `#[cfg(test)]`.
    pub(crate) fn test_ranges(&self) -> Vec<std::ops::Range<usize>> {
        self.code
            .match_indices("#[cfg(test)]")
            .map(|(at, _)| {
                at..self
                    .block_after(at)
                    .map_or(self.code.len(), |block| block.end)
            })
            .collect()
    }

    /// String literals outside test code.
    pub(crate) fn product_strings(&self) -> impl Iterator<Item = &str> {
        let tests = self.test_ranges();
        self.strings
            .iter()
            .filter(move |(at, _)| !tests.iter().any(|range| range.contains(at)))
            .map(|(_, text)| text.as_str())
    }

    /// Names declared as `mod name;`, with the `#[path]` that stands before, if any.
    pub(crate) fn modules(&self) -> Vec<(String, Option<String>)> {
        let mut found = Vec::new();
        let mut path = None;
        let mut at = 0;
        for line in self.code.lines() {
            let begin = at;
            at += line.len() + 1;
            if line.trim_start().starts_with("#[path") {
                path = self
                    .strings
                    .iter()
                    .find(|(start, _)| (begin..at).contains(start));
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            if let Some(index) = words.iter().position(|word| *word == "mod")
                && let Some(name) = words.get(index + 1).and_then(|word| word.strip_suffix(';'))
            {
                found.push((name.to_owned(), path.map(|(_, text)| text.clone())));
            }
            if !line.trim_start().starts_with("#[") {
                path = None;
            }
        }
        found
    }

    /// Functions marked `#[test]` or `#[….test]`: name, line of the name, body.
    pub(crate) fn tests(&self) -> Vec<(String, usize, &str)> {
        let mut found = Vec::new();
        for (at, _) in self.code.match_indices("#[") {
            let after = self.code.get(at + 2..).unwrap_or("");
            let attribute = after.split([']', '(']).next().unwrap_or("").trim();
            if attribute != "test" && !attribute.ends_with("::test") {
                continue;
            }
            let Some(function) = after.find("fn ").map(|offset| at + 2 + offset + 3) else {
                continue;
            };
            let name = self.word_at(function);
            if let Some(body) = self.block_after(function) {
                found.push((
                    name,
                    line_of(&self.code, function),
                    self.code.get(body).unwrap_or(""),
                ));
            }
        }
        found
    }

    /// Every function with a body: its name and the body.
    pub(crate) fn functions(&self) -> Vec<(String, &str)> {
        self.code
            .match_indices("fn ")
            .filter_map(|(at, _)| {
                let body = self.block_after(at)?;
                Some((self.word_at(at + 3), self.code.get(body)?))
            })
            .filter(|(name, _)| !name.is_empty())
            .collect()
    }

    fn word_at(&self, at: usize) -> String {
        let rest = self.code.get(at..).unwrap_or("");
        rest.chars()
            .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
            .collect()
    }

    /// The range of the first `{ … }` after `at`, braces included; nothing if a `;` comes first.
    fn block_after(&self, at: usize) -> Option<std::ops::Range<usize>> {
        let rest = self.code.get(at..)?;
        let open = rest.find(['{', ';'])?;
        let mut depth = 0usize;
        for (offset, letter) in rest.get(open..)?.char_indices() {
            match letter {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                return Some(at + open..at + open + offset + 1);
            }
        }
        None
    }
}

/// The line, from 1, that a byte position is on.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    code: Vec<u8>,
    strings: Vec<(usize, String)>,
}

impl Scanner<'_> {
    fn byte(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn run(&mut self) {
        while self.at < self.text.len() {
            match (self.byte(0), self.byte(1)) {
                (b'/', b'/') => self.blank_until(|scanner| scanner.byte(0) == b'\n'),
                (b'/', b'*') => self.comment(),
                (b'"', _) => self.string(0),
                (b'r', b'"' | b'#') if !self.after_word() => self.raw_string(),
                (b'\'', _) => self.quote(),
                _ => self.keep(1),
            }
        }
    }

    /// Whether the byte before belongs to a longer word, as the `r` of `for` does; the `b` of `br"…"` does not.
    fn after_word(&self) -> bool {
        let before = |back: usize| self.at.checked_sub(back).and_then(|at| self.text.get(at));
        let word = |byte: Option<&u8>| {
            byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        };
        word(before(1)) && (before(1) != Some(&b'b') || word(before(2)))
    }

    fn keep(&mut self, bytes: usize) {
        let end = (self.at + bytes).min(self.text.len());
        self.code.extend(self.text.get(self.at..end).unwrap_or(&[]));
        self.at = end;
    }

    fn blank(&mut self) {
        self.code
            .push(if self.byte(0) == b'\n' { b'\n' } else { b' ' });
        self.at += 1;
    }

    fn blank_until(&mut self, done: impl Fn(&Self) -> bool) {
        while self.at < self.text.len() && !done(self) {
            self.blank();
        }
    }

    fn comment(&mut self) {
        let mut depth = 0;
        loop {
            match (self.byte(0), self.byte(1)) {
                (b'/', b'*') => depth += 1,
                (b'*', b'/') => depth -= 1,
                _ => {
                    if self.at >= self.text.len() {
                        return;
                    }
                    self.blank();
                    continue;
                }
            }
            self.blank();
            self.blank();
            if depth == 0 {
                return;
            }
        }
    }

    fn raw_string(&mut self) {
        let hashes = (1..).take_while(|ahead| self.byte(*ahead) == b'#').count();
        if self.byte(1 + hashes) == b'"' {
            self.keep(1 + hashes);
            self.string(hashes);
        } else {
            self.keep(1);
        }
    }

    /// A string that opens here and closes with a quote and `hashes` hashes; escapes count when there are none
    /// and the literal is not raw.
    fn string(&mut self, hashes: usize) {
        let raw = self
            .code
            .last()
            .is_some_and(|byte| *byte == b'#' || *byte == b'r');
        self.keep(1);
        let start = self.at;
        while self.at < self.text.len() {
            if self.byte(0) == b'\\' && !raw {
                self.blank();
            } else if self.byte(0) == b'"' && (1..=hashes).all(|ahead| self.byte(ahead) == b'#') {
                break;
            }
            self.blank();
        }
        let inside = self
            .text
            .get(start..self.at.min(self.text.len()))
            .unwrap_or(&[]);
        self.strings
            .push((start, String::from_utf8_lossy(inside).into_owned()));
        self.keep(1 + hashes);
    }

    /// A character literal is blanked; a lifetime is code.
    fn quote(&mut self) {
        if self.byte(1) == b'\\' {
            self.keep(1);
            self.blank();
            self.blank();
            self.blank_until(|scanner| scanner.byte(0) == b'\'');
            self.keep(1);
        } else if let Some(end) = (2..=5).find(|ahead| self.byte(*ahead) == b'\'') {
            let inside = self.text.get(self.at + 1..self.at + end).unwrap_or(&[]);
            if std::str::from_utf8(inside).is_ok_and(|text| text.chars().count() == 1) {
                self.keep(1);
                (1..end).for_each(|_| self.blank());
            }
            self.keep(1);
        } else {
            self.keep(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_characters_are_not_code() {
        let text = "a /* x /* y */ z */ b // c\nd \"e\\\"f\" r#\"g\"h\"# '\\'' 'i' b'{' 'j: k";
        let source = Source::scan(text);
        assert_eq!(source.code.len(), text.len());
        for gone in ["x", "y", "z", "c\n", "e", "f", "g", "h", "i", "{"] {
            assert!(!source.code.contains(gone), "{gone:?} in {:?}", source.code);
        }
        for kept in ["a", "b", "d", "'j: k"] {
            assert!(source.code.contains(kept), "{kept:?} in {:?}", source.code);
        }
        let strings: Vec<&str> = source
            .strings
            .iter()
            .map(|(_, text)| text.as_str())
            .collect();
        assert_eq!(strings, ["e\\\"f", "g\"h"]);
    }

    #[test]
    fn strings_of_tests_are_told_apart() {
        let source = Source::scan(
            "const A: &str = \"one\";\n#[cfg(test)]\nmod tests { const B: &str = \"two\"; }\n",
        );
        assert_eq!(source.product_strings().collect::<Vec<_>>(), ["one"]);
    }

    #[test]
    fn declared_modules_are_found_with_their_paths() {
        let source = Source::scan(
            "mod a;\npub(crate) mod b;\n#[path = \"odd/c.rs\"]\nmod c;\nmod d { }\n// mod e;\n",
        );
        let names: Vec<_> = source.modules();
        let expected = [("a", None), ("b", None), ("c", Some("odd/c.rs"))];
        assert_eq!(
            names,
            expected.map(|(name, path)| (name.to_owned(), path.map(str::to_owned)))
        );
    }

    #[test]
    fn test_functions_are_found_with_their_bodies() {
        let source = Source::scan(
            "#[test]\nfn one() { assert!(true); }\n#[tokio::test(start_paused = true)]\nasync fn two() {}\n",
        );
        let found: Vec<_> = source
            .tests()
            .into_iter()
            .map(|(name, line, _)| (name, line))
            .collect();
        assert_eq!(found, [("one".to_owned(), 2), ("two".to_owned(), 4)]);
        assert!(source.tests()[0].2.contains("assert"));
    }
}
