//! Batches made to do harm.

#[cfg(test)]
mod common;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use felix_model::Offset;
    use felix_model::batch::{
        BadRecord, BatchBuilder, BatchHeader, BatchOptions, BatchRefused, Compression,
        HEADER_BYTES, Records, verify, verify_checksum, verify_from_client,
    };
    use felix_model::limits::{UNPACKED_BYTES_FREE, UNPACKED_BYTES_MAX};
    use felix_model::native::payloads_from_records;

    use super::common::{reseal, vectors};

    /// A batch of one record whose encoded form is given, its own length included.
    fn around(records: &[u8]) -> Vec<u8> {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        builder.push(0, None, Some(b"x"), &[]).unwrap();
        let mut batch = builder.finish().unwrap().to_vec();
        batch.truncate(HEADER_BYTES);
        batch.extend_from_slice(records);
        reseal(&mut batch);
        batch
    }

    /// A batch whose records are this compressed block.
    fn packed(codec: u8, block: &[u8]) -> Vec<u8> {
        let mut batch = around(block);
        batch[22] = codec;
        reseal(&mut batch);
        batch
    }

    #[test]
    fn a_batch_cut_at_any_byte_is_refused() {
        for vector in vectors() {
            let batch = vector.bytes();
            for end in 0..batch.len() {
                let cut = batch.slice(..end);
                let short =
                    |refused| matches!(refused, BatchRefused::Short { have, .. } if have == end);
                assert!(
                    verify_checksum(&cut).is_err_and(short),
                    "{} at {end}",
                    vector.name
                );
                assert!(
                    Records::new(&cut).is_err_and(short),
                    "{} at {end}",
                    vector.name
                );
            }
        }
    }

    #[test]
    fn a_batch_cut_at_any_byte_is_refused_also_when_length_and_checksum_were_made_to_fit() {
        for vector in vectors().iter().filter(|vector| !vector.records.is_empty()) {
            let batch = vector.bytes();
            for end in HEADER_BYTES..batch.len() {
                let mut cut = batch[..end].to_vec();
                reseal(&mut cut);
                // Only the end mark of an LZ4 frame, the trailer of a gzip member and the checksum of a
                // zstd frame say nothing about the records.
                let outcome = verify(&cut);
                assert!(outcome.is_err(), "{} at {end}: {outcome:?}", vector.name);
                let read = Records::new(&Bytes::from(cut))
                    .and_then(|records| records.collect::<Result<Vec<_>, _>>());
                assert!(read.is_err(), "{} at {end}", vector.name);
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_noticed_unless_it_lies_outside_the_checksum() {
        for vector in vectors() {
            let batch = vector.bytes();
            for bit in 0..batch.len() * 8 {
                let mut flipped = batch.to_vec();
                flipped[bit / 8] ^= 1 << (bit % 8);
                let outside = matches!(bit / 8, 0..8 | 12..16);
                match verify(&flipped) {
                    // Offset and generation are the leader's to set; any value is one it could set.
                    Ok(header) => {
                        assert!(outside, "{} bit {bit}", vector.name);
                        assert_eq!(header.crc, BatchHeader::parse(&batch).unwrap().crc);
                    }
                    // An offset below 0 is none.
                    Err(why) if outside => {
                        assert!(matches!(why, BatchRefused::Offsets { .. }), "{why}");
                    }
                    Err(_) => {}
                }
            }
        }
    }

    #[test]
    fn counts_lengths_and_offsets_are_held_against_what_is_there() {
        let good = around(&[14, 0, 0, 0, 1, 2, b'x', 0]);
        assert!(verify(&good).is_ok());
        type Spoil = fn(&mut Vec<u8>);
        type Expected = fn(&BatchRefused) -> bool;
        let table: [(&str, Spoil, Expected); 9] = [
            (
                "version",
                |b| b[16] = 1,
                |w| matches!(w, BatchRefused::Magic { found: 1 }),
            ),
            (
                "length below the header",
                |b| b[8..12].copy_from_slice(&48_i32.to_be_bytes()),
                |w| matches!(w, BatchRefused::Length { claimed: 48, .. }),
            ),
            (
                "negative length",
                |b| b[8..12].copy_from_slice(&(-1_i32).to_be_bytes()),
                |w| matches!(w, BatchRefused::Length { claimed: -1, .. }),
            ),
            (
                "length of two gigabytes",
                |b| b[8..12].copy_from_slice(&i32::MAX.to_be_bytes()),
                |w| matches!(w, BatchRefused::Length { .. }),
            ),
            (
                "two billion records",
                |b| b[57..61].copy_from_slice(&i32::MAX.to_be_bytes()),
                |w| {
                    matches!(
                        w,
                        BatchRefused::Count {
                            claimed: i32::MAX,
                            limit: 1
                        }
                    )
                },
            ),
            (
                "negative records",
                |b| b[57..61].copy_from_slice(&(-1_i32).to_be_bytes()),
                |w| matches!(w, BatchRefused::Count { claimed: -1, .. }),
            ),
            (
                "negative last offset delta",
                |b| b[23..27].copy_from_slice(&(-1_i32).to_be_bytes()),
                |w| matches!(w, BatchRefused::Offsets { last_delta: -1, .. }),
            ),
            (
                "offsets beyond the last",
                |b| b[..8].copy_from_slice(&i64::MAX.to_be_bytes()),
                |w| matches!(w, BatchRefused::Offsets { base: i64::MAX, .. }),
            ),
            (
                "unknown compression",
                |b| {
                    b[22] = 5;
                    reseal(b);
                },
                |w| matches!(w, BatchRefused::Compression { code: 5 }),
            ),
        ];
        for (name, spoil, expected) in table {
            let mut batch = good.clone();
            spoil(&mut batch);
            let why = verify(&batch).unwrap_err();
            assert!(expected(&why), "{name}: {why:?}");
        }
    }

    #[test]
    fn malformed_records_are_refused_by_what_is_wrong_with_them() {
        let endless = [0xff_u8; 12];
        let table: [(&str, &[u8], BadRecord); 13] = [
            ("nothing", &[], BadRecord::Cut),
            ("length that does not end", &endless, BadRecord::Number),
            (
                "negative length",
                &[1, 0, 0, 0, 0, 0, 0],
                BadRecord::Negative { length: -1 },
            ),
            (
                "length over the end",
                &[18, 0, 0, 0, 1, 2, b'x', 0],
                BadRecord::Cut,
            ),
            (
                "length short of the fields",
                &[12, 0, 0, 0, 1, 2, b'x', 0],
                BadRecord::Cut,
            ),
            (
                "bytes after the fields",
                &[16, 0, 0, 0, 1, 2, b'x', 0, 9],
                BadRecord::Leftover { bytes: 1 },
            ),
            (
                "key length below -1",
                &[14, 0, 0, 0, 3, 2, b'x', 0],
                BadRecord::Negative { length: -2 },
            ),
            (
                "value over the end",
                &[14, 0, 0, 0, 1, 98, b'x', 0],
                BadRecord::Cut,
            ),
            (
                "negative header count",
                &[14, 0, 0, 0, 1, 2, b'x', 1],
                BadRecord::Negative { length: -1 },
            ),
            (
                "two billion headers",
                &[22, 0, 0, 0, 1, 2, b'x', 0xfe, 0xff, 0xff, 0xff, 0x0f],
                BadRecord::Cut,
            ),
            (
                "null header key",
                &[18, 0, 0, 0, 1, 2, b'x', 2, 1, 1],
                BadRecord::Negative { length: -1 },
            ),
            (
                "offset delta over the last",
                &[14, 0, 0, 2, 1, 2, b'x', 0],
                BadRecord::Offset {
                    delta: 1,
                    min: 0,
                    max: 0,
                },
            ),
            (
                "negative offset delta",
                &[14, 0, 0, 1, 1, 2, b'x', 0],
                BadRecord::Offset {
                    delta: -1,
                    min: 0,
                    max: 0,
                },
            ),
        ];
        for (name, record, why) in table {
            // Eight bytes more than the record needs keep the count plausible.
            let mut batch = around(record);
            if record.len() < 7 {
                batch.extend_from_slice(&[0xff; 8]);
                reseal(&mut batch);
                assert!(verify(&batch).is_err(), "{name}");
                continue;
            }
            let expected = BatchRefused::Record { index: 0, why };
            assert_eq!(verify(&batch), Err(expected.clone()), "{name}");
            let mut records = Records::new(&Bytes::from(batch)).unwrap();
            assert_eq!(records.next(), Some(Err(expected)), "{name}");
            assert_eq!(records.next(), None, "{name}: it ends after an error");
        }
    }

    #[test]
    fn a_time_out_of_range_is_refused_and_does_not_overflow() {
        // A delta of 1 after the last of all times.
        let mut batch = around(&[14, 0, 2, 0, 1, 2, b'x', 0]);
        batch[27..35].copy_from_slice(&i64::MAX.to_be_bytes());
        reseal(&mut batch);
        assert_eq!(
            verify(&batch),
            Err(BatchRefused::Record {
                index: 0,
                why: BadRecord::Time
            })
        );
    }

    #[test]
    fn bytes_after_the_records_or_after_the_batch_are_refused() {
        let batch = around(&[14, 0, 0, 0, 1, 2, b'x', 0, 7]);
        assert_eq!(verify(&batch), Err(BatchRefused::Leftover { count: 1 }));
        let mut records = Records::new(&Bytes::from(batch)).unwrap();
        assert!(records.next().unwrap().is_ok());
        assert_eq!(
            records.next(),
            Some(Err(BatchRefused::Leftover { count: 1 }))
        );
        assert_eq!(records.next(), None);

        let mut two = around(&[14, 0, 0, 0, 1, 2, b'x', 0]);
        two.extend_from_slice(b"and more");
        assert_eq!(verify(&two), Err(BatchRefused::Trailing { extra: 8 }));
        assert!(
            verify_checksum(&two).is_ok(),
            "a scan sees one batch at a time"
        );
    }

    #[test]
    fn a_client_may_set_no_bit_that_is_the_brokers() {
        for bit in 0..16 {
            let mut batch = around(&[14, 0, 0, 0, 1, 2, b'x', 0]);
            let attributes = 1_u16 << bit;
            batch[21..23].copy_from_slice(&attributes.to_be_bytes());
            reseal(&mut batch);
            let header = BatchHeader::parse(&batch).unwrap();
            let refused = Err(BatchRefused::Attributes { bits: attributes });
            if bit <= 4 {
                assert_eq!(header.check_client_bits(), Ok(()), "bit {bit}");
            } else {
                assert_eq!(header.check_client_bits(), refused, "bit {bit}");
                assert_eq!(verify_from_client(&batch).map(drop), refused, "bit {bit}");
            }
            let known = matches!(bit, 3..=6 | 8);
            assert_eq!(verify(&batch).is_ok(), known, "bit {bit}");
        }
    }

    #[test]
    fn a_client_may_append_no_hole_no_empty_batch_and_no_record_later_than_said() {
        let mut sparse = around(&[14, 0, 0, 0, 1, 2, b'x', 0]);
        sparse[23..27].copy_from_slice(&4_i32.to_be_bytes());
        reseal(&mut sparse);
        assert!(verify(&sparse).is_ok());
        assert_eq!(
            verify_from_client(&sparse),
            Err(BatchRefused::Sparse {
                count: 1,
                offsets: 5
            })
        );

        let mut empty = around(&[]);
        empty[57..61].copy_from_slice(&0_i32.to_be_bytes());
        reseal(&mut empty);
        assert!(verify(&empty).is_ok());
        assert_eq!(verify_from_client(&empty), Err(BatchRefused::Empty));

        let later = around(&[14, 0, 4, 0, 1, 2, b'x', 0]);
        assert!(verify(&later).is_ok());
        assert_eq!(
            verify_from_client(&later),
            Err(BatchRefused::LaterThanMax { found: 2, max: 0 })
        );
    }

    #[test]
    fn a_block_that_unfolds_too_far_is_a_bomb() {
        // Snappy does not reach the ratio; it is stopped by the absolute cap.
        for (codec, bytes) in [
            (Compression::Gzip, 3 * UNPACKED_BYTES_FREE),
            (Compression::Lz4, 3 * UNPACKED_BYTES_FREE),
            (Compression::Zstd, 3 * UNPACKED_BYTES_FREE),
            (Compression::Snappy, UNPACKED_BYTES_MAX + 1),
        ] {
            let options = BatchOptions {
                compression: codec,
                ..BatchOptions::default()
            };
            let mut builder = BatchBuilder::new(options);
            builder.push(0, None, Some(&vec![0; bytes]), &[]).unwrap();
            let batch = builder.finish().unwrap().freeze();
            let bomb = |why: BatchRefused| matches!(why, BatchRefused::Bomb { .. });
            assert!(verify(&batch).is_err_and(bomb), "{codec:?}");
            assert!(Records::new(&batch).is_err_and(bomb), "{codec:?}");
            assert!(
                payloads_from_records(&batch, Offset::ZERO).is_err_and(bomb),
                "{codec:?}"
            );
        }
    }

    #[test]
    fn a_snappy_block_over_the_cap_is_a_bomb_before_it_is_unfolded() {
        let block = snap::raw::Encoder::new()
            .compress_vec(&vec![0; UNPACKED_BYTES_MAX + 1])
            .unwrap();
        assert!(matches!(
            verify(&packed(2, &block)),
            Err(BatchRefused::Bomb { .. })
        ));
    }

    #[test]
    fn a_thousand_equal_records_are_no_bomb() {
        for codec in [
            Compression::Gzip,
            Compression::Snappy,
            Compression::Lz4,
            Compression::Zstd,
        ] {
            let options = BatchOptions {
                compression: codec,
                ..BatchOptions::default()
            };
            let mut builder = BatchBuilder::new(options);
            for _ in 0..1000 {
                builder.push(0, None, Some(&[b'a'; 500]), &[]).unwrap();
            }
            let batch = builder.finish().unwrap();
            assert!(verify_from_client(&batch).is_ok(), "{codec:?}");
        }
    }

    #[test]
    fn blocks_that_claim_more_than_they_can_unfold_to_are_refused() {
        for (name, codec, block) in [
            (
                "snappy: four gigabytes",
                2,
                b"\xff\xff\xff\xff\x0f\0".as_slice(),
            ),
            ("snappy: a megabyte in three bytes", 2, b"\x80\x80\x40\0"),
            ("snappy: empty", 2, b""),
            (
                "xerial: negative block",
                2,
                b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\xff\xff\xff\xff",
            ),
            (
                "xerial: block over the end",
                2,
                b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\x7f\xff\xff\xff\0",
            ),
            ("lz4: no frame", 3, b"\x05\x22\x4d\x18\x60\x40\x82"),
            (
                "lz4: block size 3",
                3,
                b"\x04\x22\x4d\x18\x60\x30\x82\0\0\0\0",
            ),
            (
                "lz4: with a dictionary",
                3,
                b"\x04\x22\x4d\x18\x61\x40\0\0\0\0\x82\0\0\0\0",
            ),
            ("lz4: version 2", 3, b"\x04\x22\x4d\x18\xa0\x40\x82\0\0\0\0"),
            (
                "lz4: stored block over the end",
                3,
                b"\x04\x22\x4d\x18\x60\x40\x82\0\0\0\x80",
            ),
            (
                "lz4: block over its size",
                3,
                b"\x04\x22\x4d\x18\x60\x40\x82\xff\xff\xff\x7f",
            ),
            ("lz4: no end mark", 3, b"\x04\x22\x4d\x18\x60\x40\x82"),
            // A frame that asks for a window of two gigabytes.
            ("zstd: window", 4, b"\x28\xb5\x2f\xfd\x00\xa8\x01\0\0"),
            ("zstd: no frame", 4, b"nothing of the kind"),
            ("gzip: no member", 1, b"nothing of the kind"),
        ] {
            let outcome = verify(&packed(codec, block));
            assert!(
                matches!(
                    outcome,
                    Err(BatchRefused::Undecodable { .. } | BatchRefused::Record { .. })
                ),
                "{name}: {outcome:?}"
            );
        }
    }
}
