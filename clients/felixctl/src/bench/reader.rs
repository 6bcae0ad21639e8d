//! How a measurement reads: batches as they came, nothing unpacked that need not be.

use bytes::Bytes;
use felix_client::{Client, Subscription};

use crate::exit::Failure;

/// What came in one frame.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) records: u64,
    /// Payload of the newest record.
    pub(super) last: Bytes,
}

/// Subscribes to what is published from now on.
pub(super) async fn open(client: &Client, stream: &str) -> Result<Subscription, Failure> {
    Ok(client.subscribe(stream).await?)
}

/// Waits for records. Cancel-safe.
pub(super) async fn next(subscription: &mut Subscription) -> Result<Chunk, Failure> {
    loop {
        let Some(batch) = subscription.next_batch().await? else {
            return Err(Failure::failed(
                "the subscription ended in the middle of the measurement",
            ));
        };
        let mut records = 0;
        let mut last = Bytes::new();
        // Every record is looked at, as a program would, but only the newest is kept.
        for payload in batch.payloads() {
            records += 1;
            last = payload;
        }
        if records > 0 {
            return Ok(Chunk { records, last });
        }
    }
}
