//! What carries calls of the extensions `requests` and `raw`: many unanswered, answered in any order.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use felix_wire::extension::requests::{Ask, Call, Reply};
use felix_wire::extension::{Answer, Extensions, Refused};
use felix_wire::frame::Incoming;
use felix_wire::message::Message;
use felix_wire::publish::PublishTooLong;
use quinn::SendStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::frames::Frames;
use crate::limits::{CALL_BYTES, CALLS_UNANSWERED};
use crate::near::NearCall;
use crate::publish::{Outbox, TokenUsed};
use crate::session::{NotAsked, Opened, ran_out};

/// A way for calls. Clones share it.
#[derive(Clone, Debug)]
pub(crate) enum Line {
    /// A stream; it ends with its connection.
    Stream(Arc<Shared>),
    /// Into a broker of this process.
    Near(Arc<NearLine>),
}

/// The way into a broker of this process.
#[derive(Debug)]
pub(crate) struct NearLine {
    calls: mpsc::Sender<NearCall>,
    /// The token ran out.
    over: AtomicBool,
    key: TokenUsed,
}

#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// There is something to write, or the stream is lost.
    wake: Notify,
    /// Calls that may be unanswered, and the bytes of their frames.
    window: Arc<Semaphore>,
    room: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct State {
    outbox: Outbox,
    pending: HashMap<u64, Pending>,
    correlation: u64,
    lost: Option<String>,
}

/// A call that is not answered yet. Its room is free as soon as it is, whether or not anybody has looked at the answer.
#[derive(Debug)]
struct Pending {
    answer: oneshot::Sender<Result<Reply, Refused>>,
    _window: OwnedSemaphorePermit,
    _room: OwnedSemaphorePermit,
}

/// A call on its way. Forgotten when it is dropped.
#[derive(Debug)]
pub(crate) struct Sent {
    over: Over,
    answered: oneshot::Receiver<Result<Reply, Refused>>,
}

#[derive(Debug)]
enum Over {
    Stream {
        shared: Arc<Shared>,
        correlation: u64,
    },
    Near(Arc<NearLine>),
}

impl Sent {
    /// Waits for the answer.
    pub(crate) async fn answer(mut self) -> Result<Result<Reply, Refused>, NotAsked> {
        let answered = (&mut self.answered).await;
        match (answered, &self.over) {
            (Ok(answer), Over::Near(line)) => {
                line.look(&answer);
                Ok(answer)
            }
            (Ok(answer), Over::Stream { .. }) => Ok(answer),
            (Err(_), over) => Err(NotAsked::Lost {
                sent: true,
                why: match over {
                    Over::Stream { shared, .. } => shared.lock().lost.clone().unwrap_or_default(),
                    Over::Near(_) => "the broker ended the line".to_owned(),
                },
            }),
        }
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if let Over::Stream {
            shared,
            correlation,
        } = &self.over
        {
            shared.lock().pending.remove(correlation);
        }
    }
}

impl NearLine {
    async fn send(self: &Arc<Self>, call: &Call) -> Result<Sent, NotAsked> {
        let (answer, answered) = oneshot::channel();
        let sent = self.calls.send((call.clone(), answer)).await;
        sent.map_err(|closed| NotAsked::Lost {
            sent: false,
            why: closed.to_string(),
        })?;
        Ok(Sent {
            over: Over::Near(Arc::clone(self)),
            answered,
        })
    }

    fn look(&self, answer: &Result<Reply, Refused>) {
        if let Err(refused) = answer
            && ran_out(&refused.failure)
            && !self.key.source.is_fixed()
        {
            self.key.source.invalidate(&self.key.token);
            self.over.store(true, Ordering::Relaxed);
        }
    }
}

impl Line {
    /// Starts the two tasks of an opened stream.
    pub(crate) fn start(opened: Opened, key: TokenUsed) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            wake: Notify::new(),
            window: Arc::new(Semaphore::new(CALLS_UNANSWERED)),
            room: Arc::new(Semaphore::new(CALL_BYTES as usize)),
        });
        tokio::spawn(write(Arc::clone(&shared), opened.send));
        let granted = opened.granted.extensions;
        tokio::spawn(read(Arc::clone(&shared), opened.frames, granted, key));
        Self::Stream(shared)
    }

    /// A way into a broker of this process.
    pub(crate) fn near(calls: mpsc::Sender<NearCall>, key: TokenUsed) -> Self {
        Self::Near(Arc::new(NearLine {
            calls,
            over: AtomicBool::new(false),
            key,
        }))
    }

    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Self::Stream(shared) => shared.lock().lost.is_some(),
            Self::Near(line) => line.calls.is_closed() || line.over.load(Ordering::Relaxed),
        }
    }

    /// Ends the stream without waiting for answers.
    pub(crate) fn end(&self) {
        match self {
            Self::Stream(shared) => shared.lose("the client was closed".to_owned()),
            // Its calls go with the client that made them.
            Self::Near(line) => line.over.store(true, Ordering::Relaxed),
        }
    }

    /// Sends a call and waits for its answer, and before that for room. Cancel-safe: the call may be carried out
    /// all the same.
    pub(crate) async fn call(&self, call: &Call) -> Result<Result<Reply, Refused>, NotAsked> {
        self.send(call).await?.answer().await
    }

    /// Sends a call as soon as there is room, behind those that were sent before.
    pub(crate) async fn send(&self, call: &Call) -> Result<Sent, NotAsked> {
        match self {
            Self::Stream(shared) => Shared::send(shared, call).await,
            Self::Near(line) => line.send(call).await,
        }
    }
}

impl Shared {
    async fn send(shared: &Arc<Self>, call: &Call) -> Result<Sent, NotAsked> {
        let unsent = |why: String| NotAsked::Lost { sent: false, why };
        let (mut frame, behind) = encode(call).map_err(|error| NotAsked::Protocol {
            what: error.to_string(),
        })?;
        let bytes = u32::try_from(frame.len() + behind.len()).unwrap_or(CALL_BYTES);
        let window = Arc::clone(&shared.window).acquire_owned().await;
        let window = window.map_err(|closed| unsent(closed.to_string()))?;
        let room = Arc::clone(&shared.room);
        let room = room.acquire_many_owned(bytes.min(CALL_BYTES)).await;
        let room = room.map_err(|closed| unsent(closed.to_string()))?;
        let (answer, answered) = oneshot::channel();
        let correlation = {
            let mut state = shared.lock();
            if let Some(why) = &state.lost {
                return Err(unsent(why.clone()));
            }
            let correlation = state.correlation;
            state.correlation = correlation.wrapping_add(1);
            if let Some(place) = frame.get_mut(8..16) {
                place.copy_from_slice(&correlation.to_be_bytes());
            }
            state.outbox.put_shared(&frame.freeze());
            state.outbox.put_shared(&behind);
            let pending = Pending {
                answer,
                _window: window,
                _room: room,
            };
            state.pending.insert(correlation, pending);
            correlation
        };
        shared.wake.notify_one();
        Ok(Sent {
            over: Over::Stream {
                shared: Arc::clone(shared),
                correlation,
            },
            answered,
        })
    }
}

/// A call as a frame: its beginning, and what is sent behind that from where it is.
fn encode(call: &Call) -> Result<(BytesMut, Bytes), PublishTooLong> {
    if let Ask::RawAppend(append) = &call.ask {
        let head = append.head(&call.names, 0)?;
        return Ok((head, append.batch.clone()));
    }
    let mut frame = BytesMut::new();
    call.encode_into(0, &mut frame)?;
    Ok((frame, Bytes::new()))
}

impl Shared {
    fn lose(&self, why: String) {
        let mut state = self.lock();
        tracing::debug!(%why, "call stream ended");
        state.lost.get_or_insert(why);
        // Whoever waits sees its sender dropped.
        state.pending.clear();
        drop(state);
        self.wake.notify_one();
    }

    /// The token of the stream ran out: calls go elsewhere from here on, and those sent behind the one that was refused
    /// are as well as refused.
    fn ran_out(&self, correlation: u64, refused: &Refused) {
        let behind: Vec<_> = {
            let mut state = self.lock();
            state.lost.get_or_insert_with(|| refused.to_string());
            let behind = state.pending.extract_if(|&sent, _| sent > correlation);
            behind.map(|(_, waiting)| waiting).collect()
        };
        for waiting in behind {
            let _ = waiting.answer.send(Err(refused.clone()));
        }
        self.wake.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn write(shared: Arc<Shared>, mut send: SendStream) {
    loop {
        shared.wake.notified().await;
        loop {
            let mut outbox = {
                let mut state = shared.lock();
                if state.lost.is_some() {
                    return;
                }
                std::mem::take(&mut state.outbox)
            };
            if outbox.is_empty() {
                break;
            }
            if let Err(error) = send.write_all_chunks(outbox.chunks()).await {
                // A broker that refuses to go on says why, and the other task reads it.
                if !matches!(error, quinn::WriteError::Stopped(_)) {
                    shared.lose(error.to_string());
                }
                return;
            }
        }
    }
}

async fn read(shared: Arc<Shared>, mut frames: Frames, granted: Extensions, key: TokenUsed) {
    loop {
        let (correlation, outcome) = match frames.frame().await {
            Ok(Some(frame)) => match answer_in(frame, granted) {
                Ok(answer) => answer,
                Err(why) => return shared.lose(why),
            },
            Ok(None) => return shared.lose("the broker ended the stream".to_owned()),
            Err(error) => return shared.lose(error.to_string()),
        };
        if let Err(refused) = &outcome
            && ran_out(&refused.failure)
            && !key.source.is_fixed()
        {
            key.source.invalidate(&key.token);
            shared.ran_out(correlation, refused);
        }
        // An answer nobody waits for any more is to a call that was given up.
        let waiting = shared.lock().pending.remove(&correlation);
        if let Some(waiting) = waiting {
            let _ = waiting.answer.send(outcome);
        }
    }
}

/// The answer in a frame, and what it answers. The error says why the stream cannot go on.
fn answer_in(
    frame: Incoming,
    granted: Extensions,
) -> Result<(u64, Result<Reply, Refused>), String> {
    let frame = match frame {
        Incoming::Extension(frame) => frame,
        Incoming::Published(frame) => {
            return Err(match Message::decode(&frame.payload) {
                Ok(Message::Error(failure)) => failure.to_string(),
                _ => "a frame that is no answer came on a call stream".to_owned(),
            });
        }
    };
    let correlation = frame.correlation;
    match frame.answer(granted) {
        Ok(Answer::Reply(reply)) => Ok((correlation, Ok(reply))),
        Ok(Answer::Refused(refused)) => Ok((correlation, Err(refused))),
        Ok(
            Answer::Published(_) | Answer::Deliver(_) | Answer::Expiring(_) | Answer::Renewed(_),
        ) => Err("a frame of another extension came on a call stream".to_owned()),
        Err(refused) => Err(refused.to_string()),
    }
}
