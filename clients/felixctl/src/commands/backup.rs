//! `backup`: a running node copied into a directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::App;
use crate::api::{Api, quote};
use crate::cli::Backup;
use crate::contexts::write_private;
use crate::exit::{Exit, Failure};
use crate::output::{Field, Report};
use crate::progress;
use crate::trust::Tls;

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
    pub broker: Shards,
    /// What the control plane said about its copy.
    pub controlplane: Catalogue,
}

/// A broker's copy. Fields that this program does not need are not kept.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Shards {
    /// The node that was copied.
    pub node_id: String,
    /// Every log in the copy.
    pub shards: Vec<Shard>,
}

/// One log of a copy.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Shard {
    /// The stream, `tenant/namespace/stream`.
    pub stream: String,
    /// Which stream of that name.
    pub incarnation: u64,
    /// The shard.
    pub shard: u32,
    /// Oldest offset in the copy.
    pub start: u64,
    /// One past the newest (exclusive).
    pub end: u64,
    /// Bytes of log.
    pub bytes: u64,
}

/// A control plane's copy.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Catalogue {
    /// The newest entry in the copy.
    pub revision: u64,
}

pub(super) async fn run(app: &App, backup: &Backup) -> Result<(), Failure> {
    let settings = app.settings()?;
    let to = std::path::absolute(&backup.to)
        .map_err(|error| Failure::usage(format!("{}: {error}", backup.to.display())))?;
    must_be_empty(&to)?;
    let broker = Api::new(
        settings.broker_admin_url()?,
        None,
        &Tls::default(),
        LONGEST,
        "the broker",
    )?;
    let controlplane = app.controlplane_within(&settings, LONGEST).await?;
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

async fn copy<T: DeserializeOwned>(api: &Api, route: &str, to: &Path) -> Result<T, Failure> {
    let path = format!("{route}?to={}", quote(&to.to_string_lossy()));
    let unusable = |failure: Failure| {
        failure.with_hint("what was copied is incomplete; remove the directory and try again")
    };
    let answer = api.post(&path, None).await.map_err(|failure| {
        if failure.exit != Exit::OutcomeUnknown {
            return failure;
        }
        // A copy that may exist is no copy; there is nothing to be careful about.
        unusable(Failure {
            exit: Exit::Unavailable,
            ..failure
        })
    })?;
    serde_json::from_value(answer).map_err(|error| {
        unusable(Failure::failed(format!(
            "the answer is not understood: {error}"
        )))
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
    let shards = &manifest.broker.shards;
    let report = json!({
        "directory": to,
        "shards": shards.len(),
        "records": shards.iter().map(|it| it.end.saturating_sub(it.start)).sum::<u64>(),
        "bytes": shards.iter().map(|it| it.bytes).sum::<u64>(),
        "catalogue_revision": manifest.controlplane.revision,
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
