//! A client that says exactly what it is told to, right or wrong: QUIC streams and frames without manners.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use felix_model::Payloads;
use felix_wire::ack::Ack;
use felix_wire::event::EventBatch;
use felix_wire::extension::requests::{Ask, Call};
use felix_wire::extension::{Answer, Extension, Extensions};
use felix_wire::flags::{Flags, Layout};
use felix_wire::frame::{Accepts, Frame, FrameRefused, Incoming, split};
use felix_wire::message::{Message, MessageRefused, Subscribe};
use felix_wire::negotiate::{Features, Offer};
use felix_wire::publish::{BinaryAck, Names, Outgoing, Producer, PublishTooLong, Request};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint, RecvStream, SendStream, TransportConfig, VarInt};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::Ready;

/// What has not come after this long does not come.
const PATIENCE: Duration = Duration::from_secs(30);

/// Keeps a connection on which nothing is said from being taken for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// Largest frame that is read.
const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What went wrong on this side of the wire.
#[derive(Debug, thiserror::Error)]
pub enum WireFailed {
    /// The certificate of the node cannot be used.
    #[error("the node's certificate: {0}")]
    Certificate(String),
    /// No socket.
    #[error(transparent)]
    Socket(#[from] std::io::Error),
    /// The address is none.
    #[error(transparent)]
    Connect(#[from] quinn::ConnectError),
    /// There is no connection, or not any more.
    #[error(transparent)]
    Lost(#[from] quinn::ConnectionError),
    /// The peer takes nothing more on this stream.
    #[error(transparent)]
    Write(#[from] quinn::WriteError),
    /// The peer gives nothing more on this stream.
    #[error(transparent)]
    Read(#[from] quinn::ReadError),
    /// What came is no frame.
    #[error(transparent)]
    Frame(#[from] FrameRefused),
    /// What came is no message.
    #[error(transparent)]
    Message(#[from] MessageRefused),
    /// What came is neither an acknowledgement nor an event batch, or a malformed one.
    #[error("unexpected: {0}")]
    Unexpected(String),
    /// A publish that cannot be written.
    #[error(transparent)]
    Publish(#[from] PublishTooLong),
    /// The peer finished the stream.
    #[error("the stream ended")]
    Ended,
    /// Nothing came.
    #[error("nothing came for {PATIENCE:?}")]
    Late,
}

/// Everything a client can say that it reads.
pub fn offer() -> Offer {
    Offer {
        flags: Some(Flags::ALL),
        features: Features::ALL,
        reads_second_word: true,
        extensions: Extensions::from_iter([Extension::Records, Extension::Requests]),
    }
}

/// One connection.
#[derive(Debug)]
pub struct Wire {
    /// For what is said to QUIC itself.
    pub connection: Connection,
    endpoint: Endpoint,
    tenant: String,
    token: String,
}

impl Wire {
    /// Connects as the published client does, without a protocol list.
    ///
    /// # Errors
    /// [`WireFailed`].
    pub async fn connect(ready: &Ready) -> Result<Self, WireFailed> {
        Self::offering(ready, &[]).await
    }

    /// Connects with a protocol list; an empty one is none at all.
    ///
    /// # Errors
    /// [`WireFailed::Lost`] when the handshake is refused.
    pub async fn offering(ready: &Ready, protocols: &[&[u8]]) -> Result<Self, WireFailed> {
        let mut transport = TransportConfig::default();
        transport.keep_alive_interval(Some(KEEP_ALIVE));
        transport.max_concurrent_uni_streams(VarInt::from_u32(1024));
        let address = ready.brokers.first().map_or("", String::as_str);
        Self::through(ready, address, protocols, transport).await
    }

    /// Connects by way of another address, with transport settings of the caller's.
    ///
    /// # Errors
    /// [`WireFailed`].
    pub async fn through(
        ready: &Ready,
        address: &str,
        protocols: &[&[u8]],
        transport: TransportConfig,
    ) -> Result<Self, WireFailed> {
        let mut config = ClientConfig::new(std::sync::Arc::new(crypto(ready, protocols)?));
        config.transport_config(std::sync::Arc::new(transport));
        let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into())?;
        let address = address
            .parse()
            .map_err(|_| WireFailed::Unexpected(format!("{address} is no address")))?;
        let connecting = endpoint.connect_with(config, address, &ready.server_name)?;
        let connection = in_time(async { Ok(connecting.await?) }).await?;
        Ok(Self {
            connection,
            endpoint,
            tenant: ready.tenant.clone(),
            token: ready.token.clone(),
        })
    }

    /// Shows another token from here on.
    #[must_use]
    pub fn with_token(mut self, token: impl Into<String>) -> Self {
        self.token = token.into();
        self
    }

    /// A stream on which nothing was said.
    ///
    /// # Errors
    /// [`WireFailed::Lost`].
    pub async fn open(&self) -> Result<Stream, WireFailed> {
        let (send, recv) = in_time(async { Ok(self.connection.open_bi().await?) }).await?;
        Ok(Stream {
            send,
            incoming: Listener::new(recv),
        })
    }

    /// A stream whose first answer was good.
    ///
    /// # Errors
    /// [`WireFailed::Unexpected`] with the answer when the token is refused.
    pub async fn authenticated(&self) -> Result<Stream, WireFailed> {
        self.authenticated_with(&offer()).await
    }

    /// A stream whose first answer was good, with an offer of the caller's.
    ///
    /// # Errors
    /// As [`Wire::authenticated`].
    pub async fn authenticated_with(&self, offer: &Offer) -> Result<Stream, WireFailed> {
        let mut stream = self.open().await?;
        let answer = stream
            .ask(offer.auth(self.tenant.as_str(), self.token.as_str()))
            .await?;
        if matches!(answer, Message::AuthOk(_) | Message::Ok) {
            Ok(stream)
        } else {
            Err(WireFailed::Unexpected(format!("{answer:?}")))
        }
    }

    /// Asks for a subscription and finishes the request's side, as the published client does. Gives the answer, and
    /// the event stream if there is one. One call at a time: event streams are taken in the order they come.
    ///
    /// # Errors
    /// [`WireFailed`].
    pub async fn subscribe(
        &self,
        ask: Subscribe,
    ) -> Result<(Message, Option<Listener>), WireFailed> {
        let mut stream = self.authenticated().await?;
        stream.say(ask).await?;
        stream.finish()?;
        let answer = stream.message().await?;
        let Message::Subscribed(subscribed) = &answer else {
            return Ok((answer, None));
        };
        let recv = in_time(async { Ok(self.connection.accept_uni().await?) }).await?;
        let mut events = Listener::new(recv);
        let hello = events.message().await?;
        let is_ours = matches!(
            &hello,
            Message::EventStreamHello(hello)
                if hello.subscription_id == subscribed.subscription_id
        );
        if is_ours {
            Ok((answer, Some(events)))
        } else {
            Err(WireFailed::Unexpected(format!("{hello:?}")))
        }
    }

    /// The next stream that the broker opens.
    ///
    /// # Errors
    /// [`WireFailed`].
    pub async fn events(&self) -> Result<Listener, WireFailed> {
        let recv = in_time(async { Ok(self.connection.accept_uni().await?) }).await?;
        Ok(Listener::new(recv))
    }

    /// Goes away and lets the broker know.
    pub async fn close(self) {
        self.connection.close(VarInt::from_u32(0), b"");
        self.endpoint.wait_idle().await;
    }
}

fn crypto(ready: &Ready, protocols: &[&[u8]]) -> Result<QuicClientConfig, WireFailed> {
    let bad = |error: &dyn std::fmt::Display| WireFailed::Certificate(error.to_string());
    let mut roots = RootCertStore::empty();
    let certificates =
        CertificateDer::pem_file_iter(&ready.ca_file).map_err(|error| bad(&error))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| bad(&error))?;
        roots.add(certificate).map_err(|error| bad(&error))?;
    }
    let provider = rustls::crypto::ring::default_provider();
    let mut tls = rustls::ClientConfig::builder_with_provider(provider.into())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| bad(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = protocols.iter().map(|one| one.to_vec()).collect();
    QuicClientConfig::try_from(tls).map_err(|error| bad(&error))
}

/// A stream that goes both ways.
#[derive(Debug)]
pub struct Stream {
    send: SendStream,
    /// What the broker says.
    pub incoming: Listener,
}

impl Stream {
    /// Writes bytes, frames or not.
    ///
    /// # Errors
    /// [`WireFailed::Write`] when the broker has had enough.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), WireFailed> {
        let send = &mut self.send;
        in_time(async { Ok(send.write_all(bytes).await?) }).await
    }

    /// Says a message.
    ///
    /// # Errors
    /// As [`Stream::write`].
    pub async fn say(&mut self, message: impl Into<Message>) -> Result<(), WireFailed> {
        self.write(&message.into().encode()).await
    }

    /// Says a message and takes the next one for its answer.
    ///
    /// # Errors
    /// [`WireFailed`].
    pub async fn ask(&mut self, message: impl Into<Message>) -> Result<Message, WireFailed> {
        self.say(message).await?;
        self.message().await
    }

    /// Says JSON as it is written down, and takes the next message for its answer.
    ///
    /// # Errors
    /// [`WireFailed`].
    pub async fn ask_json(&mut self, json: &serde_json::Value) -> Result<Message, WireFailed> {
        let payload = Bytes::from(json.to_string());
        let frame = Frame {
            flags: Flags::NONE,
            payload,
        };
        self.write(&frame.encode()).await?;
        self.message().await
    }

    /// Makes a binary call on a stream or cache of tenant `dev`, namespace `default`, and takes the next frame for its
    /// answer.
    ///
    /// # Errors
    /// [`WireFailed`].
    pub async fn call(&mut self, object: &str, ask: impl Into<Ask>) -> Result<Answer, WireFailed> {
        const CORRELATION: u64 = 5;
        let unexpected = |what: &dyn std::fmt::Display| WireFailed::Unexpected(what.to_string());
        let call = Call {
            names: Names::new("dev", "default", object).map_err(|error| unexpected(&error))?,
            ask: ask.into(),
        };
        let mut frame = BytesMut::new();
        call.encode_into(CORRELATION, &mut frame)?;
        self.write(&frame).await?;
        match self.incoming.frame().await? {
            Some(Incoming::Extension(frame)) if frame.correlation == CORRELATION => frame
                .answer(offer().extensions)
                .map_err(|refused| unexpected(&refused)),
            other => Err(WireFailed::Unexpected(format!("{other:?}"))),
        }
    }

    /// Publishes payloads to a stream of tenant `dev`, namespace `default`, in the binary form, acknowledged.
    ///
    /// # Errors
    /// [`WireFailed`] when it cannot be sent.
    pub async fn send(&mut self, to: &Target<'_>, payloads: &[&[u8]]) -> Result<(), WireFailed> {
        let payloads = Payloads::build(payloads.iter().copied())
            .map_err(|error| WireFailed::Unexpected(error.to_string()))?;
        let outgoing = Outgoing {
            request: Some(Request {
                id: to.request_id,
                ack: BinaryAck::PerBatch,
            }),
            producer: to.producer,
            key: to.key,
            tenant: "dev",
            namespace: "default",
            stream: to.stream,
        };
        let frame = outgoing.encode(&payloads)?;
        self.write(&frame).await
    }

    /// As [`Stream::send`], and takes the next frame for the binary answer.
    ///
    /// # Errors
    /// [`WireFailed`].
    pub async fn publish(
        &mut self,
        to: &Target<'_>,
        payloads: &[&[u8]],
    ) -> Result<Ack, WireFailed> {
        self.send(to, payloads).await?;
        self.incoming.ack().await
    }

    /// The next message.
    ///
    /// # Errors
    /// [`WireFailed`].
    pub async fn message(&mut self) -> Result<Message, WireFailed> {
        self.incoming.message().await
    }

    /// Says that nothing more will be said.
    ///
    /// # Errors
    /// When the broker stopped the stream before.
    pub fn finish(&mut self) -> Result<(), WireFailed> {
        self.send
            .finish()
            .map_err(|_| WireFailed::Write(quinn::WriteError::ClosedStream))
    }
}

/// Where a publish goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Target<'a> {
    /// The stream's name.
    pub stream: &'a str,
    /// Echoed in the answer.
    pub request_id: u64,
    /// Routing key.
    pub key: Option<&'a [u8]>,
    /// For a batch that is not appended twice.
    pub producer: Option<Producer>,
}

/// The receiving end of a stream.
#[derive(Debug)]
pub struct Listener {
    recv: RecvStream,
    buffer: BytesMut,
}

impl Listener {
    fn new(recv: RecvStream) -> Self {
        Self {
            recv,
            buffer: BytesMut::new(),
        }
    }

    /// The next frame; `None` once the broker has finished the stream.
    ///
    /// # Errors
    /// [`WireFailed`].
    pub async fn frame(&mut self) -> Result<Option<Incoming>, WireFailed> {
        let accepts = Accepts {
            payload_bytes_max: FRAME_BYTES_MAX,
            extensions: true,
        };
        loop {
            if let Some(frame) = split(&mut self.buffer, accepts)? {
                return Ok(Some(frame));
            }
            let recv = &mut self.recv;
            match in_time(async { Ok(recv.read_chunk(usize::MAX, true).await?) }).await? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk.bytes),
                None => return Ok(None),
            }
        }
    }

    /// The next frame, which is JSON.
    ///
    /// # Errors
    /// [`WireFailed`].
    pub async fn message(&mut self) -> Result<Message, WireFailed> {
        let frame = self.published().await?;
        if frame.flags != Flags::NONE {
            return Err(WireFailed::Unexpected(format!("flags {:?}", frame.flags)));
        }
        Ok(Message::decode(&frame.payload)?)
    }

    /// The next frame, which is a binary answer.
    ///
    /// # Errors
    /// [`WireFailed`].
    pub async fn ack(&mut self) -> Result<Ack, WireFailed> {
        let frame = self.published().await?;
        match frame.layout() {
            Ok(Layout::Ack) => Ack::decode(frame.flags, frame.payload)
                .map_err(|error| WireFailed::Unexpected(error.to_string())),
            _ => Err(WireFailed::Unexpected(
                String::from_utf8_lossy(&frame.payload).into_owned(),
            )),
        }
    }

    /// The next frame, which is a batch of events.
    ///
    /// # Errors
    /// [`WireFailed`].
    pub async fn events(&mut self) -> Result<EventBatch, WireFailed> {
        let frame = self.published().await?;
        match frame.layout() {
            Ok(Layout::Events) => EventBatch::decode(frame.flags, frame.payload)
                .map_err(|error| WireFailed::Unexpected(error.to_string())),
            _ => Err(WireFailed::Unexpected(
                String::from_utf8_lossy(&frame.payload).into_owned(),
            )),
        }
    }

    /// Waits until the broker has finished the stream.
    ///
    /// # Errors
    /// [`WireFailed::Unexpected`] when it says something more.
    pub async fn ended(&mut self) -> Result<(), WireFailed> {
        match self.frame().await? {
            None => Ok(()),
            Some(more) => Err(WireFailed::Unexpected(format!("{more:?}"))),
        }
    }

    /// Asks the broker to stop (STOP_SENDING).
    pub fn stop(&mut self) {
        // A stream that is finished has nothing to stop.
        let _ = self.recv.stop(VarInt::from_u32(0));
    }

    async fn published(&mut self) -> Result<Frame, WireFailed> {
        match self.frame().await? {
            Some(Incoming::Published(frame)) => Ok(frame),
            Some(Incoming::Extension(frame)) => Err(WireFailed::Unexpected(format!("{frame:?}"))),
            None => Err(WireFailed::Ended),
        }
    }
}

async fn in_time<T>(wait: impl Future<Output = Result<T, WireFailed>>) -> Result<T, WireFailed> {
    tokio::time::timeout(PATIENCE, wait)
        .await
        .map_err(|_| WireFailed::Late)?
}
