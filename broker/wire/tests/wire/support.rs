//! Reading the vectors, and reading a frame all the way down.

use std::fs;
use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use felix_wire::extension::{Answer, Extension, Extensions, Request};
use felix_wire::frame::{Accepts, split};
use felix_wire::limits::PAYLOAD_BYTES_MAX;
use felix_wire::{Ack, EventBatch, Frame, Incoming, Layout, Message, Publish, PublishMalformed};

pub(crate) const EVERYTHING: Accepts = Accepts {
    payload_bytes_max: PAYLOAD_BYTES_MAX,
    extensions: true,
};

pub(crate) fn all_extensions() -> Extensions {
    Extension::ALL.into_iter().collect()
}

pub(crate) fn vector_path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/vectors/wire")
        .join(name)
}

/// The lines of a vector file, cut at ` | ` into as many columns as it has.
pub(crate) fn rows<const COLUMNS: usize>(name: &str) -> Vec<[String; COLUMNS]> {
    let text = fs::read_to_string(vector_path(name)).unwrap();
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let mut columns: Vec<_> = line
                .splitn(COLUMNS, " |")
                .map(|cell| cell.strip_prefix(' ').unwrap_or(cell).to_owned())
                .collect();
            columns.resize(COLUMNS, String::new());
            columns.try_into().unwrap()
        })
        .collect()
}

pub(crate) fn hex(text: &str) -> Bytes {
    let digits: Vec<u8> = text
        .chars()
        .filter(|digit| !digit.is_whitespace())
        .map(|digit| u8::try_from(digit.to_digit(16).unwrap()).unwrap())
        .collect();
    assert!(digits.len().is_multiple_of(2), "half a byte in {text}");
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Every frame there is a vector for, whatever it holds.
pub(crate) fn every_frame() -> Vec<(String, Bytes)> {
    let binary = rows::<2>("frames.txt")
        .into_iter()
        .chain(rows::<2>("extension.txt"))
        .chain(rows::<2>("requests.txt"))
        .chain(rows::<2>("raw.txt"));
    let mut frames: Vec<_> = binary.map(|[name, frame]| (name, hex(&frame))).collect();
    for [name, _, text] in rows::<3>("messages.txt") {
        frames.push((name, Message::decode(text.as_bytes()).unwrap().encode()));
    }
    frames
}

/// A frame read all the way down.
#[derive(Debug, PartialEq)]
pub(crate) enum Content {
    Message(Message),
    Publish(Publish),
    Ack(Ack),
    Events(EventBatch),
    Request(Request),
    Answer(Answer),
}

#[derive(Debug)]
pub(crate) enum Unread {
    /// More bytes have to come.
    Incomplete,
    /// Not a frame.
    NoFrame,
    /// A malformed publish, with what its error says of the request.
    Publish(PublishMalformed),
    /// A frame whose payload is malformed in any other way.
    Malformed,
}

pub(crate) fn read(bytes: &[u8]) -> Result<Content, Unread> {
    let mut buffer = BytesMut::from(bytes);
    match split(&mut buffer, EVERYTHING) {
        Ok(Some(Incoming::Published(frame))) => read_published(frame),
        Ok(Some(Incoming::Extension(frame))) => {
            let request = frame
                .clone()
                .request(all_extensions())
                .map(Content::Request);
            request.or_else(|_| {
                frame
                    .answer(all_extensions())
                    .map(Content::Answer)
                    .map_err(|_| Unread::Malformed)
            })
        }
        Ok(None) => Err(Unread::Incomplete),
        Err(_) => Err(Unread::NoFrame),
    }
}

fn read_published(frame: Frame) -> Result<Content, Unread> {
    let Frame { flags, payload } = frame;
    match flags.layout().unwrap() {
        Layout::Json => Message::decode(&payload)
            .map(Content::Message)
            .map_err(|_| Unread::Malformed),
        Layout::Publish => Publish::decode(flags, payload)
            .map(Content::Publish)
            .map_err(Unread::Publish),
        Layout::Ack => Ack::decode(flags, payload)
            .map(Content::Ack)
            .map_err(|_| Unread::Malformed),
        Layout::Events => {
            let batch = EventBatch::decode(flags, payload).map_err(|_| Unread::Malformed)?;
            assert_eq!(batch.events().count(), batch.count as usize);
            Ok(Content::Events(batch))
        }
    }
}
