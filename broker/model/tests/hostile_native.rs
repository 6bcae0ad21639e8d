//! Payload lists and internal headers made to do harm.

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use felix_model::ProducerId;
    use felix_model::batch::{
        BatchBuilder, BatchOptions, BatchRefused, BuildRefused, ProducerStamp, verify,
    };
    use felix_model::limits::BATCH_BYTES_MAX;
    use felix_model::native::{
        InternalHeaders, NativeProducer, Payloads, PayloadsRefused, internal_headers,
        records_from_payloads,
    };

    #[test]
    fn internal_headers_that_the_broker_never_wrote_are_refused() {
        let build = |headers: &[(&[u8], Option<&[u8]>)]| {
            let options = BatchOptions {
                internal: true,
                ..BatchOptions::default()
            };
            let mut builder = BatchBuilder::new(options);
            builder.push(0, None, Some(b"v"), headers).unwrap();
            builder.finish().unwrap()
        };
        let publisher = Err(BatchRefused::InternalHeader { name: "@" });
        let sequence = Err(BatchRefused::InternalHeader { name: "#" });
        assert_eq!(internal_headers(&build(&[(b"@", None)])), publisher);
        assert_eq!(
            internal_headers(&build(&[(b"@", Some(b"\xff"))])),
            publisher
        );
        assert_eq!(
            internal_headers(&build(&[(b"@", Some(&[b'a'; 256]))])),
            publisher
        );
        assert_eq!(
            internal_headers(&build(&[(b"#", Some(b"short"))])),
            sequence
        );
        // A sequence without a producer in the batch header.
        assert_eq!(internal_headers(&build(&[(b"#", Some(&[0; 8]))])), sequence);
        // Other internal headers belong to other readings.
        let others = build(&[(b"x", Some(&[0; 8])), (b"p", None)]);
        assert_eq!(internal_headers(&others), Ok(InternalHeaders::default()));
    }

    #[test]
    fn payload_lists_are_held_against_what_is_there() {
        for (name, list, why) in [
            (
                "nothing",
                b"\0\0\0".as_slice(),
                PayloadsRefused::Short { have: 3 },
            ),
            (
                "claim",
                b"\x7f\xff\xff\xff\0\0\0\0",
                PayloadsRefused::Count {
                    claimed: 0x7fff_ffff,
                    have: 4,
                },
            ),
            (
                "length over the end",
                b"\0\0\0\x01\0\0\0\x02a",
                PayloadsRefused::Cut {
                    index: 0,
                    length: 2,
                    have: 1,
                },
            ),
            (
                "second length cut",
                b"\0\0\0\x02\0\0\0\x04abcd",
                PayloadsRefused::Cut {
                    index: 1,
                    length: 0,
                    have: 0,
                },
            ),
        ] {
            assert_eq!(
                Payloads::parse(Bytes::from_static(list)),
                Err(why),
                "{name}"
            );
        }
        let trailing = Payloads::parse(Bytes::from_static(b"\0\0\0\x01\0\0\0\x01abc")).unwrap();
        assert_eq!(&*trailing.bytes, b"\0\0\0\x01\0\0\0\x01a");
        let none = Payloads::parse(Bytes::from_static(b"\0\0\0\0")).unwrap();
        assert!(none.is_empty());
        let made = records_from_payloads(&none, None, 0, &InternalHeaders::default());
        assert_eq!(made, Err(BuildRefused::Empty));
    }

    #[test]
    fn a_list_that_was_not_parsed_is_still_read_without_panic() {
        let forged = Payloads {
            bytes: Bytes::from_static(b"\0\0\0\x09\0\0\0\x01a"),
            count: 9,
        };
        assert_eq!(forged.iter().collect::<Vec<_>>(), [b"a"]);
        assert_eq!(forged.skip(2).iter().count(), 0);
        let made = records_from_payloads(&forged, None, 0, &InternalHeaders::default());
        assert!(verify(&made.unwrap()).is_err());
        let nothing = Payloads {
            bytes: Bytes::new(),
            count: 3,
        };
        assert_eq!((nothing.payload_bytes(), nothing.largest()), (0, 0));
    }

    #[test]
    fn a_key_that_would_blow_the_batch_up_is_refused() {
        let list = Payloads::build(vec![b"".as_slice(); 100_000]).unwrap();
        let key = vec![b'k'; 60_000];
        let made = records_from_payloads(&list, Some(&key), 0, &InternalHeaders::default());
        assert!(matches!(
            made,
            Err(BuildRefused::TooLarge {
                limit: BATCH_BYTES_MAX,
                ..
            })
        ));
    }

    #[test]
    fn a_producer_id_of_more_than_63_bits_is_refused() {
        let id = ProducerId::MAX.0 + 1;
        let refused = BuildRefused::Producer {
            id,
            limit: ProducerId::MAX.0,
        };
        let list = Payloads::build([b"p".as_slice()]).unwrap();
        let producer = Some(NativeProducer {
            producer: ProducerId(id),
            sequence: 0,
        });
        let internal = InternalHeaders {
            publisher: None,
            sequence: producer,
        };
        assert_eq!(
            records_from_payloads(&list, None, 0, &internal),
            Err(refused.clone())
        );

        let stamp = ProducerStamp {
            id: ProducerId(id),
            epoch: 0,
            base_sequence: 0,
        };
        let options = BatchOptions {
            producer: Some(stamp),
            ..BatchOptions::default()
        };
        let mut builder = BatchBuilder::new(options);
        builder.push(0, None, Some(b"v"), &[]).unwrap();
        assert_eq!(builder.finish().map(drop), Err(refused));
    }

    #[test]
    fn a_sequence_keeps_all_its_bits_and_the_header_its_low_31() {
        for sequence in [0, 1, 0x7fff_ffff, 0x8000_0000, u64::MAX] {
            let list = Payloads::build([b"p".as_slice()]).unwrap();
            let producer = Some(NativeProducer {
                producer: ProducerId::MAX,
                sequence,
            });
            let internal = InternalHeaders {
                publisher: None,
                sequence: producer,
            };
            let batch = records_from_payloads(&list, None, 0, &internal).unwrap();
            let header = verify(&batch).unwrap();
            assert_eq!(header.base_sequence, (sequence & 0x7fff_ffff) as i32);
            assert_eq!(internal_headers(&batch), Ok(internal));
        }
    }
}
