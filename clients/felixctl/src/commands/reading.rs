//! What `sub` and `read` share: opening the shards of a stream and printing what comes.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::time::{Duration, UNIX_EPOCH};

use felix_client::{
    Batch, CallFailed, Client, Event, MergedSubscription, PageLimits, ReadFailed, Signal,
    Subscription,
};

use super::App;
use super::backup::now_ms;
use super::connect::{is_unknown_name, waiting};
use crate::cli::Presentation;
use crate::exit::Failure;
use crate::output::{Format, Seen, Shape, write_for_people};
use crate::parse::Start;
use crate::settings::Settings;

/// Prints records until somebody stops it or enough were printed.
pub(super) struct Printer {
    stream: String,
    shape: Shape,
    terminal: bool,
    format: Option<Format>,
    left: Option<u64>,
    line: Vec<u8>,
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Printed {
    More,
    Enough,
}

impl Printer {
    pub(super) fn new(app: &App, stream: &str, show: &Presentation) -> Self {
        Self {
            stream: stream.to_owned(),
            shape: app.output.shape,
            terminal: app.output.terminal,
            format: show.format.clone(),
            left: show.count,
            line: Vec::new(),
        }
    }

    /// Prints the events of a batch whose offsets are below `until`. Whoever reads the output and
    /// goes away (`| head`) has enough.
    pub(super) fn print(&mut self, batch: &Batch, until: Option<u64>) -> Result<Printed, Failure> {
        self.line.clear();
        let mut skipped = batch.skipped_before();
        let mut printed = if self.left == Some(0) {
            Printed::Enough
        } else {
            Printed::More
        };
        for event in batch.events() {
            if printed == Printed::Enough {
                break;
            }
            if until.is_some_and(|until| event.offset.is_some_and(|offset| offset >= until)) {
                break;
            }
            self.write(event, std::mem::take(&mut skipped));
            if let Some(left) = &mut self.left {
                *left -= 1;
                if *left == 0 {
                    printed = Printed::Enough;
                }
            }
        }
        let mut out = io::stdout().lock();
        match out.write_all(&self.line).and_then(|()| out.flush()) {
            Ok(()) => Ok(printed),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Printed::Enough),
            Err(error) => Err(error.into()),
        }
    }

    fn write(&mut self, event: Event, skipped_before: u64) {
        let seen = seen(&self.stream, event, skipped_before);
        match (&self.format, self.shape) {
            (Some(format), _) => format.write(&seen, self.terminal, &mut self.line),
            (None, Shape::Json | Shape::Ndjson) => {
                self.line
                    .extend_from_slice(seen.json().to_string().as_bytes());
                self.line.push(b'\n');
            }
            (None, _) if self.terminal => write_for_people(&seen, &mut self.line),
            (None, _) => Format::raw().write(&seen, false, &mut self.line),
        }
    }
}

/// An event in the form that is printed.
pub(crate) fn seen(stream: &str, event: Event, skipped_before: u64) -> Seen {
    Seen {
        stream: stream.to_owned(),
        shard: event.shard,
        offset: event.offset,
        timestamp_ms: event
            .timestamp_micros
            .map(|micros| i64::try_from(micros / 1_000).unwrap_or(i64::MAX)),
        headers: event.headers.iter().collect(),
        key: event.key,
        value: (!event.is_tombstone).then_some(event.payload),
        skipped_before,
        publisher: event.publisher.map(|name| name.to_string()),
    }
}

/// One shard or all of them.
pub(super) enum Reader {
    One(Box<Subscription>),
    All(MergedSubscription),
}

impl Reader {
    /// Subscribes to the shard that was named, or to all. Whole records are asked for; a broker
    /// that cannot send them sends what it can.
    pub(super) async fn open(
        app: &App,
        settings: &Settings,
        client: &Client,
        stream: &str,
        from: Start,
        show: &Presentation,
    ) -> Result<Self, Failure> {
        let start = client_start(from);
        let attempt = || async {
            let opened = match show.shard {
                Some(shard) => {
                    let whole = client.subscribe(stream).shard(shard).from(start);
                    match whole.clone().records().await {
                        Err(failed) if is_unsupported(&failed) => whole.timestamps().await,
                        opened => opened,
                    }
                    .map(|one| Self::One(Box::new(one)))
                }
                None => {
                    let whole = client.subscribe_all(stream).from(start);
                    match whole.clone().records().await {
                        Err(failed) if is_unsupported(&failed) => whole.timestamps().await,
                        opened => opened,
                    }
                    .map(Self::All)
                }
            };
            Ok(opened?)
        };
        named(app, settings, stream, show.wait, attempt).await
    }

    /// The next offset of the one shard that is read; nothing for several or in memory.
    pub(super) fn position(&self) -> Option<u64> {
        match self {
            Self::One(shard) => shard.position(),
            Self::All(_) => None,
        }
    }

    /// The next events of any shard, or what happened to it; nothing when it is over. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Option<(u32, Signal)>, Failure> {
        match self {
            Self::One(shard) => {
                let number = shard.shard();
                Ok(shard.next_signal().await?.map(|signal| (number, signal)))
            }
            Self::All(shards) => shards.next_signal().await.map_err(|failed| {
                let failure = Failure::from(failed.why);
                Failure {
                    message: format!("shard {}: {}", failed.shard, failure.message),
                    ..failure
                }
            }),
        }
    }
}

/// Asks for something that has a stream's name; when there is none of that name, waits as `--wait`
/// said, and then names what is close to it.
pub(super) async fn named<T, F: Future<Output = Result<T, Failure>>>(
    app: &App,
    settings: &Settings,
    stream: &str,
    wait: Option<Duration>,
    attempt: impl FnMut() -> F,
) -> Result<T, Failure> {
    match waiting(wait, &format!("stream {stream}"), attempt).await {
        Err(failure) if is_unknown_name(&failure) => {
            let matches = super::stream::matches(app, settings, stream).await;
            Err(super::stream::with_matches(failure, matches))
        }
        answer => answer,
    }
}

fn is_unsupported(failed: &ReadFailed) -> bool {
    matches!(failed, ReadFailed::Call(CallFailed::Unsupported { .. }))
}

pub(super) fn client_start(from: Start) -> felix_client::Start {
    match from {
        Start::Latest => felix_client::Start::Latest,
        Start::Earliest => felix_client::Start::Earliest,
        Start::Offset(offset) => felix_client::Start::Offset(offset),
        Start::At(_) | Start::Ago(_) => {
            let ms = from.moment_ms(now_ms()).unwrap_or_default();
            let ms = u64::try_from(ms).unwrap_or_default();
            felix_client::Start::Time(UNIX_EPOCH + Duration::from_millis(ms))
        }
    }
}

/// Says on standard error what happened to a subscription; records go to standard output.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "what is delivered or final is no notice, and neither is a signal of a newer client"
)]
pub(super) fn tell(shard: u32, signal: &Signal) {
    let at = |at: &Option<u64>| at.map_or_else(String::new, |at| format!(" at offset {at}"));
    match signal {
        Signal::Resumed { at: Some(offset) } => {
            eprintln!("shard {shard}: connected again, going on at offset {offset}");
        }
        Signal::Resumed { at: None } => {
            eprintln!("shard {shard}: connected again; what was published meanwhile is missing");
        }
        Signal::Moved { broker, .. } => eprintln!("shard {shard}: now read from {broker}"),
        Signal::Lagged { lost: 0, .. } => {}
        Signal::Lagged { lost, at: next } => {
            eprintln!(
                "shard {shard}: {lost} records were lost, going on{}",
                at(next)
            );
        }
        _ => {}
    }
}

/// The exclusive ends of the shards as they are now. A page that begins past every offset is
/// refused with the next offset, which is the question asked.
pub(super) async fn ends(
    client: &Client,
    stream: &str,
    shard: Option<u32>,
) -> Result<BTreeMap<u32, u64>, Failure> {
    let shards = match shard {
        Some(shard) => shard..shard.saturating_add(1),
        None => {
            let width = client
                .stream_shards(stream)
                .await
                .map_err(ReadFailed::from)?;
            0..width.shards
        }
    };
    let mut ends = BTreeMap::new();
    for shard in shards {
        let past = client
            .stream_read(stream, shard, u64::MAX, PageLimits::default())
            .await;
        let end = match past {
            Err(ReadFailed::InFuture { next, .. }) => next,
            Err(failed) => return Err(failed.into()),
            Ok(page) => page.next_offset,
        };
        ends.insert(shard, end);
    }
    Ok(ends)
}
