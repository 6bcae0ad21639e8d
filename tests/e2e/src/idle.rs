//! What idle connections cost a node: its resident memory before and after a number of clients came and said nothing
//! more.

use felix_client::Client;

use crate::raw::{Stream, Wire, WireFailed};
use crate::{Home, Node, NodeFailed};

/// Streams that the published client opens and authenticates on each connection before it does anything.
const PUBLISHED_STREAMS: usize = 41;

/// Connections are opened before the first look: what a node allocates once belongs to no connection.
const WARM: usize = 16;

/// Handshakes under way at once.
const AT_ONCE: usize = 16;

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum NotMeasured {
    /// The node.
    #[error(transparent)]
    Node(#[from] NodeFailed),
    /// A connection.
    #[error(transparent)]
    Wire(#[from] WireFailed),
    /// The process cannot be looked at.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A task of this program.
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
}

/// Resident sizes in bytes around the arrival of idle connections.
#[derive(Clone, Copy, Debug)]
pub struct Grown {
    /// Connections that came.
    pub connections: usize,
    /// Streams on each.
    pub streams: usize,
    /// Before they came.
    pub before: u64,
    /// While they were there.
    pub after: u64,
    /// Once they had gone.
    pub gone: u64,
}

/// Lets `count` connections come to a node of its own: as our client makes them, and then as the published one does.
///
/// # Errors
/// [`NotMeasured`].
pub async fn run(home: &Home, count: usize) -> Result<[Grown; 2], NotMeasured> {
    let node = home.start().await?;
    let ours = measure(&node, count, 1, client).await?;
    node.stop().await?;
    let node = home.start().await?;
    let published = measure(&node, count, PUBLISHED_STREAMS, wire).await?;
    node.stop().await?;
    Ok([ours, published])
}

async fn client(builder: felix_client::Builder, _: crate::Ready) -> Result<Client, NotMeasured> {
    Ok(builder.connect().await.map_err(NodeFailed::from)?)
}

async fn wire(
    _: felix_client::Builder,
    ready: crate::Ready,
) -> Result<(Wire, Vec<Stream>), NotMeasured> {
    let wire = Wire::connect(&ready).await?;
    let mut streams = Vec::new();
    for _ in 0..PUBLISHED_STREAMS {
        streams.push(wire.authenticated().await?);
    }
    Ok((wire, streams))
}

async fn measure<T, F>(
    node: &Node,
    connections: usize,
    streams: usize,
    connect: fn(felix_client::Builder, crate::Ready) -> F,
) -> Result<Grown, NotMeasured>
where
    T: Send + 'static,
    F: Future<Output = Result<T, NotMeasured>> + Send + 'static,
{
    let _warm = come(node, WARM, connect).await?;
    let before = node.resident_bytes()?;
    let idle = come(node, connections, connect).await?;
    let after = node.resident_bytes()?;
    drop(idle);
    // The connections are closed when they are dropped; the node has seen it once it counts them no more.
    let left = crate::eventually(|| async {
        let open = node.metric("felix_broker_connections").await.ok()?;
        (open <= WARM as f64).then_some(())
    });
    left.await;
    Ok(Grown {
        connections,
        streams,
        before,
        after,
        gone: node.resident_bytes()?,
    })
}

async fn come<T, F>(
    node: &Node,
    count: usize,
    connect: fn(felix_client::Builder, crate::Ready) -> F,
) -> Result<Vec<T>, NotMeasured>
where
    T: Send + 'static,
    F: Future<Output = Result<T, NotMeasured>> + Send + 'static,
{
    let mut arriving = tokio::task::JoinSet::new();
    let mut here = Vec::with_capacity(count);
    for number in 0..count {
        if number >= AT_ONCE
            && let Some(arrived) = arriving.join_next().await
        {
            here.push(arrived??);
        }
        arriving.spawn(connect(node.builder(), node.ready().clone()));
    }
    while let Some(arrived) = arriving.join_next().await {
        here.push(arrived??);
    }
    Ok(here)
}

impl Grown {
    /// For people: one line.
    pub fn print(&self) {
        let grown = self.after.saturating_sub(self.before);
        println!(
            "{} connections with {} authenticated streams each: {:.1} MB more ({} before, {} after, {} once they had gone), {} bytes a connection",
            self.connections,
            self.streams,
            megabytes(grown),
            megabytes(self.before),
            megabytes(self.after),
            megabytes(self.gone),
            grown / (self.connections.max(1) as u64),
        );
    }
}

/// Millions of bytes, to a tenth.
#[expect(clippy::cast_precision_loss, reason = "shown to a tenth of a million")]
fn megabytes(bytes: u64) -> f64 {
    (bytes as f64 / 100_000.0).round() / 10.0
}
