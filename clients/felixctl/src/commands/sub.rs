//! `sub` and `read`.

use std::collections::BTreeMap;

use felix_client::{Client, Signal};

use super::App;
use super::connect::connect;
use super::reading::{Printed, Printer, Reader, ends, named, tell};
use crate::cli::{Read, Sub};
use crate::exit::{Exit, Failure};
use crate::parse::Start;
use crate::settings::Settings;

/// Follows a stream until enough was printed, it is deleted, or Ctrl-C.
pub(super) async fn follow(app: &App, args: &Sub) -> Result<(), Failure> {
    if args.show.count == Some(0) {
        return Ok(());
    }
    let settings = app.settings()?;
    let client = connect(app, &settings).await?;
    let mut reader =
        Reader::open(app, &settings, &client, &args.stream, args.from, &args.show).await?;
    let mut printer = Printer::new(app, &args.stream, &args.show);
    while let Some((shard, signal)) = reader.next().await? {
        tell(shard, &signal);
        if let Signal::Deleted = signal {
            return Err(deleted(&args.stream));
        }
        if let Signal::Batch(batch) = signal
            && printer.print(&batch, None)? == Printed::Enough
        {
            break;
        }
    }
    client.close().await;
    Ok(())
}

/// Prints what a stream holds at this moment, and stops.
pub(super) async fn read(app: &App, args: &Read) -> Result<(), Failure> {
    let settings = app.settings()?;
    let client = connect(app, &settings).await?;
    let ends = bounds(app, &settings, &client, args).await?;
    // Shards are read one after the other: the order of the output is then the same every time.
    let mut printer = Printer::new(app, &args.stream, &args.show);
    for (shard, end) in ends {
        if read_shard(app, &settings, &client, args, (shard, end), &mut printer).await?
            == Printed::Enough
        {
            break;
        }
    }
    client.close().await;
    Ok(())
}

/// Where each shard's output ends: what is there now, and never past `--until`.
async fn bounds(
    app: &App,
    settings: &Settings,
    client: &Client,
    args: &Read,
) -> Result<BTreeMap<u32, u64>, Failure> {
    let ask = || ends(client, &args.stream, args.show.shard);
    let mut ends = named(app, settings, &args.stream, args.show.wait, ask).await?;
    if let Some(until) = args.until {
        for end in ends.values_mut() {
            *end = until.min(*end);
        }
    }
    Ok(ends)
}

async fn read_shard(
    app: &App,
    settings: &Settings,
    client: &Client,
    args: &Read,
    (shard, end): (u32, u64),
    printer: &mut Printer,
) -> Result<Printed, Failure> {
    let nothing = match args.from {
        Start::Latest => true,
        Start::Offset(offset) => offset == end,
        Start::Earliest | Start::At(_) | Start::Ago(_) => end == 0,
    };
    if nothing {
        return Ok(Printed::More);
    }
    let mut show = args.show.clone();
    show.shard = Some(shard);
    let mut reader = Reader::open(app, settings, client, &args.stream, args.from, &show).await?;
    while reader.position().is_none_or(|position| position < end) {
        let Some((shard, signal)) = reader.next().await? else {
            break;
        };
        tell(shard, &signal);
        if let Signal::Deleted = signal {
            return Err(deleted(&args.stream));
        }
        if let Signal::Batch(batch) = signal
            && printer.print(&batch, Some(end))? == Printed::Enough
        {
            return Ok(Printed::Enough);
        }
    }
    Ok(Printed::More)
}

fn deleted(stream: &str) -> Failure {
    Failure::new(Exit::NotFound, format!("stream {stream} was deleted"))
}
