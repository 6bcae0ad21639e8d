//! What foreign encoders wrote reads as what they were given, and ours writes the same bytes.

#[cfg(test)]
mod common;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use felix_model::batch::{
        BatchBuilder, BatchHeader, BatchOptions, Compression, ProducerStamp, Records, patch,
        verify, verify_checksum, verify_from_client,
    };
    use felix_model::native::{
        InternalHeaders, NativeProducer, Payloads, Times, digest_from_records, internal_headers,
        payload_digest, payloads_from_records, records_from_payloads,
    };
    use felix_model::{Generation, Offset, ProducerId};

    use super::common::{Vector, hex, vectors};

    #[test]
    fn every_vector_verifies_and_its_header_says_what_is_in_it() {
        for vector in vectors() {
            let name = &vector.name;
            let batch = vector.bytes();
            let header = verify(&batch).unwrap_or_else(|why| panic!("{name}: {why}"));
            assert_eq!(verify_checksum(&batch), Ok(header), "{name}");
            assert_eq!(header.total_bytes(), batch.len(), "{name}");
            assert_eq!(header.records() as usize, vector.records.len(), "{name}");
            assert_eq!(
                header.compression().unwrap().as_str(),
                vector.compression,
                "{name}"
            );
            assert_eq!(header.base(), Offset(vector.base), "{name}");
            let next = vector
                .next
                .unwrap_or(vector.base + vector.records.len() as u64);
            assert_eq!(header.next_offset(), Offset(next), "{name}");
            assert_eq!(header.producer(), vector.producer.map(ProducerId), "{name}");
            assert_eq!(header.is_control(), vector.control, "{name}");
            if let Some(generation) = vector.generation {
                assert_eq!(header.generation(), Some(Generation(generation)), "{name}");
            }
        }
    }

    #[test]
    fn a_client_may_append_what_kafka_clients_send_and_not_what_only_brokers_write() {
        for vector in vectors() {
            let outcome = verify_from_client(&vector.bytes());
            let brokers = [
                "hand-compacted",
                "hand-emptied",
                "hand-control",
                "native-internal",
            ];
            let expected = !brokers.contains(&vector.name.as_str());
            assert_eq!(outcome.is_ok(), expected, "{}: {outcome:?}", vector.name);
        }
    }

    #[test]
    fn every_vector_reads_as_what_its_encoder_was_given() {
        for vector in vectors() {
            let name = &vector.name;
            let records = Records::new(&vector.bytes()).unwrap();
            let records = records.collect::<Result<Vec<_>, _>>().unwrap();
            assert_eq!(records.len(), vector.records.len(), "{name}");
            for (index, (record, expected)) in records.iter().zip(&vector.records).enumerate() {
                let offset = vector.base + u64::from(vector.delta(index));
                assert_eq!(record.offset, Offset(offset), "{name} {index}");
                assert_eq!(record.timestamp_ms, expected.time, "{name} {index}");
                let bytes = |text: &Option<super::common::Text>| text.as_ref().map(|t| t.bytes());
                assert_eq!(
                    record.key.as_deref(),
                    bytes(&expected.key).as_deref(),
                    "{name} {index}"
                );
                assert_eq!(
                    record.value.as_deref(),
                    bytes(&expected.value).as_deref(),
                    "{name} {index}"
                );
                let headers: Vec<_> = record.headers.iter().collect();
                let wanted: Vec<_> = expected
                    .headers
                    .iter()
                    .map(|(key, value)| (Bytes::from(key.clone()), value.clone().map(Bytes::from)))
                    .collect();
                assert_eq!(headers, wanted, "{name} {index}");
                assert_eq!(record.headers.len(), wanted.len(), "{name} {index}");
            }
        }
    }

    #[test]
    fn our_builder_writes_the_bytes_that_kafka_clients_write() {
        let by_clients = |vector: &Vector| {
            vector.compression == "none"
                && (vector.name.starts_with("kafka-python") || vector.name.starts_with("aiokafka"))
        };
        let mut compared = 0;
        for vector in vectors().into_iter().filter(by_clients) {
            let theirs = vector.bytes();
            let header = BatchHeader::parse(&theirs).unwrap();
            if header.is_transactional() {
                continue;
            }
            let mut ours = rebuild(&vector, &header, Compression::None).to_vec();
            // Some clients write -1 where the leader's generation will stand.
            ours[12..16].copy_from_slice(&theirs[12..16]);
            assert_eq!(ours, theirs, "{}", vector.name);
            compared += 1;
        }
        assert_eq!(compared, 2);
    }

    #[test]
    fn every_codec_brings_back_what_it_packed() {
        let codecs = [
            Compression::Gzip,
            Compression::Snappy,
            Compression::Lz4,
            Compression::Zstd,
        ];
        for vector in vectors().iter().filter(|vector| !vector.records.is_empty()) {
            let header = BatchHeader::parse(&vector.bytes()).unwrap();
            let plain = rebuild(vector, &header, Compression::None);
            for codec in codecs {
                let packed = rebuild(vector, &header, codec);
                let verified = verify(&packed).unwrap();
                assert_eq!(verified.compression(), Ok(codec));
                let read = |batch: &Bytes| -> Vec<_> {
                    Records::new(batch).unwrap().map(Result::unwrap).collect()
                };
                assert_eq!(read(&packed), read(&plain), "{} {codec:?}", vector.name);
            }
        }
    }

    fn rebuild(vector: &Vector, header: &BatchHeader, compression: Compression) -> Bytes {
        let producer = header.producer().map(|id| ProducerStamp {
            id,
            epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
        });
        let options = BatchOptions {
            compression,
            producer,
            ..BatchOptions::default()
        };
        let mut builder = BatchBuilder::new(options);
        for record in &vector.records {
            let key = record.key.as_ref().map(|text| text.bytes());
            let value = record.value.as_ref().map(|text| text.bytes());
            let headers: Vec<(&[u8], Option<&[u8]>)> = record
                .headers
                .iter()
                .map(|(key, value)| (key.as_bytes(), value.as_ref().map(|text| text.as_bytes())))
                .collect();
            builder
                .push(record.time, key.as_deref(), value.as_deref(), &headers)
                .unwrap();
        }
        builder.finish().unwrap().freeze()
    }

    #[test]
    fn a_native_publish_becomes_the_vectors_bytes_and_comes_back() {
        let mut compared = 0;
        for vector in vectors()
            .into_iter()
            .filter(|vector| vector.payloads.is_some())
        {
            let name = &vector.name;
            let list = Bytes::from(hex(vector.payloads.as_deref().unwrap()));
            let payloads = Payloads::parse(list.clone()).unwrap();
            assert_eq!(payloads.bytes, list, "{name}");
            let internal = InternalHeaders {
                publisher: vector.publisher.as_deref(),
                sequence: vector.sequence.map(|sequence| NativeProducer {
                    producer: ProducerId(vector.producer.unwrap()),
                    sequence,
                }),
            };
            let key = vector.records[0].key.as_ref().map(|text| text.bytes());
            let time = vector.records[0].time;
            let made = records_from_payloads(&payloads, key.as_deref(), time, &internal).unwrap();
            let batch = vector.bytes();
            assert_eq!(made, batch, "{name}");
            assert_eq!(internal_headers(&batch), Ok(internal), "{name}");

            let runs = payloads_from_records(&batch, Offset::ZERO).unwrap();
            let runs = runs.collect::<Result<Vec<_>, _>>().unwrap();
            assert_eq!(runs.len(), 1, "{name}");
            assert_eq!(runs[0].payloads, payloads, "{name}");
            assert_eq!(runs[0].times, Times::Same(time), "{name}");

            let digest = format!("{:016x}", payload_digest(&payloads));
            assert_eq!(Some(digest), vector.digest, "{name}");
            assert_eq!(
                digest_from_records(&batch),
                Ok(payload_digest(&payloads)),
                "{name}"
            );
            compared += 1;
        }
        assert_eq!(compared, 4);
    }

    #[test]
    fn a_compacted_batch_reads_as_one_run_for_each_stretch_of_offsets() {
        let vectors = vectors();
        let compacted = vectors
            .iter()
            .find(|vector| vector.name == "hand-compacted")
            .unwrap();
        let extents = |from: u64| -> Vec<(u64, u64)> {
            payloads_from_records(&compacted.bytes(), Offset(from))
                .unwrap()
                .map(|run| run.unwrap())
                .map(|run| (run.base.0, run.end().0))
                .collect()
        };
        assert_eq!(extents(0), [(1000, 1002), (1004, 1005), (1006, 1008)]);
        assert_eq!(extents(1001), [(1001, 1002), (1004, 1005), (1006, 1008)]);
        assert_eq!(extents(1002), [(1004, 1005), (1006, 1008)]);
        assert_eq!(extents(1007), [(1007, 1008)]);
        assert_eq!(extents(1008), []);
        assert_eq!(extents(u64::MAX), []);
    }

    #[test]
    fn records_of_a_control_batch_are_no_payloads() {
        let vectors = vectors();
        let control = vectors.iter().find(|vector| vector.control).unwrap();
        assert!(
            payloads_from_records(&control.bytes(), Offset::ZERO)
                .unwrap()
                .next()
                .is_none()
        );
    }

    #[test]
    fn internal_headers_are_hidden_from_readers_and_a_users_are_never_taken_for_them() {
        let vectors = vectors();
        let ours = vectors
            .iter()
            .find(|vector| vector.name == "native-internal")
            .unwrap();
        let first = Records::new(&ours.bytes())
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        assert!(first.headers.is_empty());
        assert_eq!(
            first.internal.last(b"@"),
            Some(Some(Bytes::from_static(b"alice")))
        );

        let mut builder = BatchBuilder::new(BatchOptions::default());
        builder
            .push(0, None, Some(b"v"), &[(b"@", Some(b"mallory"))])
            .unwrap();
        let theirs = builder.finish().unwrap().freeze();
        assert_eq!(internal_headers(&theirs), Ok(InternalHeaders::default()));
        let first = Records::new(&theirs).unwrap().next().unwrap().unwrap();
        assert!(first.internal.is_empty());
        assert_eq!(
            first.headers.last(b"@"),
            Some(Some(Bytes::from_static(b"mallory")))
        );
    }

    #[test]
    fn patching_places_a_batch_and_leaves_its_checksum_right() {
        for vector in vectors() {
            let mut batch = vector.bytes().to_vec();
            let before = verify(&batch).unwrap();
            patch(&mut batch, Offset(1 << 40), Generation(9));
            let after = verify(&batch).unwrap();
            assert_eq!(after.base(), Offset(1 << 40), "{}", vector.name);
            assert_eq!(after.generation(), Some(Generation(9)), "{}", vector.name);
            let restored = BatchHeader {
                base_offset: before.base_offset,
                leader_epoch: before.leader_epoch,
                ..after
            };
            assert_eq!(restored, before, "{}", vector.name);
        }
    }
}
