//! What `pub` publishes: an argument, a file, or standard input in one of three shapes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Read as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::mpsc;

use crate::cli::Pub;
use crate::exit::Failure;

/// Lines read ahead of what was published. Standard input cannot be cancelled, so what was read
/// and not published is lost with the process; this bounds it.
const LINES_AHEAD: usize = 256;
/// Largest input of one record. No stream takes more.
const RECORD_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// One record to publish.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Input {
    pub(super) key: Option<Bytes>,
    pub(super) value: Bytes,
    pub(super) headers: Vec<(Bytes, Bytes)>,
}

/// Where the records come from, one after the other.
pub(super) enum Inputs {
    /// The same record several times.
    Repeated { input: Input, left: u64 },
    /// Lines of standard input, read by a thread of its own.
    Lines(mpsc::Receiver<Result<Input, Failure>>),
}

impl Inputs {
    /// Opens what the arguments name. Every record gets the key and the headers of the command
    /// line unless it brings its own.
    pub(super) fn open(args: &Pub) -> Result<Self, Failure> {
        let template = Input {
            key: args.key.clone().map(Bytes::from),
            value: Bytes::new(),
            headers: args
                .headers
                .iter()
                .map(|text| header(text))
                .collect::<Result<_, _>>()?,
        };
        let whole = match (&args.data, &args.source.file) {
            (Some(data), _) => Some(Bytes::from(data.clone())),
            (None, Some(file)) => Some(read_file(file)?),
            (None, None) if args.source.whole => Some(read_whole(&mut io::stdin().lock())?),
            (None, None) => None,
        };
        if let Some(value) = whole {
            return Ok(Self::Repeated {
                input: Input { value, ..template },
                left: args.count,
            });
        }
        if args.count != 1 {
            return Err(Failure::usage(
                "--count repeats data, a file or --whole, not lines",
            ));
        }
        if io::stdin().is_terminal() {
            eprintln!("publishing each line you type; Ctrl-D ends");
        }
        let (sender, lines) = mpsc::channel(LINES_AHEAD);
        let ndjson = args.source.ndjson;
        std::thread::spawn(move || {
            let mut from = io::stdin().lock();
            while let Some(input) = next_line(&mut from, ndjson, &template) {
                let last = input.is_err();
                // Nobody listens any more: the command is over.
                if sender.blocking_send(input).is_err() || last {
                    return;
                }
            }
        });
        Ok(Self::Lines(lines))
    }

    /// The next record, or nothing when there are no more. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Result<Input, Failure>> {
        match self {
            Self::Repeated { left: 0, .. } => None,
            Self::Repeated { input, left } => {
                *left -= 1;
                Some(Ok(input.clone()))
            }
            Self::Lines(lines) => lines.recv().await,
        }
    }
}

fn next_line(
    from: &mut impl BufRead,
    ndjson: bool,
    template: &Input,
) -> Option<Result<Input, Failure>> {
    loop {
        let mut line = Vec::new();
        match from
            .by_ref()
            .take(RECORD_BYTES_MAX + 1)
            .read_until(b'\n', &mut line)
        {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) => return Some(Err(Failure::failed(format!("standard input: {error}")))),
        }
        if line.len() as u64 > RECORD_BYTES_MAX {
            return Some(Err(Failure::usage(
                "a line is longer than 16 MiB, the largest record",
            )));
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if !ndjson {
            return Some(Ok(Input {
                value: line.into(),
                ..template.clone()
            }));
        }
        if line.iter().any(|byte| !byte.is_ascii_whitespace()) {
            return Some(from_json(&line, template));
        }
    }
}

/// A record in the JSON that `sub` and `read` print. Fields that only describe where a record was
/// are ignored, so that the output of one command is the input of the other.
#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    key_encoding: Option<String>,
    value: Option<String>,
    #[serde(default)]
    value_encoding: Option<String>,
    #[serde(default)]
    headers: Vec<HeaderLine>,
}

#[derive(Deserialize)]
struct HeaderLine {
    name: String,
    value: Option<String>,
    #[serde(default)]
    value_encoding: Option<String>,
}

fn from_json(line: &[u8], template: &Input) -> Result<Input, Failure> {
    let line: Line = serde_json::from_slice(line)
        .map_err(|error| Failure::usage(format!("a line is no record in JSON: {error}")))?;
    let value = line
        .value
        .ok_or_else(|| Failure::usage("a tombstone (value null) cannot be published natively"))?;
    let mut headers = template.headers.clone();
    for header in line.headers {
        let value = header.value.unwrap_or_default();
        headers.push((
            header.name.into(),
            decode(value, header.value_encoding.as_deref())?,
        ));
    }
    let key = line
        .key
        .map(|key| decode(key, line.key_encoding.as_deref()))
        .transpose()?;
    Ok(Input {
        key: key.or_else(|| template.key.clone()),
        value: decode(value, line.value_encoding.as_deref())?,
        headers,
    })
}

fn decode(text: String, encoding: Option<&str>) -> Result<Bytes, Failure> {
    match encoding {
        None | Some("utf-8") => Ok(text.into()),
        Some("base64") => STANDARD
            .decode(text)
            .map(Bytes::from)
            .map_err(|error| Failure::usage(format!("a value is no base64: {error}"))),
        Some(other) => Err(Failure::usage(format!("there is no encoding {other:?}"))),
    }
}

fn header(text: &str) -> Result<(Bytes, Bytes), Failure> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            Ok((name.to_owned().into(), value.to_owned().into()))
        }
        _ => Err(Failure::usage(format!(
            "{text:?} is no header; write it as name=value"
        ))),
    }
}

fn read_file(file: &Path) -> Result<Bytes, Failure> {
    let opened =
        File::open(file).map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
    read_whole(&mut BufReader::new(opened))
}

fn read_whole(from: &mut impl BufRead) -> Result<Bytes, Failure> {
    let mut bytes = Vec::new();
    from.take(RECORD_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > RECORD_BYTES_MAX {
        return Err(Failure::usage(
            "the input is larger than 16 MiB, the largest record",
        ));
    }
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;
    use crate::output::Seen;

    fn lines(text: &[u8], ndjson: bool) -> Vec<Result<Input, Failure>> {
        let mut from = text;
        let template = Input {
            key: Some(Bytes::from_static(b"k")),
            ..Input::default()
        };
        std::iter::from_fn(|| next_line(&mut from, ndjson, &template)).collect()
    }

    #[test]
    fn a_line_is_a_record_with_or_without_a_break_at_the_end() {
        let read = lines(b"one\n\ntwo\xff", false);
        let values: Vec<_> = read
            .into_iter()
            .map(|it| it.expect("a record").value)
            .collect();
        assert_eq!(values, [&b"one"[..], b"", b"two\xff"]);
    }

    #[test]
    fn what_read_prints_can_be_published_again() {
        let seen = Seen {
            stream: "orders".into(),
            offset: Some(1),
            key: Some(Bytes::from_static(&[0xff])),
            value: Some(Bytes::from_static(b"v")),
            headers: vec![(Bytes::from_static(b"a"), Some(Bytes::from_static(&[0xfe])))],
            ..Seen::default()
        };
        let text = format!("{}\n\n", seen.json());
        let read = lines(text.as_bytes(), true);
        assert_eq!(
            read,
            [Ok(Input {
                key: Some(Bytes::from_static(&[0xff])),
                value: Bytes::from_static(b"v"),
                headers: vec![(Bytes::from_static(b"a"), Bytes::from_static(&[0xfe]))],
            })]
        );
    }

    #[test]
    fn the_key_of_the_command_line_stands_in_for_a_missing_one() {
        let read = lines(b"{\"value\":\"v\"}\n", true);
        assert_eq!(
            read[0].as_ref().expect("a record").key,
            Some(Bytes::from_static(b"k"))
        );
    }

    #[test]
    fn a_line_that_is_no_record_is_refused() {
        for line in [
            &b"{}"[..],
            b"no json",
            b"{\"value\":null}",
            b"{\"value\":\"!\",\"value_encoding\":\"base64\"}",
            b"{\"value\":\"v\",\"value_encoding\":\"rot13\"}",
        ] {
            let read = lines(line, true);
            assert_eq!(read[0].as_ref().expect_err("refused").exit, Exit::Usage);
        }
    }

    #[test]
    fn a_header_needs_a_name_and_an_equals_sign() {
        assert_eq!(header("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(header("a").is_err() && header("=b").is_err());
    }
}
