//! What can happen while a broker serves, one thing at a time.

use std::sync::Arc;

use felix_engine::{Append, Batch, Input, Page, Ticket, WriteFailure};
use felix_journal::disk::{CallKind, Fault};
use felix_journal::{Disk, ReadRefused, durable};
use felix_model::Offset;

use super::{Asked, World};
use crate::check::Check;
use crate::faults::Arm;
use crate::pool::Report;
use crate::publisher::Sending;
use crate::subscriber::Wish;
use crate::twin::Twin;

impl World {
    /// One thing happens.
    pub(super) fn step(&mut self) {
        match self.random.below(100) {
            0..=27 => self.publish(false),
            28..=42 => self.write_group(),
            43..=59 => self.hear_report(),
            60..=67 => self.read_page(),
            68..=80 => self.subscriber_acts(false),
            81..=90 => self.pass_time(),
            91..=95 => self.run_job(),
            96 => self.retain(),
            97 => self.rest(),
            _ => self.break_something(),
        }
    }

    /// A publisher sends; only what it has sent before if the run is `ending`.
    pub(super) fn publish(&mut self, ending: bool) {
        let index = self.random.index(self.publishers.len());
        let Some(broker) = self.broker.as_mut() else {
            return;
        };
        if broker.shard.room() == 0 {
            return;
        }
        let Some(publisher) = self.publishers.get_mut(index) else {
            return;
        };
        if publisher.is_idempotent() && !self.mark_producers() {
            return;
        }
        let (Some(broker), Some(publisher)) =
            (self.broker.as_mut(), self.publishers.get_mut(index))
        else {
            return;
        };
        let tail = broker.shard.end();
        let sending = if ending {
            publisher.resend(&mut self.random, &mut self.oracle, self.now)
        } else {
            publisher.send(&mut self.random, &mut self.oracle, self.now, tail)
        };
        if let Some(sending) = sending {
            self.append(index, sending);
        }
    }

    fn append(&mut self, publisher: usize, sending: Sending) {
        let Sending {
            uid,
            draft,
            expected,
            produced,
            ack,
        } = sending;
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.tally.sent += u64::from(draft.count());
        self.transcript.say(format_args!(
            "append {}: batch {} of {}, {expected:?} {produced:?} {ack:?}",
            ticket.0,
            uid.0,
            draft.count()
        ));
        if ack != felix_engine::AckWhen::Never {
            self.tickets.insert(ticket, Asked { publisher, uid });
        }
        let expected = if self.plan.is(Twin::IgnoreCondition) {
            None
        } else {
            expected
        };
        self.tell(Input::Append(Append {
            ticket,
            batch: draft,
            expected,
            producer: produced,
            ack,
        }));
    }

    /// As the server does before the first idempotent append: recovery reads a log through only where this is found.
    fn mark_producers(&mut self) -> bool {
        let Some(broker) = self.broker.as_mut() else {
            return false;
        };
        if broker.is_marked {
            return true;
        }
        let marker = Self::producers_marker();
        let disk = self.driver.as_ref();
        let made = match durable::create(disk, &marker) {
            Err(error) if error.kind == std::io::ErrorKind::AlreadyExists => marker
                .parent()
                .is_some_and(|parent| disk.sync_dir(parent).is_ok()),
            made => made.is_ok(),
        };
        broker.is_marked = made;
        made
    }

    /// The journal writes what is queued.
    pub(super) fn write_group(&mut self) {
        let drops = self.plan.is(Twin::DropWrite) && self.random.percent(10);
        let Some(broker) = self.broker.as_mut() else {
            return;
        };
        let wrote = broker.pool.write(&mut self.random, self.now, drops);
        if wrote.batches > 0 {
            self.transcript.say(format_args!(
                "wrote {} batches up to {}",
                wrote.batches, wrote.end
            ));
            self.oracle.wrote(wrote.end, self.now);
        }
        self.note_trouble();
    }

    /// The shard hears what the journal said.
    pub(super) fn hear_report(&mut self) {
        let Some(broker) = self.broker.as_mut() else {
            return;
        };
        let Some(report) = broker.pool.next_report() else {
            return;
        };
        self.transcript.say(format_args!("{report:?}"));
        match report {
            Report::Written(end) => self.tell(Input::Written { end }),
            Report::Flushed(end) => {
                self.oracle.flushed(end);
                self.tell(Input::Flushed { end });
            }
            Report::Failed(from, why) => {
                self.tell(Input::WriteFailed { from, why });
                if let Some(broker) = self.broker.as_mut() {
                    broker.has_failed |=
                        why != WriteFailure::Full || self.plan.is(Twin::ReuseOffset);
                }
            }
        }
    }

    /// A page of history is read, and the shard hears of it.
    pub(super) fn read_page(&mut self) {
        let Some(broker) = self.broker.as_mut() else {
            return;
        };
        if broker.reads.is_empty() {
            return;
        }
        let want = broker
            .reads
            .swap_remove(self.random.index(broker.reads.len()));
        self.tally.pages += 1;
        let page = match broker
            .log
            .read(want.from, want.max_bytes as usize, want.until)
        {
            Ok(page) => batches(page.batches).map_or(Page::Unreadable, Page::Batches),
            Err(ReadRefused::BelowStart { oldest }) => Page::BelowStart { oldest },
            Err(refused) => {
                self.transcript
                    .say(format_args!("unreadable at {}: {refused}", want.from));
                if let ReadRefused::Damaged(damage) = refused {
                    self.oracle
                        .findings
                        .report(Check::Bytes, format!("a reader finds damage: {damage}"));
                }
                Page::Unreadable
            }
        };
        let is_history = matches!(page, Page::Batches(_));
        self.tell(Input::PageRead {
            reader: want.reader,
            from: want.from,
            page,
        });
        if let Some(subscriber) = self
            .subscribers
            .iter_mut()
            .find(|one| one.id == want.reader)
        {
            subscriber.is_in_history = is_history;
        }
    }

    /// A subscriber does what it wants; one that is `draining` wants everything.
    pub(super) fn subscriber_acts(&mut self, draining: bool) {
        let index = self.random.index(self.subscribers.len());
        let Some(subscriber) = self.subscribers.get_mut(index) else {
            return;
        };
        let reader = subscriber.id;
        match subscriber.wish(&mut self.random, draining) {
            Some(Wish::Subscribe(start)) => self.tell(Input::Subscribe { reader, start }),
            Some(Wish::Pull(_)) if self.plan.is(Twin::ForgetReader) && self.random.percent(5) => {}
            Some(Wish::Pull(max_bytes)) => self.tell(Input::Pull { reader, max_bytes }),
            Some(Wish::Unsubscribe) => self.tell(Input::Unsubscribe { reader }),
            None => {}
        }
    }

    /// The clock moves, and what is due is done on time.
    pub(super) fn pass_time(&mut self) {
        let step = self.random.pick([1, 1, 2, 3, 10, 60]);
        let target = self.now.plus(step);
        while let Some(due) = self
            .broker
            .as_ref()
            .and_then(|broker| broker.pool.next_due())
            && due <= target
            && !self.injector.has_stopped()
        {
            self.set_now(due);
            let now = self.now;
            if let Some(broker) = self.broker.as_mut() {
                broker.pool.run_due(&mut self.random, now);
            }
            self.note_trouble();
        }
        // Where the machine stopped, the clock of the run does.
        if !self.injector.has_stopped() {
            self.set_now(target);
        }
    }

    pub(super) fn run_job(&mut self) {
        if let Some(broker) = self.broker.as_mut() {
            broker.pool.run_any(&mut self.random);
        }
        self.note_trouble();
    }

    fn retain(&mut self) {
        let Some(broker) = self.broker.as_mut() else {
            return;
        };
        let (before, committed) = (broker.shard.start(), broker.shard.committed());
        let start = broker.pool.retain(self.plan.retention, self.now, committed);
        if start > before {
            self.transcript
                .say(format_args!("forgot everything below {start}"));
            self.tally.trimmed += 1;
            self.oracle.trimmed(start);
            self.tell(Input::Trimmed { start });
        }
        self.note_trouble();
    }

    fn rest(&mut self) {
        if let Some(broker) = self.broker.as_mut() {
            broker.pool.rest();
        }
        self.note_trouble();
    }

    /// From when on the interval of `periodic` is no longer kept: the disk has failed.
    fn note_trouble(&mut self) {
        let is_poisoned = self
            .broker
            .as_ref()
            .is_some_and(|broker| broker.pool.is_poisoned());
        if is_poisoned && self.failed_at.is_none() {
            self.failed_at = Some(self.now);
        }
    }

    /// The disk fails soon, fills up, or is well again.
    fn break_something(&mut self) {
        if !self.random.percent(self.plan.faulty_percent) {
            return;
        }
        let skip = self.random.below(6);
        let io = |kind| Arm {
            kind: Some(kind),
            skip,
            fault: Fault::Io,
        };
        match self.random.below(12) {
            0 => self.injector.arm(io(CallKind::Write)),
            1 => self.injector.arm(io(CallKind::Sync)),
            2 => self.injector.arm(io(CallKind::SyncDir)),
            3 => {
                let kind = self.random.pick([
                    CallKind::Create,
                    CallKind::Rename,
                    CallKind::Unlink,
                    CallKind::SetLen,
                    CallKind::Reserve,
                ]);
                self.injector.arm(io(kind));
            }
            4 => {
                // A write that fails and cannot be undone.
                self.injector.arm(Arm {
                    skip: 0,
                    ..io(CallKind::Write)
                });
                self.injector.arm(Arm {
                    skip: 0,
                    ..io(CallKind::SetLen)
                });
            }
            5 => self.injector.arm(Arm {
                kind: Some(CallKind::Write),
                skip,
                fault: Fault::Full,
            }),
            6 => self.fill(),
            7 => self.fail_reads(),
            _ => {
                self.transcript.say(format_args!("the disk is well"));
                self.heal();
            }
        }
    }

    /// There is a little room left.
    fn fill(&mut self) {
        let Ok(space) = self.disk.space(&Self::log_dir()) else {
            return;
        };
        let left = self.random.below(3_000);
        self.transcript
            .say(format_args!("the disk has {left} bytes left"));
        self.tally.fillings += 1;
        self.disk.full(space.total - space.available + left);
    }

    fn fail_reads(&mut self) {
        let Ok(entries) = self.disk.list(&Self::log_dir()) else {
            return;
        };
        let logs: Vec<_> = entries
            .iter()
            .filter(|entry| entry.name.ends_with(".log"))
            .collect();
        let Some(entry) = logs.get(self.random.index(logs.len())) else {
            return;
        };
        self.transcript
            .say(format_args!("{} cannot be read", entry.name));
        self.tally.read_faults += 1;
        self.reads_fail = true;
        self.disk.fail_reads(&Self::log_dir().join(&entry.name));
    }

    pub(super) fn heal(&mut self) {
        self.injector.heal();
        self.disk.full(ROOMY);
        self.reads_fail = false;
    }
}

/// Room that is never used up.
const ROOMY: u64 = 1 << 40;

/// Batches as the log gave them; none when one is not a batch, or there is none.
pub(crate) fn batches(page: Vec<bytes::Bytes>) -> Option<Vec<Arc<Batch>>> {
    let batches: Option<Vec<_>> = page
        .into_iter()
        .map(|log| Batch::from_log(log).ok().map(Arc::new))
        .collect();
    batches.filter(|batches| !batches.is_empty())
}

/// Reads a whole log, page by page.
pub(crate) fn read_all(
    log: &felix_journal::LogReader,
    start: Offset,
    end: Offset,
    page_bytes: usize,
) -> Result<Vec<Arc<Batch>>, String> {
    let mut all: Vec<Arc<Batch>> = Vec::new();
    let mut from = start;
    while from < end {
        let page = log
            .read(from, page_bytes, end)
            .map_err(|refused| refused.to_string())?;
        if page.next <= from {
            return Err(format!("nothing at {from}"));
        }
        from = page.next;
        // Where everything was compacted away a page has no batch.
        if !page.batches.is_empty() {
            let batches =
                batches(page.batches).ok_or_else(|| format!("not a batch below {from}"))?;
            all.extend(batches);
        }
    }
    Ok(all)
}
