//! Replays the committed corpora of the fuzz targets on stable Rust. `tests/fuzz` runs the same
//! functions under a fuzzer.

#[cfg(test)]
mod entry;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::entry;

    /// Every input of a target, and how many there must be at least.
    fn replay(target: &str, least: usize, run: fn(&[u8])) {
        let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/fixtures/fuzz")
            .join(target);
        let mut seen = 0;
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            run(&fs::read(path).unwrap());
            seen += 1;
        }
        assert!(seen >= least, "{} holds {seen} inputs", directory.display());
    }

    #[test]
    fn no_stream_of_frames_of_the_corpus_makes_a_session_panic() {
        replay("frame", 50, entry::frame);
    }

    #[test]
    fn every_message_of_the_corpus_is_refused_or_reads_as_it_was_written() {
        replay("message", 150, entry::message);
    }

    #[test]
    fn every_publish_of_the_corpus_is_refused_or_reads_as_it_was_written() {
        replay("publish", 50, entry::publish);
    }

    #[test]
    fn every_frame_of_ours_of_the_corpus_is_refused_or_read() {
        replay("extension", 30, entry::extension);
    }
}
