//! `backup`: a running node copied into a directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::App;
use crate::api::{Api, quote};
use crate::cli::Backup;
use crate::contexts::write_private;
use crate::exit::{Exit, Failure};
use crate::output::{Field, Report};
use crate::progress;

/// Version of the layout of a backup.
pub(super) const FORMAT: u32 = 1;
/// Name of the file that says that a backup is complete; it is written last.
pub(super) const MANIFEST: &str = "backup.json";
/// Where the broker's copy lies in a backup, and in a data directory.
pub(super) const BROKER: &str = "broker";
/// Where the control plane's copy lies in a backup, and in a data directory.
pub(super) const CONTROLPLANE: &str = "controlplane";
/// A backup lasts as long as the data is large; only silence for this long is a failure.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// What a complete backup says about itself.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Manifest {
    /// Version of the layout.
    pub format: u32,
    /// When it was complete, in Unix milliseconds.
    pub taken_at_ms: i64,
    /// What the broker said about its copy.
    pub broker: Value,
    /// What the control plane said about its copy.
    pub controlplane: Value,
}

pub(super) async fn run(app: &App, backup: &Backup) -> Result<(), Failure> {
    let settings = app.settings()?;
    let to = std::path::absolute(&backup.to)
        .map_err(|error| Failure::usage(format!("{}: {error}", backup.to.display())))?;
    must_be_empty(&to)?;
    let broker = Api::new(settings.broker_admin_url()?, None, LONGEST, "the broker")?;
    let token = settings.controlplane_token()?;
    let controlplane = Api::new(
        settings.controlplane_url()?,
        Some(token),
        LONGEST,
        "the control plane",
    )?;
    fs::create_dir_all(&to)
        .map_err(|error| Failure::failed(format!("{}: {error}", to.display())))?;
    let bar = progress::bar("copying the shards", None, progress::Unit::Bytes);
    bar.enable_steady_tick(Duration::from_millis(120));
    // The shards go first: a stream created while they are copied is then in the catalogue and
    // empty, which is a prefix of what it held. The other way round its records would belong to a
    // stream nobody knows.
    let shards = copy(&broker, "/backup", &to.join(BROKER)).await?;
    bar.set_message("copying the catalogue");
    let catalogue = copy(&controlplane, "/v1/system/backup", &to.join(CONTROLPLANE)).await?;
    bar.finish_and_clear();
    let manifest = Manifest {
        format: FORMAT,
        taken_at_ms: now_ms(),
        broker: shards,
        controlplane: catalogue,
    };
    let text =
        serde_json::to_vec_pretty(&manifest).map_err(|error| Failure::failed(error.to_string()))?;
    write_private(&to.join(MANIFEST), &text)
        .map_err(|error| Failure::failed(format!("{}: {error}", to.display())))?;
    show(app, &to, &manifest)
}

async fn copy(api: &Api, route: &str, to: &Path) -> Result<Value, Failure> {
    let path = format!("{route}?to={}", quote(&to.to_string_lossy()));
    api.post(&path, None).await.map_err(|failure| {
        if failure.exit == Exit::OutcomeUnknown {
            // A copy that may exist is no copy; there is nothing to be careful about.
            return Failure {
                exit: Exit::Unavailable,
                ..failure
            }
            .with_hint("what was copied is incomplete; remove the directory and try again");
        }
        failure
    })
}

fn must_be_empty(to: &Path) -> Result<(), Failure> {
    match fs::read_dir(to) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(
                Failure::new(Exit::Conflict, format!("{} is not empty", to.display()))
                    .with_hint("a backup goes into a new directory"),
            ),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::failed(format!("{}: {error}", to.display()))),
    }
}

fn show(app: &App, to: &Path, manifest: &Manifest) -> Result<(), Failure> {
    const FIELDS: &[Field] = &[
        Field::plain("directory"),
        Field::plain("shards"),
        Field::plain("records"),
        Field::shown("bytes", |value| {
            value
                .as_u64()
                .map_or_else(|| "-".into(), crate::parse::show_size)
        }),
        Field::plain("catalogue_revision"),
    ];
    let shards = manifest.broker.get("shards").and_then(Value::as_array);
    let number = |shard: &Value, name: &str| shard.get(name).and_then(Value::as_u64);
    let held = |shard: &Value| {
        number(shard, "end")
            .zip(number(shard, "start"))
            .map_or(0, |(end, start)| end.saturating_sub(start))
    };
    let report = json!({
        "directory": to,
        "shards": shards.map(Vec::len),
        "records": shards.map(|all| all.iter().map(held).sum::<u64>()),
        "bytes": shards.map(|all| all.iter().filter_map(|it| number(it, "bytes")).sum::<u64>()),
        "catalogue_revision": manifest.controlplane.get("revision"),
    });
    app.output
        .report(&Report::one("felixctl.backup/1", FIELDS, &report))?;
    let back: PathBuf = to.to_owned();
    Ok(app.output.say(&format!(
        "`felixctl restore {} --data-dir DIR` brings it back",
        back.display()
    ))?)
}

/// Unix milliseconds by this machine's clock.
pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
