//! Live views over server-sent events: what waits for a browser is bounded, what does not fit is counted, and silence is
//! broken so that a dead browser is noticed.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::caller::Onlooker;
use super::limits::{HEARTBEAT, TAIL_BATCH, TAIL_WAITING};
use super::refusal::Refusal;

/// What happens, on its way to the browser.
#[derive(Debug)]
pub(super) enum Told<T> {
    /// Something that is shown, with the place after it, if it has one.
    Item(T, Option<(u32, u64)>),
    /// Where a shard is, before anything came.
    At(u32, u64),
    /// This much is missing.
    Lost(u64),
    /// Nothing follows.
    End(Refusal),
}

/// Hands things to a browser and never waits for it.
#[derive(Debug)]
pub(super) struct Teller<T> {
    tell: mpsc::Sender<Told<T>>,
    lost: u64,
}

impl<T> Teller<T> {
    pub(super) fn new(tell: mpsc::Sender<Told<T>>) -> Self {
        Self { tell, lost: 0 }
    }

    /// Gives something to the browser, or counts it as lost while there is no room.
    pub(super) fn item(&mut self, item: T, at: Option<(u32, u64)>) {
        if self.lost > 0 && self.tell.try_send(Told::Lost(self.lost)).is_ok() {
            self.lost = 0;
        }
        if self.lost > 0 || self.tell.try_send(Told::Item(item, at)).is_err() {
            self.lost += 1;
        }
    }

    /// Something was lost before it came here.
    pub(super) fn lost(&mut self, count: u64) {
        self.lost += count;
    }

    /// Says something that must arrive; waits for room.
    pub(super) async fn must(&self, told: Told<T>) {
        // Nobody listens any more: then nobody misses it.
        let _ = self.tell.send(told).await;
    }
}

struct View<T> {
    name: &'static str,
    told: mpsc::Receiver<Told<T>>,
    /// What came at once and is not sent yet.
    waiting: VecDeque<Told<T>>,
    places: BTreeMap<u32, u64>,
    over: CancellationToken,
    draining: CancellationToken,
    ended: bool,
    work: JoinHandle<()>,
    _who: Onlooker,
}

#[derive(Serialize)]
struct Count {
    count: u64,
}

#[derive(Serialize)]
struct End<'a> {
    code: &'a str,
    message: &'a str,
}

/// A channel for one view.
pub(super) fn channel<T>() -> (mpsc::Sender<Told<T>>, mpsc::Receiver<Told<T>>) {
    mpsc::channel(TAIL_WAITING)
}

/// Answers with what `work` tells, under the name `name`, until the browser goes, the person signs out, or the gateway
/// drains. `work` ends with the answer.
pub(super) fn answer<T: Serialize + Send + 'static>(
    who: Onlooker,
    name: &'static str,
    told: mpsc::Receiver<Told<T>>,
    work: JoinHandle<()>,
) -> Response {
    let view = View {
        name,
        told,
        waiting: VecDeque::new(),
        places: BTreeMap::new(),
        over: who.person.over.clone(),
        draining: who.app.draining.clone(),
        ended: false,
        work,
        _who: who,
    };
    let events = stream::unfold(view, |mut view| async move {
        let event = view.next().await?;
        Some((Ok::<_, Infallible>(event), view))
    });
    let alive = KeepAlive::new().interval(HEARTBEAT).text("alive");
    let mut response = Sse::new(events).keep_alive(alive).into_response();
    // A proxy that keeps back what was sent makes a live view dead.
    let header = axum::http::HeaderName::from_static("x-accel-buffering");
    response
        .headers_mut()
        .insert(header, axum::http::HeaderValue::from_static("no"));
    response
}

impl<T: Serialize> View<T> {
    async fn next(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        if self.waiting.is_empty() {
            let mut came = Vec::new();
            tokio::select! {
                biased;
                () = self.draining.cancelled() => {}
                () = self.over.cancelled() => {
                    came.push(Told::End(Refusal::signed_out("the sign-in is over")));
                }
                _ = self.told.recv_many(&mut came, TAIL_BATCH) => {}
            }
            self.waiting.extend(came);
        }
        let told = self.waiting.pop_front();
        let event = match told? {
            Told::Item(item, at) => self.items(item, at),
            Told::At(shard, next) => {
                self.places.insert(shard, next);
                self.event("position", &self.places)
            }
            Told::Lost(count) => self.event("dropped", &Count { count }),
            Told::End(refusal) => {
                self.ended = true;
                let (code, message) = (refusal.code(), refusal.message());
                // What may come back is told by the end of the answer alone: the page asks again.
                if !refusal.is_never() {
                    return None;
                }
                self.event("end", &End { code, message })
            }
        };
        Some(event)
    }

    /// Puts what came at once into one event.
    fn items(&mut self, first: T, at: Option<(u32, u64)>) -> Event {
        let mut items = vec![first];
        self.places.extend(at);
        while let Some(told) = self.waiting.pop_front() {
            match told {
                Told::Item(item, at) => {
                    items.push(item);
                    self.places.extend(at);
                }
                other @ (Told::At(..) | Told::Lost(_) | Told::End(_)) => {
                    self.waiting.push_front(other);
                    break;
                }
            }
        }
        self.event(self.name, &items)
    }

    fn event(&self, name: &str, data: &impl Serialize) -> Event {
        let event = Event::default().event(name);
        let event = match self.places.is_empty() {
            true => event,
            false => event.id(write_places(&self.places)),
        };
        // The shapes here always have a JSON form.
        let text = serde_json::to_string(data).unwrap_or_default();
        event.data(text)
    }
}

impl<T> Drop for View<T> {
    fn drop(&mut self) {
        self.work.abort();
    }
}

/// Places as the id of an event: `0:58,1:13`.
fn write_places(places: &BTreeMap<u32, u64>) -> String {
    let written: Vec<String> = places
        .iter()
        .map(|(shard, next)| format!("{shard}:{next}"))
        .collect();
    written.join(",")
}

/// Reads what [`write_places`] wrote and a browser sent back.
pub(super) fn read_places(text: &str) -> BTreeMap<u32, u64> {
    let one = |part: &str| {
        let (shard, next) = part.split_once(':')?;
        Some((shard.parse().ok()?, next.parse().ok()?))
    };
    text.split(',')
        .take(super::limits::TAIL_SHARDS)
        .filter_map(one)
        .collect()
}
