//! Replays the committed corpus of the fuzz target `batch` on stable Rust, and walks a little further
//! from each input. `tests/fuzz` runs the same function under a fuzzer.

#[cfg(test)]
mod common;
#[cfg(test)]
#[path = "entry/batch.rs"]
mod entry;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{common, entry};

    #[test]
    fn no_input_of_the_corpus_makes_readers_panic_or_disagree() {
        let corpus = common::corpus("batch");
        assert!(
            corpus.len() >= 100,
            "the corpus is missing: {} files",
            corpus.len()
        );
        for (name, data) in corpus {
            println!("{name}");
            entry::run(&data);
        }
    }

    #[test]
    fn no_vector_with_one_bit_flipped_does_either() {
        for vector in common::vectors() {
            let batch = vector.bytes();
            // Each flip is resealed and unpacked; of packed batches one bit of each byte is enough.
            let step = if vector.compression == "none" { 1 } else { 9 };
            for bit in (0..batch.len() * 8).step_by(step) {
                let mut data = batch.to_vec();
                data[bit / 8] ^= 1 << (bit % 8);
                entry::run(&data);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn no_neighbour_of_a_vector_does_either(
            pick: prop::sample::Index,
            spoil in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
            end: prop::sample::Index,
            cut: bool,
        ) {
            let vectors = common::vectors();
            let mut data = pick.get(&vectors).bytes().to_vec();
            for (place, byte) in spoil {
                let place = place.index(data.len());
                data[place] = byte;
            }
            if cut {
                data.truncate(end.index(data.len()));
            }
            entry::run(&data);
        }

        #[test]
        fn no_random_bytes_do_either(data in prop::collection::vec(any::<u8>(), 0..300)) {
            entry::run(&data);
        }
    }
}
