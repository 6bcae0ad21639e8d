//! The `-f` format: `%o %k %v\n`, as tools of this kind have it.

use crate::output::{Seen, escape, escape_line};
use crate::parse::show_time;

/// A format text taken apart once, so that printing a record is a walk over its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Vec<u8>),
    Stream,
    Shard,
    Offset,
    Time,
    TimeMs,
    Key,
    KeyLength,
    Value,
    ValueLength,
    Headers,
    HeaderCount,
    Publisher,
}

/// Why a format text was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFormat {
    /// A letter after `%` that means nothing.
    #[error(
        "%{letter} means nothing in a format; there are %t stream, %p shard, %o offset, %T time, \
         %d time in ms, %k key, %K its length, %v value, %V its length, %h headers, %H their \
         number, %u publisher, %%"
    )]
    UnknownLetter {
        /// The letter.
        letter: char,
    },
    /// A character after `\` that means nothing.
    #[error("\\{letter} means nothing in a format; there are \\n \\t \\r \\0 \\\\ and \\xNN")]
    UnknownEscape {
        /// The character.
        letter: char,
    },
    /// The text ends in the middle of `%` or `\`.
    #[error("the format ends in the middle of {0:?}")]
    Unfinished(char),
}

impl std::str::FromStr for Format {
    type Err = BadFormat;

    fn from_str(text: &str) -> Result<Self, BadFormat> {
        let mut parts = Vec::new();
        let mut plain = Vec::new();
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '%' => {
                    let letter = letters.next().ok_or(BadFormat::Unfinished('%'))?;
                    if letter == '%' {
                        plain.push(b'%');
                        continue;
                    }
                    if !plain.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut plain)));
                    }
                    parts.push(part(letter)?);
                }
                '\\' => plain.push(escaped(&mut letters)?),
                letter => {
                    let mut buffer = [0; 4];
                    plain.extend_from_slice(letter.encode_utf8(&mut buffer).as_bytes());
                }
            }
        }
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Self { parts })
    }
}

fn part(letter: char) -> Result<Part, BadFormat> {
    Ok(match letter {
        't' => Part::Stream,
        'p' => Part::Shard,
        'o' => Part::Offset,
        'T' => Part::Time,
        'd' => Part::TimeMs,
        'k' => Part::Key,
        'K' => Part::KeyLength,
        'v' => Part::Value,
        'V' => Part::ValueLength,
        'h' => Part::Headers,
        'H' => Part::HeaderCount,
        'u' => Part::Publisher,
        letter => return Err(BadFormat::UnknownLetter { letter }),
    })
}

fn escaped(letters: &mut std::str::Chars<'_>) -> Result<u8, BadFormat> {
    let letter = letters.next().ok_or(BadFormat::Unfinished('\\'))?;
    Ok(match letter {
        'n' => b'\n',
        't' => b'\t',
        'r' => b'\r',
        '0' => 0,
        '\\' => b'\\',
        'x' => {
            let mut digit = || {
                letters
                    .next()
                    .and_then(|c| c.to_digit(16))
                    .ok_or(BadFormat::Unfinished('\\'))
            };
            let (high, low) = (digit()?, digit()?);
            u8::try_from(high * 16 + low).map_err(|_| BadFormat::Unfinished('\\'))?
        }
        letter => return Err(BadFormat::UnknownEscape { letter }),
    })
}

impl Format {
    /// What a pipe gets: the value and a line break.
    #[must_use]
    pub fn raw() -> Self {
        Self {
            parts: vec![Part::Value, Part::Text(b"\n".to_vec())],
        }
    }

    /// Appends one record to `line`. On a terminal keys, values and headers are escaped; into a
    /// pipe they go as they are.
    pub fn write(&self, record: &Seen, terminal: bool, line: &mut Vec<u8>) {
        for part in &self.parts {
            match part {
                Part::Text(text) => line.extend_from_slice(text),
                Part::Stream => line.extend_from_slice(record.stream.as_bytes()),
                Part::Shard => push_number(line, Some(i128::from(record.shard))),
                Part::Offset => push_number(line, record.offset.map(i128::from)),
                Part::Time => {
                    let time = record.timestamp_ms.map_or_else(|| "-".into(), show_time);
                    line.extend_from_slice(time.as_bytes());
                }
                Part::TimeMs => push_number(line, record.timestamp_ms.map(i128::from)),
                Part::Key => push_bytes(line, record.key.as_deref(), terminal),
                Part::KeyLength => push_length(line, record.key.as_deref()),
                Part::Value if terminal => {
                    line.extend_from_slice(
                        escape(record.value.as_deref().unwrap_or_default()).as_bytes(),
                    );
                }
                Part::Value => push_bytes(line, record.value.as_deref(), false),
                Part::ValueLength => push_length(line, record.value.as_deref()),
                Part::Headers => push_headers(line, record, terminal),
                Part::HeaderCount => {
                    line.extend_from_slice(record.headers.len().to_string().as_bytes());
                }
                Part::Publisher => {
                    push_bytes(
                        line,
                        record.publisher.as_ref().map(String::as_bytes),
                        terminal,
                    );
                }
            }
        }
    }
}

/// The line a person sees when no format was asked for: offset, key and headers where there are
/// any, and the value.
pub fn write_for_people(record: &Seen, line: &mut Vec<u8>) {
    push_number(line, record.offset.map(i128::from));
    if let Some(key) = &record.key {
        line.extend_from_slice(b"  key=");
        push_bytes(line, Some(key), true);
    }
    if !record.headers.is_empty() {
        line.extend_from_slice(b"  ");
        push_headers(line, record, true);
    }
    line.extend_from_slice(b"  ");
    match &record.value {
        Some(value) => line.extend_from_slice(escape(value).as_bytes()),
        None => line.extend_from_slice(b"(tombstone)"),
    }
    line.push(b'\n');
}

fn push_number(line: &mut Vec<u8>, number: Option<i128>) {
    match number {
        Some(number) => line.extend_from_slice(number.to_string().as_bytes()),
        None => line.push(b'-'),
    }
}

fn push_bytes(line: &mut Vec<u8>, bytes: Option<&[u8]>, terminal: bool) {
    let bytes = bytes.unwrap_or_default();
    if terminal {
        line.extend_from_slice(escape_line(bytes).as_bytes());
    } else {
        line.extend_from_slice(bytes);
    }
}

fn push_length(line: &mut Vec<u8>, bytes: Option<&[u8]>) {
    // Kafka's own tools show the length of what is absent as -1, and scripts know it.
    push_number(line, Some(bytes.map_or(-1, |bytes| bytes.len() as i128)));
}

fn push_headers(line: &mut Vec<u8>, record: &Seen, terminal: bool) {
    for (index, (name, value)) in record.headers.iter().enumerate() {
        if index > 0 {
            line.push(b',');
        }
        push_bytes(line, Some(name), terminal);
        if let Some(value) = value {
            line.push(b'=');
            push_bytes(line, Some(value), terminal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn record() -> Seen {
        Seen {
            stream: "orders".into(),
            shard: 1,
            offset: Some(7),
            timestamp_ms: Some(0),
            key: Some(Bytes::from_static(b"k\x1b")),
            value: Some(Bytes::from_static(b"v\xff")),
            headers: vec![
                (Bytes::from_static(b"a"), Some(Bytes::from_static(b"1"))),
                (Bytes::from_static(b"b"), None),
            ],
            skipped_before: 0,
            publisher: None,
        }
    }

    fn show(format: &str, terminal: bool) -> Vec<u8> {
        let mut line = Vec::new();
        format
            .parse::<Format>()
            .expect("a good format")
            .write(&record(), terminal, &mut line);
        line
    }

    #[test]
    fn every_letter_prints_its_field() {
        assert_eq!(
            show("%t %p %o %d %T|", false),
            b"orders 1 7 0 1970-01-01T00:00:00.000Z|"
        );
        assert_eq!(show("%K %V %H %h %u\\t\\x41%%", false), b"2 2 2 a=1,b \tA%");
    }

    #[test]
    fn bytes_are_raw_into_a_pipe_and_escaped_on_a_terminal() {
        assert_eq!(show("%k=%v\\n", false), b"k\x1b=v\xff\n");
        assert_eq!(show("%k=%v\\n", true), b"k\\x1b=v\\xff\n");
    }

    #[test]
    fn a_bad_format_says_what_is_wrong() {
        assert_eq!(
            "%q".parse::<Format>(),
            Err(BadFormat::UnknownLetter { letter: 'q' })
        );
        assert_eq!(
            "\\q".parse::<Format>(),
            Err(BadFormat::UnknownEscape { letter: 'q' })
        );
        assert_eq!("100%".parse::<Format>(), Err(BadFormat::Unfinished('%')));
        assert_eq!("\\x4".parse::<Format>(), Err(BadFormat::Unfinished('\\')));
    }

    #[test]
    fn people_see_offset_key_headers_and_value() {
        let mut line = Vec::new();
        write_for_people(&record(), &mut line);
        assert_eq!(line, b"7  key=k\\x1b  a=1,b  v\\xff\n");
        line.clear();
        write_for_people(&Seen::default(), &mut line);
        assert_eq!(line, b"-  (tombstone)\n");
    }
}
