//! The answers of one stream on their way out.
//!
//! A publish takes its place when it is read and fills it when it is done, from whatever thread finished it
//! (often a journal thread). What may leave is gathered and goes out in one write.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use felix_wire::error::Failure;
use felix_wire::negotiate::Peer;
use felix_wire::session::{Slot, Window};
use tokio::sync::Notify;

use crate::limits::CALLS_UNANSWERED_MAX;

/// The answers of one stream.
#[derive(Debug)]
pub(crate) struct Answers {
    state: Mutex<State>,
    ready: Notify,
}

#[derive(Debug)]
struct State {
    window: Window<Bytes>,
    ready: Vec<Bytes>,
    /// Replies to calls, one behind the other.
    replies: BytesMut,
    /// Calls whose replies were not taken yet. A client that does not read keeps them here, and is not read.
    calls: usize,
    /// How many replies there are in `replies` and `ready`.
    replied: usize,
    /// Bytes of replies in pieces that are in `ready`.
    unsent: usize,
    abandoned: bool,
    /// What calls are told that are dropped without an answer.
    ending: Option<Failure>,
}

/// A place among the answers. Dropped unfilled, it marks the stream as broken: everything behind it could never
/// leave.
#[derive(Debug)]
pub(crate) struct Place {
    answers: Arc<Answers>,
    slot: Option<Slot>,
}

/// A publish lost its answer; the stream must end, since later answers may not overtake it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a publish was dropped without an answer")]
pub(crate) struct Abandoned;

impl Answers {
    pub(crate) fn new(peer: &Peer) -> Arc<Self> {
        let state = State {
            window: Window::new(peer),
            ready: Vec::new(),
            replies: BytesMut::new(),
            calls: 0,
            replied: 0,
            unsent: 0,
            abandoned: false,
            ending: None,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            ready: Notify::new(),
        })
    }

    /// Takes the next place.
    pub(crate) fn reserve(self: &Arc<Self>) -> Place {
        let slot = self.lock().window.take();
        Place {
            answers: Arc::clone(self),
            slot: Some(slot),
        }
    }

    /// Sends an answer that belongs to no publish, in the order of these calls.
    pub(crate) fn push(&self, answer: Bytes) {
        self.lock().ready.push(answer);
        self.ready.notify_one();
    }

    /// From here on, calls that are dropped without an answer are told this.
    pub(crate) fn ends_with(&self, failure: Failure) {
        self.lock().ending = Some(failure);
    }

    /// What a call that is dropped is told instead of that its outcome is unknown.
    pub(crate) fn ending(&self) -> Option<Failure> {
        self.lock().ending.clone()
    }

    /// Counts a call that was read.
    pub(crate) fn call_begins(&self) {
        self.lock().calls += 1;
    }

    /// Writes the reply to a call.
    pub(crate) fn call_ends(&self, reply: impl FnOnce(&mut BytesMut)) {
        let mut state = self.lock();
        reply(&mut state.replies);
        state.replied += 1;
        let wake = state.replied == 1;
        drop(state);
        if wake {
            self.ready.notify_one();
        }
    }

    /// Writes the reply to a call in pieces that are not copied.
    pub(crate) fn call_ends_with(&self, head: Bytes, behind: Vec<Bytes>) {
        let mut state = self.lock();
        state.unsent += head.len() + behind.iter().map(Bytes::len).sum::<usize>();
        state.ready.push(head);
        state.ready.extend(behind);
        state.replied += 1;
        drop(state);
        self.ready.notify_one();
    }

    /// Counts a call of this process, whose answer went to whoever asked.
    pub(crate) fn call_ends_near(&self) {
        let mut state = self.lock();
        state.calls = state.calls.saturating_sub(1);
        drop(state);
        self.ready.notify_one();
    }

    /// Bytes of replies in pieces that were not taken yet.
    pub(crate) fn unsent(&self) -> usize {
        self.lock().unsent
    }

    /// Whether the stream has to wait until an answer has left.
    pub(crate) fn is_full(&self) -> bool {
        let state = self.lock();
        state.window.is_full() || state.calls >= CALLS_UNANSWERED_MAX
    }

    /// Whether every publish and every call is answered and every answer taken.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.window.is_empty() && state.calls == 0 && state.ready.is_empty()
    }

    /// Takes what may leave now.
    ///
    /// # Errors
    /// [`Abandoned`] once a place was dropped unfilled.
    pub(crate) fn take(&self, out: &mut Vec<Bytes>) -> Result<(), Abandoned> {
        let mut state = self.lock();
        state.unsent = 0;
        out.append(&mut state.ready);
        if !state.replies.is_empty() {
            out.push(state.replies.split().freeze());
        }
        state.calls = state
            .calls
            .saturating_sub(std::mem::take(&mut state.replied));
        if state.abandoned {
            Err(Abandoned)
        } else {
            Ok(())
        }
    }

    /// Waits until something may leave. Cancel-safe.
    pub(crate) async fn ready(&self) {
        self.ready.notified().await;
    }

    fn fill(&self, slot: Slot, answer: Bytes) {
        let mut state = self.lock();
        let State { window, ready, .. } = &mut *state;
        let before = ready.len();
        window.fill(slot, answer, ready);
        let wake = ready.len() > before;
        drop(state);
        if wake {
            self.ready.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Answers the publish with a whole frame.
    pub(crate) fn fill(mut self, answer: Bytes) {
        if let Some(slot) = self.slot.take() {
            self.answers.fill(slot, answer);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.slot.is_some() {
            self.answers.lock().abandoned = true;
            self.answers.ready.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use felix_wire::extension::Extensions;
    use felix_wire::flags::Flags;
    use felix_wire::negotiate::Features;

    use super::*;

    fn ordered() -> Arc<Answers> {
        Answers::new(&Peer {
            flags: Flags::ALL,
            features: Features::ALL,
            extensions: Extensions::NONE,
            publish_window: Some(3),
        })
    }

    fn taken(answers: &Answers) -> Vec<Bytes> {
        let mut out = Vec::new();
        answers.take(&mut out).unwrap();
        out
    }

    #[test]
    fn answers_leave_in_the_order_of_their_requests() {
        let answers = ordered();
        let (first, second, third) = (answers.reserve(), answers.reserve(), answers.reserve());
        assert!(answers.is_full());
        second.fill(Bytes::from_static(b"2"));
        assert!(taken(&answers).is_empty());
        first.fill(Bytes::from_static(b"1"));
        assert_eq!(taken(&answers), ["1", "2"]);
        third.fill(Bytes::from_static(b"3"));
        assert!(!answers.is_idle());
        assert_eq!(taken(&answers), ["3"]);
        assert!(answers.is_idle());
    }

    #[test]
    fn a_dropped_publish_breaks_the_stream_instead_of_being_overtaken() {
        let answers = ordered();
        drop(answers.reserve());
        assert_eq!(answers.take(&mut Vec::new()), Err(Abandoned));
    }

    #[test]
    fn calls_are_answered_in_any_order_and_in_one_piece() {
        let answers = ordered();
        answers.call_begins();
        answers.call_begins();
        assert!(!answers.is_idle());
        answers.call_ends(|replies| replies.extend_from_slice(b"second"));
        answers.call_ends(|replies| replies.extend_from_slice(b"first"));
        assert_eq!(taken(&answers), ["secondfirst"]);
        assert!(answers.is_idle());
    }

    #[test]
    fn a_stream_whose_replies_are_not_taken_is_not_read() {
        let answers = ordered();
        for _ in 0..CALLS_UNANSWERED_MAX {
            answers.call_begins();
        }
        answers.call_ends(|replies| replies.extend_from_slice(b"x"));
        assert!(answers.is_full());
        assert_eq!(taken(&answers), ["x"]);
        assert!(!answers.is_full());
    }

    #[tokio::test]
    async fn an_answer_wakes_the_writer() {
        let answers = ordered();
        let place = answers.reserve();
        let filler = tokio::spawn(async move { place.fill(Bytes::from_static(b"x")) });
        answers.ready().await;
        filler.await.unwrap();
        assert_eq!(taken(&answers), ["x"]);
    }
}
