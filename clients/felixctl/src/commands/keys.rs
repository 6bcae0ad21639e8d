//! `cache get | put | rm KEY | ls-keys | watch` and `counter add | get`.

use std::io::{self, Read as _, Write as _};

use bytes::Bytes;
use felix_client::{
    Cache, Change, Client, Condition, Entry, Error, ListOptions, WatchFrom, WatchSignal,
};
use serde_json::{Map, Value, json};

use super::App;
use super::connect::{connect, failure, is_unknown_name};
use crate::cli::{CacheKeys, CachePut, CacheWatch, CounterCommand, ValueSource};
use crate::exit::{Exit, Failure};
use crate::output::{Field, Report, Shape, escape, json_text};
use crate::parse::show_time;
use crate::settings::Settings;

/// Largest value taken from a file or standard input. No record is larger.
const VALUE_BYTES_MAX: u64 = 16 * 1024 * 1024;

const ENTRY_FIELDS: &[Field] = &[
    Field::plain("key"),
    Field::plain("value"),
    Field::plain("value_encoding"),
    Field::plain("version"),
    Field::plain("expires_at"),
    Field::plain("expires_at_ms"),
];

const KEY_FIELDS: &[Field] = &[
    Field::plain("key"),
    Field::plain("version"),
    Field::plain("expires_at"),
];

/// One cache, for as long as a command needs it.
struct Open {
    settings: Settings,
    client: Client,
    cache: Cache,
    name: String,
}

async fn open(app: &App, cache: &str) -> Result<Open, Failure> {
    let settings = app.settings()?;
    let client = connect(app, &settings).await?;
    let opened = client
        .cache(cache)
        .map_err(|error| failure(&error.into()))?;
    Ok(Open {
        settings,
        client,
        cache: opened,
        name: cache.to_owned(),
    })
}

impl Open {
    /// Closes the connection. A cache that does not exist is told with the names close to it.
    async fn done<T>(self, app: &App, result: Result<T, Failure>) -> Result<T, Failure> {
        self.client.close().await;
        match result {
            Err(failure) if is_unknown_name(&failure) => {
                let matches = super::cache::matches(app, &self.settings, &self.name).await;
                Err(failure.with_matches(matches))
            }
            result => result,
        }
    }
}

pub(super) async fn get(app: &App, cache: &str, key: &str) -> Result<(), Failure> {
    let open = open(app, cache).await?;
    let got = open.cache.get(key).await;
    let got = got.map_err(|error| failure(&error.into()));
    let entry = open.done(app, got).await?.ok_or_else(|| absent(key))?;
    if app.output.is_json() {
        let entry = object(key, &entry);
        let report = Report::one("felixctl.cache.entry/1", ENTRY_FIELDS, &entry);
        return Ok(app.output.report(&report)?);
    }
    print_value(app, &entry.value)
}

fn absent(key: &str) -> Failure {
    Failure::new(Exit::NotFound, format!("{key:?} holds nothing")).with_code("no_entry")
}

/// The bytes themselves for a file or a pipe; for a person nothing that acts on his terminal.
pub(super) fn print_value(app: &App, value: &[u8]) -> Result<(), Failure> {
    if app.output.terminal {
        return Ok(app.output.text(&format!("{}\n", escape(value)))?);
    }
    let mut out = io::stdout().lock();
    match out.write_all(value).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

fn object(key: &str, entry: &Entry) -> Map<String, Value> {
    let (value, encoding) = json_text(Some(&entry.value));
    let mut object = Map::new();
    object.insert("key".into(), key.into());
    object.insert("value".into(), value);
    object.insert("value_encoding".into(), encoding);
    object.insert("version".into(), entry.version.into());
    object.insert("expires_at_ms".into(), entry.expires_at_ms.into());
    object.insert("expires_at".into(), time(entry.expires_at_ms));
    object
}

/// Unix milliseconds as people read them.
fn time(ms: Option<u64>) -> Value {
    ms.and_then(|ms| i64::try_from(ms).ok())
        .map(show_time)
        .into()
}

pub(super) async fn put(app: &App, args: &CachePut) -> Result<(), Failure> {
    const FIELDS: &[Field] = &[Field::plain("key"), Field::plain("version")];
    let value = value_of(&args.source)?;
    let condition = match (args.if_absent, args.if_version) {
        (true, _) => Some(Condition::Absent),
        (false, version) => version.map(Condition::Version),
    };
    let open = open(app, &args.cache).await?;
    let key = args.key.as_str();
    let stored = match (condition, args.ttl) {
        (Some(condition), ttl) => open.cache.put_if(key, value, condition, ttl).await,
        (None, Some(ttl)) => open.cache.put_with_ttl(key, value, ttl).await,
        (None, None) => open.cache.put(key, value).await,
    };
    let stored = stored.map_err(|error| failure(&error.into()));
    let version = open.done(app, stored).await?;
    let report = json!({"key": key, "version": version});
    written(app, &format!("{key} is set"), version, |app| {
        app.output
            .report(&Report::one("felixctl.cache.put/1", FIELDS, &report))
    })
}

fn written(
    app: &App,
    what: &str,
    version: Option<u64>,
    report: impl FnOnce(&App) -> io::Result<()>,
) -> Result<(), Failure> {
    if app.output.is_json() {
        return Ok(report(app)?);
    }
    let version = version.map_or_else(String::new, |version| format!(" at version {version}"));
    Ok(app.output.say(&format!("{what}{version}"))?)
}

/// The value of an argument, a file, or all of standard input.
pub(super) fn value_of(source: &ValueSource) -> Result<Bytes, Failure> {
    let mut bytes = Vec::new();
    match (&source.value, &source.file) {
        (Some(value), _) => return Ok(value.clone().into()),
        (None, Some(file)) => {
            let name = |error: io::Error| Failure::usage(format!("{}: {error}", file.display()));
            let opened = std::fs::File::open(file).map_err(name)?;
            opened
                .take(VALUE_BYTES_MAX + 1)
                .read_to_end(&mut bytes)
                .map_err(name)?;
        }
        (None, None) => {
            let stdin = io::stdin().lock();
            stdin.take(VALUE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        }
    }
    if bytes.len() as u64 > VALUE_BYTES_MAX {
        return Err(Failure::usage("the value is larger than 16 MiB"));
    }
    Ok(bytes.into())
}

pub(super) async fn remove(
    app: &App,
    cache: &str,
    key: &str,
    if_version: Option<u64>,
) -> Result<(), Failure> {
    const FIELDS: &[Field] = &[Field::plain("key"), Field::plain("removed")];
    let open = open(app, cache).await?;
    let removed = match if_version {
        Some(version) => open.cache.delete_if(key, version).await.map(|()| true),
        None => open
            .cache
            .delete(key)
            .await
            .map(|removed| removed.is_some()),
    };
    let removed = removed.map_err(|error| failure(&error.into()));
    let removed = open.done(app, removed).await?;
    if app.output.is_json() {
        let report = json!({"key": key, "removed": removed});
        let report = Report::one("felixctl.cache.rm/1", FIELDS, &report);
        return Ok(app.output.report(&report)?);
    }
    let said = if removed {
        format!("{key} is removed")
    } else {
        format!("{key} held nothing")
    };
    Ok(app.output.say(&said)?)
}

pub(super) async fn keys(app: &App, args: &CacheKeys) -> Result<(), Failure> {
    let open = open(app, &args.cache).await?;
    let listed = list(&open.cache, args).await;
    let rows = open.done(app, listed).await?;
    let fields = if args.values {
        ENTRY_FIELDS
    } else {
        KEY_FIELDS
    };
    let report = Report::list("felixctl.cache.keys/1", fields, rows);
    Ok(app.output.report(&report)?)
}

async fn list(cache: &Cache, args: &CacheKeys) -> Result<Vec<Map<String, Value>>, Failure> {
    let mut rows = Vec::new();
    let mut after = args.after.clone();
    loop {
        let left = args.limit.saturating_sub(rows.len() as u64);
        if left == 0 {
            return Ok(rows);
        }
        let options = ListOptions {
            prefix: args.prefix.clone(),
            after,
            limit: u32::try_from(left).unwrap_or(u32::MAX),
            values: args.values,
        };
        let page = cache.list(options).await;
        let page = page.map_err(|error| failure(&error.into()))?;
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let entries = page.entries.iter().take(left);
        rows.extend(entries.map(|listed| object(&listed.key, &listed.entry)));
        after = page.next;
        if after.is_none() {
            return Ok(rows);
        }
    }
}

pub(super) async fn watch(app: &App, args: &CacheWatch) -> Result<(), Failure> {
    let open = open(app, &args.cache).await?;
    let followed = follow(app, &open.cache, args).await;
    open.done(app, followed).await
}

async fn follow(app: &App, cache: &Cache, args: &CacheWatch) -> Result<(), Failure> {
    let watch = match &args.key {
        Some(key) => cache.watch(key),
        None => cache.watch_prefix(args.prefix.as_deref().unwrap_or_default()),
    };
    let from = match (args.retained, args.from_offset) {
        (true, _) => WatchFrom::Retained,
        (false, Some(offset)) => WatchFrom::Offset(offset),
        (false, None) => WatchFrom::Now,
    };
    let mut left = args.count.unwrap_or(u64::MAX);
    let mut watched = watch.from(from).await?;
    while left > 0 {
        let Some(signal) = watched.next_signal().await? else {
            let gone = format!("cache {} was deleted", args.cache);
            return Err(Failure::new(Exit::NotFound, gone));
        };
        match signal {
            WatchSignal::Change(change) => {
                app.output.text(&change_line(app, &args.cache, &change))?;
                left -= 1;
            }
            WatchSignal::CaughtUp { values } => {
                eprintln!("that was what {values} keys hold; from here on changes");
            }
            WatchSignal::Resnapshot { shard } => {
                eprintln!("shard {shard}: its history is gone, so what its keys hold comes again")
            }
            _ => {}
        }
    }
    Ok(())
}

fn change_line(app: &App, cache: &str, change: &Change) -> String {
    if !app.output.is_json() {
        let key = crate::output::escape_line(change.key.as_bytes());
        return match (&change.value, app.output.shape) {
            (_, Shape::Name) => format!("{key}\n"),
            (Some(value), _) => format!("{key}  {}\n", crate::output::escape_line(value)),
            (None, _) => format!("{key}  (gone)\n"),
        };
    }
    let (value, encoding) = json_text(change.value.as_deref());
    let object = json!({
        "schema": "felixctl.cache.change/1",
        "cache": cache,
        "shard": change.shard,
        "offset": change.offset,
        "key": change.key,
        "value": value,
        "value_encoding": encoding,
        "expires_at_ms": change.expires_at_ms,
        "expires_at": time(change.expires_at_ms),
        "retained": change.retained,
    });
    format!("{object}\n")
}

pub(super) async fn counter(app: &App, command: &CounterCommand) -> Result<(), Failure> {
    const FIELDS: &[Field] = &[
        Field::plain("key"),
        Field::plain("value"),
        Field::plain("repeated"),
    ];
    let (cache, key) = match command {
        CounterCommand::Add { cache, key, .. } | CounterCommand::Get { cache, key } => (cache, key),
    };
    let open = open(app, cache).await?;
    let sum = sum(&open.client, command).await;
    let sum = sum.map_err(|error| failure(&error));
    let (value, repeated) = open.done(app, sum).await?;
    if app.output.is_json() {
        let report = json!({"key": key, "value": value, "repeated": repeated});
        let report = Report::one("felixctl.counter/1", FIELDS, &report);
        return Ok(app.output.report(&report)?);
    }
    // Nothing was ever added: people and scripts alike count from zero.
    Ok(app
        .output
        .text(&format!("{}\n", value.unwrap_or_default()))?)
}

async fn sum(client: &Client, command: &CounterCommand) -> Result<(Option<i64>, bool), Error> {
    Ok(match command {
        CounterCommand::Get { cache, key } => (client.counter(cache)?.get(key).await?, false),
        CounterCommand::Add {
            cache,
            key,
            delta,
            once: None,
        } => {
            let sum = client.counter(cache)?.add(key, *delta).await?;
            (Some(sum), false)
        }
        CounterCommand::Add {
            cache,
            key,
            delta,
            once: Some(once),
        } => {
            let counter = client.counter(cache)?;
            let added = counter.add_once(key, *delta, once.clone()).await?;
            (Some(added.value), added.repeated)
        }
    })
}
