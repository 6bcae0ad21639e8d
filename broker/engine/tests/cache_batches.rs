//! A turn that takes more than one batch, of which the log refuses some.

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use bytes::Bytes;
    use felix_engine::cache::{
        CacheAnswer, CacheEffect, CacheInput, CacheOp, CacheOptions, CacheRefused, CacheShard,
        CacheTicket, Fold, LIST_EXPIRED_MAX,
    };
    use felix_engine::{
        AppendRefused, CommitWhen, Effect, Input, ProducerTable, Shard, ShardOptions,
    };
    use felix_model::forms::Keyed;
    use felix_model::{Offset, Records, TimeMs};

    const MIB: usize = 1024 * 1024;

    fn shard() -> CacheShard {
        let mut shard = ShardOptions::durable(CommitWhen::Written);
        shard.limits.in_flight_bytes_max = 6 * MIB as u64;
        let options = CacheOptions {
            record_bytes_max: 8 * MIB as u32,
            ..CacheOptions::default()
        };
        CacheShard::new(
            Shard::new(shard, ProducerTable::new(0)),
            options,
            Fold::new(options.once),
        )
    }

    fn add(key: &'static str) -> CacheOp {
        CacheOp::Add {
            key: Bytes::from_static(key.as_bytes()),
            delta: 1,
            id: None,
        }
    }

    fn put(bytes: usize) -> CacheOp {
        CacheOp::Put {
            key: Bytes::from_static(b"large"),
            value: Bytes::from(vec![b'v'; bytes]),
            ttl_ms: None,
            condition: None,
        }
    }

    /// What became of the ops, and the records that were written.
    #[derive(Default)]
    struct Told {
        answers: HashMap<u64, Result<CacheAnswer, CacheRefused>>,
        written: Vec<Keyed>,
        end: Offset,
    }

    impl Told {
        fn handle(&mut self, cache: &mut CacheShard, input: CacheInput) {
            let mut effects = Vec::new();
            cache.handle(TimeMs(1), input, &mut effects);
            for effect in effects {
                match effect {
                    CacheEffect::Log(Effect::Write { batch, end }) => {
                        let records = Records::new(batch.log().unwrap()).unwrap();
                        let forms = records.map(|record| Keyed::read(&record.unwrap()).unwrap());
                        self.written.extend(forms);
                        self.end = end;
                    }
                    CacheEffect::Log(_) => {}
                    CacheEffect::Answer { ticket, outcome } => {
                        self.answers.insert(ticket.0, outcome);
                    }
                }
            }
        }

        fn commit(&mut self, cache: &mut CacheShard) {
            let end = self.end;
            self.handle(cache, CacheInput::Log(Input::Written { end }));
        }

        /// The sums that adds to a key were answered with, in order of the asking.
        fn sums(&self, asked: &[(u64, &'static str)], key: &str) -> Vec<i64> {
            let of = asked.iter().filter(|(_, of)| *of == key);
            of.filter_map(|(ticket, _)| match &self.answers[ticket] {
                Ok(CacheAnswer::Sum { sum, .. }) => *sum,
                Err(CacheRefused::Append(AppendRefused::Busy { .. })) => None,
                other => panic!("{other:?}"),
            })
            .collect()
        }
    }

    #[test]
    fn an_op_behind_a_full_batch_that_was_refused_does_not_build_on_it() {
        let (mut cache, mut told) = (shard(), Told::default());
        told.handle(
            &mut cache,
            CacheInput::Ops(vec![(CacheTicket(0), put(3 * MIB))]),
        );
        let ops = [add("c"), put(5 * MIB), add("c")];
        let ops = (1..).map(CacheTicket).zip(ops).collect();
        told.handle(&mut cache, CacheInput::Ops(ops));
        told.commit(&mut cache);
        for refused in [1, 2] {
            assert!(matches!(
                told.answers[&refused],
                Err(CacheRefused::Append(AppendRefused::Busy { .. }))
            ));
        }
        let repeated = false;
        let one = CacheAnswer::Sum {
            sum: Some(1),
            repeated,
        };
        assert_eq!(told.answers[&3], Ok(one));
    }

    #[test]
    fn sums_are_what_the_log_adds_up_to_whichever_batches_are_refused() {
        let mut refused = 0;
        for seed in 0..60_u64 {
            let mut state = seed;
            let mut roll = |sides: u64| {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                (state >> 33) % sides
            };
            let (mut cache, mut told) = (shard(), Told::default());
            let (mut asked, mut next) = (Vec::new(), 0);
            for _ in 0..12 {
                let mut ops = Vec::new();
                for _ in 0..=roll(6) {
                    let key = ["a", "b"][roll(2) as usize];
                    let op = match roll(3) {
                        0 => put((1 + roll(5) as usize) * MIB),
                        _ => {
                            asked.push((next, key));
                            add(key)
                        }
                    };
                    ops.push((CacheTicket(next), op));
                    next += 1;
                }
                told.handle(&mut cache, CacheInput::Ops(ops));
                if roll(2) == 0 {
                    told.commit(&mut cache);
                }
            }
            told.commit(&mut cache);
            for key in ["a", "b"] {
                let answered = told.sums(&asked, key);
                let is_add = |form: &&Keyed| matches!(form, Keyed::Add { .. });
                let adds = told.written.iter().filter(is_add);
                let added = adds.filter(|form| form.key() == key.as_bytes()).count() as i64;
                assert_eq!(answered, (1..=added).collect::<Vec<_>>(), "seed {seed}");
            }
            refused += told.answers.values().filter(|told| told.is_err()).count();
        }
        assert!(refused > 0, "some batches are refused");
    }

    #[test]
    fn a_list_passes_over_so_many_expired_entries_and_says_where_it_ended() {
        let (mut cache, mut told) = (shard(), Told::default());
        let key = |number: usize| Bytes::from(format!("{number:05}"));
        let held = LIST_EXPIRED_MAX + 10;
        let put = |number: usize| CacheOp::Put {
            key: key(number),
            value: Bytes::new(),
            ttl_ms: (number < held).then_some(0),
            condition: None,
        };
        let ops = (0..=held).map(|number| (CacheTicket(number as u64), put(number)));
        told.handle(&mut cache, CacheInput::Ops(ops.collect()));
        told.commit(&mut cache);
        let mut page = |after: Option<Bytes>| {
            let list = CacheOp::List {
                prefix: Bytes::new(),
                after,
                limit: 5,
                value_bytes: 0,
            };
            told.handle(&mut cache, CacheInput::Ops(vec![(CacheTicket(0), list)]));
            match told.answers.remove(&0) {
                Some(Ok(CacheAnswer::Page {
                    rows, more, upto, ..
                })) => (rows, more, upto),
                other => panic!("{other:?}"),
            }
        };
        let (rows, more, upto) = page(None);
        assert!(rows.is_empty() && more);
        let upto = upto.unwrap();
        assert_eq!(&*upto, &*key(LIST_EXPIRED_MAX - 1));
        let (rows, more, upto) = page(Some(Bytes::copy_from_slice(&upto)));
        assert_eq!((rows.len(), more, upto), (1, false, None));
        assert_eq!(&*rows[0].0, &*key(held));
    }
}
