//! Carrying out what the shard decides, as the server's shell does.

use felix_engine::{AppendRefused, Appended, Batch, Effect, Run, Ticket};
use felix_model::{BatchHeader, Offset};

use super::{PageWanted, World};
use crate::check::Check;
use crate::pool::Report;
use crate::subscriber::without_first;
use crate::twin::Twin;

impl World {
    pub(super) fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Write { batch, end } => self.write(&batch, end),
            Effect::Reply { ticket, outcome } => self.reply(ticket, outcome),
            Effect::Subscribed {
                reader,
                start,
                live,
            } => {
                self.transcript
                    .say(format_args!("{reader} begins at {start}, live {live}"));
                let Some(broker) = &self.broker else { return };
                let marks = (broker.shard.start(), broker.shard.committed());
                let findings = &mut self.oracle.findings;
                findings.expect(live >= start && live <= marks.1, Check::Cursor, || {
                    format!("history of {reader} is said to end at {live}")
                });
                if let Some(subscriber) = self.subscribers.iter_mut().find(|one| one.id == reader) {
                    subscriber.subscribed(start, marks, findings);
                }
            }
            Effect::SubscribeRefused { reader, why } => {
                self.transcript.say(format_args!("{reader} refused: {why}"));
                if let Some(subscriber) = self.subscribers.iter_mut().find(|one| one.id == reader) {
                    subscriber.refused(why, self.cuts, &mut self.oracle.findings);
                }
            }
            Effect::Deliver {
                reader,
                from,
                batches,
                skipped_before,
                lost,
            } => {
                self.oracle.findings.expect(
                    skipped_before == 0 && lost == 0,
                    Check::Cursor,
                    || {
                        format!(
                            "{reader} was told of {skipped_before} skipped and {lost} lost records"
                        )
                    },
                );
                self.deliver(reader, from, batches);
            }
            Effect::Read {
                reader,
                from,
                max_bytes,
                until,
            } => {
                if let Some(broker) = self.broker.as_mut() {
                    broker.reads.push(PageWanted {
                        reader,
                        from,
                        max_bytes,
                        until,
                    });
                }
            }
            Effect::ReaderEnded { reader, why } => {
                self.transcript.say(format_args!("{reader} ended: {why:?}"));
                let poisoned = self
                    .broker
                    .as_ref()
                    .is_some_and(|broker| broker.pool.is_poisoned());
                let has_trouble = self.reads_fail || poisoned;
                if let Some(subscriber) = self.subscribers.iter_mut().find(|one| one.id == reader) {
                    subscriber.ended(why, has_trouble, &mut self.oracle.findings);
                }
            }
            Effect::Closed => {
                if let Some(broker) = self.broker.as_mut() {
                    broker.is_closed = true;
                }
            }
        }
    }

    fn write(&mut self, batch: &Batch, end: Offset) {
        let Some(broker) = self.broker.as_mut() else {
            return;
        };
        let Some(log) = batch.log() else {
            return self
                .oracle
                .findings
                .report(Check::Bytes, format!("nothing to write at {}", batch.base));
        };
        self.transcript.say(format_args!(
            "write {}..{end} g{}",
            batch.base, batch.generation
        ));
        self.transcript.bytes(log);
        broker.pool.push(log.clone());
        if self.plan.is(Twin::AckBeforeWrite) {
            broker.pool.report(Report::Written(end));
            broker.pool.report(Report::Flushed(end));
        }
    }

    fn reply(&mut self, ticket: Ticket, outcome: Result<Appended, AppendRefused>) {
        if self.plan.is(Twin::SwallowReply) && self.random.percent(5) {
            return;
        }
        self.transcript
            .say(format_args!("answer {}: {outcome:?}", ticket.0));
        let Some(asked) = self.tickets.remove(&ticket) else {
            let what = format!("append {} is answered and nobody asks", ticket.0);
            return self.oracle.findings.report(Check::Liveness, what);
        };
        let generation = self
            .broker
            .as_ref()
            .map(|broker| broker.generation)
            .unwrap_or_default();
        match outcome {
            Ok(appended) => {
                if let Appended::Committed { base, end } = appended {
                    self.tally.acked += end.since(base);
                }
                self.tally.duplicates += u64::from(matches!(appended, Appended::Duplicate { .. }));
                self.oracle.acked(asked.uid, appended, generation);
            }
            Err(why) => {
                self.tally.refused += 1;
                if !self.plan.is(Twin::WriteRefused) || why != AppendRefused::OutcomeUnknown {
                    self.oracle.refused(asked.uid, why);
                } else {
                    self.oracle.refused(asked.uid, AppendRefused::Poisoned);
                }
            }
        }
        let fresh = self.next_producer;
        self.next_producer += 1;
        if let Some(publisher) = self.publishers.get_mut(asked.publisher) {
            publisher.answered(&mut self.random, asked.uid, outcome, fresh);
        }
    }

    fn deliver(&mut self, reader: felix_engine::ReaderId, from: Offset, batches: Run) {
        let Some(broker) = &self.broker else { return };
        let committed = broker.shard.committed();
        let Some(subscriber) = self.subscribers.iter_mut().find(|one| one.id == reader) else {
            return;
        };
        let (mut from, mut batches) = (from, batches);
        let is_join = std::mem::take(&mut subscriber.is_in_history);
        if self.plan.is(Twin::JoinSkipsOne)
            && is_join
            && let Some((next, rest)) = without_first(&batches)
        {
            (from, batches) = (next, rest);
        }
        self.tally.delivered += batches.len() as u64;
        self.transcript.say(format_args!(
            "{reader} is given {} batches from {from}",
            batches.len()
        ));
        subscriber.delivered(from, &batches, committed, &mut self.oracle.findings);
        if self.plan.is(Twin::RepeatOne) && self.random.percent(5) {
            subscriber.delivered(from, &batches, committed, &mut self.oracle.findings);
        }
        for batch in batches.iter() {
            if self.plan.is(Twin::FlipByte)
                && self.random.percent(5)
                && let Some(bad) = flipped(batch)
            {
                self.oracle.delivered(&bad, from);
            } else {
                self.oracle.delivered(batch, from);
            }
        }
    }
}

/// The batch with its last payload byte changed; none when there is no such byte.
fn flipped(batch: &Batch) -> Option<Batch> {
    let log = batch.log()?;
    let mut bytes = log.to_vec();
    let header = BatchHeader::parse(log).ok()?;
    // The last byte of a record is its count of headers, the one before it the end of its value.
    let at = bytes.len().checked_sub(2)?;
    if header.record_count != 1 || bytes.len() < 120 {
        return None;
    }
    *bytes.get_mut(at)? ^= 1;
    Batch::from_log(bytes.into()).ok()
}
