//! From batches to the frames of an event stream. What every subscriber reads alike is encoded once per batch and
//! shared.

use bytes::Bytes;
use felix_engine::Batch;
use felix_model::batch::BuildRefused;
use felix_model::forms::shown;
use felix_model::native::{Run, Times};
use felix_model::{
    BatchHeader, BatchRefused, InternalHeaders, Offset, Payloads, PayloadsRefused, StreamId, patch,
    payloads_from_records, records_from_payloads,
};
use felix_wire::event::{EventHead, Stamps, stamped};
use felix_wire::extension::Deliver;
use felix_wire::flags::Flags;
use felix_wire::limits::PAYLOAD_BYTES_MAX;
use felix_wire::message::{EventMany, Message};
use felix_wire::negotiate::{EventForm, Peer};

use crate::shards::mailbox::Delivery;

/// In which form a subscription gets its events.
#[derive(Clone, Debug)]
pub(crate) enum Form {
    /// Binary batches, the same bytes for every subscriber of this form.
    Shared { offsets: bool, stamps: bool },
    /// Binary batches that name the subscription.
    PerSubscription {
        subscription_id: u64,
        offsets: bool,
        stamps: bool,
    },
    /// JSON.
    Json { id: StreamId, offsets: bool },
    /// Whole record batches (the `records` extension).
    Records { subscription_id: u64 },
}

/// Why a batch could not be turned into events.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotDeliverable {
    #[error(transparent)]
    Batch(#[from] BatchRefused),
    #[error(transparent)]
    Payloads(#[from] PayloadsRefused),
    #[error(transparent)]
    Build(#[from] BuildRefused),
}

/// What a delivery came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivered {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// The offset after the last record.
    pub(crate) next: Offset,
}

impl Form {
    pub(crate) fn choose(
        peer: &Peer,
        subscription_id: u64,
        offsets: bool,
        records: bool,
        id: &StreamId,
    ) -> Self {
        let stamps = peer.flags.contains(Flags::EVENT_TIMESTAMPS);
        if records {
            return Self::Records { subscription_id };
        }
        match peer.event_form() {
            EventForm::Shared => Self::Shared { offsets, stamps },
            EventForm::PerSubscription => Self::PerSubscription {
                subscription_id,
                offsets,
                stamps,
            },
            EventForm::Json => Self::Json {
                id: id.clone(),
                offsets,
            },
        }
    }
}

/// Appends the frames of one delivery.
///
/// # Errors
/// When a stored batch does not hold what a batch holds; frames of the batches before it may have been appended.
pub(crate) fn frames(
    form: &Form,
    delivery: &Delivery,
    out: &mut Vec<Bytes>,
) -> Result<Delivered, NotDeliverable> {
    let before = out.len();
    let mut progress = Progress {
        next: delivery.from,
        skipped: delivery.skipped_before,
        records: 0,
    };
    let mut lost = delivery.lost;
    for batch in delivery.batches.iter() {
        progress.pass(batch.base);
        if let Form::Records { subscription_id } = form {
            out.push(records(batch, &mut progress, *subscription_id, lost)?);
            lost = 0;
        } else if let Some(frame) = shared(form, batch, &mut progress)? {
            out.push(frame);
        } else {
            own(form, batch, &mut progress, out)?;
        }
    }
    let bytes = out
        .iter()
        .skip(before)
        .map(|frame| frame.len() as u64)
        .sum();
    Ok(Delivered {
        records: progress.records,
        bytes,
        next: progress.next,
    })
}

/// Where a delivery has come to.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// The first offset not dealt with yet.
    next: Offset,
    /// Offsets directly below `next` that held nothing.
    skipped: u64,
    records: u64,
}

impl Progress {
    /// Passes over offsets that compaction took.
    fn pass(&mut self, base: Offset) {
        self.skipped += base.since(self.next);
        self.next = self.next.max(base);
    }
}

/// The frame that every subscriber of this form reads alike, when the batch goes out whole and on its own.
fn shared(
    form: &Form,
    batch: &Batch,
    progress: &mut Progress,
) -> Result<Option<Bytes>, NotDeliverable> {
    let Form::Shared { offsets, stamps } = *form else {
        return Ok(None);
    };
    if progress.skipped > 0 || progress.next > batch.base {
        return Ok(None);
    }
    let slot = usize::from(offsets) | usize::from(stamps) << 1;
    if let Some(frame) = batch.made_frame(slot) {
        let frame = frame.clone();
        progress.next = batch.end;
        progress.records += u64::from(batch.count);
        return Ok(Some(frame));
    }
    let run = match batch.native() {
        Some(payloads) => Run {
            base: batch.base,
            payloads: payloads.clone(),
            times: Times::Same(i64::try_from(batch.timestamp_ms.0).unwrap_or(i64::MAX)),
        },
        None => {
            let mut runs = payloads_from_records(&log(batch)?, batch.base)?;
            let Some(run) = runs.next().transpose()? else {
                return Ok(None);
            };
            if run.base != batch.base || run.end() != batch.end {
                return Ok(None);
            }
            // A list of payloads stands for records of one time.
            if matches!(run.times, Times::Same(_)) {
                batch.native_or(|| run.payloads.clone());
            }
            run
        }
    };
    if !fits(&run.payloads, stamps) {
        return Ok(None);
    }
    let frame = batch.frame(slot, || binary(&run, None, 0, offsets, stamps));
    progress.next = batch.end;
    progress.records += u64::from(batch.count);
    Ok(frame.cloned())
}

/// Frames for one subscriber: of a batch that is cut at the front, has holes, or is sent in an older form.
fn own(
    form: &Form,
    batch: &Batch,
    progress: &mut Progress,
    out: &mut Vec<Bytes>,
) -> Result<(), NotDeliverable> {
    let from = progress.next.max(batch.base);
    for run in payloads_from_records(&log(batch)?, from)? {
        for run in parts(run?)? {
            progress.skipped += run.base.since(progress.next);
            out.push(match form {
                Form::Shared { offsets, stamps } => {
                    binary(&run, None, progress.skipped, *offsets, *stamps)
                }
                Form::PerSubscription {
                    subscription_id,
                    offsets,
                    stamps,
                } => binary(
                    &run,
                    Some(*subscription_id),
                    progress.skipped,
                    *offsets,
                    *stamps,
                ),
                Form::Json { id, offsets } => json(&run, id, *offsets),
                Form::Records { .. } => continue,
            });
            progress.skipped = 0;
            progress.records += u64::from(run.payloads.count);
            progress.next = run.end();
        }
    }
    progress.skipped += batch.end.since(progress.next);
    progress.next = batch.end;
    Ok(())
}

/// Whether a list goes into one frame that every client reads, with whatever stands before it.
fn fits(payloads: &Payloads, stamps: bool) -> bool {
    const FIELDS_MAX: usize = 3 * 8;
    let stamps = if stamps {
        8 * payloads.count as usize
    } else {
        0
    };
    payloads.bytes.len() + stamps + FIELDS_MAX <= PAYLOAD_BYTES_MAX
}

/// A run in pieces that fit a frame in every form: JSON takes a third more than the bytes, and a stamp is the most
/// that is added to a payload. Nearly always it is one piece.
fn parts(run: Run) -> Result<Vec<Run>, NotDeliverable> {
    let mut whole = vec![];
    let mut open = vec![run];
    while let Some(run) = open.pop() {
        let worst = run.payloads.bytes.len() / 3 * 4 + 8 * run.payloads.count as usize;
        if run.payloads.count < 2 || worst <= PAYLOAD_BYTES_MAX / 2 {
            whole.push(run);
            continue;
        }
        let first = run.payloads.count / 2;
        let at = first as usize;
        let (early, late) = match &run.times {
            Times::Same(time) => (Times::Same(*time), Times::Same(*time)),
            Times::Each(times) => {
                let (early, late) = times.split_at(at.min(times.len()));
                (Times::Each(early.to_vec()), Times::Each(late.to_vec()))
            }
        };
        let piece = |base, payloads: Vec<&[u8]>, times| -> Result<Run, NotDeliverable> {
            Ok(Run {
                base,
                payloads: Payloads::build(payloads)?,
                times,
            })
        };
        let later = run.payloads.iter().skip(at).collect();
        let earlier = run.payloads.iter().take(at).collect();
        open.push(piece(run.base.plus(u64::from(first)), later, late)?);
        open.push(piece(run.base, earlier, early)?);
    }
    Ok(whole)
}

fn binary(
    run: &Run,
    subscription_id: Option<u64>,
    skipped_before: u64,
    offsets: bool,
    stamps: bool,
) -> Bytes {
    let head = EventHead {
        subscription_id,
        base_offset: offsets.then_some(run.base.0),
        skipped_before,
        publisher: None,
    };
    let (list, stamps) = if stamps {
        let count = run.payloads.count as usize;
        let list = match &run.times {
            Times::Same(time) => stamped(&run.payloads, std::iter::repeat_n(micros(*time), count)),
            Times::Each(times) => stamped(&run.payloads, times.iter().map(|time| micros(*time))),
        };
        (list, Stamps::Present)
    } else {
        (run.payloads.bytes.clone(), Stamps::Absent)
    };
    let mut frame = head.encode(&list, stamps);
    frame.extend_from_slice(&list);
    frame.freeze()
}

fn json(run: &Run, id: &StreamId, offsets: bool) -> Bytes {
    let message = EventMany {
        tenant_id: id.tenant.to_string(),
        namespace: id.namespace.to_string(),
        stream: id.stream.to_string(),
        payloads: run.payloads.clone(),
        base_offset: offsets.then_some(run.base.0),
    };
    Message::from(message).encode()
}

fn records(
    batch: &Batch,
    progress: &mut Progress,
    subscription_id: u64,
    lost: u64,
) -> Result<Bytes, NotDeliverable> {
    let from = progress.next.max(batch.base);
    // What the broker keeps beside the records (state, idempotency keys, sequences) is no reader's.
    let log = match batch.shown() {
        Some(log) => log,
        None => {
            let log = shown(&log(batch)?)?;
            batch.shown_or(|| log)
        }
    };
    let mut frame = Deliver::head(subscription_id, from.0, progress.skipped, lost, log.len());
    frame.extend_from_slice(log);
    progress.skipped = 0;
    // As many as there are offsets, unless the batch was compacted.
    let held = BatchHeader::parse(log).map_or(0, |header| u64::from(header.records()));
    progress.records += batch.end.since(from).min(held);
    progress.next = batch.end;
    Ok(frame.freeze())
}

/// The record batch of a batch; of an in-memory stream it is made when the first reader wants it.
pub(crate) fn log(batch: &Batch) -> Result<Bytes, NotDeliverable> {
    if let Some(log) = batch.log() {
        return Ok(log.clone());
    }
    let none = Payloads::build([])?;
    let payloads = batch.native().unwrap_or(&none);
    let time = i64::try_from(batch.timestamp_ms.0).unwrap_or(i64::MAX);
    let mut made = records_from_payloads(
        payloads,
        batch.key.as_deref(),
        time,
        &InternalHeaders::default(),
    )?;
    patch(&mut made, batch.base, batch.generation);
    Ok(batch.log_or(|| made.freeze()).clone())
}

/// Milliseconds as they stand in a batch, as microseconds on the wire.
pub(crate) fn micros(timestamp_ms: i64) -> u64 {
    u64::try_from(timestamp_ms)
        .unwrap_or(0)
        .saturating_mul(1000)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::BytesMut;
    use felix_model::Generation;
    use felix_wire::event::EventBatch;
    use felix_wire::frame::{Accepts, Incoming, split};

    use super::*;

    fn run(count: usize, bytes: usize) -> Run {
        let payload = vec![7; bytes];
        let payloads = Payloads::build((0..count).map(|_| payload.as_slice())).unwrap();
        let times = Times::Each((0..count).map(|time| time as i64).collect());
        Run {
            base: Offset(10),
            payloads,
            times,
        }
    }

    /// A batch of ten records at `base` of which some stay.
    fn thinned(base: u64, stay: &[u64]) -> Arc<Batch> {
        let payloads: Vec<String> = (base..base + 10).map(|offset| offset.to_string()).collect();
        let list = Payloads::build(payloads.iter().map(String::as_bytes)).unwrap();
        let none = InternalHeaders::default();
        let mut batch = records_from_payloads(&list, None, 5, &none).unwrap();
        patch(&mut batch, Offset(base), Generation(0));
        let stay: Vec<bool> = (0..10).map(|delta| stay.contains(&delta)).collect();
        let batch = felix_model::batch::thin(&batch.freeze(), &stay)
            .unwrap()
            .unwrap();
        Arc::new(Batch::from_log(batch.freeze()).unwrap())
    }

    #[test]
    fn what_compaction_took_before_between_and_in_batches_is_said_as_skipped() {
        let delivery = Delivery {
            from: Offset(12),
            batches: vec![
                thinned(10, &[0, 3, 4, 8]),
                thinned(40, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
                thinned(50, &[5]),
            ]
            .into(),
            skipped_before: 2,
            lost: 0,
        };
        let form = Form::Shared {
            offsets: true,
            stamps: false,
        };
        let mut out = Vec::new();
        let delivered = frames(&form, &delivery, &mut out).unwrap();
        assert_eq!((delivered.records, delivered.next), (14, Offset(60)));
        let accepts = Accepts {
            payload_bytes_max: 1 << 20,
            extensions: false,
        };
        let mut told = Vec::new();
        for frame in out {
            let mut bytes = BytesMut::from(&frame[..]);
            let Some(Incoming::Published(frame)) = split(&mut bytes, accepts).unwrap() else {
                panic!("a whole frame");
            };
            let batch = EventBatch::decode(frame.flags, frame.payload).unwrap();
            for (place, event) in batch.events().enumerate() {
                let offset = batch.base_offset.unwrap() + place as u64;
                assert_eq!(event.payload, offset.to_string());
            }
            told.push((
                batch.base_offset.unwrap(),
                batch.count,
                batch.skipped_before,
            ));
        }
        assert_eq!(told, [(13, 2, 3), (18, 1, 3), (40, 10, 21), (55, 1, 5)]);
        let records = Form::Records { subscription_id: 1 };
        let delivered = frames(&records, &delivery, &mut Vec::new()).unwrap();
        assert_eq!((delivered.records, delivered.next), (15, Offset(60)));
    }

    #[test]
    fn a_run_of_ordinary_size_stays_whole() {
        let small = run(100, 100);
        assert_eq!(parts(small.clone()).unwrap(), [small]);
    }

    #[test]
    fn a_run_too_large_for_a_frame_is_cut_without_hole_or_repeat() {
        let large = run(1 << 17, 100);
        let pieces = parts(large.clone()).unwrap();
        assert!(pieces.len() > 1);
        let mut next = large.base;
        let mut times: Vec<i64> = Vec::new();
        for piece in &pieces {
            assert_eq!(piece.base, next);
            assert!(fits(&piece.payloads, true));
            let frame = json(piece, &StreamId::new("t", "n", "s").unwrap(), true);
            assert!(frame.len() <= PAYLOAD_BYTES_MAX);
            next = piece.end();
            match &piece.times {
                Times::Each(each) => times.extend(each),
                Times::Same(_) => unreachable!("the run had times of their own"),
            }
        }
        assert_eq!(next, large.end());
        assert!(times.into_iter().eq(0..1 << 17));
    }
}
