//! How a broker starts, how it ends, and how it starts again.

use std::sync::Arc;

use felix_engine::{
    Batch, CloseReason, CommitWhen, Input, Observed, Produced, ProducerTable, Shard, ShardOptions,
};
use felix_journal::{Log, OpenFiles, OpenRefused, Recovered};
use felix_model::native::{digest_from_records, internal_headers};
use felix_model::{Generation, Offset};

use super::steps::read_all;
use super::{Broker, World};
use crate::check::Check;
use crate::oracle::{Ending, Found};
use crate::pool::Pool;
use crate::twin::Twin;

/// How often a start is tried while the disk fails it, before it is healed and has to work.
const TRIES_UNWELL: u32 = 3;

/// How often a start is tried in all.
const TRIES_MAX: u32 = 5;

/// Turns until everything must have settled once nothing fails any more.
const SETTLE_TURNS_MAX: u32 = 50_000;

/// What one try to start came to.
enum Start {
    Serving,
    /// The machine stopped in the middle.
    Stopped,
    /// The disk failed.
    Failed(String),
    /// An operator is asked for.
    Refused(String),
}

impl World {
    /// One life, from a start to an end.
    pub(super) fn live(&mut self) {
        if self.broker.is_none() && !self.start(Ending::Orderly) {
            return;
        }
        let ending = match self.random.below(20) {
            0..=1 => Ending::Orderly,
            2..=9 => Ending::Kill,
            _ => Ending::PowerCut,
        };
        let ends_inside = ending != Ending::Orderly && self.random.percent(60);
        let steps = self.random.between(1, self.plan.steps_max);
        let stop_at = self.random.below(steps);
        for step in 0..steps {
            if ends_inside && step == stop_at {
                self.arm_stop(12);
            }
            self.step();
            if self.injector.has_stopped() {
                return self.crash_and_start(ending, true);
            }
            if self.is_over() {
                return;
            }
            let has_failed = self.broker.as_ref().is_some_and(|broker| broker.has_failed);
            if has_failed && self.random.percent(30) && !self.reopen() {
                return;
            }
        }
        self.end(ending);
    }

    fn arm_stop(&mut self, calls_max: u64) {
        self.injector.arm_stop(&mut self.random, calls_max);
    }

    fn end(&mut self, ending: Ending) {
        match ending {
            Ending::Orderly => self.close_and_start(),
            Ending::Reopen | Ending::Kill | Ending::PowerCut => self.crash_and_start(ending, false),
        }
    }

    fn crash_and_start(&mut self, ending: Ending, inside: bool) {
        let ending = if ending == Ending::Orderly {
            Ending::Kill
        } else {
            ending
        };
        let counts = if inside {
            &mut self.tally.inside
        } else {
            &mut self.tally.endings
        };
        *counts.entry(ending).or_default() += 1;
        self.crash(ending);
        self.start(ending);
    }

    fn crash(&mut self, ending: Ending) {
        self.transcript
            .say(format_args!("{ending:?} at {}", self.now));
        let seed = self.random.next();
        if ending == Ending::PowerCut {
            self.disk.power_cut(seed);
            self.cuts += u64::from(!self.is_on_commit());
        } else {
            self.disk.kill();
        }
        self.injector.restart();
        if self.random.percent(50) {
            self.heal();
        }
        self.failed_at = self.failed_at.or(Some(self.now));
        self.broker = None;
        self.tickets.clear();
        self.publishers
            .iter_mut()
            .for_each(|publisher| publisher.disconnected());
        self.subscribers
            .iter_mut()
            .for_each(|subscriber| subscriber.disconnected());
    }

    /// Starts until it serves, through further crashes; whether it does.
    fn start(&mut self, ending: Ending) -> bool {
        let mut worst = ending;
        let mut tries = 0;
        loop {
            if self.random.percent(20) && tries == 0 {
                self.arm_stop(25);
            }
            match self.try_start(worst) {
                Start::Serving => {
                    self.injector.restart();
                    return true;
                }
                Start::Stopped => {
                    let ending = self.random.pick([Ending::Kill, Ending::PowerCut]);
                    *self.tally.in_recovery.entry(ending).or_default() += 1;
                    self.crash(ending);
                    worst = worst.max(ending);
                }
                Start::Failed(why) if tries < TRIES_MAX => {
                    self.transcript.say(format_args!("not opened: {why}"));
                    tries += 1;
                    if tries >= TRIES_UNWELL {
                        self.heal();
                    }
                }
                Start::Failed(why) | Start::Refused(why) => {
                    let what = format!("not opened after {worst:?}: {why}");
                    self.oracle.findings.report(Check::Start, what);
                    self.broker = None;
                    return false;
                }
            }
        }
    }

    fn try_start(&mut self, ending: Ending) -> Start {
        let files = OpenFiles::new(Arc::clone(&self.driver), self.plan.open_files);
        let opened = Log::open_in(&files, &Self::log_dir(), self.plan.log);
        if self.injector.has_stopped() {
            return Start::Stopped;
        }
        let (mut log, recovered) = match opened {
            Ok(opened) => opened,
            Err(OpenRefused::Io(error)) => return Start::Failed(error.to_string()),
            Err(refused @ (OpenRefused::Damaged(_) | OpenRefused::InUse { .. })) => {
                return Start::Refused(refused.to_string());
            }
        };
        if self.plan.is(Twin::RefuseTornTail) && recovered.truncated_bytes > 0 {
            return Start::Refused("the log has a torn end".to_owned());
        }
        self.transcript
            .say(format_args!("{recovered:?} after {ending:?}"));
        let page_bytes = self.random.pick([1, 4_096, 1 << 20]);
        let (start, mut end) = (recovered.start, recovered.end);
        let mut batches = match read_all(&log.reader(), start, end, page_bytes) {
            Ok(batches) => batches,
            Err(why) if self.reads_fail => return Start::Failed(why),
            Err(why) => return Start::Refused(format!("what was recovered cannot be read: {why}")),
        };
        if self.plan.is(Twin::ReuseOffset)
            && ending == Ending::Reopen
            && let Some(last) = batches.pop()
            && log.truncate_to(last.base).is_ok()
        {
            end = last.base;
        }
        self.judge(ending, &recovered, end, &batches);
        self.failed_at = None;
        self.serve(log, &recovered, end, &batches);
        Start::Serving
    }

    /// Holds what was found against what was promised.
    fn judge(
        &mut self,
        ending: Ending,
        recovered: &Recovered,
        end: Offset,
        batches: &[Arc<Batch>],
    ) {
        self.tally.recoveries += 1;
        self.tally.end_max = self.tally.end_max.max(end.0);
        if recovered.truncated_bytes > 0 {
            self.tally.torn.0 += 1;
            self.tally.torn.1 += recovered.truncated_bytes;
        }
        let lost = recovered.lost_durable_bytes;
        self.oracle.findings.expect(lost == 0, Check::Durable, || {
            format!("{lost} bytes that had been durable are gone")
        });
        self.tally.unclean += u64::from(ending == Ending::Orderly && !recovered.clean);
        let loss = self.oracle.recovered(&Found {
            start: recovered.start,
            end,
            batches: batches
                .iter()
                .filter_map(|batch| batch.log().cloned())
                .collect(),
            ending,
            failed_at: self.failed_at.unwrap_or(self.now),
        });
        self.tally.lost_acked += loss.acked;
        self.tally.lost_read += loss.read;
    }

    /// As the server opens a shard.
    fn serve(&mut self, log: Log, recovered: &Recovered, end: Offset, batches: &[Arc<Batch>]) {
        let mut options = ShardOptions::durable(if self.is_on_commit() {
            CommitWhen::Flushed
        } else {
            CommitWhen::Written
        });
        options.limits = self.plan.limits;
        options.start = recovered.start;
        options.end = end;
        options.generation = self.generation(recovered);
        let mut producers = ProducerTable::new(options.limits.producers_max);
        let has_marker = self
            .driver
            .open_read_only(&Self::producers_marker())
            .is_ok();
        if has_marker && !self.plan.is(Twin::ForgetProducers) {
            batches
                .iter()
                .filter_map(|batch| observed(batch))
                .for_each(|seen| producers.observe(seen));
        }
        self.broker = Some(Broker {
            log: log.reader(),
            pool: Pool::new(log, self.plan.mode, self.plan.interval_ms),
            generation: options.generation,
            shard: Shard::new(options, producers),
            reads: Vec::new(),
            is_marked: false,
            has_failed: false,
            is_closed: false,
        });
    }

    fn generation(&self, recovered: &Recovered) -> Generation {
        if recovered.clean || self.plan.is(Twin::KeepGeneration) {
            recovered.last_generation
        } else {
            recovered
                .last_generation
                .next()
                .unwrap_or(recovered.last_generation)
        }
    }

    /// A write or a sync failed: the shard is closed and opened again by recovery. Whether it is served again.
    fn reopen(&mut self) -> bool {
        self.transcript.say(format_args!("reopening"));
        self.tell(Input::Close {
            reason: CloseReason::Reopening,
        });
        self.expect_closed();
        let Some(broker) = self.broker.take() else {
            return false;
        };
        broker.pool.close(&mut self.random, self.now);
        self.subscribers
            .iter_mut()
            .for_each(|subscriber| subscriber.disconnected());
        if self.injector.has_stopped() {
            self.crash_and_start(Ending::Kill, true);
            return false;
        }
        *self.tally.endings.entry(Ending::Reopen).or_default() += 1;
        self.start(Ending::Reopen)
    }

    /// Everything that was asked has been answered.
    fn expect_closed(&mut self) {
        let is_closed = self.broker.as_ref().is_some_and(|broker| broker.is_closed);
        let unanswered = self.tickets.len();
        self.oracle
            .findings
            .expect(is_closed && unanswered == 0, Check::Liveness, || {
                format!("closed: {is_closed}, and {unanswered} appends were never answered")
            });
        self.tickets.clear();
        self.publishers
            .iter_mut()
            .for_each(|publisher| publisher.disconnected());
    }

    fn close_and_start(&mut self) {
        self.transcript.say(format_args!("closing"));
        self.tell(Input::Close {
            reason: CloseReason::Stopping,
        });
        for _ in 0..SETTLE_TURNS_MAX {
            if self.broker.as_ref().is_none_or(|broker| broker.is_closed)
                || self.injector.has_stopped()
            {
                break;
            }
            self.write_group();
            self.hear_report();
            self.pass_time();
        }
        if self.injector.has_stopped() {
            return self.crash_and_start(Ending::Kill, true);
        }
        self.expect_closed();
        let Some(broker) = self.broker.take() else {
            return;
        };
        let is_whole = broker.pool.close(&mut self.random, self.now) && !broker.has_failed;
        if self.injector.has_stopped() {
            return self.crash_and_start(Ending::Kill, true);
        }
        let ending = if is_whole {
            Ending::Orderly
        } else {
            Ending::Reopen
        };
        *self.tally.endings.entry(ending).or_default() += 1;
        self.subscribers
            .iter_mut()
            .for_each(|subscriber| subscriber.disconnected());
        // The process ends.
        self.disk.kill();
        self.start(ending);
    }

    /// Nothing fails any more: everything asked is answered, everybody reads everything, and the log is whole.
    pub(super) fn settle(&mut self) {
        self.heal();
        self.injector.restart();
        for _ in 0..SETTLE_TURNS_MAX {
            if self.is_settled() || self.is_over() {
                break;
            }
            if self.broker.as_ref().is_some_and(|broker| broker.has_failed) && !self.reopen() {
                return;
            }
            match self.random.below(8) {
                0 => self.publish(true),
                1 => self.write_group(),
                2 | 3 => self.hear_report(),
                4 => self.read_page(),
                5 => self.subscriber_acts(true),
                6 => self.run_job(),
                _ => self.pass_time(),
            }
        }
        let is_settled = self.is_settled();
        let (asked, unsettled) = (
            self.tickets.len(),
            self.publishers
                .iter()
                .filter(|one| one.is_unsettled())
                .count(),
        );
        self.oracle.findings.expect(is_settled, Check::Liveness, || {
            format!("nothing fails and yet {asked} answers are missing, {unsettled} publishers wait, or a reader does")
        });
        if !self.is_over() {
            self.close_and_start();
        }
    }

    fn is_settled(&self) -> bool {
        let Some(broker) = &self.broker else {
            return true;
        };
        let end = broker.shard.end();
        !broker.has_failed
            && !broker.pool.has_work()
            && broker.shard.committed() == end
            && self.tickets.is_empty()
            && self
                .publishers
                .iter()
                .all(|publisher| !publisher.is_unsettled())
            && self
                .subscribers
                .iter()
                .all(|subscriber| subscriber.has_reached(end))
    }
}

/// What a batch in the log says about its producer.
fn observed(batch: &Batch) -> Option<Observed> {
    let log = batch.log()?;
    let (headers, digest) = (internal_headers(log).ok()?, digest_from_records(log).ok()?);
    let sent = headers.sequence?;
    let produced = Produced {
        producer: sent.producer,
        sequence: sent.sequence,
        digest,
    };
    Some(Observed {
        produced,
        base: batch.base,
        end: batch.end,
    })
}
