//! Fixed bounds of the journal, each with its reason.

/// Bytes of log between two entries of an offset index: a lookup reads at most this much to find its batch, and
/// an active segment of 256 MiB keeps at most 128 KiB of index in memory.
pub const INDEX_SPACING_BYTES: u32 = 16 * 1024;

/// A segment before it is rolled. Kafka's own limit is what a 31-bit position can say.
pub const SEGMENT_BYTES: u64 = 256 * 1024 * 1024;

/// The largest segment a Kafka index can address.
pub const SEGMENT_BYTES_MAX: u64 = i32::MAX as u64;

/// How much of a log is checked, newest first, each time it is opened, beyond what recovery needs: small logs are
/// checked whole, and a thousand large ones still open in seconds.
pub const VERIFY_BYTES: u64 = 8 * 1024 * 1024;

/// Sealed and idle files kept open for one data directory. A busy log holds two descriptors besides.
pub const OPEN_FILES: usize = 256;

/// Threads that write. A slow disk can hold this many logs up, and no more.
pub const WRITER_THREADS: usize = 4;

/// Threads that flush, seal and prepare segments in the background.
pub const CHORE_THREADS: usize = 2;

/// Bytes that go out in one write. Larger groups no longer save anything and would hold up other logs.
pub const GROUP_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How often `periodic` logs are flushed unless they say otherwise.
pub const PERIODIC_FLUSH_MS: u64 = 250;

/// How long a log is left open after its last write before its descriptors and index are let go.
pub const IDLE_CLOSE_MS: u64 = 10_000;

/// Space is reserved ahead of the writer from this size on, so that an idle log reserves nothing.
pub const RESERVE_FROM_BYTES: u64 = 64 * 1024;

/// The first reservation; each next one doubles what there is.
pub const RESERVE_STEP_BYTES: u64 = 1024 * 1024;

/// From this size on the writer reserves no more: the file is locked while the disk reserves, for 40 ms when it is busy.
/// The next segment of a log that comes this far is reserved whole before it is used.
pub const RESERVE_UPTO_BYTES: u64 = 16 * 1024 * 1024;

/// The most that is reserved for a segment before it is used.
pub const RESERVE_AHEAD_BYTES: u64 = 256 * 1024 * 1024;

/// Bytes a compaction reads a second: a tenth of what a disk does, so that it holds nobody up.
pub const COMPACT_BYTES_PER_SECOND: u64 = 64 * 1024 * 1024;

/// Less than this is not worth compacting.
pub const COMPACT_FROM_BYTES: u64 = 1024 * 1024;

/// Keys that one pass over a stream knows: 64 MiB at 35 bytes for each, which is what Kafka's cleaner takes.
pub const COMPACT_KEYS_MAX: usize = 1_800_000;

/// How long a deletion stays before compaction lets it go: whoever reads a log from the start within a day hears of it.
pub const DELETION_GRACE_MS: u64 = 24 * 60 * 60 * 1000;

/// How long the batches of an idempotent producer but his last stay whole through compaction, so that one that is sent
/// again after a restart is recognised.
pub const PRODUCER_GRACE_MS: u64 = 10 * 60 * 1000;

/// A shard refuses writes while less than this share of the disk is available …
pub const LOW_DISK_REFUSE_PERCENT: u64 = 2;

/// … or less than this many bytes, whichever is smaller: two hundredths of a large disk are too many to leave idle.
pub const LOW_DISK_REFUSE_BYTES: u64 = 1024 * 1024 * 1024;

/// An operator is warned while less than this share of the disk is available.
pub const LOW_DISK_WARN_PERCENT: u64 = 10;

/// How often the room on the disk is looked at.
pub const SPACE_CHECK_MS: u64 = 1_000;
