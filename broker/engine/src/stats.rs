//! What a shard counts.

/// Sums since the shard was opened, and sizes as they are now. Plain integers; the shell makes
/// metrics of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Batches admitted.
    pub appended_batches: u64,
    /// Records in them.
    pub appended_records: u64,
    /// Bytes in them.
    pub appended_bytes: u64,
    /// Records that became visible to readers.
    pub committed_records: u64,
    /// Appends refused, for whatever reason.
    pub refused_batches: u64,
    /// Repeated sendings of idempotent producers, answered with the first offset.
    pub duplicate_batches: u64,
    /// Batches that were answered `Accepted`, or not at all, and then failed to be written.
    pub unacknowledged_lost_batches: u64,
    /// Batches handed to readers, counted once for each.
    pub delivered_batches: u64,
    /// Bytes handed to readers, counted once for each.
    pub delivered_bytes: u64,
    /// Pages of history asked of the journal.
    pub reads: u64,
    /// Records lost to slow readers of an in-memory stream, counted once for each reader, those
    /// already lost to readers that have not come back for more included.
    pub lost_records: u64,
    /// Readers that ended because retention overtook them.
    pub overtaken_readers: u64,
    /// Now: readers.
    pub readers: u64,
    /// Now: readers that wait for the next commit.
    pub parked_readers: u64,
    /// Now: bytes admitted and not committed.
    pub in_flight_bytes: u64,
    /// Now: batches admitted and not committed.
    pub in_flight_batches: u64,
    /// Now: batches that wait for slow readers (`overflow: block`).
    pub held_batches: u64,
    /// Now: bytes of committed batches in memory.
    pub window_bytes: u64,
    /// Now: idempotent producers remembered.
    pub producers: u64,
}
