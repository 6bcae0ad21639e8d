//! `pub`.

use std::collections::VecDeque;

use felix_client::{Ack, Client, IdempotentProducer, Published, Publisher, Receipt, Record};
use serde_json::json;

use super::App;
use super::connect::connect;
use super::input::{Input, Inputs};
use super::reading::named;
use super::schedule;
use crate::cli::{AckWord, Pub};
use crate::exit::Failure;
use crate::output::{Field, Report};
use crate::settings::Settings;

/// Records published and not yet acknowledged. The broker's own window is smaller or equal; this
/// bounds what a failure leaves unknown.
const IN_FLIGHT_MAX: usize = 1024;

pub(super) async fn run(app: &App, args: &Pub) -> Result<(), Failure> {
    if let Some(due) = schedule::due(args) {
        return schedule::publish(app, args, due).await;
    }
    let settings = app.settings()?;
    let mut inputs = Inputs::open(args)?;
    let client = connect(app, &settings).await?;
    let mut tally = Tally::default();
    let published = publish_all(app, &settings, args, &client, &mut inputs, &mut tally).await;
    client.close().await;
    match published {
        Ok(()) => tally.show(app, args),
        Err(failure) if tally.acknowledged > 0 => Err(Failure {
            message: format!(
                "after {} acknowledged records: {}",
                tally.acknowledged, failure.message
            ),
            ..failure
        }),
        Err(failure) => Err(failure),
    }
}

async fn publish_all(
    app: &App,
    settings: &Settings,
    args: &Pub,
    client: &Client,
    inputs: &mut Inputs,
    tally: &mut Tally,
) -> Result<(), Failure> {
    // The first record goes alone: if the stream does not exist, that is known before the rest of
    // the input is read, and `--wait` has one record to try again.
    let Some(first) = inputs.next().await else {
        return Ok(());
    };
    let first = first?;
    let attempt = || async {
        // A producer that was refused is over, so each attempt has its own.
        let publish = Publish::open(args, client).await?;
        let published = publish.send(first.clone()).await?.await?;
        Ok((publish, published))
    };
    let (publish, published) = named(app, settings, &args.stream, args.wait, attempt).await?;
    tally.add(args, published);
    let mut in_flight = VecDeque::new();
    loop {
        let next = tokio::select! {
            biased;
            input = inputs.next(), if in_flight.len() < IN_FLIGHT_MAX => input,
            answer = oldest(&mut in_flight) => {
                tally.add(args, answer?);
                continue;
            }
        };
        match next {
            Some(input) => in_flight.push_back(publish.send(input?).await?),
            None => break,
        }
    }
    for sent in in_flight {
        tally.add(args, sent.await?);
    }
    Ok(())
}

/// The answer to the oldest record in flight; never, when there is none.
async fn oldest(in_flight: &mut VecDeque<Receipt>) -> Result<Published, Failure> {
    let Some(receipt) = in_flight.front_mut() else {
        return std::future::pending().await;
    };
    let answer = receipt.await;
    in_flight.pop_front();
    Ok(answer?)
}

/// The two ways to publish.
enum Publish {
    Plain(Publisher),
    Idempotent(IdempotentProducer),
}

impl Publish {
    async fn open(args: &Pub, client: &Client) -> Result<Self, Failure> {
        if args.idempotent {
            return Ok(Self::Idempotent(
                client.idempotent_producer(&args.stream).await?,
            ));
        }
        let ack = match args.ack {
            AckWord::Message => Ack::Message,
            AckWord::Batch => Ack::Batch,
            AckWord::None => Ack::None,
        };
        Ok(Self::Plain(client.publisher(&args.stream)?.ack(ack)))
    }

    async fn send(&self, input: Input) -> Result<Receipt, Failure> {
        if matches!(self, Self::Idempotent(_)) && !input.headers.is_empty() {
            return Err(Failure::usage("--idempotent cannot carry headers")
                .with_hint("a broker tells repeats by key and value alone; leave one of the two"));
        }
        let mut record = Record::new(input.value);
        if let Some(key) = input.key {
            record = record.key(key);
        }
        for (name, value) in input.headers {
            record = record.header(name, value);
        }
        Ok(match self {
            Self::Plain(publisher) => publisher.send(record).await?,
            Self::Idempotent(producer) => producer.send(record).await?,
        })
    }
}

/// What was acknowledged.
#[derive(Debug, Default)]
struct Tally {
    published: u64,
    acknowledged: u64,
    first_offset: Option<u64>,
    last_offset: Option<u64>,
}

impl Tally {
    fn add(&mut self, args: &Pub, published: Published) {
        self.published += 1;
        if args.ack != AckWord::None || args.idempotent {
            self.acknowledged += 1;
        }
        self.first_offset = self.first_offset.or(published.offset);
        self.last_offset = published.offset.or(self.last_offset);
    }

    fn show(&self, app: &App, args: &Pub) -> Result<(), Failure> {
        const FIELDS: &[Field] = &[
            Field::plain("stream"),
            Field::plain("published"),
            Field::plain("acknowledged"),
            Field::plain("first_offset"),
            Field::plain("last_offset"),
        ];
        if app.output.is_json() {
            let report = json!({
                "stream": args.stream,
                "published": self.published,
                "acknowledged": self.acknowledged,
                "first_offset": self.first_offset,
                "last_offset": self.last_offset,
            });
            return Ok(app
                .output
                .report(&Report::one("felixctl.pub/1", FIELDS, &report))?);
        }
        Ok(app.output.say(&self.sentence(&args.stream))?)
    }

    fn sentence(&self, stream: &str) -> String {
        let records = if self.published == 1 {
            "record"
        } else {
            "records"
        };
        let count = self.published;
        if self.acknowledged == 0 {
            return format!("sent {count} {records} to {stream}, without waiting for an answer");
        }
        match (self.first_offset, self.last_offset) {
            (Some(first), Some(last)) if first == last => {
                format!("published {count} {records} to {stream} at offset {first}")
            }
            (Some(first), Some(last)) => {
                format!("published {count} {records} to {stream} at offsets {first} to {last}")
            }
            // An in-memory stream shows no offsets.
            _ => format!("published {count} {records} to {stream}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_says_what_is_known() {
        let tally = |published, acknowledged, first_offset, last_offset| {
            Tally {
                published,
                acknowledged,
                first_offset,
                last_offset,
            }
            .sentence("orders")
        };
        assert_eq!(
            tally(1, 1, Some(7), Some(7)),
            "published 1 record to orders at offset 7"
        );
        assert_eq!(
            tally(3, 3, Some(7), Some(9)),
            "published 3 records to orders at offsets 7 to 9"
        );
        assert_eq!(tally(2, 2, None, None), "published 2 records to orders");
        assert!(tally(2, 0, None, None).contains("without waiting"));
    }
}
