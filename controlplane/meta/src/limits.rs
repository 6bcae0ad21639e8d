//! Bounds of the catalogue, each with its reason.

/// Streams and caches that one batch may create. One event must stay far below the largest ledger record.
pub const BATCH_ITEMS_MAX: usize = 256;

/// Shards of one stream or cache. Each is a log of its own; a broker is built for 10,000 of them in all.
pub const SHARDS_MAX: u32 = 1024;

/// Copies of one shard. Brokers of this version do not replicate, and a stream must not promise copies it has not.
pub const REPLICATION_FACTOR_MAX: u32 = 1;

/// Bytes of a display name. It is shown in a column of a listing.
pub const DISPLAY_NAME_BYTES_MAX: usize = 256;

/// Bytes of a region, and of each part of a rule. Group names of identity providers carry a URL.
pub const TEXT_BYTES_MAX: usize = 1024;

/// Rules, and gifts of roles, in one tenant. All of them are walked when a token is minted.
pub const RULES_PER_TENANT_MAX: usize = 10_000;

/// Keys that verify in one tenant. Rotation needs two, an emergency during a rotation three.
pub const KEYS_PER_TENANT_MAX: usize = 8;

/// Names looked at for "did you mean". A miss must not cost a walk over a huge namespace.
pub const CLOSE_MATCH_CANDIDATES_MAX: usize = 4096;

/// Names offered as close matches.
pub const CLOSE_MATCHES_MAX: usize = 3;
