//! Everything that happened in a run, as one number, and as text for whoever replays it.

use std::fmt::{self, Write};

/// A running hash over the lines of a run (FNV-1a, 64 bits): two runs with one hash did the same.
#[derive(Debug)]
pub(crate) struct Transcript {
    hash: u64,
    lines: u64,
    is_printed: bool,
}

const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

impl Transcript {
    /// Nothing happened yet. Lines are also printed if `is_printed`.
    pub(crate) fn new(is_printed: bool) -> Self {
        Self {
            hash: OFFSET_BASIS,
            lines: 0,
            is_printed,
        }
    }

    /// Takes note of a line.
    pub(crate) fn say(&mut self, line: fmt::Arguments<'_>) {
        self.lines += 1;
        if self.is_printed {
            println!("{line}");
        }
        // Hashing cannot fail; a `Display` that does is left out of the hash where it stopped, every time.
        let _ = self.write_fmt(line);
        let _ = self.write_str("\n");
    }

    /// Takes note of bytes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(PRIME);
        }
    }

    /// The hash of all that was noted.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// How many lines there are.
    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }
}

impl Write for Transcript {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes(text.as_bytes());
        Ok(())
    }
}
