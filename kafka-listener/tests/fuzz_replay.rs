//! Replays the committed corpus of the fuzz target on stable Rust, whole, cut and damaged.

#[cfg(test)]
mod entry;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::entry;

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
