//! `stream ls | info | create | set | rm`.

use serde_json::{Map, Value, json};

use super::App;
use crate::api::{Api, Created, quote};
use crate::cli::{StreamCommand, StreamCreate, StreamSet};
use crate::confirm;
use crate::exit::{Exit, Failure};
use crate::output::{Field, Report};
use crate::parse::{duration, show_duration, show_size, size};
use crate::settings::Settings;
use crate::suggest::close_matches;

const FIELDS: &[Field] = &[
    Field::plain("stream"),
    Field::plain("shards"),
    Field::plain("replication_factor"),
    Field::plain("durable"),
    Field::plain("sync"),
    Field::plain("consistency"),
    Field::plain("delivery"),
    Field::plain("overflow"),
    Field::shown("retention_age_seconds", show_seconds),
    Field::shown("retention_bytes", show_bytes),
    Field::plain("routing"),
];

const INFO_FIELDS: &[Field] = &[
    Field::plain("stream"),
    Field::plain("tenant_id"),
    Field::plain("namespace"),
    Field::plain("shards"),
    Field::plain("replication_factor"),
    Field::plain("durable"),
    Field::plain("sync"),
    Field::plain("consistency"),
    Field::plain("delivery"),
    Field::plain("overflow"),
    Field::shown("retention_age_seconds", show_seconds),
    Field::shown("retention_bytes", show_bytes),
    Field::plain("routing"),
    Field::plain("cleanup"),
    Field::plain("timestamps"),
    Field::shown("max_record_bytes", show_bytes),
    Field::plain("region"),
    Field::plain("incarnation"),
    Field::plain("acknowledged_means"),
];

pub(super) async fn run(app: &App, command: StreamCommand) -> Result<(), Failure> {
    let settings = app.settings()?;
    let streams = Streams {
        api: app.controlplane(&settings).await?,
        base: base(&settings)?,
        app,
    };
    match command {
        StreamCommand::Ls => streams.list().await,
        StreamCommand::Info { stream } => streams.info(&stream).await,
        StreamCommand::Create(create) => streams.create(&create).await,
        StreamCommand::Set(set) => streams.set(&set).await,
        StreamCommand::Rm { stream, yes } => {
            let found = streams.find(&stream).await?;
            let shards = found.get("shards").and_then(Value::as_u64).unwrap_or(1);
            let what = format!("stream {stream} ({shards} shards) and every record in it");
            confirm::destroy(&what, &stream, yes.into())?;
            streams.api.delete(&streams.path(&stream)).await?;
            Ok(app.output.say(&format!("stream {stream} is removed"))?)
        }
    }
}

/// Path of the streams of the tenant and namespace in force.
fn base(settings: &Settings) -> Result<String, Failure> {
    Ok(format!(
        "/v1/tenants/{}/namespaces/{}/streams",
        quote(settings.tenant()?),
        quote(settings.namespace())
    ))
}

/// Names of the streams in force that are close to one that was not found. Whoever asks has an
/// error to show already, so a control plane that does not answer means no matches.
pub(super) async fn matches(app: &App, settings: &Settings, stream: &str) -> Vec<String> {
    let Ok(api) = app.controlplane(settings).await else {
        return Vec::new();
    };
    let Ok(base) = base(settings) else {
        return Vec::new();
    };
    let streams = Streams { api, base, app };
    streams.close_to(stream).await
}

/// Adds the close matches to a failure, in the place of those that the broker put into its sentence.
pub(super) fn with_matches(failure: Failure, matches: Vec<String>) -> Failure {
    if matches.is_empty() {
        return failure;
    }
    let message = match failure.message.split_once("; did you mean") {
        Some((message, _)) => message.to_owned(),
        None => failure.message.clone(),
    };
    Failure { message, ..failure }.with_matches(matches)
}

struct Streams<'a> {
    api: Api,
    base: String,
    app: &'a App,
}

impl Streams<'_> {
    fn path(&self, stream: &str) -> String {
        format!("{}/{}", self.base, quote(stream))
    }

    async fn close_to(&self, stream: &str) -> Vec<String> {
        let all = self.api.list(&self.base).await.unwrap_or_default();
        close_matches(
            stream,
            all.iter().filter_map(|it| it.get("stream")?.as_str()),
        )
    }

    async fn find(&self, stream: &str) -> Result<Value, Failure> {
        match self.api.get(&self.path(stream)).await {
            Err(failure) if failure.exit == Exit::NotFound => {
                let matches = self.close_to(stream).await;
                Err(failure
                    .with_matches(matches)
                    .with_hint("`felixctl stream ls` lists them"))
            }
            found => found,
        }
    }

    async fn list(&self) -> Result<(), Failure> {
        let mut all = self.api.list(&self.base).await?;
        all.iter_mut().for_each(flatten);
        Ok(self
            .app
            .output
            .report(&Report::list("felixctl.stream.ls/1", FIELDS, all))?)
    }

    async fn info(&self, stream: &str) -> Result<(), Failure> {
        let found = self.find(stream).await?;
        self.show(found)
    }

    fn show(&self, mut stream: Value) -> Result<(), Failure> {
        flatten(&mut stream);
        let report = Report::one("felixctl.stream.info/1", INFO_FIELDS, &stream);
        Ok(self.app.output.report(&report)?)
    }

    async fn create(&self, create: &StreamCreate) -> Result<(), Failure> {
        let (created, stream) = self.api.create(&self.base, &create_body(create)).await?;
        self.app.output.say(&match created {
            Created::New => format!("stream {} is created", create.stream),
            Created::Unchanged => format!("stream {} exists and is just so", create.stream),
        })?;
        self.show(stream)
    }

    async fn set(&self, set: &StreamSet) -> Result<(), Failure> {
        let found = self.find(&set.stream).await?;
        let body = set_body(set, &found)?;
        let stream = self.api.patch(&self.path(&set.stream), &body).await?;
        self.show(stream)
    }
}

fn create_body(create: &StreamCreate) -> Value {
    let mut body = json!({
        "stream": create.stream,
        "kind": "Stream",
        "shards": create.shards,
        "replication_factor": create.replication_factor,
        "retention": {
            "max_age_seconds": create.retention_age.map(|age| age.as_secs()),
            "max_size_bytes": create.retention_size,
        },
        "consistency": pascal(&create.consistency),
        "delivery": pascal(&create.delivery),
        "durable": create.durable,
    });
    if let Some(body) = body.as_object_mut() {
        // What was not asked for is left out, so that the server's default applies.
        put(body, "sync", create.sync.clone());
        put(body, "overflow", create.overflow.clone());
        put(body, "cleanup", create.cleanup.clone());
        put(body, "timestamps", create.timestamps.clone());
        put(body, "max_record_bytes", create.max_record_size);
        put(body, "routing", create.routing.clone());
        put(body, "region", create.region.clone());
    }
    body
}

/// The server replaces retention as a whole, so a bound that stays must be sent again.
fn set_body(set: &StreamSet, found: &Value) -> Result<Value, Failure> {
    let mut body = Map::new();
    if set.retention_age.is_some() || set.retention_size.is_some() {
        let old = |name: &str| found.pointer(name).cloned().unwrap_or(Value::Null);
        let age = match set.retention_age.as_deref() {
            None => old("/retention/max_age_seconds"),
            Some("default") => Value::Null,
            Some(text) => duration(text)
                .map_err(bad("--retention-age"))?
                .as_secs()
                .into(),
        };
        let bytes = match set.retention_size.as_deref() {
            None => old("/retention/max_size_bytes"),
            Some("default") => Value::Null,
            Some(text) => size(text).map_err(bad("--retention-size"))?.into(),
        };
        let retention = json!({ "max_age_seconds": age, "max_size_bytes": bytes });
        body.insert("retention".into(), retention);
    }
    put(
        &mut body,
        "consistency",
        set.consistency.as_deref().map(pascal),
    );
    put(&mut body, "delivery", set.delivery.as_deref().map(pascal));
    put(&mut body, "sync", set.sync.clone());
    put(&mut body, "overflow", set.overflow.clone());
    put(&mut body, "cleanup", set.cleanup.clone());
    put(&mut body, "timestamps", set.timestamps.clone());
    put(&mut body, "max_record_bytes", set.max_record_size);
    put(&mut body, "durable", set.durable);
    if body.is_empty() {
        return Err(Failure::usage("there is nothing to change")
            .with_hint("`felixctl stream set --help` lists what can be"));
    }
    Ok(Value::Object(body))
}

fn bad<E: std::fmt::Display>(flag: &'static str) -> impl Fn(E) -> Failure {
    move |error| Failure::usage(format!("{flag}: {error}"))
}

pub(super) fn put(body: &mut Map<String, Value>, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        body.insert(name.to_owned(), value.into());
    }
}

/// `at-least-once` as the control plane spells it: `AtLeastOnce`.
fn pascal(word: &str) -> String {
    word.split('-')
        .map(|part| {
            let mut letters = part.chars();
            letters.next().map_or_else(String::new, |first| {
                first.to_uppercase().collect::<String>() + letters.as_str()
            })
        })
        .collect()
}

/// Brings a stream of the control plane into the flat shape that is printed.
fn flatten(stream: &mut Value) {
    let Some(object) = stream.as_object_mut() else {
        return;
    };
    let retention = object.remove("retention").unwrap_or_default();
    let bound = |name: &str| retention.get(name).cloned().unwrap_or(Value::Null);
    object.insert("retention_age_seconds".into(), bound("max_age_seconds"));
    object.insert("retention_bytes".into(), bound("max_size_bytes"));
    // Settings that mean nothing for this stream are not shown as if they did.
    let durable = object
        .get("durable")
        .and_then(Value::as_bool)
        .unwrap_or(true);
    object.insert(
        if durable { "overflow" } else { "sync" }.into(),
        Value::Null,
    );
    object.entry("routing").or_insert_with(|| "modulo".into());
    let means = acknowledged_means(object);
    object.insert("acknowledged_means".into(), means.into());
}

/// One sentence: what a record that was acknowledged survives.
fn acknowledged_means(stream: &Map<String, Value>) -> String {
    let text = |name: &str| stream.get(name).and_then(Value::as_str).unwrap_or_default();
    if !stream
        .get("durable")
        .and_then(Value::as_bool)
        .unwrap_or(false)
    {
        return "the broker has it in memory; it does not survive the end of the broker".into();
    }
    let disk = match text("sync") {
        "on_commit" => "flushed to disk: it survives a crash and a power cut".to_owned(),
        "none" => {
            "written to the file: it survives a crash, not a power cut before the system flushes"
                .to_owned()
        }
        _ => {
            "written to the file: it survives a crash; a power cut can take the last quarter of a \
              second"
                .to_owned()
        }
    };
    let quorum = text("consistency").eq_ignore_ascii_case("quorum");
    let copies = stream
        .get("replication_factor")
        .and_then(Value::as_u64)
        .unwrap_or(1);
    if quorum && copies > 1 {
        format!("on a majority of its {copies} copies, {disk}")
    } else {
        disk
    }
}

fn show_seconds(value: &Value) -> String {
    value.as_u64().map_or_else(
        || "-".into(),
        |seconds| show_duration(std::time::Duration::from_secs(seconds)),
    )
}

fn show_bytes(value: &Value) -> String {
    value.as_u64().map_or_else(|| "-".into(), show_size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};

    fn create(args: &[&str]) -> StreamCreate {
        let line = ["felixctl", "stream", "create"]
            .iter()
            .chain(args)
            .map(|arg| (*arg).into());
        let (Cli { command, .. }, _) = crate::parse(line.collect()).expect("a good command line");
        let Command::Stream(StreamCommand::Create(create)) = command else {
            panic!("another command");
        };
        create
    }

    #[test]
    fn a_stream_is_created_with_the_words_of_the_control_plane() {
        assert_eq!(
            create_body(&create(&["orders"])),
            json!({
                "stream": "orders", "kind": "Stream", "shards": 1, "replication_factor": 1,
                "retention": {"max_age_seconds": null, "max_size_bytes": null},
                "consistency": "Leader", "delivery": "AtLeastOnce", "durable": true,
            })
        );
        let full = create_body(&create(&[
            "clicks",
            "--shards",
            "8",
            "--retention-age",
            "7d",
            "--retention-size",
            "10GiB",
            "--sync",
            "on_commit",
            "--routing",
            "murmur2",
            "--durable",
            "false",
            "--delivery",
            "at-most-once",
            "--overflow",
            "drop_old",
        ]));
        assert_eq!(full["retention"]["max_age_seconds"], 604_800);
        assert_eq!(full["retention"]["max_size_bytes"], 10_u64 << 30);
        assert_eq!(full["sync"], "on_commit");
        assert_eq!(full["routing"], "murmur2");
        assert_eq!(full["delivery"], "AtMostOnce");
        assert_eq!(full["durable"], false);
        assert_eq!(full["overflow"], "drop_old");
    }

    #[test]
    fn changing_one_bound_of_retention_sends_the_other_again() {
        let found = json!({"retention": {"max_age_seconds": 60, "max_size_bytes": 1000}});
        let set = StreamSet {
            stream: "orders".into(),
            retention_age: Some("1h".into()),
            retention_size: None,
            consistency: None,
            delivery: None,
            sync: None,
            overflow: None,
            cleanup: None,
            timestamps: None,
            max_record_size: None,
            durable: None,
        };
        assert_eq!(
            set_body(&set, &found).expect("a body"),
            json!({"retention": {"max_age_seconds": 3600, "max_size_bytes": 1000}})
        );
        let cleared = StreamSet {
            retention_age: Some("default".into()),
            ..set.clone()
        };
        assert_eq!(
            set_body(&cleared, &found).expect("a body")["retention"]["max_age_seconds"],
            Value::Null
        );
        let nothing = StreamSet {
            retention_age: None,
            ..set
        };
        assert_eq!(
            set_body(&nothing, &found).expect_err("nothing").exit,
            Exit::Usage
        );
    }

    #[test]
    fn what_an_acknowledgement_means_is_said_in_one_sentence() {
        let mean = |stream: Value| acknowledged_means(stream.as_object().expect("an object"));
        assert!(mean(json!({"durable": true, "sync": "on_commit"})).contains("power cut"));
        assert!(mean(json!({"durable": true, "sync": "periodic"})).contains("quarter of a second"));
        assert!(mean(json!({"durable": false})).contains("memory"));
        assert!(
            mean(json!({
                "durable": true, "sync": "none", "consistency": "Quorum", "replication_factor": 3
            }))
            .starts_with("on a majority of its 3 copies")
        );
    }
}
