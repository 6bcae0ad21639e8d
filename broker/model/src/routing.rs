//! Which shard a key belongs to. Clients compute the same in order to reach the owner directly, so not
//! a bit of this may ever change.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ShardIndex;

/// How a stream spreads its keys over its shards. Fixed when the stream is created.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// [`key_hash`] modulo the number of shards.
    #[default]
    Modulo,
    /// Jump consistent hash (Lamping and Veach) of [`key_hash`]: growing from n to n + 1 shards moves one
    /// key in n + 1.
    JumpHash,
    /// Kafka's default partitioner, so that native publishes and Kafka producers agree.
    Murmur2,
}

/// A routing of this name does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown routing {given:?}; there are modulo, jump_hash and murmur2")]
pub struct UnknownRouting {
    /// What was asked for.
    pub given: String,
}

impl Routing {
    /// The shard of a key. An empty key is a key; no key, or a stream with at most one shard, means
    /// shard 0.
    #[must_use]
    pub fn shard(self, key: Option<&[u8]>, shards: u32) -> ShardIndex {
        let Some(key) = key.filter(|_| shards > 1) else {
            return ShardIndex::ZERO;
        };
        let shard = match self {
            Self::Modulo => key_hash(key) % u64::from(shards),
            Self::JumpHash => jump(key_hash(key), shards),
            Self::Murmur2 => u64::from((murmur2(key) & 0x7fff_ffff) % shards),
        };
        // Every arm is below `shards`, which is a u32; the fallback cannot be reached.
        ShardIndex(u32::try_from(shard).unwrap_or(0))
    }

    /// The name used in catalogues, configuration and on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Modulo => "modulo",
            Self::JumpHash => "jump_hash",
            Self::Murmur2 => "murmur2",
        }
    }
}

impl fmt::Display for Routing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Routing {
    type Err = UnknownRouting;

    fn from_str(text: &str) -> Result<Self, UnknownRouting> {
        match text {
            "modulo" => Ok(Self::Modulo),
            "jump_hash" => Ok(Self::JumpHash),
            "murmur2" => Ok(Self::Murmur2),
            _ => Err(UnknownRouting {
                given: text.to_owned(),
            }),
        }
    }
}

/// The native hash of a key: FNV-1a over 64 bits, then a finaliser that spreads it over all bits,
/// because FNV alone leaves the low bits of short keys regular.
#[must_use]
pub fn key_hash(key: &[u8]) -> u64 {
    let mut hash = fnv1a(key);
    hash ^= hash >> 30;
    hash = hash.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash ^= hash >> 27;
    hash = hash.wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

fn fnv1a(key: &[u8]) -> u64 {
    key.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Jump consistent hash. The divisions are IEEE doubles, as in the paper: another rounding would send
/// some keys elsewhere.
fn jump(mut key: u64, shards: u32) -> u64 {
    let mut bucket = 0_u64;
    let mut next = 0_u64;
    while next < u64::from(shards) {
        bucket = next;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        let stretch = (1_u64 << 31) as f64 / ((key >> 33) + 1) as f64;
        next = ((bucket + 1) as f64 * stretch) as u64;
    }
    bucket
}

/// MurmurHash2 in 32 bits with Kafka's seed; Kafka prints it as a signed number.
#[must_use]
pub fn murmur2(key: &[u8]) -> u32 {
    const MULTIPLIER: u32 = 0x5bd1_e995;
    const SEED: u32 = 0x9747_b28c;

    // Kafka's lengths are 32-bit, and so are ours: a key is shorter than a frame.
    let mut hash = SEED ^ (key.len() as u32);
    let mut words = key.chunks_exact(4);
    for word in words.by_ref() {
        let word = little_endian(word).wrapping_mul(MULTIPLIER);
        let word = (word ^ (word >> 24)).wrapping_mul(MULTIPLIER);
        hash = hash.wrapping_mul(MULTIPLIER) ^ word;
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        hash = (hash ^ little_endian(rest)).wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^ (hash >> 15)
}

fn little_endian(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .rev()
        .fold(0, |word, byte| (word << 8) | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Row {
        key: &'static str,
        fnv: u64,
        hash: u64,
        /// Over 2, 3, 4, 8 and 16 shards.
        modulo: [u32; 5],
        /// Over 4, 8 and 16 shards.
        jump: [u32; 3],
    }

    /// The verified examples of the published protocol, section 9.
    const EXAMPLES: &[Row] = &[
        row(
            "",
            0xcbf29ce484222325,
            0xf52a15e9a9b5e89b,
            [1, 0, 3, 3, 11],
            [0, 5, 11],
        ),
        row(
            "a",
            0xaf63dc4c8601ec8c,
            0x02c0bdbf481420f8,
            [0, 1, 0, 0, 8],
            [1, 1, 9],
        ),
        row(
            "k7",
            0x08be1107b5622827,
            0x83a57e6fcb6b0c94,
            [0, 1, 0, 4, 4],
            [2, 4, 11],
        ),
        row(
            "order-1",
            0xdee4809f34bee86d,
            0xedf23fc2e07fa9d3,
            [1, 0, 3, 3, 3],
            [0, 7, 7],
        ),
        row(
            "customer-0",
            0x660309ab83c6ffa4,
            0xe0ef692b167733d8,
            [0, 2, 0, 0, 8],
            [3, 3, 3],
        ),
        row(
            "customer-1",
            0x66030aab83c70157,
            0x2cb00644b7ae349b,
            [1, 0, 3, 3, 11],
            [0, 0, 10],
        ),
        row(
            "customer-2",
            0x66030bab83c7030a,
            0xff5f031331ea7506,
            [0, 1, 2, 6, 6],
            [3, 5, 5],
        ),
        row(
            "customer-4",
            0x660305ab83c6f8d8,
            0x6518db128de4d1da,
            [0, 0, 2, 2, 10],
            [2, 2, 2],
        ),
        row(
            "customer-6",
            0x660307ab83c6fc3e,
            0x0668b23287aad594,
            [0, 2, 0, 4, 4],
            [2, 7, 7],
        ),
        row(
            "user:42",
            0x6c151ea4dcd221c2,
            0xd68cb863fc5e0c34,
            [0, 0, 0, 4, 4],
            [2, 6, 6],
        ),
        row(
            "日本",
            0x121d7e35a6d3ce91,
            0xb7f4ca9e3b0a2f06,
            [0, 0, 2, 6, 6],
            [1, 4, 8],
        ),
    ];

    const fn row(key: &'static str, fnv: u64, hash: u64, modulo: [u32; 5], jump: [u32; 3]) -> Row {
        Row {
            key,
            fnv,
            hash,
            modulo,
            jump,
        }
    }

    #[test]
    fn every_published_example_goes_to_its_shard() {
        for example in EXAMPLES {
            let key = example.key.as_bytes();
            assert_eq!(fnv1a(key), example.fnv, "{}", example.key);
            assert_eq!(key_hash(key), example.hash, "{}", example.key);
            for (shards, expected) in [2, 3, 4, 8, 16].into_iter().zip(example.modulo) {
                let shard = Routing::Modulo.shard(Some(key), shards);
                assert_eq!(shard.0, expected, "{} modulo {shards}", example.key);
            }
            for (shards, expected) in [4, 8, 16].into_iter().zip(example.jump) {
                let shard = Routing::JumpHash.shard(Some(key), shards);
                assert_eq!(shard.0, expected, "{} jump {shards}", example.key);
            }
        }
        for (key, routing, expected) in [
            ("k0", Routing::Modulo, 6),
            ("k1", Routing::Modulo, 10),
            ("k0", Routing::JumpHash, 3),
            ("k1", Routing::JumpHash, 4),
        ] {
            assert_eq!(
                routing.shard(Some(key.as_bytes()), 12).0,
                expected,
                "{key} {routing}"
            );
        }
    }

    #[test]
    fn without_a_key_or_without_shards_it_is_shard_0() {
        for routing in [Routing::Modulo, Routing::JumpHash, Routing::Murmur2] {
            for shards in [0, 1, 2, 3, 4, 8, 16, u32::MAX] {
                assert_eq!(routing.shard(None, shards), ShardIndex::ZERO);
            }
            for shards in [0, 1] {
                assert_eq!(routing.shard(Some(b"k7"), shards), ShardIndex::ZERO);
            }
        }
    }

    #[test]
    fn murmur2_is_the_one_of_kafka() {
        for (key, expected) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            (
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            ("abc", 479_470_107),
        ] {
            let hash = murmur2(key.as_bytes());
            assert_eq!(hash as i32, expected, "{key}");
            let positive = (expected & i32::MAX) as u32;
            for shards in [2, 3, 7, 16, 1000] {
                let shard = Routing::Murmur2.shard(Some(key.as_bytes()), shards);
                assert_eq!(shard.0, positive % shards, "{key} over {shards}");
            }
        }
    }

    #[test]
    fn every_routing_stays_within_the_shards() {
        for routing in [Routing::Modulo, Routing::JumpHash, Routing::Murmur2] {
            for shards in [2, 3, 5, 12, 1000, u32::MAX] {
                for key in 0..200_u32 {
                    assert!(routing.shard(Some(&key.to_be_bytes()), shards).0 < shards);
                }
            }
        }
    }

    #[test]
    fn names_go_there_and_back() {
        for routing in [Routing::Modulo, Routing::JumpHash, Routing::Murmur2] {
            assert_eq!(routing.as_str().parse::<Routing>(), Ok(routing));
            let json = serde_json::to_string(&routing).unwrap();
            assert_eq!(json, format!("{:?}", routing.as_str()));
        }
        assert!("crc".parse::<Routing>().is_err());
    }
}
