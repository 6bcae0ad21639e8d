//! A batch before and after it has its place in the log.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};
use felix_model::batch::{self, BatchHeader, BatchRefused};
use felix_model::native::Payloads;
use felix_model::{Generation, Offset, TimeMs};

use crate::kafka_producers::KafkaProduced;

/// How many encoded forms of one batch can be remembered: one for each combination of features
/// that readers actually negotiate, which are few.
pub const BATCH_FRAME_SLOTS: usize = 4;

/// Counted for every batch beside its bytes, so that a million empty records are not free: the
/// batch itself, its reference counts, its place in the queues and what encoding it adds.
const BATCH_OVERHEAD_BYTES: u64 = 256;

/// Whom a batch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchKind {
    /// Readers.
    Data,
    /// The log itself (a generation start, say). It takes offsets and is never delivered.
    Control,
}

/// A batch that has no offsets yet.
#[derive(Debug)]
pub struct Draft {
    count: u32,
    timestamp_ms: TimeMs,
    kind: BatchKind,
    log: BytesMut,
    native: Option<Payloads>,
    publisher: Option<Arc<str>>,
    key: Option<Bytes>,
    /// Its header says which batch of which producer it is.
    is_sequenced: bool,
}

impl Draft {
    /// From a record batch v2. The caller has verified it; only the header is read here.
    ///
    /// # Errors
    /// The header is not one of a record batch v2.
    pub fn from_log(log: BytesMut) -> Result<Self, BatchRefused> {
        let header = BatchHeader::parse(&log)?;
        Ok(Self {
            count: count(&header),
            timestamp_ms: TimeMs(u64::try_from(header.max_timestamp).unwrap_or(0)),
            kind: kind(&header),
            log,
            native: None,
            publisher: None,
            key: None,
            is_sequenced: false,
        })
    }

    /// From a record batch v2 as [`Self::from_log`], deduplicated by the producer that its header names.
    ///
    /// # Errors
    /// The header is not one of a record batch v2.
    pub fn from_kafka(log: BytesMut) -> Result<Self, BatchRefused> {
        Ok(Self {
            is_sequenced: true,
            ..Self::from_log(log)?
        })
    }

    /// From a list of payloads, without log bytes: for in-memory streams, which build those only
    /// for a reader that wants them.
    pub fn from_payloads(native: Payloads, timestamp_ms: TimeMs) -> Self {
        Self {
            count: native.count,
            timestamp_ms,
            kind: BatchKind::Data,
            log: BytesMut::new(),
            native: Some(native),
            publisher: None,
            key: None,
            is_sequenced: false,
        }
    }

    /// The same records as a payload list, so that readers at the tail need no conversion.
    #[must_use]
    pub fn with_native(mut self, native: Payloads) -> Self {
        self.native = Some(native);
        self
    }

    /// Who published it, to be shown to readers.
    #[must_use]
    pub fn with_publisher(mut self, publisher: Arc<str>) -> Self {
        self.publisher = Some(publisher);
        self
    }

    /// The key all its records share.
    #[must_use]
    pub fn with_key(mut self, key: Bytes) -> Self {
        self.key = Some(key);
        self
    }

    /// Offsets it will take.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// What it counts for against every bound of the shard.
    pub fn bytes_len(&self) -> u64 {
        bytes_len(self.log.len(), self.native.as_ref())
    }

    pub(crate) fn kafka(&self) -> Option<KafkaProduced> {
        let header = self
            .is_sequenced
            .then(|| BatchHeader::parse(&self.log).ok());
        KafkaProduced::of(&header.flatten()?)
    }

    pub(crate) fn has_log(&self) -> bool {
        !self.log.is_empty()
    }

    /// Gives it its place: offsets and generation are patched into the log bytes.
    pub(crate) fn seal(mut self, base: Offset, generation: Generation) -> Batch {
        let bytes_len = self.bytes_len();
        if !self.log.is_empty() {
            batch::patch(&mut self.log, base, generation);
        }
        Batch {
            base,
            count: self.count,
            end: Offset(base.0.saturating_add(u64::from(self.count))),
            generation,
            timestamp_ms: self.timestamp_ms,
            kind: self.kind,
            bytes_len,
            publisher: self.publisher,
            key: self.key,
            log: once((!self.log.is_empty()).then(|| self.log.freeze())),
            native: once(self.native),
            shown: OnceLock::new(),
            frames: Default::default(),
        }
    }
}

/// A batch in the log. Shared by everybody who needs it; what is encoded from it is encoded once.
#[derive(Debug)]
pub struct Batch {
    /// Offset of its first record.
    pub base: Offset,
    /// Offsets it takes.
    pub count: u32,
    /// Where it ends, exclusive: `base + count`.
    pub end: Offset,
    /// Under which it was appended.
    pub generation: Generation,
    /// Newest time of a record in it, milliseconds.
    pub timestamp_ms: TimeMs,
    /// Whom it is for.
    pub kind: BatchKind,
    /// What it counts for against every bound: its log bytes, its payload list, and a constant.
    pub bytes_len: u64,
    /// Who published it. Known for live batches only; history has it in the internal headers.
    pub publisher: Option<Arc<str>>,
    /// The key all records share. Known for live native batches only.
    pub key: Option<Bytes>,
    log: OnceLock<Bytes>,
    native: OnceLock<Payloads>,
    shown: OnceLock<Bytes>,
    frames: [OnceLock<Bytes>; BATCH_FRAME_SLOTS],
}

impl Batch {
    /// A batch as the journal returned it.
    ///
    /// # Errors
    /// The header is not one of a record batch v2, or its base offset is negative.
    pub fn from_log(log: Bytes) -> Result<Self, BatchRefused> {
        let header = BatchHeader::parse(&log)?;
        let base = Offset(header.base_offset.unsigned_abs());
        let count = count(&header);
        Ok(Self {
            base,
            count,
            end: Offset(base.0.saturating_add(u64::from(count))),
            generation: Generation(header.leader_epoch.unsigned_abs()),
            timestamp_ms: TimeMs(u64::try_from(header.max_timestamp).unwrap_or(0)),
            kind: kind(&header),
            bytes_len: bytes_len(log.len(), None),
            publisher: None,
            key: None,
            log: once(Some(log)),
            native: OnceLock::new(),
            shown: OnceLock::new(),
            frames: Default::default(),
        })
    }

    /// How many bytes it has, in the form in which it came.
    pub fn size(&self) -> u64 {
        let log = self.log.get().map(Bytes::len);
        let native = || self.native.get().map_or(0, |payloads| payloads.bytes.len());
        log.unwrap_or_else(native) as u64
    }

    /// Its record batch v2, with final offsets. Always there on a durable stream.
    pub fn log(&self) -> Option<&Bytes> {
        self.log.get()
    }

    /// Its record batch v2, built by `make` if nobody did before. `make` must patch in
    /// [`Self::base`] and [`Self::generation`].
    pub fn log_or(&self, make: impl FnOnce() -> Bytes) -> &Bytes {
        self.log.get_or_init(make)
    }

    /// Its payload list, if it came with one or somebody made it.
    pub fn native(&self) -> Option<&Payloads> {
        self.native.get()
    }

    /// Its payload list, made by `make` if nobody did before.
    pub fn native_or(&self, make: impl FnOnce() -> Payloads) -> &Payloads {
        self.native.get_or_init(make)
    }

    /// Its record batch v2 as readers may have it, if somebody made it.
    pub fn shown(&self) -> Option<&Bytes> {
        self.shown.get()
    }

    /// Its record batch v2 as readers may have it, made by `make` if nobody did before.
    pub fn shown_or(&self, make: impl FnOnce() -> Bytes) -> &Bytes {
        self.shown.get_or_init(make)
    }

    /// Encoded form number `slot`, if somebody made it.
    pub fn made_frame(&self, slot: usize) -> Option<&Bytes> {
        self.frames.get(slot)?.get()
    }

    /// Encoded form number `slot` (below [`BATCH_FRAME_SLOTS`]), made by `make` if nobody did
    /// before. What the slots mean is the shell's. `None`: there is no such slot.
    pub fn frame(&self, slot: usize, make: impl FnOnce() -> Bytes) -> Option<&Bytes> {
        self.frames.get(slot).map(|frame| frame.get_or_init(make))
    }
}

/// Batches in order of offsets, shared between all readers that are given the same ones. Contiguous
/// ones, except where the log was compacted.
#[derive(Clone, Debug)]
pub struct Run(Arc<[Arc<Batch>]>);

impl From<Vec<Arc<Batch>>> for Run {
    fn from(batches: Vec<Arc<Batch>>) -> Self {
        Self(batches.into())
    }
}

impl Deref for Run {
    type Target = [Arc<Batch>];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

fn once<T>(value: Option<T>) -> OnceLock<T> {
    value.map_or_else(OnceLock::new, OnceLock::from)
}

fn bytes_len(log: usize, native: Option<&Payloads>) -> u64 {
    let native = native.map_or(0, |payloads| payloads.bytes.len());
    BATCH_OVERHEAD_BYTES + log as u64 + native as u64
}

fn count(header: &BatchHeader) -> u32 {
    header.last_offset_delta.unsigned_abs().saturating_add(1)
}

fn kind(header: &BatchHeader) -> BatchKind {
    if header.is_control() {
        BatchKind::Control
    } else {
        BatchKind::Data
    }
}
