//! Batches appended and fetched as they are, against a real broker, and read by everybody else.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use felix_client::raw::{
    EpochAsk, FetchShard, FetchStream, List, OffsetAsk, Raw, RawAppend, RawDeleteRecords,
    RawDescribe, RawEpochEnd, RawError, RawFetch, RawFetched, RawOffsets, RawProducerId, RawStream,
    StreamName,
};
use felix_client::{CallFailed, Client, Event, Record};
use felix_e2e::{Home, Node};
use felix_model::batch::{BatchBuilder, BatchOptions, ProducerStamp};
use felix_model::{BatchHeader, Compression, ProducerId, verify};
use tokio::time::timeout;

/// Far above what anything here takes, so that a stall fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(60);

const TIME: i64 = 1_760_000_000_000;

async fn started() -> (Home, Node, Client) {
    let home = Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap();
    let node = home.start().await.unwrap();
    let client = node.client().await.unwrap();
    (home, node, client)
}

fn built(options: BatchOptions, records: &[(i64, Option<&str>, &str)]) -> Bytes {
    let mut batch = BatchBuilder::new(options);
    let headers: &[(&[u8], Option<&[u8]>)] = &[(b"trace", Some(b"a1")), (b"none", None)];
    for (time, key, value) in records {
        let key = key.map(str::as_bytes);
        batch
            .push(*time, key, Some(value.as_bytes()), headers)
            .unwrap();
    }
    batch.finish().unwrap().freeze()
}

fn plain(values: &[&str]) -> Bytes {
    let records: Vec<_> = values.iter().map(|value| (TIME, None, *value)).collect();
    built(BatchOptions::default(), &records)
}

fn sequenced(producer: (u64, i16), base_sequence: i32, values: &[&str]) -> Bytes {
    let records: Vec<_> = values.iter().map(|value| (TIME, None, *value)).collect();
    let stamp = ProducerStamp {
        id: ProducerId(producer.0),
        epoch: producer.1,
        base_sequence,
    };
    let options = BatchOptions {
        producer: Some(stamp),
        ..BatchOptions::default()
    };
    built(options, &records)
}

fn append(batch: &Bytes) -> RawAppend {
    RawAppend {
        shard: 0,
        generation: None,
        early: false,
        batch: batch.clone(),
    }
}

async fn base(stream: &RawStream, batch: &Bytes) -> u64 {
    let appended = stream.append(append(batch)).await.unwrap();
    appended.base_offset.unwrap()
}

async fn refused(stream: &RawStream, batch: &Bytes) -> RawError {
    let failed = stream.append(append(batch)).await.unwrap_err();
    failed.raw_error()
}

fn from(stream: &str, offset: u64, wait_ms: u32) -> RawFetch {
    let shard = FetchShard {
        shard: 0,
        offset,
        max_bytes: 1 << 20,
        generation: None,
        last_generation: None,
    };
    RawFetch {
        max_bytes: 1 << 20,
        min_bytes: 1,
        max_wait_ms: wait_ms,
        committed: false,
        streams: List::build([FetchStream {
            namespace: "default".into(),
            stream: stream.into(),
            incarnation: 0,
            shards: List::build([shard]).unwrap(),
        }])
        .unwrap(),
    }
}

/// The same by a reader whose last record is of a generation.
fn behind(stream: &str, offset: u64, generation: u64) -> RawFetch {
    let mut fetch = from(stream, offset, 0);
    let shard = FetchShard {
        shard: 0,
        offset,
        max_bytes: 1 << 20,
        generation: None,
        last_generation: Some(generation),
    };
    let stream = FetchStream {
        namespace: "default".into(),
        stream: stream.into(),
        incarnation: 0,
        shards: List::build([shard]).unwrap(),
    };
    fetch.streams = List::build([stream]).unwrap();
    fetch
}

/// The batches of the only shard of a fetch.
fn batches(fetched: &RawFetched) -> Vec<Bytes> {
    let (shard, pieces) = fetched.iter().next().unwrap();
    assert_eq!(shard.error, 0);
    let mut rest = pieces.joined();
    let mut batches = Vec::new();
    while !rest.is_empty() {
        let header = BatchHeader::parse(&rest).unwrap();
        batches.push(rest.split_to(header.total_bytes()));
    }
    batches
}

async fn fetched(raw: &Raw, stream: &str, offset: u64) -> Vec<Bytes> {
    let fetch = timeout(PATIENCE, raw.fetch(from(stream, offset, 0)));
    batches(&fetch.await.unwrap().unwrap())
}

/// What a batch would be at an offset.
fn placed(batch: &Bytes, offset: u64) -> Bytes {
    let mut placed = BytesMut::from(&batch[..]);
    felix_model::patch(
        &mut placed,
        felix_model::Offset(offset),
        felix_model::Generation(0),
    );
    placed.freeze()
}

/// What a subscriber of whole records reads from the start.
async fn read(client: &Client, stream: &str, count: usize) -> Vec<Event> {
    let mut subscription = client
        .subscribe(stream)
        .from_earliest()
        .records()
        .await
        .unwrap();
    let mut read = Vec::new();
    while read.len() < count {
        let next = timeout(PATIENCE, subscription.next()).await.unwrap();
        read.push(next.unwrap().unwrap());
    }
    read
}

#[tokio::test]
async fn a_batch_of_every_codec_is_stored_as_it_came_and_read_by_everybody() {
    let (home, _node, client) = started().await;
    home.ok(&["stream", "create", "codecs"]).await.unwrap();
    let raw = client.raw();
    let stream = raw.stream("default", "codecs").unwrap();
    let codecs = [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];
    let mut sent = Vec::new();
    for (place, compression) in (0..).zip(codecs) {
        let value = compression.as_str();
        let records = [(TIME, Some("k"), value), (TIME + 7, None, value)];
        let options = BatchOptions {
            compression,
            ..BatchOptions::default()
        };
        let batch = built(options, &records);
        assert_eq!(base(&stream, &batch).await, place * 2);
        sent.push(placed(&batch, place * 2));
    }
    assert_eq!(fetched(&raw, "codecs", 0).await, sent);
    // From inside a batch on, that batch comes whole.
    assert_eq!(fetched(&raw, "codecs", 3).await, sent[1..]);
    let events = read(&client, "codecs", 10).await;
    for (place, event) in (0..).zip(&events) {
        assert_eq!(event.offset, Some(place));
        let codec = codecs[usize::try_from(place / 2).unwrap()];
        assert_eq!(event.payload, codec.as_str());
        let first = place % 2 == 0;
        assert_eq!(event.key.as_deref(), first.then_some(&b"k"[..]));
        let time = TIME + if first { 0 } else { 7 };
        assert_eq!(event.timestamp_micros, u64::try_from(time * 1000).ok());
        assert_eq!(event.headers.iter().count(), 2);
    }
    let payloads = home.payloads("codecs").await.unwrap();
    let expected: Vec<_> = codecs
        .iter()
        .flat_map(|codec| [codec.as_str(); 2])
        .collect();
    assert_eq!(payloads, expected);
}

#[tokio::test]
async fn what_was_published_natively_is_fetched_as_batches() {
    let (home, _node, client) = started().await;
    home.ok(&["stream", "create", "native"]).await.unwrap();
    let record = Record::new("rich").key("k").header("h", "v");
    client.publish("native", "plain").await.unwrap();
    client.publish("native", record).await.unwrap();
    let producer = client.idempotent_producer("native").await.unwrap();
    producer.publish("once").await.unwrap();
    let raw = client.raw();
    let batches = fetched(&raw, "native", 0).await;
    assert_eq!(batches.len(), 3);
    for batch in &batches {
        let header = verify(batch).unwrap();
        // What the broker keeps beside a record is no reader's.
        assert!(!header.is_internal());
    }
    let records: Vec<_> = felix_model::Records::new(&batches[1]).unwrap().collect();
    let record = records[0].as_ref().unwrap();
    assert_eq!(record.key.as_deref(), Some(&b"k"[..]));
    assert_eq!(record.value.as_deref(), Some(&b"rich"[..]));
}

#[tokio::test]
async fn a_batch_sent_again_is_answered_with_its_first_offset_also_after_a_kill() {
    let (home, node, client) = started().await;
    home.ok(&["stream", "create", "once"]).await.unwrap();
    let stream = client.raw().stream("default", "once").unwrap();
    let ask = RawProducerId { id: None, epoch: 0 };
    let given = client.raw().producer_id(ask).await.unwrap();
    let producer = (given.id, 0);
    for place in 0..7 {
        let batch = sequenced(producer, place * 2, &["a", "b"]);
        assert_eq!(
            base(&stream, &batch).await,
            u64::try_from(place * 2).unwrap()
        );
    }
    let late = sequenced(producer, 4, &["a", "b"]);
    let gap = sequenced(producer, 20, &["a"]);
    let check = async |stream: &RawStream| {
        let again = stream.append(append(&late)).await.unwrap();
        assert_eq!((again.base_offset, again.repeated), (Some(4), true));
        assert_eq!(refused(stream, &gap).await, RawError::OutOfOrderSequence);
    };
    check(&stream).await;
    client.close().await;
    node.kill().await.unwrap();
    let node = home.start().await.unwrap();
    let client = node.client().await.unwrap();
    let stream = client.raw().stream("default", "once").unwrap();
    check(&stream).await;
    let ask = RawProducerId {
        id: Some(given.id),
        epoch: 0,
    };
    let bumped = client.raw().producer_id(ask).await.unwrap();
    assert_eq!(bumped.epoch, 1);
    let bumped = sequenced((given.id, 1), 0, &["c"]);
    assert_eq!(base(&stream, &bumped).await, 14);
    let fenced = sequenced(producer, 14, &["d"]);
    assert_eq!(
        refused(&stream, &fenced).await,
        RawError::InvalidProducerEpoch
    );
}

#[tokio::test]
async fn what_breaks_a_rule_is_refused_with_the_error_of_the_kafka_protocol() {
    let (home, _node, client) = started().await;
    home.ok(&["stream", "create", "strict"]).await.unwrap();
    home.ok(&["stream", "create", "keyed", "--cleanup", "compact"])
        .await
        .unwrap();
    let raw = client.raw();
    let stream = raw.stream("default", "strict").unwrap();
    let good = plain(&["v"]);
    let mut damaged = BytesMut::from(&good[..]);
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    assert_eq!(
        refused(&stream, &damaged.freeze()).await,
        RawError::CorruptMessage
    );
    let twice = Bytes::from([&good[..], &good[..]].concat());
    assert_eq!(refused(&stream, &twice).await, RawError::InvalidRecord);
    for (bit, error) in [
        (4, RawError::InvalidTxnState),
        (5, RawError::InvalidRecord),
        (8, RawError::InvalidRecord),
        (3, RawError::InvalidTimestamp),
    ] {
        assert_eq!(
            refused(&stream, &with_bit(&good, bit)).await,
            error,
            "{bit}"
        );
    }
    let keyed = raw.stream("default", "keyed").unwrap();
    assert_eq!(refused(&keyed, &good).await, RawError::InvalidRecord);
    let nowhere = raw.stream("default", "nowhere").unwrap();
    assert_eq!(
        refused(&nowhere, &good).await,
        RawError::UnknownTopicOrPartition
    );
    let mut other = append(&good);
    other.shard = 7;
    let failed = stream.append(other).await.unwrap_err();
    assert_eq!(failed.raw_error(), RawError::UnknownTopicOrPartition);
    let mut later = append(&good);
    later.generation = Some(9);
    let failed = stream.append(later).await.unwrap_err();
    assert_eq!(failed.raw_error(), RawError::UnknownLeaderEpoch);
    assert!(matches!(failed, CallFailed::Refused(_)));
    assert_eq!(base(&stream, &good).await, 0);
}

fn with_bit(batch: &Bytes, bit: u32) -> Bytes {
    let mut changed = BytesMut::from(&batch[..]);
    let attributes = u16::from_be_bytes([changed[21], changed[22]]) | 1 << bit;
    changed[21..23].copy_from_slice(&attributes.to_be_bytes());
    let crc = felix_model::batch::checksum(&changed[21..]);
    changed[17..21].copy_from_slice(&crc.to_be_bytes());
    changed.freeze()
}

#[tokio::test]
async fn a_fetch_waits_for_the_commit_and_no_longer() {
    let (home, _node, client) = started().await;
    home.ok(&["stream", "create", "later"]).await.unwrap();
    let raw = client.raw();
    let waiting = tokio::spawn({
        let raw = raw.clone();
        async move { raw.fetch(from("later", 0, 50_000)).await.unwrap() }
    });
    let stream = raw.stream("default", "later").unwrap();
    let batch = plain(&["here"]);
    let pending = stream.send_append(append(&batch)).await.unwrap();
    assert_eq!(pending.answer().await.unwrap().base_offset, Some(0));
    let fetched = timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert_eq!(batches(&fetched), [placed(&batch, 0)]);
    let (shard, _) = fetched.iter().next().unwrap();
    assert_eq!((shard.high_watermark, shard.start), (1, 0));
    // At the end there is nothing, which is no error; beyond it there is one.
    assert!(fetched_none(&raw, 1).await.is_none());
    assert_eq!(
        fetched_none(&raw, 2).await,
        Some(RawError::OffsetOutOfRange)
    );
}

#[tokio::test]
async fn the_furthest_of_several_deletions_at_once_outlives_a_kill() {
    let (home, node, client) = started().await;
    home.ok(&["stream", "create", "many"]).await.unwrap();
    let stream = client.raw().stream("default", "many").unwrap();
    base(&stream, &plain(&["v"; 32])).await;
    let deletions = (1..=32).rev().map(|before| {
        let stream = stream.clone();
        let delete = RawDeleteRecords {
            shard: 0,
            before: Some(before),
        };
        tokio::spawn(async move { stream.delete_records(delete).await.unwrap().start })
    });
    for deletion in deletions.collect::<Vec<_>>() {
        deletion.await.unwrap();
    }
    let start = async |stream: &RawStream| {
        let asks = List::build([OffsetAsk {
            shard: 0,
            at: -2,
            generation: None,
        }])
        .unwrap();
        let committed = false;
        let found = stream.offsets(RawOffsets { asks, committed }).await;
        found.unwrap().found.iter().next().unwrap().offset
    };
    assert_eq!(start(&stream).await, 32);
    client.close().await;
    node.kill().await.unwrap();
    let node = home.start().await.unwrap();
    let client = node.client().await.unwrap();
    let stream = client.raw().stream("default", "many").unwrap();
    assert_eq!(start(&stream).await, 32);
}

async fn fetched_none(raw: &Raw, offset: u64) -> Option<RawError> {
    let fetched = raw.fetch(from("later", offset, 0)).await.unwrap();
    assert!(fetched.batches.is_empty());
    let (shard, _) = fetched.iter().next().unwrap();
    RawError::from_number(shard.error)
}

#[tokio::test]
async fn offsets_are_found_by_time_and_place_and_deleted_records_stay_away() {
    let (home, node, client) = started().await;
    home.ok(&["stream", "create", "times"]).await.unwrap();
    let stream = client.raw().stream("default", "times").unwrap();
    // Times go back and forth.
    for times in [[10, 12], [30, 5], [20, 21]] {
        let records: Vec<_> = times.iter().map(|time| (TIME + time, None, "v")).collect();
        stream
            .append(append(&built(BatchOptions::default(), &records)))
            .await
            .unwrap();
    }
    let found = |stream: RawStream| async move {
        let at = [-1, -2, -3, -4, -5, TIME, TIME + 11, TIME + 20, TIME + 31];
        let asks = at.map(|at| OffsetAsk {
            shard: 0,
            at,
            generation: None,
        });
        let asks = List::build(asks).unwrap();
        let ask = RawOffsets {
            asks,
            committed: false,
        };
        let found = stream.offsets(ask).await.unwrap().found;
        found.iter().map(|it| it.offset).collect::<Vec<_>>()
    };
    let before = found(stream.clone()).await;
    assert_eq!(before, [6, 0, 2, 0, -1, 0, 1, 2, -1]);
    let delete = RawDeleteRecords {
        shard: 0,
        before: Some(3),
    };
    assert_eq!(stream.delete_records(delete).await.unwrap().start, 3);
    let after = [6, 3, -1, 3, -1, 3, 4, 4, -1];
    assert_eq!(found(stream.clone()).await, after);
    let ends = RawEpochEnd {
        asks: List::build([EpochAsk {
            shard: 0,
            of: 0,
            generation: None,
        }])
        .unwrap(),
    };
    let end = stream.epoch_end(ends.clone()).await.unwrap().ends;
    let end = end.iter().next().unwrap();
    assert_eq!((end.error, end.generation, end.end), (0, 0, 6));
    client.close().await;
    node.kill().await.unwrap();
    let node = home.start().await.unwrap();
    let client = node.client().await.unwrap();
    let stream = client.raw().stream("default", "times").unwrap();
    assert_eq!(found(stream.clone()).await, after);
    // After a kill the shard is in a new generation; the old one ends where it did.
    base(&stream, &plain(&["new"])).await;
    let end = stream.epoch_end(ends).await.unwrap().ends;
    let end = end.iter().next().unwrap();
    assert_eq!((end.error, end.generation, end.end), (0, 0, 6));
    // A reader that has more of the old generation than there is of it here is told where they part, and no records.
    let parted = async |offset| {
        let fetched = client
            .raw()
            .fetch(behind("times", offset, 0))
            .await
            .unwrap();
        let (shard, records) = fetched.iter().next().unwrap();
        assert_eq!(shard.error, 0);
        (shard.diverging, shard.diverging_end, records.is_empty())
    };
    assert_eq!(parted(7).await, (Some(0), 6, true));
    assert_eq!(parted(6).await, (None, 0, false));
}

#[tokio::test]
async fn a_stream_may_give_records_the_time_of_their_append() {
    let (home, _node, client) = started().await;
    let create = ["stream", "create", "ours", "--timestamps", "append"];
    home.ok(&create).await.unwrap();
    let stream = client.raw().stream("default", "ours").unwrap();
    let long_ago = built(BatchOptions::default(), &[(5, None, "a"), (3, None, "b")]);
    let appended = stream.append(append(&long_ago)).await.unwrap();
    assert!(appended.append_time_ms > TIME, "{appended:?}");
    let batch = fetched(&client.raw(), "ours", 0).await.remove(0);
    let header = verify(&batch).unwrap();
    assert_eq!(header.timestamp_type(), felix_model::TimestampType::Append);
    let times: Vec<_> = felix_model::Records::new(&batch)
        .unwrap()
        .map(|record| record.unwrap().timestamp_ms)
        .collect();
    assert_eq!(times, [appended.append_time_ms; 2]);
    // It can be changed, and what is there keeps its time.
    let set = ["stream", "set", "ours", "--timestamps", "create"];
    home.ok(&set).await.unwrap();
}

#[tokio::test]
async fn streams_are_described_with_what_the_caller_may_do() {
    let (home, _node, client) = started().await;
    home.ok(&["stream", "create", "wide", "--shards", "3"])
        .await
        .unwrap();
    let stream = client.raw().stream("default", "wide").unwrap();
    base(&stream, &plain(&["v"])).await;
    let named = |stream: &str| StreamName {
        namespace: "default".into(),
        stream: stream.into(),
    };
    let ask = RawDescribe {
        streams: Some(List::build([named("wide"), named("nowhere")]).unwrap()),
        want_shards: true,
    };
    let described = client.raw().describe(ask).await.unwrap().streams;
    let described: Vec<_> = described.iter().collect();
    assert_eq!(described[0].shard_count, 3);
    let shards: Vec<_> = described[0].shards.iter().collect();
    assert_eq!((shards.len(), shards[0].high_watermark), (3, 1));
    assert!(shards[0].bytes > 0 && described[0].incarnation > 0);
    assert_eq!(
        described[1].error,
        RawError::UnknownTopicOrPartition.number()
    );
    let all = RawDescribe {
        streams: None,
        want_shards: false,
    };
    let all = client.raw().describe(all).await.unwrap().streams;
    assert!(all.iter().any(|stream| stream.stream.as_str() == "wide"));
}
