//! What reading costs in memory, by a counting allocator. One test, because tests of one binary run side
//! by side and would be counted together.
//!
//! Counted is everything that was ever allocated, also when it was given back, so the bounds hold for
//! the peak all the more. zstd allocates in C and is not seen; its state is some 150 KiB and a window of
//! at most 8 MiB.

#[cfg(test)]
mod common;

#[cfg(test)]
mod tests {
    use std::alloc::System;

    use bytes::Bytes;
    use felix_model::Offset;
    use felix_model::batch::{BatchHeader, Records, verify, verify_checksum, verify_from_client};
    use felix_model::limits::UNPACKED_BYTES_MAX;
    use felix_model::native::{
        InternalHeaders, Payloads, digest_from_records, internal_headers, payloads_from_records,
        records_from_payloads,
    };
    use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

    use super::common;

    #[global_allocator]
    static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

    /// Reference counts and the like, whatever the input.
    const SLACK: usize = 256;
    /// What a codec needs to work at all, and one step of output.
    const CODEC: usize = 128 * 1024;
    /// The largest block of the LZ4 format.
    const BLOCK: usize = 4 * 1024 * 1024;

    fn spent(work: impl FnOnce()) -> usize {
        let region = Region::new(ALLOCATOR);
        work();
        region.change().bytes_allocated
    }

    #[test]
    fn reading_never_takes_more_than_its_bounds() {
        checks_of_plain_batches_take_nothing();
        a_claim_of_two_billion_records_costs_nothing();
        plain_batches_are_read_within_four_times_their_size();
        packed_batches_are_read_within_the_cap();
        bombs_stop_at_the_cap();
        small_packed_batches_stay_small();
        payload_lists_become_batches_in_one_allocation();
    }

    fn is_packed(data: &[u8]) -> bool {
        BatchHeader::parse(data).is_ok_and(|header| header.attributes & 7 != 0)
    }

    /// Everything there is to read with, over every input: the corpus, and the corpus resealed.
    fn inputs() -> Vec<(String, Bytes)> {
        let mut all = Vec::new();
        for (name, data) in common::corpus("batch") {
            if data.len() >= 61 {
                let mut sealed = data.clone();
                common::reseal(&mut sealed);
                all.push((format!("{name}, resealed"), Bytes::from(sealed)));
            }
            all.push((name, Bytes::from(data)));
        }
        all
    }

    fn read_all(data: &Bytes) -> usize {
        let records = spent(|| {
            if let Ok(records) = Records::new(data) {
                for record in records.flatten() {
                    assert!(record.headers.iter().count() <= data.len());
                }
            }
        });
        let runs = spent(|| {
            if let Ok(runs) = payloads_from_records(data, Offset::ZERO) {
                for run in runs.flatten() {
                    drop(run);
                }
            }
        });
        let digest = spent(|| drop(digest_from_records(data)));
        let internal = spent(|| drop(internal_headers(data)));
        records.max(runs).max(digest).max(internal)
    }

    fn checks_of_plain_batches_take_nothing() {
        for (name, data) in inputs().iter().filter(|(_, data)| !is_packed(data)) {
            for check in [verify_checksum, verify, verify_from_client] {
                assert_eq!(spent(|| drop(check(data))), 0, "{name}");
            }
        }
    }

    fn a_claim_of_two_billion_records_costs_nothing() {
        for attributes in 0..=4 {
            let mut batch = vec![0_u8; 61 + 5];
            batch[16] = 2;
            batch[22] = attributes;
            batch[23..27].copy_from_slice(&(i32::MAX - 1).to_be_bytes());
            batch[57..61].copy_from_slice(&i32::MAX.to_be_bytes());
            common::reseal(&mut batch);
            let batch = Bytes::from(batch);
            assert_eq!(spent(|| assert!(verify(&batch).is_err())), 0);
            assert_eq!(spent(|| assert!(Records::new(&batch).is_err())), 0);
            assert_eq!(
                spent(|| assert!(payloads_from_records(&batch, Offset::ZERO).is_err())),
                0
            );
        }
        let list = Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1, 9]);
        assert_eq!(spent(|| assert!(Payloads::parse(list).is_err())), 0);
    }

    fn plain_batches_are_read_within_four_times_their_size() {
        for (name, data) in inputs().iter().filter(|(_, data)| !is_packed(data)) {
            let bytes = read_all(data);
            assert!(
                bytes <= 4 * data.len() + SLACK,
                "{name}: {bytes} for {}",
                data.len()
            );
        }
        // The worst a plain batch can be: nothing but records of the least size, all of another time.
        let mut builder = felix_model::BatchBuilder::new(felix_model::BatchOptions::default());
        for time in 0..50_000 {
            builder.push(time % 2, None, None, &[]).unwrap();
        }
        let data = builder.finish().unwrap().freeze();
        let bytes = read_all(&data);
        assert!(
            bytes <= 4 * data.len() + SLACK,
            "least records: {bytes} for {}",
            data.len()
        );
        // Or one record of nothing but headers.
        let mut builder = felix_model::BatchBuilder::new(felix_model::BatchOptions::default());
        builder
            .push(0, None, None, &vec![(b"".as_slice(), None); 100_000])
            .unwrap();
        let data = builder.finish().unwrap().freeze();
        assert!(read_all(&data) <= SLACK);
    }

    fn packed_batches_are_read_within_the_cap() {
        let cap = 2 * UNPACKED_BYTES_MAX + BLOCK + CODEC;
        for (name, data) in inputs().iter().filter(|(_, data)| is_packed(data)) {
            let bytes = read_all(data);
            assert!(
                bytes <= 4 * data.len() + cap,
                "{name}: {bytes} for {}",
                data.len()
            );
        }
    }

    /// The walk of a bomb never holds more than the codec's state and what it looks at.
    fn bombs_stop_at_the_cap() {
        let mut bombs = 0;
        for (name, data) in inputs().iter().filter(|(name, _)| name.starts_with("bomb")) {
            let bytes = spent(|| assert!(verify(data).is_err(), "{name}"));
            assert!(bytes <= BLOCK + 2 * CODEC, "{name}: {bytes}");
            bombs += 1;
        }
        assert!(bombs >= 6);
    }

    fn small_packed_batches_stay_small() {
        for vector in common::vectors() {
            let data = vector.bytes();
            if is_packed(&data) && vector.records.len() > 1 {
                // LZ4 blocks are unfolded into what they can be at most: 255 times their size.
                let cap = CODEC
                    + if vector.compression == "lz4" {
                        256 * data.len()
                    } else {
                        0
                    };
                let bytes = spent(|| assert!(verify(&data).is_ok())).max(read_all(&data));
                assert!(bytes <= cap, "{}: {bytes} for {}", vector.name, data.len());
            }
        }
    }

    fn payload_lists_become_batches_in_one_allocation() {
        for count in [1, 10, 1000] {
            let payload = vec![7; 100];
            let list = Payloads::build(vec![payload.as_slice(); count]).unwrap();
            let internal = InternalHeaders {
                publisher: Some("alice"),
                sequence: None,
            };
            let region = Region::new(ALLOCATOR);
            let batch = records_from_payloads(&list, Some(b"key"), 0, &internal).unwrap();
            let change = region.change();
            assert_eq!((change.allocations, change.reallocations), (1, 0));
            assert_eq!(change.bytes_allocated, batch.len());
        }
    }
}
