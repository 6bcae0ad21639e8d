//! `--demo`: a few records a second, and the proof that they arrive.

use std::convert::Infallible;
use std::time::Duration;

use felix_client::{Client, Record};
use felix_controlplane_client::Held;
use tokio::task::JoinHandle;

use super::ready::Ready;
use super::seed::{NAMESPACE, STREAM, TENANT};
use crate::commands::{App, seen};
use crate::exit::Failure;
use crate::output::write_for_people;

/// Records a second are three: enough to see, slow enough to read.
const PAUSE: Duration = Duration::from_millis(333);

/// Starts publishing and printing. Aborting the task ends both.
///
/// # Errors
/// When it cannot connect or subscribe.
pub(super) async fn start(
    app: &App,
    ready: &Ready,
    token: Held,
) -> Result<JoinHandle<()>, Failure> {
    let client = Client::builder()
        .brokers(ready.brokers.iter().cloned())
        .tenant(TENANT)
        .namespace(NAMESPACE)
        .token_provider(move || {
            let token = token.token().to_string();
            async move { Ok::<_, Infallible>(token) }
        })
        .ca_file(&ready.ca_file)
        .server_name(&ready.server_name)
        .connect()
        .await
        .map_err(|error| Failure::failed(format!("the demo cannot connect: {error}")))?;
    let output = app.output;
    let mut subscription = client.subscribe(STREAM).records().await?;
    let publisher = client.publisher(STREAM)?;
    Ok(tokio::spawn(async move {
        let publishing = async {
            let mut number = 0_u64;
            loop {
                let record = Record::new(format!("{{\"order\": {number}}}"))
                    .key(format!("cust-{}", number % 7))
                    .header("source", "demo");
                if let Err(error) = publisher.publish(record).await {
                    tracing::warn!(%error, "the demo could not publish");
                }
                number += 1;
                tokio::time::sleep(PAUSE).await;
            }
        };
        let printing = async {
            while let Ok(Some(event)) = subscription.next().await {
                let mut line = b"received ".to_vec();
                write_for_people(&seen(STREAM, event, 0), &mut line);
                if output.text(&String::from_utf8_lossy(&line)).is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = publishing => {}
            () = printing => {}
        }
    }))
}
