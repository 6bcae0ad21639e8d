//! The first exchange on every stream.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Who opens this stream, and what the peer can read. Always the first frame of a stream.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Auth {
    /// Tenant the token belongs to; every request of the stream must name the same one.
    pub tenant_id: String,
    /// The bearer token, opaque here.
    pub token: String,
    /// Frame layouts the client can read. Absent from clients older than negotiation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_flags: Option<u16>,
    /// First word of the feature bits the client can read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_features: Option<u32>,
    /// Second word; counts only when the first carries the marker bit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_features_hi: Option<u32>,
    /// Names of our own extensions the client would like to use.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "super::text::names"
    )]
    pub extensions: Vec<String>,
}

/// The token is a secret and stays out of logs.
impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth")
            .field("tenant_id", &self.tenant_id)
            .field("token", &format_args!("<{} bytes>", self.token.len()))
            .field("client_flags", &self.client_flags)
            .field("client_features", &self.client_features)
            .field("client_features_hi", &self.client_features_hi)
            .field("extensions", &self.extensions)
            .finish()
    }
}

/// The token was good. Sent only to a client that offered `client_flags`; others get `ok`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthOk {
    /// Frame layouts the broker can read and write.
    pub server_flags: u16,
    /// First word of the feature bits granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_features: Option<u32>,
    /// Second word; only to a client that set the marker bit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_features_hi: Option<u32>,
    /// All UDP ports of this host that serve clients, when there is more than one.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "super::text::optional_list"
    )]
    pub listener_ports: Vec<u16>,
    /// How many acknowledged publishes may be unanswered at once on a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish_window: Option<u32>,
    /// Names of our own extensions granted on this stream.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "super::text::names"
    )]
    pub extensions: Vec<String>,
}
