//! Many browsers at one gateway: what an idle one costs in memory, and how soon events reach those that read.
//!
//! The gateway and what lies behind it are started by `tests/conformance/gateway_load.py`. This side speaks WebSocket by
//! hand, as little of it as the measurement needs, so that it takes less of the machine than what it measures.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::{Buf as _, BufMut as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

/// Joins under way at once.
const AT_ONCE: usize = 32;

/// Bytes of each published payload.
const PAYLOAD_BYTES: usize = 256;

/// Header bytes of a binary event and publish.
const HEAD_BYTES: usize = 32;

/// Width of a bucket of delays.
const BUCKET: Duration = Duration::from_micros(100);

/// How many buckets: delays beyond six seconds count as the last.
const BUCKETS: usize = 60_000;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Load {
    /// The gateway.
    pub gateway: SocketAddr,
    /// Its process, whose memory is looked at.
    pub pid: u32,
    /// Sign-ins, of one person each; browsers take turns with them.
    pub tokens: Vec<String>,
    /// Browsers that join, subscribe and then only answer pings.
    pub idle: usize,
    /// Scopes that are read, by name, and browsers on each.
    pub boards: Vec<String>,
    /// Browsers on each board.
    pub readers: usize,
    /// Events a second on each board.
    pub rate: u32,
    /// How long.
    pub lasts: Duration,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Resident bytes of the gateway for each idle browser.
    pub bytes_per_idle: u64,
    /// Events that reached browsers, and in how many seconds.
    pub delivered: u64,
    /// Events that should have.
    pub expected: u64,
    /// From the first publish to the last.
    pub took: Duration,
    /// Delays from publishing to a browser's having read it: half, 99 of 100, and the longest are below.
    pub delays: [Duration; 3],
}

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum NotMeasured {
    /// A socket.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A task of this program.
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
    /// The gateway said something else than expected.
    #[error("the gateway answered {0}")]
    Answer(String),
    /// It said nothing.
    #[error("the gateway did not answer in time")]
    Silence(#[from] tokio::time::error::Elapsed),
}

struct Delays {
    buckets: Vec<AtomicU32>,
    delivered: AtomicU64,
    began: Instant,
}

/// Lets browsers come, publishes, and counts.
///
/// # Errors
/// [`NotMeasured`].
pub async fn run(load: &Load) -> Result<Measured, NotMeasured> {
    // What is allocated once belongs to no browser.
    let board = load.boards.first().cloned().unwrap_or_default();
    let warm = arrive(load, &board, 16, 0).await?;
    let before = resident(load.pid)?;
    let idle = arrive(load, &board, load.idle, 16).await?;
    let after = resident(load.pid)?;
    let bytes_per_idle = after.saturating_sub(before) / load.idle.max(1) as u64;
    println!(
        "{} idle browsers: {before} -> {after} bytes resident",
        load.idle
    );
    drop((warm, idle));
    let delays = Arc::new(Delays {
        buckets: (0..BUCKETS).map(|_| AtomicU32::new(0)).collect(),
        delivered: AtomicU64::new(0),
        began: Instant::now(),
    });
    let mut readers = JoinSet::new();
    for (number, board) in load.boards.iter().enumerate() {
        let first = load.idle + 100 + number * load.readers;
        for browser in arrive(load, board, load.readers, first).await? {
            readers.spawn(read(browser, Arc::clone(&delays)));
        }
    }
    let mut writers = JoinSet::new();
    for (number, board) in load.boards.iter().enumerate() {
        let from = load.idle + 100 + load.boards.len() * load.readers + number;
        let writer = Browser::join(load, board, from).await?;
        writers.spawn(write(writer, load.rate, load.lasts, delays.began));
    }
    let began = Instant::now();
    let mut published = 0;
    while let Some(written) = writers.join_next().await {
        published += written??;
    }
    let took = began.elapsed();
    let expected = published * load.readers as u64;
    let all = async {
        while delays.delivered.load(Ordering::Relaxed) < expected {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    // What is late is late; the figures say so.
    let _ = timeout(Duration::from_secs(10), all).await;
    readers.abort_all();
    Ok(Measured {
        bytes_per_idle,
        delivered: delays.delivered.load(Ordering::Relaxed),
        expected,
        took,
        delays: [0.5, 0.99, 1.0].map(|share| delays.below(share)),
    })
}

impl Delays {
    fn below(&self, share: f64) -> Duration {
        let total: u64 = self
            .buckets
            .iter()
            .map(|one| u64::from(one.load(Ordering::Relaxed)))
            .sum();
        let wanted = (total as f64 * share).ceil() as u64;
        let mut seen = 0;
        let place = self.buckets.iter().position(|one| {
            seen += u64::from(one.load(Ordering::Relaxed));
            seen >= wanted
        });
        BUCKET * u32::try_from(place.unwrap_or(BUCKETS) + 1).unwrap_or(u32::MAX)
    }

    fn record(&self, sent_nanos: u64) {
        let now = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let place =
            Duration::from_nanos(now.saturating_sub(sent_nanos)).as_micros() / BUCKET.as_micros();
        let place = usize::try_from(place).unwrap_or(BUCKETS).min(BUCKETS - 1);
        if let Some(bucket) = self.buckets.get(place) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.delivered.fetch_add(1, Ordering::Relaxed);
    }
}

async fn arrive(
    load: &Load,
    board: &str,
    count: usize,
    first: usize,
) -> Result<Vec<Browser>, NotMeasured> {
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut arriving = JoinSet::new();
    for number in 0..count {
        let (load, board, turns) = (load.clone(), board.to_owned(), Arc::clone(&turns));
        arriving.spawn(async move {
            let _turn = turns.acquire().await;
            let mut browser = Browser::join(&load, &board, first + number).await?;
            let subscribe = r#"{"type":"subscribe","stream":"edits","from":"live"}"#;
            browser.say(1, subscribe.as_bytes()).await?;
            browser.expect("subscribed").await?;
            Ok::<_, NotMeasured>(browser)
        });
    }
    let mut arrived = Vec::with_capacity(count);
    while let Some(browser) = arriving.join_next().await {
        arrived.push(browser??);
    }
    Ok(arrived)
}

async fn read(mut browser: Browser, delays: Arc<Delays>) -> Result<(), NotMeasured> {
    loop {
        let (kind, payload) = browser.frame().await?;
        match kind {
            2 => {
                let mut sent = payload.get(HEAD_BYTES..).unwrap_or_default();
                if sent.len() >= 8 {
                    delays.record(sent.get_u64_le());
                }
            }
            9 => browser.say(10, &payload).await?,
            8 => return Ok(()),
            _ => {}
        }
    }
}

async fn write(
    mut browser: Browser,
    rate: u32,
    lasts: Duration,
    epoch: Instant,
) -> Result<u64, NotMeasured> {
    let mut ticks = interval(Duration::from_secs(1) / rate.max(1));
    let began = Instant::now();
    let mut count = 0;
    while began.elapsed() < lasts {
        ticks.tick().await;
        let mut frame = BytesMut::with_capacity(HEAD_BYTES + PAYLOAD_BYTES);
        frame.put_slice(&[2, HEAD_BYTES as u8, 0, 0]);
        frame.put_bytes(0, HEAD_BYTES - 4);
        frame.put_u64_le(u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX));
        frame.put_bytes(7, PAYLOAD_BYTES - 8);
        browser.say(2, &frame).await?;
        count += 1;
    }
    Ok(count)
}

/// Resident bytes of a process.
fn resident(pid: u32) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kilobytes: Option<u64> = kilobytes.and_then(|text| text.trim().parse().ok());
    kilobytes
        .map(|kilobytes| kilobytes * 1024)
        .ok_or_else(|| io::Error::other("no VmRSS"))
}

/// One WebSocket.
#[derive(Debug)]
struct Browser {
    stream: TcpStream,
    received: BytesMut,
}

impl Browser {
    /// Connects from one of many addresses of this machine, and joins.
    async fn join(load: &Load, board: &str, number: usize) -> Result<Self, NotMeasured> {
        let socket = TcpSocket::new_v4()?;
        let host =
            u32::from(Ipv4Addr::new(127, 1, 0, 1)) + u32::try_from(number / 200).unwrap_or(0);
        socket.bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(host)), 0))?;
        let stream = socket.connect(load.gateway).await?;
        stream.set_nodelay(true)?;
        let mut browser = Self {
            stream,
            received: BytesMut::new(),
        };
        let head = format!(
            "GET /ws HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
            load.gateway
        );
        browser.stream.write_all(head.as_bytes()).await?;
        browser.upgraded().await?;
        let turn = number.checked_rem(load.tokens.len()).unwrap_or_default();
        let token = load.tokens.get(turn).map_or("", String::as_str);
        let join = format!(
            r#"{{"type":"join","board":"{board}","token":"{token}","features":["binary"]}}"#
        );
        browser.say(1, join.as_bytes()).await?;
        browser.expect("hello").await?;
        Ok(browser)
    }

    async fn upgraded(&mut self) -> Result<(), NotMeasured> {
        loop {
            let end = self
                .received
                .windows(4)
                .position(|four| four == b"\r\n\r\n");
            if let Some(end) = end {
                let head = self.received.split_to(end + 4);
                if head.starts_with(b"HTTP/1.1 101") {
                    return Ok(());
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                return Err(NotMeasured::Answer(head));
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<(), NotMeasured> {
        if self.stream.read_buf(&mut self.received).await? == 0 {
            return Err(NotMeasured::Answer("the end of the connection".into()));
        }
        Ok(())
    }

    /// A message of this kind; pings before it are answered.
    async fn expect(&mut self, wanted: &str) -> Result<(), NotMeasured> {
        let heard = async {
            loop {
                let (kind, payload) = self.frame().await?;
                match kind {
                    9 => self.say(10, &payload).await?,
                    1 => {
                        let text = String::from_utf8_lossy(&payload).into_owned();
                        let prefix = format!(r#"{{"type":"{wanted}""#);
                        let found = text.starts_with(&prefix) || text.contains(&prefix[1..]);
                        return if found {
                            Ok(())
                        } else {
                            Err(NotMeasured::Answer(text))
                        };
                    }
                    2 => {}
                    other => return Err(NotMeasured::Answer(format!("a frame of kind {other}"))),
                }
            }
        };
        timeout(Duration::from_secs(60), heard).await?
    }

    async fn frame(&mut self) -> Result<(u8, BytesMut), NotMeasured> {
        loop {
            if let Some(frame) = self.take() {
                return Ok(frame);
            }
            self.fill().await?;
        }
    }

    fn take(&mut self) -> Option<(u8, BytesMut)> {
        let mut head = self.received.get(..)?;
        let available = head.len();
        if available < 2 {
            return None;
        }
        let (kind, short) = (head.get_u8() & 15, head.get_u8() & 127);
        let length = match short {
            126 if head.len() >= 2 => usize::from(head.get_u16()),
            127 if head.len() >= 8 => usize::try_from(head.get_u64()).ok()?,
            126 | 127 => return None,
            short => usize::from(short),
        };
        let at = available - head.len();
        if head.len() < length {
            return None;
        }
        self.received.advance(at);
        Some((kind, self.received.split_to(length)))
    }

    /// Sends a frame, masked with nothing: the mask is there to keep caches from being fooled, and there are none.
    async fn say(&mut self, kind: u8, payload: &[u8]) -> Result<(), NotMeasured> {
        let mut frame = BytesMut::with_capacity(payload.len() + 14);
        frame.put_u8(0x80 | kind);
        match payload.len() {
            length @ 0..126 => frame.put_u8(0x80 | length as u8),
            length @ 126..65_536 => {
                frame.put_u8(0x80 | 126);
                frame.put_u16(length as u16);
            }
            length => {
                frame.put_u8(0x80 | 127);
                frame.put_u64(length as u64);
            }
        }
        frame.put_u32(0);
        frame.put_slice(payload);
        self.stream.write_all(&frame).await?;
        Ok(())
    }
}
