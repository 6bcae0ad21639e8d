//! Requests that are not answered yet. They run at the same time and are answered in the order they came.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Work that comes to an answer.
pub(crate) type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

enum Entry<T> {
    Undone {
        work: Work<T>,
        weight: Weight,
        /// It has begun.
        runs: bool,
    },
    Done(T),
}

/// How much an answer may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// In proportion to its request.
    Light,
    /// Many times its request, so that one of them runs at a time.
    Heavy,
}

/// The queue.
pub(crate) struct Pending<T> {
    entries: VecDeque<Entry<T>>,
    /// Bytes of an answer.
    size: fn(&T) -> usize,
    /// Bytes of the answers that are there, beyond which nothing begins but the first.
    most: usize,
    done: usize,
}

impl<T> Pending<T> {
    /// A queue of answers that wait for those before them, `most` bytes of them and one more.
    pub(crate) fn new(size: fn(&T) -> usize, most: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            size,
            most,
            done: 0,
        }
    }

    /// Bytes of the answers that wait for those before them.
    pub(crate) fn done_bytes(&self) -> usize {
        self.done
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds work behind all other. It begins when [`Self::next`] is polled, after those before it began; what is heavy
    /// once no other that is heavy runs before it. The first in line always goes on.
    pub(crate) fn push(&mut self, work: Work<T>, weight: Weight) {
        self.entries.push_back(Entry::Undone {
            work,
            weight,
            runs: false,
        });
    }

    /// Adds an answer that is there already.
    pub(crate) fn push_done(&mut self, answer: T) {
        self.done += (self.size)(&answer);
        self.entries.push_back(Entry::Done(answer));
    }

    /// Runs everything, and gives the oldest answer once it is there; never, while there is nothing to answer. Can be
    /// dropped at any time.
    pub(crate) async fn next(&mut self) -> T {
        poll_fn(|context| {
            self.go_on(context);
            match self.entries.pop_front() {
                Some(Entry::Done(answer)) => {
                    self.done -= (self.size)(&answer);
                    Poll::Ready(answer)
                }
                Some(runs) => {
                    self.entries.push_front(runs);
                    Poll::Pending
                }
                None => Poll::Pending,
            }
        })
        .await
    }

    fn go_on(&mut self, context: &mut Context<'_>) {
        // What waits begins here and not elsewhere, so nothing has to be woken for it: whatever lets it begin is seen in
        // this pass, or takes an answer off the front, after which the next pass comes.
        let (mut is_first, mut heavy_before) = (true, false);
        for entry in &mut self.entries {
            let is_first = std::mem::replace(&mut is_first, false);
            let Entry::Undone { work, weight, runs } = entry else {
                continue;
            };
            let may_begin = self.done < self.most && !(heavy_before && *weight == Weight::Heavy);
            *runs |= is_first || may_begin;
            if *runs && let Poll::Ready(answer) = work.as_mut().poll(context) {
                self.done += (self.size)(&answer);
                *entry = Entry::Done(answer);
            } else {
                heavy_before |= *weight == Weight::Heavy;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn answers_leave_in_the_order_of_their_requests() {
        let mut pending = Pending::new(|text: &&str| text.len(), 100);
        let (slow, answer) = oneshot::channel();
        let light = Weight::Light;
        pending.push(Box::pin(async move { answer.await.unwrap() }), light);
        pending.push(
            Box::pin(async move {
                // The second is done first, and lets the first go on.
                slow.send("first").unwrap();
                "second"
            }),
            light,
        );
        pending.push_done("third");
        let mut order = Vec::new();
        while !pending.is_empty() {
            order.push(pending.next().await);
        }
        assert_eq!(order, ["first", "second", "third"]);
    }

    /// Polls it once; nothing is answered.
    async fn turn(pending: &mut Pending<usize>) {
        let answered = tokio::time::timeout(Duration::ZERO, pending.next()).await;
        assert!(answered.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn answers_behind_a_slow_one_take_so_much_memory_and_no_more() {
        let mut pending = Pending::new(|bytes: &usize| *bytes, 10);
        let (slow, first) = oneshot::channel();
        pending.push(Box::pin(async { first.await.unwrap() }), Weight::Heavy);
        for _ in 0..20 {
            pending.push(Box::pin(async { 4 }), Weight::Light);
        }
        turn(&mut pending).await;
        assert_eq!(pending.done_bytes(), 12);
        slow.send(4).unwrap();
        let mut answers = 0;
        while !pending.is_empty() {
            assert!(pending.done_bytes() < 10 + 4);
            assert_eq!(pending.next().await, 4);
            answers += 1;
        }
        assert_eq!((answers, pending.done_bytes()), (21, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_heavy_waits_for_what_is_heavy_before_it() {
        let mut pending = Pending::new(|bytes: &usize| *bytes, 10);
        let begun = Arc::new(AtomicUsize::new(0));
        let mut lets_go = Vec::new();
        for weight in [
            Weight::Light,
            Weight::Heavy,
            Weight::Heavy,
            Weight::Light,
            Weight::Heavy,
        ] {
            let (go, gone) = oneshot::channel();
            let begun = Arc::clone(&begun);
            let work = async move {
                begun.fetch_add(1, Ordering::Relaxed);
                gone.await.unwrap()
            };
            pending.push(Box::pin(work), weight);
            lets_go.push(Some(go));
        }
        let mut let_go = |at: usize| lets_go[at].take().unwrap().send(1).unwrap();
        turn(&mut pending).await;
        assert_eq!(
            begun.load(Ordering::Relaxed),
            3,
            "two light ones and a heavy one"
        );
        let_go(1);
        turn(&mut pending).await;
        assert_eq!(begun.load(Ordering::Relaxed), 4);
        let_go(0);
        assert_eq!((pending.next().await, pending.next().await), (1, 1));
        for at in [2, 3, 4] {
            let_go(at);
            assert_eq!(pending.next().await, 1);
        }
        assert!(pending.is_empty());
    }
}
