//! What is left of a batch.

use bytes::Bytes;
use felix_model::batch::thin;
use felix_model::{BatchHeader, Offset, Record, Records};

use super::Keep;

/// What becomes of a batch.
pub(super) enum Sifted {
    /// It stays as it is.
    Whole,
    /// Some records stay.
    Thin(BatchHeader, Bytes),
    /// Nothing stays.
    Gone,
}

/// Asks what stays, batch by batch.
pub(super) struct Sifter<'a> {
    below: Offset,
    keep: &'a mut dyn Keep,
    records: Vec<Record>,
    stay: Vec<bool>,
    dropped: u64,
}

impl<'a> Sifter<'a> {
    pub(super) fn new(below: Offset, keep: &'a mut dyn Keep) -> Self {
        Self {
            below,
            keep,
            records: Vec::new(),
            stay: Vec::new(),
            dropped: 0,
        }
    }

    /// Records dropped so far.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(super) fn deletions_below(&self) -> Offset {
        self.keep.deletions_below()
    }

    /// What is left of a batch that passed its checksum. One that cannot be read, or not be written again, stays whole.
    pub(super) fn sift(&mut self, header: &BatchHeader, batch: &Bytes) -> Sifted {
        if header.is_control() || header.next_offset() > self.below || !self.read(header, batch) {
            return Sifted::Whole;
        }
        self.stay.clear();
        self.keep.keep(header, &self.records, &mut self.stay);
        self.stay.resize(self.records.len(), true);
        // The batch's memory is shared by its records.
        self.records.clear();
        let going = self.stay.iter().filter(|stays| !**stays).count();
        let sifted = match going {
            0 if !self.stay.is_empty() => return Sifted::Whole,
            all if all == self.stay.len() => Sifted::Gone,
            _ => self.thinned(header, batch),
        };
        if !matches!(sifted, Sifted::Whole) {
            self.dropped += going as u64;
        }
        sifted
    }

    fn read(&mut self, header: &BatchHeader, batch: &Bytes) -> bool {
        self.records.clear();
        let read = Records::new(batch).and_then(|records| {
            for record in records {
                self.records.push(record?);
            }
            Ok(())
        });
        if let Err(error) = &read {
            tracing::warn!(%error, offset = header.base_offset, "batch cannot be read and stays as it is");
        }
        read.is_ok()
    }

    fn thinned(&self, header: &BatchHeader, batch: &Bytes) -> Sifted {
        let thinned = thin(batch, &self.stay).map(|thinned| {
            let thinned = thinned?.freeze();
            let header = BatchHeader::parse(&thinned).ok()?;
            Some((header, thinned))
        });
        match thinned {
            Ok(Some((header, thinned))) => Sifted::Thin(header, thinned),
            Ok(None) => Sifted::Gone,
            Err(error) => {
                tracing::warn!(%error, offset = header.base_offset, "batch cannot be thinned and stays as it is");
                Sifted::Whole
            }
        }
    }
}
