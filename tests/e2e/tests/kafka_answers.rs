//! Every kind of request in every version that a Kafka listener announces: what is well-formed is answered with bytes
//! that a client can read, and what is not is answered or ends its connection. Nothing waits for ever, and nothing else
//! falls over.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets anything else has failed"
)]

use std::time::Duration;

use bytes::{Buf, Bytes};
use felix_e2e::{Home, Node};
use felix_kafka::{Draw, sample, served};
use felix_model::{BatchBuilder, BatchOptions};
use kafka_protocol::messages::{ApiKey, ResponseHeader, ResponseKind};
use kafka_protocol::protocol::Decodable;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PROGRAM: &str = env!("CARGO_BIN_EXE_felix-e2e");

/// Nothing that is sent here waits for longer than a tenth of a second.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// Well-formed requests of each version.
const SAMPLES: usize = 4;

/// Cut and damaged ones of each version.
const DAMAGED: usize = 12;

const PRODUCE: i16 = 0;
const API_VERSIONS: i16 = 18;
const SASL: [i16; 2] = [17, 36];
const JOIN_GROUP: i16 = 11;

/// The same numbers in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % most
    }
}

struct Caller {
    node: Node,
    connection: Option<TcpStream>,
    numbers: Numbers,
    batch: Vec<u8>,
    asked: usize,
}

impl Caller {
    fn request(&mut self, key: i16, version: i16) -> Vec<u8> {
        self.asked += 1;
        // A second member of a group waits for the first, which has gone.
        let group = match key {
            JOIN_GROUP => format!("group-{}", self.asked),
            _ => "group".to_owned(),
        };
        let numbers = &mut self.numbers;
        let mut draw = Draw {
            below: &mut |most| numbers.below(most),
            texts: &[
                "orders",
                "",
                "nothing",
                "range",
                &group,
                "cleanup.policy",
                "compact",
            ],
            blobs: &[b"", b"bytes", &self.batch],
            ids: &[[0; 16], [7; 16]],
        };
        sample(key, version, 77, &mut draw).unwrap()
    }

    /// Sends a request; `None` when the connection ended instead of an answer.
    async fn ask(&mut self, request: &[u8]) -> Option<Bytes> {
        self.ask_all(request, None).await
    }

    /// Sends a request and perhaps another behind it, and takes the first answer.
    async fn ask_all(&mut self, request: &[u8], behind: Option<&[u8]>) -> Option<Bytes> {
        let asked = async {
            let mut connection = match self.connection.take() {
                Some(connection) => connection,
                None => TcpStream::connect(&self.node.ready().kafka_bootstrap)
                    .await
                    .unwrap(),
            };
            for request in [Some(request), behind].into_iter().flatten() {
                let length = u32::try_from(request.len()).unwrap().to_be_bytes();
                connection.write_all(&length).await.ok()?;
                connection.write_all(request).await.ok()?;
            }
            let length = connection.read_u32().await.ok()?;
            let mut answer = vec![0; length as usize];
            connection.read_exact(&mut answer).await.ok()?;
            self.connection = Some(connection);
            Some(Bytes::from(answer))
        };
        timeout(ANSWERED_WITHIN, asked)
            .await
            .unwrap_or_else(|_| panic!("no answer and no end: {request:02x?}"))
    }
}

/// Reads an answer to its end.
fn read(key: i16, version: i16, mut answer: Bytes, request: &[u8]) {
    let api = ApiKey::try_from(key).unwrap();
    let name = || {
        format!(
            "{api:?} {version}: {answer:02x?} to {request:02x?}",
            answer = answer.clone()
        )
    };
    let whole = name();
    if key == PRODUCE && version < 3 {
        // Announced, and refused in a form that no library has any more.
        assert_eq!(answer.get_i32(), 77, "{whole}");
        return;
    }
    let header = ResponseHeader::decode(&mut answer, api.response_header_version(version));
    assert_eq!(header.unwrap().correlation_id, 77, "{whole}");
    ResponseKind::decode(api, &mut answer, version).unwrap_or_else(|why| panic!("{why}: {whole}"));
    assert!(answer.is_empty(), "something is left over: {whole}");
}

/// Whether nobody waits for the answer to this one.
fn is_silent(key: i16, version: i16, request: &[u8]) -> bool {
    if key != PRODUCE {
        return false;
    }
    // Behind key, version, correlation and the client's name: the transactional id, then how many acknowledge.
    let mut rest = &request[11..];
    if version >= 9 {
        let tags_and_length = usize::from(rest[1]);
        rest = &rest[1 + tags_and_length..];
    } else if version >= 3 {
        let length = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
        rest = &rest[2 + length..];
    }
    rest[..2] == [0, 0]
}

async fn caller(home: &Home) -> Caller {
    let node = home.start().await.unwrap();
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.push(1, None, Some(b"a record"), &[]).unwrap();
    Caller {
        node,
        connection: None,
        numbers: Numbers(0x9e37_79b9_7f4a_7c15),
        batch: builder.finish().unwrap().to_vec(),
        asked: 0,
    }
}

#[tokio::test]
async fn every_request_in_every_version_is_answered_with_something_that_can_be_read() {
    let home = Home::new(PROGRAM).unwrap();
    let mut caller = caller(&home).await;
    for (key, min, max) in served() {
        for version in min..=max {
            for _ in 0..SAMPLES {
                let request = caller.request(key, version);
                if is_silent(key, version, &request) {
                    continue;
                }
                let answer = caller.ask(&request).await;
                // A login is none, and that is said before the connection ends.
                let answer = answer.unwrap_or_else(|| {
                    panic!("{key} {version}: the connection ended: {request:02x?}")
                });
                read(key, version, answer, &request);
                if SASL.contains(&key) {
                    caller.connection = None;
                }
            }
        }
    }
    assert!(caller.node.stop().await.unwrap().success());
}

#[tokio::test]
async fn a_request_that_is_cut_or_damaged_is_answered_or_ends_its_connection() {
    let home = Home::new(PROGRAM).unwrap();
    let mut caller = caller(&home).await;
    for (key, min, max) in served() {
        for version in min..=max {
            for round in 0..DAMAGED {
                let mut request = caller.request(key, version);
                // Key and version stay, so that it is this request that is damaged.
                let at = 4 + caller.numbers.below(request.len() - 4);
                match round % 3 {
                    0 => request.truncate(at),
                    1 => request[at] ^= 1 << caller.numbers.below(8),
                    _ => request[at] = [0, 0x7f, 0x80, 0xff][caller.numbers.below(4)],
                }
                // A produce that wants no answer has none; what comes behind it is answered all the same.
                let behind = (key == PRODUCE).then(|| caller.request(API_VERSIONS, 0));
                let _ = caller.ask_all(&request, behind.as_deref()).await;
                if behind.is_some() || SASL.contains(&key) {
                    caller.connection = None;
                }
            }
        }
    }
    let request = caller.request(3, 1);
    caller.connection = None;
    let answer = caller.ask(&request).await.unwrap();
    read(3, 1, answer, &request);
    assert!(caller.node.stop().await.unwrap().success());
}
