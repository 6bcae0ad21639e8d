//! A broker whose every word is written in the test.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use felix_client::{Builder, Client, ReconnectPolicy};
use felix_model::Payloads;
use felix_wire::ack::Ack;
use felix_wire::event::{EventHead, Stamps};
use felix_wire::extension::requests::{Ask, Reply};
use felix_wire::extension::{Extension, Extensions, Refused, Request};
use felix_wire::flags::Flags;
use felix_wire::frame::{Accepts, Frame, Incoming, split};
use felix_wire::message::{Auth, EventStreamHello, Message, Subscribe, Subscribed};
use felix_wire::negotiate::{Features, Offer, Served};
use felix_wire::publish::Publish;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Connection, Endpoint, RecvStream, SendStream, ServerConfig, TransportConfig, VarInt};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::time::Duration;

/// One broker, listening.
pub(crate) struct FakeBroker {
    endpoint: Endpoint,
    ca_pem: String,
}

/// One connection of a client.
#[derive(Clone)]
pub(crate) struct FakeConn(pub(crate) Connection);

/// One stream of a client, or one the broker opened.
pub(crate) struct FakeStream {
    send: Option<SendStream>,
    recv: Option<RecvStream>,
    buffer: BytesMut,
    extensions: bool,
}

/// Everything the protocol has, except what would make the client ask by itself.
pub(crate) fn served() -> Served {
    Served {
        flags: Flags::ALL,
        features: Features::ALL.without(Features::TOPOLOGY),
        publish_window: 256,
        listener_ports: Vec::new(),
        extensions: [Extension::Records].into_iter().collect(),
    }
}

/// The same with calls in binary.
pub(crate) fn serving_calls() -> Served {
    Served {
        extensions: Extension::ALL.into_iter().collect(),
        ..served()
    }
}

/// Certificates for several brokers that one client shall trust.
pub(crate) struct Authority {
    cert: rcgen::CertifiedKey<rcgen::KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let names = vec!["localhost".to_owned()];
        Self {
            cert: rcgen::generate_simple_self_signed(names).unwrap(),
        }
    }

    pub(crate) fn broker(&self) -> FakeBroker {
        let key = PrivatePkcs8KeyDer::from(self.cert.signing_key.serialize_der());
        let mut tls = rustls::ServerConfig::builder_with_provider(
            rustls::crypto::ring::default_provider().into(),
        )
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![self.cert.cert.der().clone()],
            PrivateKeyDer::Pkcs8(key),
        )
        .unwrap();
        tls.alpn_protocols = vec![b"felix/1".to_vec()];
        let crypto = QuicServerConfig::try_from(tls).unwrap();
        let mut config = ServerConfig::with_crypto(Arc::new(crypto));
        let mut transport = TransportConfig::default();
        transport.max_concurrent_bidi_streams(VarInt::from_u32(1024));
        config.transport_config(Arc::new(transport));
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let endpoint = Endpoint::server(config, local).unwrap();
        FakeBroker {
            endpoint,
            ca_pem: self.cert.cert.pem(),
        }
    }
}

impl FakeBroker {
    pub(crate) fn start() -> Self {
        Authority::new().broker()
    }

    pub(crate) fn address(&self) -> String {
        self.endpoint.local_addr().unwrap().to_string()
    }

    /// A client for this broker, ready to connect.
    pub(crate) fn builder(&self) -> Builder {
        let quickly = ReconnectPolicy::default()
            .first(Duration::from_millis(5))
            .longest(Duration::from_millis(20))
            .give_up_after(Duration::from_secs(20));
        Client::builder()
            .broker(self.address())
            .tenant("t1")
            .token("tok")
            .ca_pem(self.ca_pem.clone())
            .reconnect(quickly)
    }

    pub(crate) async fn accept(&self) -> FakeConn {
        let incoming = self.endpoint.accept().await.expect("the endpoint is open");
        FakeConn(incoming.await.expect("a handshake"))
    }

    /// A client comes and goes away again because it does not like the certificate.
    pub(crate) async fn turned_down(&self) {
        let incoming = self.endpoint.accept().await.expect("the endpoint is open");
        incoming
            .await
            .expect_err("the client accepts no certificate it does not know");
    }

    /// Accepts a client and welcomes it; gives the connection and its publish stream.
    pub(crate) async fn welcome(&self) -> (FakeConn, FakeStream) {
        let conn = self.accept().await;
        let pipe = conn.welcome().await;
        (conn, pipe)
    }

    /// Connects a client of this builder.
    pub(crate) async fn connected(&self, builder: Builder) -> (Client, FakeConn, FakeStream) {
        let (client, (conn, pipe)) = tokio::join!(builder.connect(), self.welcome());
        (client.expect("connected"), conn, pipe)
    }

    /// Connects a client of this builder to a broker that takes calls in binary.
    pub(crate) async fn calling(&self, builder: Builder) -> (Client, FakeConn, FakeStream) {
        let accept = async {
            let conn = self.accept().await;
            let pipe = conn.welcome_with(&serving_calls()).await;
            (conn, pipe)
        };
        let (client, (conn, pipe)) = tokio::join!(builder.connect(), accept);
        (client.expect("connected"), conn, pipe)
    }

    pub(crate) async fn client(&self) -> (Client, FakeConn, FakeStream) {
        self.connected(self.builder()).await
    }
}

impl FakeConn {
    /// The next stream a client opens.
    pub(crate) async fn stream(&self) -> FakeStream {
        let (send, recv) = self.0.accept_bi().await.expect("a stream of the client");
        FakeStream::new(Some(send), Some(recv))
    }

    /// The next stream, on which everything is granted.
    pub(crate) async fn welcome(&self) -> FakeStream {
        let mut stream = self.stream().await;
        stream.welcome(&served()).await;
        stream
    }

    pub(crate) async fn welcome_with(&self, served: &Served) -> FakeStream {
        let mut stream = self.stream().await;
        stream.welcome(served).await;
        stream
    }

    /// The next stream, which is for calls.
    pub(crate) async fn line(&self) -> FakeStream {
        self.welcome_with(&serving_calls()).await
    }

    /// The next request stream: what it asks, and the stream to answer on.
    pub(crate) async fn asked(&self) -> (Message, FakeStream) {
        let mut stream = self.welcome().await;
        let request = stream.message().await;
        (request, stream)
    }

    pub(crate) async fn subscribe(&self) -> (Subscribe, FakeStream) {
        match self.asked().await {
            (Message::Subscribe(subscribe), stream) => (subscribe, stream),
            (other, _) => panic!("not a subscribe: {other:?}"),
        }
    }

    /// Answers a subscribe and opens the event stream.
    pub(crate) async fn serve(
        &self,
        subscription_id: u64,
        start: Option<u64>,
    ) -> (Subscribe, FakeStream) {
        let (subscribe, mut stream) = self.subscribe().await;
        stream.say(subscribed(subscription_id, start)).await;
        (subscribe, self.events(subscription_id).await)
    }

    pub(crate) async fn events(&self, subscription_id: u64) -> FakeStream {
        let mut stream = self.silent_events().await;
        stream.say(EventStreamHello { subscription_id }).await;
        stream
    }

    /// An event stream that has not said whose it is.
    pub(crate) async fn silent_events(&self) -> FakeStream {
        let send = self.0.open_uni().await.expect("the client grants streams");
        FakeStream::new(Some(send), None)
    }

    /// Ends the connection as a broker does that is killed and started again.
    pub(crate) fn drop_dead(&self) {
        self.0.close(VarInt::from_u32(7), b"gone");
    }
}

pub(crate) fn subscribed(subscription_id: u64, start: Option<u64>) -> Subscribed {
    let queue_capacity = None;
    Subscribed {
        subscription_id,
        start_offset: start,
        live_offset: start,
        queue_capacity,
    }
}

impl FakeStream {
    fn new(send: Option<SendStream>, recv: Option<RecvStream>) -> Self {
        Self {
            send,
            recv,
            buffer: BytesMut::new(),
            extensions: false,
        }
    }

    /// Reads the first frame and answers it.
    pub(crate) async fn welcome(&mut self, served: &Served) -> Auth {
        let auth = self.auth().await;
        let grant = served.grant(&Offer::of(&auth));
        self.extensions = grant.peer.extensions != Extensions::NONE;
        self.say(grant.answer).await;
        auth
    }

    pub(crate) async fn auth(&mut self) -> Auth {
        let message = self.message().await;
        let Message::Auth(auth) = message else {
            panic!("the first frame is auth, not {message:?}")
        };
        auth
    }

    /// The next frame; `None` at the end of the stream.
    pub(crate) async fn frame(&mut self) -> Option<Incoming> {
        let accepts = Accepts {
            payload_bytes_max: 1 << 24,
            extensions: self.extensions,
        };
        loop {
            if let Some(frame) = split(&mut self.buffer, accepts).expect("a frame") {
                return Some(frame);
            }
            let recv = self.recv.as_mut().expect("a stream to read");
            let chunk = recv.read_chunk(1 << 16, true).await.ok()??;
            self.buffer.extend_from_slice(&chunk.bytes);
        }
    }

    pub(crate) async fn published(&mut self) -> Frame {
        match self.frame().await.expect("a frame") {
            Incoming::Published(frame) => frame,
            other @ Incoming::Extension(_) => {
                panic!("not a frame of the published protocol: {other:?}")
            }
        }
    }

    pub(crate) async fn message(&mut self) -> Message {
        Message::decode(&self.published().await.payload).expect("a message")
    }

    /// The next call, and its correlation.
    pub(crate) async fn call(&mut self) -> (u64, Ask) {
        let Some(Incoming::Extension(frame)) = self.frame().await else {
            panic!("not a call")
        };
        let correlation = frame.correlation;
        match frame.request(Extension::ALL.into_iter().collect()) {
            Ok(Request::Call(call)) => (correlation, call.ask),
            other => panic!("not a call: {other:?}"),
        }
    }

    pub(crate) async fn reply(&mut self, correlation: u64, reply: Reply) {
        let mut frame = BytesMut::new();
        reply.encode_into(correlation, &mut frame).expect("a reply");
        self.write(frame.freeze()).await;
    }

    pub(crate) async fn refuse(&mut self, correlation: u64, refused: impl Into<Refused>) {
        self.write(refused.into().encode(correlation)).await;
    }

    pub(crate) async fn publish(&mut self) -> Publish {
        let frame = self.published().await;
        Publish::decode(frame.flags, frame.payload).expect("a publish")
    }

    /// Reads a publish that wants an answer, and gives its number.
    pub(crate) async fn publish_id(&mut self) -> u64 {
        self.publish()
            .await
            .request
            .expect("a publish that wants an answer")
            .id
    }

    pub(crate) async fn say(&mut self, message: impl Into<Message>) {
        self.write(message.into().encode()).await;
    }

    pub(crate) async fn write(&mut self, bytes: Bytes) {
        let send = self.send.as_mut().expect("a stream to write");
        send.write_chunk(bytes).await.expect("the client reads");
    }

    pub(crate) async fn ack(&mut self, request_id: u64, offset: Option<u64>) {
        let ack = Ack {
            request_id,
            outcome: Ok(offset),
            owner: None,
        };
        self.answer(ack).await;
    }

    pub(crate) async fn answer(&mut self, ack: Ack) {
        let mut frame = BytesMut::new();
        ack.encode_into(Flags::ALL, &mut frame);
        self.write(frame.freeze()).await;
    }

    /// Sends events, as one batch.
    pub(crate) async fn batch(&mut self, base_offset: Option<u64>, payloads: &[&str]) {
        let head = EventHead {
            base_offset,
            ..EventHead::default()
        };
        self.batch_with(head, payloads).await;
    }

    pub(crate) async fn batch_with(&mut self, head: EventHead<'_>, payloads: &[&str]) {
        let list = Payloads::build(payloads.iter().map(|payload| payload.as_bytes())).unwrap();
        let mut bytes = head.encode(&list.bytes, Stamps::Absent);
        bytes.extend_from_slice(&list.bytes);
        self.write(bytes.freeze()).await;
    }

    pub(crate) fn finish(&mut self) {
        self.send
            .as_mut()
            .expect("a stream to write")
            .finish()
            .expect("not finished before");
    }

    pub(crate) fn reset(&mut self) {
        self.send
            .as_mut()
            .expect("a stream to write")
            .reset(VarInt::from_u32(9))
            .unwrap();
    }

    /// Waits until the client says that it no longer reads.
    pub(crate) async fn stopped(&mut self) {
        let stopped = self.send.as_mut().expect("a stream to write").stopped();
        stopped.await.expect("a live connection");
    }
}
