//! Payload bytes made safe for a terminal. A record may hold anything: an escape sequence that
//! retitles the window, a bell, half a character, or an override that shows text backwards.

use std::fmt::Write as _;

/// Bytes as text in which nothing can act on a terminal. Line breaks and tabs stay; every other
/// control character, bytes that are no UTF-8 and invisible direction marks appear as `\xNN` or
/// `\u{N}`. A backslash stays one backslash: this is for reading, not for parsing back.
#[must_use]
pub fn escape(bytes: &[u8]) -> String {
    escape_where(bytes, |c| c == '\n' || c == '\t')
}

/// Like [`escape`], with line breaks and tabs escaped too, for text that must stay on its line.
#[must_use]
pub fn escape_line(bytes: &[u8]) -> String {
    escape_where(bytes, |_| false)
}

fn escape_where(bytes: &[u8], keeps: impl Fn(char) -> bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if keeps(c) || !is_dangerous(c) {
                text.push(c);
                continue;
            }
            match c {
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                c if c.is_ascii() => write_hex(&mut text, c as u8),
                c => text.extend(c.escape_unicode()),
            }
        }
        for byte in chunk.invalid() {
            write_hex(&mut text, *byte);
        }
    }
    text
}

fn write_hex(text: &mut String, byte: u8) {
    // Writing to a `String` cannot fail.
    let _ = write!(text, "\\x{byte:02x}");
}

/// Control characters of both sets, and the marks that reorder or hide what follows them.
fn is_dangerous(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{061c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_escape_sequence_loses_its_power() {
        assert_eq!(escape(b"\x1b]0;owned\x07"), "\\x1b]0;owned\\x07");
        assert_eq!(escape("\u{9b}31m".as_bytes()), "\\u{9b}31m");
        assert_eq!(escape("abc\u{202e}fed".as_bytes()), "abc\\u{202e}fed");
        assert_eq!(escape(b"a\rb"), "a\\rb");
    }

    #[test]
    fn text_in_any_language_is_left_alone() {
        assert_eq!(escape("Grüße, 世界 🦀".as_bytes()), "Grüße, 世界 🦀");
        assert_eq!(escape(b"two\nlines\tand a tab"), "two\nlines\tand a tab");
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_in_hex() {
        assert_eq!(escape(&[0xff, b'a', 0xc3, 0x28]), "\\xffa\\xc3(");
    }

    #[test]
    fn a_line_stays_one_line() {
        assert_eq!(escape_line(b"a\nb\tc\r"), "a\\nb\\tc\\r");
    }

    proptest! {
        #[test]
        fn no_bytes_at_all_get_a_control_character_through(bytes: Vec<u8>) {
            let line = escape_line(&bytes);
            prop_assert!(line.chars().all(|c| !is_dangerous(c)));
        }
    }
}
