//! Publishes one record and reads it: `quickstart BROKER CA_FILE TOKEN`.

use felix_client::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let [broker, ca_file, token] = [1, 2, 3].map(|n| std::env::args().nth(n).unwrap_or_default());
    let client = Client::builder()
        .broker(broker)
        .tenant("dev")
        .token(token)
        .ca_file(ca_file);
    let client = client.connect().await?;

    let mut orders = client.subscribe("orders").await?;
    client.publish("orders", "hello").await?;
    if let Some(event) = orders.next().await? {
        println!("{:?} {:?}", event.offset, event.payload);
    }
    client.close().await;
    Ok(())
}
