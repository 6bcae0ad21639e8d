//! The vectors of `tests/vectors/batch`, and ways to spoil them.
#![allow(dead_code, reason = "each test binary uses its part of it")]

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use felix_model::batch::HEADER_BYTES;
use serde::Deserialize;

/// One file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Vector {
    #[serde(skip)]
    pub(crate) name: String,
    pub(crate) made_by: String,
    batch: Vec<String>,
    pub(crate) compression: String,
    pub(crate) records: Vec<Expected>,
    /// Offset deltas, where they are not 0, 1, 2, …
    pub(crate) deltas: Option<Vec<u32>>,
    #[serde(default)]
    pub(crate) base: u64,
    pub(crate) next: Option<u64>,
    #[serde(default)]
    pub(crate) generation: Option<u32>,
    pub(crate) producer: Option<u64>,
    #[serde(default)]
    pub(crate) control: bool,
    /// The payload list that a native batch is made from, as hex.
    pub(crate) payloads: Option<String>,
    pub(crate) digest: Option<String>,
    pub(crate) publisher: Option<String>,
    pub(crate) sequence: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Expected {
    pub(crate) time: i64,
    pub(crate) key: Option<Text>,
    pub(crate) value: Option<Text>,
    pub(crate) headers: Vec<(String, Option<String>)>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Text {
    Plain(String),
    Repeated { repeat: String, times: usize },
}

impl Text {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Plain(text) => text.clone().into_bytes(),
            Self::Repeated { repeat, times } => repeat.repeat(*times).into_bytes(),
        }
    }
}

impl Vector {
    pub(crate) fn bytes(&self) -> Bytes {
        Bytes::from(hex(&self.batch.concat()))
    }

    pub(crate) fn delta(&self, index: usize) -> u32 {
        self.deltas
            .as_ref()
            .map_or(index as u32, |deltas| deltas[index])
    }
}

fn folder(below_tests: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests")
        .join(below_tests)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

pub(crate) fn vectors() -> Vec<Vector> {
    let paths = files(&folder("vectors/batch"));
    let found: Vec<_> = paths
        .iter()
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .map(|path| {
            let text = fs::read_to_string(path).unwrap();
            let vector: Vector = serde_json::from_str(&text)
                .unwrap_or_else(|why| panic!("{}: {why}", path.display()));
            Vector {
                name: path.file_stem().unwrap().to_string_lossy().into_owned(),
                ..vector
            }
        })
        .collect();
    assert!(
        found.len() >= 25,
        "vectors are missing: {} found",
        found.len()
    );
    found
}

/// Names and contents of a fuzz target's corpus.
pub(crate) fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    files(&folder("fixtures/fuzz").join(target))
        .into_iter()
        .map(|path| {
            (
                path.file_name().unwrap().to_string_lossy().into_owned(),
                fs::read(&path).unwrap(),
            )
        })
        .collect()
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks_exact(2);
    digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Gives spoilt bytes the length and checksum that make them pass for a batch, so that what comes after
/// those two checks is reached.
pub(crate) fn reseal(batch: &mut [u8]) {
    assert!(batch.len() >= HEADER_BYTES);
    let length = batch.len() as u32 - 12;
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}
