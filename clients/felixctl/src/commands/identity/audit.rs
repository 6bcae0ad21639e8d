//! `audit ls | tail | verify`.

use std::collections::VecDeque;
use std::time::Duration;

use felix_meta::audit::{AuditItem, ChainHead, verify};
use serde::Deserialize;
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

    /// The lines after a number, oldest first.
    async fn page(&self, after: u64) -> Result<Page, Failure> {
        let path = format!(
            "{}?after={after}&limit={PAGE_LINES}{}",
            self.path, self.filter
        );
        let page: Page = serde_json::from_value(self.api.get(&path).await?)
            .map_err(|error| Failure::failed(format!("the audit log is unreadable: {error}")))?;
        if page.next_after.is_some_and(|next| next <= after) {
            return Err(Failure::failed("the audit log does not go on"));
        }
        Ok(page)
    }
}

/// A part of a log. Behind a filter it may be empty and not the last.
#[derive(Deserialize)]
struct Page {
    items: Vec<AuditItem>,
    /// The number after which to go on; absent at the end.
    #[serde(default)]
    next_after: Option<u64>,
    /// The end of the chain.
    head: ChainHead,
}

async fn list(app: &App, log: &Log, args: &AuditLs) -> Result<(), Failure> {
    let mut newest = VecDeque::new();
    let mut after = Some(args.after);
    while let Some(from) = after {
        let page = log.page(from).await?;
        newest.extend(page.items);
        let surplus = newest.len().saturating_sub(args.limit);
        newest.drain(..surplus);
        after = page.next_after;
    }
    Ok(app
        .output
        .report(&Report::list("felixctl.audit.ls/1", FIELDS, newest))?)
}

/// Follows from the end on. In JSON each line is a document of its own, whatever the shape: a list
/// that never ends cannot be one document.
async fn tail(app: &App, log: &Log) -> Result<(), Failure> {
    let mut after = log.page(0).await?.head.seq;
    loop {
        let page = log.page(after).await?;
        for item in &page.items {
            let report = Report::list("felixctl.audit.ls/1", FIELDS, [item]);
            let text = match app.output.is_json() {
                true => report.ndjson(),
                false => report.row(app.output.style),
            };
            app.output.text(&text)?;
        }
        match page.next_after {
            Some(next) => after = next,
            None => {
                after = page.head.seq;
                tokio::time::sleep(PAUSE).await;
            }
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
    let mut said = ChainHead::default();
    while let Some(from) = after {
        let page = log.page(from).await?;
        head = verify(&head, &page.items).map_err(|why| broken(&why.to_string()))?;
        after = page.next_after;
        said = page.head;
    }
    if head != said {
        return Err(broken(&format!(
            "it ends at line {}, and its end is said to be line {}",
            head.seq, said.seq
        )));
    }
    let shown = json!({ "whole": true, "lines": head.seq, "head": head.hash });
    app.output
        .report(&Report::one("felixctl.audit.verify/1", FIELDS, &shown))?;
    Ok(app.output.say(
        "every line is what was chained; keep the head elsewhere to notice a log that was cut short",
    )?)
}

fn broken(why: &str) -> Failure {
    Failure::new(
        Exit::Conflict,
        format!("the audit log was tampered with: {why}"),
    )
    .with_code("chain_broken")
}

fn by(value: &Value) -> String {
    let field = |name: &str| value.get(name).and_then(Value::as_str);
    match (field("principal"), field("from")) {
        (Some(principal), Some(from)) => format!("{principal} from {from}"),
        (Some(principal), None) => principal.to_owned(),
        _ => "-".into(),
    }
}
