//! A broker in the same process: calls reach it as they are, without a connection.

use std::fmt;
use std::pin::Pin;

use felix_wire::Failure;
use felix_wire::extension::Refused;
use felix_wire::extension::requests::{Call, Reply};
use tokio::sync::{mpsc, oneshot};

/// A call, and where its answer goes. Whoever drops the sender says that the outcome is unknown.
pub type NearCall = (Call, oneshot::Sender<Result<Reply, Refused>>);

/// The way into a broker of this process. It judges tokens as it does everybody's.
pub trait Near: fmt::Debug + Send + Sync {
    /// Opens a way for calls in the name of a token. They are carried out in the order in which they are sent.
    ///
    /// # Errors
    /// What is wrong with the token.
    fn open<'a>(&'a self, tenant: &'a str, token: &'a str) -> Opening<'a>;
}

/// A way that is being opened.
pub type Opening<'a> =
    Pin<Box<dyn Future<Output = Result<mpsc::Sender<NearCall>, Failure>> + Send + 'a>>;
