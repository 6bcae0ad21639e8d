//! Refusals as HTTP answers.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use felix_auth::TokenRefused;
use felix_meta::http::ErrorBody;
use felix_meta::{Conflict, Refused};

use crate::authority::WriteFailed;
use crate::request;

/// The code of a refusal, beside its answer, for who counts and writes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) &'static str);

/// A refusal: status, code and message of the one error body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl Refusal {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
        }
    }

    pub(crate) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "validation_error", message)
    }

    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "validation_error", message)
    }

    pub(crate) fn too_slow() -> Self {
        let message = "the body did not come in time";
        Self::new(StatusCode::REQUEST_TIMEOUT, "validation_error", message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub(crate) fn not_enabled(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_enabled", message)
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "this path does not take this method";
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method_not_allowed",
            message,
        )
    }

    pub(crate) fn actor_refused(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "actor_refused", message)
    }

    pub(crate) fn sign_in_again(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "sign_in_again", message)
    }

    pub(crate) fn revoked(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "revoked", message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
    }

    pub(crate) fn too_many_attempts() -> Self {
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too_many_attempts",
            "too many failed attempts from this address; try again in a second",
        )
    }

    pub(crate) fn not_ready(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", message)
    }

    pub(crate) fn copy_failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "copy_failed", message)
    }

    /// A request that could not even be read.
    pub(crate) fn unread(status: StatusCode) -> Self {
        let code = match status {
            StatusCode::NOT_FOUND => "not_found",
            StatusCode::METHOD_NOT_ALLOWED => "method_not_allowed",
            _ if status.is_server_error() => return Self::internal(),
            _ => "validation_error",
        };
        Self::new(status, code, "the request cannot be read")
    }

    pub(crate) fn members_busy(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message)
    }

    pub(crate) fn members_refused(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", message)
    }

    pub(crate) fn members_unknown(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
    }

    pub(crate) fn internal() -> Self {
        let message = "something went wrong inside; the log of the control plane says more";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    /// Adds what the misspelt name may have meant.
    pub(crate) fn did_you_mean(mut self, close: &[String]) -> Self {
        if !close.is_empty() {
            let names: Vec<String> = close.iter().map(|name| format!("`{name}`")).collect();
            self.message
                .push_str(&format!("; did you mean {}?", names.join(" or ")));
        }
        self
    }
}

impl From<TokenRefused> for Refusal {
    fn from(refused: TokenRefused) -> Self {
        Self::unauthorized(refused.to_string())
    }
}

impl From<WriteFailed> for Refusal {
    fn from(failed: WriteFailed) -> Self {
        let message = failed.to_string();
        match failed {
            WriteFailed::Refused(refused) => refused.into(),
            WriteFailed::Busy => Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message),
            WriteFailed::Full => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "storage_full", message)
            }
            WriteFailed::Unconfirmed => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
            }
            WriteFailed::Unreachable | WriteFailed::Stopping => Self::not_ready(message),
        }
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let message = refused.to_string();
        match refused {
            Refused::Invalid(_) => Self::invalid(message),
            Refused::Missing(_) => Self::not_found(message),
            Refused::Conflict(Conflict::AlreadyInitialized { .. }) => {
                Self::new(StatusCode::CONFLICT, "already_initialized", message)
            }
            Refused::Conflict(_) => Self::new(StatusCode::CONFLICT, "conflict", message),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = ErrorBody {
            code: self.code.into(),
            message: self.message,
            request_id: request::id(),
        };
        let mut response = (self.status, Json(body)).into_response();
        response.extensions_mut().insert(Code(self.code));
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            let second = axum::http::HeaderValue::from_static("1");
            let name = axum::http::header::RETRY_AFTER;
            response.headers_mut().insert(name, second);
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = axum::http::HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(axum::http::header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
