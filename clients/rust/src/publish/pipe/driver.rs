//! The task of one publish stream: reads answers, writes what has gathered, and notices silence.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use felix_wire::extension::Kind;
use felix_wire::frame::Incoming;
use tokio::time::{Instant, Sleep, sleep_until};

use super::super::answer::{Lost, NotPublished, Outcome, Waiting, answer_in};
use super::{Pending, Shared, State, TokenUsed};
use crate::frames::{Frames, FramesEnded};
use crate::session::{is_about_token, ran_out};

/// Answers taken off the stream before others get a turn.
const ANSWERS_PER_TURN: usize = 256;

/// The task of one publish stream.
pub(super) struct Driver {
    shared: Arc<Shared>,
    frames: Frames,
    key: TokenUsed,
    tick: Duration,
    timer: Pin<Box<Sleep>>,
    /// Scratch space, kept for its memory.
    answers: Vec<(u64, Outcome)>,
    ended: Vec<(Waiting, Outcome)>,
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>, frames: Frames, key: TokenUsed, tick: Duration) -> Self {
        let timer = Box::pin(sleep_until(Instant::now()));
        Self {
            shared,
            frames,
            key,
            tick,
            timer,
            answers: Vec::new(),
            ended: Vec::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let lost = poll_fn(|cx| self.poll(cx)).await;
        tracing::debug!(why = %lost.why, "publish stream ended");
        if lost.refused.as_ref().is_some_and(is_about_token) {
            self.key.source.invalidate(&self.key.token);
        }
        self.shared.fail(&lost);
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Lost> {
        if let Poll::Ready(lost) = self.poll_answers(cx) {
            return Poll::Ready(lost);
        }
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        state.driver_due = false;
        if !state
            .driver
            .as_ref()
            .is_some_and(|driver| driver.will_wake(cx.waker()))
        {
            state.driver = Some(cx.waker().clone());
        }
        state.busy &= !state.outbox.is_empty();
        if state.busy {
            state.wake_driver();
        }
        match shared.poll_flush(&mut state, cx) {
            // Without room the transport wakes this task when there is some.
            Poll::Ready(Ok(())) | Poll::Pending => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Lost::because(true, error.to_string())),
        }
        self.poll_timer(&mut state, cx)
    }

    fn poll_answers(&mut self, cx: &mut Context<'_>) -> Poll<Lost> {
        let mut ended = None;
        while self.answers.len() < ANSWERS_PER_TURN {
            match self.frames.poll_frame(cx) {
                Poll::Pending => break,
                Poll::Ready(frame) if is_notice(&frame) => {}
                Poll::Ready(frame) => match answer_in(frame) {
                    // The publish and all behind it were not carried out: another stream, with another token, may
                    // have them.
                    Ok((_, Err(NotPublished::Refused(failure))))
                        if ran_out(&failure) && !self.key.source.is_fixed() =>
                    {
                        ended = Some(Lost {
                            sent: false,
                            why: failure.to_string().into(),
                            refused: Some(failure),
                        });
                        break;
                    }
                    Ok(answer) => self.answers.push(answer),
                    Err(lost) => {
                        ended = Some(lost);
                        break;
                    }
                },
            }
        }
        if self.answers.len() == ANSWERS_PER_TURN {
            cx.waker().wake_by_ref();
        }
        if let Some(unknown) = self.match_answers() {
            ended.get_or_insert_with(|| {
                let why =
                    format!("the broker answered request {unknown}, which is not outstanding");
                Lost::because(true, why)
            });
        }
        ended.map_or(Poll::Pending, Poll::Ready)
    }

    /// Tells those who wait; returns an id nobody waits for, if there was one.
    fn match_answers(&mut self) -> Option<u64> {
        if self.answers.is_empty() {
            return None;
        }
        let mut unknown = None;
        let (mut window, mut room) = (0, 0);
        {
            let mut state = self.shared.lock();
            for (id, outcome) in self.answers.drain(..) {
                match state.answer(id) {
                    Some((waiting, bytes)) => {
                        window += 1;
                        room += bytes as usize;
                        self.ended.push((waiting, outcome));
                    }
                    None => unknown = Some(id),
                }
            }
        }
        self.shared.window.add_permits(window);
        self.shared.room.add_permits(room);
        for (waiting, outcome) in self.ended.drain(..) {
            waiting.tell(outcome);
        }
        unknown
    }

    fn poll_timer(&mut self, state: &mut State, cx: &mut Context<'_>) -> Poll<Lost> {
        loop {
            if !state.ticking {
                if state.pending.is_empty() {
                    return Poll::Pending;
                }
                state.ticking = true;
                self.timer.as_mut().reset(Instant::now() + self.tick);
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            state.ticking = false;
            state.tick = state.tick.wrapping_add(1);
            let overdue = |oldest: &Pending| {
                state.tick.wrapping_sub(oldest.tick) > self.shared.deadline_ticks
            };
            if state.pending.front().is_some_and(overdue) {
                let why = "the oldest publish was not answered in time";
                return Poll::Ready(Lost::because(true, why));
            }
        }
    }
}

/// Whether a frame only says that a token runs out. The stream that keeps tokens hears it, too.
fn is_notice(frame: &Result<Option<Incoming>, FramesEnded>) -> bool {
    matches!(frame, Ok(Some(Incoming::Extension(frame))) if frame.kind == Kind::Expiring.number())
}
