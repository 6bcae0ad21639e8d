//! A session's loop: hears the browser, lets what is under way move, sends what comes of it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::extract::ws::{Message as Frame, Utf8Bytes, WebSocket};
use futures_util::SinkExt as _;
use tokio::sync::watch;
use tokio::task::unconstrained;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::beat::{Beat, Due, Taking};
use super::join::{Asks, Joined};
use super::live::Live;
use super::{Goodbye, failed};
use crate::app::App;
use crate::identity::Ended;
use crate::limits::{
    GOODBYE_TIMEOUT, LAST_WRITES_TIMEOUT, RECONNECT_AFTER, RECONNECT_SPREAD, RIGHTS_INTERVAL,
    TICK_INTERVAL,
};
use crate::listen::Seat;
use crate::session::answer::Answer;
use crate::session::fault::{Code, Fault};
use crate::session::features::Feature;
use crate::session::message::Message;
use crate::session::{Shape, Subscribe};
use crate::upstream::calls::read_fault;
use crate::upstream::item::Dress;
use crate::upstream::reading::Step;

/// Serves a browser that has joined until one side leaves.
pub(super) async fn serve(
    app: &App,
    joined: Joined,
    seat: &Arc<Seat>,
    socket: &mut WebSocket,
) -> Goodbye {
    let at = (app.config.tenant.as_str(), joined.namespace.as_str());
    // They could be built when it joined.
    let Ok(asks) = Asks::of(&app.scope, at, &joined.value) else {
        return Goodbye::Gone;
    };
    app.metrics.sessions.increment(1.0);
    let mut talk = Talk::new(Live::new(app.clone(), joined, asks), Arc::clone(seat));
    let goodbye = talk.run(socket).await.err().unwrap_or(Goodbye::Gone);
    app.metrics.sessions.decrement(1.0);
    talk.live.places = (None, None, None);
    if !talk.live.session.writes.is_empty() {
        app.sessions.spawn(talk.live.finish(LAST_WRITES_TIMEOUT));
    }
    goodbye
}

/// A session and its socket's state.
struct Talk {
    live: Live,
    beat: Beat,
    seat: Arc<Seat>,
    /// Bytes that had come when it was looked last.
    read: u64,
    /// Tells why the session must end.
    ended: Why,
    /// Events on their way out, all of one stream. Nothing is read for the browser while there are some.
    outbox: VecDeque<Frame>,
    /// Their stream.
    outbox_of: usize,
    /// The stream and arrival of the oldest of them.
    oldest: Option<(usize, Instant)>,
    /// When a throttled link is free again.
    free_at: Duration,
    judged: Duration,
}

type Going = Result<(), Goodbye>;

type Why = watch::Receiver<Option<Ended>>;

/// How a send went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    AtOnce,
    /// The browser had to take something first.
    Late,
}

/// What happened.
enum Happened {
    Draining,
    Ended(String),
    Heard(Option<Result<Frame, axum::Error>>),
    Text(Option<String>),
    Watched(Utf8Bytes),
    Step(Subscribe, Step),
    LinkFree,
    Tick,
}

impl Talk {
    fn new(live: Live, seat: Arc<Seat>) -> Self {
        let now = live.app.uptime();
        let config = &live.app.config;
        Self {
            beat: Beat::new(config.ping_interval_s, config.ping_timeout_s, now),
            read: seat.read(),
            seat,
            ended: live.granted.ended(),
            outbox: VecDeque::new(),
            outbox_of: 0,
            oldest: None,
            free_at: now,
            judged: now,
            live,
        }
    }

    async fn run(&mut self, socket: &mut WebSocket) -> Going {
        let mut ticks = interval(TICK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let draining = self.live.app.draining.clone();
        loop {
            let wait = self.free_at.saturating_sub(self.live.app.uptime());
            let (listens, sends) = (!self.live.session.is_full(), !self.outbox.is_empty());
            let (live, ended) = (&mut self.live, &mut self.ended);
            let happened = tokio::select! {
                () = draining.cancelled() => Happened::Draining,
                why = over(ended) => Happened::Ended(why),
                frame = socket.recv(), if listens => Happened::Heard(frame),
                happened = poll_fn(|cx| poll_live(live, cx, !sends)) => happened,
                () = sleep(wait), if sends => Happened::LinkFree,
                _ = ticks.tick() => Happened::Tick,
            };
            self.handle(happened, socket).await?;
        }
    }

    async fn handle(&mut self, happened: Happened, socket: &mut WebSocket) -> Going {
        match happened {
            Happened::Draining => self.drain(socket).await,
            Happened::Ended(why) => Err(Goodbye::SignedOut(why)),
            Happened::Heard(frame) => self.hear(frame, socket).await,
            Happened::Text(Some(text)) => self.send(socket, Frame::Text(text.into())).await,
            Happened::Text(None) => Ok(()),
            Happened::Watched(text) => self.send(socket, Frame::Text(text)).await,
            Happened::Step(subscribe, step) => self.step(subscribe, step, socket).await,
            Happened::LinkFree => self.send_events(socket).await,
            Happened::Tick => self.tick(socket).await,
        }
    }

    async fn hear(
        &mut self,
        frame: Option<Result<Frame, axum::Error>>,
        socket: &mut WebSocket,
    ) -> Going {
        let now = self.live.app.uptime();
        self.beat.heard(now);
        let message = match frame {
            Some(Ok(Frame::Text(text))) => Message::read(text.as_str()),
            Some(Ok(Frame::Binary(frame))) => Message::read_binary(frame),
            Some(Ok(Frame::Pong(payload))) => {
                if let Some(took) = self.beat.answered(&payload, now) {
                    self.live.app.metrics.browser_rtt(took);
                }
                return Ok(());
            }
            Some(Ok(Frame::Ping(_))) => return Ok(()),
            Some(Ok(Frame::Close(_))) | None => return Err(Goodbye::Gone),
            Some(Err(error)) => return Err(failed(error)),
        };
        for text in self.live.hear(message) {
            self.send(socket, Frame::Text(text.into())).await?;
        }
        Ok(())
    }

    async fn step(&mut self, subscribe: Subscribe, step: Step, socket: &mut WebSocket) -> Going {
        let fault = match step {
            Step::Events(events) => {
                let alias = self.live.stream_alias(subscribe.stream).to_owned();
                let dress = Dress {
                    shape: self.live.session.shape(),
                    alias: &alias,
                    slot: subscribe.slot.as_deref(),
                    sub: subscribe.sub,
                };
                self.outbox_of = subscribe.stream;
                self.oldest = events
                    .first()
                    .map(|event| (subscribe.stream, event.arrived));
                self.outbox
                    .extend(events.iter().map(|event| event.message(dress)));
                // A throttled link is waited for in the loop.
                return match self.live.throttle {
                    Some(_) => Ok(()),
                    None => self.send_events(socket).await,
                };
            }
            Step::Stands { start, live } => {
                let binary = self.live.session.shape() != Shape::Text;
                let subscribed = Answer::Subscribed {
                    stream: self.live.stream_alias(subscribe.stream).to_owned(),
                    slot: subscribe.slot,
                    shard: subscribe.shard,
                    sub: binary.then_some(subscribe.sub),
                    start_offset: start,
                    live_offset: live,
                };
                let text = subscribed.to_text();
                return self.send(socket, Frame::Text(text.into())).await;
            }
            Step::Refused(failed) => {
                let past_end = self.live.session.features.has(Feature::PastEnd);
                read_fault(&failed, Code::SubscribeFailed, past_end)
            }
            Step::Trimmed { oldest } => {
                let message = "records were deleted before they could be read";
                let mut fault = Fault::new(Code::Trimmed, message);
                fault.oldest = Some(oldest);
                fault
            }
            Step::Ended { why } => Fault::new(Code::SubscriptionEnded, why),
        };
        let text = self.live.about(fault, &subscribe).to_text();
        self.send(socket, Frame::Text(text.into())).await
    }

    /// Sends events: all that wait, what a throttled link has room for, or up to one that had to wait. Then whatever else
    /// is under way has its turn, so that a slow browser is heard between its events.
    async fn send_events(&mut self, socket: &mut WebSocket) -> Going {
        let app = self.live.app.clone();
        let (mut count, mut bytes) = (0u64, 0u64);
        while let Some(frame) = self.outbox.pop_front() {
            let size = length(&frame);
            count += 1;
            bytes += size;
            let sent = self.push(socket.feed(frame)).await?;
            if let Some(bits_per_second) = self.live.throttle {
                let seconds = (size * 8) as f64 / bits_per_second;
                let busy = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
                self.free_at = app.uptime().max(self.free_at).saturating_add(busy);
                break;
            }
            if sent == Sent::Late {
                break;
            }
        }
        self.push(socket.flush()).await?;
        app.metrics.events.increment(count);
        app.metrics.event_bytes.increment(bytes);
        if let Some((stream, arrived)) = self.oldest.take() {
            app.metrics
                .event_relay(self.live.stream_alias(stream), arrived.elapsed());
        }
        Ok(())
    }

    async fn send(&mut self, socket: &mut WebSocket, frame: Frame) -> Going {
        self.push(socket.send(frame)).await.map(drop)
    }

    /// Lets a send go on for as long as the browser takes some of it.
    async fn push(
        &mut self,
        sending: impl Future<Output = Result<(), axum::Error>> + Send,
    ) -> Result<Sent, Goodbye> {
        // A turn that is given up to other tasks is no wait for the browser.
        let mut sending = pin!(unconstrained(sending));
        let polled = poll_fn(|cx| Poll::Ready(sending.as_mut().poll(cx))).await;
        if let Poll::Ready(sent) = polled {
            return sent.map(|()| Sent::AtOnce).map_err(|_| Goodbye::Gone);
        }
        // In a place of its own: few browsers ever need it.
        Box::pin(self.wait(sending)).await.map(|()| Sent::Late)
    }

    /// Waits for a send that found no room. Neither a gateway that stops nor the end of a sign-in waits for it.
    async fn wait(
        &mut self,
        mut sending: Pin<&mut (impl Future<Output = Result<(), axum::Error>> + Send)>,
    ) -> Going {
        let app = self.live.app.clone();
        let patience = self.beat.patience();
        let mut taking = Taking::new(patience, self.seat.written(), app.uptime());
        let mut ticks = interval(TICK_INTERVAL);
        let mut stopped = pin!(async {
            app.draining.cancelled().await;
            sleep(GOODBYE_TIMEOUT).await;
        });
        loop {
            let sent = tokio::select! {
                sent = &mut sending => Some(sent),
                why = over(&mut self.ended) => return Err(Goodbye::SignedOut(why)),
                () = &mut stopped => return Err(Goodbye::GoingAway),
                _ = ticks.tick() => None,
            };
            let (written, now) = (self.seat.written(), app.uptime());
            match sent {
                Some(sent) => {
                    if taking.has_moved(written, now) {
                        self.beat.heard(now);
                    }
                    return sent.map_err(|_| Goodbye::Gone);
                }
                None if taking.is_stuck(written, now) => return Err(Goodbye::DeadPeer),
                None => {}
            }
        }
    }

    async fn tick(&mut self, socket: &mut WebSocket) -> Going {
        let now = self.live.app.uptime();
        let read = self.seat.read();
        let is_talking = std::mem::replace(&mut self.read, read) != read;
        if is_talking || self.live.session.is_full() {
            // A large message may be on its way, or it is this side that does not listen.
            self.beat.heard(now);
        }
        if now.saturating_sub(self.judged) >= RIGHTS_INTERVAL {
            self.judged = now;
            let ended = self.live.judge();
            if self.live.session.rights.subscribe.get(self.outbox_of) != Some(&true) {
                self.outbox.clear();
            }
            for text in ended {
                self.send(socket, Frame::Text(text.into())).await?;
            }
        }
        match self.beat.due(now) {
            Due::Nothing => Ok(()),
            Due::Dead => Err(Goodbye::DeadPeer),
            Due::Ping(number) => {
                let payload = number.to_le_bytes().to_vec().into();
                self.send(socket, Frame::Ping(payload)).await
            }
        }
    }

    /// Says that the gateway stops, lets what was written be answered, and ends.
    async fn drain(&mut self, socket: &mut WebSocket) -> Going {
        if self.live.session.features.has(Feature::Drain) {
            let spread = u64::try_from(RECONNECT_SPREAD.as_millis()).unwrap_or(u64::MAX);
            // Without randomness they all come at once, which is only less kind.
            let spread = getrandom::u64().unwrap_or(0) % spread.max(1);
            let least = u64::try_from(RECONNECT_AFTER.as_millis()).unwrap_or(u64::MAX);
            let reconnect_after_ms = least.saturating_add(spread);
            let text = Answer::GoingAway { reconnect_after_ms }.to_text();
            self.send(socket, Frame::Text(text.into())).await?;
        }
        let answering = async {
            while !self.live.session.writes.is_empty() {
                let live = &mut self.live;
                if let Some(text) = poll_fn(|cx| live.poll_write(cx)).await {
                    let sent = socket.send(Frame::Text(text.into())).await;
                    sent.map_err(|_| Goodbye::Gone)?;
                }
            }
            Ok::<_, Goodbye>(())
        };
        let _ = timeout(crate::limits::DRAIN_WRITES_TIMEOUT, answering).await;
        Err(Goodbye::GoingAway)
    }
}

fn poll_live(live: &mut Live, cx: &mut Context<'_>, reads: bool) -> Poll<Happened> {
    if let Poll::Ready(text) = live.poll_write(cx) {
        return Poll::Ready(Happened::Text(text));
    }
    if let Poll::Ready(text) = live.poll_asked(cx) {
        return Poll::Ready(Happened::Text(Some(text)));
    }
    if let Poll::Ready(text) = live.poll_watch(cx) {
        return Poll::Ready(Happened::Watched(text));
    }
    if reads && let Poll::Ready((subscribe, step)) = live.poll_reading(cx) {
        return Poll::Ready(Happened::Step(subscribe, step));
    }
    Poll::Pending
}

/// Waits until a session must end, and says why.
async fn over(ended: &mut Why) -> String {
    match ended.wait_for(Option::is_some).await {
        Ok(why) => why.as_ref().map(ToString::to_string).unwrap_or_default(),
        Err(_) => "the session is over".to_owned(),
    }
}

fn length(frame: &Frame) -> u64 {
    let bytes = match frame {
        Frame::Text(text) => text.len(),
        Frame::Binary(bytes) | Frame::Ping(bytes) | Frame::Pong(bytes) => bytes.len(),
        Frame::Close(_) => 0,
    };
    bytes as u64
}
