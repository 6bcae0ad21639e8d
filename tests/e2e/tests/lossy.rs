//! A path that loses one datagram in fifty, each way.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test that meets anything else has failed"
)]

use felix_client::Client;
use felix_e2e::raw::{Target, Wire};
use felix_e2e::{Home, LossyPath, Node};

const LOST_OF_THOUSAND: u64 = 20;
const PAYLOAD_BYTES: usize = 16 * 1024;

/// Records of one round: 8 MiB there, and the same back.
const ROUND: u64 = 512;

/// A path that has not found its datagram size by then does not find it.
const ROUNDS_MAX: u64 = 12;

async fn path(node: &Node, seed: u64) -> LossyPath {
    let address = node.ready().brokers[0].parse().unwrap();
    LossyPath::open(address, LOST_OF_THOUSAND, seed)
        .await
        .unwrap()
}

async fn client(node: &Node, path: &LossyPath) -> Client {
    let ready = node.ready();
    Client::builder()
        .broker(path.address().to_string())
        .tenant(&ready.tenant)
        .namespace(&ready.namespace)
        .token(ready.token.as_str())
        .ca_file(&ready.ca_file)
        .server_name(&ready.server_name)
        .connect()
        .await
        .unwrap()
}

fn payload(number: u64) -> Vec<u8> {
    let mut payload = vec![0; PAYLOAD_BYTES];
    payload[..8].copy_from_slice(&number.to_be_bytes());
    payload
}

#[tokio::test]
async fn every_record_passes_once_and_loss_is_not_taken_for_a_narrow_path() {
    let home = Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap();
    let node = home.start().await.unwrap();
    let path = path(&node, 57).await;
    let client = client(&node, &path).await;
    let mut subscription = client.subscribe("orders").from_earliest().await.unwrap();
    let publisher = client.publisher("orders").unwrap();
    let (mut lost, mut next, mut shares) = (0, 0, Vec::new());
    let mut mtu = 0.0;
    for round in 0..ROUNDS_MAX {
        let numbers = round * ROUND..(round + 1) * ROUND;
        let publishing = async {
            let mut receipts = Vec::new();
            for number in numbers.clone() {
                receipts.push(publisher.send(payload(number)).await.unwrap());
            }
            for (number, receipt) in numbers.clone().zip(receipts) {
                assert_eq!(receipt.await.unwrap().offset, Some(number));
            }
        };
        let reading = async {
            while next < numbers.end {
                let event = subscription.next().await.unwrap().unwrap();
                assert_eq!(event.offset, Some(next));
                assert_eq!(&event.payload[..], payload(next));
                next += 1;
            }
        };
        tokio::join!(publishing, reading);
        let passed = path.passed();
        lost += passed.iter().map(|way| way.lost).sum::<u64>();
        // Shares in percent, there and back; acknowledgements are small and are in them.
        let share = passed.map(|way| 100 * way.large_bytes / way.bytes.max(1));
        shares.push(share);
        // What an operator sees of it: the one connection there is.
        mtu = node.metric("felix_broker_path_mtu_bytes").await.unwrap();
        if round > 0 && share.iter().all(|share| *share > 60) && mtu > 1_200.0 {
            break;
        }
    }
    assert!(
        lost > 20,
        "the path lost {lost} datagrams: nothing was tested"
    );
    let last = shares.last().unwrap();
    assert!(last.iter().all(|share| *share > 60), "{shares:?}");
    assert!(mtu > 1_200.0, "the metric says {mtu} bytes");
    let listed = node.admin("metrics").await.unwrap().text().await.unwrap();
    assert!(
        listed.contains("\nfelix_broker_path_black_holes_total "),
        "{listed}"
    );
    assert_eq!(subscription.lost(), 0);
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_client_that_looks_for_the_size_of_its_path_finds_it_in_spite_of_loss() {
    let home = Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap();
    let node = home.start().await.unwrap();
    let path = path(&node, 1_200).await;
    let mut transport = quinn::TransportConfig::default();
    transport.keep_alive_interval(Some(std::time::Duration::from_secs(2)));
    let address = path.address().to_string();
    let wire = Wire::through(node.ready(), &address, &[b"felix/1"], transport)
        .await
        .unwrap();
    let mut stream = wire.authenticated().await.unwrap();
    let mut found = 0;
    for number in 0..ROUNDS_MAX * ROUND {
        let target = Target {
            stream: "orders",
            request_id: number,
            ..Target::default()
        };
        let ack = stream.publish(&target, &[&payload(number)]).await.unwrap();
        assert_eq!(ack.outcome, Ok(Some(number)));
        found = wire.connection.stats().path.current_mtu;
        if found > 1_200 && number >= ROUND {
            break;
        }
    }
    let stats = wire.connection.stats().path;
    eprintln!(
        "datagrams of {} bytes, {} lost of {}, {} black holes",
        stats.current_mtu, stats.lost_packets, stats.sent_packets, stats.black_holes_detected
    );
    assert!(found > 1_200, "datagrams stayed at {found} bytes");
    assert!(stats.lost_packets > 0, "nothing was lost");
    node.stop().await.unwrap();
}
