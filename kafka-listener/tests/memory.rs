//! What requests cost in memory before they are understood, by a counting allocator. One test, because tests of one binary
//! run side by side and would be counted together.
//!
//! Counted is everything that was ever allocated, also when it was given back, so the bounds hold for the peak all the more.

#[cfg(test)]
mod tests {
    use std::alloc::System;
    use std::fs;
    use std::path::PathBuf;

    use felix_kafka::{Draw, readable, sample, served};
    use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

    #[global_allocator]
    static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

    /// What a request takes beside its elements.
    const SLACK: usize = 2 * 1024;
    /// What an element is in memory, against the least that it is on the wire.
    const TIMES: usize = 256;

    fn spent(request: &[u8]) -> usize {
        let region = Region::new(ALLOCATOR);
        let _ = readable(request);
        region.change().bytes_allocated
    }

    fn is_bounded(name: &str, request: &[u8]) {
        let spent = spent(request);
        assert!(
            spent <= TIMES * request.len() + SLACK,
            "{name}: {spent} bytes for {}: {request:02x?}",
            request.len()
        );
    }

    #[test]
    fn a_request_takes_memory_for_the_bytes_that_came_and_not_for_what_it_says() {
        a_claim_of_two_billion_records_costs_what_it_weighs();
        no_input_of_the_corpus_costs_more_than_it_weighs();
        no_count_in_any_request_is_believed();
        no_request_has_more_elements_than_any_needs();
    }

    /// One record batch of 66 bytes, in a request that is otherwise well-formed.
    fn a_claim_of_two_billion_records_costs_what_it_weighs() {
        let mut batch = vec![0; 66];
        batch[8..12].copy_from_slice(&54_i32.to_be_bytes());
        batch[16] = 2;
        batch[23..27].copy_from_slice(&(i32::MAX - 1).to_be_bytes());
        batch[57..61].copy_from_slice(&i32::MAX.to_be_bytes());
        let mut request = b"\0\0\0\x07\0\0\0\x01\0\x01r\xff\xff\xff\xff\0\0\x13\x88".to_vec();
        request.extend(b"\0\0\0\x01\0\x06orders\0\0\0\x01\0\0\0\0\0\0\0\x42");
        request.extend(&batch);
        assert!(readable(&request));
        let spent = spent(&request);
        assert!(spent <= SLACK, "{spent} bytes");
    }

    fn no_input_of_the_corpus_costs_more_than_it_weighs() {
        let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/fuzz/kafka");
        let mut inputs = 0;
        for entry in fs::read_dir(&corpus).unwrap() {
            let path = entry.unwrap().path();
            is_bounded(&path.display().to_string(), &fs::read(&path).unwrap());
            inputs += 1;
        }
        assert!(inputs >= 30, "{inputs}");
    }

    /// Every place of requests of every kind and version says that two billion follow, in either form of counts.
    fn no_count_in_any_request_is_believed() {
        for (key, min, max) in served() {
            for version in min..=max {
                let mut turn = 0;
                let mut draw = Draw {
                    below: &mut |most| {
                        turn += 1;
                        turn % most
                    },
                    texts: &["orders", ""],
                    blobs: &[b"bytes"],
                    ids: &[[7; 16]],
                };
                let request = sample(key, version, 1, &mut draw).unwrap();
                for at in 8..request.len() {
                    for most in [
                        &[0x7f, 0xff, 0xff, 0xff][..],
                        &[0xff, 0xff, 0xff, 0xff, 0x07],
                    ] {
                        let mut claims = request.clone();
                        claims.splice(at..(at + most.len()).min(request.len()), most.to_vec());
                        is_bounded(&format!("{key} {version} at {at}"), &claims);
                    }
                }
            }
        }
    }

    /// A mebibyte of topics without a name or a partition, in the requests that are read by hand. What they would be in
    /// memory is many times as long.
    fn no_request_has_more_elements_than_any_needs() {
        const BYTES: usize = 1 << 20;
        let head = |key: u8, version: u8| [0, key, 0, version, 0, 0, 0, 1, 0, 1, b'r'];
        let count = u32::try_from(BYTES / 6).unwrap().to_be_bytes();
        let produce = [&head(0, 7)[..], b"\xff\xff\xff\xff\0\0\x13\x88"].concat();
        let fetch = [&head(1, 4)[..], &[0; 17]].concat();
        // The forgotten ones stand behind none that is wanted.
        let session = [&head(1, 11)[..], &[0; 29]].concat();
        for start in [produce, fetch, session] {
            let mut request = [&start[..], &count].concat();
            request.resize(request.len() + BYTES, 0);
            assert!(!readable(&request), "{start:02x?}");
            let spent = spent(&request);
            assert!(spent <= request.len() + SLACK, "{start:02x?}: {spent}");
        }
    }
}
