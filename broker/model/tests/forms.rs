//! The record forms of caches, counters, commits and schedules.

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use felix_model::batch::{BatchBuilder, BatchOptions, Records, verify};
    use felix_model::forms::{
        self, AddOnce, Change, Commit, Keyed, KeyedBuilder, commit_record, schedule_id,
        schedule_record, users_headers,
    };
    use felix_model::native::{NativeProducer, internal_headers, records_from_payloads};
    use felix_model::{
        Generation, InternalHeaders, Offset, Payloads, ProducerId, Record, TimeMs, patch,
    };
    use proptest::prelude::*;

    fn records(batch: impl Into<Bytes>) -> Vec<Record> {
        Records::new(&batch.into())
            .unwrap()
            .map(Result::unwrap)
            .collect()
    }

    fn push(batch: &mut KeyedBuilder, form: &Keyed) {
        match form {
            Keyed::Put {
                key,
                value,
                expires,
            } => batch.put(key, value, *expires),
            Keyed::Delete { key } => batch.delete(key),
            Keyed::Add { key, delta, once } => {
                let once = once.as_ref().map(|once| (once.id.as_ref(), once.sum));
                batch.add(key, *delta, once)
            }
            Keyed::Checkpoint { key, sum } => batch.checkpoint(key, *sum),
        }
        .unwrap();
    }

    fn build(forms: &[Keyed]) -> Bytes {
        let mut batch = KeyedBuilder::new(TimeMs(1_700_000_000_000));
        for form in forms {
            push(&mut batch, form);
        }
        batch.finish().unwrap().freeze()
    }

    fn read(batch: &Bytes) -> Vec<Keyed> {
        records(batch.clone())
            .iter()
            .map(|record| Keyed::read(record).unwrap())
            .collect()
    }

    fn examples() -> Vec<Keyed> {
        let key = Bytes::from_static;
        vec![
            Keyed::Put {
                key: key(b"k"),
                value: key(b"v"),
                expires: None,
            },
            Keyed::Put {
                key: key(b"k"),
                value: key(b""),
                expires: Some(TimeMs(5)),
            },
            Keyed::Delete { key: key(b"k") },
            Keyed::Add {
                key: key(b"c"),
                delta: -2,
                once: None,
            },
            Keyed::Add {
                key: key(b"c"),
                delta: 3,
                once: Some(AddOnce {
                    id: key(b"a"),
                    sum: 1,
                }),
            },
            Keyed::Checkpoint {
                key: key(b"c"),
                sum: 1,
            },
        ]
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_bytes_of_every_keyed_form_are_these() {
        let batch = build(&examples());
        let lines: Vec<String> = examples()
            .iter()
            .map(|form| hex(&build(std::slice::from_ref(form))[61..]))
            .collect();
        assert_eq!(
            lines,
            [
                "10000000026b027600",
                "24000000026b00020278100000000000000005",
                "0e000000026b0100",
                "2400000002630102022b10fffffffffffffffe",
                "4200000002630106022b100000000000000003026902610273100000000000000001",
                "2400000002630102023d100000000000000001",
            ]
        );
        assert!(verify(&batch).is_ok());
        assert_eq!(read(&batch), examples());
        // Bit 8 of the attributes: the headers are ours.
        assert_eq!(&batch[21..23], [0x01, 0x00]);
    }

    #[test]
    fn a_record_that_is_no_form_is_refused() {
        let refused =
            |key: Option<&[u8]>, value: Option<&[u8]>, headers: &[(&[u8], Option<&[u8]>)]| {
                let mut batch = BatchBuilder::new(BatchOptions {
                    internal: true,
                    ..BatchOptions::default()
                });
                batch.push(0, key, value, headers).unwrap();
                let record = records(batch.finish().unwrap()).remove(0);
                assert!(Keyed::read(&record).is_err(), "{record:?}");
            };
        let eight: Option<&[u8]> = Some(&[0; 8]);
        refused(None, Some(b"v"), &[]);
        refused(Some(b"k"), Some(b"v"), &[(b"x", Some(&[0; 7]))]);
        refused(Some(b"k"), Some(b"v"), &[(b"x", Some(&[0xff; 8]))]);
        refused(Some(b"k"), Some(b"v"), &[(b"x", None)]);
        refused(Some(b"k"), None, &[(b"x", eight)]);
        refused(Some(b"k"), Some(b"v"), &[(b"+", eight)]);
        refused(Some(b"k"), Some(b"v"), &[(b"=", eight)]);
        refused(Some(b"k"), None, &[(b"+", eight), (b"=", eight)]);
        refused(Some(b"k"), None, &[(b"+", eight), (b"i", Some(b"a"))]);
        refused(Some(b"k"), None, &[(b"+", eight), (b"s", eight)]);
        refused(
            Some(b"k"),
            None,
            &[(b"+", eight), (b"i", Some(b"")), (b"s", eight)],
        );
        refused(
            Some(b"k"),
            None,
            &[(b"+", eight), (b"i", Some(&[b'a'; 129])), (b"s", eight)],
        );
    }

    #[test]
    fn a_users_headers_are_never_taken_for_ours() {
        let mut batch = BatchBuilder::new(BatchOptions::default());
        batch
            .push(0, Some(b"k"), Some(b"v"), &[(b"x", Some(&[0; 8]))])
            .unwrap();
        let record = records(batch.finish().unwrap()).remove(0);
        assert_eq!(
            Keyed::read(&record).unwrap(),
            Keyed::Put {
                key: Bytes::from_static(b"k"),
                value: Bytes::from_static(b"v"),
                expires: None
            }
        );
        assert_eq!(Commit::read(&record).unwrap(), None);
    }

    #[test]
    fn a_commit_reads_back_beside_what_a_native_publish_keeps() {
        let commit = Commit {
            entity: Bytes::from_static(b"order-7"),
            event: Bytes::from_static(b"paid"),
            changes: vec![
                Change::Put {
                    key: Bytes::from_static(b"total"),
                    value: Bytes::from_static(b"12"),
                },
                Change::Delete {
                    key: Bytes::from_static(b"cart"),
                },
                Change::Put {
                    key: Bytes::new(),
                    value: Bytes::new(),
                },
            ],
            idempotency: Some(Bytes::from_static(b"once")),
        };
        let mut batch = BatchBuilder::new(BatchOptions {
            internal: true,
            ..BatchOptions::default()
        });
        commit_record(&mut batch, 9, &commit).unwrap();
        let batch = batch.finish().unwrap().freeze();
        assert!(internal_headers(&batch).unwrap().is_empty());
        assert_eq!(Commit::read(&records(batch)[0]).unwrap(), Some(commit));

        let unchanging = Commit {
            entity: Bytes::from_static(b"order-7"),
            event: Bytes::from_static(b"looked at"),
            changes: vec![],
            idempotency: None,
        };
        let mut batch = BatchBuilder::new(BatchOptions {
            internal: true,
            ..BatchOptions::default()
        });
        commit_record(&mut batch, 9, &unchanging).unwrap();
        let batch = batch.finish().unwrap();
        assert_eq!(Commit::read(&records(batch)[0]).unwrap(), Some(unchanging));

        let published = records_from_payloads(
            &Payloads::build([b"x".as_slice()]).unwrap(),
            Some(b"k"),
            1,
            &InternalHeaders {
                publisher: Some("p"),
                sequence: Some(NativeProducer {
                    producer: ProducerId(1),
                    sequence: 0,
                }),
            },
        );
        let published = records(published.unwrap());
        assert_eq!(Commit::read(&published[0]).unwrap(), None);
        assert_eq!(schedule_id(&published[0]).unwrap(), None);
    }

    #[test]
    fn a_scheduled_record_names_its_schedule() {
        let mut batch = BatchBuilder::new(BatchOptions {
            internal: true,
            ..BatchOptions::default()
        });
        let record = (None, Some(b"payload".as_slice()));
        let users: [(&[u8], Option<&[u8]>); 2] = [(b"s", Some(b"users")), (b"priority", None)];
        schedule_record(&mut batch, 0, b"id-1", record, &users).unwrap();
        let read = records(batch.finish().unwrap());
        assert_eq!(Commit::read(&read[0]).unwrap(), None);
        assert_eq!(schedule_id(&read[0]).unwrap(), Some("id-1".into()));
        let expected = vec![
            ("s".into(), Some("users".into())),
            ("priority".into(), None),
        ];
        assert_eq!(users_headers(&read[0]).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_headers_of_a_publish_are_its_users_and_those_of_a_commit_are_not() {
        let mut batch = BatchBuilder::new(BatchOptions::default());
        let users: [(&[u8], Option<&[u8]>); 1] = [(b"s", Some(b"users"))];
        batch.push(0, None, Some(b"payload"), &users).unwrap();
        let published = records(batch.finish().unwrap());
        let expected = vec![("s".into(), Some("users".into()))];
        assert_eq!(users_headers(&published[0]).collect::<Vec<_>>(), expected);
        let mut batch = BatchBuilder::new(BatchOptions {
            internal: true,
            ..BatchOptions::default()
        });
        let commit = Commit {
            entity: "order-7".into(),
            event: "paid".into(),
            changes: vec![Change::Delete { key: "a".into() }],
            idempotency: Some("id-1".into()),
        };
        commit_record(&mut batch, 0, &commit).unwrap();
        let committed = records(batch.finish().unwrap());
        assert_eq!(users_headers(&committed[0]).count(), 0);
    }

    #[test]
    fn readers_are_shown_a_batch_without_what_is_internal() {
        let mut batch = BatchBuilder::new(BatchOptions {
            internal: true,
            ..BatchOptions::default()
        });
        let commit = Commit {
            entity: Bytes::from_static(b"order-7"),
            event: Bytes::from_static(b"paid"),
            changes: vec![Change::Put {
                key: Bytes::from_static(b"secret-key"),
                value: Bytes::from_static(b"secret-value"),
            }],
            idempotency: None,
        };
        commit_record(&mut batch, 7, &commit).unwrap();
        let users: [(&[u8], Option<&[u8]>); 2] = [(b"s", Some(b"users")), (b"priority", None)];
        let record = (None, Some(b"payload".as_slice()));
        schedule_record(&mut batch, 9, b"secret-id", record, &users).unwrap();
        let mut batch = batch.finish().unwrap();
        patch(&mut batch, Offset(40), Generation(3));
        let shown = forms::shown(&batch.freeze()).unwrap();
        let header = verify(&shown).unwrap();
        assert_eq!((header.base(), header.leader_epoch), (Offset(40), 3));
        assert!(!header.is_internal());
        assert!(!shown.windows(6).any(|window| window == b"secret"));
        let read: Vec<_> = Records::new(&shown)
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(read[0].key.as_deref(), Some(b"order-7".as_slice()));
        assert_eq!(read[0].value.as_deref(), Some(b"paid".as_slice()));
        assert_eq!(
            (read[0].headers.iter().count(), read[0].timestamp_ms),
            (0, 7)
        );
        assert_eq!((read[1].offset, read[1].timestamp_ms), (Offset(41), 9));
        let headers: Vec<_> = read[1].headers.iter().collect();
        assert_eq!(
            headers,
            [
                ("s".into(), Some("users".into())),
                ("priority".into(), None)
            ]
        );
        // A user's batch is not touched.
        assert_eq!(forms::shown(&shown).unwrap(), shown);
    }

    fn bytes(range: std::ops::Range<usize>) -> impl Strategy<Value = Bytes> {
        prop::collection::vec(any::<u8>(), range).prop_map(Bytes::from)
    }

    fn form() -> impl Strategy<Value = Keyed> {
        let time = prop::option::of((0..=i64::MAX as u64).prop_map(TimeMs));
        let once = prop::option::of(
            (bytes(1..129), any::<i64>()).prop_map(|(id, sum)| AddOnce { id, sum }),
        );
        prop_oneof![
            (bytes(0..50), bytes(0..300), time).prop_map(|(key, value, expires)| Keyed::Put {
                key,
                value,
                expires
            }),
            bytes(0..50).prop_map(|key| Keyed::Delete { key }),
            (bytes(0..50), any::<i64>(), once).prop_map(|(key, delta, once)| Keyed::Add {
                key,
                delta,
                once
            }),
            (bytes(0..50), any::<i64>()).prop_map(|(key, sum)| Keyed::Checkpoint { key, sum }),
        ]
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(forms in prop::collection::vec(form(), 1..40)) {
            let batch = build(&forms);
            prop_assert!(verify(&batch).is_ok());
            prop_assert_eq!(read(&batch), forms);
        }

        #[test]
        fn damage_ends_in_forms_or_errors(
            forms in prop::collection::vec(form(), 1..10),
            cut in any::<prop::sample::Index>(),
            flip in any::<prop::sample::Index>(),
            bit in 0..8_u8,
        ) {
            let batch = build(&forms);
            let cut = batch.slice(..cut.index(batch.len()));
            prop_assert!(verify(&cut).is_err());
            let mut flipped = batch.to_vec();
            flipped[flip.index(batch.len())] ^= 1 << bit;
            for damaged in [cut, flipped.into()] {
                for record in Records::new(&damaged).into_iter().flatten() {
                    let Ok(record) = record else { break };
                    // Either is fine; neither may panic.
                    let _ = (Keyed::read(&record), Commit::read(&record), schedule_id(&record));
                }
            }
        }
    }
}
