//! One publish stream: many publishes in flight, answers matched to them.
//!
//! Whoever publishes encodes his frame under a short lock. When nothing is in flight he hands it to the transport
//! himself, so an idle stream costs no task switch. While answers are outstanding frames are collected, and the
//! stream's driver (one task, which also reads the answers) writes what has gathered in one piece each time it
//! runs: the busier the stream, the larger the writes, without any delay being configured.

mod driver;

use std::collections::VecDeque;
use std::future::Future as _;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use quinn::SendStream;
use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError};

use self::driver::Driver;
use super::answer::{Lost, NotPublished, Waiting};
use super::outbox::Outbox;
use crate::limits::COALESCE_BYTES;
use crate::session::{Granted, Opened};
use crate::token::TokenSource;

/// A publish stream that authenticated. Dropping the last handle leaves the driver running until the connection
/// is closed.
#[derive(Clone)]
pub(crate) struct Pipe {
    shared: Arc<Shared>,
    granted: Granted,
}

struct Shared {
    state: Mutex<State>,
    /// Publishes that may still be sent before an answer comes.
    window: Semaphore,
    window_size: u32,
    /// Bytes that may still be sent before an answer comes.
    room: Semaphore,
    room_size: u32,
    deadline_ticks: u32,
}

struct State {
    send: SendStream,
    outbox: Outbox,
    /// Room held by publishes without answer that wait in `outbox`; it is free once they are written.
    unanswered_room: u32,
    /// Publishes that wait for an answer, by consecutive ids from `first_id`.
    pending: VecDeque<Pending>,
    first_id: u64,
    /// No byte of this publish or a later one was handed to the transport.
    unsent_from: u64,
    /// Set while writes without answer follow each other, so that they gather.
    busy: bool,
    /// Counts while something is pending: a clock that costs a publish nothing.
    tick: u32,
    ticking: bool,
    driver: Option<Waker>,
    driver_due: bool,
    lost: Option<Lost>,
}

struct Pending {
    /// `None` once answered out of order.
    waiting: Option<Waiting>,
    room: u32,
    tick: u32,
}

/// The token a stream was opened with, and where the next one comes from should the broker refuse it later.
#[derive(Clone, Debug)]
pub(crate) struct TokenUsed {
    pub(crate) source: TokenSource,
    pub(crate) token: Arc<str>,
}

/// A place in the window and in the byte budget. Given back when dropped unused.
pub(crate) struct Reserved<'a> {
    window: Option<SemaphorePermit<'a>>,
    room: SemaphorePermit<'a>,
}

impl Pipe {
    /// Takes over a stream and starts its driver.
    pub(crate) fn start(opened: Opened, key: TokenUsed, room_size: u32, timeout: Duration) -> Self {
        let Opened {
            send,
            frames,
            granted,
        } = opened;
        let tick = (timeout / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
        let deadline_ticks = timeout.as_millis().div_ceil(tick.as_millis().max(1));
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                send,
                outbox: Outbox::default(),
                unanswered_room: 0,
                pending: VecDeque::new(),
                first_id: 1,
                unsent_from: 1,
                busy: false,
                tick: 0,
                ticking: false,
                driver: None,
                driver_due: false,
                lost: None,
            }),
            window: Semaphore::new(granted.publish_window as usize),
            window_size: granted.publish_window,
            room: Semaphore::new(room_size as usize),
            room_size,
            deadline_ticks: u32::try_from(deadline_ticks).unwrap_or(u32::MAX),
        });
        let driver = Driver::new(Arc::clone(&shared), frames, key, tick);
        tokio::spawn(driver.run());
        Self { shared, granted }
    }

    pub(crate) fn granted(&self) -> Granted {
        self.granted
    }

    /// Whether both are the same stream.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Whether the stream ended: a new one is needed.
    pub(crate) fn is_lost(&self) -> bool {
        self.shared.lock().lost.is_some()
    }

    /// Waits for a place in the window and for `bytes` of the budget, in the order of asking. Cancel-safe.
    pub(crate) async fn reserve(&self, bytes: usize) -> Result<Reserved<'_>, Lost> {
        let window = match self.shared.window.try_acquire() {
            Ok(permit) => permit,
            Err(TryAcquireError::NoPermits) => self
                .shared
                .window
                .acquire()
                .await
                .map_err(|_| self.shared.ended())?,
            Err(TryAcquireError::Closed) => return Err(self.shared.ended()),
        };
        let room = self.reserve_room(bytes).await?;
        Ok(Reserved {
            window: Some(window),
            room,
        })
    }

    /// As [`Self::reserve`], for a publish that is never answered.
    pub(crate) async fn reserve_unanswered(&self, bytes: usize) -> Result<Reserved<'_>, Lost> {
        Ok(Reserved {
            window: None,
            room: self.reserve_room(bytes).await?,
        })
    }

    async fn reserve_room(&self, bytes: usize) -> Result<SemaphorePermit<'_>, Lost> {
        let wanted = u32::try_from(bytes)
            .unwrap_or(u32::MAX)
            .min(self.shared.room_size);
        match self.shared.room.try_acquire_many(wanted) {
            Ok(permit) => Ok(permit),
            Err(TryAcquireError::NoPermits) => self
                .shared
                .room
                .acquire_many(wanted)
                .await
                .map_err(|_| self.shared.ended()),
            Err(TryAcquireError::Closed) => Err(self.shared.ended()),
        }
    }

    /// Sends a publish that will be answered. `encode` gets its request id.
    ///
    /// # Errors
    /// When the stream has ended. Nothing was sent, and `waiting` is told nothing.
    pub(crate) fn submit(
        &self,
        reserved: Reserved<'_>,
        waiting: Waiting,
        encode: impl FnOnce(u64, &mut Outbox),
    ) -> Result<(), Lost> {
        let mut state = self.shared.lock();
        if let Some(lost) = &state.lost {
            return Err(lost.clone());
        }
        let was_idle = state.pending.is_empty() && state.outbox.is_empty();
        let id = state.next_id();
        encode(id, &mut state.outbox);
        let room = u32::try_from(reserved.room.num_permits()).unwrap_or(u32::MAX);
        let tick = state.tick;
        state.pending.push_back(Pending {
            waiting: Some(waiting),
            room,
            tick,
        });
        if let Some(window) = reserved.window {
            window.forget();
        }
        reserved.room.forget();
        if was_idle || state.outbox.bytes() >= COALESCE_BYTES {
            self.shared.flush_inline(&mut state);
            if !state.ticking {
                state.wake_driver();
            }
        } else {
            state.wake_driver();
        }
        Ok(())
    }

    /// Sends a publish that is never answered.
    ///
    /// # Errors
    /// When the stream has ended. Nothing was sent.
    pub(crate) fn submit_unanswered(
        &self,
        reserved: Reserved<'_>,
        encode: impl FnOnce(&mut Outbox),
    ) -> Result<(), Lost> {
        let mut state = self.shared.lock();
        if let Some(lost) = &state.lost {
            return Err(lost.clone());
        }
        encode(&mut state.outbox);
        let room = u32::try_from(reserved.room.num_permits()).unwrap_or(u32::MAX);
        state.unanswered_room = state.unanswered_room.saturating_add(room);
        reserved.room.forget();
        if !state.busy || state.outbox.bytes() >= COALESCE_BYTES {
            state.busy = true;
            self.shared.flush_inline(&mut state);
        }
        state.wake_driver();
        Ok(())
    }

    /// Ends the stream without waiting for answers.
    pub(crate) fn end(&self) {
        // A stream that has ended already is as good.
        let _ = self.shared.lock().send.finish();
    }

    /// Waits until everything submitted so far is answered, or has reached the broker's machine if it has no
    /// answer, and ends the stream.
    pub(crate) async fn finish(&self) {
        let _window = self
            .shared
            .window
            .acquire_many(self.shared.window_size)
            .await;
        let _room = self.shared.room.acquire_many(self.shared.room_size).await;
        let arrived = {
            let mut state = self.shared.lock();
            // A stream that has ended already has nothing more to deliver.
            let _ = state.send.finish();
            state.send.stopped()
        };
        let _ = arrived.await;
    }
}

impl std::fmt::Debug for Pipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipe")
            .field("granted", &self.granted)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the stream ended, for somebody of whom nothing was sent.
    fn ended(&self) -> Lost {
        let unsent = |lost: &Lost| Lost {
            sent: false,
            ..lost.clone()
        };
        self.lock()
            .lost
            .as_ref()
            .map_or_else(|| Lost::because(false, "the stream ended"), unsent)
    }

    /// Hands over what can be handed over now. If the transport has no room, or the stream ended, the driver
    /// will see to it.
    fn flush_inline(&self, state: &mut State) {
        let mut cx = Context::from_waker(Waker::noop());
        if !matches!(self.poll_flush(state, &mut cx), Poll::Ready(Ok(()))) {
            state.wake_driver();
        }
    }

    fn poll_flush(
        &self,
        state: &mut State,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), quinn::WriteError>> {
        while !state.outbox.is_empty() {
            let written = pin!(state.send.write_chunks(state.outbox.chunks())).poll(cx);
            let Poll::Ready(written) = written else {
                return Poll::Pending;
            };
            let written = written?;
            state.outbox.took(written.chunks, written.bytes);
            state.unsent_from = state.next_id();
        }
        let room = std::mem::take(&mut state.unanswered_room);
        self.room.add_permits(room as usize);
        Poll::Ready(Ok(()))
    }

    /// Ends everything that is pending, and refuses what comes.
    fn fail(&self, lost: &Lost) {
        let (pending, first_id, unsent_from) = {
            let mut state = self.lock();
            state.lost = Some(Lost {
                sent: false,
                ..lost.clone()
            });
            state.driver = None;
            (
                std::mem::take(&mut state.pending),
                state.first_id,
                state.unsent_from,
            )
        };
        self.window.close();
        self.room.close();
        for (id, pending) in (first_id..).zip(pending) {
            if let Some(waiting) = pending.waiting {
                let lost = Lost {
                    sent: lost.sent && id < unsent_from,
                    ..lost.clone()
                };
                waiting.tell(Err(NotPublished::Lost(lost)));
            }
        }
    }
}

impl State {
    fn next_id(&self) -> u64 {
        self.first_id + self.pending.len() as u64
    }

    fn wake_driver(&mut self) {
        if !self.driver_due {
            self.driver_due = true;
            if let Some(driver) = &self.driver {
                driver.wake_by_ref();
            }
        }
    }

    /// Takes out who waits for this answer. Answers may come out of order when the broker did not promise
    /// otherwise.
    fn answer(&mut self, id: u64) -> Option<(Waiting, u32)> {
        let index = usize::try_from(id.checked_sub(self.first_id)?).ok()?;
        let pending = self.pending.get_mut(index)?;
        let answered = (pending.waiting.take()?, pending.room);
        while self
            .pending
            .front()
            .is_some_and(|pending| pending.waiting.is_none())
        {
            self.pending.pop_front();
            self.first_id += 1;
        }
        Some(answered)
    }
}
