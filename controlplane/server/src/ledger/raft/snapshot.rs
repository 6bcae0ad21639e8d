//! Records on their way to a member that lacks more than the raft log still holds.
//!
//! The member says which revision it has; the leader sends the batches behind it, as they are, in chunks. They are kept in
//! a file of their own, each chunk checked by its sum and its place, until the last has come; then the whole is checked
//! again and added to the records.

use std::io::IoSlice;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use felix_journal::{Disk, DiskError, DiskFile, durable};
use felix_model::BatchHeader;
use felix_model::batch;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::machine::staging_file;
use super::place::{Place, PlaceRefused};
use super::records::{Held, RecordsFailed, stamp_of};

/// The file of a snapshot that is being received.
pub(crate) const INCOMING: &str = "incoming";

/// Bytes of records in one chunk, or one batch.
pub(crate) const CHUNK_BYTES: usize = 1024 * 1024;

/// Bytes read of the staged file at once while it is added to the records.
const TAKE_BYTES: usize = 4 * 1024 * 1024;

/// What was received, and how it can be known again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Staged {
    /// Revision before the first record in it.
    pub(crate) after: u64,
    /// Bytes of it.
    pub(crate) bytes: u64,
    /// SHA-256 of them, in hex.
    pub(crate) sum: String,
}

/// Why a snapshot is not received any further.
#[derive(Debug, thiserror::Error)]
pub enum StageFailed {
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A file beside it failed.
    #[error(transparent)]
    Place(#[from] PlaceRefused),
    /// The records failed.
    #[error(transparent)]
    Records(#[from] RecordsFailed),
    /// Another transfer has begun, or none has.
    #[error("no transfer of snapshot {id} is under way here")]
    Unknown {
        /// The snapshot's id.
        id: String,
    },
    /// A chunk does not follow what was received.
    #[error("a chunk behind revision {found}, but {expected} is next")]
    Order {
        /// What is next.
        expected: u64,
        /// What came.
        found: u64,
    },
    /// Bytes are not what was sent.
    #[error("{what} is damaged: {why}")]
    Damaged {
        /// A chunk, or the whole.
        what: &'static str,
        /// How that is known.
        why: String,
    },
}

/// A transfer under way.
#[derive(Debug)]
pub(crate) struct Incoming {
    id: String,
    file: Arc<dyn DiskFile>,
    after: u64,
    next: u64,
    bytes: u64,
    sum: Sha256,
}

impl Incoming {
    /// Begins a transfer of what lies behind a revision. What an earlier one left goes.
    pub(crate) fn begin(place: &Place, id: &str, after: u64) -> Result<Self, StageFailed> {
        clear(place)?;
        let path = staging_file(place);
        let file = durable::create(&*place.disk, &path)?;
        Ok(Self {
            id: id.to_owned(),
            file,
            after,
            next: after,
            bytes: 0,
            sum: Sha256::new(),
        })
    }

    /// Takes a chunk: whole batches, the first of which begins at the next revision.
    pub(crate) fn take(
        &mut self,
        id: &str,
        after: u64,
        sum: u32,
        chunk: &Bytes,
    ) -> Result<u64, StageFailed> {
        if id != self.id {
            return Err(StageFailed::Unknown { id: id.to_owned() });
        }
        if after != self.next {
            return Err(StageFailed::Order {
                expected: self.next,
                found: after,
            });
        }
        let found = batch::checksum(chunk);
        if found != sum {
            return Err(StageFailed::Damaged {
                what: "a chunk",
                why: format!("its sum is {found:08x}, not {sum:08x}"),
            });
        }
        let mut next = self.next;
        for batch in split(chunk.clone())? {
            next = check(&batch, next)?;
        }
        let path = std::path::Path::new(INCOMING);
        self.file
            .write_at(&[IoSlice::new(chunk)], self.bytes)
            .map_err(|error| DiskError::new("write", path, &error))?;
        self.sum.update(chunk);
        self.bytes += chunk.len() as u64;
        self.next = next;
        Ok(next)
    }

    /// Ends the transfer: everything is here, durable, and has the sum that was announced.
    pub(crate) fn end(self, id: &str, revision: u64, sum: &str) -> Result<Staged, StageFailed> {
        if id != self.id {
            return Err(StageFailed::Unknown { id: id.to_owned() });
        }
        if revision != self.next {
            return Err(StageFailed::Order {
                expected: self.next,
                found: revision,
            });
        }
        let found = hex(&self.sum.finalize());
        if found != sum {
            return Err(StageFailed::Damaged {
                what: "a snapshot",
                why: format!("its sum is {found}, not {sum}"),
            });
        }
        let path = std::path::Path::new(INCOMING);
        self.file
            .sync_data()
            .map_err(|error| DiskError::new("sync", path, &error))?;
        Ok(Staged {
            after: self.after,
            bytes: self.bytes,
            sum: found,
        })
    }
}

/// Removes what was received.
pub(crate) fn clear(place: &Place) -> Result<(), PlaceRefused> {
    place.remove(INCOMING)
}

/// Adds what was received to the records; what is there already is passed over.
pub(crate) fn take(place: &Place, staged: &Staged, held: &mut Held) -> Result<(), StageFailed> {
    let file = open_checked(place, staged)?;
    let mut have = held.reach().revision;
    let (mut position, mut rest) = (0, BytesMut::new());
    while position < staged.bytes {
        let part = read(&*file, position, staged.bytes)?;
        position += part.len() as u64;
        rest.extend_from_slice(&part);
        let (whole, cut) = split_whole(rest.split().freeze())?;
        rest.extend_from_slice(&cut);
        let mut missing = Vec::new();
        for batch in whole {
            let header = header(&batch)?;
            if header.base().0 >= have {
                have = check(&batch, have)?;
                missing.push(batch);
            }
        }
        held.take(&missing)?;
    }
    match rest.is_empty() {
        true => Ok(()),
        false => Err(damaged("ends inside a batch")),
    }
}

/// Opens the staged file and reads it through once: nothing of it is used before all of it is known to be whole.
fn open_checked(place: &Place, staged: &Staged) -> Result<Arc<dyn DiskFile>, StageFailed> {
    let path = staging_file(place);
    let disk: &dyn Disk = &*place.disk;
    let file = disk
        .open_read_only(&path)
        .map_err(|error| DiskError::new("open", &path, &error))?;
    let (mut position, mut sum) = (0, Sha256::new());
    while position < staged.bytes {
        let part = read(&*file, position, staged.bytes)?;
        sum.update(&part);
        position += part.len() as u64;
    }
    let found = hex(&sum.finalize());
    match found == staged.sum {
        true => Ok(file),
        false => Err(damaged(&format!("its sum is {found}, not {}", staged.sum))),
    }
}

fn read(file: &dyn DiskFile, position: u64, end: u64) -> Result<Vec<u8>, StageFailed> {
    let length = usize::try_from(end - position)
        .unwrap_or(TAKE_BYTES)
        .min(TAKE_BYTES);
    let mut part = vec![0; length];
    let path = std::path::Path::new(INCOMING);
    let count = file
        .read_at(&mut part, position)
        .map_err(|error| DiskError::new("read", path, &error))?;
    part.truncate(count);
    match count {
        0 => Err(damaged(&format!("it ends after {position} bytes"))),
        _ => Ok(part),
    }
}

fn damaged(why: &str) -> StageFailed {
    StageFailed::Damaged {
        what: "a snapshot",
        why: why.to_owned(),
    }
}

fn header(batch: &Bytes) -> Result<BatchHeader, StageFailed> {
    BatchHeader::parse(batch).map_err(|why| damaged(&why.to_string()))
}

/// Checks that a batch is whole, ours, and begins at a revision; answers the revision after it.
fn check(batch: &Bytes, at: u64) -> Result<u64, StageFailed> {
    let header = batch::verify_checksum(batch).map_err(|why| damaged(&why.to_string()))?;
    let stamp = stamp_of(batch)?;
    if stamp.base != at {
        return Err(StageFailed::Order {
            expected: at,
            found: stamp.base,
        });
    }
    Ok(header.next_offset().0)
}

/// Batches that lie back to back, to the last byte.
fn split(bytes: Bytes) -> Result<Vec<Bytes>, StageFailed> {
    let (whole, rest) = split_whole(bytes)?;
    match rest.is_empty() {
        true => Ok(whole),
        false => Err(damaged("ends inside a batch")),
    }
}

/// Batches that lie back to back, and what is left of one that is not all there.
fn split_whole(mut bytes: Bytes) -> Result<(Vec<Bytes>, Bytes), StageFailed> {
    let mut whole = Vec::new();
    // Offset and length come first, and are enough to know how long a batch is.
    while let Some(mut head) = bytes.get(8..12) {
        let length = head.get_u32() as usize + 12;
        if length > bytes.len() {
            break;
        }
        whole.push(bytes.split_to(length));
    }
    Ok((whole, bytes))
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
