//! By what a repeated sequence with other payloads is told from a retry.

/// A digest of the payloads' count, lengths and bytes. It is the same on every machine and in every
/// version, because it is computed again from the records at recovery
/// ([`super::digest_from_records`]). It tells accidents apart and is no defence against forgery, which
/// would need the forger's own producer id.
///
/// ```
/// use felix_model::native::{Payloads, payload_digest};
///
/// let list = Payloads::build([b"ab".as_slice(), b"c"])?;
/// assert_eq!(payload_digest(&list), payload_digest([b"ab".as_slice(), b"c"]));
/// assert_ne!(payload_digest(&list), payload_digest([b"a".as_slice(), b"bc"]));
/// # Ok::<(), felix_model::native::PayloadsRefused>(())
/// ```
#[must_use]
pub fn payload_digest<'a>(payloads: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut digest = Digest::new();
    for payload in payloads {
        digest.push(payload);
    }
    digest.finish()
}

/// The digest of a list as it grows: each payload's length and its bytes in words of eight, folded by a
/// wide multiplication.
#[derive(Clone, Copy, Debug)]
pub(super) struct Digest {
    state: u64,
    count: u64,
}

impl Digest {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

    pub(super) fn new() -> Self {
        Self {
            state: 0x243f_6a88_85a3_08d3,
            count: 0,
        }
    }

    pub(super) fn push(&mut self, payload: &[u8]) {
        self.count += 1;
        self.fold(payload.len() as u64);
        let mut words = payload.chunks_exact(8);
        for word in words.by_ref() {
            self.fold(little_endian(word));
        }
        let rest = words.remainder();
        if !rest.is_empty() {
            self.fold(little_endian(rest));
        }
    }

    pub(super) fn finish(mut self) -> u64 {
        self.fold(self.count);
        self.state
    }

    fn fold(&mut self, word: u64) {
        let wide = u128::from(self.state ^ word) * u128::from(Self::FACTOR);
        // The rotation keeps a state of zero from swallowing what comes next.
        self.state = (wide as u64) ^ ((wide >> 64) as u64) ^ word.rotate_left(32);
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(word) => u64::from_le_bytes(*word),
        None => bytes
            .iter()
            .rev()
            .fold(0, |word, byte| (word << 8) | u64::from(*byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_never_changes() {
        assert_eq!(payload_digest([]), 0xe184_8576_4ba0_3644);
        assert_eq!(payload_digest([b"".as_slice()]), 0x181b_c27d_024d_0751);
        assert_eq!(
            payload_digest([b"hello".as_slice(), b"felix, the log"]),
            0x18e8_88fc_c83c_7fa0
        );
    }

    #[test]
    fn payloads_that_join_to_the_same_bytes_have_different_digests() {
        let lists: [&[&[u8]]; 8] = [
            &[],
            &[b""],
            &[b"", b""],
            &[b"\0"],
            &[b"ab", b"c"],
            &[b"a", b"bc"],
            &[b"abc"],
            &[b"abc\0"],
        ];
        let digests: std::collections::BTreeSet<u64> = lists
            .iter()
            .map(|list| payload_digest(list.iter().copied()))
            .collect();
        assert_eq!(digests.len(), lists.len());
    }

    #[test]
    fn every_bit_of_a_payload_counts() {
        let mut payload = *b"a payload of more than two words";
        let mut digests = std::collections::BTreeSet::from([payload_digest([payload.as_slice()])]);
        for bit in 0..payload.len() * 8 {
            payload[bit / 8] ^= 1 << (bit % 8);
            assert!(
                digests.insert(payload_digest([payload.as_slice()])),
                "bit {bit}"
            );
            payload[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
