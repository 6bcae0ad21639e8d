//! Reading bodies and names after the caller is known.

use std::str::FromStr;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use felix_model::BadName;
use serde::de::DeserializeOwned;

use super::error::Refusal;
use crate::limits::BODY_TIME;

/// The bytes of a body. They are read as JSON only by [`Raw::read`], so that a stranger's nonsense is refused for being
/// a stranger's.
pub(crate) struct Raw(Bytes);

impl<S: Send + Sync> FromRequest<S> for Raw {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let read = Bytes::from_request(request, state);
        tokio::time::timeout(BODY_TIME, read)
            .await
            .map_err(|_| Refusal::too_slow())?
            .map(Self)
            .map_err(|rejection| match rejection.status() {
                StatusCode::PAYLOAD_TOO_LARGE => Refusal::too_large(rejection.body_text()),
                _ => Refusal::invalid(rejection.body_text()),
            })
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

/// A name from the path.
pub(crate) fn name<T: FromStr<Err = BadName>>(field: &str, text: &str) -> Result<T, Refusal> {
    text.parse()
        .map_err(|error| Refusal::invalid(format!("`{field}`: {error}")))
}
