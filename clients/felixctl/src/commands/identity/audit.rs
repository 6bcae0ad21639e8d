//! `audit ls | tail | verify`.

use std::collections::VecDeque;
use std::time::Duration;

use felix_meta::audit::{AuditItem, ChainHead, verify};
use serde_json::{Value, json};

use super::{show_ms, tenant};
use crate::api::{Api, quote};
use crate::cli::{AuditCommand, AuditFilter, AuditLs};
use crate::commands::App;
use crate::exit::{Exit, Failure};
use crate::output::{Field, Report};

/// Lines asked for in one page.
const PAGE_LINES: usize = 1_000;
/// How often `tail` asks for more.
const PAUSE: Duration = Duration::from_secs(1);

const FIELDS: &[Field] = &[
    Field::plain("seq"),
    Field::shown("at_ms", show_ms),
    Field::shown("by", by),
    Field::plain("what"),
    Field::plain("target"),
    Field::plain("before"),
    Field::plain("after"),
];

pub(in crate::commands) async fn run(app: &App, command: AuditCommand) -> Result<(), Failure> {
    let (api, tenant) = tenant(app).await?;
    match command {
        AuditCommand::Ls(args) => list(app, &Log::new(api, &tenant, &args.filter), &args).await,
        AuditCommand::Tail(filter) => tail(app, &Log::new(api, &tenant, &filter)).await,
        AuditCommand::Verify { cluster } => {
            let filter = AuditFilter {
                cluster,
                ..AuditFilter::default()
            };
            check(app, &Log::new(api, &tenant, &filter)).await
        }
    }
}

/// One of the two logs, seen through a filter.
struct Log {
    api: Api,
    path: String,
    filter: String,
}

impl Log {
    fn new(api: Api, tenant: &str, filter: &AuditFilter) -> Self {
        let path = match filter.cluster {
            true => "/v1/audit".to_owned(),
            false => format!("{tenant}/audit"),
        };
        let principal = filter.principal.iter().map(|id| ("principal", id));
        let what = filter.what.iter().map(|what| ("what", what));
        let pair = |(name, value): (&str, &String)| format!("&{name}={}", quote(value));
        Self {
            api,
            path,
            filter: principal.chain(what).map(pair).collect(),
        }
    }

    /// The lines after a number, oldest first, and where the next page begins, if there is one.
    async fn page(&self, after: u64) -> Result<(Vec<Value>, Option<u64>), Failure> {
        let path = format!(
            "{}?after={after}&limit={PAGE_LINES}{}",
            self.path, self.filter
        );
        let mut answer = self.api.get(&path).await?;
        let items = match answer.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => {
                return Err(Failure::failed(
                    "the control plane's audit log is unreadable",
                ));
            }
        };
        let next = answer.get("next_after").and_then(Value::as_u64);
        // A page behind a filter may be empty and not the last.
        Ok((items, next.filter(|next| *next > after)))
    }
}

async fn list(app: &App, log: &Log, args: &AuditLs) -> Result<(), Failure> {
    let mut newest = VecDeque::new();
    let mut after = Some(args.after);
    while let Some(from) = after {
        let (items, next) = log.page(from).await?;
        newest.extend(items);
        let surplus = newest.len().saturating_sub(args.limit);
        newest.drain(..surplus);
        after = next;
    }
    Ok(app
        .output
        .report(&Report::list("felixctl.audit.ls/1", FIELDS, newest))?)
}

/// Follows from the end on. In JSON each line is a document of its own, whatever the shape: a list
/// that never ends cannot be one document.
async fn tail(app: &App, log: &Log) -> Result<(), Failure> {
    let mut after = 0;
    while let (_, Some(next)) = log.page(after).await? {
        after = next;
    }
    loop {
        let (items, next) = log.page(after).await?;
        for item in items {
            let report = Report::list("felixctl.audit.ls/1", FIELDS, [&item]);
            let text = match app.output.is_json() {
                true => report.ndjson(),
                false => report.row(app.output.style),
            };
            app.output.text(&text)?;
        }
        match next {
            Some(next) => after = next,
            None => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn check(app: &App, log: &Log) -> Result<(), Failure> {
    const FIELDS: &[Field] = &[
        Field::plain("whole"),
        Field::plain("lines"),
        Field::plain("head"),
    ];
    let mut head = ChainHead::default();
    let mut after = Some(0);
    while let Some(from) = after {
        let (items, next) = log.page(from).await?;
        let items: Vec<AuditItem> = items
            .into_iter()
            .map(serde_json::from_value)
            .collect::<Result<_, _>>()
            .map_err(|error| {
                Failure::failed(format!("a line of the audit log is unreadable: {error}"))
            })?;
        head = verify(&head, &items).map_err(|broken| {
            Failure::new(
                Exit::Conflict,
                format!("the audit log was tampered with: {broken}"),
            )
            .with_code("chain_broken")
        })?;
        after = next;
    }
    let shown = json!({ "whole": true, "lines": head.seq, "head": head.hash });
    app.output
        .report(&Report::one("felixctl.audit.verify/1", FIELDS, &shown))?;
    Ok(app.output.say(
        "every line is what was chained; keep the head elsewhere to notice a log that was cut short",
    )?)
}

fn by(value: &Value) -> String {
    let field = |name: &str| value.get(name).and_then(Value::as_str);
    match (field("principal"), field("from")) {
        (Some(principal), Some(from)) => format!("{principal} from {from}"),
        (Some(principal), None) => principal.to_owned(),
        _ => "-".into(),
    }
}
