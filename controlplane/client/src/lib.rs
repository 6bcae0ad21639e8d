//! The control plane from outside: follow the catalogue, send commands, ask for tokens.
//!
//! [`Api`] is one typed call per route. [`Follower`] keeps a copy of the catalogue that is as new as the control plane
//! says it is: it long-polls one ordered feed, and [`Follower::refresh`] closes even that gap for whoever cannot wait.
//!
//! [`Held`] is a token that is replaced while calls are made with it, and [`Credential`] has it replaced in time.
//!
//! What never lives here: decisions about the catalogue (they are `felix-meta`'s), token contents (`felix-auth`'s), and
//! any data of a stream, which never passes the control plane.
//!
//! Begin with [`Api::new`], then [`Follower::start`].

mod api;
mod bootstrap;
mod call;
mod credential;
mod exchange;
mod follower;
mod held;
pub mod limits;
mod renew;
mod templates;
mod token;
mod trust;

pub use api::{Api, Made};
pub use bootstrap::Bootstrap;
pub use call::{BadEndpoint, CallFailed, Retry};
pub use credential::{Credential, CredentialEvent, CredentialFiles, Given, NoCredential};
pub use exchange::Exchanger;
pub use follower::{Follower, FollowerState};
pub use held::Held;
pub use renew::{Renewal, Renewed};
pub use token::TokenSource;
pub use trust::Trust;
