//! The hot path, one operation at a time, so that its instructions can be counted.
//!
//! What lives here: a loop for each of the four operations that a message pays for, [`OPERATIONS`], and the program
//! that runs one of them a given number of times. `tests/bench/counts` runs it under valgrind, which counts the same
//! on a noisy machine, and compares with `counts.txt`.
//!
//! What never lives here: a clock. How long things take is measured by `tests/bench/peers`, side by side with others.
//!
//! Begin with [`OPERATIONS`].

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use felix_auth::{Action, Permissions, Resource};
use felix_engine::{
    AckWhen, Append, Batch, CommitWhen, Draft, Effect, Input, Overflow, ProducerTable, ReaderId,
    Shard, ShardOptions, Start, Ticket,
};
use felix_model::{InternalHeaders, Payloads, TimeMs, records_from_payloads};
use felix_wire::event::{EventHead, Stamps};
use felix_wire::frame::{Accepts, Incoming, split};
use felix_wire::publish::{BinaryAck, Outgoing, Publish, Request};

/// Payload size of every operation, in bytes.
const PAYLOAD: usize = 256;

/// Payloads in a batch.
const BATCH: usize = 64;

/// Subscribers that a delivery is made for.
const READERS: u64 = 100;

/// An operation by name, and how to do it a number of times. The answer depends on every single one, so that none
/// can be left out.
pub type Operation = (&'static str, fn(u64) -> u64);

/// What is counted.
pub const OPERATIONS: &[Operation] = &[
    ("frame_decode", frame_decode),
    ("append_durable", append_durable),
    ("deliver_100", deliver),
    ("permission_check", permission_check),
];

fn payloads() -> Payloads {
    let payload = [7; PAYLOAD];
    Payloads::build((0..BATCH).map(|_| payload.as_slice())).unwrap_or_else(|_| unreachable_list())
}

/// A list of 64 payloads of 256 bytes is within every bound.
fn unreachable_list() -> Payloads {
    Payloads {
        bytes: Bytes::from_static(&[0, 0, 0, 0]),
        count: 0,
    }
}

/// Takes one acknowledged keyed publish of 64 payloads off a stream's buffer and reads it.
fn frame_decode(times: u64) -> u64 {
    let outgoing = Outgoing {
        request: Some(Request {
            id: 7,
            ack: BinaryAck::PerBatch,
        }),
        producer: None,
        key: Some(b"customer-7"),
        tenant: "dev",
        namespace: "default",
        stream: "orders",
    };
    let frame = outgoing.encode(&payloads()).unwrap_or_default();
    let accepts = Accepts {
        payload_bytes_max: 1 << 24,
        extensions: false,
    };
    (0..times)
        .map(|_| {
            let mut buffer = BytesMut::from(frame.as_ref());
            match split(&mut buffer, accepts) {
                Ok(Some(Incoming::Published(frame))) => Publish::decode(frame.flags, frame.payload)
                    .map_or(0, |publish| u64::from(publish.payloads.count)),
                Ok(_) | Err(_) => 0,
            }
        })
        .sum()
}

/// Builds the record batch of a publish, appends it and commits it.
fn append_durable(times: u64) -> u64 {
    let mut options = ShardOptions::durable(CommitWhen::Written);
    options.limits.window_bytes = 1 << 20;
    let mut shard = Shard::new(options, ProducerTable::new(1));
    let payloads = payloads();
    let mut effects = Vec::new();
    let mut answered = 0;
    for ticket in 0..times {
        let built = records_from_payloads(&payloads, None, 1, &InternalHeaders::default());
        let Ok(draft) = built
            .map_err(drop)
            .and_then(|log| Draft::from_log(log).map_err(drop))
        else {
            continue;
        };
        append(
            &mut shard,
            ticket,
            draft.with_native(payloads.clone()),
            &mut effects,
        );
        let end = shard.end();
        shard.handle(TimeMs(1), Input::Written { end }, &mut effects);
        answered += effects
            .drain(..)
            .filter(|effect| matches!(effect, Effect::Reply { .. }))
            .count();
    }
    answered as u64
}

fn append(shard: &mut Shard, ticket: u64, batch: Draft, effects: &mut Vec<Effect>) {
    let append = Append {
        ticket: Ticket(ticket),
        batch,
        expected: None,
        producer: None,
        ack: AckWhen::Committed,
    };
    shard.handle(TimeMs(1), Input::Append(append), effects);
}

/// Appends one batch to an in-memory stream and delivers it to a hundred waiting subscribers, encoded once.
fn deliver(times: u64) -> u64 {
    let options = ShardOptions::memory(1 << 22, 1 << 20, Overflow::DropNew);
    let mut shard = Shard::new(options, ProducerTable::new(1));
    let mut effects = Vec::new();
    for reader in 0..READERS {
        shard.handle(
            TimeMs(1),
            Input::Subscribe {
                reader: ReaderId(reader),
                start: Start::Latest,
            },
            &mut effects,
        );
    }
    let payloads = payloads();
    let mut delivered = 0;
    for ticket in 0..times {
        effects.clear();
        for reader in 0..READERS {
            let pull = Input::Pull {
                reader: ReaderId(reader),
                max_bytes: 1 << 18,
            };
            shard.handle(TimeMs(1), pull, &mut effects);
        }
        append(
            &mut shard,
            ticket,
            Draft::from_payloads(payloads.clone(), TimeMs(1)),
            &mut effects,
        );
        for effect in &effects {
            if let Effect::Deliver { batches, .. } = effect {
                delivered += batches
                    .iter()
                    .filter_map(frame)
                    .map(|frame| frame.len() as u64)
                    .sum::<u64>();
            }
        }
    }
    delivered
}

fn frame(batch: &Arc<Batch>) -> Option<Bytes> {
    let payloads = batch.native()?;
    let made = batch.frame(0, || {
        let mut frame = EventHead::default().encode(&payloads.bytes, Stamps::Absent);
        frame.extend_from_slice(&payloads.bytes);
        frame.freeze()
    });
    made.cloned()
}

/// Asks whether a principal with eight permissions may publish to a stream.
fn permission_check(times: u64) -> u64 {
    let written = [
        "cache.read:cache:dev/default/config",
        "cache.write:cache:dev/default/stats",
        "stream.subscribe:stream:dev/default/orders",
        "stream.subscribe:stream:dev/default/room.*",
        "stream.publish:stream:dev/other/*",
        "group.consume:group:dev/default/orders/workers",
        "stream.publish:stream:dev/default/room.*",
        "stream.publish:stream:dev/default/orders",
    ];
    let permissions = Permissions::compile_claim("dev", written);
    let resource = Resource::Stream {
        tenant: "dev",
        namespace: "default",
        stream: "orders",
    };
    (0..times)
        .filter(|_| permissions.allows(Action::StreamPublish, std::hint::black_box(&resource)))
        .count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_does_what_it_is_counted_for() {
        let results: Vec<_> = OPERATIONS
            .iter()
            .map(|(name, run)| (*name, run(3)))
            .collect();
        let frame = 12 + 4 + 64 * (4 + 256);
        assert_eq!(
            results,
            [
                ("frame_decode", 3 * 64),
                ("append_durable", 3),
                ("deliver_100", 3 * 100 * frame),
                ("permission_check", 3),
            ]
        );
    }
}
