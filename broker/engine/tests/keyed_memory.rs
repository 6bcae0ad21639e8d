//! What a key costs in memory beyond its bytes, by a counting allocator. One test, because tests of one
//! binary run side by side and would be counted together.

#[cfg(test)]
mod tests {
    use std::alloc::System;

    use felix_engine::keyed::{Entry, Index, Key, Sums};
    use felix_model::{Offset, TimeMs};
    use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

    #[global_allocator]
    static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

    const KEYS: u64 = 300_000;
    const KEY_BYTES: usize = 20;
    /// What malloc adds to a block and what rounding to sixteen costs, on average.
    const MALLOC: f64 = 16.0;

    fn per_key<T>(work: impl FnOnce() -> T) -> f64 {
        let region = Region::new(ALLOCATOR);
        let held = work();
        let change = region.change();
        let bytes = change.bytes_allocated as f64 - change.bytes_deallocated as f64;
        let blocks = change.allocations as f64 - change.deallocations as f64;
        drop(held);
        (bytes + blocks * MALLOC) / KEYS as f64 - KEY_BYTES as f64
    }

    /// `number` spread out, so that keys come in no order.
    fn scattered(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn fill(spread: impl Fn(u64) -> u64, ttl: Option<u64>) -> Index {
        let mut index = Index::new();
        for number in 0..KEYS {
            let key = Key::from(format!("{:020}", spread(number)).as_bytes());
            let entry = Entry {
                offset: Offset(number),
                expires: ttl.map(|ttl| TimeMs(number + ttl)),
                length: 100,
            };
            index.put(key, entry);
        }
        index
    }

    #[test]
    fn a_key_takes_less_than_120_bytes_beyond_its_own() {
        let in_order = per_key(|| fill(|number| number, None));
        let no_order = per_key(|| fill(scattered, None));
        let expiring = per_key(|| fill(scattered, Some(60_000)));
        let built = per_key(|| {
            let index = fill(scattered, None);
            let rows = index
                .walk(b"", None)
                .map(|(key, entry)| (Key::clone(key), entry))
                .collect();
            drop(index);
            Index::from_sorted(rows)
        });
        let counters = per_key(|| {
            let mut sums = Sums::new();
            for number in 0..KEYS {
                let key = Key::from(format!("{:020}", scattered(number)).as_bytes());
                sums.add(key, 1, Offset(number));
            }
            sums
        });
        println!(
            "bytes a key beyond its own: in order {in_order:.0}, in no order {no_order:.0}, \
             expiring {expiring:.0}, loaded {built:.0}; a counter {counters:.0}"
        );
        assert!(in_order < 120.0, "{in_order}");
        assert!(no_order < 120.0, "{no_order}");
        assert!(built < 120.0, "{built}");
        assert!(expiring < 160.0, "{expiring}");
        assert!(counters < 140.0, "{counters}");
    }
}
