//! What the console answers when it does not answer what was asked: one shape, a stable code, and what to do.

use std::fmt;

use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use felix_client::{CacheFailed, CallFailed, ConnectFailed, PublishFailed, ReadFailed, Retry};
use felix_controlplane_client as controlplane;
use serde::Serialize;

use crate::identity::{Ended, Refused};

/// Bytes of a refusal of the framework that are passed on.
const REFUSAL_BYTES: usize = 4 * 1024;
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Whether trying again can help, as the page reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Again {
    /// Nothing was changed; try again.
    Later,
    /// It may have been carried out; look before repeating it.
    LookFirst,
    /// It gives the same answer again.
    Never,
}

/// A refusal on its way to the page. [`finish`] gives it the id of its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    status: StatusCode,
    code: String,
    message: String,
    retry: Again,
    retry_after_ms: Option<u64>,
    number: Option<u64>,
}

#[derive(Serialize)]
struct Body<'a> {
    code: &'a str,
    message: &'a str,
    retry: Again,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    request_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, code: &str, message: impl fmt::Display) -> Self {
        Self {
            status,
            code: code.to_owned(),
            message: message.to_string(),
            retry: Again::Never,
            retry_after_ms: None,
            number: None,
        }
    }

    /// The question itself is wrong.
    pub(super) fn invalid(message: impl fmt::Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid", message)
    }

    pub(super) fn not_found(message: impl fmt::Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub(super) fn signed_out(message: impl fmt::Display) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "signed_out", message)
    }

    pub(super) fn forbidden(code: &str, message: impl fmt::Display) -> Self {
        Self::new(StatusCode::FORBIDDEN, code, message)
    }

    /// There is no token to ask with, because what it rests on ended so or, without an end, for the moment.
    pub(super) fn no_token(ended: Option<Ended>) -> Self {
        match ended {
            Some(ended @ Ended::SignedOut) => Self::signed_out(ended),
            Some(ended @ Ended::Removed) => Self::forbidden("forbidden", ended),
            Some(Ended::Expired) | None => {
                Self::unavailable("unavailable", "the sign-in cannot be renewed at the moment")
            }
        }
    }

    /// It cannot be answered now.
    pub(super) fn unavailable(code: &str, message: impl fmt::Display) -> Self {
        Self {
            retry: Again::Later,
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message)
        }
    }

    /// There is no room for one more, whoever he is.
    pub(super) fn full(message: impl fmt::Display) -> Self {
        Self::unavailable("full", message)
    }

    /// The person asks for too much at once.
    pub(super) fn too_many(what: &str, most: usize) -> Self {
        let message = format!("{most} {what} of yours are running; end some of them");
        Self {
            retry: Again::Later,
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message)
        }
    }

    /// The number the refusal is about: the version or offset that stands.
    pub(super) fn with_number(self, number: Option<u64>) -> Self {
        Self { number, ..self }
    }

    pub(super) fn code(&self) -> &str {
        &self.code
    }

    pub(super) fn is_never(&self) -> bool {
        self.retry == Again::Never
    }

    /// What a person who reads a live view is told of it.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    fn of_client(code: &str, retry: Retry, message: String) -> Self {
        // Whoever has signed out is told so before brokers are asked; here the next token cannot be had now.
        if code == "no_token" {
            return Self::no_token(None);
        }
        let (again, after) = match retry {
            Retry::Retry | Retry::Redirect => (Again::Later, None),
            Retry::RetryAfter(after) => (Again::Later, u64::try_from(after.as_millis()).ok()),
            Retry::OutcomeUnknown => (Again::LookFirst, None),
            Retry::Fatal | _ => (Again::Never, None),
        };
        let status = status_of(code, again);
        let code = if status == StatusCode::UNAUTHORIZED {
            "signed_out"
        } else {
            code
        };
        Self {
            retry: again,
            retry_after_ms: after,
            ..Self::new(status, code, message)
        }
    }
}

/// The status that goes with a code of the protocol.
fn status_of(code: &str, again: Again) -> StatusCode {
    match code {
        "unauthenticated" | "unauthorized" | "token_expired" | "token_revoked" => {
            StatusCode::UNAUTHORIZED
        }
        "forbidden" => StatusCode::FORBIDDEN,
        "not_found" => StatusCode::NOT_FOUND,
        "version_mismatch" | "offset_mismatch" | "conflict" => StatusCode::CONFLICT,
        "too_large" => StatusCode::PAYLOAD_TOO_LARGE,
        "quota_exceeded" => StatusCode::TOO_MANY_REQUESTS,
        _ => match again {
            Again::Later => StatusCode::SERVICE_UNAVAILABLE,
            Again::LookFirst => StatusCode::GATEWAY_TIMEOUT,
            Again::Never => StatusCode::BAD_REQUEST,
        },
    }
}

impl From<CallFailed> for Refusal {
    fn from(failed: CallFailed) -> Self {
        if let CallFailed::Connect(ConnectFailed::Refused(refused)) = &failed {
            return Self::signed_out(&refused.message);
        }
        let (number, message) = if let CallFailed::Refused(refused) = &failed {
            (refused.number, refused.message.clone())
        } else {
            (None, failed.to_string())
        };
        Self::of_client(failed.code(), failed.retry(), message).with_number(number)
    }
}

impl From<ConnectFailed> for Refusal {
    fn from(failed: ConnectFailed) -> Self {
        CallFailed::Connect(failed).into()
    }
}

impl From<ReadFailed> for Refusal {
    fn from(failed: ReadFailed) -> Self {
        match failed {
            ReadFailed::TooOld { oldest, .. } => {
                Self::new(StatusCode::CONFLICT, "offset_too_old", failed).with_number(Some(oldest))
            }
            ReadFailed::InFuture { next, .. } => {
                Self::new(StatusCode::CONFLICT, "offset_in_future", failed).with_number(Some(next))
            }
            ReadFailed::Call(failed) => failed.into(),
            other @ (ReadFailed::Ended(_) | _) => {
                Self::of_client(other.code(), other.retry(), other.to_string())
            }
        }
    }
}

impl From<PublishFailed> for Refusal {
    fn from(failed: PublishFailed) -> Self {
        match failed {
            PublishFailed::Call(failed) => failed.into(),
            other @ (PublishFailed::TooLarge { .. }
            | PublishFailed::Malformed { .. }
            | PublishFailed::OffsetMismatch { .. }
            | PublishFailed::ProducerEnded { .. }
            | _) => Self::of_client(other.code(), other.retry(), other.to_string()),
        }
    }
}

impl From<CacheFailed> for Refusal {
    fn from(failed: CacheFailed) -> Self {
        match failed {
            CacheFailed::VersionMismatch { current_version } => {
                Self::new(StatusCode::CONFLICT, "version_mismatch", failed)
                    .with_number(current_version)
            }
            CacheFailed::Call(failed) => failed.into(),
            other => Self::of_client(other.code(), other.retry(), other.to_string()),
        }
    }
}

impl From<controlplane::CallFailed> for Refusal {
    fn from(failed: controlplane::CallFailed) -> Self {
        let retry = failed.retry();
        match failed {
            controlplane::CallFailed::Refused {
                status: 401,
                message,
                ..
            } => Self::signed_out(message),
            controlplane::CallFailed::Refused {
                status,
                code,
                message,
            } => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
                let retry = match retry {
                    controlplane::Retry::Safe => Again::Later,
                    controlplane::Retry::LookFirst => Again::LookFirst,
                    controlplane::Retry::Useless => Again::Never,
                };
                Self {
                    retry,
                    ..Self::new(status, &code, message)
                }
            }
            controlplane::CallFailed::Unreachable { .. }
            | controlplane::CallFailed::NoAnswer { .. }
            | controlplane::CallFailed::Malformed { .. }
            | controlplane::CallFailed::TokenFile { .. } => {
                Self::unavailable("unavailable", "the control plane does not answer")
            }
        }
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::SignedOut(message) => Self::signed_out(message),
            Refused::Forbidden(message) => Self::forbidden("forbidden", message),
            Refused::Unavailable(message) => Self::unavailable("unavailable", message),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Gives every request a number, and refusals their body with it.
pub(super) async fn finish(request: Request, next: Next) -> Response {
    let id = request_id();
    let response = worded(next.run(request).await).await;
    let refusal = response.extensions().get::<Refusal>();
    let mut response = match refusal {
        None => response,
        Some(refusal) => {
            if refusal.status.is_server_error() {
                tracing::info!(request = %id, code = %refusal.code, "the console could not answer");
            }
            let body = Body {
                code: &refusal.code,
                message: &refusal.message,
                retry: refusal.retry,
                retry_after_ms: refusal.retry_after_ms,
                request_id: &id,
                number: refusal.number,
            };
            (refusal.status, Json(body)).into_response()
        }
    };
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, id);
    }
    headers.insert(
        axum::http::header::CACHE_CONTROL,
        HeaderValue::from_static("no-store"),
    );
    response
}

/// Puts what the framework refused, a body that is too long or a query that cannot be read, into the one shape.
async fn worded(response: Response) -> Response {
    let status = response.status();
    let plain = response.extensions().get::<Refusal>().is_none();
    if !(plain && (status.is_client_error() || status.is_server_error())) {
        return response;
    }
    let code = match status {
        StatusCode::PAYLOAD_TOO_LARGE => "too_large",
        StatusCode::METHOD_NOT_ALLOWED => "method_not_allowed",
        StatusCode::NOT_FOUND => "not_found",
        _ if status.is_server_error() => "unavailable",
        _ => "invalid",
    };
    let text = axum::body::to_bytes(response.into_body(), REFUSAL_BYTES).await;
    let text = text.unwrap_or_default();
    let message = String::from_utf8_lossy(&text);
    Refusal::new(status, code, message.trim()).into_response()
}

fn request_id() -> String {
    let mut bytes = [0; 8];
    // Without randomness a number says less, and the request is answered all the same.
    let _ = getrandom::fill(&mut bytes);
    format!("{:016x}", u64::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use felix_client::TokenFailed;

    use super::*;

    #[test]
    fn a_lost_answer_to_a_change_is_to_be_looked_at_first() {
        let lost = CallFailed::Unanswered {
            why: "lost".into(),
            changes: true,
        };
        assert_eq!(Refusal::from(lost).retry, Again::LookFirst);
    }

    #[test]
    fn that_no_token_can_be_had_now_is_no_sign_out() {
        let away = TokenFailed::TimedOut;
        let away = Refusal::from(CallFailed::Connect(ConnectFailed::Token(away)));
        for (refusal, status, code) in [
            (away, 503, "unavailable"),
            (Refusal::no_token(None), 503, "unavailable"),
            (Refusal::no_token(Some(Ended::Expired)), 503, "unavailable"),
            (Refusal::no_token(Some(Ended::SignedOut)), 401, "signed_out"),
            (Refusal::no_token(Some(Ended::Removed)), 403, "forbidden"),
        ] {
            assert_eq!((refusal.status.as_u16(), refusal.code()), (status, code));
        }
    }

    #[test]
    fn a_version_that_moved_is_a_conflict_with_its_number() {
        let refusal = Refusal::from(CacheFailed::VersionMismatch {
            current_version: Some(7),
        });
        assert_eq!(
            (refusal.status, refusal.number),
            (StatusCode::CONFLICT, Some(7))
        );
        assert_eq!(refusal.code(), "version_mismatch");
    }
}
