//! Repeatable choices.

/// A small generator of repeatable choices (xorshift with a multiplied output).
#[derive(Clone, Debug)]
pub(in crate::disk::sim) struct Random(u64);

impl Random {
    pub(in crate::disk::sim) fn new(seed: u64) -> Self {
        // Neighbouring seeds must not start alike, and the state must not be zero.
        Self(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(in crate::disk::sim) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 8
    }

    /// A number below `bound`, or zero when the bound is.
    pub(in crate::disk::sim) fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    pub(in crate::disk::sim) fn coin(&mut self) -> bool {
        self.next().is_multiple_of(2)
    }
}
