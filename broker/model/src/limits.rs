//! Every bound of the formats, with its reason. None of them is a knob: what a stream may choose for
//! itself is in the catalogue, and is at most what stands here.

/// Longest name of a tenant, namespace, stream, cache or cluster. A directory name on every file system
/// we run on takes 255 bytes, and a stream's directory adds `@` and its incarnation.
pub const NAME_BYTES_MAX: usize = 128;

/// Longest node id: a full host name, as DNS has it.
pub const NODE_ID_BYTES_MAX: usize = 253;

/// Largest frame of the native protocol, body only; what the published clients accept.
pub const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Largest record of a stream that does not say otherwise: key, value and headers.
pub const RECORD_BYTES_DEFAULT: usize = 1024 * 1024;

/// Largest record any stream may allow. As the frame, because a record arrives in one frame.
pub const RECORD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Most records in a batch. A frame of empty payloads could carry four times as many, and each would
/// cost the log three times its four bytes; a million is far above what clients put into one batch.
pub const BATCH_RECORDS_MAX: u32 = 1 << 20;

/// Largest batch, header included. A full frame of payloads plus what the record format adds to each
/// (at most 12 bytes over the frame's own four, times [`BATCH_RECORDS_MAX`]) fits; a routing key that is
/// repeated in so many records that the batch grows beyond it is refused.
pub const BATCH_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Most bytes a compressed batch may unfold to. As the frame: what does not fit uncompressed need not
/// fit compressed.
pub const UNPACKED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How many times its own size a compressed batch may unfold to, once it is over
/// [`UNPACKED_BYTES_FREE`]. Real batches of repetitive JSON reach 40.
pub const UNPACKED_RATIO_MAX: usize = 100;

/// What a compressed batch may unfold to whatever the ratio. A thousand equal records compress a
/// thousandfold without ill will, and one mebibyte hurts nobody.
pub const UNPACKED_BYTES_FREE: usize = 1024 * 1024;

/// Largest window a zstd frame may ask for, as a power of two: 8 MiB, what every decoder must support
/// and what the highest ordinary level uses.
pub const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// Fewest bytes of a record: its length, attributes, two deltas, two lengths and the header count, one
/// byte each. A claimed record count is held against it before anything is reserved.
pub const RECORD_BYTES_MIN: usize = 7;

/// Longest name of a publisher; the event frame counts it in one byte.
pub const PUBLISHER_BYTES_MAX: usize = 255;
