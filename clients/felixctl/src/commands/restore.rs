//! `restore`: a backup put into an empty data directory, every batch of it checked on the way.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use felix_journal::data_dir::log_dir;
use felix_journal::{Disk, RealDisk, durable};
use felix_model::{Incarnation, Offset, ShardIndex, StreamId};
use indicatif::ProgressBar;
use serde_json::json;

use super::App;
use super::backup::{BROKER, CONTROLPLANE, FORMAT, MANIFEST, Manifest};
use crate::cli::Restore;
use crate::exit::{Exit, Failure};
use crate::output::{Field, Report};
use crate::parse::{show_size, show_time};
use crate::progress::{self, Unit};

/// Directories inside each other at most; deeper is a link in circles, not a backup.
const DEPTH_MAX: usize = 16;
/// Largest file that is no log: markers, identities and a snapshot of the catalogue.
const FILE_BYTES_MAX: u64 = 1 << 30;

pub(super) fn run(app: &App, restore: &Restore) -> Result<(), Failure> {
    let manifest = manifest(&restore.from)?;
    let plan = Plan::read(&restore.from)?;
    must_be_empty(&restore.data_dir)?;
    // Everything goes into a directory beside it, which gets its name when all of it was good: what
    // has the name of a data directory can be started from. A check does the same and stops there.
    let scratch = scratch(&restore.data_dir)?;
    must_be_empty(&scratch)?;
    let title = if restore.dry_run {
        "checking"
    } else {
        "restoring"
    };
    let bar = progress::bar(title, Some(plan.bytes), Unit::Bytes);
    let done = copy_all(&restore.from, &scratch, &plan, &bar).and_then(|done| {
        done.check(&manifest)?;
        if !restore.dry_run {
            name(&scratch, &restore.data_dir)?;
        }
        Ok(done)
    });
    bar.finish_and_clear();
    if restore.dry_run || done.is_err() {
        remove(&scratch)?;
    }
    show(app, restore, &manifest, &plan, &done?)
}

fn manifest(from: &Path) -> Result<Manifest, Failure> {
    let file = from.join(MANIFEST);
    let text = fs::read(&file).map_err(|error| {
        let missing = error.kind() == io::ErrorKind::NotFound;
        let exit = if missing {
            Exit::NotFound
        } else {
            Exit::Failed
        };
        Failure::new(exit, format!("{}: {error}", file.display()))
            .with_hint("a backup without this file was never complete and is not restored")
    })?;
    let manifest: Manifest = serde_json::from_slice(&text)
        .map_err(|error| Failure::failed(format!("{} is damaged: {error}", file.display())))?;
    if manifest.format != FORMAT {
        return Err(Failure::failed(format!(
            "the backup has format {}, this felixctl reads format {FORMAT}",
            manifest.format
        ))
        .with_hint("use the felixctl of the version that wrote it, or a newer one"));
    }
    Ok(manifest)
}

/// What a backup consists of, as paths below its directory: logs, and files that are none.
#[derive(Debug, Default)]
struct Plan {
    logs: Vec<(PathBuf, u64)>,
    files: Vec<(PathBuf, u64)>,
    bytes: u64,
}

impl Plan {
    fn read(from: &Path) -> Result<Self, Failure> {
        let mut plan = Self::default();
        for part in [BROKER, CONTROLPLANE] {
            plan.walk(from, Path::new(part), 0).map_err(|error| {
                Failure::failed(format!("{}: {error}", from.join(part).display()))
            })?;
        }
        plan.logs.sort();
        plan.files.sort();
        Ok(plan)
    }

    fn walk(&mut self, root: &Path, below: &Path, depth: usize) -> io::Result<()> {
        if depth > DEPTH_MAX {
            return Err(io::Error::other("too many directories inside each other"));
        }
        let mut files = Vec::new();
        let mut is_log = false;
        for entry in fs::read_dir(root.join(below))? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.walk(root, &path, depth + 1)?;
            } else if kind.is_file() {
                is_log |= path.extension().is_some_and(|extension| extension == "log");
                files.push((path, entry.metadata()?.len()));
            } else {
                return Err(io::Error::other(format!("{} is no file", path.display())));
            }
        }
        let bytes: u64 = files.iter().map(|(_, bytes)| bytes).sum();
        self.bytes += bytes;
        if is_log {
            self.logs.push((below.to_owned(), bytes));
        } else {
            self.files.append(&mut files);
        }
        Ok(())
    }
}

/// What was read, checked and written: by log, its first offset and its end (exclusive).
#[derive(Debug, Default)]
struct Done {
    logs: BTreeMap<PathBuf, (u64, u64)>,
}

impl Done {
    /// Records of streams; the entries of the catalogue are no records.
    fn records(&self) -> u64 {
        let of_streams = self.logs.iter().filter(|(log, _)| log.starts_with(BROKER));
        of_streams
            .map(|(_, (start, end))| end.saturating_sub(*start))
            .sum()
    }

    /// Whether the copies hold what the servers said they wrote. A log whose end is damaged looks
    /// like one that was cut off by a crash, and opening it would make it shorter without a word.
    fn check(&self, manifest: &Manifest) -> Result<(), Failure> {
        for shard in &manifest.broker.shards {
            let stream = stream_id(&shard.stream)
                .ok_or_else(|| Failure::failed(format!("{:?} is no stream", shard.stream)))?;
            let (incarnation, index) = (Incarnation(shard.incarnation), ShardIndex(shard.shard));
            let log = log_dir(Path::new(BROKER), &stream, incarnation, index);
            let found = self
                .logs
                .get(&log)
                .copied()
                .unwrap_or((shard.start, shard.start));
            if found != (shard.start, shard.end) {
                return Err(shorter(&log, shard.end, found.1));
            }
        }
        let ledger = Path::new(CONTROLPLANE).join("ledger");
        let found = self.logs.get(&ledger).map_or(0, |(_, end)| *end);
        if found != manifest.controlplane.revision {
            return Err(shorter(&ledger, manifest.controlplane.revision, found));
        }
        Ok(())
    }
}

/// A stream as the manifest names it: `tenant/namespace/stream`.
fn stream_id(text: &str) -> Option<StreamId> {
    let (tenant, rest) = text.split_once('/')?;
    let (namespace, stream) = rest.split_once('/')?;
    Some(StreamId {
        tenant: tenant.parse().ok()?,
        namespace: namespace.parse().ok()?,
        stream: stream.parse().ok()?,
    })
}

fn shorter(log: &Path, expected: u64, found: u64) -> Failure {
    Failure::failed(format!(
        "{} is damaged: it should end at offset {expected} and ends at {found}",
        log.display()
    ))
    .with_hint("nothing was restored")
}

fn copy_all(from: &Path, to: &Path, plan: &Plan, bar: &ProgressBar) -> Result<Done, Failure> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let mut done = Done::default();
    for (log, bytes) in &plan.logs {
        let (source, target) = (from.join(log), to.join(log));
        let copied = felix_journal::backup::restore(&disk, &source, &target, Offset(u64::MAX))
            .map_err(|refused| damaged(&source, &refused.to_string()))?;
        done.logs
            .insert(log.clone(), (copied.start.0, copied.end.0));
        bar.inc(*bytes);
    }
    for (file, bytes) in &plan.files {
        let (source, target) = (from.join(file), to.join(file));
        copy_file(&*disk, &source, &target, *bytes)
            .map_err(|error| damaged(&source, &error.to_string()))?;
        bar.inc(*bytes);
    }
    Ok(done)
}

fn copy_file(disk: &dyn Disk, from: &Path, to: &Path, bytes: u64) -> Result<(), Failure> {
    if bytes > FILE_BYTES_MAX {
        return Err(Failure::failed(format!(
            "{bytes} bytes are too many for such a file"
        )));
    }
    let failed = |error: &dyn std::fmt::Display| Failure::failed(error.to_string());
    let content = fs::read(from).map_err(|error| failed(&error))?;
    if let Some(parent) = to.parent() {
        durable::create_dirs(disk, parent).map_err(|error| failed(&error))?;
    }
    durable::replace(disk, to, &content).map_err(|error| failed(&error))
}

fn damaged(what: &Path, why: &str) -> Failure {
    Failure::failed(format!("{}: {why}", what.display())).with_hint("nothing was restored")
}

fn must_be_empty(directory: &Path) -> Result<(), Failure> {
    match fs::read_dir(directory).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::new(
            Exit::Conflict,
            format!("{} is not empty", directory.display()),
        )
        .with_hint("a restore never overwrites; name a new directory")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::failed(format!("{}: {error}", directory.display()))),
    }
}

/// The directory that a data directory is while it is not finished.
fn scratch(data_dir: &Path) -> Result<PathBuf, Failure> {
    let data_dir = std::path::absolute(data_dir)?;
    match data_dir.file_name() {
        Some(name) => Ok(data_dir.with_file_name(format!(".{}.restoring", name.to_string_lossy()))),
        None => Err(Failure::usage(format!(
            "{} has no name",
            data_dir.display()
        ))),
    }
}

/// Gives the finished directory its name, for good.
fn name(scratch: &Path, data_dir: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::failed(format!("{}: {error}", data_dir.display()));
    fs::rename(scratch, data_dir).map_err(failed)?;
    match std::path::absolute(data_dir)?.parent() {
        Some(parent) => fs::File::open(parent)
            .and_then(|parent| parent.sync_all())
            .map_err(failed),
        None => Ok(()),
    }
}

fn remove(scratch: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(scratch) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Failure::failed(format!("{}: {error}", scratch.display())))
        }
        _ => Ok(()),
    }
}

fn show(
    app: &App,
    restore: &Restore,
    manifest: &Manifest,
    plan: &Plan,
    done: &Done,
) -> Result<(), Failure> {
    const FIELDS: &[Field] = &[
        Field::plain("directory"),
        Field::plain("taken_at"),
        Field::plain("logs"),
        Field::plain("records"),
        Field::shown("bytes", |value| {
            value.as_u64().map_or_else(|| "-".into(), show_size)
        }),
        Field::plain("restored"),
    ];
    let report = json!({
        "directory": if restore.dry_run { &restore.from } else { &restore.data_dir },
        "taken_at": show_time(manifest.taken_at_ms),
        "logs": done.logs.len(),
        "records": done.records(),
        "bytes": plan.bytes,
        "restored": !restore.dry_run,
    });
    Ok(app
        .output
        .report(&Report::one("felixctl.restore/1", FIELDS, &report))?)
}
