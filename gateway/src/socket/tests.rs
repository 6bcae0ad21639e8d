//! Sockets that have not joined: where they are counted, and how long they are waited for. And beacons, which never join.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::*;
use crate::limits::CONNECTIONS_PER_SESSION;
use crate::{Config, Embedding, Running};

/// One session of an address.
const SCOPE: &str = r#"
    [scope]
    field = "board"
    [[scope.caches]]
    alias = "presence"
    name = "board-{scope}-presence"
    actions = ["write"]
    [limits]
    sessions_per_ip = 1
"#;

type Browser = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A gateway with nothing behind it.
async fn gateway() -> Running {
    serving("").await
}

/// The same with this above its scope.
async fn serving(top: &str) -> Running {
    let config = Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        tenant: "t".into(),
        oidc_client_id: "page".into(),
        ..Config::default()
    };
    let embedding = Embedding {
        scope: Some(format!("{top}\n{SCOPE}")),
        ..Embedding::default()
    };
    crate::start(config, embedding).await.unwrap()
}

async fn open(gateway: &Running) -> Result<Browser, tungstenite::Error> {
    let url = format!("ws://{}/ws", gateway.address());
    connect_async(url).await.map(|(browser, _)| browser)
}

/// What a plain request is answered with; nothing when the connection is refused.
async fn ask(gateway: &Running) -> String {
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    let request = b"GET /live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let mut answer = String::new();
    if stream.write_all(request).await.is_ok() {
        // A connection that is refused is reset once something was written to it.
        let _ = stream.read_to_string(&mut answer).await;
    }
    answer
}

#[tokio::test]
async fn a_socket_has_its_place_among_the_connections_for_as_long_as_it_stands() {
    let gateway = gateway().await;
    let socket = open(&gateway).await.unwrap();
    assert!(ask(&gateway).await.contains("200 OK"));
    let mut others = Vec::new();
    for _ in 1..CONNECTIONS_PER_SESSION {
        others.push(TcpStream::connect(gateway.address()).await.unwrap());
    }
    assert_eq!(ask(&gateway).await, "");
    drop((socket, others));
}

#[tokio::test]
async fn a_socket_that_has_not_joined_counts_for_its_address() {
    let gateway = gateway().await;
    let mut first = open(&gateway).await.unwrap();
    let refused = open(&gateway).await.unwrap_err();
    let tungstenite::Error::Http(answer) = refused else {
        panic!("{refused}");
    };
    assert_eq!(answer.status().as_u16(), 429);
    assert_eq!(answer.headers()["retry-after"], "5");
    let join = tungstenite::Message::text(r#"{"type":"join"}"#);
    first.send(join).await.unwrap();
    let told = first.next().await.unwrap().unwrap();
    assert!(told.to_text().unwrap().contains("bad_request"), "{told}");
    let closed = first.next().await.unwrap().unwrap();
    assert!(closed.is_close(), "{closed}");
    assert!(
        open(&gateway).await.is_ok(),
        "the first one is not there any more"
    );
}

/// What a beacon about this namespace is answered with.
async fn beacon(gateway: &Running, namespace: &str) -> String {
    let body = format!(r#"{{"board":"b","cache":"presence","key":"k"{namespace}}}"#);
    let length = body.len();
    let request = format!(
        "POST /members/leave HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_beacon_acts_only_in_a_namespace_that_is_listed() {
    let gateway = serving(r#"namespaces = ["rooms"]"#).await;
    for unlisted in ["", r#","namespace":"default""#, r#","namespace":7"#] {
        let answer = beacon(&gateway, unlisted).await;
        assert!(answer.contains("400 Bad Request"), "{unlisted}: {answer}");
        assert!(answer.contains("namespace"), "{unlisted}: {answer}");
    }
    let listed = beacon(&gateway, r#","namespace":"rooms""#).await;
    assert!(listed.contains("signed_out"), "{listed}");
}

/// A browser whose window is shut.
struct Shut;

impl Sink<Message> for Shut {
    type Error = axum::Error;

    fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn start_send(self: Pin<&mut Self>, _: Message) -> Result<(), Self::Error> {
        Ok(())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Pending
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Pending
    }
}

#[tokio::test]
async fn whoever_does_not_take_the_answer_to_his_join_is_not_waited_for() {
    let said = say(&mut Shut, Duration::ZERO, "{}".to_owned()).await;
    assert_eq!(said, Err(Goodbye::DeadPeer));
}
