//! Runs the scripts in `testdata/groups/`: commands, and below `----` what was answered.
//!
//! ```text
//! publish [hole=N] "a" "b"      trim N      at MS      crash [N more of the lane]      hold | commit | compact
//! set_back MS (by so much the clock on the wall is behind the one that nobody sets, which `at` moves)
//! poll 1 g [max=N] [wait=MS] [visibility=MS] [from=CONNECTION] [as=MEMBER] [reclaim]
//! ack 2 g 0 1      nack 3 g 0/1 [delay=MS]      extend 4 g 0/1 ms=MS      bury 5 g 0 [reason=WORD] [from=..] [as=..]
//! letters 6 g      redrive 7 g 0|all      discard 8 g 0|all
//! seek 9 g earliest|latest|N [if_new]      describe 10 g      delete 11 g      list 12
//! schedule 13 ID due=MS "a"      cancel 14 ID      schedules 15      stream
//! ```
//!
//! The lane commits at once, but for what comes between `hold` and `commit`. A settlement names an attempt behind a
//! slash; with `from` it must be the holder's. `UPDATE_SCRIPTS=1 cargo test -p felix-engine --test groups scripts`
//! rewrites the transcripts.

use std::fs;
use std::path::Path;

use super::world::{World, holder, name, poll, settle};
use felix_engine::groups::{
    Answer, Ask, Delivery, Description, GroupName, Item, ScheduleId, SeekTo, Settle, Ticket, Verb,
    Which,
};
use felix_model::{BatchBuilder, BatchOptions, Offset, TimeMs};

#[test]
fn every_script_gives_its_transcript() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/groups");
    let update = std::env::var_os("UPDATE_SCRIPTS").is_some();
    let mut changed = Vec::new();
    let mut scripts = 0;
    for entry in fs::read_dir(dir).expect("testdata is there") {
        let path = entry.expect("testdata is readable").path();
        let old = fs::read_to_string(&path).expect("a script is readable");
        let new = rerun(&old);
        scripts += 1;
        if new != old {
            if update {
                fs::write(&path, &new).expect("a script is writable");
            }
            let line = old
                .lines()
                .zip(new.lines())
                .take_while(|(a, b)| a == b)
                .count();
            let happened: Vec<&str> = new.lines().skip(line.saturating_sub(3)).take(8).collect();
            changed.push(format!(
                "{}:{}\n{}",
                path.display(),
                line + 1,
                happened.join("\n")
            ));
        }
    }
    assert!(scripts >= 6, "{scripts} scripts");
    assert!(
        changed.is_empty() || update,
        "transcripts differ:\n{}",
        changed.join("\n\n")
    );
}

#[test]
fn what_was_appended_before_the_groups_were_opened_again_is_handed_out_in_place_of_what_was_lost() {
    let mut world = World::usual();
    world.publish(0, &[b"a", b"lost", b"lost"]);
    let take = |world: &mut World| {
        let asked = world.asked(Ask::Poll(poll("g", holder(1, None), 9)));
        let Answer::Records(records) = asked else {
            panic!("{asked:?}");
        };
        let offsets: Vec<_> = records.iter().map(|one| (one.record.offset.0, 1)).collect();
        world.asked(settle("g", Verb::Ack, &offsets));
        offsets
    };
    assert_eq!(take(&mut world), [(0, 1), (1, 1), (2, 1)]);
    // The power went with all but the first record, and others came to where the lost ones were while the groups
    // could not be opened.
    world.cut = Some(Offset(1));
    world.crash(0);
    assert_eq!(take(&mut world), [(1, 1), (2, 1)]);
    // The lane has the cut by now.
    world.crash(0);
    assert_eq!(take(&mut world), []);
}

fn rerun(script: &str) -> String {
    let mut run = Run {
        world: World::usual(),
        held: false,
        asked: Vec::new(),
    };
    let mut out = Vec::new();
    for block in script.trim_end().split("\n\n") {
        let commands: Vec<&str> = block.lines().take_while(|line| *line != "----").collect();
        let mut transcript = Vec::new();
        let mut said_anything = false;
        for command in commands.iter().filter(|line| !line.starts_with('#')) {
            said_anything = true;
            transcript.extend(run.line(command));
        }
        let mut block = commands.join("\n");
        if said_anything {
            if transcript.is_empty() {
                transcript.push("ok".to_owned());
            }
            block = format!("{block}\n----\n{}", transcript.join("\n"));
        }
        out.push(block);
    }
    out.join("\n\n") + "\n"
}

struct Run {
    world: World,
    held: bool,
    /// The script's number of each question.
    asked: Vec<(Ticket, String)>,
}

struct Words<'a>(Vec<&'a str>);

impl Words<'_> {
    fn named(&self, field: &str) -> Option<&str> {
        self.0
            .iter()
            .find_map(|word| word.strip_prefix(field)?.strip_prefix('='))
    }

    fn number(&self, field: &str) -> Option<u64> {
        self.named(field).map(|value| value.parse().unwrap())
    }

    fn has(&self, word: &str) -> bool {
        self.0.contains(&word)
    }

    fn group(&self) -> GroupName {
        name(self.0[2])
    }

    /// The words behind the group that are no fields.
    fn rest(&self) -> impl Iterator<Item = &str> {
        self.0[3..]
            .iter()
            .copied()
            .filter(|word| !word.contains('='))
    }

    fn quoted(&self) -> Vec<&[u8]> {
        let quoted = self.0.iter().filter(|word| word.starts_with('"'));
        quoted
            .map(|word| word.trim_matches('"').as_bytes())
            .collect()
    }

    fn items(&self) -> Vec<Item> {
        self.rest()
            .map(|word| {
                let (offset, attempts) = word.split_once('/').unwrap_or((word, "0"));
                Item {
                    offset: Offset(offset.parse().unwrap()),
                    attempts: attempts.parse().unwrap(),
                }
            })
            .collect()
    }

    fn which(&self) -> Which {
        match self.0[3] {
            "all" => Which::All,
            _ => Which::These(self.items().iter().map(|item| item.offset).collect()),
        }
    }
}

impl Run {
    fn line(&mut self, line: &str) -> Vec<String> {
        let words = Words(line.split_whitespace().collect());
        match words.0[0] {
            "publish" => self
                .world
                .publish(words.number("hole").unwrap_or(0), &words.quoted()),
            "trim" => self.world.trim(words.0[1].parse().unwrap()),
            "at" => self.world.at(words.0[1].parse().unwrap()),
            "set_back" => self.world.set_back = words.0[1].parse().unwrap(),
            "hold" => self.held = true,
            "commit" => self.held = false,
            "crash" => {
                let more = words.0.get(1).map_or(0, |more| more.parse().unwrap());
                self.world.crash(more);
            }
            "compact" => self.world.compact(),
            "stream" => return vec![self.stream()],
            _ => {
                let ask = ask(&words);
                let ticket = self.world.ask(ask);
                self.asked.push((ticket, words.0[1].to_owned()));
            }
        }
        if self.held {
            while self.world.report() {}
        } else {
            self.world.settle();
        }
        std::mem::take(&mut self.world.answers)
            .into_iter()
            .map(|(ticket, answer)| {
                let place = self.asked.iter().position(|(of, _)| *of == ticket).unwrap();
                let (_, number) = self.asked.remove(place);
                format!("{number}: {}", show(answer))
            })
            .collect()
    }

    fn stream(&self) -> String {
        let records: Vec<String> = self
            .world
            .records()
            .map(|record| {
                let payload = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
                format!("{} {payload:?} at {}", record.offset, record.timestamp_ms)
            })
            .collect();
        records.join(", ")
    }
}

fn ask(words: &Words<'_>) -> Ask {
    let from = words.number("from");
    let who = holder(from.unwrap_or(1), words.named("as"));
    let settle = |verb| {
        Ask::Settle(Settle {
            group: words.group(),
            verb,
            items: words.items(),
            holder: from.map(|_| who.clone()),
        })
    };
    let due = words.number("due").unwrap_or(0);
    let id = || ScheduleId::new(words.0[2].as_bytes()).unwrap();
    match words.0[0] {
        "poll" => {
            let max = words.number("max").unwrap_or(10) as u32;
            let mut poll = poll(words.0[2], who.clone(), max);
            poll.wait_ms = words.number("wait").unwrap_or(0);
            poll.visibility_ms = words.number("visibility").unwrap_or(0);
            poll.reclaim = words.has("reclaim");
            Ask::Poll(poll)
        }
        "ack" => settle(Verb::Ack),
        "nack" => settle(Verb::Nack {
            delay_ms: words.number("delay").unwrap_or(0),
        }),
        "extend" => settle(Verb::Extend {
            ms: words.number("ms").unwrap_or(0),
        }),
        "bury" => settle(Verb::Bury {
            reason: words.named("reason").map(Into::into),
        }),
        "letters" => Ask::Letters {
            group: words.group(),
            after: None,
            limit: 10,
            payloads: true,
        },
        "redrive" => Ask::Redrive {
            group: words.group(),
            which: words.which(),
        },
        "discard" => Ask::Discard {
            group: words.group(),
            which: words.which(),
        },
        "seek" => Ask::Seek {
            group: words.group(),
            to: match words.0[3] {
                "earliest" => SeekTo::Earliest,
                "latest" => SeekTo::Latest,
                offset => SeekTo::Offset(Offset(offset.parse().unwrap())),
            },
            if_new: words.has("if_new"),
        },
        "describe" => Ask::Describe {
            group: words.group(),
        },
        "delete" => Ask::Delete {
            group: words.group(),
        },
        "list" => Ask::List {
            after: None,
            limit: 10,
        },
        "schedule" => {
            let mut builder = BatchBuilder::new(BatchOptions::default());
            builder.push(0, None, Some(words.quoted()[0]), &[]).unwrap();
            Ask::Schedule {
                id: id(),
                due: TimeMs(due),
                batch: builder.finish().unwrap().freeze(),
            }
        }
        "cancel" => Ask::Cancel { id: id() },
        "schedules" => Ask::Schedules {
            after: None,
            limit: 10,
            records: false,
        },
        other => panic!("no command {other}"),
    }
}

fn show(answer: Answer) -> String {
    match answer {
        Answer::Records(records) if records.is_empty() => "nothing".to_owned(),
        Answer::Records(records) => join(records.iter().map(delivery)),
        Answer::Settled(results) => join(results.iter().map(|result| match result {
            Ok(0) => "ok".to_owned(),
            Ok(ms) => format!("ok, {ms} ms"),
            Err(refused) => refused.to_string(),
        })),
        Answer::Letters { letters, more } => {
            assert!(!more);
            join(letters.iter().map(|letter| {
                let kept = if letter.record.is_some() {
                    ""
                } else {
                    ", not kept"
                };
                let (offset, attempts) = (letter.offset, letter.attempts);
                format!("{offset} x{attempts} ({}{kept})", letter.reason)
            }))
        }
        Answer::Moved {
            count,
            left,
            missing,
        } => {
            format!("moved {count}, left {left}, missing {}", missing.len())
        }
        Answer::Position { offset, moved } => format!("position {offset} moved={moved}"),
        Answer::Description(group) => description(&group),
        Answer::Deleted { existed } => format!("deleted existed={existed}"),
        Answer::Listed { groups, .. } => join(groups.iter().map(description)),
        Answer::Scheduled { due, created } => format!("due at {due} created={created}"),
        Answer::Cancelled { existed } => format!("cancelled existed={existed}"),
        Answer::Schedules { schedules, .. } => join(schedules.iter().map(|schedule| {
            let id = String::from_utf8_lossy(schedule.id.as_bytes()).into_owned();
            format!("{id} at {}", schedule.due)
        })),
        Answer::Refused(refused) => refused.to_string(),
    }
}

fn join(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

fn delivery(delivery: &Delivery) -> String {
    let payload = delivery.record.value.as_deref().unwrap_or_default();
    let payload = String::from_utf8_lossy(payload);
    let skipped = match delivery.skipped_before {
        0 => String::new(),
        skipped => format!(" behind {skipped}"),
    };
    format!(
        "{} {payload:?} x{}{skipped}",
        delivery.record.offset, delivery.attempts
    )
}

fn description(group: &Description) -> String {
    let committed = group
        .committed
        .map_or_else(|| "-".to_owned(), |offset| offset.to_string());
    format!(
        "{} committed={committed} next={} tail={} in_flight={} owed={} letters={} lag={} trimmed={}",
        group.group,
        group.next,
        group.tail,
        group.in_flight,
        group.owed,
        group.dead_letters,
        group.lag,
        group.trimmed
    )
}
