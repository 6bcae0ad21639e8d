//! One stream as the broker's end of the wire sees it: who may say what, and in what order answers
//! leave. No I/O happens here and no token is judged; the server does both and tells the result.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::ack::{Ack, AckForm};
use crate::error::{Code, Failure};
use crate::extension::{ExtensionFrame, Extensions, Request};
use crate::flags::{Flags, Layout};
use crate::frame::{Accepts, Frame, FrameRefused, Incoming};
use crate::limits::{PAYLOAD_BYTES_MAX, UNAUTHENTICATED_BYTES_MAX};
use crate::message::{
    Auth, ExtensionRequest, Message, MessageRefused, PublishError, Speaker, Unknown, Unsupported,
};
use crate::negotiate::{Offer, Peer};
use crate::publish::Publish;

/// Whether a stream can be answered on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    /// Requests come and answers go.
    Both,
    /// The client only talks: it announces itself and publishes, and nothing is ever answered.
    OneWay,
}

/// One stream of a client.
#[derive(Debug)]
pub struct Session {
    ways: Ways,
    peer: Option<Peer>,
}

/// What a frame turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The first frame: judge the token, then call [`Session::open`] or refuse and end.
    Auth(Auth, Offer),
    /// A binary publish.
    Publish(Publish),
    /// Any other request.
    Request(Message),
    /// A request of an extension.
    Extension {
        /// Ties the answer to it.
        correlation: u64,
        /// The request.
        request: Request,
    },
    /// Nothing to carry out.
    Refused(Refusal),
}

/// A frame that is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The frame to answer with, if the stream is answered at all.
    pub answer: Option<Bytes>,
    /// Whether it answers an acknowledged publish, and so has a place among ordered answers.
    pub publish: bool,
    /// Whether the stream ends after the answer.
    pub ends: bool,
}

impl Session {
    /// A stream that nobody has said anything on.
    pub fn new(ways: Ways) -> Self {
        Self { ways, peer: None }
    }

    /// Which frames to take off the stream now.
    pub fn accepts(&self) -> Accepts {
        match &self.peer {
            None => Accepts {
                payload_bytes_max: UNAUTHENTICATED_BYTES_MAX,
                extensions: false,
            },
            Some(peer) => Accepts {
                payload_bytes_max: PAYLOAD_BYTES_MAX,
                extensions: !peer.extensions.is_empty(),
            },
        }
    }

    /// What may be said to the client; `None` until the token was found good.
    pub fn peer(&self) -> Option<&Peer> {
        self.peer.as_ref()
    }

    /// The token was good.
    pub fn open(&mut self, peer: Peer) {
        self.peer = Some(peer);
    }

    /// What to answer when the bytes of the stream are no frame. The stream ends.
    pub fn unreadable(&self, why: FrameRefused) -> Refusal {
        self.ending(Failure::new(Code::InvalidRequest, why.to_string()))
    }

    /// Sorts one frame.
    pub fn hear(&self, incoming: Incoming) -> Heard {
        match (incoming, &self.peer) {
            (Incoming::Published(frame), None) => self.hear_first(&frame),
            (Incoming::Published(frame), Some(peer)) => self.hear_next(frame, peer),
            (Incoming::Extension(frame), peer) => {
                let granted = peer
                    .as_ref()
                    .map_or(Extensions::NONE, |peer| peer.extensions);
                self.hear_extension(frame, granted)
            }
        }
    }

    fn hear_first(&self, frame: &Frame) -> Heard {
        // protocol: auth.1, auth.2
        if frame.flags != Flags::NONE {
            return Heard::Refused(self.stranger());
        }
        match Message::decode(&frame.payload) {
            Ok(Message::Auth(auth)) => {
                let offer = Offer::of(&auth);
                Heard::Auth(auth, offer)
            }
            Ok(_) => Heard::Refused(self.stranger()),
            Err(refused) => {
                Heard::Refused(self.ending(Failure::new(Code::InvalidRequest, refused.reason)))
            }
        }
    }

    fn hear_next(&self, frame: Frame, peer: &Peer) -> Heard {
        match frame.layout() {
            Ok(Layout::Publish) => self.hear_publish(frame, peer),
            Ok(Layout::Json) => self.hear_message(&frame.payload, peer),
            Ok(Layout::Ack | Layout::Events) => {
                let message = "a client sends neither answers nor events";
                Heard::Refused(self.ending(Failure::new(Code::InvalidRequest, message)))
            }
            Err(refused) => Heard::Refused(self.unreadable(refused.into())),
        }
    }

    fn hear_publish(&self, frame: Frame, peer: &Peer) -> Heard {
        match Publish::decode(frame.flags, frame.payload) {
            Ok(publish) => Heard::Publish(publish),
            Err(malformed) => {
                let failure = malformed.failure();
                // protocol: publish.4
                let Some(request_id) = malformed.request_id else {
                    return Heard::Refused(self.ending(failure));
                };
                let form = AckForm::of(frame.flags);
                let ack = Ack {
                    request_id,
                    outcome: Err(failure),
                    owner: None,
                };
                let mut answer = BytesMut::new();
                peer.ack_into(ack, form, &mut answer);
                Heard::Refused(self.refusal(answer.freeze(), true, false))
            }
        }
    }

    fn hear_message(&self, payload: &[u8], peer: &Peer) -> Heard {
        let message = match Message::decode(payload) {
            Ok(message) => message,
            Err(refused) => return Heard::Refused(self.malformed(refused, peer)),
        };
        // protocol: auth.3
        if let Message::Auth(_) = message {
            let failure = Failure::new(Code::InvalidRequest, "this stream is authenticated");
            return Heard::Refused(self.staying(&peer.error(failure)));
        }
        if let Message::Unknown(unknown) = message {
            let Unknown {
                request_type,
                request_id,
            } = unknown;
            let answer = Unsupported {
                request_type,
                extension: None,
                request_id,
            };
            return Heard::Refused(self.unsupported(peer, answer));
        }
        if let Message::Extension(request) = message {
            let ExtensionRequest {
                name, request_id, ..
            } = request;
            let request_type = "extension".to_owned();
            let answer = Unsupported {
                request_type,
                extension: Some(name),
                request_id,
            };
            return Heard::Refused(self.unsupported(peer, answer));
        }
        if self.ways == Ways::OneWay && !publishes(message.type_name()) {
            let words = "on a stream that goes one way there is nothing to do but to publish";
            return Heard::Refused(self.ending(Failure::new(Code::InvalidRequest, words)));
        }
        if message.speaker() != Some(Speaker::Client) {
            let words = format!("a client does not send `{}`", message.type_name());
            return Heard::Refused(self.ending(Failure::new(Code::InvalidRequest, words)));
        }
        Heard::Request(message)
    }

    fn hear_extension(&self, frame: ExtensionFrame, granted: Extensions) -> Heard {
        let correlation = frame.correlation;
        match frame.request(granted) {
            Ok(request) => Heard::Extension {
                correlation,
                request,
            },
            Err(refused) => Heard::Refused(self.refusal(refused.encode(correlation), false, false)),
        }
    }

    /// A request of a known type whose fields are wrong is refused by name and the stream goes on.
    /// Where there is no name to refuse it by, nobody could tell what the answer is for.
    fn malformed(&self, refused: MessageRefused, peer: &Peer) -> Refusal {
        let publishes = refused.request_type.as_deref().is_some_and(publishes);
        let failure = Failure::new(Code::InvalidRequest, refused.reason);
        match (publishes, refused.request_id) {
            (true, Some(request_id)) => {
                let error = PublishError::new(request_id, peer.failure(failure));
                self.refusal(Message::from(error).encode(), true, false)
            }
            (false, _) if refused.request_type.is_some() => self.staying(&peer.error(failure)),
            (true, None) | (false, _) => self.ending(failure),
        }
    }

    fn unsupported(&self, peer: &Peer, answer: Unsupported) -> Refusal {
        let request_type = answer.request_type.clone();
        match peer.unsupported(answer) {
            Some(answer) => self.staying(&answer),
            None => self.ending(Failure::new(
                Code::InvalidRequest,
                format!("this broker does not know `{request_type}`"),
            )),
        }
    }

    fn stranger(&self) -> Refusal {
        let message = "the first frame of a stream is `auth`";
        self.ending(Failure::new(Code::Unauthenticated, message))
    }

    fn staying(&self, answer: &Message) -> Refusal {
        self.refusal(answer.encode(), false, false)
    }

    /// Before `auth` nobody has said that he reads no codes, and a reader passes over what he does
    /// not know; so a refusal that early has its code.
    fn ending(&self, failure: Failure) -> Refusal {
        let answer = match &self.peer {
            Some(peer) => peer.error(failure),
            None => Message::Error(failure),
        };
        self.refusal(answer.encode(), false, true)
    }

    fn refusal(&self, answer: Bytes, publish: bool, ends: bool) -> Refusal {
        match self.ways {
            Ways::Both => Refusal {
                answer: Some(answer),
                publish,
                ends,
            },
            Ways::OneWay => Refusal {
                answer: None,
                publish,
                ends: true,
            },
        }
    }
}

/// Whether a request appends payloads, or says something about the appends that follow.
fn publishes(request_type: &str) -> bool {
    matches!(
        request_type,
        "publish" | "publish_batch" | "publish_idempotent" | "publish_if" | "publish_width"
    )
}

/// A place among the answers of a stream. Filled once.
#[derive(Debug, PartialEq, Eq)]
pub struct Slot(u64);

impl Slot {
    fn number(self) -> u64 {
        self.0
    }
}

/// The answers that acknowledged publishes of one stream are waiting for.
///
/// With a window granted, answers leave in the order of their requests, and the stream is not read
/// on while the window is full. Without one they leave as they come.
#[derive(Debug)]
pub struct Window<T> {
    size: Option<usize>,
    /// Number of the oldest request not yet answered.
    oldest: u64,
    /// Answers that wait for older ones; `None` where even the answer is missing.
    waiting: VecDeque<Option<T>>,
    /// How many requests are unanswered when answers are not ordered.
    open: usize,
}

impl<T> Window<T> {
    /// The window a peer was granted.
    pub fn new(peer: &Peer) -> Self {
        let size = peer.publish_window.map(|size| size as usize);
        Self {
            size,
            oldest: 0,
            waiting: VecDeque::new(),
            open: 0,
        }
    }

    /// Whether the stream is not to be read on until an answer has left.
    pub fn is_full(&self) -> bool {
        // protocol: publish.18
        self.size.is_some_and(|size| self.waiting.len() >= size)
    }

    /// How many requests wait for an answer, or for older answers.
    pub fn len(&self) -> usize {
        match self.size {
            Some(_) => self.waiting.len(),
            None => self.open,
        }
    }

    /// Whether everything is answered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the place of a request, in the order in which requests arrive. A client that sends
    /// more than it was granted is served all the same: not reading on is what holds it back.
    pub fn take(&mut self) -> Slot {
        if self.size.is_none() {
            self.open += 1;
            return Slot(0);
        }
        self.waiting.push_back(None);
        Slot(self.oldest + self.waiting.len() as u64 - 1)
    }

    /// Gives an answer its place, and appends to `ready` whatever may leave now.
    pub fn fill(&mut self, slot: Slot, answer: T, ready: &mut Vec<T>) {
        // protocol: publish.19
        if self.size.is_none() {
            self.open = self.open.saturating_sub(1);
            ready.push(answer);
            return;
        }
        let index = slot.number().checked_sub(self.oldest);
        let index = index.and_then(|index| usize::try_from(index).ok());
        if let Some(place) = index.and_then(|index| self.waiting.get_mut(index)) {
            *place = Some(answer);
        }
        // protocol: publish.17
        while let Some(Some(_)) = self.waiting.front() {
            ready.extend(self.waiting.pop_front().flatten());
            self.oldest += 1;
        }
    }
}
