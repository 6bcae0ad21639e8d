//! What can be done to a shard and its journal, at random.

use felix_engine::{CommitWhen, Overflow, ShardOptions, Storage};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Append {
        size: usize,
        count: usize,
        ack: u8,
        expected: Option<i8>,
        control: bool,
    },
    Produce {
        producer: u64,
        ahead: i8,
        twist: bool,
        early: bool,
    },
    Write(usize),
    Fail(u8),
    Report(usize),
    Subscribe(u64, u8, u64),
    Pull(u64, usize),
    Unsubscribe(u64),
    AnswerRead(usize, usize),
    SpoilRead(usize, bool),
    Trim(u64),
    Compact(u64, u64),
    Tick(u64),
    Close,
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let expected = prop_oneof![3 => Just(None), 1 => (-1..2_i8).prop_map(Some)];
    let append = (0..4_usize, 0..8_usize, 0..6_u8, expected, 0..8_u8).prop_map(
        |(size, count, ack, expected, control)| {
            let count = count.min(3);
            Op::Append {
                size,
                count,
                ack,
                expected,
                control: control < 2,
            }
        },
    );
    let ahead = prop_oneof![6 => Just(0), 2 => -3..0_i8, 1 => 1..3_i8];
    let produce =
        (0..3_u64, ahead, 0..4_u8, 0..6_u8).prop_map(|(producer, ahead, twist, early)| {
            Op::Produce {
                producer,
                ahead,
                twist: twist == 0,
                early: early == 0,
            }
        });
    prop_oneof![
        12 => append,
        8 => produce,
        12 => (1..5_usize).prop_map(Op::Write),
        1 => (0..20_u8).prop_map(Op::Fail),
        12 => (1..4_usize).prop_map(Op::Report),
        4 => (0..4_u64, 0..4_u8, 0..200_u64).prop_map(|(id, kind, at)| Op::Subscribe(id, kind, at)),
        12 => (0..4_u64, 0..4_usize).prop_map(|(id, max)| Op::Pull(id, max)),
        2 => (0..4_u64).prop_map(Op::Unsubscribe),
        8 => (0..4_usize, 1..5_usize).prop_map(|(which, take)| Op::AnswerRead(which, take)),
        1 => (0..4_usize, any::<bool>()).prop_map(|(which, hole)| Op::SpoilRead(which, hole)),
        2 => (0..200_u64).prop_map(Op::Trim),
        3 => (0..200_u64, any::<u64>()).prop_map(|(below, gone)| Op::Compact(below, gone)),
        2 => (0..80_u64).prop_map(Op::Tick),
        1 => (0..20_u8).prop_map(|odds| if odds == 0 { Op::Close } else { Op::Write(9) }),
    ]
}

pub(crate) fn options() -> impl Strategy<Value = ShardOptions> {
    let commit = prop_oneof![Just(CommitWhen::Written), Just(CommitWhen::Flushed)];
    let overflow = prop_oneof![
        Just(Overflow::DropNew),
        Just(Overflow::DropOld),
        Just(Overflow::Block)
    ];
    let storage = prop_oneof![
        3 => commit.prop_map(|commit| Storage::Durable { commit }),
        3 => (500..4000_u64, 300..3000_u64, overflow).prop_map(
            |(ring_bytes, reader_bytes, overflow)| Storage::Memory {
                ring_bytes, reader_bytes, overflow
            }),
    ];
    (storage, 300..2000_u64, 600..9000_u64, 1..4_u32).prop_map(
        |(storage, window_bytes, in_flight_bytes_max, held_max)| {
            let mut options = ShardOptions::durable(CommitWhen::Written);
            options.storage = storage;
            options.limits.window_bytes = window_bytes;
            options.limits.in_flight_bytes_max = in_flight_bytes_max;
            options.limits.held_max = held_max;
            options.limits.held_ms_max = 100;
            options
        },
    )
}
