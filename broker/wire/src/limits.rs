//! The sizes this protocol is bounded by, and why.

/// The largest payload a frame may have, in bytes. Published clients refuse to read more.
pub const PAYLOAD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The largest payload before a stream has authenticated, in bytes. A token fits many times over,
/// and a stranger can make a broker hold no more than this.
pub const UNAUTHENTICATED_BYTES_MAX: usize = 64 * 1024;

/// How many names a list of names may hold (extensions, replicas). Far above any real list, and
/// small enough that the list costs little however short the names are.
pub const NAMES_MAX: usize = 256;

/// How many unanswered publishes a stream may have when the client was promised ordered answers.
pub const PUBLISH_WINDOW: u32 = 256;
