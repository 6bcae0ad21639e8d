//! When a log is worth compacting, and the rule for streams: of each key the newest record stays.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::ops::ControlFlow;

use felix_model::forms::schedule_id;
use felix_model::{BatchHeader, BatchRefused, Offset, Record, Records, TimeMs};

use crate::limits;
use crate::log::{CompactOptions, Damage, DamageKind, Keep, Pace};
use crate::reader::{LogReader, ReadRefused};

/// Whether the dirty part of a log is more than half of it, and enough to be worth a pass: over time each byte is then
/// written again about twice.
#[must_use]
pub fn is_due(log: &LogReader) -> bool {
    let dirty = log.dirty_bytes();
    dirty > limits::COMPACT_FROM_BYTES && dirty > log.bytes().saturating_sub(dirty)
}

/// Bytes read at a time while the keys are gathered.
const PAGE_BYTES: usize = 1024 * 1024;

/// Keeps the newest record of each key, records without a key, and records that carry the broker's own operations. A
/// record without a value deletes its key; it stays for a while, so that whoever reads the log hears of it.
#[derive(Debug)]
pub struct NewestByKey {
    /// Two keyed hashes make one that nobody can find two keys for.
    hashers: [RandomState; 2],
    newest: HashMap<[u64; 2], u64, BuildHasherDefault<Folded>>,
    covered: Offset,
    remembered: Remembered,
    recent_since: i64,
    deletions_until: Option<u64>,
    deletions_below: Offset,
}

/// Batches of idempotent producers, by their first offsets. They stay whole, for what is left of one tells nothing of what
/// was in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remembered {
    /// The last committed one of each producer: it tells which comes next.
    pub last: BTreeSet<Offset>,
    /// Those before: they tell whether one is sent again, which nobody does later than
    /// [`limits::PRODUCER_GRACE_MS`].
    pub earlier: BTreeSet<Offset>,
}

/// Keys are hashes already.
#[derive(Clone, Copy, Debug, Default)]
struct Folded(u64);

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, half: u64) {
        self.0 ^= half;
    }

    fn write_usize(&mut self, _length: usize) {}
}

impl NewestByKey {
    /// Gathers the keys of a log from where it was compacted last up to `options.below`. It ends earlier when there are
    /// more than [`limits::COMPACT_KEYS_MAX`]; see [`NewestByKey::covered`]. `pause` is as in [`crate::CompactJob::run`].
    ///
    /// # Errors
    /// The log's. What retention removes meanwhile is passed over.
    pub fn gather(
        log: &LogReader,
        options: CompactOptions,
        pause: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Self, ReadRefused> {
        Self::gather_at_most(limits::COMPACT_KEYS_MAX, log, options, pause)
    }

    /// The same with another bound on keys.
    ///
    /// # Errors
    /// See [`NewestByKey::gather`].
    pub fn gather_at_most(
        keys_max: usize,
        log: &LogReader,
        options: CompactOptions,
        pause: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Self, ReadRefused> {
        let below = options.below;
        let mut pace = Pace::new(options.bytes_per_second, pause);
        let mut keys = Self {
            hashers: [RandomState::new(), RandomState::new()],
            newest: HashMap::default(),
            covered: log.cleaned_to().max(log.start()),
            remembered: Remembered::default(),
            recent_since: 0,
            deletions_until: None,
            deletions_below: Offset::ZERO,
        };
        while keys.covered < below {
            let page = match log.read(keys.covered, PAGE_BYTES, below) {
                Ok(page) => page,
                Err(ReadRefused::BelowStart { oldest }) if oldest > keys.covered => {
                    keys.covered = oldest;
                    continue;
                }
                Err(refused) => return Err(refused),
            };
            let mut bytes = 0;
            for batch in &page.batches {
                bytes += batch.len() as u64;
                let records = Records::new(batch);
                let noted = records.and_then(|records| keys.note(records, keys_max));
                match noted.map_err(|refused| unreadable(log, keys.covered, &refused))? {
                    ControlFlow::Continue(next) => keys.covered = next,
                    ControlFlow::Break(()) => return Ok(keys),
                }
            }
            if page.next <= keys.covered && page.batches.is_empty() {
                break;
            }
            keys.covered = keys.covered.max(page.next);
            if pace.spend(bytes).is_break() {
                break;
            }
        }
        Ok(keys)
    }

    /// Takes note of one batch; answers where it ends, unless it holds more new keys than there is room for.
    fn note(
        &mut self,
        records: Records,
        keys_max: usize,
    ) -> Result<ControlFlow<(), Offset>, BatchRefused> {
        let header = *records.header();
        if header.is_control() {
            return Ok(ControlFlow::Continue(header.next_offset()));
        }
        for record in records {
            let record = record?;
            let Some(key) = &record.key else { continue };
            if self.newest.len() >= keys_max {
                return Ok(ControlFlow::Break(()));
            }
            let hash = self.hash(key);
            self.newest.insert(hash, record.offset.0);
        }
        Ok(ControlFlow::Continue(header.next_offset()))
    }

    /// Keeps batches by which idempotent producers are recognised after a restart.
    #[must_use]
    pub fn with_remembered(mut self, remembered: Remembered, now: TimeMs) -> Self {
        let since = now.0.saturating_sub(limits::PRODUCER_GRACE_MS);
        self.recent_since = i64::try_from(since).unwrap_or(i64::MAX);
        self.remembered = remembered;
        self
    }

    /// Lets deletions go that are older than `grace_ms` at the time `now`.
    #[must_use]
    pub fn with_deletions_until(mut self, now: TimeMs, grace_ms: u64) -> Self {
        self.deletions_until = now.0.checked_sub(grace_ms);
        self
    }

    /// How far the keys are known (exclusive): the log is compacted below it.
    #[must_use]
    pub fn covered(&self) -> Offset {
        self.covered
    }

    /// How many keys are known.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.newest.len()
    }

    /// Whether no later record of its key is known. One without a key has none.
    #[must_use]
    pub fn is_newest(&self, record: &Record) -> bool {
        let known = record
            .key
            .as_ref()
            .and_then(|key| self.newest.get(&self.hash(key)));
        known.is_none_or(|newest| *newest <= record.offset.0)
    }

    fn hash(&self, key: &[u8]) -> [u64; 2] {
        self.hashers.each_ref().map(|hasher| hasher.hash_one(key))
    }

    fn stays(&mut self, record: &Record) -> bool {
        let Some(key) = &record.key else { return true };
        if has_operations(record) {
            return true;
        }
        let newest = self.newest.get(&self.hash(key)).copied();
        if newest.is_some_and(|newest| newest > record.offset.0) {
            return false;
        }
        let is_old = self.deletions_until.is_some_and(|until| {
            u64::try_from(record.timestamp_ms).is_ok_and(|time| time <= until)
        });
        if record.value.is_some() || !is_old {
            return true;
        }
        self.deletions_below = self.deletions_below.max(record.offset.plus(1));
        false
    }
}

/// Whether a record does more than put a value: it has headers of the broker other than the publisher's name and the
/// producer's sequence. A scheduled record does not, and what follows its schedule is its user's.
fn has_operations(record: &Record) -> bool {
    if schedule_id(record).is_ok_and(|id| id.is_some()) {
        return false;
    }
    let mut headers = record.internal.iter();
    headers.any(|(name, _)| !matches!(name.as_ref(), b"@" | b"#"))
}

impl Keep for NewestByKey {
    fn keep(&mut self, batch: &BatchHeader, records: &[Record], stay: &mut Vec<bool>) {
        let base = batch.base();
        let is_recent = batch.max_timestamp >= self.recent_since;
        if self.remembered.last.contains(&base)
            || (is_recent && self.remembered.earlier.contains(&base))
        {
            return;
        }
        stay.extend(records.iter().map(|record| self.stays(record)));
    }

    fn deletions_below(&self) -> Offset {
        self.deletions_below
    }
}

fn unreadable(log: &LogReader, offset: Offset, refused: &BatchRefused) -> ReadRefused {
    ReadRefused::Damaged(Damage {
        file: log.shared().dir.clone(),
        position: 0,
        offset,
        kind: DamageKind::Batch(refused.to_string()),
    })
}
