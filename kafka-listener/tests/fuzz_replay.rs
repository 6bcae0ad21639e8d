//! Replays the committed corpus of the fuzz target on stable Rust, whole, cut and damaged; and runs the target that makes
//! requests on drawn bytes. For longer than a moment: `FELIX_FUZZ_SECONDS=3600 cargo test --release -p felix-kafka --test
//! fuzz_replay drawn -- --nocapture`.

#[cfg(test)]
mod entry;
#[cfg(test)]
#[path = "entry/made.rs"]
mod made;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::time::{Instant, SystemTime};

    use super::{entry, made};

    fn corpus() -> Vec<(String, Vec<u8>)> {
        let directory =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/fuzz/kafka");
        let mut all = Vec::new();
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            all.push((name, fs::read(path).unwrap()));
        }
        assert!(
            all.len() >= 30,
            "{} holds {}",
            directory.display(),
            all.len()
        );
        all
    }

    #[test]
    fn what_clients_send_is_read_and_what_they_do_not_is_refused() {
        for (name, bytes) in corpus() {
            entry::run(&bytes);
            let refused = name.starts_with("bad-") || name.starts_with("found-");
            assert_eq!(felix_kafka::readable(&bytes), !refused, "{name}");
        }
    }

    #[test]
    fn every_cut_of_what_clients_send_is_refused() {
        for (name, bytes) in corpus()
            .iter()
            .filter(|(name, _)| !name.starts_with("found-"))
        {
            for length in 0..bytes.len() {
                assert!(
                    !felix_kafka::readable(&bytes[..length]),
                    "{name}, {length} bytes"
                );
            }
        }
    }

    /// Numbers of xorshift.
    struct Numbers(u64);

    impl Numbers {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        }

        fn bytes(&mut self) -> Vec<u8> {
            let length = self.next() % 200;
            (0..length).map(|_| (self.next() >> 24) as u8).collect()
        }
    }

    /// Without a time to run for it runs the same inputs each time, else others.
    #[test]
    fn drawn_requests_of_every_version_are_read_and_damaged_ones_make_nothing_fall_over() {
        let seconds = std::env::var_os("FELIX_FUZZ_SECONDS");
        let seconds: Option<u64> =
            seconds.map(|seconds| seconds.to_str().unwrap().parse().unwrap());
        let began = Instant::now();
        let seed = seconds.map_or(0, |_| u64::from(std::process::id()) ^ unix_nanos());
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15 ^ seed);
        let corpus = corpus();
        let mut inputs = 0_u64;
        loop {
            // What a failing input needs to be run again.
            let state = numbers.0;
            let outcome = std::panic::catch_unwind(|| {
                let mut numbers = Numbers(state);
                for _ in 0..1_000 {
                    made::run(&numbers.bytes());
                    let (_, bytes) = &corpus[numbers.next() as usize % corpus.len()];
                    let mut damaged = bytes.clone();
                    for _ in 0..1 + numbers.next() % 8 {
                        let at = numbers.next() as usize % damaged.len();
                        damaged[at] ^= numbers.next() as u8;
                    }
                    entry::run(&damaged);
                }
                numbers.0
            });
            numbers.0 = outcome.unwrap_or_else(|_| panic!("from state {state:#x} on"));
            inputs += 2_000;
            let more = seconds.is_some_and(|seconds| began.elapsed().as_secs() < seconds);
            if !more && inputs >= 20_000 {
                break;
            }
        }
        println!("{inputs} inputs, seed {seed:#x}");
    }

    fn unix_nanos() -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.unwrap().as_nanos() as u64
    }

    #[test]
    fn damage_anywhere_makes_nothing_fall_over() {
        for (_, bytes) in corpus() {
            for at in 0..bytes.len() {
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut damaged = bytes.clone();
                    damaged[at] = value;
                    entry::run(&damaged);
                }
            }
        }
    }
}
