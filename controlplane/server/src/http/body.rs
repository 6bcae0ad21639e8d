//! Reading bodies and names after the caller is known.

use std::str::FromStr;

use axum::Json;
use axum::body::{Bytes, to_bytes};
use axum::extract::{FromRequest, Request};
use axum::http::header::{CACHE_CONTROL, CONTENT_LENGTH};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use felix_model::BadName;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::bootstrap::{BOOTSTRAP_PATHS, knows_the_token};
use super::caller::Ticket;
use super::error::Refusal;
use crate::app::App;
use crate::limits::{BODY_BYTES_MAX, BODY_TIME, STRANGERS_BODY_BYTES_MAX};

/// The bytes of a body. They are read as JSON only by [`Raw::read`], so that a stranger's nonsense is refused for being
/// a stranger's.
pub(crate) struct Raw(Bytes);

impl FromRequest<App> for Raw {
    type Rejection = Refusal;

    async fn from_request(request: Request, app: &App) -> Result<Self, Refusal> {
        let (parts, body) = request.into_parts();
        let announced = parts.headers.get(CONTENT_LENGTH);
        let announced = announced.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        let limit = match announced {
            Some(length) if length <= STRANGERS_BODY_BYTES_MAX => STRANGERS_BODY_BYTES_MAX,
            _ if knows(app, &parts) => BODY_BYTES_MAX,
            _ => STRANGERS_BODY_BYTES_MAX,
        };
        // Whoever breaks off in the middle does not hear the answer.
        let too_large = || Refusal::too_large(format!("the body has more than {limit} bytes"));
        if announced.is_some_and(|length| length > limit) {
            return Err(too_large());
        }
        let read = tokio::time::timeout(BODY_TIME, to_bytes(body, limit)).await;
        let read = read.map_err(|_| Refusal::too_slow())?;
        read.map(Self).map_err(|_| too_large())
    }
}

/// Whether the request comes from somebody who may make us keep a large body. It is asked only then. The bootstrap token
/// is looked at where it belongs and nowhere else: the API must not tell whether a guess is right.
fn knows(app: &App, parts: &Parts) -> bool {
    match parts.uri.path().starts_with(BOOTSTRAP_PATHS) {
        true => knows_the_token(app, &parts.headers),
        false => app.knows(&Ticket::of(parts)),
    }
}

impl Raw {
    /// Reads the body as JSON.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        self.must_be_no_array()?;
        serde_json::from_slice(&self.0).map_err(|error| Refusal::invalid(error.to_string()))
    }

    /// As [`Raw::read`], for a body that holds a secret: the refusal says where it cannot be read and quotes nothing.
    pub(crate) fn read_secret<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        self.must_be_no_array()?;
        serde_json::from_slice(&self.0).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            let message = format!(
                "the body cannot be read, or a field is missing or unknown: line {line}, column {column}"
            );
            Refusal::invalid(message)
        })
    }

    /// The reader would take the items of an array for the fields in their order, which nobody means.
    fn must_be_no_array(&self) -> Result<(), Refusal> {
        let first = self.0.iter().find(|byte| !byte.is_ascii_whitespace());
        if first == Some(&b'[') {
            return Err(Refusal::invalid("the body must be a JSON object"));
        }
        Ok(())
    }

    /// As [`Raw::read_secret`], for a body that may be left out.
    pub(crate) fn read_or_default<T: DeserializeOwned + Default>(&self) -> Result<T, Refusal> {
        if self.0.is_empty() {
            return Ok(T::default());
        }
        self.read_secret()
    }
}

/// An answer that holds a secret, and that nobody on the way may keep.
#[derive(Debug)]
pub(crate) struct Unkept<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Unkept<T> {
    fn into_response(self) -> Response {
        ([(CACHE_CONTROL, "no-store")], Json(self.0)).into_response()
    }
}

/// A name from the path.
pub(crate) fn name<T: FromStr<Err = BadName>>(field: &str, text: &str) -> Result<T, Refusal> {
    text.parse()
        .map_err(|error| Refusal::invalid(format!("`{field}`: {error}")))
}
