//! `restore`: a backup put into an empty data directory, every batch of it checked on the way.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use felix_journal::{Disk, RealDisk, durable};
use felix_model::Offset;
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
    // A check restores into a directory that is thrown away: it reads and compares the same bytes
    // in the same way, and needs no second implementation that could be more lenient.
    let scratch = restore.data_dir.with_extension("felix-check");
    let to = if restore.dry_run {
        &scratch
    } else {
        &restore.data_dir
    };
    must_be_empty(to)?;
    let title = if restore.dry_run {
        "checking"
    } else {
        "restoring"
    };
    let bar = progress::bar(title, Some(plan.bytes), Unit::Bytes);
    let done = copy_all(&restore.from, to, &plan, &bar);
    bar.finish_and_clear();
    if restore.dry_run {
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

/// What was read, checked and written.
#[derive(Debug, Default)]
struct Done {
    logs: usize,
    records: u64,
}

fn copy_all(from: &Path, to: &Path, plan: &Plan, bar: &ProgressBar) -> Result<Done, Failure> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let mut done = Done::default();
    for (log, bytes) in &plan.logs {
        let (source, target) = (from.join(log), to.join(log));
        let copied = felix_journal::backup::restore(&disk, &source, &target, Offset(u64::MAX))
            .map_err(|refused| damaged(&source, &refused.to_string()))?;
        done.logs += 1;
        done.records += copied.end.0.saturating_sub(copied.start.0);
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
    Failure::failed(format!("{}: {why}", what.display()))
        .with_hint("what was restored so far is incomplete; remove the directory")
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
        "logs": done.logs,
        "records": done.records,
        "bytes": plan.bytes,
        "restored": !restore.dry_run,
    });
    Ok(app
        .output
        .report(&Report::one("felixctl.restore/1", FIELDS, &report))?)
}
