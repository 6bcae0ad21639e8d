//! The HTTP surface.
//!
//! Every handler has the same four steps: who asks (401), may he (403), what does he say (400), and only then what is
//! there (404, 409). So an answer never tells a stranger what exists.

mod audit;
mod body;
mod bootstrap;
mod caches;
mod caller;
mod consistency;
mod error;
mod feeds;
mod issuers;
mod keys;
mod members;
mod namespaces;
mod nodes;
mod openapi;
mod page;
mod quotas;
mod rbac;
mod resources;
mod revocations;
mod routes;
mod service_accounts;
mod sessions;
mod status;
mod streams;
mod system;
mod templates;
mod tenants;
mod tokens;
mod watch;

pub(crate) use bootstrap::router as bootstrap_router;
pub(crate) use error::Refusal;
pub(crate) use routes::router as api_router;
pub(crate) use status::router as status_router;
pub(crate) use tokens::{dev_token, initialize};
