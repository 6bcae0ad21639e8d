//! A file with every record of a ledger.
//!
//! ```text
//!   FELIX LEDGER 1\n
//!   {"cluster_id": .., "revision": .., "taken_at_ms": ..}\n
//!   one for each revision:  length (u32, big endian)  record
//!   SHA-256 over everything before (32 bytes)
//! ```
//!
//! It holds private keys, so only its owner can read it.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use felix_meta::Revision;
use felix_model::ClusterId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{TransferFailed, record_checker};
use crate::clock;
use crate::limits::{BACKUP_HEAD_BYTES_MAX, BACKUP_RECORD_BYTES_MAX, REPLAY_BYTES};

const MAGIC: &str = "FELIX LEDGER 1\n";

/// What a file says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    /// Whose records they are.
    pub(super) cluster_id: String,
    /// The newest of them; they begin at 1.
    pub(super) revision: Revision,
    /// When the file was begun, in unix ms.
    taken_at_ms: u64,
}

/// A file that is being written. It has its name only when it is whole.
pub(super) struct Writing {
    file: PathBuf,
    partial: PathBuf,
    out: BufWriter<File>,
    digest: Sha256,
    finished: bool,
}

impl Drop for Writing {
    fn drop(&mut self) {
        if !self.finished {
            let _ = fs::remove_file(&self.partial);
        }
    }
}

impl Writing {
    pub(super) fn create(
        file: &Path,
        cluster: &ClusterId,
        revision: Revision,
    ) -> Result<Self, TransferFailed> {
        if file.exists() {
            return Err(failed(file, &"it exists already"));
        }
        let mut name = file.as_os_str().to_owned();
        name.push(".partial");
        let partial = PathBuf::from(name);
        let out = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&partial)
            .map_err(|error| failed(&partial, &error))?;
        let mut writing = Self {
            file: file.to_owned(),
            partial,
            out: BufWriter::new(out),
            digest: Sha256::new(),
            finished: false,
        };
        let head = Head {
            cluster_id: cluster.to_string(),
            revision,
            taken_at_ms: clock::now().0,
        };
        let head = serde_json::to_string(&head).map_err(|error| failed(file, &error))?;
        writing.put(MAGIC.as_bytes())?;
        writing.put(format!("{head}\n").as_bytes())?;
        Ok(writing)
    }

    pub(super) fn record(&mut self, record: &Bytes) -> Result<(), TransferFailed> {
        let length = u32::try_from(record.len())
            .ok()
            .filter(|length| *length <= BACKUP_RECORD_BYTES_MAX)
            .ok_or_else(|| failed(&self.file, &"a record is too large for a backup"))?;
        self.put(&length.to_be_bytes())?;
        self.put(record)
    }

    pub(super) fn finish(mut self) -> Result<(), TransferFailed> {
        let digest = self.digest.clone().finalize();
        let done = self
            .out
            .write_all(&digest)
            .and_then(|()| self.out.flush())
            .and_then(|()| self.out.get_ref().sync_all())
            // A link, not a renaming: what has the name already is not replaced.
            .and_then(|()| fs::hard_link(&self.partial, &self.file))
            .and_then(|()| fs::remove_file(&self.partial))
            .and_then(|()| sync_dir(&self.file));
        done.map_err(|error| failed(&self.file, &error))?;
        self.finished = true;
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), TransferFailed> {
        self.digest.update(bytes);
        self.out
            .write_all(bytes)
            .map_err(|error| failed(&self.partial, &error))
    }
}

fn sync_dir(file: &Path) -> io::Result<()> {
    let dir = match file.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    File::open(dir)?.sync_all()
}

/// A file that is being read.
pub(super) struct Reading {
    file: PathBuf,
    input: BufReader<File>,
    digest: Sha256,
    left: u64,
}

impl Reading {
    /// Reads a file to its end: that it is whole, and that this build understands every record.
    pub(super) fn check(file: &Path) -> Result<Head, TransferFailed> {
        let (mut reading, head) = Self::begin(file)?;
        let mut check = record_checker();
        while reading.left > 0 {
            check(&reading.record()?)?;
        }
        let digest = reading.digest.clone().finalize();
        let mut found = [0; 32];
        reading.take(&mut found)?;
        if found != *digest {
            return Err(failed(file, &"it is damaged: its checksum is another"));
        }
        match reading.input.fill_buf() {
            Ok([]) => Ok(head),
            Ok(_) => Err(failed(file, &"it is damaged: it goes on after its end")),
            Err(error) => Err(failed(file, &error)),
        }
    }

    pub(super) fn open(file: &Path) -> Result<Self, TransferFailed> {
        Ok(Self::begin(file)?.0)
    }

    fn begin(file: &Path) -> Result<(Self, Head), TransferFailed> {
        let input = File::open(file).map_err(|error| failed(file, &error))?;
        let mut reading = Self {
            file: file.to_owned(),
            input: BufReader::new(input),
            digest: Sha256::new(),
            left: 0,
        };
        if reading.line()? != MAGIC.as_bytes() {
            return Err(failed(file, &"it is no backup of a ledger"));
        }
        let head: Head =
            serde_json::from_slice(&reading.line()?).map_err(|error| failed(file, &error))?;
        reading.left = head.revision.0;
        Ok((reading, head))
    }

    /// Some of the records that are left, in order.
    pub(super) fn page(&mut self) -> Result<Vec<Bytes>, TransferFailed> {
        let (mut page, mut bytes) = (Vec::new(), 0);
        while self.left > 0 && bytes < REPLAY_BYTES {
            let record = self.record()?;
            bytes += record.len();
            page.push(record);
        }
        Ok(page)
    }

    fn record(&mut self) -> Result<Bytes, TransferFailed> {
        let mut length = [0; 4];
        self.take(&mut length)?;
        self.digest.update(length);
        let length = u32::from_be_bytes(length);
        if length > BACKUP_RECORD_BYTES_MAX {
            return Err(failed(&self.file, &"it is damaged: a record is too large"));
        }
        // Grows with what is really there, not with what is said to be.
        let mut record = Vec::new();
        let read = self
            .input
            .by_ref()
            .take(length.into())
            .read_to_end(&mut record)
            .map_err(|error| failed(&self.file, &error))?;
        if read as u64 != u64::from(length) {
            return Err(failed(&self.file, &"it is damaged: it is cut off"));
        }
        self.digest.update(&record);
        self.left -= 1;
        Ok(record.into())
    }

    fn line(&mut self) -> Result<Vec<u8>, TransferFailed> {
        let mut line = Vec::new();
        self.input
            .by_ref()
            .take(BACKUP_HEAD_BYTES_MAX)
            .read_until(b'\n', &mut line)
            .map_err(|error| failed(&self.file, &error))?;
        self.digest.update(&line);
        Ok(line)
    }

    fn take(&mut self, bytes: &mut [u8]) -> Result<(), TransferFailed> {
        self.input.read_exact(bytes).map_err(|error| {
            match error.kind() == io::ErrorKind::UnexpectedEof {
                true => failed(&self.file, &"it is damaged: it is cut off"),
                false => failed(&self.file, &error),
            }
        })
    }
}

fn failed(file: &Path, detail: &dyn ToString) -> TransferFailed {
    TransferFailed::File {
        file: file.display().to_string(),
        detail: detail.to_string(),
    }
}
