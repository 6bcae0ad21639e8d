//! A cache, a counter, a commit and a worker: `readings BROKER CA_FILE TOKEN`.

use std::time::Duration;

use felix_client::{CacheFailed, Client, Condition, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let [broker, ca_file, token] = [1, 2, 3].map(|n| std::env::args().nth(n).unwrap_or_default());
    let client = Client::builder()
        .broker(broker)
        .tenant("dev")
        .token(token)
        .ca_file(ca_file);
    let client = client.connect().await?;

    let cache = client.cache("config")?;
    let hour = Duration::from_secs(3_600);
    cache.put_with_ttl("theme", "dark", hour).await?;
    match cache
        .put_if("theme", "light", Condition::Absent, None)
        .await
    {
        Err(CacheFailed::VersionMismatch { current_version }) => {
            println!("somebody chose a theme, version {current_version:?}");
        }
        stored => println!("{:?}", stored?),
    }

    let counter = client.counter("config")?;
    let hits = counter.add_once("hits", 1, "job-17").await?;
    println!("{} hits", hits.value);

    let paid = client.commit("orders", "order-7", "paid");
    let paid = paid.put("status", "paid").once("request-9").await?;
    println!("paid at offset {}", paid.offset);

    let mut worker = client
        .group("orders", "billing")?
        .consumer("worker-1")
        .await?;
    if let Some(record) = worker.next().await? {
        println!("{:?} for the {}. time", record.value, record.attempts);
        record.ack().await?;
    }
    worker.close().await;
    client.close().await;
    Ok(())
}
