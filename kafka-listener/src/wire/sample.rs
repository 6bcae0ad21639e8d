//! Well-formed requests of every kind and version, made out of drawn numbers: what tests send.

use super::api::{Api, flexible_request};
use super::guard::Kind::{Blob, Fixed, Items, List, Text};
use super::guard::{ALL, Field, Kind, between, field, from, to};
use super::schema;

/// Where the parts of a request come from.
pub struct Draw<'a> {
    /// A number below another.
    pub below: &'a mut dyn FnMut(usize) -> usize,
    /// Texts that fields hold.
    pub texts: &'a [&'a str],
    /// Bytes that fields hold: record batches among others.
    pub blobs: &'a [&'a [u8]],
    /// Ids that fields hold.
    pub ids: &'a [[u8; 16]],
}

impl std::fmt::Debug for Draw<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Draw").finish_non_exhaustive()
    }
}

/// Numbers at which something changes. None is long as a time to wait.
const NUMBERS: [i64; 9] = [0, 0, 1, 1, -1, 2, 100, i64::MIN, i64::MAX];

/// Elements of one list, at most.
const ELEMENTS: usize = 3;

const PRODUCE: &[Field] = &[
    field(from(3), Text), // transactional_id
    field(ALL, Fixed(2)), // acks
    field(ALL, Fixed(4)), // timeout_ms
    field(
        ALL,
        List(&[
            field(to(12), Text),        // name
            field(from(13), Fixed(16)), // topic_id
            field(
                ALL,
                List(&[
                    field(ALL, Fixed(4)), // index
                    field(ALL, Blob),     // records
                ]),
            ), // partitions
        ]),
    ), // topics
];

const FETCH: &[Field] = &[
    field(to(14), Fixed(4)),  // replica_id
    field(ALL, Fixed(4)),     // max_wait_ms
    field(ALL, Fixed(4)),     // min_bytes
    field(from(3), Fixed(4)), // max_bytes
    field(from(4), Fixed(1)), // isolation_level
    field(from(7), Fixed(4)), // session_id
    field(from(7), Fixed(4)), // session_epoch
    field(
        ALL,
        List(&[
            field(to(12), Text),        // topic
            field(from(13), Fixed(16)), // topic_id
            field(
                ALL,
                List(&[
                    field(ALL, Fixed(4)),      // partition
                    field(from(9), Fixed(4)),  // current_leader_epoch
                    field(ALL, Fixed(8)),      // fetch_offset
                    field(from(12), Fixed(4)), // last_fetched_epoch
                    field(from(5), Fixed(8)),  // log_start_offset
                    field(ALL, Fixed(4)),      // partition_max_bytes
                ]),
            ), // partitions
        ]),
    ), // topics
    field(
        from(7),
        List(&[
            field(between(7, 12), Text),      // topic
            field(from(13), Fixed(16)),       // topic_id
            field(from(7), Items(&Fixed(4))), // partitions
        ]),
    ), // forgotten_topics_data
    field(from(11), Text),    // rack_id
];

/// Key, smallest and largest version of every request that is served.
pub fn served() -> impl Iterator<Item = (i16, i16, i16)> {
    Api::ALL.iter().map(|api| {
        let (min, max) = api.versions();
        (api.key(), min, max)
    })
}

/// A request as a frame without its length; `None` for a key that is not served.
pub fn sample(key: i16, version: i16, correlation: i32, draw: &mut Draw<'_>) -> Option<Vec<u8>> {
    let api = Api::from_key(key)?;
    let flexible = flexible_request(api, version);
    let mut maker = Maker {
        out: Vec::new(),
        version,
        flexible,
        draw,
    };
    maker.out.extend(key.to_be_bytes());
    maker.out.extend(version.to_be_bytes());
    maker.out.extend(correlation.to_be_bytes());
    // The name of the client is in the short form in every version.
    maker.out.extend(*b"\0\x01c");
    if flexible {
        maker.out.push(0);
    }
    let fields = if api == Api::Produce {
        PRODUCE
    } else if api == Api::Fetch {
        FETCH
    } else {
        schema::of(api)
    };
    maker.fields(fields);
    Some(maker.out)
}

struct Maker<'a, 'd> {
    out: Vec<u8>,
    version: i16,
    flexible: bool,
    draw: &'a mut Draw<'d>,
}

impl Maker<'_, '_> {
    fn fields(&mut self, fields: &[Field]) {
        for Field { versions, kind } in fields {
            if (versions.0..=versions.1).contains(&self.version) {
                self.kind(kind);
            }
        }
        if self.flexible {
            self.out.push(0);
        }
    }

    fn kind(&mut self, kind: &Kind) {
        match kind {
            Fixed(16) => {
                let id = self.pick(self.draw.ids).unwrap_or_default();
                self.out.extend(id);
            }
            Fixed(bytes) => {
                let number = self.pick(&NUMBERS).unwrap_or_default();
                // The largest and smallest number of any length begin as the longest do.
                let bits = number.to_be_bytes();
                let small = (-100..=100).contains(&number);
                let part = if small { 8 - bytes..8 } else { 0..*bytes };
                self.out.extend(bits.get(part).unwrap_or_default());
            }
            Text => {
                let text = self.pick(self.draw.texts).unwrap_or_default();
                self.length(text.len(), 2);
                self.out.extend(text.as_bytes());
            }
            Blob => {
                let blob = self.pick(self.draw.blobs).unwrap_or_default();
                self.length(blob.len(), 4);
                self.out.extend(blob);
            }
            List(fields) => {
                let count = (self.draw.below)(ELEMENTS + 1);
                self.length(count, 4);
                (0..count).for_each(|_| self.fields(fields));
            }
            Items(kind) => {
                let count = (self.draw.below)(ELEMENTS + 1);
                self.length(count, 4);
                (0..count).for_each(|_| self.kind(kind));
            }
        }
    }

    fn pick<T: Copy>(&mut self, among: &[T]) -> Option<T> {
        let at = (self.draw.below)(among.len().max(1));
        among.get(at).copied()
    }

    /// A length, in as many bytes as it has outside the compact form.
    fn length(&mut self, length: usize, bytes: usize) {
        if !self.flexible {
            let length = (length as u64).to_be_bytes();
            self.out.extend(length.get(8 - bytes..).unwrap_or_default());
            return;
        }
        let mut left = length + 1;
        while left >= 0x80 {
            self.out.push((left & 0x7f) as u8 | 0x80);
            left >>= 7;
        }
        self.out.push(left as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_is_a_request_that_can_be_read() {
        let mut state = 1_u64;
        let mut below = |most: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(99);
            (state >> 33) as usize % most
        };
        for (key, min, max) in served() {
            for version in min..=max {
                for _ in 0..20 {
                    let mut draw = Draw {
                        below: &mut below,
                        texts: &[
                            "",
                            "orders",
                            "a long text, of more bytes than one byte of length can say; \
                            so it has to be longer than a hundred and twenty-eight of them, which it is by now",
                        ],
                        blobs: &[b"", b"bytes"],
                        ids: &[[0; 16], [7; 16]],
                    };
                    let frame = sample(key, version, 5, &mut draw).unwrap();
                    assert!(crate::readable(&frame), "{key} {version}: {frame:x?}");
                }
            }
        }
    }
}
