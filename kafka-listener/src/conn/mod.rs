//! One connection: requests in, answers out in the same order, one task.

mod clock;
mod frames;
mod outbox;
mod pending;
mod room;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};

use self::clock::{Awaited, Clock};
use self::frames::Frames;
use self::outbox::Outbox;
pub(crate) use self::pending::{Pending, Weight, Work};
pub(crate) use self::room::Rooms;
use self::room::{Room, Taken};
use crate::api::{self, Answer, Call, Ctx, Head};
use crate::limits::{
    CONTROL_FRAME_BYTES_MAX, FRAME_BYTES_BEFORE_AUTH, FRAME_BYTES_MAX, UNANSWERED_MAX,
    UNSENT_BYTES_MAX,
};
use crate::listener::{Shared, now};
use crate::sasl::{self, Exchange};
use crate::wire::api::Api;
use crate::wire::header::{HEADER_BYTES_MIN, Header};

/// Why a connection is closed from this side.
#[derive(Debug, thiserror::Error)]
enum Closed {
    #[error("the client is gone: {0}")]
    Gone(#[from] std::io::Error),
    #[error(transparent)]
    TooLong(#[from] frames::TooLong),
    #[error("a request of {api} cannot be read: {why}")]
    Malformed { api: &'static str, why: String },
    #[error("{api} in version {version} is not served; it is in {min} to {max}")]
    Version {
        api: &'static str,
        version: i16,
        min: i16,
        max: i16,
    },
    #[error("requests with key {0} are not served")]
    Unserved(i16),
    #[error("{api} came before a login")]
    NotLoggedIn { api: &'static str },
    #[error("the login ran out")]
    Expired,
    #[error("what the login rests on was revoked")]
    Revoked,
    #[error("nothing happened for {0:?}")]
    Late(Duration),
}

/// An answer, with what its request held until now.
struct Finished {
    answer: Answer,
    began: Instant,
    _room: Taken,
}

struct Conn {
    shared: Arc<Shared>,
    peer: SocketAddr,
    ctx: Option<Arc<Ctx>>,
    exchange: Exchange,
    pending: Pending<Finished>,
    outbox: Outbox,
    clock: Clock,
    /// A login is being judged; what comes after it is for whoever it is then.
    judging: bool,
    /// No more is read; what was read is answered.
    closing: bool,
}

/// Serves a connection until either side ends it.
pub(crate) async fn serve<S>(stream: S, peer: SocketAddr, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut conn = Conn::new(peer, shared);
    let mut frames = Frames::new(conn.room());
    match conn.run(&mut frames, &mut reader, &mut writer).await {
        Ok(()) | Err(Closed::Gone(_)) => {}
        Err(why) => conn.note(&why),
    }
}

impl Conn {
    fn new(peer: SocketAddr, shared: Arc<Shared>) -> Self {
        let ctx = shared
            .anonymous_for(peer)
            .map(|who| Ctx::new(&shared, who, peer));
        Self {
            shared,
            peer,
            ctx,
            exchange: Exchange::default(),
            pending: Pending::new(|finished| finished.answer.bytes(), UNSENT_BYTES_MAX),
            outbox: Outbox::default(),
            clock: Clock::new(),
            judging: false,
            closing: false,
        }
    }

    async fn run<R, W>(
        &mut self,
        frames: &mut Frames,
        reader: &mut R,
        writer: &mut W,
    ) -> Result<(), Closed>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let draining = self.shared.draining.clone();
        loop {
            while self.takes_more() {
                let Some((frame, room)) = frames.next(self.frame_limit())? else {
                    break;
                };
                self.hear(frame, room)?;
            }
            if self.closing && self.pending.is_empty() && self.outbox.is_empty() {
                return Ok(());
            }
            let reads = self.takes_more();
            // A client that leaves its answers unread keeps itself waiting.
            frames.ticks(reads || !self.has_room());
            let (late, deadline) = self.clock.due(Awaited {
                frame: frames.due(),
                sends: !self.outbox.is_empty(),
                answers: !self.pending.is_empty(),
                login: self.ctx.is_none(),
            });
            tokio::select! {
                biased;
                sent = self.outbox.send(writer), if !self.outbox.is_empty() => {
                    sent?;
                    self.clock.sent();
                }
                finished = self.pending.next(), if !self.pending.is_empty() && self.has_room() => {
                    if self.answered(finished) {
                        frames.move_to(self.room());
                    }
                }
                () = draining.cancelled(), if !self.closing => self.closing = true,
                more = frames.fill(reader), if reads => {
                    self.clock.received();
                    if !more? {
                        // What was sent before the end is still carried out: a producer that waits for no
                        // acknowledgement sends and goes.
                        self.closing = true;
                        self.clock.ended();
                    }
                }
                () = sleep_until(deadline) => {
                    if self.clock.muted.take().is_none() {
                        return Err(Closed::Late(late));
                    }
                }
            }
        }
    }

    fn has_room(&self) -> bool {
        self.outbox.bytes() < UNSENT_BYTES_MAX
    }

    fn takes_more(&self) -> bool {
        !self.closing
            && !self.judging
            && self.clock.muted.is_none()
            && self.pending.len() < UNANSWERED_MAX
            && self.outbox.bytes() + self.pending.done_bytes() < UNSENT_BYTES_MAX
    }

    fn frame_limit(&self) -> usize {
        if self.ctx.is_some() {
            FRAME_BYTES_MAX
        } else {
            FRAME_BYTES_BEFORE_AUTH
        }
    }

    /// Where its requests take room.
    fn room(&self) -> Room {
        match &self.ctx {
            Some(ctx) => self.shared.rooms.of(ctx.who.tenant()),
            None => self.shared.rooms.of_nobody(),
        }
    }

    /// Puts an answer where it is sent from. Whether the connection is somebody else's from here on.
    fn answered(&mut self, finished: Finished) -> bool {
        let Answer {
            parts,
            throttle,
            close,
            login,
        } = finished.answer;
        let took = finished.began.elapsed();
        self.shared
            .metrics
            .request_seconds
            .record(took.as_secs_f64());
        if self.outbox.is_empty() {
            self.clock.sent();
        }
        for part in parts {
            self.outbox.push(part);
        }
        let mut moves = false;
        if let Some(login) = login {
            self.judging = false;
            self.exchange = login.exchange;
            if let Some(who) = login.who {
                self.ctx = Some(Ctx::new(&self.shared, who, self.peer));
                moves = true;
            }
        }
        self.closing |= close;
        if !throttle.is_zero() {
            self.shared.metrics.throttled.increment(1);
            self.clock.muted = Some(Instant::now() + throttle);
        }
        moves
    }

    fn hear(&mut self, frame: Bytes, room: Taken) -> Result<(), Closed> {
        self.shared.metrics.requests.increment(1);
        let began = Instant::now();
        let length = frame.len();
        let malformed = |api: &'static str, why: &dyn std::fmt::Display| Closed::Malformed {
            api,
            why: why.to_string(),
        };
        if length < HEADER_BYTES_MIN {
            return Err(malformed("no kind", &"it is shorter than a header"));
        }
        let (header, body) = Header::read(frame).map_err(|why| malformed("some kind", &why))?;
        let api = Api::from_key(header.key).ok_or(Closed::Unserved(header.key))?;
        if length > CONTROL_FRAME_BYTES_MAX && api != Api::Produce {
            return Err(malformed(
                api.name(),
                &format!("{length} bytes are too many"),
            ));
        }
        let call = Call {
            head: Head {
                api,
                version: header.version,
                correlation: header.correlation,
                client_id: header.client_id,
            },
            body,
        };
        let weight = api.weight();
        let work = self.work(call)?;
        match work {
            Begun::Now(answer) => self.pending.push_done(Finished {
                answer,
                began,
                _room: room,
            }),
            Begun::Later(work) => {
                let work = async move {
                    Finished {
                        answer: work.await,
                        began,
                        _room: room,
                    }
                };
                self.pending.push(Box::pin(work), weight);
            }
        }
        Ok(())
    }

    fn work(&mut self, call: Call) -> Result<Begun, Closed> {
        let Head { api, version, .. } = call.head;
        let malformed = |why: api::Unreadable| Closed::Malformed {
            api: api.name(),
            why: why.to_string(),
        };
        if api == Api::ApiVersions {
            // In any version: that is how clients find out which ones there are.
            return api::api_versions::answer(&call)
                .map(Begun::Now)
                .map_err(malformed);
        }
        if !api.serves(version) {
            let (min, max) = api.versions();
            return Err(Closed::Version {
                api: api.name(),
                version,
                min,
                max,
            });
        }
        if api == Api::SaslHandshake {
            let exchange = std::mem::take(&mut self.exchange);
            let (answer, exchange) = sasl::handshake(&call, &exchange).map_err(malformed)?;
            self.exchange = exchange;
            return Ok(Begun::Now(answer));
        }
        if api == Api::SaslAuthenticate {
            let exchange = std::mem::take(&mut self.exchange);
            let before = self.ctx.as_ref().map(|ctx| Arc::clone(&ctx.who));
            let work = sasl::authenticate(&self.shared, self.peer, call, exchange, before)
                .map_err(malformed)?;
            self.judging = true;
            return Ok(Begun::Later(work));
        }
        let Some(ctx) = &self.ctx else {
            return Err(Closed::NotLoggedIn { api: api.name() });
        };
        if ctx.who.is_expired(now()) {
            return Err(Closed::Expired);
        }
        if !ctx.who.stands(&self.shared.names, now()) {
            return Err(Closed::Revoked);
        }
        api::begin(ctx, call).map(Begun::Later).map_err(malformed)
    }

    /// Logs why a connection was closed, where somebody would act on it, and counts it.
    fn note(&self, why: &Closed) {
        let peer = self.peer;
        let metrics = &self.shared.metrics;
        match why {
            Closed::Gone(_) | Closed::Late(_) => {
                tracing::debug!(%peer, %why, "a connection is closed")
            }
            Closed::TooLong(_) | Closed::Malformed { .. } => {
                metrics.malformed.increment(1);
                tracing::warn!(%peer, %why, "a connection is closed");
            }
            Closed::Version { .. } | Closed::Unserved(_) => {
                metrics.unserved.increment(1);
                tracing::warn!(%peer, %why, "a connection is closed");
            }
            Closed::NotLoggedIn { .. } => tracing::info!(%peer, %why, "a connection is closed"),
            Closed::Expired | Closed::Revoked => {
                metrics.sessions_expired.increment(1);
                tracing::info!(%peer, %why, "a connection is closed");
            }
        }
    }
}

enum Begun {
    Now(Answer),
    Later(Work<Answer>),
}
