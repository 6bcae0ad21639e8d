//! What goes in comes out, for all inputs.

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use felix_model::batch::{
        BatchBuilder, BatchOptions, Compression, Records, TimestampType, verify, verify_from_client,
    };
    use felix_model::native::{
        InternalHeaders, NativeProducer, Payloads, Times, digest_from_records, internal_headers,
        payload_digest, payloads_from_records, records_from_payloads,
    };
    use felix_model::{Offset, ProducerId, Routing};
    use proptest::prelude::*;

    type Text = Vec<u8>;

    #[derive(Clone, Debug)]
    struct Given {
        time: i64,
        key: Option<Text>,
        value: Option<Text>,
        headers: Vec<(Text, Option<Text>)>,
    }

    fn text() -> impl Strategy<Value = Text> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            (any::<u8>(), 0..5000_usize).prop_map(|(byte, times)| vec![byte; times]),
        ]
    }

    fn given() -> impl Strategy<Value = Given> {
        let headers = prop::collection::vec((text(), prop::option::of(text())), 0..4);
        (
            -1_000_000..2_000_000_000_000_i64,
            prop::option::of(text()),
            prop::option::of(text()),
            headers,
        )
            .prop_map(|(time, key, value, headers)| Given {
                time,
                key,
                value,
                headers,
            })
    }

    fn compression() -> impl Strategy<Value = Compression> {
        prop::sample::select(vec![
            Compression::None,
            Compression::Gzip,
            Compression::Snappy,
            Compression::Lz4,
            Compression::Zstd,
        ])
    }

    fn build(options: BatchOptions, records: &[Given]) -> Bytes {
        let mut builder = BatchBuilder::new(options);
        for record in records {
            let headers: Vec<(&[u8], Option<&[u8]>)> = record
                .headers
                .iter()
                .map(|(key, value)| (key.as_slice(), value.as_deref()))
                .collect();
            builder
                .push(
                    record.time,
                    record.key.as_deref(),
                    record.value.as_deref(),
                    &headers,
                )
                .unwrap();
        }
        builder.finish().unwrap().freeze()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn records_come_back_as_they_were_pushed(
            records in prop::collection::vec(given(), 1..20),
            compression in compression(),
            append_time: bool,
        ) {
            let timestamp_type =
                if append_time { TimestampType::Append } else { TimestampType::Create };
            let options = BatchOptions { compression, timestamp_type, ..BatchOptions::default() };
            let batch = build(options, &records);
            let header = verify_from_client(&batch).unwrap();
            let latest = records.iter().map(|record| record.time).max().unwrap();
            prop_assert_eq!(header.max_timestamp, latest);

            let read = Records::new(&batch).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
            prop_assert_eq!(read.len(), records.len());
            for (index, (found, given)) in read.iter().zip(&records).enumerate() {
                prop_assert_eq!(found.offset, Offset(index as u64));
                let time = if append_time { latest } else { given.time };
                prop_assert_eq!(found.timestamp_ms, time);
                prop_assert_eq!(found.key.as_deref(), given.key.as_deref());
                prop_assert_eq!(found.value.as_deref(), given.value.as_deref());
                let headers: Vec<_> = found
                    .headers
                    .iter()
                    .map(|(key, value)| (key.to_vec(), value.map(|value| value.to_vec())))
                    .collect();
                prop_assert_eq!(&headers, &given.headers);
            }
        }

        #[test]
        fn payloads_come_back_as_they_were_published(
            payloads in prop::collection::vec(text(), 1..50),
            key in prop::option::of(text()),
            time in 0..i64::MAX,
            publisher in prop::option::of("[a-zé]{0,30}"),
            sequence in prop::option::of((0..i64::MAX as u64, any::<u64>())),
            from in 0..60_u64,
        ) {
            let list = Payloads::build(payloads.iter().map(Vec::as_slice)).unwrap();
            prop_assert_eq!(&Payloads::parse(list.bytes.clone()).unwrap(), &list);
            let internal = InternalHeaders {
                publisher: publisher.as_deref(),
                sequence: sequence.map(|(producer, sequence)| NativeProducer {
                    producer: ProducerId(producer),
                    sequence,
                }),
            };
            let batch = records_from_payloads(&list, key.as_deref(), time, &internal).unwrap();
            let batch = batch.freeze();
            let header = verify(&batch).unwrap();
            prop_assert_eq!(header.is_internal(), !internal.is_empty());
            prop_assert_eq!(internal_headers(&batch).unwrap(), internal);
            prop_assert_eq!(digest_from_records(&batch).unwrap(), payload_digest(&list));
            for record in Records::new(&batch).unwrap() {
                let record = record.unwrap();
                prop_assert_eq!(record.key.as_deref(), key.as_deref());
                prop_assert!(record.headers.is_empty());
            }

            let runs: Vec<_> = payloads_from_records(&batch, Offset(from))
                .unwrap()
                .collect::<Result<_, _>>()
                .unwrap();
            let skipped = from.min(payloads.len() as u64) as u32;
            if skipped == list.count {
                prop_assert!(runs.is_empty());
            } else {
                prop_assert_eq!(runs.len(), 1);
                prop_assert_eq!(runs[0].base, Offset(u64::from(skipped)));
                prop_assert_eq!(runs[0].end(), Offset(payloads.len() as u64));
                prop_assert_eq!(&runs[0].payloads, &list.skip(skipped));
                prop_assert_eq!(&runs[0].times, &Times::Same(time));
            }
        }

        #[test]
        fn growing_a_stream_moves_a_key_only_to_the_new_shard(key: Vec<u8>, shards in 1..200_u32) {
            let before = Routing::JumpHash.shard(Some(&key), shards);
            let after = Routing::JumpHash.shard(Some(&key), shards + 1);
            prop_assert!(after == before || after.0 == shards);
        }
    }

    proptest! {
        #[test]
        fn a_batch_that_is_given_the_time_of_its_append_is_whole_and_says_so(
            values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..20),
            now_ms in 0..i64::MAX / 2,
        ) {
            let mut builder = BatchBuilder::new(BatchOptions::default());
            for value in &values {
                builder.push(7, None, Some(value), &[]).unwrap();
            }
            let mut batch = builder.finish().unwrap();
            felix_model::set_append_time(&mut batch, now_ms);
            let header = verify(&batch).unwrap();
            prop_assert_eq!(header.timestamp_type(), TimestampType::Append);
            for record in Records::new(&batch.freeze()).unwrap() {
                prop_assert_eq!(record.unwrap().timestamp_ms, now_ms);
            }
        }
    }
}
