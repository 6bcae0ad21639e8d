//! What happens around every request: it gets an id, it is counted, and who was refused is noted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use felix_model::TenantId;

use super::error::{Code, Refusal};
use crate::app::App;
use crate::audit::Note;
use crate::clock::now;
use crate::limits::LOG_REFUSALS_PER_SECOND;
use crate::request::{self, Current};

/// Where the tenant's name stands in a path about a tenant.
const TENANT_PATHS: [&str; 2] = ["/v1/tenants/", "/internal/bootstrap/tenants/"];

pub(super) async fn api(State(app): State<App>, request: Request, next: Next) -> Response {
    around(&app, "api", request, next).await
}

pub(super) async fn bootstrap(State(app): State<App>, request: Request, next: Next) -> Response {
    around(&app, "bootstrap", request, next).await
}

async fn around(app: &App, listener: &'static str, request: Request, next: Next) -> Response {
    let under_way = app.stats.begin();
    let current = Current::of(&request);
    let asked = Asked {
        listener,
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
    };
    let answering = async {
        let response = in_one_form(next.run(request).await);
        note(app, &asked, &response);
        response
    };
    let mut response = request::scope(Arc::clone(&current), answering).await;
    drop(under_way);
    app.stats.answered(listener, response.status().as_u16());
    tell(&asked, &current, &response);
    if let Ok(id) = HeaderValue::from_str(current.id()) {
        let name = HeaderName::from_static(request::HEADER);
        response.headers_mut().insert(name, id);
    }
    response
}

/// The one error body, also for what was refused before a handler was asked.
fn in_one_form(response: Response) -> Response {
    let status = response.status();
    let refused = status.is_client_error() || status.is_server_error();
    if !refused || response.extensions().get::<Code>().is_some() {
        return response;
    }
    Refusal::unread(status).into_response()
}

/// What was asked. The query is left out: it says nothing of who was refused.
struct Asked {
    listener: &'static str,
    method: Method,
    path: String,
}

/// Notes a refusal for want of rights or of a credential.
fn note(app: &App, asked: &Asked, response: &Response) {
    let status = response.status();
    if status != StatusCode::UNAUTHORIZED && status != StatusCode::FORBIDDEN {
        return;
    }
    let tenant = tenant_of(app, &asked.path);
    app.notebook.note(Note {
        tenant: tenant.as_ref(),
        what: "refused",
        reason: code(response),
    });
}

/// The tenant that a path is about, if there is one of that name.
fn tenant_of(app: &App, path: &str) -> Option<TenantId> {
    let rest = TENANT_PATHS
        .iter()
        .find_map(|start| path.strip_prefix(start))?;
    let name = rest.split('/').next()?;
    app.authority.catalogue().tenant(name)?;
    name.parse().ok()
}

fn code(response: &Response) -> &'static str {
    response
        .extensions()
        .get::<Code>()
        .map_or("unnamed", |Code(code)| code)
}

/// Tells the log of what was not answered as asked.
fn tell(asked: &Asked, current: &Current, response: &Response) {
    let status = response.status();
    let ours = status.is_server_error();
    if !ours && (!status.is_client_error() || !may_log()) {
        return;
    }
    let principal = current.principal();
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                request_id = current.id(),
                listener = asked.listener,
                method = %asked.method,
                path = asked.path,
                status = status.as_u16(),
                code = code(response),
                principal,
                from = current.from(),
                "refused"
            )
        };
    }
    if ours { line!(warn) } else { line!(info) }
}

/// Whether the log takes one more refusal in this second: whoever is refused must not fill a disk.
fn may_log() -> bool {
    static SECOND: AtomicU64 = AtomicU64::new(0);
    static LINES: AtomicU64 = AtomicU64::new(0);
    let second = now().0 / 1000;
    if SECOND.swap(second, Ordering::Relaxed) != second {
        LINES.store(0, Ordering::Relaxed);
    }
    LINES.fetch_add(1, Ordering::Relaxed) < LOG_REFUSALS_PER_SECOND
}
