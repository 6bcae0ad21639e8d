//! Bounds of consumer groups, each with the reason for its value.

/// Longest name of a group, a consumer or a schedule, in bytes: as the published protocol has it.
pub const NAME_BYTES_MAX: usize = 128;

/// Records of one poll: as the published protocol has it.
pub const POLL_RECORDS_MAX: usize = 1_000;

/// Bytes of one poll, about; one record is handed out even when it is larger.
pub const POLL_BYTES_MAX: usize = 4 << 20;

/// Claims that stand at a time in one shard; beyond it polls find nothing.
pub const CLAIMS_MAX: usize = 10_000;

/// Records of one shard that were handed out and are not finished, claimed or not: what must be remembered one by
/// one. Beyond it groups get what they are owed and nothing new.
pub const OPEN_MAX: usize = 100_000;

/// Claims of one group: half of what the shard can have, so that a group whose workers are stuck leaves the others as
/// much as it took.
pub const GROUP_CLAIMS_MAX: usize = CLAIMS_MAX / 2;

/// Unfinished records of one group, for the same reason.
pub const GROUP_OPEN_MAX: usize = OPEN_MAX / 2;

/// Longest wait of a poll, in milliseconds.
pub const WAIT_MS_MAX: u64 = 30_000;

/// How long a poll that does not want to wait may wait for records that are there and must be read.
pub const FETCH_MS_MAX: u64 = 2_000;

/// How long claims last when nothing else is said, in milliseconds.
pub const VISIBILITY_MS: u64 = 30_000;

/// Longest life of a claim, in milliseconds: twelve hours.
pub const VISIBILITY_MS_MAX: u64 = 12 * 3_600_000;

/// Longest rest of a record that was given back, in milliseconds: twelve hours.
pub const DELAY_MS_MAX: u64 = 12 * 3_600_000;

/// How often a record is handed out before it is set aside, unless the broker says otherwise.
pub const ATTEMPTS_MAX: u32 = 5;

/// Groups of one shard.
pub const GROUPS_MAX: usize = 1_000;

/// Polls that wait at a time in one shard.
pub const POLLS_MAX: usize = 10_000;

/// Records of one group that are set aside. Beyond it poison rests in the group, and is tried again, without ever
/// being handed out.
pub const LETTERS_MAX: usize = 20_000;

/// Bytes kept of the records that one group has set aside. Beyond it a record is set aside without its bytes.
pub const LETTER_BYTES_MAX: u64 = 64 << 20;

/// How long poison rests before it is tried again to set it aside, in milliseconds.
pub const BURY_AGAIN_MS: u64 = 30_000;

/// Longest reason a consumer can give, in bytes.
pub const REASON_BYTES_MAX: usize = 256;

/// Ranges that may be finished above what was handed out: acks of what an earlier state handed out.
pub const AHEAD_RANGES_MAX: usize = 10_000;

/// Entries of one page of a listing.
pub const PAGE_MAX: u32 = 1_000;

/// Records settled, redriven or discarded in one go.
pub const MOVED_MAX: usize = 10_000;

/// A group that nobody asked about for this long lets its cursor go, in milliseconds.
pub const IDLE_MS: u64 = 600_000;

/// Bytes a group takes from the stream in one pull.
pub const PULL_BYTES: u32 = 256 * 1024;

/// What a record counts for beside its bytes in an answer: its offset, attempts, times and lengths.
pub const RECORD_BYTES: usize = 64;

/// What a header counts for beside its bytes in an answer: its lengths.
pub const HEADER_BYTES: usize = 16;

/// The largest record in a listing. A larger one is listed without its bytes: beside the rest of a page it might not
/// fit a frame.
pub const LISTED_BYTES_MAX: usize = 12 << 20;

/// Bytes read at a time for records that are handed out again.
pub const READ_BYTES: usize = 4 << 20;

/// Longest time ahead that a record can be scheduled, in milliseconds: thirty days.
pub const SCHEDULE_MS_MAX: u64 = 30 * 24 * 3_600_000;

/// Records scheduled at a time in one shard.
pub const SCHEDULES_MAX: usize = 10_000;

/// Bytes of the records scheduled in one shard.
pub const SCHEDULE_BYTES_MAX: u64 = 64 << 20;

/// How long the id of a scheduled record that was appended is remembered, in milliseconds, so that a late repetition
/// is known as one.
pub const FIRED_MS: u64 = 3_600_000;

/// How many such ids are remembered.
pub const FIRED_MAX: usize = 10_000;

/// Scheduled records that are being appended at a time.
pub const FIRING_MAX: usize = 64;

/// How long the append of a scheduled record that was refused rests, in milliseconds.
pub const FIRE_AGAIN_MS: u64 = 1_000;
