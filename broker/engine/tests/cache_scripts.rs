//! Scripts of a cache's shard in `testdata/cache/`: commands, and below `----` what the shard did.
//!
//! ```text
//! cache durable [commit=flushed] | cache memory bytes=N
//! 1 put KEY VALUE [ttl=N] [if=absent|VERSION] ; 2 get KEY ; 3 del KEY [if=VERSION] ; …      one turn
//! N add KEY DELTA [id=ID] | N sum KEY | N list PREFIX [after=KEY] [limit=N]
//! at N      expire      checkpoint N      written N | flushed N | failed N full|io|poisoned
//! keeps OFFSET      what compaction does with a record      state
//! ```
//!
//! `UPDATE_SCRIPTS=1 cargo test -p felix-engine --test cache_scripts` rewrites the transcripts.

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use bytes::Bytes;
    use felix_engine::cache::{
        CacheAnswer, CacheEffect, CacheInput, CacheOp, CacheOptions, CacheShard, CacheTicket,
        Condition, Fold, Found, Tell,
    };
    use felix_engine::{
        Batch, CommitWhen, Effect, Input, Overflow, ProducerTable, Shard, ShardOptions,
        WriteFailure,
    };
    use felix_model::forms::Keyed;
    use felix_model::{Offset, Records, TimeMs};

    #[derive(Default)]
    struct Interpreter {
        cache: Option<CacheShard>,
        now: u64,
        journal: BTreeMap<Offset, Arc<Batch>>,
    }

    fn named<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
        let find = |word: &&'a str| word.strip_prefix(name)?.strip_prefix('=');
        words.iter().find_map(find)
    }

    fn bytes(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    fn op(words: &[&str]) -> CacheOp {
        let key = bytes(words[1]);
        match words[0] {
            "get" => CacheOp::Get { key },
            "sum" => CacheOp::Sum { key },
            "put" => CacheOp::Put {
                key,
                value: bytes(words[2]),
                ttl_ms: named(words, "ttl").map(|ttl| ttl.parse().unwrap()),
                condition: named(words, "if").map(|condition| match condition {
                    "absent" => Condition::Absent,
                    version => Condition::Version(Offset(version.parse().unwrap())),
                }),
            },
            "del" => CacheOp::Delete {
                key,
                version: named(words, "if").map(|version| Offset(version.parse().unwrap())),
                tell: Tell::Removed,
            },
            "add" => CacheOp::Add {
                key,
                delta: words[2].parse().unwrap(),
                id: named(words, "id").map(bytes),
            },
            "list" => CacheOp::List {
                prefix: key,
                after: named(words, "after").map(bytes),
                limit: named(words, "limit").map_or(100, |limit| limit.parse().unwrap()),
                value_bytes: 0,
            },
            other => panic!("unknown op {other}"),
        }
    }

    fn text(bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).into_owned()
    }

    fn show(found: Option<&Found>) -> String {
        found.map_or_else(
            || "nothing".into(),
            |found| {
                let value = found.value.as_deref();
                let value = value.map_or_else(|| "(on disk)".into(), text);
                format!("{value} version={}", found.version)
            },
        )
    }

    fn answer(answer: &CacheAnswer) -> String {
        match answer {
            CacheAnswer::Value(found) => show(found.as_ref()),
            CacheAnswer::Deleted(found) => format!("deleted {}", show(found.as_ref())),
            CacheAnswer::Put { version } => format!("put version={version}"),
            CacheAnswer::Unmet { current } => match current {
                Some(version) => format!("unmet, current version={version}"),
                None => "unmet, nothing there".into(),
            },
            CacheAnswer::Sum { sum, repeated } => {
                let again = if *repeated { " (repeated)" } else { "" };
                sum.map_or("never added to".into(), |sum| format!("sum={sum}{again}"))
            }
            CacheAnswer::Page { rows, more, .. } => {
                let keys: Vec<String> = rows.iter().map(|(key, _)| text(key)).collect();
                format!(
                    "[{}]{}",
                    keys.join(" "),
                    if *more { " and more" } else { "" }
                )
            }
        }
    }

    fn record(form: &Keyed) -> String {
        let key = text(form.key());
        match form {
            Keyed::Put { value, .. } => format!("put {key}={}", text(value)),
            Keyed::Delete { .. } => format!("delete {key}"),
            Keyed::Add { delta, .. } => format!("add {key}{delta:+}"),
            Keyed::Checkpoint { sum, .. } => format!("checkpoint {key}={sum}"),
        }
    }

    fn forms(batch: &Batch) -> Vec<(Offset, TimeMs, Keyed)> {
        let records = Records::new(batch.log().unwrap()).unwrap();
        records
            .map(|record| {
                let record = record.unwrap();
                let time = TimeMs(record.timestamp_ms as u64);
                (record.offset, time, Keyed::read(&record).unwrap())
            })
            .collect()
    }

    impl Interpreter {
        fn run(&mut self, line: &str) -> Vec<String> {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap();
            match words[0] {
                "cache" => {
                    self.open(&words);
                    Vec::new()
                }
                "at" => {
                    self.now = number(1);
                    Vec::new()
                }
                "state" => vec![self.state()],
                "keeps" => vec![self.keeps(Offset(number(1)))],
                "expire" => self.handle(CacheInput::Expire),
                "checkpoint" => {
                    let mut effects = Vec::new();
                    let (now, below) = (TimeMs(self.now), Offset(number(1)));
                    let cache = self.cache.as_mut().unwrap();
                    cache.checkpoint(now, below, None, &mut effects);
                    self.show_all(effects)
                }
                "written" => self.log(Input::Written {
                    end: Offset(number(1)),
                }),
                "flushed" => self.log(Input::Flushed {
                    end: Offset(number(1)),
                }),
                "failed" => {
                    let why = match words[2] {
                        "full" => WriteFailure::Full,
                        "io" => WriteFailure::Io,
                        _ => WriteFailure::Poisoned,
                    };
                    let from = Offset(number(1));
                    self.journal.split_off(&from);
                    self.log(Input::WriteFailed { from, why })
                }
                _ => {
                    let ops = line.split(';').map(|one| {
                        let words: Vec<&str> = one.split_whitespace().collect();
                        (CacheTicket(words[0].parse().unwrap()), op(&words[1..]))
                    });
                    self.handle(CacheInput::Ops(ops.collect()))
                }
            }
        }

        fn open(&mut self, words: &[&str]) {
            let mut options = CacheOptions::default();
            let shard = if words[1] == "durable" {
                ShardOptions::durable(match named(words, "commit") {
                    Some("flushed") => CommitWhen::Flushed,
                    _ => CommitWhen::Written,
                })
            } else {
                options.value_bytes = named(words, "bytes").unwrap().parse().unwrap();
                ShardOptions::memory(1 << 20, 1 << 20, Overflow::DropOld)
            };
            let shard = Shard::new(shard, ProducerTable::new(0));
            self.journal.clear();
            self.cache = Some(CacheShard::new(shard, options, Fold::new(options.once)));
        }

        fn log(&mut self, input: Input) -> Vec<String> {
            self.handle(CacheInput::Log(input))
        }

        fn handle(&mut self, input: CacheInput) -> Vec<String> {
            let mut effects = Vec::new();
            let cache = self.cache.as_mut().unwrap();
            cache.handle(TimeMs(self.now), input, &mut effects);
            self.show_all(effects)
        }

        fn show_all(&mut self, effects: Vec<CacheEffect>) -> Vec<String> {
            effects
                .into_iter()
                .map(|effect| match effect {
                    CacheEffect::Log(Effect::Write { batch, end }) => {
                        let forms: Vec<String> = forms(&batch)
                            .iter()
                            .map(|(_, _, form)| record(form))
                            .collect();
                        let line = format!("write {}..{end}: {}", batch.base, forms.join(", "));
                        self.journal.insert(batch.base, batch);
                        line
                    }
                    CacheEffect::Log(other) => format!("{other:?}"),
                    CacheEffect::Answer { ticket, outcome } => match outcome {
                        Ok(told) => format!("{}: {}", ticket.0, answer(&told)),
                        Err(why) => format!("{}: refused, {why}", ticket.0),
                    },
                })
                .collect()
        }

        fn keeps(&self, offset: Offset) -> String {
            let cache = self.cache.as_ref().unwrap();
            let (_, batch) = self.journal.range(..=offset).next_back().unwrap();
            let found = forms(batch);
            let (_, time, form) = found.iter().find(|(at, _, _)| *at == offset).unwrap();
            let keeps = cache.keeps(form, offset, *time, TimeMs(self.now));
            let what = if keeps { "stays" } else { "goes" };
            format!("{} at {offset} {what}", record(form))
        }

        fn state(&self) -> String {
            let cache = self.cache.as_ref().unwrap();
            let (shard, stats) = (cache.shard(), cache.stats());
            format!(
                "committed={} end={} keys={} counters={} expired={} evicted={}",
                shard.committed(),
                shard.end(),
                stats.keys,
                stats.counters,
                stats.expired,
                stats.evicted
            )
        }
    }

    fn rerun(script: &str) -> String {
        let mut interpreter = Interpreter::default();
        let mut out = String::new();
        let mut told = Vec::new();
        let mut in_transcript = false;
        let finish = |out: &mut String, told: &mut Vec<String>| {
            if !told.is_empty() {
                out.push_str("----\n");
                told.drain(..)
                    .for_each(|line: String| out.push_str(&(line + "\n")));
            }
        };
        for line in script.lines() {
            match line {
                "----" => in_transcript = true,
                "" => {
                    finish(&mut out, &mut told);
                    in_transcript = false;
                    out.push('\n');
                }
                _ if in_transcript => {}
                _ => {
                    out.push_str(line);
                    out.push('\n');
                    if !line.starts_with('#') {
                        told.extend(interpreter.run(line));
                    }
                }
            }
        }
        finish(&mut out, &mut told);
        out
    }

    fn scripts() -> Vec<PathBuf> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/cache");
        let mut found: Vec<PathBuf> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        found.sort();
        found
    }

    #[test]
    fn every_script_gives_its_transcript() {
        assert!(scripts().len() >= 5);
        for path in scripts() {
            let old = std::fs::read_to_string(&path).unwrap();
            let new = rerun(&old);
            if new != old && std::env::var_os("UPDATE_SCRIPTS").is_some() {
                std::fs::write(&path, &new).unwrap();
            } else {
                assert_eq!(new, old, "{}", path.display());
            }
        }
    }
}
